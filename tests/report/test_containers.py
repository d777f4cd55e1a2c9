"""The report takes rows in every form that `fit` takes."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from scipy import sparse

from dwac import DWACClassifier, Training, report
from dwac.errors import InputError
from dwac.estimator.preparation import rows_of
from dwac.nn import batches
from tests.named import named

N, HELD = 160, 40


def numbers() -> pd.DataFrame:
    values = np.random.default_rng(0).normal(size=(N, 3)).clip(0)
    return pd.DataFrame(values, columns=["a", "b", "c"])


def polars_frame(frame: pd.DataFrame) -> Any:
    polars = pytest.importorskip("polars")
    return polars.DataFrame({name: frame[name].to_numpy() for name in frame})


@pytest.mark.parametrize(
    "form",
    [
        pytest.param(lambda frame: sparse.csr_matrix(frame.to_numpy()), id="sparse matrix"),
        pytest.param(lambda frame: frame.astype(pd.SparseDtype("float64", 0.0)), id="sparse frame"),
        pytest.param(lambda frame: pa.Table.from_pandas(frame, preserve_index=False), id="Arrow"),
        pytest.param(polars_frame, id="polars"),
        pytest.param(lambda frame: polars_frame(frame).lazy(), id="lazy polars"),
    ],
)
def test_rows_of_every_library_become_the_same_numbers(form: Any) -> None:
    np.testing.assert_array_equal(np.asarray(rows_of(form(numbers()))), numbers().to_numpy())


@pytest.mark.usefixtures("undrawn")
def test_the_report_takes_the_sparse_rows_that_fit_takes_and_embeds_them_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y = sparse.csr_matrix(numbers().to_numpy()), np.where(numbers()["a"] > 0.3, "high", "low")
    clf = DWACClassifier(epochs=1, training=Training(ensemble_size=1), cross_fit=False, random_state=0, device="cpu")
    clf.fit(X[HELD:], y[HELD:])
    embed, embedded = batches.embed, []

    def note(model: Any, x: Any, **options: Any) -> Any:
        embedded.append(len(x[0]))
        return embed(model, x, **options)

    monkeypatch.setattr(batches, "embed", note)
    page = report.write(clf, X[:HELD], y[:HELD], tmp_path / "report.html", cases=1).read_text()
    assert "high" in page
    assert f"{HELD} " in page
    assert embedded.count(HELD) == 1


@pytest.mark.usefixtures("undrawn")
def test_observed_rows_of_a_report_must_be_readable(tmp_path: Path) -> None:
    X = numbers().assign(d=["a", "b"] * (N // 2))
    clf = DWACClassifier(epochs=1, training=Training(ensemble_size=1), cross_fit=False, random_state=0, device="cpu")
    y = np.where(X["a"] > 0.3, "high", "low")
    clf.set_params(unknown="refuse").fit(X[HELD:], y[HELD:])
    seen = clf.observe(X[:HELD].assign(d=["new", *X["d"][1:HELD]]))
    with pytest.raises(InputError) as caught:
        report.write(clf, seen, y[:HELD], tmp_path / "report.html")
    assert named(caught.value, "1 of 40")
    readable = seen.take(np.flatnonzero(seen.readable))
    assert report.write(clf, readable, y[1:HELD], tmp_path / "report.html", cases=1).exists()
