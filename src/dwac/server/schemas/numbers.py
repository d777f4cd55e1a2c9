"""Requests and answers of a model that predicts numbers: one per row, or several with names."""

from __future__ import annotations

from typing import Annotated, Any, Literal

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

MOST_LEVELS = 99
Ends = Annotated[list[float | None], Field(min_length=2, max_length=2)]  # a null end is unbounded
Histogram = Annotated[list[list[float]], Field(min_length=2, max_length=2)]
_EPSILON = "The share of intervals that may miss the true number."


class AskNumbers(Asked):
    """Rows, the error rate ε of their intervals, and levels of quantiles."""

    epsilon: Epsilon = Field(EPSILON, description=_EPSILON)
    quantiles: list[Share] = Field(
        [], max_length=MOST_LEVELS, description="Levels, such as 0.25, of the quantiles of the votes to answer with."
    )


class Interval(BaseModel):
    """An interval that misses the true number at a rate of at most ε; a null end is unbounded."""

    lower: float | None
    upper: float | None


class Estimate(BaseModel):
    """A number, and how uncertain it is."""

    prediction: float | None
    interval: Interval | None = Field(description="Null for a model without calibration rows.")
    quantiles: dict[str, float] | None = Field(
        description="Of the votes, by the levels asked for; they have no guarantee."
    )


class NumberPrediction(Trusted, Estimate):
    """The number of a row, and how far to trust it."""


class NumberPredictions(Answered):
    """One prediction per row."""

    predictions: list[NumberPrediction]


class NumbersPrediction(Trusted):
    """Several numbers of a row, and how far to trust them; the guarantee of an interval is for each number alone."""

    numbers: dict[str, Estimate] | None = Field(description="Per number that is predicted, by name.")


class NumbersPredictions(Answered):
    """One prediction of several numbers per row."""

    predictions: list[NumbersPrediction]


class NumberNeighbor(Voter):
    """A training example and its vote; only a rounded number and share if the service is private."""

    label: Any = Field(description="The number that it votes for, or several by place.")


class NumberGroup(VoterGroup):
    """Training examples with similar numbers that vote alike."""

    label: Any = Field(description="Mean, lowest and highest of the numbers of its members.")
    representative: NumberNeighbor = Field(description="Its most central member.")
    members: list[NumberNeighbor] = Field(description="Some members, those most like the row first.")


class Influential(BaseModel):
    """A training example whose removal would move the prediction."""

    id: Any
    target: float = Field(description="Its number.")
    share: float = Field(description="Share of the whole vote.")
    move: float = Field(description="The prediction without it, minus the prediction.")
    name: Any = Field(description="Of the number that moves, if several are predicted.")
    record: Any


class WhyNumber(Voted):
    """An explanation, the same as `NumberExplanation.to_dict()` in Python. An unreadable row has no votes.

    If the service is private, all numbers are rounded, and there are no neighbours, groups, quantiles or influence.
    """

    prediction: float | None
    interval: Ends | None = Field(description="Lower and upper end; null without calibration rows.")
    epsilon: float | None
    guarantee: float | None = Field(description="The least coverage in theory, on average.")
    names: list[Any]
    average: Literal["mean", "median"]
    quantiles: dict[str, float] | None = Field(description="Of the votes, by level.")
    histogram: Histogram | None = Field(description="Edges of bins, and the share of the votes in each bin.")
    influential: list[Influential] = Field(description="Whose removal moves the prediction most, the largest first.")
    neighbors: list[NumberNeighbor] = Field(description="Nearest first; heaviest first if they vote for others.")
    groups: list[NumberGroup] = Field(description="The k heaviest groups.")


class WhyNumbers(WhyNumber):
    """The same of several numbers: each entry of a list is of the name in its place."""

    prediction: list[float | None]  # type: ignore[assignment]
    interval: list[Ends] | None  # type: ignore[assignment]
    quantiles: dict[str, list[float]] | None  # type: ignore[assignment]
    histogram: list[Histogram] | None  # type: ignore[assignment]


class NumberExplanations(BaseModel):
    """One explanation per row."""

    explanations: list[WhyNumber]


class NumbersExplanations(BaseModel):
    """One explanation of several numbers per row."""

    explanations: list[WhyNumbers]


class NumberCard(BaseCard):
    """A model that predicts numbers, and the rows that it takes."""

    task: Literal["numbers"]
    numbers: list[Any] = Field(description="The names of the numbers; a single one may have none.")


_ABOUT = {
    "predict": "Number, interval at error rate ε, quantiles asked for and typicality of each row.",
    "explain": "The training examples that voted, with their numbers and shares, the distribution of the votes, and "
    "whose removal would move the prediction most.",
    "model": "Its kind, the form of its rows, the number of voters, and the limits of this service.",
}
SCHEMAS = Schemas(AskNumbers, AskWhy, NumberPredictions, None, NumberExplanations, NumberCard, _ABOUT)
SEVERAL = SCHEMAS._replace(predictions=NumbersPredictions, explanations=NumbersExplanations)
