"""What test_processes runs twice: in one process, and in two that share it (`python -m tests.training.sharing`)."""

from __future__ import annotations

import copy
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from dwac import DWACClassifier
from dwac.encoders import TabularEncoder
from dwac.errors import ProcessError
from dwac.nn import Ensemble, Model, SoftmaxTwin, WeightedAverage
from dwac.nn.ranks import Ranks, SharedNorms, join_ranks, sharing
from dwac.storage.tensors import pack_tensors
from dwac.training import embed, processes, train

N = 45  # batches of 16: the last has 13 rows
OPTIONS: dict[str, Any] = {"epochs": 5, "batch_size": 16, "learning_rate": 1e-2, "rescale": True, "patience": 2}


def rows(n: int, seed: int) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(n) % 3
    return (torch.randn(n, 4, generator=generator) + 1.5 * nn.functional.one_hot(y, 4)).double(), y


def network() -> nn.Module:
    """With batch normalisation over rows and positions, so that a batch may have a single row."""
    image = [nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 6, 2), nn.BatchNorm1d(6), nn.ReLU()]
    return nn.Sequential(*image, nn.BatchNorm1d(6, affine=False), nn.Flatten(), nn.Linear(18, 6)).double()


def heads() -> dict[str, Callable[[], Model]]:
    like = torch.exp(-torch.cdist(torch.arange(3.0)[:, None], torch.arange(3.0)[:, None])).double()
    pair = lambda: Ensemble([network(), network()])  # noqa: E731
    return {
        "votes": lambda: WeightedAverage(network(), 3, n_features=6),
        "votes by another kernel": lambda: WeightedAverage(network(), 3, kernel="laplace", n_features=6),
        "ensemble with an auxiliary loss": lambda: WeightedAverage(pair(), 3, auxiliary_weight=0.3, n_features=6),
        "likeness": lambda: WeightedAverage(pair(), 3, likeness=like, n_features=6),
        "averages": lambda: WeightedAverage(network(), 3, averaged=like, n_features=6),
        "softmax": lambda: SoftmaxTwin(network(), 3, 5, n_features=6),
        "softmaxes": lambda: SoftmaxTwin(pair(), 3, n_features=6),
        "numbers": lambda: SoftmaxTwin(pair(), 3, 5, n_features=6, targets=like),
    }


def model_of(name: str) -> Model:
    torch.manual_seed(0)
    return heads()[name]().double()


def worst_difference(name: str, n: int, ranks: Ranks, *, weighted: bool, named: bool) -> float:
    """How far loss, gradients and running statistics of a shared batch are from those of one process."""
    x, y = rows(n, seed=n)
    given: dict[str, Any] = {"weights": torch.linspace(0, 1, n).double()} if weighted else {}
    given |= {"ids": torch.arange(n) // 2} if named else {}
    alone = model_of(name)
    together = copy.deepcopy(alone)
    loss = alone.loss(x, y, **given)
    loss.backward()
    share = ranks.share(n)
    with SharedNorms(together, ranks) as norms:
        norms.share = share
        part = together.loss(x[share.rows], y[share.rows], share=share, **{k: v[share.rows] for k, v in given.items()})
        part.backward()
    pairs = [(loss.detach(), ranks.sum(part.detach().clone()))]
    for one, other in zip(alone.parameters(), together.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        pairs.append((one.grad, ranks.sum(other.grad.clone())))
    pairs += zip(alone.buffers(), together.buffers(), strict=True)
    return max(float((one - other).abs().max()) for one, other in pairs)


def trained(name: str, **options: Any) -> dict[str, Tensor]:
    """A trained model as tensors: its weights, references and history."""
    model = model_of(name)
    weights = torch.linspace(0.5, 1.5, N)
    options.setdefault("on_epoch", lambda _: embed(model, rows(3, seed=0)[0]))  # rank 0 alone may ask meanwhile
    options = {**OPTIONS, "validation": rows(31, seed=9), "weights": weights, **options}
    history = train(model, *rows(N, seed=5), **options)
    numbers = history.drop(columns=["seconds"]).to_numpy(dtype=np.float64)
    found = {**model.state_dict(), "history": torch.tensor(numbers)}
    if isinstance(model, WeightedAverage):
        found["look_alikes"] = torch.tensor(model.references.voters.look_alikes or (0.0, 0.0))
    return found


def fitted(**settings: Any) -> dict[str, Tensor]:
    """A classifier with representatives, calibrated."""
    X, y = rows(400, seed=3)
    clf = DWACClassifier(
        TabularEncoder(dropout=0.0), epochs=4, voters=40, checkpoint=None, **{"random_state": 0, **settings}
    )
    return described(clf.fit(X.numpy(), y.numpy()))


def cross_fitted(**settings: Any) -> dict[str, Tensor]:
    """A classifier of few rows, which is cross-fitted."""
    X, y = rows(60, seed=4)
    return described(DWACClassifier(**settings).fit(X.numpy(), y.numpy()))


def described(clf: DWACClassifier) -> dict[str, Tensor]:
    X = rows(20, seed=8)[0].numpy()
    conformal = clf.conformal(X)
    return {
        "probabilities": torch.as_tensor(clf.predict_proba(X)),
        "p_values": torch.as_tensor(conformal.p_values),
        "typicality": torch.as_tensor(conformal.typicality),
        "voters": torch.tensor([len(clf.references_)]),
    }


def stopping(after: int) -> Callable[[dict[str, Any]], None]:
    """A callback that presses Ctrl-C when one epoch more is done, so that its checkpoint is not written."""

    def on_epoch(row: dict[str, Any]) -> None:
        if row["epoch"] > after:
            raise KeyboardInterrupt

    return on_epoch


def interrupted(rank: int) -> dict[str, Tensor]:
    """Rank 1 alone is told to stop, in the middle of the third epoch."""
    calls = iter(range(1000))

    def press(x: Any, _: torch.Generator) -> Any:
        if next(calls) == 7 and rank == 1:
            os.kill(os.getpid(), signal.SIGINT)
        return x

    return trained("votes", augment=press)


def dying(checkpoint: Path, rank: int) -> str:
    """Rank 1 is killed in the third epoch: what rank 0 says then."""
    calls = iter(range(1000))

    def die(x: Any, _: torch.Generator) -> Any:
        if next(calls) == 7 and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return x

    try:
        trained("votes", augment=die, checkpoint=checkpoint)
    except ProcessError as error:
        return str(error)
    return ""


def refused(rank: int) -> str:
    """Ranks with different rows."""
    try:
        train(model_of("votes"), *rows(N + rank, seed=0), epochs=1)
    except ProcessError as error:
        return str(error)
    return ""


def everything(folder: Path, ranks: Ranks) -> Iterator[tuple[str, dict[str, Tensor]]]:
    """All that two processes are asked, by name."""
    with sharing() as shared:
        assert shared is ranks
        found = {
            f"{name}, {n} rows{', weighted' * weighted}{', named' * named}": worst_difference(
                name, n, ranks, weighted=weighted, named=named
            )
            for name in heads()
            for n, weighted, named in ((9, False, False), (4, True, False), (5, True, True), (1, False, True))
        }
    yield "losses", {name: torch.tensor(value) for name, value in found.items()}
    for name in ("votes", "averages", "softmax"):
        yield f"trained {name}", trained(name)
    yield "blocks", trained("votes", block_rows=4)
    trained("votes", checkpoint=folder / "by two", on_epoch=stopping(2))
    yield "resumed by two", trained("votes", checkpoint=folder / "by one")
    yield "interrupted", interrupted(ranks.rank)
    yield "fitted", fitted()
    yield "cross-fitted", cross_fitted(random_state=0)
    yield "without a seed", cross_fitted() | {f"n{part}": held for part, held in fitted(random_state=None).items()}
    refusal = refused(ranks.rank)
    yield "refusal", {refusal: torch.zeros(1)}


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    with processes() as place:
        ranks = Ranks()
        with join_ranks(ranks):
            for name, tensors in everything(folder, ranks):
                held = {key: part.detach().contiguous() for key, part in tensors.items()}
                (folder / f"{name} {place.rank}").write_bytes(pack_tensors(held, {}))
            start = time.monotonic()
            said = dying(folder / "of the killed", place.rank)
            (folder / "said").write_text(f"{time.monotonic() - start} s: {said}")
            sys.exit(ProcessError.exit_code)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
