"""Answers of a model to several requests at once, and their form as JSON: what all tasks have in common.

The rest is in one file per task.
"""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, ClassVar, NamedTuple, Protocol, Self

import numpy as np

from dwac.drawing.records import plain
from dwac.errors import CalibrationWarning
from dwac.estimator import DWACClassifier, DWACRegressor
from dwac.estimator.readable import Reasons
from dwac.estimator.watching import predictions_from
from dwac.explain import privacy
from dwac.reading.requests import Reader
from dwac.server.schemas import Schemas
from dwac.server.watch import Watch

Model = DWACClassifier | DWACRegressor


class Predicted(Protocol):
    """Predictions for some rows."""

    @property
    def reasons(self) -> Reasons | None:
        """(n,): None, or why a row could not be read; None if all could."""

    @property
    def unknown(self) -> Reasons | None:
        """(n,): None, or the values of a row that training never had."""

    def part(self, rows: Any) -> Self:
        """The predictions for some of the rows."""


class Votes(NamedTuple):
    """A request for predictions, with what must be known before counting votes. Equal ones are answered together."""

    settings: Hashable = ()
    watched: bool = True  # whether the monitor observes these rows


class Why(NamedTuple):
    """A request for explanations, k neighbours each, with sets and intervals at ε."""

    k: int
    epsilon: float
    settings: Hashable = ()


@dataclass(frozen=True)
class Answers(ABC):
    """Answers requests with a model, which is never changed. The numbers equal those in Python."""

    model: Any
    reader: Reader
    private: bool
    watch: Watch | None = None  # observes every row that is predicted
    task: ClassVar[Schemas]

    @property
    def schemas(self) -> Schemas:
        """The requests and answers of this model."""
        return self.task

    def run(self, asked: Votes | Why, requests: list[list[Any]]) -> list[Any]:
        """The answer to each request, or the exception that it raised.

        If the requests fail together, each half is tried separately: only the request at fault is refused.
        """
        try:
            return self.together(asked, requests)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in native code is not an Exception
            if len(requests) == 1:
                return [error]
            half = len(requests) // 2
            return [*self.run(asked, requests[:half]), *self.run(asked, requests[half:])]

    def together(self, asked: Votes | Why, requests: list[list[Any]]) -> list[Any]:
        """The answers to several requests, computed as one."""
        X = self.reader.sift([row for rows in requests for row in rows])
        parts = [slice(a, b) for a, b in pairwise(np.cumsum([0, *map(len, requests)]).tolist())]
        with silent():
            if isinstance(asked, Why):
                explained = self._explain(X, asked)
                return [explained[rows] for rows in parts]
            predicted = self._predict(X, asked)
            return [predicted.part(rows) for rows in parts]

    def _predict(self, X: Any, asked: Votes) -> Any:
        """Predictions for X by `dwac.estimator.evaluation.predict`; the monitor also observes the rows."""
        observed = self.model.observe(X, private=self.private)
        predicted = predictions_from(self.model, observed, private=self.private)
        if asked.watched and self.watch is not None:
            self.watch.observe(observed, predicted)
        return predicted

    def _explain(self, X: Any, asked: Why) -> list[dict[str, Any]]:
        """An explanation per row of X, for JSON."""
        return [explanation.to_dict() for explanation in self._explained(X, asked)]

    # What a request needs from the model

    def votes_for(self, ask: Any) -> Votes:
        """What predictions and sets need from the model; the answer adds the rest."""
        del ask
        return Votes()

    def why(self, ask: Any) -> Why:
        """What explanations need from the model."""
        return Why(ask.k, ask.epsilon)

    def _explained(self, X: Any, asked: Why) -> Any:
        return self.model.explain(X, asked.k, epsilon=asked.epsilon, private=self.private)

    # The form of answers

    @abstractmethod
    def predictions(self, predicted: Any, ask: Any) -> dict[str, Any]:
        """The answer to /predict."""

    @cached_property
    def _names(self) -> tuple[list[Any], list[str]]:
        """Labels as JSON values, and as keys of JSON objects."""
        labels = self.model.classes_
        return plain(list(labels)), list(plain(dict.fromkeys(labels)))

    def _held(self, row: list[bool]) -> list[Any]:
        """The labels of a row or of its set."""
        return [label for label, there in zip(self._names[0], row, strict=True) if there]

    def _by_label(self, row: list[Any]) -> dict[str, Any]:
        return dict(zip(self._names[1], row, strict=True))

    def _answered(self, name: str, found: list[dict[str, Any]], predicted: Predicted, epsilon: float) -> dict[str, Any]:
        """Answers for rows; for a row that could not be read, everything except the reason is null."""
        reasons = [None] * len(found) if predicted.reasons is None else predicted.reasons.tolist()
        unknown = [None] * len(found) if predicted.unknown is None else predicted.unknown.tolist()
        rows = [
            {**(row if why is None else dict.fromkeys(row)), "unreadable": why, "unknown": new}
            for row, why, new in zip(found, reasons, unknown, strict=True)
        ]
        unread = [why is not None for why in reasons]
        return {"epsilon": epsilon, "note": self.note(epsilon), "n_unreadable": sum(unread), name: rows}

    def sets(self, predicted: Any, ask: Any) -> dict[str, Any]:
        """The answer to /sets, if the task has sets."""
        raise NotImplementedError

    @cached_property
    def note(self) -> Callable[[float], str | None]:
        """What calibration does not allow at an ε; cached, because it takes longer than the rest of an answer."""
        return lru_cache(maxsize=64)(self._note)

    @abstractmethod
    def _note(self, epsilon: float) -> str | None:
        """What calibration does not allow at this ε; None if there are no limits to report."""

    @abstractmethod
    def _target(self) -> dict[str, Any]:
        """The target, for the card."""

    def card(self) -> dict[str, Any]:
        """The facts about the model."""
        agreement = self.model.agreement_
        if agreement is not None:
            agreement = (privacy.agreement(agreement) if self.private else agreement)._asdict()
        return {
            **self._target(),
            "fingerprint": self.model.fingerprint_,
            "kind": self.model.encoder_.kind,
            "kernel": self.model.kernel,
            "n_references": self.count(len(self.model.references_)),
            "n_examples": self.count(round(float(self.model.references_.sizes.sum()))),
            "agreement": agreement,
            "n_calibration": self.count(len(self.model.calibration_y_)),
            "columns": self.reader.columns(),
            "row": self.reader.schema(),
            "example": self.reader.example(),
            "private": self.private,
        }

    def count(self, n: int) -> int:
        """A number of examples; rounded if private."""
        return privacy.count(n) if self.private else int(n)


@contextmanager
def silent() -> Iterator[None]:
    """Silence warnings of what calibration does not allow at some ε: answers and pages show it themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        yield
