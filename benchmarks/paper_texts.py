"""Claim: what separates the paper's text models here from the research code's is known, and what each part is worth.

The research code (github.com/dallascard/DWAC) reads texts whole, in spaCy's words, with upper case; every training word
has a vector, and those that GloVe lacks start as widely as GloVe's; batches hold 128 texts.

    python -m benchmarks.paper_texts fit FOLDER       # best on a GPU; each fit adds a line to FOLDER/fits.jsonl
    python -m benchmarks.paper_texts score FOLDER     # writes the record

Rows held out from training rows judge. No test row of IMDB is read; of Subjectivity and Stack Overflow, which have no
official test set, no row that is a test row of any trial judges, and none of the same trial trains.
"""

from __future__ import annotations

import argparse
import importlib
import itertools
import json
import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import nn

from benchmarks import record
from dwac import DWACClassifier
from dwac.encoders import text
from dwac.encoders.text_networks import UNKNOWN, AttentionCNN, SubwordNetwork
from dwac.estimator.settings import parameters
from dwac.training import run
from reproduction import datasets, settings
from reproduction.fit import build_encoder
from reproduction.rows import Library
from reproduction.twin import Twin

Ints = NDArray[np.int64]
TRIALS = range(5)
IMDB_ROWS, IMDB_HELD = 9000, 1500  # per class, the last by number: reviews of a film have neighbouring numbers


@dataclass(frozen=True)
class Change:
    """A change of a dataset's setting. patches: what `fit` replaces in the library."""

    data: str
    setting: str
    label: str
    encoder: dict[str, Any] = field(default_factory=dict)
    changed: dict[str, Any] = field(default_factory=dict)
    patches: tuple[str, ...] = ()
    head: str = "dwac"
    folds: int = 1


WHOLE, ALL_WORDS = {"max_length": 2500}, {"max_length": 2500, "min_count": 1, "max_words": 200_000}
LARGE: dict[str, Any] = {"batch_size": 128}
CHANGES = [
    Change("imdb", "paper", "400 words, batches of 64", {"max_length": 400}, {"batch_size": 64}),
    Change("imdb", "paper", "whole, batches of 64", WHOLE, {"batch_size": 64}, folds=2),
    Change("imdb", "paper", "whole, batches of 128", WHOLE, LARGE, folds=2),
    Change("imdb", "paper", "whole, softmax", WHOLE, {"batch_size": 64}, head="softmax"),
    Change("imdb", "paper", "whole, research words", ALL_WORDS, {"batch_size": 64}, ("spacy", "normal")),
    Change("imdb", "paper", "whole, batches of 128, normal", WHOLE, LARGE, ("normal",)),
    Change("imdb", "paper", "whole, batches of 128, lower-case spaCy, all words, normal", ALL_WORDS, LARGE,
           ("spacy_lower", "normal")),
    Change("subjectivity", "paper", "batches of 64", {}, {"batch_size": 64}, folds=3),
    Change("subjectivity", "paper", "normal", {}, {"batch_size": 64}, ("normal",), folds=3),
    Change("subjectivity", "paper", "research words", ALL_WORDS, {"batch_size": 64}, ("spacy", "normal"), folds=3),
    Change("subjectivity", "paper", "research training", {}, {"batch_size": 64, "patience": 5, "penalty": 0.0},
           ("constant",), folds=2),
    Change("subjectivity", "paper", "batches of 128, 100 filters, |h| 5", {}, {**LARGE, "embedding_size": 5},
           ("narrow",), folds=2),
    Change("stackoverflow", "paper", "batches of 64", {}, {"batch_size": 64}, folds=2),
    Change("stackoverflow", "paper", "batches of 128", {}, LARGE, folds=2),
]  # fmt: skip
for name, n in (("stackoverflow", 3), ("subjectivity", 3), ("imdb", 1)):
    CHANGES += [
        Change(name, "best", "best", folds=n),
        Change(name, "best", "best, 8 members", changed={"ensemble_size": 8}, folds=n),
        Change(name, "best", "best, dropout .6", {"dropout": 0.6}, folds=n),
        Change(name, "best", "best, 8 members, dropout .6", {"dropout": 0.6}, {"ensemble_size": 8}, folds=n),
        Change(name, "best", "best, dropout .4", {"dropout": 0.4}, folds=min(n, 2)),
        Change(name, "best", "best, 40 epochs", changed={"epochs": 40, "patience": 40}, folds=min(n, 2)),
        Change(name, "best", "best, all evidence", patches=("all_evidence",), folds=n),
        Change(name, "best", "best, half evidence", patches=("half_evidence",), folds=min(n, 2)),
    ]


def split(name: str, fold: int) -> tuple[list[str], Ints, list[str], Ints]:
    """Training texts and labels, and those held out."""
    data = datasets.load(name)
    y = data.y_train
    if name == "imdb":
        some = np.concatenate([np.flatnonzero(y == k)[-IMDB_ROWS:] for k in (0, 1)])
        held = np.concatenate([np.flatnonzero(y == k)[-IMDB_HELD:] for k in (0, 1)])
        train = np.setdiff1d(some, held)
    else:
        parts = [replace(data, X_train=np.arange(len(y))).split(settings.TEST_SIZE, seed=trial) for trial in TRIALS]
        never = np.setdiff1d(np.arange(len(y)), np.concatenate([part.X_test for part in parts]))
        held = np.sort(np.random.default_rng(100 + fold).permutation(never)[: len(y) // 10])
        train = np.setdiff1d(parts[fold].X_train, held)
    return [data.X_train[i] for i in train], y[train], [data.X_train[i] for i in held], y[held]


def spacy_words(texts: list[str], *, lower: bool) -> list[str]:
    """The words of spaCy's English tokeniser with spaces between, without tags; upper case is kept or not."""
    tokenizer, found = importlib.import_module("spacy.lang.en").English().tokenizer, []
    for one in texts:
        plain = re.sub(r"<[^>]+>", " ", one.lower() if lower else one)
        found.append(" ".join(token.text for token in tokenizer(plain) if not token.text.isspace()))
    return found


def uniform_start(encoder: type[text.TextEncoder]) -> Callable[[text.TextEncoder], nn.Module]:
    """`TextEncoder.member`, so that words that GloVe lacks start close to 0, as they did at first."""
    plain = encoder.member

    def member(self: text.TextEncoder) -> nn.Module:
        network = plain(self)
        assert isinstance(network, AttentionCNN)
        lacking = [i for i, word in enumerate(self.vocabulary, start=UNKNOWN + 1) if word not in self._vectors]
        with torch.no_grad():
            rows = torch.tensor([UNKNOWN, *lacking])
            network.words.weight[rows] = torch.empty(len(rows), network.words.embedding_dim).uniform_(-0.25, 0.25)
        return network

    return member


class NarrowAttentionCNN(AttentionCNN):
    """With 100 filters, the research code's default; the paper has 200."""

    def __init__(self, n_words: int, size: int, dropout: float) -> None:
        super().__init__(n_words, size, filters=100, dropout=dropout)


def with_evidence(encoder: type[text.TextEncoder], every: int) -> Callable[[text.TextEncoder], nn.Module]:
    """`TextEncoder.member`, so that every so many-th member of an ensemble starts from the evidence of n-grams."""
    plain, turn = encoder.member, itertools.cycle(range(every))

    def member(self: text.TextEncoder) -> nn.Module:
        network = plain(self)
        if next(turn) == 0 and self._evidence is not None and isinstance(network, SubwordNetwork):
            network.start_from(torch.from_numpy(self._evidence))
        return network

    return member


def fit(change: Change, fold: int) -> dict[str, Any]:
    """One fit: its accuracy and log loss on the held-out rows."""
    X, y, X_held, y_held = split(change.data, fold)
    with ExitStack() as patched:
        if change.setting == "paper" and "normal" not in change.patches:
            patched.enter_context(mock.patch.object(text.TextEncoder, "member", uniform_start(text.TextEncoder)))
        for how in change.patches:
            if how.startswith("spacy"):
                X, X_held = (spacy_words(texts, lower=how == "spacy_lower") for texts in (X, X_held))
                patched.enter_context(mock.patch.object(text, "tokenise", str.split))
            elif how == "narrow":
                patched.enter_context(mock.patch.object(text, "AttentionCNN", NarrowAttentionCNN))
            elif how.endswith("evidence"):
                member = with_evidence(text.TextEncoder, every=2 if how == "half_evidence" else 1)
                patched.enter_context(mock.patch.object(text.TextEncoder, "member", member))
            elif how == "constant":
                patched.enter_context(mock.patch.object(run, "one_cycle", return_value=1.0))
        values = settings.estimator_settings(change.data, change.setting) | change.changed
        encoder = build_encoder(values["encoder"] | change.encoder, Library())
        values |= {"encoder": encoder, "look_alikes": change.setting == "best"}
        start = time.perf_counter()
        values |= {"random_state": fold, "verbose": False}
        clf = (DWACClassifier(**parameters(values)) if change.head == "dwac" else Twin(**values)).fit(X, y)
        seconds = time.perf_counter() - start
        p = clf.predict_proba(X_held)
    loss = -np.log(p[np.arange(len(y_held)), y_held]).mean()
    found = {"accuracy": (p.argmax(axis=1) == y_held).mean(), "log_loss": loss, "fit_s": seconds}
    return {"data": change.data, "setting": change.setting, "label": change.label, "fold": fold} | found


def report(folder: Path) -> None:
    """One row per change, means over folds."""
    fits = pd.DataFrame(json.loads(line) for line in (folder / "fits.jsonl").read_text().splitlines())
    means = fits.groupby(["data", "setting", "label"], sort=False).agg(
        folds=("fold", "size"), accuracy=("accuracy", "mean"), log_loss=("log_loss", "mean"), seconds=("fit_s", "mean")
    )
    same = fits[fits["fold"] == 0].set_index(["data", "setting", "label"])["accuracy"]
    means.insert(1, "accuracy, first fold", same)
    config = {
        "IMDB": f"{2 * (IMDB_ROWS - IMDB_HELD):,} training rows, {2 * IMDB_HELD:,} held out, about other films",
        "others": "a tenth held out of the training rows of each trial",
        "vectors": "GloVe 100d in 8 bits, of words in three texts or more",
        "fits": "several at a time on one NVIDIA H200",
    }
    claim = (
        "Text models on rows held out of the training rows. normal: words that GloVe lacks start as widely as GloVe's. "
        "research words: spaCy's, with upper case, every training word in the vocabulary, and normal. research "
        "training: a constant rate, early stopping after 5 epochs, no penalty."
    )
    record.write("paper_texts", claim, config, means.round(4).reset_index())


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("what", choices=("fit", "score"))
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    if asked.what == "score":
        return report(asked.folder)
    asked.folder.mkdir(parents=True, exist_ok=True)
    for change in CHANGES:
        for fold in range(change.folds):
            with (asked.folder / "fits.jsonl").open("a") as file:
                file.write(json.dumps(fit(change, fold), default=float) + "\n")
    return None


if __name__ == "__main__":
    main()
