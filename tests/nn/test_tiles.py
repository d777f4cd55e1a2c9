"""Tiles: a row of a table, or an image, has the same numbers alone and in any batch; frozen networks follow weights."""

import copy
import pickle
from collections.abc import Iterator
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
import torch
from torch import Tensor

from dwac.encoders import ImageEncoder, TabularEncoder
from dwac.nn import SoftmaxTwin, WeightedAverage, batches
from dwac.nn.tiles import join_tiles, multiply_tiles, split_tiles

SIZES = (1, 9, 65, 1000)


@pytest.fixture(params=[1, *(pytest.param(threads, marks=pytest.mark.slow) for threads in (2, 5))])
def threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


def table(n: int = 1024, seed: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    columns: dict[str, Any] = {f"x{i}": rng.normal(size=n) for i in range(9)}
    job = rng.choice(np.array(["nurse", "clerk", "smith", None]), n)
    return pd.DataFrame(columns | {"job": job, "member": rng.random(n) > 0.5, "town": rng.choice(["Oslo", "Rome"], n)})


def model_of(
    network: str, members: int = 2, X: pd.DataFrame | None = None
) -> tuple[WeightedAverage, tuple[Tensor, ...]]:
    torch.manual_seed(0)
    name, _, waves = network.partition(" with ")
    encoder = TabularEncoder(name, waves=64 if waves else 0).fit(table(400, seed=1) if X is None else X)
    backbone: Any = encoder.ensemble(members) if members > 1 else encoder.network()
    model = WeightedAverage(backbone, n_classes=3, embedding_size=8)
    inputs = encoder.transform(table() if X is None else X)
    with torch.no_grad():
        model.embed(inputs)
        if waves:
            backbone.scores.normal_()
    return model.eval(), inputs


def plain(model: WeightedAverage, inputs: tuple[Tensor, ...]) -> Tensor:
    """h as training computes it."""
    with torch.enable_grad():
        return model.embed(inputs).detach()


@pytest.mark.parametrize("n", [*SIZES, *(pytest.param(n, marks=pytest.mark.slow) for n in (7, 8, 64))])
@pytest.mark.parametrize(("f", "k"), [(3, 2), (510, 360), (2048, 64)])
def test_a_row_has_the_same_product_alone_and_in_any_tiles(threads: int, n: int, f: int, k: int) -> None:
    g = torch.Generator().manual_seed(0)
    x, weight, start = torch.randn(1024, f, generator=g), torch.randn(f, k, generator=g), torch.randn(k, generator=g)
    full = join_tiles(multiply_tiles(split_tiles(x), weight, start), len(x))
    torch.testing.assert_close(full, x @ weight + start, rtol=1e-4, atol=1e-3)
    for first in (0, 3, 1024 - n):
        rows = x[first : first + n]
        assert torch.equal(join_tiles(multiply_tiles(split_tiles(rows), weight, start), n), full[first : first + n])


@pytest.mark.parametrize(
    ("network", "members"),
    [("wide", 10), ("wide with waves", 15), ("default", 1), ("default", 3), ("numbers", 2), ("paper", 1)],
)
def test_a_row_of_a_table_has_the_same_embedding_alone_and_in_any_batch(
    threads: int, network: str, members: int
) -> None:
    model, inputs = model_of(network, members)
    full = batches.embed(model, inputs)
    torch.testing.assert_close(full, plain(model, inputs), rtol=1e-4, atol=1e-5)
    for n in SIZES:
        for first in (0, 5, 1024 - n):
            some = tuple(part[first : first + n] for part in inputs)
            assert torch.equal(batches.embed(model, some), full[first : first + n])
    with torch.no_grad():
        assert torch.equal(model.embed(inputs), full)  # as `remember` embeds voters


@pytest.mark.parametrize(
    ("network", "shape", "n"), [("default", (60, 8, 9), 60), ("default", (9, 70, 66, 3), 9), ("resnet18", (9, 5, 4), 9)]
)
def test_an_image_has_the_same_embedding_alone_and_in_any_batch(
    threads: int, network: str, shape: tuple[int, ...], n: int
) -> None:
    torch.manual_seed(0)
    X = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    encoder = ImageEncoder(network, width=8, flip=n == 60, average_moved=n == 60).fit(X)
    model = WeightedAverage(encoder.ensemble(2), n_classes=3, embedding_size=8)
    (images,) = encoder.transform(X)
    with torch.no_grad():
        model.embed(images[:2])
        for part in model.modules():
            if isinstance(part, torch.nn.BatchNorm1d | torch.nn.BatchNorm2d):  # as after training
                for numbers in (part.weight, part.bias, part.running_mean):
                    torch.nn.init.uniform_(cast(Tensor, numbers), -1, 1)
    model.eval()
    assert model.frozen() is not None
    full = batches.embed(model, images)
    torch.testing.assert_close(full, plain(model, (images,)), rtol=1e-3, atol=1e-4)
    for first, last in ((0, 1), (n - 1, n), (3, 5), (4, n), (0, n - 1)):
        assert torch.equal(batches.embed(model, images[first:last]), full[first:last])


@pytest.mark.parametrize("network", ["wide", "default", "paper"])
@pytest.mark.parametrize("columns", [["x0"], ["job"], ["member"], ["job", "member"]])
def test_tables_of_one_kind_of_column_are_embedded_as_in_training(network: str, columns: list[str]) -> None:
    model, inputs = model_of(network, X=table(100)[columns])
    torch.testing.assert_close(batches.embed(model, inputs), plain(model, inputs), rtol=1e-4, atol=1e-5)


def change_by_a_step(model: WeightedAverage, inputs: tuple[Tensor, ...]) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1, fused=True)
    model.train()
    model.loss(inputs, torch.arange(len(inputs[0])) % 3).backward()
    optimizer.step()
    model.eval()


def change_in_place(model: WeightedAverage, inputs: tuple[Tensor, ...]) -> None:
    with torch.no_grad():
        for part in model.backbone.parameters():
            part.mul_(1.5)


def load_others(model: WeightedAverage, inputs: tuple[Tensor, ...]) -> None:
    model.load_state_dict({name: 2 * part for name, part in model.state_dict().items()}, assign=True)


def scale(model: WeightedAverage, inputs: tuple[Tensor, ...]) -> None:
    model.scale_embeddings(3.0)


@pytest.mark.parametrize("change", [change_by_a_step, change_in_place, load_others, scale])
@pytest.mark.parametrize("network", ["wide", "default"])
def test_embeddings_follow_the_weights(network: str, change: Any) -> None:
    model, inputs = model_of(network)
    before = batches.embed(model, inputs)
    change(model, inputs)
    after = batches.embed(model, inputs)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, plain(model, inputs), rtol=1e-3, atol=1e-4)


def test_copies_and_pickles_hold_no_second_set_of_weights() -> None:
    model, inputs = model_of("default")
    size, h = len(pickle.dumps(model)), batches.embed(model, inputs)
    assert model.frozen() is not None
    assert len(pickle.dumps(model)) == size
    for other in (pickle.loads(pickle.dumps(model)), copy.deepcopy(model), copy.copy(model)):
        assert torch.equal(batches.embed(other, inputs), h)


def test_other_networks_are_not_frozen() -> None:
    model = SoftmaxTwin(torch.nn.Linear(4, 8), n_classes=3, n_features=8).eval()
    assert model.frozen() is None
    x = torch.randn(9, 4)
    assert torch.equal(batches.embed(model, x)[:1], batches.embed(model, x[:1]))
