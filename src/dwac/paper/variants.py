"""Changes to frozen settings that were tried: each is run as it stands here, and compared with what it changes."""

from __future__ import annotations

from dataclasses import dataclass

from dwac.paper.settings import Values


@dataclass(frozen=True)
class Variant:
    """What it is in words, which question it answers, the setting it changes and how, and on which datasets.

    mixed: the official training and test rows are put together first, and as many drawn anew for each.
    """

    what: str
    asks: str
    setting: str
    datasets: tuple[str, ...]
    values: Values
    trials: int = 1
    mixed: bool = False


_READER: Values = {"kind": "text", "network": "paper"}
_TEXTS = ("subjectivity", "stackoverflow", "imdb")
_SMALL = ("adult", "stackoverflow")
_VECTORS = "Do texts fall short of the published numbers for want of vectors? The paper's had 300 numbers."
TRIED = {
    "no_penalty": Variant(
        "no penalty on ‖h‖²", "Is it our penalty that differs?", "paper", (*_SMALL, "imdb"), {"penalty": 0.0}
    ),
    "no_rescale": Variant(
        "the scale of h as training left it", "Is it the fitted scale?", "paper", _SMALL, {"rescale": False}
    ),
    "no_vectors": Variant("words start at random", _VECTORS, "paper", _TEXTS, {"encoder": _READER}),
    "half_vectors": Variant(
        "50 of the 100 numbers of each word's vector",
        _VECTORS,
        "paper",
        _TEXTS,
        {"encoder": {**_READER, "vectors": "glove 100d, 50 kept"}},
    ),
    "guided": Variant(
        "a softmax guides training",
        "Does DWAC trail its twin because a batch of votes teaches less than a softmax?",
        "paper",
        ("cifar10", "stackoverflow", "imdb"),
        {"auxiliary_weight": 1.0},
        trials=3,
    ),
    "large_batches": Variant(
        "batches of 256, not 64",
        "Does DWAC trail its twin because too few vote in a batch?",
        "paper",
        ("imdb",),
        {"batch_size": 256},
        trials=3,
    ),
    "long_embeddings": Variant(
        "embeddings of 16 numbers, not 2",
        "Does DWAC trail its twin because its embedding is too short?",
        "paper",
        ("imdb",),
        {"embedding_size": 16},
        trials=3,
    ),
    "one_member": Variant(
        "one network alone",
        "What do several gain?",
        "best",
        ("adult", "covertype", "fashion_mnist", "stackoverflow"),
        {"ensemble_size": 1},
    ),
    "no_guidance": Variant(
        "no softmax guides training",
        "What does auxiliary_weight gain?",
        "best",
        ("covertype", "fashion_mnist"),
        {"auxiliary_weight": 0.0},
    ),
    "laplace": Variant(
        "weights exp(-‖h - h_i‖)",
        "Would another kernel do better?",
        "best",
        ("stackoverflow",),
        {"kernel": "laplace"},
        trials=3,
    ),
    "whole_texts": Variant(
        "up to 1,500 words of a text are read, not 400",
        "Are long texts cut too short?",
        "paper",
        ("imdb",),
        {"encoder": {**_READER, "vectors": "glove 100d", "max_length": 1500}},
    ),
    "paper_mixed": Variant(
        "test rows drawn anew from all",
        "Does the paper's model fall short of its number on the official test rows alone?",
        "paper",
        ("imdb",),
        {},
        mixed=True,
    ),
    "mixed": Variant(
        "test rows drawn anew from all",
        "Are p-values low because the official test rows are of other films?",
        "best",
        ("imdb",),
        {},
        trials=2,
        mixed=True,
    ),
}
