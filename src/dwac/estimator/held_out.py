"""Held-out rows: kept as embeddings and labels, so that p-values follow every change of the references."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.conformal import Calibration, CrossCalibration, nonconformity, true_label_scores
from dwac.errors import CalibrationError
from dwac.estimator.folds import Folds
from dwac.nn import Model, WeightedAverage, batches
from dwac.training.cross_fit import part_of

# Scores closer than this may be equal: rounding differs between devices.
_ROUNDING = {"weights": 1e-5, "probability": 1e-6, "tails": 1e-6}


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """n rows held out of training or, cross-fitted, of some networks; never changed, only replaced."""

    h: Tensor  # (n, d): their embeddings, which the references vote on
    z: Tensor  # (n, q): raw features of a table, or (n, 0)
    y: NDArray[np.int64]  # (n,): codes of their labels; -1 for a label that was not in training
    ids: pd.Index[Any]
    exact: NDArray[np.float64]  # (n, T) their numbers, or (n, L) labels as 0 and 1; (n, 0) for classes

    @classmethod
    def none(cls) -> HeldOutRows:
        """No rows."""
        return cls(torch.zeros(0, 1), torch.zeros(0, 0), np.zeros(0, dtype=np.int64), pd.Index([]), np.zeros((0, 0)))

    @classmethod
    def of(
        cls,
        model: Model,
        inputs: batches.Inputs,
        y: NDArray[np.int64],
        ids: pd.Index[Any],
        exact: NDArray[np.float64],
        *,
        compared: bool,
    ) -> HeldOutRows:
        """Embed the rows. compared: keep the raw features of a table."""
        if len(y) == 0:
            width = getattr(model, "n_compared_features", 0) if compared else 0
            h, z = (torch.zeros(0, size, device=model.device) for size in (model.vector_size, width))
            return cls(h, z, y, ids, exact)
        h = batches.embed(model, inputs)
        return cls(h, batches.compared_features(model, inputs) if compared else h[:, :0], y, ids, exact)

    def without(self, ids: pd.Index[Any]) -> HeldOutRows:
        """The rows without these ids."""
        stays = ~self.ids.isin(ids)
        rows = torch.as_tensor(stays, device=self.h.device)
        return replace(
            self, h=self.h[rows], z=self.z[rows], y=self.y[stays], ids=self.ids[stays], exact=self.exact[stays]
        )

    def of_fold(self, folds: Folds, fold: int) -> HeldOutRows:
        """The rows of a fold, as the model that left them out embeds them."""
        here = folds.numbers(self.ids) == fold
        rows = torch.as_tensor(here, device=self.h.device)
        h = part_of(self.h[rows], fold, folds.members)
        return replace(self, h=h, z=self.z[rows], y=self.y[here], ids=self.ids[here], exact=self.exact[here])

    def require(self) -> None:
        """Raise an error if there are no rows to calibrate with."""
        if len(self.y) == 0:
            raise CalibrationError(
                "the model has no calibration rows (fit set none aside, or all were forgotten); "
                "call recalibrate(X, y) with rows that it was not trained on"
            )

    def calibration(
        self, model: WeightedAverage, score: str, *, class_conditional: bool, folds: Folds | None = None
    ) -> Calibration:
        """The scores of the rows' own labels; a label that was not in training scores worse than any other.

        folds: the folds of a cross-fitted model, whose rows are judged by the models that left them out.
        """
        self.require()
        if folds is None:
            votes = batches.votes(model, self.h).cpu().numpy()
        else:
            votes = folds.judged(model.references, self.h, self.ids)
        scores = nonconformity(votes, score)
        known = self.y >= 0
        own = np.full(len(self.y), np.inf)
        own[known] = true_label_scores(scores[known], self.y[known])
        by_class = class_conditional and known.any()
        rows = known if by_class else np.full(len(known), True)
        labels = self.y[rows] if by_class else None
        options: dict[str, Any] = {"tolerance": _ROUNDING[score], "table": scores}
        if folds is None:
            return Calibration(own[rows], labels, **options)
        return CrossCalibration(own[rows], folds.numbers(self.ids)[rows], labels, **options)
