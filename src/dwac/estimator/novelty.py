"""Novelty of a fitted classifier: how much rows differ from all voters, in the embedding and, for tables, as raw rows.

A network forgets what does not separate its classes, so it may embed rows of a kind that it never saw in the middle
of a class. The raw rows still show the difference. Novelty takes no part in any vote.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.encoders import Encoder
from dwac.estimator.held_out import Folds, HeldOutRows
from dwac.nn import WeightedAverage, batches
from dwac.nn.batches import Inputs
from dwac.reference import ReferenceSet, novelty
from dwac.reference.novelty import Known, novelty_by_set
from dwac.reference.sets import VoterSets

Floats = NDArray[np.float64]

_HIGH = 0.9  # quantile
_ENOUGH, _SAMPLE = 30, 300  # rows to learn the usual values from: at least, and at most
EMBEDDED = 0.5  # weight of the embedding, where raw rows are compared too: docs/notes/novelty.md
ROUNDING = 1e-5  # scores closer than this may be equal: rounding differs between devices


class Usual(NamedTuple):
    """The usual scores of rows that do not vote: the median, and the spread above it."""

    middle: float
    spread: float

    @classmethod
    def of(cls, scores: Tensor) -> Usual:
        """The usual values of scores (n,). The spread ends at the 0.9 quantile: a few absurd rows do not change it."""
        middle, high = (float(value) for value in scores.quantile(torch.tensor([0.5, _HIGH]).to(scores)))
        return cls(middle, high - middle if high > middle else 1.0)

    def units(self, scores: Tensor) -> Tensor:
        """Scores in units of the spread, above the median."""
        return (scores - self.middle) / self.spread


@dataclass(frozen=True, eq=False)
class Novelty:
    """How novelty is measured; never changed, only replaced.

    ν(x) is `dwac.reference.novelty` of its embedding. For a table, the squared distance δ² of the raw row to the
    nearest voter counts too: each in units of its spread above its median, the larger of the two is the novelty.
    """

    known: Known | None = None  # for a table: the raw rows of its voters
    usual: tuple[Usual, Usual] | None = None  # scores of embeddings, and of raw rows; None where only one is measured
    directions: bool = False  # whether directions of embeddings count too, as they do for images and texts
    voters: ReferenceSet | None = None  # compare with these, whichever examples vote; by default with the voters

    @classmethod
    def of(cls, model: WeightedAverage, encoder: Encoder, inputs: Inputs, *, raw_features: bool) -> Novelty:
        """Novelty for a model; for a table, it also compares with the raw rows of the voters, given as inputs.

        Texts that vote are not strange: what makes a text strange is what they lack.
        """
        if not raw_features or model.n_compared_features == 0:
            return cls(directions=encoder.kind != "tabular")
        z = batches.compared_features(model, inputs)
        return cls(Known(z if encoder.kind == "tabular" else torch.zeros_like(z), model.references.voters.ids))

    def hold_out(
        self, model: WeightedAverage, inputs: Inputs, y: NDArray[np.int64], ids: pd.Index[Any], exact: Floats
    ) -> HeldOutRows:
        """Rows that judge the model, embedded, with raw features if these are compared."""
        if len(y):
            h = batches.embed(model, inputs)
            z = h[:, :0] if self.known is None else batches.compared_features(model, inputs)
        else:
            h = torch.zeros(0, model.vector_size, device=model.device)
            z = torch.zeros(0, 0 if self.known is None else model.n_compared_features, device=model.device)
        return HeldOutRows(h, z, y, ids, exact)

    def learn(
        self, references: ReferenceSet, validation: HeldOutRows, calibration: HeldOutRows, folds: Folds | None
    ) -> Novelty:
        """Learn the usual scores from rows that do not vote: validation rows, or the rows of a fold."""
        if folds is None:
            return self.fit(references, validation)
        return self.fit(folds.sets(references)[0], calibration.of_fold(folds, 0))

    def fit(self, references: ReferenceSet, rows: HeldOutRows) -> Novelty:
        """Learn the usual scores from held-out rows; if these are few, from voters compared with the other voters."""
        if self.known is None:
            return self
        if len(rows.y) >= _ENOUGH:
            step = -(-len(rows.y) // _SAMPLE)
            h, z, own = rows.h[::step], rows.z[::step], False
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
        """The same, but always compared with these references, whichever examples vote."""
        return self if self.voters is not None else replace(self, voters=references)

    def scores(
        self, references: ReferenceSet, h: Tensor, z: Tensor, *, own: bool = False, squared: Tensor | None = None
    ) -> Floats:
        """(n,): the novelty of rows, from their embeddings (n, d) and, for a table, their features (n, q).

        own: the rows are voters themselves, and each is compared with the others. squared: as for `novelty`.
        """
        references = references if self.voters is None else self.voters
        embedded, apart = novelty(references, h, own=own, directions=self.directions, squared=squared), None
        if self.known is not None and self.usual is not None:
            apart = self.known.to(z.device).distance(z, references.voters.ids, own=own)
        return self._larger(embedded, apart)

    def scores_by_set(self, sets: VoterSets, h: Tensor, z: Tensor, *, squared: Tensor | None = None) -> Floats:
        """(n, F): `scores` of rows against each of F sets of voters, in one call; h (F, n, d), z (n, q)."""
        embedded, apart = novelty_by_set(sets, h, directions=self.directions, squared=squared), None
        if self.known is not None and self.usual is not None:
            apart = self.known.to(z.device).distances(z, [voters.ids for voters in sets.sets])
        return self._larger(embedded, apart)

    def _larger(self, embedded: Tensor, apart: Tensor | None) -> Floats:
        """The larger of the novelty of embeddings and, where it is measured, the distance of raw rows."""
        scores = embedded if self.usual is None else EMBEDDED * self.usual[0].units(embedded)
        if apart is not None and self.usual is not None:
            scores = torch.maximum(scores, self.usual[1].units(apart.square()))
        return np.asarray(scores.cpu().numpy())
