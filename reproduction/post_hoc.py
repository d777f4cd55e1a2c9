"""What others compute from a trained softmax classifier to detect out-of-distribution rows: the scores of OpenOOD.

scores = PostHoc(features, weight, bias).scores(queries)     # high = in distribution

Each is written from its publication and read from the features f that the last linear layer maps to logits, W f + b.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from dwac.nn import batches
from dwac.nn.ensemble import Ensemble, features_of, join_members, map_members
from dwac.nn.heads import Model

KNN = 50  # neighbours, as in OpenOOD
GUIDES = 10  # neighbours of NNGuide, as in its publication
_ROWS = 1000  # queries compared with all training rows at once
Floats = NDArray[np.float64]


class PostHoc:
    """Scores of queries by a softmax classifier: training features (m, d), W (K, d) and b (K,) of its last layer.

        MSP      log max_k P(k)                                                     Hendrycks and Gimpel, 2017
        energy   log Σ_k exp logit_k                                                Liu et al., 2020
        KNN      -‖f - f_i‖² to the 50th nearest training row, features normalised  Sun et al., 2022
        ViM      energy - α ‖residual of f outside the principal space‖             Wang et al., 2022
        fDBD     mean distance to the other classes' boundaries / ‖f - mean‖        Liu and Qin, 2024
        NNGuide  energy · mean over the 10 most similar f_i of cos(f, f_i) energy_i Park et al., 2023

    NNGuide's publication keeps a part of the training rows as a bank, for speed; here all of them are its bank.
    """

    def __init__(self, features: Tensor, weight: Tensor, bias: Tensor) -> None:
        self.features, self.weight, self.bias = features, weight.double(), bias.double()
        self.mean = features.double().mean(dim=0)
        self.bank = F.normalize(features, dim=1)
        self.energy = self._energy(self.logits(features))
        self._fit_vim()

    def logits(self, features: Tensor) -> Tensor:
        """W f + b, (n, K) float64."""
        return features.double() @ self.weight.T + self.bias

    def scores(self, queries: Tensor) -> dict[str, Floats]:
        """Every score of queries (n, d), by name: high in distribution."""
        logits = self.logits(queries)
        found = {
            "msp": torch.log_softmax(logits, dim=1).amax(dim=1),
            "energy": self._energy(logits),
            "knn": self._knn(queries),
            "vim": self._energy(logits) - self.alpha * self._residual(queries),
            "fdbd": self._boundary(queries, logits),
            "nnguide": self._energy(logits) * self._guidance(queries),
        }
        return {name: np.asarray(score.double().cpu().numpy()) for name, score in found.items()}

    def _energy(self, logits: Tensor) -> Tensor:
        return logits.logsumexp(dim=1)

    def _knn(self, queries: Tensor) -> Tensor:
        k = min(KNN, len(self.bank))
        similar = self._over(F.normalize(queries, dim=1), lambda part: (part @ self.bank.T).topk(k, dim=1)[0][:, -1])
        return 2 * similar - 2  # -‖a - b‖² of vectors of length 1

    def _guidance(self, queries: Tensor) -> Tensor:
        k, guide = min(GUIDES, len(self.bank)), self.bank * self.energy[:, None].to(self.bank)
        return self._over(F.normalize(queries, dim=1), lambda part: (part @ guide.T).topk(k, dim=1)[0].mean(dim=1))

    def _over(self, queries: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
        return torch.cat([function(part) for part in queries.split(_ROWS)])

    def _fit_vim(self) -> None:
        """The principal space of f - o, where o has logits of 0: -W⁺ b; and α, the residual's scale among logits."""
        self.origin = -torch.linalg.pinv(self.weight) @ self.bias
        centred, d = self.features.double() - self.origin, self.features.shape[1]
        kept = 1000 if d >= 2048 else 512 if d >= 768 else d // 2
        self.residual_space = torch.linalg.eigh(centred.T @ centred).eigenvectors[:, : d - kept]  # ascending
        largest = self.logits(self.features).amax(dim=1).mean()
        self.alpha = largest / self._residual(self.features).mean().clamp_min(1e-12)

    def _residual(self, features: Tensor) -> Tensor:
        norms: Tensor = torch.linalg.vector_norm((features.double() - self.origin) @ self.residual_space, dim=1)
        return norms

    def _boundary(self, queries: Tensor, logits: Tensor) -> Tensor:
        top = logits.argmax(dim=1)
        gaps = logits.gather(1, top[:, None]) - logits  # 0 for the class itself
        norms = torch.cdist(self.weight, self.weight)[top].clamp_min(1e-12)
        distance = (gaps / norms).sum(dim=1) / max(1, logits.shape[1] - 1)
        norm: Tensor = torch.linalg.vector_norm(queries.double() - self.mean, dim=1)
        return distance / norm.clamp_min(1e-12)


@torch.no_grad()
def features(model: Model, inputs: tuple[Tensor, ...]) -> Tensor:
    """What the embedding layer reads, (n, d); of an ensemble, the features of all members next to each other."""
    return batches.apply(model, lambda part: features_of(model.backbone(*part)).float(), inputs).flatten(1)


@torch.no_grad()
def embeddings(model: Model, features: Tensor) -> Tensor:
    """h (n, |h|) from features (n, d)."""
    weight, bias = model.embedding.weight, model.embedding.bias
    if not isinstance(model.backbone, Ensemble):
        return F.linear(features, weight, bias)
    return join_members(map_members(features.unflatten(1, (model.ensemble_size, weight.shape[1])), weight, bias))


@torch.no_grad()
def last_layer(model: Model, logits: Callable[[Tensor], Tensor]) -> tuple[Tensor, Tensor]:
    """W (K, d) and b (K,) with logits(h) = W f + b: all that is behind the features f is linear."""
    d = model.ensemble_size * model.embedding.weight.shape[1]
    points = torch.cat([torch.zeros(1, d), torch.eye(d)]).to(model.embedding.weight)
    found = logits(embeddings(model, points)).double()
    return (found[1:] - found[0]).T, found[0]
