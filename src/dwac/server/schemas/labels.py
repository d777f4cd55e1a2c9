"""Requests and answers of a model that predicts several labels per row."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, Field

from dwac.errors import EPSILON
from dwac.server.schemas import Answered, Asked, AskWhy, BaseCard, Epsilon, Explained, Schemas, Share, Trusted
from dwac.server.schemas.classes import Why

Decision = Literal["yes", "no", "undecided"]
_DECISIONS = (
    "Per label. Of the rows that have a label at most a share ε gets a no, and of those that do not at most a share ε "
    "gets a yes."
)
_SET = "Labels probable enough that on average at most a share ε of a row's labels is missing."


class AskLabels(Asked):
    """Rows, and the error rate ε of their decisions and sets."""

    epsilon: Epsilon = Field(
        EPSILON, description="The share of wrong decisions on each label, and of labels that sets may miss."
    )


class AskWhyLabels(AskWhy):
    """Rows, how many neighbours to show per label, and which labels to explain."""

    labels: list[Any] | None = Field(
        None,
        min_length=1,
        description="Which labels; null: those that each row is predicted to have, or the likeliest.",
    )


class LabelsPrediction(Trusted):
    """The labels of a row, and how far to trust them. What needs calibration rows is null without them."""

    labels: list[Any] | None = Field(description="Those with a probability of at least one half.")
    probabilities: dict[str, Share] | None = Field(description="Per label; they need not sum to 1.")
    decisions: dict[str, Decision] | None = Field(description=_DECISIONS)
    label_set: list[Any] | None = Field(description=_SET)


class LabelsPredictions(Answered):
    """One prediction per row."""

    predictions: list[LabelsPrediction]


class Decisions(Trusted):
    """The decisions on the labels of a row, their p-values, and the set that misses few labels."""

    decisions: dict[str, Decision] | None = Field(description=_DECISIONS)
    label_set: list[Any] | None = Field(description=_SET)
    p_yes: dict[str, Share] | None = Field(description="Per label: the p-value of having it.")
    p_no: dict[str, Share] | None = Field(description="Per label: the p-value of not having it.")


class LabelsSets(Answered):
    """Decisions and a set per row."""

    sets: list[Decisions]


class WhyLabels(Explained):
    """Explanations by label: the one of the label "sad" chooses between "sad" and "not sad"."""

    labels: list[Any] | None = Field(description="Those that the row is predicted to have.")
    probabilities: dict[str, Share | None] = Field(description="Per label.")
    label_set: list[Any] | None = Field(description=_SET)
    epsilon: float
    explanations: dict[str, Why] = Field(description="Per label that was asked for.")


class LabelsExplanations(BaseModel):
    """Explanations by label for each row."""

    explanations: list[WhyLabels]


class LabelsCard(BaseCard):
    """A model that predicts several labels per row, and the rows that it takes."""

    task: Literal["labels"]
    labels: list[Any]


SCHEMAS = Schemas(
    ask=AskLabels,
    ask_why=AskWhyLabels,
    predictions=LabelsPredictions,
    sets=LabelsSets,
    explanations=LabelsExplanations,
    card=LabelsCard,
    about={
        "predict": "Labels, their probabilities, a decision on each, typicality, and the set that misses few labels.",
        "sets": "A decision on each label at error rate ε, its p-values, and the set that misses few labels.",
        "explain": "For each label the training examples that voted and their shares; how few decide.",
        "model": "Its kind and labels, the form of its rows, the number of voters, and the limits of this service.",
    },
)
