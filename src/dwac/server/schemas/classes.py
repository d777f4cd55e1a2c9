"""Requests and answers of a model that predicts one label per row: a class, or a label in an order."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from dwac.errors import EPSILON
from dwac.server.schemas import (
    Answered,
    Asked,
    AskWhy,
    BaseCard,
    Epsilon,
    Schemas,
    Share,
    Trusted,
    Voted,
    Voter,
    VoterGroup,
)


class Ask(Asked):
    """Rows, and the error rate ε of their prediction sets."""

    epsilon: Epsilon = Field(EPSILON, description="The share of prediction sets that may miss the true label.")


class Prediction(Trusted):
    """The label of a row, and how far to trust it. What needs calibration rows is null without them."""

    label: Any
    probability: Share | None
    probabilities: dict[str, float] | None = Field(description="Per class.")
    confidence: Share | None = Field(
        description="1 - the second largest p-value: how firmly other labels are rejected."
    )
    credibility: Share | None = Field(description="The largest p-value: near 0 if no label fits.")
    label_set: list[Any] | None = Field(
        description="Prediction set: labels with p > ε. Misses the true one at a rate of at most ε."
    )


class Predictions(Answered):
    """One prediction per row."""

    predictions: list[Prediction]


class LabelSet(Trusted):
    """The prediction set of a row: the labels that cannot be rejected at ε."""

    label_set: list[Any] | None
    p_values: dict[str, float] | None = Field(description="Per class.")
    confidence: Share | None
    credibility: Share | None


class Sets(Answered):
    """One prediction set per row."""

    sets: list[LabelSet]


class Neighbor(Voter):
    """A training example and its vote; only the label and a rounded share if the service is private."""

    label: Any


class Group(VoterGroup):
    """Training examples of one label that vote alike."""

    label: Any
    representative: Neighbor = Field(description="Its most central member.")
    members: list[Neighbor] = Field(description="Some members, those most like the row first.")


class Why(Voted):
    """An explanation, the same as `Explanation.to_dict()` in Python. An unreadable row has no votes."""

    label: Any
    probability: float | None
    probabilities: dict[str, float]
    confidence: float | None
    credibility: float | None
    p_values: dict[str, float] | None
    label_set: list[Any] | None = Field(description="Prediction set: labels with p > ε.")
    epsilon: float
    deciding: int | None = Field(
        description="How many nearest examples decide the label, whatever the labels of the others."
    )
    deciding_groups: int | None = Field(
        description="How many of the heaviest groups decide the label, whatever the labels of all others; null if the "
        "service is private."
    )
    flip_size: int | None = Field(description="How many training examples must be removed to change the label.")
    neighbors: list[Neighbor] = Field(description="Nearest first; heaviest first if they vote for others.")
    groups: list[Group] = Field(
        description="The k heaviest groups, and the heaviest one for another label; none if the service is private."
    )


class Explanations(BaseModel):
    """One explanation per row."""

    explanations: list[Why]


class Card(BaseCard):
    """A model that predicts one label per row, and the rows that it takes."""

    task: Literal["classes", "ordered"] = Field(description="ordered: the classes have an order, and sets no gaps.")
    classes: list[Any]


SCHEMAS = Schemas(
    ask=Ask,
    ask_why=AskWhy,
    predictions=Predictions,
    sets=Sets,
    explanations=Explanations,
    card=Card,
    about={
        "predict": "Label, probabilities, confidence, credibility, typicality and prediction set of each row.",
        "sets": "The labels that cannot be rejected at error rate ε, and the p-value of every label.",
        "explain": "The training examples that voted and their shares; how few decide; how many must go to change the "
        "label.",
        "model": "Its kind and classes, the form of its rows, the number of voters, and the limits of this service.",
    },
)
