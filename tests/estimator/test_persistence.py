"""A saved model comes back as it was; a folder that is damaged or hostile is named, and does no harm."""

import copy
import hashlib
import io
import json
import re
import shutil
import socket
import sys
from dataclasses import replace
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from torch import nn

import dwac
from dwac import DWACClassifier, Training, storage
from dwac.encoders import HuggingFaceEncoder, ImageEncoder, TabularEncoder
from dwac.encoders.huggingface import MODEL_TYPES
from dwac.errors import DwacError, InputError, StorageError
from dwac.estimator import loading, stored
from dwac.nn import Ensemble
from tests.estimator.helpers import Change, forge
from tests.named import named, refuses

SETTINGS: dict[str, Any] = {"epochs": 1, "random_state": 0, "device": "cpu", "verbose": False}


def table(n: int = 60, start: int = 0) -> pd.DataFrame:
    rng = np.random.default_rng(start)
    data = {"size": rng.normal(size=n), "code": np.arange(n) + 2**60, "job": rng.choice(["nurse", "clerk"], n)}
    return pd.DataFrame(data, index=[f"p{i}" for i in range(start, start + n)])


def labels(*kinds: Any, n: int = 60) -> Any:
    return [kinds[i % len(kinds)] for i in range(n)]


@pytest.fixture(scope="module")
def fitted() -> DWACClassifier:
    return DWACClassifier(**SETTINGS).fit(table(), labels("yes", "no", "maybe"))


@pytest.fixture(scope="module")
def saved(fitted: DWACClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """No test changes it."""
    return fitted.save(tmp_path_factory.mktemp("persistence") / "model")


@pytest.fixture
def folder(saved: Path, tmp_path: Path) -> Path:
    """For the test to change."""
    return Path(shutil.copytree(saved, tmp_path / "model"))


@pytest.fixture(scope="module")
def of_texts() -> DWACClassifier:
    texts = [f"{word} film with number {i % 5}" for i in range(20) for word in ("good", "bad")]
    return DWACClassifier(**SETTINGS).fit(texts, labels(0, 1, n=40))


@pytest.fixture(scope="module")
def of_pictures() -> DWACClassifier:
    """Of one channel."""
    X = np.random.default_rng(0).integers(0, 255, (40, 8, 8), dtype=np.uint8)
    return DWACClassifier(**SETTINGS).fit(X, labels(0, 1, n=40))


@pytest.fixture(scope="module")
def of_colours() -> DWACClassifier:
    """Of three channels."""
    X = np.random.default_rng(0).integers(0, 255, (40, 8, 8, 3), dtype=np.uint8)
    return DWACClassifier(**SETTINGS).fit(X, labels(0, 1, n=40))


def load(folder: Path, **options: Any) -> DWACClassifier:
    return dwac.load(folder, device="cpu", **options)


# Labels


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
@pytest.mark.parametrize("kind", ["datetime64", "timedelta64"])
def test_dates_and_durations_survive_as_labels(kind, unit, tmp_path) -> None:
    y = np.array([10**9, 2 * 10**9, 3 * 10**9] * 20, np.int64).view(f"{kind}[{unit}]")
    clf = DWACClassifier("tabular:paper", **SETTINGS).fit(table(), y)
    again = load(clf.save(tmp_path / "model"))
    assert again.classes_.dtype == clf.classes_.dtype
    assert np.array_equal(again.classes_, clf.classes_)
    assert np.array_equal(again.predict(table()), clf.predict(table()))


def test_a_label_that_could_not_be_loaded_is_named_when_saving(fitted, tmp_path) -> None:
    periods = np.array([pd.Period("2020-01"), pd.Period("2020-02"), pd.Period("2020-03")], dtype=object)
    for classes, facts in (
        (periods, ["Period('2020-01', 'M')", "label"]),
        (np.array([1 + 2j, 2, 3]), ["1+2j", "label"]),
        (np.array([1, 1, 2]), ["labels", "unique", repr(np.int64(1))]),
        (np.array([date(2020, 1, 1), object(), 3], dtype=object), ["object", "label"]),
    ):
        clf = load(fitted.save(tmp_path / "other", overwrite=True))
        clf.fitted_ = replace(clf.fitted_, target=replace(clf.target_, names=classes))
        with refuses(InputError, *facts):
            clf.save(tmp_path / "model")
    assert not (tmp_path / "model").exists()


def test_what_is_set_after_fit_does_not_change_the_saved_model(tmp_path) -> None:
    clf = DWACClassifier(class_weight={"yes": 3.0}, **SETTINGS).fit(table(), labels("yes", "no"))
    votes = clf.log_class_weights(table())
    clf.set_params(kernel="laplace", training__embedding_size=9, class_weight=None, training__penalty="x")
    assert np.array_equal(load(clf.save(tmp_path / "model")).log_class_weights(table()), votes)


# Other models, and other people's


def test_saving_onto_a_model_is_refused_unless_it_may_be_replaced(fitted, folder) -> None:
    before = (folder / "model.json").read_bytes()
    with refuses(StorageError, folder, "overwrite=True"):
        fitted.save(folder)
    with refuses(StorageError, folder, "overwrite=True"):
        load(folder).save(folder)  # also its own: whoever forgets somebody may want to keep the folder until later
    assert (folder / "model.json").read_bytes() == before
    less = load(folder).forget([fitted.references_.ids[0]])
    assert len(load(less.save(folder, overwrite=True)).references_) == len(fitted.references_) - 1


def _repeat(name: str) -> Change:
    def change(found: dict[str, Any]) -> None:
        found[name][1] = found[name][0]

    return change


def _beyond(found: dict[str, Any]) -> None:
    found["known_rows"][0] = -1


@pytest.mark.parametrize(
    ("config", "tensors"),
    [
        (None, _repeat("known_rows")),
        (None, _beyond),
        (_repeat("calibration_ids"), None),
        (_repeat("validation_ids"), None),
    ],
    ids=["known_rows repeated", "known_rows below 0", "calibration_ids", "validation_ids"],
)
def test_rows_that_are_named_twice_are_refused_at_load(folder, config, tensors) -> None:
    forge(folder, config, tensors)
    with pytest.raises(StorageError) as caught:
        load(folder)
    assert named(caught.value, folder, "distinct") or named(caught.value, folder, "unique")


def test_examples_of_one_id_are_refused_at_load(folder) -> None:
    stored = storage.read_model(folder)
    assert stored.examples is not None
    names = stored.examples.index.tolist()
    storage.write_model(folder, stored.config, stored.tensors, stored.examples.set_axis([names[1], *names[1:]]))
    with refuses(StorageError, folder, "ids", "unique", repr(names[1])):
        load(folder)
    stored.config["without_record"] = [[0, names[1]]]  # one that has a record, too
    storage.write_model(folder, stored.config, stored.tensors, stored.examples[1:])
    with refuses(StorageError, folder, "ids", "unique", repr(names[1])):
        load(folder)


def test_a_fingerprint_is_of_all_that_the_folder_holds(fitted, folder, tmp_path) -> None:
    mark = dwac.fingerprint(folder)
    assert re.fullmatch("[0-9a-f]{32}", mark)
    clf = load(folder, expect=mark)
    assert clf.fingerprint_ == mark
    assert fitted.fingerprint_ is None
    assert copy.deepcopy(clf).silence([clf.references_.ids[0]]).fingerprint_ is None
    assert clf.recalibrate(table(), labels("yes", "no", "maybe"), ids=range(1000, 1060)).fingerprint_ is None

    def zeroed(tensors: dict[str, Any]) -> None:
        tensors["ref_h"].zero_()

    forge(folder, None, zeroed)  # with checksums that fit
    load(folder)
    assert dwac.fingerprint(folder) != mark
    with refuses(StorageError, mark, dwac.fingerprint(folder)):
        load(folder, expect=mark)
    other = fitted.save(tmp_path / "other")
    mark = dwac.fingerprint(other)
    (other / "columns.json").write_text('{"target": "x"}')  # how commands read data
    assert dwac.fingerprint(other) != mark
    with refuses(StorageError, tmp_path / "nothing"):
        dwac.fingerprint(tmp_path / "nothing")


# Several members


@pytest.fixture(scope="module")
def ensembles() -> dict[int | None, DWACClassifier]:
    """Of two members, by embedding size."""
    return {
        size: DWACClassifier(training=Training(embedding_size=size, ensemble_size=2), **SETTINGS).fit(
            table(), labels("yes", "no", "maybe")
        )
        for size in (None, 3, 5)
    }


@pytest.mark.parametrize("size", [None, 3, 5])
def test_a_ensemble_comes_back_as_it_was(size, ensembles, tmp_path) -> None:
    clf = ensembles[size]
    folder = clf.save(tmp_path / "model")
    assert storage.read_model(folder).config["ensemble_size"] == 2
    again = load(folder)
    assert (again.model_.ensemble_size, again.training) == (2, Training(ensemble_size=2, embedding_size=size))
    assert np.array_equal(again.log_class_weights(table()), clf.log_class_weights(table()))
    assert np.array_equal(again.embed(table()), clf.embed(table()))
    assert np.array_equal(again.conformal(table()).p_values, clf.conformal(table()).p_values)
    assert again.explain(table()[:2])[1].to_dict() == clf.explain(table()[:2])[1].to_dict()
    again.add_references(table(5, start=100), labels("yes", "no", n=5))
    third = load(again.save(tmp_path / "again"))
    assert np.array_equal(third.log_class_weights(table()), again.log_class_weights(table()))


def test_members_that_a_recipe_chose_are_built_again(ensembles, tmp_path) -> None:
    # As on a GPU, where ensemble_size=None is the recipe's number; the folder is then read on any machine.
    folder = ensembles[None].save(tmp_path / "model")
    forge(folder, lambda c: c["settings"].update(ensemble_size=None))
    again = load(folder)
    assert (again.training, again.model_.ensemble_size) == (None, 2)
    assert np.array_equal(again.embed(table()), ensembles[None].embed(table()))


def test_another_recipe_than_at_fit_changes_no_saved_model(fitted, folder, monkeypatch) -> None:
    learned = TabularEncoder._choose_sizes

    def otherwise(encoder: TabularEncoder, *args: Any, **kwargs: Any) -> None:
        learned(encoder, *args, **kwargs)
        encoder.recipe = replace(encoder.recipe, embedding_size=7, ensemble_size=5, auxiliary_weight=2.0)

    monkeypatch.setattr(TabularEncoder, "_choose_sizes", otherwise)
    again = load(folder)
    assert again.encoder_.recipe.embedding_size == 7
    assert np.array_equal(again.embed(table()), fitted.embed(table()))


def test_a_folder_that_names_the_head_of_all_models_is_read(fitted, folder) -> None:
    forge(folder, lambda c: c["settings"].update(head="dwac"))  # as until 1.0.0rc1
    assert np.array_equal(load(folder).embed(table()), fitted.embed(table()))


# Damage


def test_a_changed_config_is_named(folder) -> None:
    path = folder / "model.json"
    text = path.read_text()
    path.write_text(json.dumps(json.loads(text)))  # the same, laid out otherwise
    load(folder)
    path.write_text(text.replace('"gaussian"', '"laplace"'))
    with refuses(StorageError, "model.json", "SHA-256"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda c: c["settings"].update(kernel="foo"), ["kernel", "'foo'"]),
        (lambda c: c["settings"].update(head="softmax"), ["head", "'dwac'", "'softmax'", "train"]),
        (lambda c: c["settings"].update(epochs=-1), ["epochs"]),
        (lambda c: c["settings"].update(os="system"), ["TypeError", "'os'"]),
        (lambda c: c.pop("settings"), ["KeyError", "'settings'"]),
        (lambda c: c["encoder"].update(kind="pickle"), ["encoder", "'pickle'"]),
        (lambda c: c.update(classes_type="<U2"), ["'maybe'", "'ma'"]),
        (lambda c: c.update(classes_type="<U100000000"), ["'<U100000000'", "'maybe'", "strings"]),
        (lambda c: c.update(classes_type="V8"), ["'V8'", "'maybe'", "strings"]),
        (lambda c: c["classes"].__setitem__(0, c["classes"][1]), ["labels", "unique", "'no'"]),
        (lambda c: c["classes"].pop(), ["validation labels", "0 … 1", "0 … 2"]),
        (lambda c: c["calibration_ids"].pop(), ["calibration", "11", "(12,)", "(12, 17)"]),
        (lambda c: c.update(calibration_ids="p" * len(c["calibration_ids"])), ["ids", "list", "'pppppppppppp'"]),
        (lambda c: c["calibration_ids"].__setitem__(0, c["calibration_ids"][1]), ["ids", "unique", "'p4'"]),
        (lambda c: c["validation_ids"].__setitem__(0, c["validation_ids"][1]), ["ids", "unique", "'p12'"]),
        (
            lambda c: c.update(features=["size", "job", "code"]),
            ["features", "encoder", "['size', 'code', 'job']", "['size', 'job', 'code']"],
        ),
        (lambda c: c.update(n_features=2), ["number of features", "3", "2"]),
        (lambda c: c.update(without_record=[[0, "p0"]]), ["ids", "42", "43"]),
        (lambda c: c.update(without_record=[[-1, "x"]]), ["row numbers", "43"]),
        (
            lambda c: c["encoder"]["config"]["columns"][0]["scales"][0]["values"].__setitem__(0, "x"),
            ["'size'", "finite"],
        ),
        (lambda c: c["encoder"]["config"]["columns"][0]["scales"][0]["values"].reverse(), ["'size'", "finite"]),
        (lambda c: c["encoder"]["config"]["columns"][0]["scales"][0].update(values=[1.0, 1.0]), ["'size'", "finite"]),
        (
            lambda c: c["encoder"]["config"]["columns"][0]["scales"][0].update(values=[-1e308, 1e308]),
            ["'size'", "finite"],
        ),
        (lambda c: c["encoder"]["config"]["columns"][0]["scales"][0].update(form="foo"), ["'size'", "finite"]),
        (lambda c: c["encoder"]["config"]["columns"][0]["scales"][0].update(fill=10**400), ["'size'", "finite"]),
        (lambda c: c["encoder"]["config"]["columns"][0]["scales"][0].update(fill=10**30), ["'size'", "finite"]),
        (
            lambda c: c["encoder"]["config"]["columns"][2]["categories"].__setitem__(0, ["a"]),
            ["'job'"],
        ),
        (
            lambda c: c["encoder"]["config"]["columns"][2]["categories"].__setitem__(0, "nurse"),
            ["'job'"],
        ),
        (lambda c: c["encoder"]["config"]["columns"][2].update(kind="datetime"), ["'job'"]),
        (lambda c: c["encoder"]["config"]["columns"][0].update(kind=["numeric"]), ["'size'"]),
        (lambda c: c["encoder"]["config"]["columns"][0].update(gaps=3), ["'size'"]),
        (lambda c: c["encoder"]["config"]["columns"].pop(0), ["backbone.weight", "(128, 0)", "(128, 16)"]),
        (lambda c: c["encoder"]["config"]["settings"].update(depth=0.5), ["depth"]),
        (lambda c: c["encoder"]["config"]["settings"].update(depth=10**9), ["depth", "1000"]),
        (lambda c: c["encoder"].update(config=[]), ["TypeError"]),
        (lambda c: c.update(history={"a": 1}), ["ValueError"]),
    ],
)
def test_an_invalid_config_is_named_with_the_folder(folder, change, facts) -> None:
    forge(folder, change)
    with refuses(StorageError, folder, *facts):
        load(folder)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda t: t.update(calibration_y=t["calibration_y"] + 3), ["calibration labels", "-1 … 2", "3 … 4"]),
        (lambda t: t.update(calibration_y=t["calibration_y"].float()), ["calibration_y", "whole numbers"]),
        (lambda t: t.update(calibration_h=t["calibration_h"][1:]), ["calibration", "(12,)", "(11, 17)"]),
        (lambda t: t.update(calibration_h=t["calibration_h"][:, 1:]), ["calibration", "(12,)", "(12, 16)"]),
        (lambda t: t.update(calibration_h=t["calibration_h"] * float("nan")), ["calibration_h", "finite"]),
        (lambda t: t.update(calibration_h=t["calibration_h"].double() * 1e300), ["calibration_h"]),
        (lambda t: t.update(calibration_z=t["calibration_z"].to(torch.complex64)), ["calibration_z"]),
        (lambda t: t.update(ref_h=t["ref_h"] * float("nan")), ["ref_h"]),
        (lambda t: t.update({"backbone.bias": t["backbone.bias"] * float("inf")}), ["backbone.bias"]),
        (lambda t: t.update(ref_y=t["ref_y"] + 1), ["labels", "0 … 2", "3", "row 1"]),
        (lambda t: t.update(ref_h=t["ref_h"][:, 1:]), ["voters' embeddings", "(n, 17)", "(42, 16)"]),
        (lambda t: t.update(ref_h=t["ref_h"][1:]), ["labels", "41", "42"]),
        (lambda t: t.update(class_weights=torch.ones(7)), ["class_weights", "3"]),
        (
            lambda t: t.update({"embedding.weight": t["embedding.weight"].T}),
            ["embedding.weight", "(16, 16)", "(128, 16)"],
        ),
        (lambda t: t.update({"backbone.more": torch.ones(3)}), ["backbone.more", "(3,)"]),
        (lambda t: t.pop("backbone.bias"), ["backbone.bias", "(128,)", "nothing"]),
        (lambda t: t.clear(), ["0 rows", "42"]),
    ],
)
def test_tensors_that_do_not_fit_are_named_with_the_folder(folder, change, facts) -> None:
    forge(folder, tensors=change)
    with refuses(StorageError, folder, *facts):
        load(folder)


def test_a_missing_examples_file_and_any_other_failure_name_the_folder(folder, monkeypatch) -> None:
    for error in (OverflowError("x"), MemoryError("x"), ImportError("x"), OSError("x"), DwacError("x")):

        def fail(*_: Any, error: Exception = error) -> Any:
            raise error

        with monkeypatch.context() as patch:
            patch.setattr("dwac.estimator.loading.encoder_of", fail)
            with refuses(StorageError, folder, "x"):
                load(folder)
    stored = storage.read_model(folder)
    storage.write_model(folder, stored.config, stored.tensors)
    with refuses(StorageError, folder, "examples"):
        load(folder)


def test_a_network_of_ones_own_is_asked_for_and_must_fit(tmp_path) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    clf = DWACClassifier(nn.Linear(3, 8), **SETTINGS).fit(X, labels(0, 1))
    folder = clf.save(tmp_path / "model")
    with refuses(InputError, "module=…"):
        load(folder)
    with refuses(StorageError, folder, "backbone.weight", (7, 3), (8, 3), "module"):
        load(folder, module=nn.Linear(3, 7))
    assert np.array_equal(load(folder, module=nn.Linear(3, 8)).predict(X), clf.predict(X))


# Harm


@pytest.mark.parametrize(
    "change",
    [
        lambda c: c["encoder"]["config"].update(widths=[10**6, 10**6]),
        lambda c: c["encoder"]["config"].update(widths=[2**60, 2**60]),
        lambda c: c["encoder"]["config"].update(widths=[128] * 100_000),
        lambda c: c["encoder"]["config"]["settings"].update(frequencies=10**12),
        lambda c: c["settings"].update(embedding_size=10**12),
    ],
)
def test_a_hostile_size_takes_no_memory(folder, change, monkeypatch) -> None:
    forge(folder, change)

    def never(*_: Any) -> Any:
        raise AssertionError("the network was built")

    monkeypatch.setattr(loading, "new_model", never)
    with refuses(StorageError, folder) as caught:
        load(folder)
    assert not named(caught.value, "the network was built")


@pytest.mark.parametrize(
    ("ensemble_size", "facts"),
    [
        (10**9, ["1000000000 networks", "2"]),
        (3, ["3 networks", "2"]),
        (1, ["embedding.weight", "(5, 128)", "(10, 128)"]),
        (0, ["ensemble_size", "1", "0"]),
        (-1, ["ensemble_size"]),
        ("2", ["ensemble_size"]),
        (2.5, ["ensemble_size"]),
        (True, ["ensemble_size"]),
        (None, ["ensemble_size"]),
        ([2], ["ensemble_size"]),
    ],
)
def test_networks_that_are_not_stored_take_no_memory(ensemble_size, facts, ensembles, tmp_path, monkeypatch) -> None:
    folder = ensembles[5].save(tmp_path / "model")
    forge(folder, lambda c: c.update(ensemble_size=ensemble_size))

    monkeypatch.setattr(nn.Linear, "__init__", None)  # no layer is made
    with refuses(StorageError, folder, *facts):
        load(folder)


def test_a_single_network_is_no_ensemble(folder) -> None:
    for members in (2, 16, 10**9):
        forge(folder, partial(dict.update, ensemble_size=members))
        with refuses(StorageError, folder, members, 0):
            load(folder)


def test_an_own_network_of_hostile_size_takes_no_memory(tmp_path, monkeypatch) -> None:
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    for number, module in enumerate((nn.Linear(3, 8), Ensemble(nn.Linear(3, 8) for _ in range(2)))):
        folder = DWACClassifier(module, **SETTINGS).fit(X, labels(0, 1)).save(tmp_path / str(number))
        for change in (
            lambda c: c["settings"].update(embedding_size=10**12),
            lambda c: c.update(ensemble_size=10**9),
        ):
            stored = storage.read_model(folder)
            forge(folder, change)
            with monkeypatch.context() as patch:
                patch.setattr(nn.Linear, "__init__", None)  # no layer is made
                with refuses(StorageError, folder) as caught:
                    load(folder, module=module)
                assert named(caught.value, folder, "embedding.weight") or named(caught.value, folder, "config")
            storage.write_model(folder, *stored)
        assert np.isfinite(load(folder, module=module).predict_proba(X)).all()


def test_a_guide_is_neither_stored_nor_built_again(tmp_path) -> None:
    training = Training(auxiliary_weight=0.5, ensemble_size=2)
    clf = DWACClassifier(training=training, **SETTINGS).fit(table(), labels("yes", "no"))
    folder = clf.save(tmp_path / "model")
    assert hasattr(clf.model_, "auxiliary_head")
    assert not any("auxiliary_head" in name for name in storage.read_model(folder).tensors)
    again = load(folder)
    assert not hasattr(again.model_, "auxiliary_head")  # K × |h| numbers that the folder does not hold
    assert again.training == training
    forge(folder, lambda c: c["settings"].update(auxiliary_weight=-1.0))
    with refuses(StorageError, "auxiliary_weight"):
        load(folder)


@pytest.mark.parametrize(
    ("change", "facts"),
    [
        (lambda c: c["sizes"].update(ngrams=0), ["ngrams", "1", "0"]),
        (lambda c: c["sizes"].update(ngrams=10**9), ["texts", "400", "1000000000"]),
        (
            lambda c: c["settings"].update(max_ngrams=10**12) or c["sizes"].update(ngrams=10**9),
            ["texts", "400", "1000000000"],
        ),
        (lambda c: c["sizes"].update(length=10**9), ["texts", "400", "1000000000"]),
        (lambda c: c["sizes"].update(length="9"), ["length", "'9'"]),
        (lambda c: c.update(ngrams=c["ngrams"][::-1]), ["n-grams", "ascending"]),
        (lambda c: c["vocabulary"].__setitem__(0, c["vocabulary"][1]), ["vocabulary", "unique"]),
        (lambda c: c["vocabulary"].__setitem__(0, ["a"]), ["vocabulary"]),
        (lambda c: c.update(characters=[]), ["characters", "[]"]),
    ],
)
def test_invalid_texts_are_named_with_the_folder(change, facts, of_texts, tmp_path) -> None:
    folder = of_texts.save(tmp_path / "model")
    forge(folder, lambda c: change(c["encoder"]["config"]))
    with refuses(StorageError, folder, *facts):
        load(folder)


@pytest.mark.parametrize(
    ("change", "fact"),
    [
        ({"layout": "HW"}, "layout='HW'"),
        ({"layout": []}, "layout=[]"),
        ({"numbers": "int4"}, "'int4'"),
        ({"mean": [0.0]}, "mean=(0.0,)"),
        ({"mean": [0.0, 0.0, 1e300]}, "mean=(0.0, 0.0, 1e+300)"),
        ({"std": [1.0, 1.0, 0.0]}, "std=(1.0, 1.0, 0.0)"),
        ({"std": ["1", 1.0, 1.0]}, "std=('1', 1.0, 1.0)"),
        ({"low": None}, "low=None"),
        ({"rows": 0.5}, 0.5),
        ({"shape": [3, 8, 8.0]}, 8.0),
        ({"shape": [3, 2**20, 2**20]}, "3 × 1048576 × 1048576"),
    ],
)
def test_images_without_sense_are_named_with_the_folder(change, fact, of_colours, tmp_path) -> None:
    folder = of_colours.save(tmp_path / "model")
    forge(folder, lambda c: c["encoder"]["config"]["seen"].update(change))
    with refuses(StorageError, folder, "images", fact):
        load(folder)


@pytest.mark.slow
def test_texts_of_hostile_depth_take_no_memory(monkeypatch) -> None:
    pytest.importorskip("transformers")
    no_network(monkeypatch)
    encoder = hugging_face(model_type="bert", num_hidden_layers=10**9)
    with refuses(StorageError):
        stored.rehearse(encoder, 1, {})
    assert torch.is_grad_enabled()


def repeated(n: int, column: pa.Array, facts: dict[str, Any]) -> bytes:
    """The bytes of a table of examples, all alike: a file of kilobytes, however many."""
    zeros = pa.array(np.zeros(n, np.int32))
    ids = pa.DictionaryArray.from_arrays(zeros, pa.array(['"p"']))
    about = {"version": 1, "columns": [{"name": "size", **facts}], "index": None}
    table = pa.table({"id": ids, "size": column}).replace_schema_metadata({"dwac.examples": json.dumps(about)})
    file = io.BytesIO()
    with pq.ParquetWriter(
        file, table.schema, compression="zstd", store_schema=False, dictionary_pagesize_limit=2**30
    ) as f:
        f.write_table(table)
    return file.getvalue()


@pytest.mark.parametrize(
    ("n", "text", "facts"),
    [
        (10**6, "x", ["42", "1,000,000"]),
        (42, "x" * (3 * 10**7), ["1,260,000,462", "1,073,741,824"]),
    ],
)
def test_examples_of_hostile_size_take_no_memory(n, text, facts, folder) -> None:
    column = pa.DictionaryArray.from_arrays(pa.array(np.zeros(n, np.int32)), pa.array([text]))
    data = repeated(n, column, {"kind": "text"})
    assert len(data) < 60_000
    digest = hashlib.sha256(data).hexdigest()
    path, name = folder / "model.json", f"examples-{digest[:16]}.parquet"
    (folder / name).write_bytes(data)
    manifest = json.loads(path.read_text())
    manifest["files"]["examples"] = {"name": name, "size": len(data), "sha256": digest}
    path.write_text(json.dumps(manifest))
    with refuses(StorageError, folder, *facts, "restore"):
        load(folder)


def test_pictures_of_hostile_size_in_records_are_refused(of_pictures, tmp_path) -> None:
    folder = of_pictures.save(tmp_path / "model")
    stored = storage.read_model(folder)
    assert stored.examples is not None
    png = stored.examples["image"].iloc[0]
    for hostile in (png[:16] + (10**5).to_bytes(4, "big") * 2 + png[24:], b"GIF89a", None):
        pictures: list[Any] = [hostile, *stored.examples["image"].iloc[1:]]
        changed = stored.examples.assign(image=pictures)
        storage.write_model(folder, stored.config, stored.tensors, changed)
        with refuses(StorageError, folder, "PNG", (8, 8)):
            load(folder)


def test_images_of_hostile_size_take_no_memory(of_pictures, tmp_path) -> None:
    folder = of_pictures.save(tmp_path / "model")
    forge(folder, lambda c: c["encoder"]["config"]["seen"].update(width=10**6))
    with refuses(StorageError, folder, "backbone.1.0.weight", "(1000000, 1, 3, 3)", "(32, 1, 3, 3)"):
        load(folder)
    forge(folder, lambda c: c["encoder"]["config"]["seen"].update(width=32, shape=[10**9, 8, 8]))
    with refuses(StorageError, folder, 10**9, "67,108,864", "size=(height, width)"):
        load(folder)


def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> Any:
        raise AssertionError("the network was reached for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


SIZES = {
    "vocab_size": 30,
    "hidden_size": 32,
    "embedding_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 32,
    "pad_token_id": 1,
    "max_position_embeddings": 40,
}


def hugging_face(**model: Any) -> HuggingFaceEncoder:
    settings = {"name_or_folder": "evil/name", "local_files_only": False}
    return HuggingFaceEncoder.from_config({"settings": settings, "model": SIZES | model, "tokenizer": ""})


@pytest.mark.parametrize(
    "evil",
    [
        {"_attn_implementation": "evil/kernel"},
        {"attn_implementation": "evil/kernel"},
        {"_attn_implementation_internal": "evil/kernel"},
        {"experts_implementation": "evil/kernel"},
        {"use_pretrained_backbone": True, "backbone": "evil/resnet"},
        {"auto_map": {"AutoModel": "evil/code--modeling.Evil"}},
        {"quantization_config": {"quant_method": "gptq"}},
        {"nested": [{"_attn_implementation": "evil/kernel"}]},
        {"num_labels": 10**12},
    ],
)
def test_a_restored_hugging_face_model_reaches_for_nothing(evil, monkeypatch) -> None:
    pytest.importorskip("transformers")
    no_network(monkeypatch)
    encoder = hugging_face(model_type="bert", **evil)
    assert "evil" not in json.dumps(encoder.config()["model"])
    network: Any = encoder.network()
    assert network.model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("model_type", ["detr", "yoso", "evil", None, ["bert"]])
def test_model_types_that_may_fetch_more_are_refused(model_type) -> None:
    with refuses(InputError, "albert", "bert"):
        hugging_face(model_type=model_type, use_pretrained_backbone=True, backbone="evil/resnet")


@pytest.mark.filterwarnings("ignore:.*torch.jit.script")  # DeBERTa's, at import
@pytest.mark.parametrize("model_type", ["bert", "deberta-v2", "distilbert", "modernbert", "mpnet", "xlm-roberta"])
def test_known_model_types_are_built_without_the_network(model_type, monkeypatch) -> None:
    pytest.importorskip("transformers")
    no_network(monkeypatch)
    sizes = {"dim": 32, "n_layers": 1, "n_heads": 2, "hidden_dim": 32} if model_type == "distilbert" else {}
    network = hugging_face(model_type=model_type, **sizes).network().eval()
    assert network(torch.ones(2, 5, dtype=torch.int64), torch.ones(2, 5, dtype=torch.int64)).shape == (2, 32)
    assert model_type in MODEL_TYPES


@pytest.mark.parametrize("name", ["hf_hub:evil/net", "hf-hub:evil/net", "local-dir:/tmp/evil", "evil/net"])
def test_timm_names_of_a_hub_are_refused(name, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "timm", None)
    X = np.zeros((4, 8, 8), dtype=np.uint8)
    config = ImageEncoder().fit(X).config() | {"network": f"timm:{name}"}
    with refuses(InputError, "hub"):
        ImageEncoder.from_config(config).network()
    with refuses(InputError, "hub"):
        ImageEncoder(f"timm:{name}").fit(X)


def test_a_missing_library_is_named_with_the_folder(of_pictures, tmp_path, monkeypatch) -> None:
    folder = of_pictures.save(tmp_path / "model")
    forge(folder, lambda c: c["encoder"]["config"].update(network="timm:resnet10t"))
    monkeypatch.setitem(sys.modules, "timm", None)
    with refuses(StorageError, folder, "pip install timm"):
        load(folder)


def test_a_checkpoint_named_by_a_folder_is_not_used(folder) -> None:
    forge(folder, lambda c: c["settings"].update(checkpoint="/etc/passwd"))
    assert load(folder).checkpoint is None


# Records


def test_examples_without_a_record_come_back_without_one(fitted, tmp_path) -> None:
    clf = load(fitted.save(tmp_path / "first", include_examples=False))
    assert len(clf.examples_) == 0
    clf.add_references(table(5, start=100), labels("yes", "no", n=5))
    before = clf.references_.ids.tolist()
    for name in ("second", "third"):
        clf = load(clf.save(tmp_path / name))
        assert clf.references_.ids.tolist() == before
        assert sorted(clf.examples_) == [f"p{i}" for i in range(100, 105)]
        assert clf.examples_["p103"]["code"] == 2**60 + 3
        assert "p0" not in clf.examples_
    kept = storage.read_model(tmp_path / "third").examples
    assert kept is not None
    assert kept["code"].dtype == np.int64
    clf.forget(["p101", before[0]])
    again = load(clf.save(tmp_path / "fourth"))
    assert again.references_.ids.tolist() == clf.references_.ids.tolist()
    assert len(again.examples_) == 4
    votes = again.log_class_weights(table())
    assert np.array_equal(votes, clf.log_class_weights(table()))
    assert len(load(clf.save(tmp_path / "fifth", include_examples=False)).examples_) == 0


def test_records_come_back_in_their_order(fitted, folder) -> None:
    again = load(folder)
    assert list(again.examples_) == again.references_.ids.tolist() == fitted.references_.ids.tolist()
    assert storage.read_model(folder).config["without_record"] == []
