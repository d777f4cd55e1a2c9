"""The common part of the requests and answers of all tasks, and the check of a request."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from dwac.errors import EPSILON
from dwac.reading.requests import Reader
from dwac.server.limits import Limits, RefusalError

Epsilon = Annotated[float, Field(ge=1e-9, lt=1)]
T = TypeVar("T", bound=BaseModel)
# JSON does not distinguish 5.0 from 5.
Whole = Annotated[int, BeforeValidator(lambda k: int(k) if isinstance(k, float) and k.is_integer() else k)]
Share = Annotated[float, Field(ge=0, le=1)]


class Asked(BaseModel):
    """Rows to answer for."""

    model_config = ConfigDict(extra="forbid", strict=True)
    rows: list[Any] = Field(
        min_length=1,
        description="The examples, in the form that the model takes; any other row is reported as unreadable.",
    )
    strict: bool = Field(False, description="Refuse the whole request if any row cannot be read.")


class AskWhy(Asked):
    """Rows, and how many neighbours to show per row."""

    k: Whole = Field(5, ge=1, description="Number of training examples to show per row.")
    epsilon: Epsilon = Field(EPSILON, description="The error rate of prediction sets and intervals.")


class Voter(BaseModel):
    """A training example and its vote; only what it votes for and a rounded share if the service is private."""

    share: float = Field(description="Share of the whole vote; in whole per cent if the service is private.")
    weight: float | None = None
    log_weight: float | None = None
    size: int | None = Field(None, description="How many training examples it votes for.")
    id: Any = None
    distance: float | None = None
    record: Any = None


class VoterGroup(BaseModel):
    """Training examples that vote alike."""

    share: float = Field(description="Share of the whole vote: the exact sum of the members' votes.")
    size: int = Field(description="Number of training examples.")
    description: str | None = Field(description="What sets the group apart, in words; null if nothing is known.")


class Trusted(BaseModel):
    """How far an answer about one row can be trusted at all."""

    unreadable: str | None = Field(
        description="Why the row could not be read: all else in its answer is then null or empty. Null if it could."
    )
    unknown: str | None = Field(
        description="Values of the row that training never had, such as job=pilot; they count as missing. Null if none."
    )
    typicality: Share | None = Field(
        description="Share of calibration rows at least as unlike the training rows: near 0 for rows unlike anything "
        "seen. Null for a model without calibration rows or votes."
    )


class Explained(Trusted):
    """What every explanation says of its row."""

    private: bool
    record: Any = Field(description="The row that is explained.")
    attention: Any = Field(description="For a text: its words and the attention that the network pays to each.")


class Agreement(BaseModel):
    """How often those who vote give the label that all training examples would, on calibration rows."""

    share: Share
    low: Share = Field(description="Lower end of a 95 % interval.")
    high: Share = Field(description="Upper end of it.")
    n: int = Field(description="Number of rows.")


class Voted(Explained):
    """What every explanation of one vote says of those who vote."""

    n_references: int = Field(description="How many vote.")
    n_examples: int = Field(description="How many training examples they vote for.")
    agreement: Agreement | None = Field(description="Null if all training examples vote.")
    n_groups: int = Field(description="The number of all groups.")


class Answered(BaseModel):
    """The error rate of an answer."""

    epsilon: float
    note: str | None = Field(description="What the calibration rows do not allow at this ε, if anything.")
    n_unreadable: int = Field(description="How many of the rows could not be read; they have no answer.")


class BaseCard(BaseModel):
    """The model and the rows that it takes."""

    fingerprint: str | None = Field(
        description="Of the model folder, as `dwac train` printed it and `--expect` demands it; also the header "
        "dwac-fingerprint of every answer. Null if the model was not loaded from a folder."
    )
    kind: str = Field(description="tabular, image, text, huggingface or module")
    kernel: str
    n_references: int = Field(description="Number of training examples that vote.")
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


class Changed(BaseModel):
    """What moved: the latest rows next to training or calibration rows."""

    kind: str = Field(description="column, group (of voters) or prediction")
    name: str
    sentence: str
    p_value: Share = Field(description="Corrected for all that was compared; for one look.")
    nats: float = Field(description="How far the latest rows are from before (Kullback-Leibler divergence).")


class Alarmed(BaseModel):
    """When the evidence was enough, and what had moved."""

    row: int = Field(description="Number of the row in the stream of its worker, from 0.")
    id: Any = None
    time: float = Field(description="Seconds since 1970.")
    by: str = Field(description="typicality, certainty, prediction, or the name of a column")
    since: int | None = Field(description="The row with which the change probably began; null if that is unknown.")
    moved: list[Changed] = Field(description="Most first.")


class Detected(BaseModel):
    """What one score has found."""

    name: str
    kind: str = Field(description="model or column")
    evidence: float
    peak: float


class Period(BaseModel):
    """Consecutive rows of one worker."""

    first: int
    rows: int
    unreadable: int
    began: float | None
    ended: float | None
    typicality: float | None = Field(description="Mean.")
    credibility: float | None = Field(description="Mean.")
    evidence: float = Field(description="log10, at its end.")


class Monitored(BaseModel):
    """The rows that were predicted so far: how many, how typical, and whether they are still like calibration rows."""

    rows: int
    unreadable: int
    alarm: Alarmed | None = Field(description="Null while there is no alarm. It stays until a new monitor is begun.")
    evidence: float = Field(description="Against: the rows are like those of calibration.")
    peak: float = Field(description="The highest that it ever was.")
    limit: float = Field(description="Evidence that raises the alarm: 1 / false_alarms.")
    p_value: Share = Field(description="1 / peak: valid whenever one looks.")
    false_alarms: float = Field(description="The probability of a false alarm, ever.")
    typicality: float | None = Field(description="Mean over all rows.")
    credibility: float | None = Field(description="Mean over all rows.")
    detectors: list[Detected]
    history: list[Period] = Field(description="Oldest first, at most some 200 per worker.")
    notes: list[str] = Field(description="What cannot be watched, and why.")
    workers: int


class Error(BaseModel):
    """A code for programs and a message for people."""

    code: str
    message: str


class Refused(BaseModel):
    """Why the request was refused."""

    error: Error


class Schemas(NamedTuple):
    """The requests and answers of one task, and their descriptions."""

    ask: type[Asked]
    ask_why: type[AskWhy]
    predictions: type[BaseModel]
    sets: type[BaseModel] | None  # None if the task has no sets
    explanations: type[BaseModel]
    card: type[BaseCard]
    about: Mapping[str, str]  # by the name of a route


def checked(kind: type[T], asked: Any) -> T:
    """The checked request, or a refusal that names the field."""
    try:
        return kind.model_validate(asked)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        came = f"{first['input']!r:.60}"
        raise RefusalError(422, "invalid_request", f"{where}: {first['msg']}; got {came}") from None


def request_body(kind: type[Asked], reader: Reader, limits: Limits) -> dict[str, Any]:
    """The body of a request in OpenAPI, for this model."""
    schema = kind.model_json_schema()
    why = issubclass(kind, AskWhy)
    schema["properties"]["rows"] |= {
        "items": {"anyOf": [reader.schema(), {}]},  # any other row is reported as unreadable
        "maxItems": limits.rows_to_explain if why else limits.rows,
    }
    schema["if"] = {"properties": {"strict": {"const": True}}, "required": ["strict"]}
    schema["then"] = {"properties": {"rows": {"items": reader.schema()}}}
    if why:
        schema["properties"]["k"]["maximum"] = limits.neighbors
    asked = "k" if why else "epsilon"
    example = {"rows": [reader.example()], asked: kind.model_fields[asked].default}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}
