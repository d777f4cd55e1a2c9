"""Changes to frozen settings that were tried: each is run as it stands here, and compared with what it changes."""

from __future__ import annotations

from dataclasses import dataclass

from dwac.paper.settings import Values


@dataclass(frozen=True)
class Variant:
    """What it is in words, the setting it changes and how, and on which datasets it was tried.

    mixed: the official training and test rows are put together first, and as many drawn anew for each.
    """

    what: str
    setting: str
    datasets: tuple[str, ...]
    values: Values
    trials: int = 1
    mixed: bool = False


_READER: Values = {"kind": "text", "network": "paper"}
_TEXTS = ("subjectivity", "stackoverflow", "imdb")
_SMALL = ("adult", "stackoverflow")
TRIED = {
    "no_penalty": Variant("no penalty on ‖h‖²", "paper", _SMALL, {"penalty": 0.0}),
    "no_rescale": Variant("the scale of h as training left it", "paper", _SMALL, {"rescale": False}),
    # How much the paper's models of texts owe to their vectors, of which theirs had 300 numbers.
    "no_vectors": Variant("words start at random", "paper", _TEXTS, {"encoder": _READER}),
    "half_vectors": Variant(
        "50 of the 100 numbers of each word's vector",
        "paper",
        _TEXTS,
        {"encoder": {**_READER, "vectors": "glove 100d, 50 kept"}},
    ),
    # What our best models owe to what the paper's lack.
    "one_member": Variant(
        "one network alone", "best", ("adult", "covertype", "fashion_mnist", "stackoverflow"), {"members": 1}
    ),
    "no_guidance": Variant("no softmax guides training", "best", ("covertype", "fashion_mnist"), {"guidance": 0.0}),
    "laplace": Variant("weights exp(-‖h - h_i‖)", "best", ("stackoverflow",), {"kernel": "laplace"}, trials=3),
    # Whether IMDB's official test rows, of other films than the training rows, are why its p-values are low.
    "mixed": Variant("test rows drawn anew from all", "best", ("imdb",), {}, trials=2, mixed=True),
}
