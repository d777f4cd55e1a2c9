"""What goes over the wire, as pydantic models: they check what comes and document what goes."""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from dwac.server.inputs import Reader
from dwac.server.limits import Limits
from dwac.server.refusals import RefusalError

Epsilon = Annotated[float, Field(ge=1e-9, lt=1, description="The share of sets that may miss the true label.")]
T = TypeVar("T", bound=BaseModel)
# JSON tells no 5.0 from 5.
Whole = Annotated[int, BeforeValidator(lambda k: int(k) if isinstance(k, float) and k.is_integer() else k)]
Share = Annotated[float, Field(ge=0, le=1)]


class _Asked(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)
    rows: list[Any] = Field(
        min_length=1, description="The examples, in the form that the model takes; others are told to be unreadable."
    )
    strict: bool = Field(False, description="Refuse the whole request where a row cannot be read.")


class Ask(_Asked):
    """Rows, and the error rate ε of their label sets."""

    epsilon: Epsilon = 0.05


class AskWhy(_Asked):
    """Rows, and how many neighbours to show of each."""

    k: Whole = Field(5, ge=1, description="How many training examples to show.")


class Prediction(BaseModel):
    """The label of a row, and how far to trust it; without calibration rows the last three are null.

    A row that cannot be read has the commonest label, the classes' shares for probabilities, and credibility 0.
    """

    label: Any
    probability: Share
    probabilities: dict[str, float] = Field(description="By class.")
    unreadable: str | None = Field(description="Why the row could not be read, where that is so.")
    confidence: Share | None = Field(description="1 - the second largest p-value: how firmly others are rejected.")
    credibility: Share | None = Field(description="The largest p-value: near 0 for what is unlike anything seen.")
    label_set: list[Any] | None = Field(description="Labels with p > ε: they miss the true one at most ε of the time.")


class _Told(BaseModel):
    epsilon: float
    note: str | None = Field(description="Why label sets at this ε cannot leave anything out, where that is so.")


class Predictions(_Told):
    """One prediction a row."""

    predictions: list[Prediction]


class LabelSet(BaseModel):
    """The labels of a row that cannot be rejected at ε."""

    unreadable: str | None = Field(description="Why the row could not be read, where that is so: no label fits it.")
    label_set: list[Any]
    p_values: dict[str, float] = Field(description="By class.")
    confidence: Share
    credibility: Share


class Sets(_Told):
    """One set a row."""

    sets: list[LabelSet]


class Neighbor(BaseModel):
    """A training example's part in the vote; where the service is private, its label and rounded share alone."""

    label: Any
    share: float = Field(description="Of the whole vote; in whole per cent where the service is private.")
    weight: float | None = None
    log_weight: float | None = None
    id: Any = None
    distance: float | None = None
    record: Any = None


class Why(BaseModel):
    """An explanation, as `Explanation.to_dict()` has it in Python."""

    label: Any
    probability: float
    probabilities: dict[str, float]
    confidence: float | None
    credibility: float | None
    p_values: dict[str, float] | None
    unreadable: str | None = Field(description="Why the row could not be read, where that is so: nobody voted.")
    deciding: int | None = Field(description="So few nearest examples fix the label, whatever labels the others have.")
    flip_size: int | None = Field(description="How many training examples must go to change the label.")
    n_references: int
    private: bool
    record: Any = Field(description="The explained row.")
    attention: Any = Field(description="Of a text: its words, and how much the network read each.")
    neighbors: list[Neighbor] = Field(description="Nearest first.")


class Explanations(BaseModel):
    """One explanation a row."""

    explanations: list[Why]


class Card(BaseModel):
    """What the model is and takes."""

    kind: str = Field(description="tabular, image, text, huggingface or module")
    head: str
    kernel: str
    classes: list[Any]
    n_references: int = Field(description="Training examples that vote; a softmax has none.")
    n_calibration: int
    columns: list[dict[str, Any]] | None = Field(description="Of a table.")
    row: dict[str, Any] = Field(description="JSON Schema of one row.")
    example: Any = Field(description="A row that the model takes.")
    private: bool
    limits: dict[str, float]


class Health(BaseModel):
    """How the service is."""

    status: str


class Error(BaseModel):
    """A code for machines, a message for people."""

    code: str
    message: str


class Refused(BaseModel):
    """Why there is no answer."""

    error: Error


def checked(kind: type[T], asked: Any) -> T:
    """What was asked, or a refusal that names the field."""
    try:
        return kind.model_validate(asked)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False)[0]
        where = ".".join(map(str, first["loc"])) or "the body"
        came = f"{first['input']!r:.60}"
        raise RefusalError(422, "invalid_request", f"{where}: {first['msg']}; got {came}") from None


def request_body(kind: type[_Asked], reader: Reader, limits: Limits) -> dict[str, Any]:
    """The body of a request as OpenAPI says it, for this very model."""
    schema = kind.model_json_schema()
    why = kind is AskWhy
    schema["properties"]["rows"] |= {
        "items": {"anyOf": [reader.schema(), {}]},  # what is of no such form is told to be unreadable
        "maxItems": limits.rows_to_explain if why else limits.rows,
    }
    schema["if"] = {"properties": {"strict": {"const": True}}, "required": ["strict"]}
    schema["then"] = {"properties": {"rows": {"items": reader.schema()}}}
    if why:
        schema["properties"]["k"]["maximum"] = limits.neighbors
    example = {"rows": [reader.example()], **({"k": 5} if why else {"epsilon": 0.05})}
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema, "example": example}}}}
