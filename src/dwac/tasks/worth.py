"""The value of one vote, and of an empty set of voters, for rows with known outcomes: one class per kind of target.

`dwac.worth` has the arithmetic; `dwac.estimator.worth` turns the values into tables.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from dwac import worth
from dwac.errors import InputError
from dwac.reference import ReferenceSet
from dwac.tasks.base import LABELS, NUMBERS, Fitted, Floats, Ints
from dwac.worth import GameValues
from dwac.worth.games import METHODS

_COLUMNS = ("id", "worth", "deviation", "standard_error", "if_removed", "relative", "size")
_FEW = 5  # examples of a class; smaller classes are compared together
_PARTS = 5  # of the numbers, sorted


class Judges(NamedTuple):
    """Rows whose outcomes are known, all of which can be read."""

    h: Tensor  # (n, d)
    codes: Ints  # (n,); -1 for a label that no voter has
    exact: Floats  # (n, T) or (n, L)
    own: Ints  # (n,): which voter each of them is; -1 for none


class Options(NamedTuple):
    """How worth is measured."""

    method: str
    utility: str
    tolerance: float
    label: Any = None

    def check(self) -> None:
        """Raise an error for an unknown method."""
        if self.method not in METHODS:
            raise InputError(f"method must be one of {', '.join(METHODS)}; got {self.method!r}")

    @property
    def exactness(self) -> dict[str, Any]:
        """How values are computed."""
        return {"method": self.method, "tolerance": self.tolerance}


def log_shares(references: ReferenceSet) -> Floats:
    """(K,), finite: the log of each class's share of the vote if all voters were equally near."""
    voters = np.bincount(references.labels.cpu().numpy(), references.weights, references.n_classes)
    counts = voters * references.class_weights
    return np.asarray(np.log(np.maximum(counts / counts.sum(), np.finfo(np.float64).tiny)))


def game_of(fitted: Fitted, judges: Judges, options: Options) -> Game:
    """The game of the model's voters for these rows; of the model, references and target are enough."""
    game = {NUMBERS: NumberGame, LABELS: LabelGame}.get(fitted.target.kind, ClassGame)
    return game(fitted, judges, options)


class Game(ABC):
    """The values of voters, or of groups of them, for rows with known outcomes."""

    def __init__(self, fitted: Fitted, judges: Judges, options: Options) -> None:
        self.judges, self.options = judges, options
        self.target, self.references = fitted.target, fitted.references

    def tensor(self, values: Any) -> Tensor:
        """An array where the references are."""
        return torch.as_tensor(values, device=self.references.labels.device)

    @abstractmethod
    def votes(self, rows: slice) -> list[Tensor]:
        """(b, m) each: what every voter adds to the mean of the vote, for b rows; one for each predicted number."""

    @abstractmethod
    def values(self, log_w: Tensor, rows: slice, groups: Tensor | None, n_groups: int) -> GameValues:
        """The values of voters with log weights (b, m), or of groups of them, for b rows."""

    def score(self, means: Tensor) -> Tensor:
        """What the means of all votes are worth."""
        return means

    def peers(self) -> Ints:
        """(m,): the peers of each voter: voters with its class or labels; for numbers, voters in the same fifth.

        A vote for an outcome that is rare among the judges is wrong for most of them. So a whole class may be worth
        less than 0, which says nothing about its examples.
        """
        codes: Ints = self.references.labels.cpu().numpy()
        return np.where(np.bincount(codes)[codes] < _FEW, -1, codes)

    def outcomes(self) -> dict[str, Any]:
        """What each voter votes for, by column."""
        return {"label": self.target.outcomes[self.references.labels.cpu().numpy()]}


class ClassGame(Game):
    """The probability of the true label, its log, or whether it is the predicted one."""

    def __init__(self, fitted: Fitted, judges: Judges, options: Options) -> None:
        super().__init__(fitted, judges, options)
        self.prior, self.truths = self.tensor(np.exp(log_shares(fitted.references))), self.tensor(judges.codes)

    def votes(self, rows: slice) -> list[Tensor]:
        """1 for the true label, 0 for another."""
        return [(self.references.labels == self.truths[rows, None]).double()]

    def values(self, log_w: Tensor, rows: slice, groups: Tensor | None, n_groups: int) -> GameValues:
        """The values by `options.utility`; those of groups by probability alone."""
        truth, utility = self.truths[rows], self.options.utility
        if groups is None:
            return worth.of_labels(
                log_w, self.references.labels, truth, self.prior, utility=utility, **self.options.exactness
            )
        if utility != "probability":
            raise InputError(f"worth by groups is for utility='probability'; got {utility!r}")
        empty = torch.where(truth >= 0, self.prior[truth.clamp_min(0)], 0.0)
        players = worth.together(log_w, self.votes(rows)[0], groups, n_groups)
        return worth.of_mean(*players, empty, **self.options.exactness)


class LabelGame(Game):
    """Several labels: the probability of being right, averaged over labels, or of one label alone."""

    def __init__(self, fitted: Fitted, judges: Judges, options: Options) -> None:
        super().__init__(fitted, judges, options)
        if options.utility != "probability":
            raise InputError(f"utility must be 'probability' for several labels; got {options.utility!r}")
        columns: Any = slice(None)
        if options.label is not None:
            self.target.require_label(options.label)
            columns = np.flatnonzero(self.target.names == options.label)
        table, truth = self.target.table[:, columns], judges.exact[:, columns]
        shares = np.bincount(self.references.labels.cpu().numpy(), self.references.weights, self.target.n_codes)
        self.empty = self.tensor(np.abs(1 - truth - shares @ table / shares.sum()).mean(axis=1))
        self.true, self.has = self.tensor(truth).double(), self.tensor(table).double()[self.references.labels]

    def votes(self, rows: slice) -> list[Tensor]:
        """The share of labels that a voter has right."""
        true, has = self.true[rows], self.has
        return [(true @ has.T + (1 - true) @ (1 - has).T) / has.shape[1]]

    def values(self, log_w: Tensor, rows: slice, groups: Tensor | None, n_groups: int) -> GameValues:
        """The values by the mean probability of being right."""
        right = self.votes(rows)[0]
        players = (log_w, right) if groups is None else worth.together(log_w, right, groups, n_groups)
        return worth.of_mean(*players, self.empty[rows], **self.options.exactness)


class NumberGame(Game):
    """Numbers: the squared error of the voters' mean, in units of their variance, averaged over the numbers."""

    def __init__(self, fitted: Fitted, judges: Judges, options: Options) -> None:
        super().__init__(fitted, judges, options)
        references, scale = self.references, self.tensor(self.target.scale[1])
        votes = references.weights * references.class_weights[references.labels.cpu().numpy()]
        self.weights, self.own = self.tensor(votes), references.targets / scale
        self.true = self.tensor(judges.exact).double() / scale

    def votes(self, rows: slice) -> list[Tensor]:
        """The distance of a voter's number to the true one."""
        return [self.own[:, t] - self.true[rows, t, None] for t in range(self.true.shape[1])]

    def values(self, log_w: Tensor, rows: slice, groups: Tensor | None, n_groups: int) -> GameValues:
        """The values by the squared error; that of no voters is the error of the mean of all."""
        by_number = []
        for apart in self.votes(rows):
            players = (log_w, apart) if groups is None else worth.together(log_w, apart, groups, n_groups)
            empty = apart @ self.weights / self.weights.sum()
            by_number.append(worth.of_squared_error(*players, empty, **self.options.exactness))
        return GameValues(*(torch.stack(column).mean(dim=0) for column in zip(*by_number, strict=True)))

    def score(self, means: Tensor) -> Tensor:
        """Minus the squared error."""
        return -means.square()

    def peers(self) -> Ints:
        """(m,): the fifth that each voter's number is in."""
        numbers = self.own.cpu().numpy().mean(axis=1)
        return np.asarray(np.searchsorted(np.quantile(numbers, np.arange(1, _PARTS) / _PARTS), numbers))

    def outcomes(self) -> dict[str, Any]:
        """The number of each voter; a target's name that another column has gets a suffix."""
        numbers, names = self.references.targets.cpu().numpy(), map(str, self.target.names)
        columns = [f"{name}_target" if name in _COLUMNS else name for name in names]
        columns = ["number"] if self.target.single else columns
        return {name: numbers[:, t] for t, name in enumerate(columns)}
