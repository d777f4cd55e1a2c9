"""Changes to frozen settings that were tried: each is run as it stands here, and compared with what it changes."""

from __future__ import annotations

from dataclasses import dataclass

from dwac.paper.settings import Values


@dataclass(frozen=True)
class Variant:
    """What it is in words, the setting it changes and how, and on which datasets it was tried."""

    what: str
    setting: str
    datasets: tuple[str, ...]
    values: Values
    trials: int = 1


_SOME = ("adult", "covertype", "fashion_mnist", "stackoverflow")
TRIED = {
    "no_penalty": Variant("no penalty on ‖h‖²", "paper", _SOME, {"penalty": 0.0}),
    "no_rescale": Variant("the scale of h as training left it", "paper", _SOME, {"rescale": False}),
}
