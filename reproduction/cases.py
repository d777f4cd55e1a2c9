"""A case: one model fitted once, on which all experiments are measured."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dwac.errors import InputError
from reproduction import settings
from reproduction.variants import TRIED

ALL_HEADS = (*settings.HEADS, *(peer for peers in settings.PEERS.values() for peer in peers))


class PaperError(InputError):
    """A dataset, experiment, setting or head has an unknown name, or records do not belong together."""


@dataclass(frozen=True)
class Case:
    """One model to fit: dataset, setting, head, trial, and what differs from the setting.

    >>> Case("covertype", "paper", "softmax", trial=2, without=6).key
    'covertype-without7-paper-softmax-2'
    """

    dataset: str
    setting: str  # "paper": the paper's model; "best": ours
    head: str  # "dwac", "softmax", or a peer: "xgboost", "lightgbm", "catboost", "svm"
    trial: int = 0
    embedding_size: int | None = None  # None: as in the setting
    without: int | None = None  # a class left out of training, counted from 0
    variant: str | None = None  # a change of the setting, from `variants.TRIED`

    @property
    def key(self) -> str:
        """The name of its record. It counts classes from 1, as the literature on Covertype does."""
        left_out = "" if self.without is None else f"-without{self.without + 1}"
        size = "" if self.embedding_size is None else f"-h{self.embedding_size}"
        change = "" if self.variant is None else f"-{self.variant}"
        return f"{self.dataset}{left_out}-{self.setting}{change}-{self.head}{size}-{self.trial}"

    @property
    def is_peer(self) -> bool:
        """Whether the model is a peer and not one of our networks."""
        return self.head not in settings.HEADS

    @property
    def plain(self) -> bool:
        """Whether it is a cell of Table 2: the unchanged setting, with all classes."""
        return self.embedding_size is None and self.without is None and self.variant is None

    @property
    def quick(self) -> bool:
        """Whether a quick run includes it: the paper's data, one trial, few sizes, each variant on one dataset."""
        changed = self.variant is None or self.dataset == TRIED[self.variant].datasets[0]
        return self.dataset in settings.DATASETS and self.trial == 0 and self.embedding_size in (None, 2, 8) and changed

    def to_dict(self) -> dict[str, Any]:
        """Its fields, as stored in the record."""
        return asdict(self)

    def settings(self, *, quick: bool = False) -> settings.Values:
        """The frozen settings of the fit."""
        if self.is_peer:
            return settings.peer_settings(self.dataset, self.head, quick=quick)
        values = settings.estimator_settings(self.dataset, self.setting, self.embedding_size, quick=quick)
        return values if self.variant is None else values | TRIED[self.variant].values


def plain_cases(
    names: Iterable[str] = settings.DATASETS, *, heads: Sequence[str] = settings.HEADS, peers: bool = False
) -> Iterator[Case]:
    """The cells of Table 2 for these datasets: every setting, head and trial."""
    for name in names:
        source = settings.SOURCES[name]
        for trial in range(source.trials):
            for setting in settings.SETTINGS if name in settings.DATASETS else ("best",):
                wanted = [*heads, *(source.peers if peers and setting == "best" else ())]
                yield from (Case(name, setting, head, trial) for head in wanted)


def chosen(given: Iterable[str] | str | None, known: Iterable[str], what: str) -> list[str]:
    """The names given, in the known order; None means all. An unknown name raises an error that lists the known."""
    every = list(known)
    if given is None:
        return every
    asked = [name.replace("-", "_") for name in ([given] if isinstance(given, str) else given)]
    for name in asked:
        if name not in every:
            raise PaperError(f"unknown {what} {name!r}; choose {', '.join(every[:-1])} or {every[-1]}")
    return [name for name in every if name in asked]


def known(case: Case) -> None:
    """Raise `PaperError` if a name in the case is unknown."""
    chosen(case.dataset, settings.SOURCES, "dataset")
    chosen(case.setting, settings.SETTINGS, "setting")
    chosen(case.head, ALL_HEADS, "head")
    if case.variant is not None:
        chosen(case.variant, TRIED, "variant")
