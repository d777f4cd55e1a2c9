"""Case → Fitted: the model of a case. What several experiments need is computed once, on first use."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from functools import cache, cached_property
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dwac import metrics
from dwac.conformal import Calibration, nonconformity, true_label_scores
from dwac.encoders import Encoder, ImageEncoder, TabularEncoder, TextEncoder
from dwac.estimator.classifier import DWACClassifier
from dwac.estimator.settings import flat, parameters
from dwac.nn import SoftmaxTwin, WeightedAverage
from reproduction import peers, post_hoc
from reproduction.cases import Case
from reproduction.records import Record, code, rounded
from reproduction.rows import Ints, Library, Trial, rows
from reproduction.tuning import Journal
from reproduction.twin import Twin

Floats = NDArray[np.float64]
Network = DWACClassifier | Twin
ENCODERS: dict[str, Any] = {"tabular": TabularEncoder, "image": ImageEncoder, "text": TextEncoder}


class Fitted:
    """A fitted case. Peers have only `labels`, and `votes` if they have scores; networks have everything."""

    def __init__(self, case: Case, trial: Trial, model: Network | peers.Peer, library: Library) -> None:
        self.case, self.trial, self.model, self.library = case, trial, model, library

    @property
    def clf(self) -> DWACClassifier:
        """The fitted DWAC."""
        assert isinstance(self.model, DWACClassifier)
        return self.model

    @property
    def network(self) -> Network:
        """The fitted DWAC, or its softmax twin; peers have none."""
        assert isinstance(self.model, Network)
        return self.model

    @cached_property
    def test_h(self) -> NDArray[np.float32]:
        """Embeddings of the test rows."""
        return self.embed(self.trial.X_test)

    @cached_property
    def votes(self) -> Any:
        """Log class weights of the test rows, (n, K); logits of a softmax; None if a peer gives only labels."""
        if isinstance(self.model, peers.Peer):
            return None if self.model.margins is None else self.model.margins(self.trial.X_test)
        return self.votes_of(self.test_h)

    @cached_property
    def labels(self) -> Ints:
        """Predicted labels of the test rows."""
        if isinstance(self.model, peers.Peer) and self.votes is None:
            return np.asarray(self.model.predict(self.trial.X_test), dtype=np.int64)
        return np.asarray(self.votes.argmax(axis=1))

    @cached_property
    def calibration_votes(self) -> Floats:
        """Log class weights, or logits, of the calibration rows, (n, K)."""
        return self.votes_of(self.network.calibration_h_)

    @property
    def held_out_accuracy(self) -> float:
        """Accuracy on the calibration rows. They did not train the network; in the paper's setting they stop it."""
        return metrics.accuracy(self.network.calibration_y_, self.calibration_votes.argmax(axis=1))

    def embed(self, X: Any) -> NDArray[np.float32]:
        """Embeddings h, (n, d)."""
        return np.asarray(self.network.embed(X))

    def votes_of(self, h: Any) -> Floats:
        """Log class weights, or logits, of any embeddings, (n, K)."""
        model = self.network.model_
        on = torch.as_tensor(h).to(model.device)
        with torch.no_grad():
            found = model.references.log_class_weights(on) if isinstance(model, WeightedAverage) else model.logits(on)
        return np.asarray(found.double().cpu().numpy())

    def training_h(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Embeddings and labels of the rows that the network was trained on; for a DWAC, the reference set."""
        model = self.network.model_
        if isinstance(model, WeightedAverage):
            return model.references.embeddings, model.references.labels
        features, y = self.training_features
        return post_hoc.embeddings(model, features), y

    @cached_property
    def training_features(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Features (m, d) of a softmax classifier and labels of the rows that it was trained on."""
        held = np.union1d(self.network.validation_ids_, self.network.calibration_ids_)
        learned = np.setdiff1d(np.arange(len(self.trial.y)), held)
        features = self.features(rows(self.trial.X, learned))
        return features, torch.as_tensor(self.trial.y[learned]).to(features.device)

    def features(self, X: Any) -> torch.Tensor:
        """What the last layer of a softmax classifier reads, (n, d)."""
        model = self.network.model_
        assert isinstance(model, SoftmaxTwin)
        return post_hoc.features(model, self.network.encoder_.transform(X))

    def p_values(self, kind: str, votes: Floats, *, by_class: bool = False) -> Floats:
        """p-values (n, K) of any votes, by nonconformity "weights" or "probability"; `by_class`: class-conditional."""
        labels = self.network.calibration_y_
        held = true_label_scores(nonconformity(self.calibration_votes, kind), labels)
        return Calibration(held, labels if by_class else None).p_values(nonconformity(votes, kind))

    @property
    def kinds(self) -> tuple[str, ...]:
        """The nonconformity scores available with its head; the first is the default."""
        return ("weights", "probability") if self.case.head == "dwac" else ("probability",)


def fit(
    case: Case, library: Library, *, device: str = "auto", journal: Journal | None = None
) -> tuple[Fitted, dict[str, Any]]:
    """Fit a case and predict its test rows; also returns rows, seconds, epochs and settings for the record.

    journal: where the tuning of a peer stores its scores.
    """
    trial, values = library.trial(case), case.settings(quick=library.quick)
    start = time.perf_counter()
    model: Network | peers.Peer
    if case.is_peer:
        model = peers.FITTERS[case.head](trial.X, trial.y, case.trial, values, journal)
    else:
        settings = values | {"encoder": build_encoder(values["encoder"], library), "device": device}
        settings |= {"random_state": case.trial, "verbose": False}
        if case.head == "dwac":  # the paper's nonconformity, and its one kernel
            settings |= {"nonconformity": "weights", "look_alikes": case.setting == "best"}
        unfitted = DWACClassifier(**parameters(settings)) if case.head == "dwac" else Twin(**settings)
        model = unfitted.fit(trial.X, trial.y)
        if model.history_.attrs["ended"] == "interrupted":
            raise KeyboardInterrupt  # interrupted training gives no record
    ready = time.perf_counter()
    fitted = Fitted(case, trial, model, library)
    _ = fitted.labels
    seconds = {"fit": ready - start, "predict": time.perf_counter() - ready}
    return fitted, {"seconds": seconds, **_facts(fitted)}


def build_encoder(specification: dict[str, Any], library: Library) -> Encoder:
    """The encoder described by frozen settings; "glove 100d" becomes the file with those vectors."""
    values = dict(specification)
    if (vectors := values.get("vectors")) is not None:
        values["vectors"] = library.vectors(vectors)
    encoder: Encoder = ENCODERS[values.pop("kind")](**values)
    return encoder


def _facts(fitted: Fitted) -> dict[str, Any]:
    counts = {"training": len(fitted.trial.y), "test": len(fitted.trial.y_test)}
    if isinstance(fitted.model, peers.Peer):
        tuning = {"tried": fitted.model.tried, "edges": fitted.model.edges}
        return {"rows": counts, "epochs": None, "chosen": fitted.model.chosen, "tuning": tuning}
    clf = fitted.network
    own = np.setdiff1d(clf.calibration_ids_, clf.validation_ids_)  # empty if the validation rows also calibrate
    counts |= {"validation": len(clf.validation_ids_), "calibration": len(own)}
    counts["training"] -= counts["validation"] + counts["calibration"]
    settings = clf.get_params(deep=False)
    settings = flat(settings) if isinstance(clf, DWACClassifier) else settings
    given = {name: value for name, value in settings.items() if value is not None}
    used = {name: given.get(name, value) for name, value in asdict(clf.encoder_.recipe).items()}
    used |= {name: given[name] for name in ("rescale", "kernel") if name in given}
    used["embedding_size"] = clf.model_.embedding_size
    used["raw_feature_weight"] = getattr(clf.model_, "raw_feature_weight", 0.0)
    used["parameters"] = sum(part.numel() for part in clf.model_.parameters())
    history = {"epochs": len(clf.history_), "ended": clf.history_.attrs["ended"]}
    return {"rows": counts, **history, "trained_with": used}


def current(record: Record) -> bool:
    """Whether a new fit would train as the record's did: same frozen settings, same recipe for the others."""
    case = Case(**record["case"])
    values = case.settings(quick=record["quick"])
    if record["settings"] != rounded(values):
        return False
    if case.is_peer:
        return True
    names = ["epochs", "batch_size", "learning_rate", "weight_decay", "patience", "beta2", "ensemble_size"]
    names += ["penalty", "auxiliary_weight"] if case.head == "dwac" else []  # the softmax has neither
    now = recipe_of(json.dumps(values["encoder"]), record["rows"]["training"]) | values
    size = now["ensemble_size"] * (now["embedding_size"] or len(record["classes"]))
    used = record.get("trained_with", {})
    return used.get("embedding_size") == size and all(used.get(name) == rounded(now[name]) for name in names)


def stale(record: Record) -> bool:
    """Whether a record was made by another version of the code that its model runs, or with other settings."""
    return record.get("code") != code(peer=Case(**record["case"]).is_peer) or not current(record)


@cache
def recipe_of(specification: str, n: int) -> dict[str, Any]:
    """The training settings that an encoder recommends for n rows, found by fitting it to dummy rows."""
    values = json.loads(specification)
    values.pop("vectors", None)
    kind = values.pop("kind")
    if kind == "tabular":
        X: Any = pd.DataFrame({"x": np.arange(n)})
    else:
        X = np.zeros((n, 8, 8), dtype=np.uint8) if kind == "image" else ["word"] * n
    return asdict(ENCODERS[kind](**values).fit(X).recipe)
