"""Changes to frozen settings that were tried: each is run and compared with the unchanged setting."""

from __future__ import annotations

from dataclasses import dataclass

from dwac.paper.settings import Values


@dataclass(frozen=True)
class Variant:
    """A description, the question it answers, the setting it changes and how, and the datasets.

    mixed: the official training and test rows are pooled, and new sets of the same sizes are drawn.
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
_VECTORS = "Do texts fall short of the published numbers because of smaller vectors? The paper's had 300 dimensions."
TRIED = {
    "no_penalty": Variant(
        "no penalty on ‖h‖²", "Is our penalty the cause of a difference?", "paper", (*_SMALL, "imdb"), {"penalty": 0.0}
    ),
    "no_rescale": Variant(
        "the scale of h not fitted",
        "Is the fitted scale the cause of a difference?",
        "paper",
        _SMALL,
        {"rescale": False},
    ),
    "no_vectors": Variant("random initial word vectors", _VECTORS, "paper", _TEXTS, {"encoder": _READER}),
    "half_vectors": Variant(
        "50 of the 100 dimensions of word vectors",
        _VECTORS,
        "paper",
        _TEXTS,
        {"encoder": {**_READER, "vectors": "glove 100d, 50 kept"}},
    ),
    "guided": Variant(
        "auxiliary softmax loss",
        "Is DWAC behind its twin because votes within a batch train less well than a softmax?",
        "paper",
        ("cifar10", "stackoverflow", "imdb"),
        {"auxiliary_weight": 1.0},
        trials=3,
    ),
    "large_batches": Variant(
        "batches of 256 instead of 64",
        "Is DWAC behind its twin because too few examples vote in a batch?",
        "paper",
        ("imdb",),
        {"batch_size": 256},
        trials=3,
    ),
    "long_embeddings": Variant(
        "embeddings of 16 dimensions instead of 2",
        "Is DWAC behind its twin because its embedding is too small?",
        "paper",
        ("imdb",),
        {"embedding_size": 16},
        trials=3,
    ),
    "one_member": Variant(
        "one network",
        "What does an ensemble gain?",
        "best",
        ("adult", "covertype", "fashion_mnist", "stackoverflow"),
        {"ensemble_size": 1},
    ),
    "no_guidance": Variant(
        "no auxiliary softmax loss",
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
        "up to 1,500 words per text instead of 400",
        "Are long texts truncated too early?",
        "paper",
        ("imdb",),
        {"encoder": {**_READER, "vectors": "glove 100d", "max_length": 1500}},
    ),
    "paper_mixed": Variant(
        "test rows drawn at random from all rows",
        "Does the paper's model fall short only on the official test rows?",
        "paper",
        ("imdb",),
        {},
        mixed=True,
    ),
    "mixed": Variant(
        "test rows drawn at random from all rows",
        "Are p-values low because the official test rows are about other films?",
        "best",
        ("imdb",),
        {},
        trials=2,
        mixed=True,
    ),
}
