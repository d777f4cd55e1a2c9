"""Held-out rows: kept as embeddings and labels, so that p-values follow whatever happens to the references."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.conformal import Calibration, nonconformity, true_label_scores
from dwac.errors import CalibrationError
from dwac.nn import Model, WeightedAverage, batches

# Scores closer than this may be one score: rounding differs between devices.
_ROUNDING = {"weights": 1e-5, "probability": 1e-6}


@dataclass(frozen=True, eq=False)
class HeldOutRows:
    """n rows that take no part in training; never changed, only replaced."""

    h: Tensor  # (n, d): their embeddings, without novelty
    z: Tensor  # (n, p): their raw features, where novelty counts, else (n, 0)
    y: NDArray[np.int64]  # (n,): codes of their labels; -1 for a label that training did not have
    ids: pd.Index[Any]

    @classmethod
    def none(cls) -> HeldOutRows:
        """No rows."""
        return cls(torch.zeros(0, 1), torch.zeros(0, 0), np.zeros(0, dtype=np.int64), pd.Index([]))

    @classmethod
    def of(cls, model: Model, inputs: batches.Inputs, y: NDArray[np.int64], ids: pd.Index[Any]) -> HeldOutRows:
        """Embed the rows."""
        if len(y) == 0:
            return cls(torch.zeros(0, 1), torch.zeros(0, 0), y, ids)
        h = batches.embed(model, inputs)
        if not isinstance(model, WeightedAverage) or model.known is None:
            return cls(h, h[:, :0], y, ids)
        return cls(h[:, :-1], model.raw_features(batches.on(inputs, model.device)), y, ids)

    def without(self, ids: pd.Index[Any]) -> HeldOutRows:
        """All except those with these ids."""
        stays = ~self.ids.isin(ids)
        rows = torch.as_tensor(stays, device=self.h.device)
        return replace(self, h=self.h[rows], z=self.z[rows], y=self.y[stays], ids=self.ids[stays])

    def without_novelty(self) -> HeldOutRows:
        """The same without raw features, by which novelty is measured."""
        return replace(self, z=self.z[:, :0])

    def vectors(self, model: Model) -> Tensor:
        """(n, model.vector_size): what the references vote on; novelty is measured against the references of now."""
        if not isinstance(model, WeightedAverage) or model.known is None or len(self.y) == 0:
            return self.h
        novelty = model.novelty_weight * model.known.distance(self.z, model.references.index_of_ids)
        return torch.cat([self.h, novelty.to(self.h)[:, None]], dim=1)

    def calibration(self, model: Model, score: str, *, class_conditional: bool) -> Calibration:
        """The scores of the rows' own labels; a label that training did not have scores worse than any other."""
        if len(self.y) == 0:
            raise CalibrationError(
                "the model has no calibration rows (fit set none aside, or all were forgotten); "
                "call recalibrate(X, y) with rows that it was not trained on"
            )
        scores = nonconformity(batches.votes(model, self.vectors(model)).cpu().numpy(), score)
        known = self.y >= 0
        own = np.full(len(self.y), np.inf)
        own[known] = true_label_scores(scores[known], self.y[known])
        options: dict[str, Any] = {"tolerance": _ROUNDING[score], "table": scores}
        if class_conditional and known.any():
            return Calibration(own[known], self.y[known], **options)
        return Calibration(own, **options)
