"""A loaded model answers the same whether its voters are in memory, in shards or in their file."""

import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import dwac
from dwac.errors import InputError, StorageError
from dwac.reference import files
from tests.named import refuses

pytestmark = pytest.mark.usefixtures("few_steps")

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(260, 4)), columns=list("abcd"))
CLASSES = np.array(["no", "yes", "maybe"])[(X["a"] > 0).astype(int) + (X["b"] > 1)]
NUMBERS = X["a"].to_numpy() * 3 + RNG.normal(size=260)
TRAINING, NEW = slice(0, 230), slice(230, 260)
QUICK: dict[str, Any] = {"epochs": 2, "random_state": 0, "device": "cpu", "calibration_size": 40}


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A classifier, the same condensed and saved without or with the others, and a regressor."""
    made, path = {}, tmp_path_factory.mktemp("models")
    clf = dwac.DWACClassifier(**QUICK).fit(X[TRAINING], CLASSES[TRAINING])
    made["classes"] = clf.save(path / "classes")
    few = clf.condense(12)
    made["few"] = few.save(path / "few")
    made["few for all"] = few.save(path / "all", include_members=True)
    reg = dwac.DWACRegressor(**QUICK).fit(X[TRAINING], NUMBERS[TRAINING])
    made["numbers"] = reg.save(path / "numbers")
    return {name: Path(folder) for name, folder in made.items()}


@pytest.fixture(autouse=True)
def _small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BLOCK", 1000)
    monkeypatch.setattr(files, "SMALLEST_BLOCK", 5)


def from_file(path: Path) -> Any:
    return dwac.load(path, mapped=True)


@pytest.mark.parametrize("name", ["classes", "few", "few for all"])
def test_a_classifier_gives_the_same_labels_sets_and_explanations(
    folders: dict[str, Path], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files, "BLOCK", 100 if name == "few" else 1000)
    want, found = dwac.load(folders[name], device="cpu"), from_file(folders[name])
    few, everybody = found.references_, found.references_.members
    assert len(few.voters.blocks or everybody.voters.blocks) > 2  # representatives of those in a file are in memory
    # Shards are asked in float64, and those in memory in the precision of the queries.
    h = want.embed(X[NEW])
    exact = want.references_.log_class_weights(h.astype(np.float64) if few.voters.blocks else h)
    np.testing.assert_allclose(found.log_class_weights(X[NEW]), exact, atol=1e-6)
    np.testing.assert_allclose(found.predict_proba(X[NEW]), want.predict_proba(X[NEW]), atol=1e-5)
    assert (found.predict(X[NEW]) == want.predict(X[NEW])).all()
    one, other = found.conformal(X[NEW]), want.conformal(X[NEW])
    np.testing.assert_array_equal(one.p_values, other.p_values)
    np.testing.assert_array_equal(one.typicality, other.typicality)
    assert (found.predict_set(X[NEW], epsilon=0.1) == want.predict_set(X[NEW], epsilon=0.1)).all()
    for mine, theirs in zip(found.explain(X[NEW][:3], k=4), want.explain(X[NEW][:3], k=4), strict=True):
        assert [n.id for n in mine.neighbors] == [n.id for n in theirs.neighbors]
        assert (mine.deciding, mine.deciding_groups) == (theirs.deciding, theirs.deciding_groups)
        assert mine.flip_set() == theirs.flip_set()
        assert [g.size for g in mine.groups] == [g.size for g in theirs.groups]
        np.testing.assert_allclose([g.share for g in mine.groups], [g.share for g in theirs.groups], atol=1e-9)


def test_a_regressor_gives_the_same_numbers_intervals_and_explanations(folders: dict[str, Path]) -> None:
    want, found = dwac.load(folders["numbers"], device="cpu"), from_file(folders["numbers"])
    assert len(found.references_.voters.blocks) > 2
    np.testing.assert_allclose(found.predict(X[NEW]), want.predict(X[NEW]), atol=1e-9)
    np.testing.assert_array_equal(found.predict_quantiles(X[NEW]), want.predict_quantiles(X[NEW]))
    np.testing.assert_allclose(found.predict_interval(X[NEW]), want.predict_interval(X[NEW]), atol=1e-9)
    for mine, theirs in zip(found.explain(X[NEW][:2], k=4), want.explain(X[NEW][:2], k=4), strict=True):
        assert [n.id for n in mine.neighbors] == [n.id for n in theirs.neighbors]
        assert [v.id for v in mine.influential] == [v.id for v in theirs.influential]


def test_voters_in_a_file_are_neither_forgotten_nor_added(folders: dict[str, Path]) -> None:
    fixed = from_file(folders["classes"])
    gone = fixed.references_.ids[:5].tolist()
    before = fixed.predict_proba(X[NEW])
    with refuses(InputError, "mapped=True"):
        fixed.forget(gone)
    with refuses(InputError, "mapped=True"):
        fixed.add_references(X[NEW], CLASSES[NEW], ids=range(5000, 5030))
    np.testing.assert_array_equal(fixed.predict_proba(X[NEW]), before)
    assert len(fixed.examples_) == len(fixed.references_)


def test_a_model_in_its_file_can_be_saved_elsewhere(folders: dict[str, Path], tmp_path: Path) -> None:
    model = from_file(folders["classes"])
    again = dwac.load(model.save(tmp_path / "copy"), device="cpu")
    np.testing.assert_allclose(again.predict_proba(X[NEW]), model.predict_proba(X[NEW]), atol=1e-5)


def test_a_file_that_was_altered_is_refused_and_a_gpu_is_told_why(folders: dict[str, Path], tmp_path: Path) -> None:
    model = dwac.load(folders["classes"], device="cpu")
    folder = Path(model.save(tmp_path / "copy"))
    weights = next(folder.glob("weights-*"))
    data = bytearray(weights.read_bytes())
    data[-3] ^= 1
    weights.write_bytes(data)
    with refuses(StorageError, weights, "SHA-256", hashlib.sha256(data).hexdigest(), "altered"):
        dwac.load(folder, mapped=True)
    weights.write_bytes(data[:-8])
    with refuses(StorageError, weights, f"{len(data) - 8:,} bytes", f"{len(data):,}"):
        dwac.load(folder, mapped=True)
    with refuses(InputError, "device", "'cuda'"):
        dwac.load(folder, mapped=True, device="cuda")
