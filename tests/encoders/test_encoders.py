"""What every encoder promises (`dwac.encoders.base`), asked of each of them; and which of them `choose` takes."""

import copy
import json
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image
from scipy.sparse import csr_matrix
from torch.utils.data import TensorDataset

import dwac
from dwac.encoders import (
    ENCODERS,
    Encoder,
    HuggingFaceEncoder,
    ImageEncoder,
    ModuleEncoder,
    Recipe,
    TabularEncoder,
    TextEncoder,
    choose,
)
from dwac.errors import DwacError, InputError
from dwac.storage import read_model, write_model
from tests.encoders.helpers import FLAT, TEXTS, Case, N, pixels, restored, rows, same, table
from tests.named import named, refuses

# Tensors


def test_every_example_is_a_row_of_tensors_on_the_cpu(case: Case, fitted: Encoder) -> None:
    inputs = fitted.transform(case.X)
    assert isinstance(inputs, tuple)
    assert inputs
    assert {(len(part), part.device.type, part.requires_grad) for part in inputs} == {(N, "cpu", False)}
    assert all(torch.isfinite(part).all() for part in inputs)


def test_a_row_does_not_depend_on_the_others(case: Case, fitted: Encoder) -> None:
    inputs, network = fitted.transform(case.X), fitted.network().eval()
    with torch.no_grad():
        features = network(*inputs)
        for i in range(4):
            alone = fitted.transform(rows(case.X, i))
            assert same(alone, tuple(part[[i]] for part in inputs))
            torch.testing.assert_close(network(*alone), features[[i]], rtol=1e-4, atol=1e-5)


def test_permuted_rows_give_permuted_tensors(case: Case, fitted: Encoder) -> None:
    order = np.random.default_rng(0).permutation(N)
    permuted = fitted.transform(rows(case.X, *order))
    assert same(permuted, tuple(part[order] for part in fitted.transform(case.X)))


def test_x_is_left_as_it_was(case: Case) -> None:
    before = copy.deepcopy(case.X)
    encoder = case.new().fit(case.X)
    encoder.augment(encoder.transform(case.X), torch.Generator().manual_seed(0))
    encoder.records(case.X)
    assert same(case.X, before)


# Networks


def test_the_network_gives_features_and_every_parameter_a_gradient(case: Case, fitted: Encoder) -> None:
    inputs, network = fitted.transform(case.X), fitted.network()
    features = network.train()(*inputs)
    assert features.shape[0] == N
    assert (features.ndim, features.dtype) == (2, torch.float32)
    features.square().sum().backward()
    trained = {name: weight.grad for name, weight in network.named_parameters() if weight.requires_grad}
    assert trained
    assert [name for name, grad in trained.items() if grad is None or not torch.isfinite(grad).all()] == []
    with torch.no_grad():
        assert network.eval()(*inputs).shape == features.shape
        assert torch.equal(network(*inputs), network(*inputs))


def test_networks_share_no_weight(fitted: Encoder) -> None:
    first, second = fitted.network(), fitted.network()
    places = {weight.data_ptr() for weight in first.parameters()}
    assert places.isdisjoint(weight.data_ptr() for weight in second.parameters())


def test_augmenting_keeps_the_form_repeats_by_seed_and_spares_its_input(case: Case, fitted: Encoder) -> None:
    inputs = fitted.transform(case.X)
    before = tuple(part.clone() for part in inputs)
    varied, again = (fitted.augment(inputs, torch.Generator().manual_seed(3)) for _ in range(2))
    assert same(varied, again)
    assert same(inputs, before)
    assert [(v.shape, v.dtype, v.device) for v in varied] == [(x.shape, x.dtype, x.device) for x in inputs]


def test_attention_is_shared_among_the_words_of_a_text(case: Case, fitted: Encoder) -> None:
    network = fitted.network().train()
    attention = fitted.attention(network, case.X)
    if not isinstance(fitted, TextEncoder):
        assert attention is None
        return
    assert attention is not None
    assert [[word for word, _ in shares] for shares in attention] == fitted.tokens(case.X)
    for shares in attention:
        assert all(share > 0 for _, share in shares)
        assert sum(share for _, share in shares) == pytest.approx(1, abs=1e-5)
    assert network.training


def test_recipes_make_sense(case: Case, fitted: Encoder) -> None:
    for recipe in (case.new().recipe, fitted.recipe):
        assert min(recipe.epochs, recipe.patience, recipe.embedding_size or 1) >= 1
        assert recipe.batch_size >= 2
        assert 0 < recipe.learning_rate < 0.1
        assert 0 <= recipe.weight_decay < 1
        assert 0 <= recipe.penalty < 1
        assert {type(recipe.mixed_precision), type(recipe.compiled)} == {bool}
        assert Recipe(**json.loads(json.dumps(asdict(recipe)))) == recipe


# Storage


def test_a_restored_encoder_gives_the_same_tensors_and_features(case: Case, fitted: Encoder) -> None:
    again = restored(fitted)
    assert ENCODERS[fitted.kind] is type(again) is type(fitted)
    assert (again.config(), again.recipe) == (fitted.config(), fitted.recipe)
    inputs = fitted.transform(case.X)
    assert same(again.transform(case.X), inputs)
    first, second = fitted.network().eval(), again.network().eval()
    second.load_state_dict(first.state_dict())
    with torch.no_grad():
        assert torch.equal(first(*inputs), second(*inputs))


def test_an_unfitted_encoder_is_restored_unfitted(case: Case, fitted: Encoder) -> None:
    again = restored(case.new())
    with pytest.raises(DwacError):
        again.transform(case.X)
    assert (again.fit(case.X).config(), again.recipe) == (fitted.config(), fitted.recipe)


def test_fitting_again_forgets_what_was_learned_before(case: Case, fitted: Encoder) -> None:
    encoder = case.new().fit(case.other)
    assert encoder.config() != fitted.config()
    for _ in range(2):
        assert encoder.fit(case.X).config() == fitted.config()
    assert encoder.recipe == fitted.recipe
    assert same(encoder.transform(case.X), fitted.transform(case.X))


def test_records_have_one_row_per_example_and_survive_the_disk(case: Case, fitted: Encoder, tmp_path: Path) -> None:
    records = fitted.records(case.X)
    assert records.index.tolist() == list(range(N))
    assert records.columns.is_unique
    assert all(isinstance(name, str | int) for name in records.columns)
    pd.testing.assert_frame_equal(fitted.records(rows(case.X, 5, 3)), records.iloc[[5, 3]].reset_index(drop=True))
    write_model(tmp_path / "model", fitted.config(), fitted.network().state_dict(), records)
    stored = read_model(tmp_path / "model")
    assert stored.config == json.loads(json.dumps(fitted.config()))
    assert stored.examples is not None
    pd.testing.assert_frame_equal(stored.examples, records, check_column_type=False)


# What does not fit


def test_fit_comes_first(case: Case) -> None:
    with refuses(DwacError, "fit"):
        case.new().transform(case.X)
    if not isinstance(case.new(), ModuleEncoder):
        with refuses(DwacError, "fit"):
            case.new().network()
    with suppress(DwacError):  # texts and tensors are shown as they are
        case.new().records(case.X)


def test_nothing_cannot_be_learned_from(case: Case) -> None:
    with pytest.raises(InputError) as caught:
        case.new().fit(rows(case.X))
    assert named(caught.value, 0) or named(caught.value, "one")


def test_no_rows_are_an_error_or_tensors_without_rows(case: Case, fitted: Encoder) -> None:
    try:
        inputs = fitted.transform(rows(case.X))
    except InputError:
        return
    assert [part[:0].shape for part in fitted.transform(case.X)] == [part.shape for part in inputs]


WRONG: dict[str, Callable[[], Any]] = {
    "a table": lambda: pd.DataFrame({"a": [1, 2, 3], "b": ["x", "y", "z"]}),
    "a table of nothing": lambda: pd.DataFrame(index=range(3)),
    "a matrix": lambda: np.arange(12.0).reshape(4, 3),
    "a sparse matrix": lambda: csr_matrix(np.eye(3)),
    "a sparse tensor": lambda: torch.eye(3).to_sparse(),
    "brain floats": lambda: torch.ones(4, 3, dtype=torch.bfloat16, requires_grad=True),
    "complex numbers": lambda: np.ones((4, 3), dtype=complex),
    "numbers": lambda: [1.0, 2.0],
    "a series": lambda: pd.Series([1.0, 2.0]),
    "dates": lambda: pd.Series(pd.to_datetime(["2024-01-01", "2024-01-02"])),
    "ragged rows": lambda: [[1, 2], [3]],
    "texts": lambda: ["some words", "and others"],
    "text objects": lambda: np.array(["some words", "and others"], dtype=object),
    "bytes": lambda: [b"some", b"bytes"],
    "gaps": lambda: [None, None],
    "objects": lambda: [object(), object()],
    "images": lambda: pixels(5, 5),
    "tensors": lambda: (torch.ones(5, 4), torch.ones(5, 2, 2)),
    "tensors with a gradient": lambda: [torch.ones(2, requires_grad=True), torch.ones(2)],
    "tensors of unequal length": lambda: (torch.ones(5, 4), torch.ones(6, 3)),
    "a dataset": lambda: TensorDataset(torch.ones(5, 2), torch.arange(5)),
    "nothing": lambda: None,
    "one number": lambda: 5,
    "one text": lambda: "some words",
    "a mapping": lambda: {"a": [1, 2]},
    "a generator": lambda: (text for text in TEXTS),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_the_wrong_kind_of_x_is_a_clear_error(case: Case, fitted: Encoder, wrong: str) -> None:
    if "text" in wrong and wrong != "one text" and isinstance(fitted, TextEncoder | HuggingFaceEncoder):
        return  # the right kind
    with pytest.raises(InputError):
        fitted.transform(WRONG[wrong]())
    try:
        case.new().fit(WRONG[wrong]())  # what is a table or tensor may be learned from
    except InputError:
        return
    assert isinstance(fitted, TabularEncoder | ImageEncoder | ModuleEncoder)


# From training to the disk and back


@pytest.mark.slow
def test_a_saved_classifier_predicts_and_explains_the_same(case: Case, tmp_path: Path) -> None:
    encoder = case.new()
    clf = dwac.DWACClassifier(
        encoder, epochs=1, validation_size=4, calibration_size=4, random_state=0, device="cpu", verbose=False
    ).fit(case.X, ["yes", "no"] * (N // 2))
    assert encoder.config() == case.new().config()
    module = encoder.module if isinstance(encoder, ModuleEncoder) else None
    again = dwac.load(clf.save(tmp_path / "model"), device="cpu", module=module)
    assert clf.predict(case.X).tolist() == again.predict(case.X).tolist()
    assert np.array_equal(clf.predict_proba(case.X), again.predict_proba(case.X))
    few = rows(case.X, 0, 1, 2)
    before, after = ([repr(e.to_dict()) for e in model.explain(few, k=3)] for model in (clf, again))
    # Tensors have nothing to show: an empty record in memory, none from the disk.
    assert [text.replace("'record': {}", "'record': None") for text in before] == after
    assert len(before) == 3


# Choosing


PNG = [Path("a.png"), Path("b.png")]


@pytest.mark.parametrize(
    ("encoder", "X", "kind", "network"),
    [
        ("auto", table(0), TabularEncoder, "default"),
        ("auto", np.eye(3), TabularEncoder, "default"),
        ("auto", torch.eye(3), TabularEncoder, "default"),
        ("auto", [[1, "a"], [2, "b"]], TabularEncoder, "default"),
        ("auto", pixels(10, 8), ImageEncoder, "default"),
        ("auto", torch.ones(2, 3, 8, 8), ImageEncoder, "default"),
        ("auto", list(pixels(10, 8)), ImageEncoder, "default"),
        ("auto", PNG, ImageEncoder, "default"),
        ("auto", pd.Series(["a.png", "b.JPEG"]), ImageEncoder, "default"),
        ("auto", [Image.new("L", (8, 8))], ImageEncoder, "default"),
        ("auto", TEXTS, TextEncoder, "default"),
        ("auto", tuple(TEXTS), TextEncoder, "default"),
        ("auto", np.array(TEXTS), TextEncoder, "default"),
        ("auto", pd.Series([None, *TEXTS]), TextEncoder, "default"),
        ("auto", ["what is a.png\nfor?", "b.png"], TextEncoder, "default"),
        ("tabular", TEXTS, TabularEncoder, "default"),
        ("image", TEXTS, ImageEncoder, "default"),
        ("text", PNG, TextEncoder, "default"),
        ("tabular:paper", None, TabularEncoder, "paper"),
        ("image:resnet18", None, ImageEncoder, "resnet18"),
        ("image:timm:resnet10t", None, ImageEncoder, "timm:resnet10t"),
        ("text:paper", None, TextEncoder, "paper"),
    ],
)
def test_names_and_data_choose_the_encoder(encoder: str, X: Any, kind: Any, network: str) -> None:
    chosen: Any = choose(encoder, X)
    assert type(chosen) is kind
    assert chosen.settings["network"] == network


def test_models_and_modules_are_chosen_as_they_are() -> None:
    chosen: Any = choose("huggingface:some/model:v1", TEXTS)
    assert chosen.settings["name_or_folder"] == "some/model:v1"
    for X in (np.eye(3), TensorDataset(torch.eye(3))):
        wrapped = choose(FLAT, X)
        assert isinstance(wrapped, ModuleEncoder)
        assert wrapped.module is FLAT


@pytest.mark.parametrize(
    ("encoder", "X", "facts"),
    [
        ("tabluar", TEXTS, ["tabluar", "auto", "tabular"]),
        ("huggingface", TEXTS, ["huggingface:NAME"]),
        ("huggingface:", TEXTS, ["huggingface:NAME"]),
        ("tabular:resnet18", np.eye(3), ["resnet18", "tables"]),
        ("text:resnet18", TEXTS, ["resnet18", "texts"]),
        ("image:papier", pixels(8, 8), ["papier"]),
        (7, TEXTS, ["int"]),
        (None, TEXTS, ["NoneType"]),
        (TextEncoder, TEXTS, ["TextEncoder", "TextEncoder("]),
        ("auto", TensorDataset(torch.eye(3)), ["encoder=your_module"]),
        ("auto", (torch.eye(3), torch.eye(3)), ["encoder=your_module"]),
    ],
)
def test_what_names_no_encoder_is_refused(encoder: Any, X: Any, facts: list[str]) -> None:
    with refuses(InputError, *facts):
        choose(encoder, X)


def test_a_chosen_encoder_is_a_copy(case: Case) -> None:
    for given in (case.new(), case.new().fit(case.other)):
        before = copy.deepcopy(given.config())
        chosen = choose(given, case.X).fit(case.X)
        assert chosen is not given
        assert (given.config(), chosen.config()) == (before, case.new().fit(case.X).config())
        assert chosen.recipe == case.new().fit(case.X).recipe


def test_a_subclass_of_module_encoder_keeps_its_methods() -> None:
    class Noisy(ModuleEncoder):
        def augment(self, inputs: Any, generator: torch.Generator) -> Any:
            return (inputs[0] + torch.rand(inputs[0].shape, generator=generator),)

    given = Noisy(FLAT, recipe=Recipe(epochs=3))
    chosen = choose(given, np.eye(3))
    assert isinstance(chosen, Noisy)
    assert (chosen.module, chosen.recipe) == (FLAT, given.recipe)
