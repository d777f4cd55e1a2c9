"""Novelty of a fitted classifier: how unlike all voters rows are, in the embedding and, for tables, as they are.

A network forgets whatever does not separate its classes, so rows of a kind that it never saw may be embedded in the
middle of a class. The rows themselves still show it. Novelty takes no part in any vote.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.encoders import Encoder
from dwac.estimator.folds import Folds
from dwac.estimator.held_out import HeldOutRows
from dwac.nn import WeightedAverage, batches
from dwac.nn.batches import Inputs
from dwac.reference import Known, ReferenceSet, VoterSets, novelty, novelty_by_set

Floats = NDArray[np.float64]

_HIGH = 0.9  # quantile
_ENOUGH, _SAMPLE = 30, 1000  # rows to learn the usual values from
EMBEDDED = 0.5  # the say of the embedding, where rows are compared as they are too: docs/notes/novelty.md
ROUNDING = 1e-5  # scores closer than this may be one score: rounding differs between devices


class Usual(NamedTuple):
    """What is usual among rows that do not vote: the median of a score, and its spread above that."""

    middle: float
    spread: float

    @classmethod
    def of(cls, scores: Tensor) -> Usual:
        """Of scores (n,). The spread reaches to what one in ten exceeds: a few absurd rows do not change it."""
        middle, high = (float(value) for value in scores.quantile(torch.tensor([0.5, _HIGH]).to(scores)))
        return cls(middle, high - middle if high > middle else 1.0)

    def units(self, scores: Tensor) -> Tensor:
        """Scores in units of the spread, above the median."""
        return (scores - self.middle) / self.spread


@dataclass(frozen=True, eq=False)
class Novelty:
    """How novelty is measured; never changed, only replaced.

    ν(x) is `dwac.reference.novelty` of its embedding. For a table, also the squared distance δ² of the row as it is to
    the nearest voter's counts: each in units of its spread above its median, the larger of the two is the novelty.
    """

    known: Known | None = None  # of a table: what its voters are compared by
    usual: tuple[Usual, Usual] | None = None  # scores by embedding, and as they are; None where only one is measured
    directions: bool = False  # whether directions of embeddings count too, as they do for images and texts
    voters: ReferenceSet | None = None  # measured against these whoever votes; by default against those who vote

    @classmethod
    def of(cls, model: WeightedAverage, encoder: Encoder, inputs: Inputs, *, raw_features: bool) -> Novelty:
        """Of a table, also by what its voters, given as inputs, are compared by."""
        if not raw_features or model.n_compared_features == 0:
            return cls(directions=encoder.kind != "tabular")
        return cls(Known(batches.compared(model, inputs), model.references.voters.ids))

    def learn(
        self, references: ReferenceSet, validation: HeldOutRows, calibration: HeldOutRows, folds: Folds | None
    ) -> Novelty:
        """Learn what is usual among rows that do not vote: validation rows, or those of a fold."""
        if folds is None:
            return self.fit(references, validation)
        return self.fit(folds.sets(references)[0], calibration.of_fold(folds, 0))

    def fit(self, references: ReferenceSet, rows: HeldOutRows) -> Novelty:
        """Learn what is usual from held-out rows; if they are few, from voters compared with the others."""
        if self.known is None:
            return self
        if len(rows.y) >= _ENOUGH:
            h, z, own = rows.h, rows.z, False
        else:
            some = torch.randperm(len(references), generator=torch.Generator().manual_seed(0))[:_SAMPLE]
            names = references.voters.ids[some.numpy()]
            names = names[names.isin(self.known.ids)]
            h, z, own = references.embeddings[references.voters.positions(names)], self.known.of(names).z, True
        if len(h) == 0:
            return self
        apart = self.known.distance(z, references.voters.ids, own=own)
        return replace(
            self,
            usual=(Usual.of(novelty(references, h, own=own, directions=self.directions)), Usual.of(apart.square())),
        )

    def fixed(self, references: ReferenceSet) -> Novelty:
        """The same, but measured against these whoever votes."""
        return self if self.voters is not None else replace(self, voters=references)

    def scores(self, references: ReferenceSet, h: Tensor, z: Tensor, *, own: bool = False) -> Floats:
        """(n,): the novelty of rows, from their embeddings (n, d) and, of a table, their features (n, q).

        own: the rows vote themselves, and are compared with the others.
        """
        references = references if self.voters is None else self.voters
        embedded, apart = novelty(references, h, own=own, directions=self.directions), None
        if self.known is not None and self.usual is not None:
            apart = self.known.to(z.device).distance(z, references.voters.ids, own=own)
        return self._larger(embedded, apart)

    def scores_by_set(self, sets: VoterSets, h: Tensor, z: Tensor) -> Floats:
        """(n, F): `scores` of rows against each of F sets of voters, together; h (F, n, d), z (n, q)."""
        embedded, apart = novelty_by_set(sets, h, directions=self.directions), None
        if self.known is not None and self.usual is not None:
            apart = self.known.to(z.device).distances(z, [voters.ids for voters in sets.sets])
        return self._larger(embedded, apart)

    def _larger(self, embedded: Tensor, apart: Tensor | None) -> Floats:
        """The larger of novelty by embedding and, where it is measured, of the distance as rows are."""
        found = embedded if self.usual is None else EMBEDDED * self.usual[0].units(embedded)
        if apart is not None and self.usual is not None:
            found = torch.maximum(found, self.usual[1].units(apart.square()))
        return np.asarray(found.cpu().numpy())

    def of_voters(self, references: ReferenceSet, places: NDArray[np.int64]) -> Floats:
        """(n,): the novelty of voters, by position among the references, each compared with the others."""
        h = references.embeddings[torch.as_tensor(places, device=references.embeddings.device)]
        if self.known is None:
            return self.scores(references, h, h[:, :0], own=True)
        names = references.voters.ids[places]
        here = names.isin(self.known.ids)  # whoever was added to the references alone is known by its embedding only
        found = np.empty(len(places))
        for rows, measure in ((here, self), (~here, replace(self, known=None))):
            part, z = torch.as_tensor(rows, device=h.device), self.known.of(names[rows]).z
            if rows.any():
                found[rows] = measure.scores(references, h[part], z, own=True)
        return found
