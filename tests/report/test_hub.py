"""Models on the Hub: what is uploaded, what is said before, and loading from everywhere; against a stand-in."""

import logging
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
import torch
import yaml
from huggingface_hub import constants, file_download
from sklearn.exceptions import NotFittedError

import dwac
from dwac.errors import InputError, PrivacyError, StorageError
from tests.cli.helpers import error_line, run
from tests.named import missing, refuses
from tests.report.hub_stand_in import TOKEN, Hub, running

pytestmark = pytest.mark.usefixtures("few_steps")

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(80, 2)), columns=["<script>", "b|c"], index=[f"p{i}" for i in range(80)])
Y = np.where(X["b|c"] > 0, "high", "low")
TRAINING, NEW = slice(0, 60), slice(60, 80)


@pytest.fixture(scope="module")
def clf(few_steps: None) -> Any:
    return dwac.DWACClassifier(random_state=0, device="cpu", verbose=False).fit(X[TRAINING], Y[TRAINING])


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Hub]:
    with running() as hub:
        monkeypatch.setattr(constants, "ENDPOINT", hub.url)
        template = hub.url + "/{repo_id}/resolve/{revision}/{filename}"
        for module in (constants, file_download):
            monkeypatch.setattr(module, "HUGGINGFACE_CO_URL_TEMPLATE", template, raising=False)
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", TOKEN)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        yield hub


def test_a_model_comes_back_from_the_hub_as_it_was(clf: Any, hub: Hub, caplog: pytest.LogCaptureFixture) -> None:
    where = clf.push_to_hub("ann/model", X[NEW], Y[NEW], purpose="Whom to call", licence="mit")
    files = hub.files("ann/model")
    assert {name.partition("-")[0] for name in files} == {
        ".gitattributes",
        "README.md",
        "model.json",
        "weights",
        "examples",
    }
    assert hub.repositories["ann/model"].private
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 1
    assert not missing(said[0].getMessage(), "ann/model", "private", "60", "<script>", "include_examples=False")
    head, _, body = files["README.md"].decode().removeprefix("---\n").partition("---\n")
    fields = yaml.safe_load(head)
    assert fields["library_name"] == "dwac"
    assert fields["license"] == "mit"
    assert fields["pipeline_tag"] == "tabular-classification"
    assert fields["model-index"][0]["results"]
    assert "<script>" not in body
    assert "Whom to call" in body
    for path in ("hf://ann/model", where, Path("hf://ann/model")):
        other = dwac.load(path, expect=dwac.fingerprint(where))
        assert np.array_equal(other.predict_proba(X), clf.predict_proba(X))
    assert f'dwac.load("hf://ann/model", expect="{other.fingerprint_}")' in body


@pytest.mark.slow
def test_a_second_upload_replaces_the_files_of_the_first(clf: Any, hub: Hub) -> None:
    clf.push_to_hub("ann/model")
    hub.repositories["ann/model"].commits[hub.repositories["ann/model"].branches["main"]]["columns.json"] = b"{}"
    before = hub.repositories["ann/model"].branches["main"]
    clf.push_to_hub("hf://ann/model", include_examples=False)
    files = hub.files("ann/model")
    assert len([name for name in files if name.startswith("weights-")]) == 1
    assert "columns.json" not in files
    assert dwac.load("hf://ann/model").private_
    assert not any(name.encode() in data for name in ("<script>", "b|c") for data in [files["README.md"]])
    clf.push_to_hub("ann/model@v2")
    assert not dwac.load("hf://ann/model@v2").private_
    assert b'"hf://ann/model@v2"' in hub.files("ann/model", "v2")["README.md"]
    del hub.repositories["ann/model"].commits[before]["columns.json"]
    assert not dwac.load(f"hf://ann/model@{before}").private_


def test_records_are_published_only_if_that_is_stated(clf: Any, hub: Hub) -> None:
    with refuses(PrivacyError, "ann/open", "public", 60, "include_examples=False", "include_examples=True"):
        clf.push_to_hub("ann/open", private=False)
    assert hub.requests == []
    clf.push_to_hub("ann/open", private=False, include_examples=False)
    assert not hub.repositories["ann/open"].private
    n = len(hub.repositories["ann/open"].commits)
    with refuses(PrivacyError, "ann/open", "public", "private=False"):
        clf.push_to_hub("ann/open")
    assert len(hub.repositories["ann/open"].commits) == n


def test_a_model_of_your_own_network_stays_as_exact_as_it_is(hub: Hub, tmp_path: Path) -> None:
    network: Any = torch.nn.Linear(2, 4)
    own = dwac.DWACClassifier(encoder=network, random_state=0, device="cpu", epochs=1)
    own.fit(X.to_numpy(np.float32), Y).save(tmp_path / "model")  # a folder keeps no rows of such a model
    clf = dwac.load(tmp_path / "model", module=network)
    with refuses(PrivacyError, "ann/own", "public", "include_examples"):
        clf.push_to_hub("ann/own", private=False)
    clf.push_to_hub("ann/own")
    assert not dwac.load("hf://ann/own", module=network).private_


@pytest.mark.slow
def test_a_card_can_be_a_file(clf: Any, hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "card.md").write_text("---\nlicense: mit\n---\n# Mine\n")
    clf.push_to_hub("ann/model", card=tmp_path / "card.md")
    assert hub.files("ann/model")["README.md"].endswith(b"# Mine\n")
    with refuses(InputError, "card"):
        clf.push_to_hub("ann/model", X, Y, card=tmp_path / "card.md")
    with refuses(InputError, "X", "y"):
        clf.push_to_hub("ann/model", X)
    with refuses(InputError, "note"):
        clf.push_to_hub("ann/model", note="no rows")


def test_a_card_that_cannot_be_written_is_refused_before_anything_is_uploaded(clf: Any) -> None:
    with refuses(InputError, "card", "nowhere.md"):
        clf.push_to_hub("ann/model", card="nowhere.md")
    with refuses(InputError, "X", "y"):
        clf.push_to_hub("ann/model", X)
    with refuses(InputError, "hf://owner/name", "None"):
        clf.push_to_hub(None)
    with refuses(NotFittedError, "fit"):
        dwac.DWACClassifier().push_to_hub("ann/model")


@pytest.mark.parametrize("name", ["hf://model", "hf://a/b/c", "hf://a/b@", "hf://../b"])
def test_a_wrong_name_says_what_a_name_is(name: str) -> None:
    with refuses(InputError, "hf://owner/name", name):
        dwac.load(name)


def test_what_is_missing_hidden_or_out_of_reach_says_so(
    clf: Any, hub: Hub, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    clf.push_to_hub("ann/model")
    for name in ("hf://ann/other", "hf://ann/model@v9"):
        with refuses(StorageError, name, "HF_TOKEN"):
            dwac.load(name)
    dwac.load("hf://ann/model")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    dwac.load("hf://ann/model")  # from the cache
    with refuses(StorageError, "hf://ann/other", "hf download ann/other"):
        dwac.load("hf://ann/other")
    with refuses(StorageError, "hf://ann/model", "clf.save"):
        clf.push_to_hub("ann/model")
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "empty"))
    with refuses(StorageError, "hf://ann/model", "HF_TOKEN"):
        dwac.load("hf://ann/model")
    with refuses(StorageError, "hf://ann/new", 401, "HF_TOKEN"):
        clf.push_to_hub("ann/new")


def test_without_the_package_the_extra_is_named(clf: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (lambda: dwac.load("hf://ann/model"), lambda: clf.push_to_hub("ann/model")):
        with refuses(InputError, "dwac[hub]"):
            call()


@pytest.mark.slow
def test_a_file_in_the_cache_may_be_on_another_disk(clf: Any, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*_: Any) -> None:
        raise OSError("cross-device link")

    clf.push_to_hub("ann/model")
    monkeypatch.setattr(os, "link", no_links)
    assert np.array_equal(dwac.load("hf://ann/model").predict(X), clf.predict(X))


@pytest.mark.slow
def test_commands_scoring_and_the_service_take_a_model_from_the_hub(clf: Any, hub: Hub, tmp_path: Path) -> None:
    clf.push_to_hub("ann/model")
    X[NEW].to_csv(tmp_path / "rows.csv", index=False)
    rows = tmp_path / "rows.csv"
    assert "high" in run("predict", "hf://ann/model", rows).stdout
    assert not missing(error_line("predict", "hf://ann/other", rows), "hf:/ann/other", "HF_TOKEN")
    answers = dwac.scoring.score("hf://ann/model", pa.Table.from_pandas(X[NEW]))
    assert sum(batch.num_rows for batch in answers) == 20
