"""Requests and answers of the service: their fields, their meaning in OpenAPI, and the check of a request.

The fields of answers that depend on the task are made from the columns that it declares (`dwac.tasks.answers`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal, NamedTuple, TypeVar

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, create_model

from dwac.conformal.decisions import CONFIDENCE
from dwac.drawing.records import plain
from dwac.errors import EPSILON
from dwac.languages import languages
from dwac.reading.requests import Reader
from dwac.server.limits import Limits, RefusalError
from dwac.tasks import CLASSES, LABELS, NUMBERS, Target, class_target
from dwac.tasks.answers import TYPICALITY, UNKNOWN, UNREADABLE, AnswerColumn, ValueKind

MOST_LEVELS, MOST_WAYS = 99, 10
Epsilon = Annotated[float, Field(ge=1e-9, lt=1)]
T = TypeVar("T", bound=BaseModel)
# JSON does not distinguish 5.0 from 5.
_as_whole = BeforeValidator(lambda k: int(k) if isinstance(k, float) and k.is_integer() else k)
Whole = Annotated[int, _as_whole]
Share = Annotated[float, Field(ge=0, le=1)]
Ends = Annotated[list[float | None], Field(min_length=2, max_length=2)]  # a null end is unbounded
Histogram = Annotated[list[list[float]], Field(min_length=2, max_length=2)]


# Requests


class StrictModel(BaseModel):
    """A part of a request: without unknown fields, and with values of exactly the declared types."""

    model_config = ConfigDict(extra="forbid", strict=True)


class Asked(StrictModel):
    """Rows, and the error rate ε of their prediction sets."""

    rows: list[Any] = Field(
        min_length=1,
        description="The examples, in the form that the model takes; any other row is reported as unreadable.",
    )
    strict: bool = Field(False, description="Refuse the whole request if any row cannot be read.")
    epsilon: Epsilon = Field(EPSILON, description="The share of prediction sets that may miss the true label.")


class AskLabels(Asked):
    """Rows, and the error rate ε of their decisions and sets."""

    epsilon: Epsilon = Field(
        EPSILON, description="The share of wrong decisions on each label, and of labels that sets may miss."
    )


class AskNumbers(Asked):
    """Rows, the error rate ε of their intervals, and levels of quantiles."""

    epsilon: Epsilon = Field(EPSILON, description="The share of intervals that may miss the true number.")
    quantiles: list[Share] = Field(
        [], max_length=MOST_LEVELS, description="Levels, such as 0.25, of the quantiles of the votes to answer with."
    )


class AskDecision(Asked):
    """Rows to decide, and how many of those that are decided may be wrong."""

    risk: Annotated[float, Field(ge=1e-9, lt=1)] = Field(
        0.05, description="The largest share of decided rows that may have an error."
    )
    measure: Literal["error", "false positives", "false negatives"] = Field(
        "error", description="What counts: any error, or only those of one kind about `label`."
    )
    label: Any = Field(None, description="The label that `measure` is about; null: any, or the second of two.")
    tolerance: float | list[float] | None = Field(
        None, description="For numbers: an error is being off by more than this; one number, or one for each."
    )
    confidence: Annotated[float, Field(ge=1e-9, lt=1)] = Field(
        CONFIDENCE, description="The probability with which the bound holds, over draws of the calibration rows."
    )
    epsilon: Epsilon = Field(EPSILON, description="The error rate of the sets and intervals that are recorded.")


class AskWhy(Asked):
    """Rows, and how many neighbours to show per row."""

    k: Whole = Field(5, ge=1, description="Number of training examples to show per row.")
    epsilon: Epsilon = Field(EPSILON, description="The error rate of prediction sets and intervals.")
    reasons: bool = Field(
        False,
        description="Also say which columns, phrases or patches decide between each row and a real precedent. This "
        "takes some 40 ms per row and precedent, so a request may have fewer rows.",
    )
    against: Any = Field(
        None,
        description="Compare with this label, or with the training example that has this id; numbers: with this range; "
        "null: the runner-up. Includes `reasons`.",
    )
    example: str | int | float | None = Field(
        None,
        description="Compare with the training example that has this id, even if a label has the same name. Includes "
        "`reasons`.",
    )
    precedents: Annotated[int, Field(ge=1), _as_whole] | Literal["random"] = Field(
        1,
        description='Compare with so many precedents; contributions are then means. "random": with training examples '
        "drawn at random, for what matters on average. Includes `reasons`.",
    )
    language: str | None = Field(
        None, description="The language of texts, such as de; null: what the header Accept-Language prefers."
    )

    @property
    def wants_reasons(self) -> bool:
        """Whether any of the options asks for reasons."""
        return self.reasons or self.against is not None or self.example is not None or self.precedents != 1


class AskWhyLabels(AskWhy):
    """Rows, how many neighbours to show per label, and which labels to explain."""

    labels: list[Any] | None = Field(
        None,
        min_length=1,
        description="Which labels; null: those that each row is predicted to have, or the likeliest.",
    )


class AskRecourse(Asked):
    """Rows, and what shall become of them."""

    label: Any = Field(
        description="The wanted label. Numbers: the range that the number shall be in, null for an open end, by name "
        "if there are several."
    )
    frozen: list[Any] = Field([], description="Columns that cannot change.")
    only: list[Any] | None = Field(None, description="The only columns that can change; null: all that are not frozen.")
    bounds: dict[str, Any] = Field(
        {}, description='By column: it can only "grow" or "fall", or must stay in a range; null for an open end.'
    )
    tied: list[list[Any]] = Field([], description="Groups of columns that change together.")
    least: bool = Field(
        False, description="Whether numbers and dates change only as far towards the precedent as needed."
    )
    k: Whole = Field(
        3, ge=1, le=MOST_WAYS, description="How many ways to give at most, with different columns if possible."
    )
    probability: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None, description="The least probability of the label; null: it has to win."
    )
    alone: bool = Field(False, description="Whether the prediction set, or the interval, at ε may hold nothing else.")
    epsilon: Epsilon = Field(EPSILON, description="The error rate of that set or interval.")
    language: str | None = Field(
        None, description="The language of texts, such as de; null: what the header Accept-Language prefers."
    )


def check_request(kind: type[T], request: Any) -> T:
    """The checked request, or a refusal that names the field."""
    try:
        return kind.model_validate(request)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        value = f"{first['input']!r:.60}"
        raise RefusalError(422, "invalid_request", f"{where}: {first['msg']}; got {value}") from None


def request_body(kind: type[Asked], reader: Reader, limits: Limits, target: Target) -> dict[str, Any]:
    """The body of a request in OpenAPI, for this model."""
    schema = kind.model_json_schema()
    fields, example = schema["properties"], {"rows": [reader.example()]}
    most = limits.rows
    if "language" in fields:
        fields["language"]["anyOf"][0] = {"enum": list(languages())}
    if issubclass(kind, AskWhy):
        most = limits.rows_to_explain
        fields["k"]["maximum"], fields["precedents"]["anyOf"][0]["maximum"] = limits.neighbors, limits.precedents
        example["k"] = kind.model_fields["k"].default
        asking = [_given(name, {"not": {"type": "null"}}) for name in ("against", "example")]
        asking += [_given("reasons", {"const": True}), _given("precedents", {"not": {"const": 1}})]
        fewer = {"properties": {"rows": {"maxItems": limits.rows_to_compare}}}
        schema["allOf"] = [{"if": {"anyOf": asking}, "then": fewer}]
    elif issubclass(kind, AskDecision):
        example["risk"] = kind.model_fields["risk"].default
        _describe_decision(schema, example, target)
    elif issubclass(kind, AskRecourse):
        most, names = limits.rows_to_compare, {"enum": plain(reader.names() or [])}
        wanted = _wanted(target)
        fields["label"] |= wanted["schema"]
        example["label"] = wanted["example"]
        fields["frozen"]["items"] = fields["only"]["anyOf"][0]["items"] = fields["tied"]["items"]["items"] = names
        ends = {"type": "array", "items": {"type": ["number", "string", "null"]}, "minItems": 2, "maxItems": 2}
        bound = {"anyOf": [{"enum": ["grow", "fall"]}, ends]}
        fields["bounds"] |= {"properties": dict.fromkeys(map(str, names["enum"]), bound), "additionalProperties": False}
    else:
        example["epsilon"] = kind.model_fields["epsilon"].default
    # Any other row is reported as unreadable.
    fields["rows"] |= {"items": {"anyOf": [reader.schema(), {}]}, "maxItems": most}
    schema["if"] = _given("strict", {"const": True})
    schema["then"] = {"properties": {"rows": {"items": reader.schema()}}}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}


def _describe_decision(schema: dict[str, Any], example: dict[str, Any], target: Target) -> None:
    """Write what counts as an error of this model into the schema of a request for decisions, and into its example."""
    fields = schema["properties"]
    if target.kind != NUMBERS:
        fields["label"]["enum"], fields["tolerance"] = [*plain(target.names), None], {"type": "null"}
        return
    one = {"type": "number", "exclusiveMinimum": 0}
    each = {"type": "array", "items": one, "minItems": len(target.names), "maxItems": len(target.names)}
    fields["tolerance"] = {"anyOf": [one, each], "description": fields["tolerance"]["description"]}
    fields["measure"]["enum"], fields["label"]["type"] = ["error"], "null"
    schema["required"] = [*schema.get("required", ()), "tolerance"]
    example["tolerance"] = 1


def _given(name: str, value: dict[str, Any]) -> dict[str, Any]:
    return {"properties": {name: value}, "required": [name]}


def _wanted(target: Target) -> dict[str, Any]:
    """The label or range that recourse shall reach: its JSON Schema, and an example."""
    names = plain(target.names)
    if target.kind != NUMBERS:
        without = [f"not {name}" for name in names] if target.kind == LABELS else []
        return {"schema": {"enum": [*names, *without]}, "example": names[-1]}
    ends = {"type": "array", "items": {"type": ["number", "null"]}, "minItems": 2, "maxItems": 2}
    if target.single:
        return {"schema": ends, "example": [0, None]}
    by_name = {"type": "object", "minProperties": 1, "maxProperties": 1, "additionalProperties": False}
    return {"schema": {**by_name, "properties": dict.fromkeys(names, ends)}, "example": {names[0]: [0, None]}}


# Answers


class Answered(BaseModel):
    """The error rate of an answer."""

    epsilon: float
    note: str | None = Field(description="What the calibration rows do not allow at this ε, if anything.")
    n_unreadable: int = Field(description="How many of the rows could not be read; they have no answer.")
    decisions: list[str | None] | None = Field(
        None, description="The ids of the answers in the record of decisions, by row; only if the service keeps one."
    )


class RuleFields(BaseModel):
    """How rows are decided: those with an expected loss of at most `threshold`."""

    risk: float
    confidence: float
    threshold: float | None = Field(description="Null if no row can be decided.")
    share: Share = Field(description="The share of rows to expect that are decided.")
    proved: bool = Field(description="False if calibration rows vote, too: the bound is then measured, not proved.")
    sentence: str | None = Field(
        description="The evidence in words, or why no row can be decided; null if the service is private."
    )


class DecidedRow(BaseModel):
    """A decision, or why a person has to make it."""

    decided: bool
    decision: Any = Field(description="A label, several labels, a number or several by place; null if handed over.")
    expected_loss: float | None = Field(description="The loss that the votes expect, from 0 to 1.")
    why: str | None = Field(description="Why the row is handed over.")
    unreadable: str | None = Field(description=UNREADABLE.meaning)
    unknown: str | None = Field(description=UNKNOWN.meaning)


class Decided(BaseModel):
    """The decisions on the rows, in their order."""

    rule: RuleFields
    n_unreadable: int = Field(description="How many of the rows could not be read; they are handed over.")
    decisions: list[str | None] | None = Field(
        None, description="The ids of the decisions in the record, by row; only if the service keeps one."
    )
    decided: list[DecidedRow]


class VoterFields(BaseModel):
    """A training example and its vote; only what it votes for and a rounded share if the service is private."""

    share: float = Field(description="Share of the whole vote; in whole per cent if the service is private.")
    weight: float | None = None
    log_weight: float | None = None
    size: int | None = Field(None, description="How many training examples it votes for.")
    id: Any = None
    distance: float | None = None
    record: Any = None
    label: Any = Field(description="What it votes for: a label, a number, or several numbers by place.")


class VoterGroup(BaseModel):
    """Training examples that vote alike."""

    share: float = Field(description="Share of the whole vote: the exact sum of the members' votes.")
    size: int = Field(description="Number of training examples.")
    description: str | None = Field(
        description="What sets the group apart from other training examples, in words, whether or not the row is like "
        "that; null if nothing is known."
    )
    compared: str | None = Field(description="`shared` and `different` in one line; null if nothing is known.")
    shared: list[str] = Field(
        description="Conditions that the row and nearly all members meet, the most telling first."
    )
    different: list[str] = Field(description="Values of the row that nearly no member has, beside the usual ones.")
    label: Any = Field(description="Their label; of numbers, the mean, the lowest and the highest.")
    representative: VoterFields = Field(description="Its most central member.")
    members: list[VoterFields] = Field(description="Some members, those most like the row first.")


class VoterAgreement(BaseModel):
    """How often those who vote give the label that all training examples would, on calibration rows."""

    share: Share
    low: Share = Field(description="Lower end of a 95 % interval.")
    high: Share = Field(description="Upper end of it.")
    n: int = Field(description="Number of rows.")


class Compared(BaseModel):
    """A training example with which a row is compared."""

    id: Any
    label: Any = Field(description="Its own label or number.")
    typicality: float | None
    record: Any


class PartFields(BaseModel):
    """A column, phrase or patch, and what it adds to the difference between the row and the precedent."""

    column: Any
    value: Any = Field(description="Of the row; of a patch, its place in pixels: top, left, bottom, right.")
    other_value: Any = Field(None, description="Of the precedent; null if the service is private.")
    contribution: float
    spread: float | None = Field(None, description="Over several precedents.")


class ReasonFields(BaseModel):
    """Why a row gets its label or number and a precedent another one, as `Reasons.to_dict()` in Python."""

    label: Any = Field(description="Of the row: its label, or its predicted number.")
    other: Any = Field(description="That the model gives the precedent.")
    sentences: list[str] = Field(description="The same in plain words.")
    precedents: list[Compared] = Field(description="Most similar first; none if the service is private.")
    contributions: list[PartFields] = Field(description="Largest first; they add up to `total`.")
    total: float = Field(description="The difference between the row and the precedent.")
    error: float = Field(description="A bound on the error of each contribution; 0: they are exact.")
    unit: str = Field(description='"log-odds" of the label against the other one, or the predicted number.')
    private: bool


class ExplainedRow(BaseModel):
    """What every explanation says of its row."""

    private: bool
    record: Any = Field(description="The row that is explained.")
    columns: dict[str, Any] | None = Field(
        None, description="By column: its title and the meanings of its codes, if the model was trained with names."
    )
    attention: Any = Field(description="For a text: its words and the attention that the network pays to each.")


class ExplainedVote(ExplainedRow):
    """What every explanation of one vote says of those who vote."""

    epsilon: float | None
    n_references: int = Field(description="How many vote.")
    n_examples: int = Field(description="How many training examples they vote for.")
    n_effective: float | None = Field(
        description="The effective number of voters, 1 / Σ share²: as many with equal votes would weigh as much. "
        "Null if the service is private."
    )
    vote_interval: Any = Field(
        description="Where the probability, or the predicted number, would be if the voters were drawn again (95 %): "
        "lower and upper end; of several numbers one pair each. Null if the service is private."
    )
    agreement: VoterAgreement | None = Field(description="Null if all training examples vote.")
    n_groups: int = Field(description="The number of all groups.")
    neighbors: list[VoterFields] = Field(description="Nearest first; heaviest first if they vote for others.")
    groups: list[VoterGroup] = Field(
        description="The k heaviest groups, and the heaviest one for another label; none if the service is private."
    )
    reasons: ReasonFields | None = Field(
        None, description="If asked for; null if the row has the label to compare with already, or cannot be read."
    )


class ExplainedLabel(ExplainedVote):
    """An explanation, the same as `Explanation.to_dict()` in Python. An unreadable row has no votes."""

    deciding: int | None = Field(
        description="How many nearest examples decide the label, whatever the labels of the others."
    )
    deciding_groups: int | None = Field(
        description="How many of the heaviest groups decide the label, whatever the labels of all others; null if the "
        "service is private."
    )
    flip_size: int | None = Field(description="How many training examples must be removed to change the label.")


class Influential(BaseModel):
    """A training example whose removal would move the prediction."""

    id: Any
    target: float = Field(description="Its number.")
    share: float = Field(description="Share of the whole vote.")
    move: float = Field(description="The prediction without it, minus the prediction.")
    name: Any = Field(description="Of the number that moves, if several are predicted.")
    record: Any


class ExplainedNumber(ExplainedVote):
    """An explanation, the same as `NumberExplanation.to_dict()` in Python. An unreadable row has no votes.

    If the service is private, all numbers are rounded, and there are no neighbours, groups, quantiles or influence.
    """

    prediction: float | None
    interval: Ends | None = Field(description="Lower and upper end; null without calibration rows.")
    guarantee: float | None = Field(description="The least coverage in theory, on average.")
    names: list[Any]
    average: Literal["mean", "median"]
    quantiles: dict[str, float] | None = Field(description="Of the votes, by level.")
    histogram: Histogram | None = Field(description="Edges of bins, and the share of the votes in each bin.")
    influential: list[Influential] = Field(description="Whose removal moves the prediction most, the largest first.")


class ExplainedNumbers(ExplainedNumber):
    """The same of several numbers: each entry of a list is of the name in its place."""

    prediction: list[float | None]  # type: ignore[assignment]
    interval: list[Ends] | None  # type: ignore[assignment]
    quantiles: dict[str, list[float]] | None  # type: ignore[assignment]
    histogram: list[Histogram] | None  # type: ignore[assignment]
    reasons: dict[str, ReasonFields] | None = None  # type: ignore[assignment]


class ChangeFields(BaseModel):
    """A column, its value now, and the value that it would have to have; neither if the service is private."""

    column: Any
    value: Any
    to: Any


class WayFields(BaseModel):
    """A change of a few columns that reaches what is wanted, checked with the model."""

    changes: list[ChangeFields]
    precedent: Compared | None = Field(description="Whose values they are; null if the service is private.")
    value: float = Field(description="The probability of the label after the change, or the predicted number.")
    typicality: float | None = Field(description="Of the changed row.")
    atypical: bool = Field(description="Whether the changed row is unlike the training data.")
    shortened: bool = Field(description="Whether numbers change less than to the values of the precedent.")
    record: Any = Field(description="The changed row; null if the service is private.")


class RecourseFields(BaseModel):
    """The smallest changes that give a row another label or number, as `Recourse.to_dict()` in Python."""

    label: Any = Field(description="What the row gets now.")
    wanted: Any
    sentences: list[str] = Field(description="The same in plain words.")
    reached: bool = Field(description="Whether the row has it already.")
    ways: list[WayFields] = Field(description="Few changes first; those to atypical rows last.")
    obstacle: list[Any] = Field(
        description="If there is no way: the fewest columns that would have to change as well; none if that would not "
        "help."
    )
    closest: float | None = Field(
        description="If there is no way: the probability, or number, that allowed changes reach; null if the model "
        "gives no training example what is wanted."
    )
    private: bool
    unreadable: str | None


class Recourses(BaseModel):
    """The recourse of the rows, in their order."""

    recourse: list[RecourseFields]


class ModelCard(BaseModel):
    """The model and the rows that it takes."""

    task: Literal["classes", "ordered", "labels", "numbers"] = Field(
        description="ordered: the classes have an order, and sets no gaps."
    )
    fingerprint: str | None = Field(
        description="Of the model folder, as `dwac train` printed it and `--expect` demands it; also the header "
        "dwac-fingerprint of every answer. Null if the model was not loaded from a folder."
    )
    kind: str = Field(description="tabular, image, text, huggingface or module")
    kernel: str
    n_references: int = Field(description="Number of training examples that vote.")
    n_examples: int = Field(description="Number of training examples that they vote for.")
    agreement: VoterAgreement | None = Field(description="Null if all training examples vote.")
    n_calibration: int
    columns: list[dict[str, Any]] | None = Field(description="Columns of a table; null for other data.")
    row: dict[str, Any] = Field(description="JSON Schema of one row.")
    example: Any = Field(description="A row that the model accepts.")
    private: bool
    limits: dict[str, float]


# Answers that depend on the task, from the columns that it declares

_TYPES: dict[ValueKind, Any] = {
    ValueKind.LABEL: Any,
    ValueKind.LABELS: list[Any],
    ValueKind.SHARE: Share,
    ValueKind.NUMBER: float,
    ValueKind.DECISION: Literal["yes", "no", "undecided"],
    ValueKind.TEXT: str,
}


def fields_of(columns: Iterable[AnswerColumn]) -> dict[str, Any]:
    """The fields of a JSON object with these columns, as `pydantic.create_model` takes them."""
    fields: dict[str, Any] = {}
    nested: dict[str, list[AnswerColumn]] = {}
    for column in columns:
        if column.within:
            nested.setdefault(column.within, []).append(replace(column, within="", per_name=False))
        else:
            form = _by_key(_form(column)) if column.per_name else _form(column)
            fields[column.name] = (form if form is Any else form | None, Field(description=column.meaning))
    for name, inner in nested.items():
        form = _by_key(_object("Estimate", "A number, and how uncertain it is.", fields_of(inner)))
        fields[name] = (form | None, Field(description="Per number that is predicted, by name."))
    return fields


def _form(column: AnswerColumn) -> Any:
    """The type of a column of answers, or of what it has for each name."""
    form = _TYPES[column.kind]
    if column.parts is None:
        return form
    if not column.parts:  # those that a request asks for
        return _by_key(form)
    return _object(column.name.title(), column.meaning, dict.fromkeys(column.parts, (form | None, ...)))


def _by_key(form: Any) -> Any:
    return dict[str, form]


def _object(name: str, about: str, fields: dict[str, Any], base: type[BaseModel] = BaseModel) -> Any:
    return create_model(name, __doc__=about, __base__=base, **fields)


def _row(name: str, about: str, columns: Iterable[AnswerColumn], base: type[BaseModel] = BaseModel) -> Any:
    """The answer for a row: these columns, and whether and how it was read."""
    return _object(name, about, fields_of((*columns, UNREADABLE, UNKNOWN)), base)


def _per_row(name: str, field: str, row: Any, base: type[BaseModel] = BaseModel) -> Any:
    """The answer for all rows."""
    return _object(name, f"The {field} of the rows, in their order.", {field: (list[row], ...)}, base)


class Schemas(NamedTuple):
    """The requests and answers of one task, and their descriptions."""

    ask: type[Asked]
    ask_why: type[AskWhy]
    predictions: type[BaseModel]
    sets: type[BaseModel] | None  # None if the task has no sets
    explanations: type[BaseModel]
    card: type[ModelCard]
    about: Mapping[str, str]  # by the name of a route


_ABOUT_ALL = {
    "decide": "Decides as many rows as possible with few errors among them, and hands the others over to a person, "
    "with the reason. Of decided rows like those of training, at most a share `risk` has an error, with probability "
    "`confidence`.",
    "recourse": "The smallest changes of each row, towards real training examples, that give it a label or a number in "
    "a range; or the columns that stand in the way.",
}
_ABOUT = {
    CLASSES: {
        "predict": "Label, probabilities, confidence, credibility, typicality and prediction set of each row.",
        "sets": "The labels that cannot be rejected at error rate ε, and the p-value of every label.",
        "explain": "The training examples that voted and their shares; how few decide; how many must go to change the "
        "label.",
        "model": "Its kind and classes, the form of its rows, the number of voters, and the limits of this service.",
    },
    LABELS: {
        "predict": "Labels, their probabilities, a decision on each, typicality, and the set that misses few labels.",
        "sets": "A decision on each label at error rate ε, its p-values, and the set that misses few labels.",
        "explain": "For each label the training examples that voted and their shares; how few decide.",
        "model": "Its kind and labels, the form of its rows, the number of voters, and the limits of this service.",
    },
    NUMBERS: {
        "predict": "Number, interval at error rate ε, quantiles asked for and typicality of each row.",
        "explain": "The training examples that voted, with their numbers and shares, the distribution of the votes, "
        "and whose removal would move the prediction most.",
        "model": "Its kind, the form of its rows, the number of voters, and the limits of this service.",
    },
}
_PREDICTION = {
    CLASSES: "The label of a row, and how far to trust it. What needs calibration rows is null without them.",
    LABELS: "The labels of a row, and how far to trust them. What needs calibration rows is null without them.",
    NUMBERS: "The number of a row, and how far to trust it; the guarantee of an interval is for each number alone.",
}
_ASK: dict[str, tuple[type[Asked], type[AskWhy]]] = {
    CLASSES: (Asked, AskWhy),
    LABELS: (AskLabels, AskWhyLabels),
    NUMBERS: (AskNumbers, AskWhy),
}


def names_field(kind: str) -> str:
    """The field of a card with the classes, labels or names of numbers."""
    return kind if kind in (LABELS, NUMBERS) else CLASSES


def schemas_of(target: Target) -> Schemas:
    """The requests and answers of a model with this target."""
    kind, columns = names_field(target.kind), target.columns()
    start = {CLASSES: "", LABELS: "Labels", NUMBERS: "Number" if target.single else "Numbers"}[kind]
    prediction = _row(f"{start}Prediction", _PREDICTION[kind], (each for each in columns if not each.evidence))
    sets = None
    if kind != NUMBERS:
        about = "The prediction set of a row at ε, and everything else that needs calibration rows."
        each_set = _row(
            "Decisions" if kind == LABELS else "LabelSet", about, (each for each in columns if each.calibrated)
        )
        sets = _per_row(f"{start}Sets", "sets", each_set, Answered)
    ask, ask_why = _ASK[kind]
    return Schemas(
        ask,
        ask_why,
        predictions=_per_row(f"{start}Predictions", "predictions", prediction, Answered),
        sets=sets,
        explanations=_per_row(f"{start}Explanations", "explanations", _explanation(target)),
        card=_object(f"{start}Card", str(ModelCard.__doc__), {kind: (list[Any], ...)}, ModelCard),
        about={**_ABOUT_ALL, **_ABOUT[kind]},
    )


def _explanation(target: Target) -> Any:
    """The explanation of a row, or of several labels by label."""
    if target.kind == NUMBERS:
        base, name = (ExplainedNumber, "WhyNumber") if target.single else (ExplainedNumbers, "WhyNumbers")
        return _row(name, str(base.__doc__), [TYPICALITY], base)
    why = _row("Why", str(ExplainedLabel.__doc__), class_target(np.empty(0)).columns(), ExplainedLabel)
    if target.kind != LABELS:
        return why
    columns = [column for column in target.columns() if column.name in ("labels", "label_set", "typicality")]
    fields: dict[str, Any] = {
        **fields_of((*columns, UNREADABLE, UNKNOWN)),
        "epsilon": (float, ...),
        "probabilities": (dict[str, Share | None], Field(description="Per label.")),
        "explanations": (_by_key(why), Field(description="Per label that was asked for.")),
    }
    about = 'Explanations by label: the one of the label "sad" chooses between "sad" and "not sad".'
    return _object("WhyLabels", about, fields, ExplainedRow)


# The service itself


class Health(BaseModel):
    """State of the service."""

    status: str


class Error(BaseModel):
    """A code for programs and a message for people."""

    code: str
    message: str


class Refused(BaseModel):
    """Why the request was refused."""

    error: Error
