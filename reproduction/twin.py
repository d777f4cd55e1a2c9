"""The softmax twin: a DWAC's encoder, parts, training loop and scale, with a softmax in place of the vote.

twin = Twin("tabular", epochs=10, random_state=0).fit(X, y)
twin.predict_proba(X_new)
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state

from dwac import training
from dwac._machine import few_threads
from dwac.conformal import Calibration, ConformalPrediction, nonconformity, true_label_scores
from dwac.encoders import Encoder, TabularEncoder, backbone, choose
from dwac.estimator.observed import rows_for
from dwac.estimator.preparation import split, take
from dwac.estimator.settings import device_of
from dwac.nn import SoftmaxTwin, batches
from dwac.training.progress import progress_bar
from dwac.training.rows import fixed_features

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_RECIPE = ("epochs", "batch_size", "learning_rate", "weight_decay", "patience")
_LEAST_SIZE = 16  # of h for several labels and numbers, as in the estimators


class Twin:
    """`DWACClassifier` or `DWACRegressor` with the same settings, but a `dwac.nn.SoftmaxTwin` in place of the vote.

    Rows are named by their numbers.

    Args:
        encoder: as of the estimators.
        settings: as of the estimators; those of the vote, such as penalty, are accepted and not used.
    """

    def __init__(self, encoder: Any = "auto", **settings: Any) -> None:
        self.encoder, self.settings = encoder, settings

    def get_params(self, deep: bool = False) -> dict[str, Any]:
        """The settings."""
        del deep
        return {"encoder": self.encoder, "rescale": True, **self.settings}

    def fit(self, X: Any, y: Any, task: str = "classes") -> Self:
        """Train on the rows that DWAC would train on; the same are for validation and calibration.

        task: "classes"; "labels": y (n, L) of 0 and 1 has several labels, with a logistic output each; "numbers": y
        (n,) or (n, T) is fitted by squared error.
        """
        given = self.settings.get
        encoder = choose(self.encoder, X)
        X = rows_for(X, encoder)
        codes, n, targets = self._read(np.asarray(y), task)
        strata = codes * 10 // n if task == "numbers" else codes  # validation rows are spread over them
        if task == "numbers" and encoder.kind == "tabular" and self.encoder in ("auto", "tabular"):
            encoder = TabularEncoder(network="numbers")
        rng = check_random_state(given("random_state"))
        parts = split(strata, given("validation_size"), given("calibration_size"), rng)
        seed, device = int(rng.randint(2**31 - 1)), device_of(given("device", "auto"))
        encoder.fit(take(X, parts.training), strata[parts.training])
        inputs, wanted = encoder.transform(X), torch.as_tensor(codes)
        with (
            few_threads(encoder.recipe.threads),
            torch.random.fork_rng(devices=range(torch.cuda.device_count()) if device.type == "cuda" else []),
        ):
            torch.manual_seed(seed)
            network = backbone(encoder, given("ensemble_size") or encoder.recipe.networks_on(device))
            size = given("embedding_size") or self._size(encoder, n, targets)
            model = SoftmaxTwin(network, n, size, targets=targets).to(device)
            with fixed_features(model, inputs, show=given("verbose", "auto")) as read:
                rows, held = torch.as_tensor(parts.training), torch.as_tensor(parts.validation)
                validation = (tuple(part[held] for part in read), wanted[held]) if len(held) else None
                self.history_ = self._train(
                    model, encoder, tuple(part[rows] for part in read), wanted[rows], validation, seed
                )
                calibration = parts.calibration if len(parts.calibration) else parts.validation
                self.calibration_h_ = batches.embed(model, tuple(part[torch.as_tensor(calibration)] for part in read))
        self.encoder_, self.model_ = encoder, model
        self.validation_ids_, self.calibration_ids_ = pd.Index(parts.validation), pd.Index(calibration)
        self.calibration_y_ = codes[calibration]
        return self

    def _read(self, y: NDArray[Any], task: str) -> tuple[Ints, int, torch.Tensor | None]:
        """(codes (n,), how many there are, (K, T) what they stand for; None for classes)."""
        if task == "classes":
            self.classes_, codes = np.unique(y, return_inverse=True)
            return codes.astype(np.int64), len(self.classes_), None
        if task == "numbers":
            y = y.reshape(len(y), -1)
            y = (y - y.mean(axis=0)) / np.maximum(y.std(axis=0), np.finfo(np.float64).tiny)
        table, codes = np.unique(y, axis=0, return_inverse=True)
        targets = torch.as_tensor(table).to(torch.float32 if task == "numbers" else torch.bool)
        return codes.reshape(-1).astype(np.int64), len(table), targets

    @staticmethod
    def _size(encoder: Encoder, n: int, targets: torch.Tensor | None) -> int:
        if targets is None:
            return encoder.recipe.embedding_size or n
        return max(encoder.recipe.embedding_size or targets.shape[1], _LEAST_SIZE)

    def _train(
        self, model: SoftmaxTwin, encoder: Encoder, x: Any, y: torch.Tensor, validation: Any, seed: int
    ) -> pd.DataFrame:
        given, recipe = self.settings.get, encoder.recipe
        chosen: dict[str, Any] = {
            name: getattr(recipe, name) if given(name) is None else given(name) for name in _RECIPE
        }
        for name in ("mixed_precision", "compiled"):
            asked = given(name, "auto")
            chosen[name] = model.device.type == "cuda" and getattr(recipe, name) if asked == "auto" else asked
        with progress_bar("training softmax", chosen["epochs"], show=given("verbose", "auto")) as watch:
            return training.train(
                model,
                x,
                y,
                validation=validation,
                augment=encoder.augment,
                rescale=given("rescale", True),
                beta2=recipe.beta2,
                seed=seed,
                **watch,
                **chosen,
            )

    def embed(self, X: Any) -> NDArray[np.float32]:
        """Embeddings h, (n, d)."""
        return np.asarray(batches.embed(self.model_, self.encoder_.transform(rows_for(X, self.encoder_))).cpu().numpy())

    def logits(self, X: Any) -> Floats:
        """The outputs of the network, (n, K)."""
        x = self.encoder_.transform(rows_for(X, self.encoder_))
        return np.asarray(batches.log_class_weights(self.model_, x).cpu().numpy())

    def predict_proba(self, X: Any) -> Floats:
        """P(y=k given x), (n, K); of several labels, the probability of each, (n, L)."""
        logits = self.logits(X)
        if self.model_.targets is not None:
            return np.asarray(1 / (1 + np.exp(-logits)))
        return np.asarray(-nonconformity(logits, "probability"))

    def predict(self, X: Any) -> NDArray[Any]:
        """The most probable label, (n,); of several labels, 0 and 1 (n, L)."""
        if self.model_.targets is not None:
            return (self.predict_proba(X) >= 0.5).astype(np.int64)
        return np.asarray(self.classes_[self.logits(X).argmax(axis=1)])

    def score(self, X: Any, y: Any) -> float:
        """The accuracy."""
        return float((self.predict(X) == np.asarray(y)).mean())

    def conformal(self, X: Any) -> ConformalPrediction:
        """p-values of the labels by their probability, calibrated on rows that were not trained on."""
        with torch.no_grad():
            held = batches.votes(self.model_, self.calibration_h_).cpu().numpy()
        scores = true_label_scores(nonconformity(held, "probability"), self.calibration_y_)
        return Calibration(scores).predict(nonconformity(self.logits(X), "probability"))
