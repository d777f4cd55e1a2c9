"""Changes to frozen settings that were tried: each is run and compared with the unchanged setting."""

from __future__ import annotations

from dataclasses import dataclass

from reproduction.settings import Values


@dataclass(frozen=True)
class Variant:
    """A description, the question it answers, the setting it changes and how, and the datasets.

    mixed: the official training and test rows are pooled, and new sets of the same sizes are drawn.
    every_tenth: every tenth row is a test row, as in the research code for Subjectivity; trials differ by seed.
    """

    what: str
    asks: str
    setting: str
    datasets: tuple[str, ...]
    values: Values
    trials: int = 1
    mixed: bool = False
    every_tenth: bool = False


_READER: Values = {"kind": "text", "network": "paper", "vectors": "glove 100d", "max_length": 2500}
_TEXTS = ("subjectivity", "stackoverflow", "imdb")
_SMALL = ("adult", "stackoverflow")
TRIED = {
    "every_tenth": Variant(
        "the research code's test rows: every tenth sentence",
        "Is the published accuracy higher because its test rows are easier?",
        "paper",
        ("subjectivity",),
        {},
        trials=3,
        every_tenth=True,
    ),
    "half_vectors": Variant(
        "50 of the 100 dimensions of word vectors",
        "Do texts fall short of the published numbers because of smaller vectors? The paper's had 300 dimensions.",
        "paper",
        _TEXTS,
        {"encoder": {**_READER, "vectors": "glove 100d, 50 kept"}},
    ),
    "short_texts": Variant(
        "the first 400 words of a text instead of all",
        "How much do long texts lose if they are cut?",
        "paper",
        ("imdb",),
        {"encoder": {**_READER, "max_length": 400}},
    ),
    "no_penalty": Variant(
        "no penalty on ‖h‖²", "Is our penalty the cause of a difference?", "paper", _SMALL, {"penalty": 0.0}
    ),
    "no_rescale": Variant(
        "the scale of h not fitted",
        "Is the fitted scale the cause of a difference?",
        "paper",
        _SMALL,
        {"rescale": False},
    ),
    "guided": Variant(
        "auxiliary softmax loss",
        "Is DWAC behind its twin because votes within a batch train less well than a softmax?",
        "paper",
        ("cifar10", "stackoverflow"),
        {"auxiliary_weight": 1.0},
    ),
    "one_member": Variant("one network", "What does an ensemble gain?", "best", _SMALL, {"ensemble_size": 1}),
    "no_guidance": Variant(
        "no auxiliary softmax loss", "What does auxiliary_weight gain?", "best", _SMALL, {"auxiliary_weight": 0.0}
    ),
    "mixed": Variant(
        "test rows drawn at random from all rows",
        "Are p-values low because the official test rows are about other films?",
        "best",
        ("imdb",),
        {},
        mixed=True,
    ),
}
