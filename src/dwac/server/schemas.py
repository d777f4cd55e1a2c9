"""Requests and answers as pydantic models, which check requests and document both."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from dwac.server.inputs import Reader
from dwac.server.limits import Limits
from dwac.server.refusals import RefusalError

Epsilon = Annotated[
    float,
    Field(ge=1e-9, lt=1, description="Allowed error rate: the share of prediction sets that may miss the true label."),
]
T = TypeVar("T", bound=BaseModel)
# JSON does not distinguish 5.0 from 5.
Whole = Annotated[int, BeforeValidator(lambda k: int(k) if isinstance(k, float) and k.is_integer() else k)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    rows: list[Any] = Field(
        min_length=1,
        description="The examples, in the form that the model takes; any other row is reported as unreadable.",
    )
    strict: bool = Field(False, description="Refuse the whole request if any row cannot be read.")


class Ask(_Asked):
    """Rows, and the error rate ε of their prediction sets."""

    epsilon: Epsilon = 0.05


class AskWhy(_Asked):
    """Rows, and how many neighbours to show per row."""

    k: Whole = Field(5, ge=1, description="Number of training examples to show per row.")


class Prediction(BaseModel):
    """The label of a row, and how far to trust it. Without calibration rows the last four are null.

    A row that cannot be read gets the most common label, the class frequencies as probabilities, and typicality 0.
    """

    label: Any
    probability: Share
    probabilities: dict[str, float] = Field(description="Per class.")
    unreadable: str | None = Field(description="Why the row could not be read; null if it could.")
    confidence: Share | None = Field(
        description="1 - the second largest p-value: how firmly other labels are rejected."
    )
    credibility: Share | None = Field(description="The largest p-value: near 0 if no label fits.")
    typicality: Share | None = Field(
        description="Share of calibration rows at least as unlike the training rows: near 0 for rows unlike anything "
        "seen. Null for a softmax, too."
    )
    label_set: list[Any] | None = Field(
        description="Prediction set: labels with p > ε. Misses the true one at a rate of at most ε."
    )


class _Answered(BaseModel):
    epsilon: float
    note: str | None = Field(description="Why sets at this ε exclude few labels or none, if so.")


class Predictions(_Answered):
    """One prediction per row."""

    predictions: list[Prediction]


class LabelSet(BaseModel):
    """The prediction set of a row: the labels that cannot be rejected at ε."""

    unreadable: str | None = Field(
        description="Why the row could not be read (then the set is empty); null if it could."
    )
    label_set: list[Any]
    p_values: dict[str, float] = Field(description="Per class.")
    confidence: Share
    credibility: Share
    typicality: Share | None


class Sets(_Answered):
    """One prediction set per row."""

    sets: list[LabelSet]


class Neighbor(BaseModel):
    """A training example and its vote; only the label and a rounded share if the service is private."""

    label: Any
    share: float = Field(description="Share of the whole vote; in whole per cent if the service is private.")
    weight: float | None = None
    log_weight: float | None = None
    size: int | None = Field(None, description="How many training examples it votes for.")
    id: Any = None
    distance: float | None = None
    record: Any = None


class Group(BaseModel):
    """Training examples of one label that vote alike."""

    label: Any
    share: float = Field(description="Share of the whole vote: the exact sum of the members' votes.")
    size: int = Field(description="Number of training examples.")
    description: str | None = Field(description="What sets the group apart, in words; null if nothing is known.")
    representative: Neighbor = Field(description="Its most central member.")
    members: list[Neighbor] = Field(description="Some members, those most like the row first.")


class Agreement(BaseModel):
    """How often those who vote give the label that all training examples would, on calibration rows."""

    share: Share
    low: Share = Field(description="Lower end of a 95 % interval.")
    high: Share = Field(description="Upper end of it.")
    n: int = Field(description="Number of rows.")


class Why(BaseModel):
    """An explanation, the same as `Explanation.to_dict()` in Python."""

    label: Any
    probability: float
    probabilities: dict[str, float]
    confidence: float | None
    credibility: float | None
    typicality: float | None = Field(
        description="Share of calibration rows at least as unlike the training rows: near 0 if unlike anything seen."
    )
    p_values: dict[str, float] | None
    unreadable: str | None = Field(
        description="Why the row could not be read (then there are no votes); null if it could."
    )
    deciding: int | None = Field(
        description="How many nearest examples decide the label, whatever the labels of the others."
    )
    deciding_groups: int | None = Field(
        description="How many of the heaviest groups decide the label, whatever the labels of all others; null if the "
        "service is private."
    )
    flip_size: int | None = Field(description="How many training examples must be removed to change the label.")
    n_references: int = Field(description="How many vote.")
    n_examples: int = Field(description="How many training examples they vote for.")
    agreement: Agreement | None = Field(description="Null if all training examples vote.")
    private: bool
    record: Any = Field(description="The row that is explained.")
    attention: Any = Field(description="For a text: its words and the attention that the network pays to each.")
    neighbors: list[Neighbor] = Field(description="Nearest first; heaviest first if they vote for others.")
    groups: list[Group] = Field(
        description="The k heaviest groups, and the heaviest one for another label; none if the service is private."
    )
    n_groups: int = Field(description="The number of all groups.")


class Explanations(BaseModel):
    """One explanation per row."""

    explanations: list[Why]


class Card(BaseModel):
    """The model and the rows that it takes."""

    kind: str = Field(description="tabular, image, text, huggingface or module")
    head: str
    kernel: str
    classes: list[Any]
    n_references: int = Field(description="Number of training examples that vote; 0 for a softmax.")
    n_examples: int = Field(description="Number of training examples that they vote for.")
    agreement: Agreement | None = Field(description="Null if all training examples vote.")
    n_calibration: int
    columns: list[dict[str, Any]] | None = Field(description="Columns of a table; null for other data.")
    row: dict[str, Any] = Field(description="JSON Schema of one row.")
    example: Any = Field(description="A row that the model accepts.")
    private: bool
    limits: dict[str, float]


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


def checked(kind: type[T], asked: Any) -> T:
    """The checked request, or a refusal that names the field."""
    try:
        return kind.model_validate(asked)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        came = f"{first['input']!r:.60}"
        raise RefusalError(422, "invalid_request", f"{where}: {first['msg']}; got {came}") from None


def request_body(kind: type[_Asked], reader: Reader, limits: Limits) -> dict[str, Any]:
    """The body of a request in OpenAPI, for this model."""
    schema = kind.model_json_schema()
    why = kind is AskWhy
    schema["properties"]["rows"] |= {
        "items": {"anyOf": [reader.schema(), {}]},  # any other row is reported as unreadable
        "maxItems": limits.rows_to_explain if why else limits.rows,
    }
    schema["if"] = {"properties": {"strict": {"const": True}}, "required": ["strict"]}
    schema["then"] = {"properties": {"rows": {"items": reader.schema()}}}
    if why:
        schema["properties"]["k"]["maximum"] = limits.neighbors
    example = {"rows": [reader.example()], **({"k": 5} if why else {"epsilon": 0.05})}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}
