"""A cell means the same to `dwac predict`, which reads a file as a whole, and to `dwac score`, which reads parts."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac import DWACClassifier, Training
from dwac.estimator.evaluation import predict
from dwac.reading import Model, load, read
from dwac.scoring.run import score_files

COMMON = {"age": "30.5", "work": "state", "code": "007", "when": "2020-05-01", "flag": "true"}
ODD = {
    "age": ["NA", "abc", "", " 31.5 ", "1e2", "inf", "1e999", "N/A", "1,5", "1,500.5", "1.500", "-"],
    "work": ["NA", "nan", "", " state ", "STATE", "7"],
    "code": ["7", "3", "3.0", "NA"],
    "when": ["2020-05-01 10:00", "01/05/2020", "31/05/2020", "May 2020", "NA", "12:30", "2020-05-01T10:00:00Z"],
    "flag": ["True", "yes", "1", "NA", "maybe"],
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, n = np.random.default_rng(0), 120
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 900, n), unit="D")
    frame = pd.DataFrame({"age": rng.integers(18, 80, n) + 0.5, "work": rng.choice(["private", "state"], n)})
    frame = frame.assign(code=rng.choice(["007", "3"], n), when=days, flag=rng.choice([True, False], n))
    path = tmp_path_factory.mktemp("cells")
    frame.assign(y=np.where(frame["age"] > 48, "high", "low")).to_csv(path / "train.csv", index=False)
    rows = read(path / "train.csv", target="y", kinds={"code": "categories"})
    clf = DWACClassifier(
        epochs=1, training=Training(ensemble_size=1), cross_fit=False, random_state=0, device="cpu"
    ).fit(rows.X, rows.y)
    Model(clf, rows.columns, rows.notation).save(path / "model")
    return path


def written(rows: list[dict[str, str]], form: str) -> str:
    if form == "csv":
        return pd.DataFrame(rows).to_csv(index=False)
    return "".join(f"{json.dumps(row)}\n" for row in rows)


def facts(frame: pd.DataFrame) -> list[tuple[Any, ...]]:
    kept = frame[["unreadable", "unknown", "label", "probability"]].itertuples(index=False)
    return [tuple(None if pd.isna(cell) else cell for cell in (*words, round(p, 9))) for *words, p in kept]


@pytest.mark.parametrize("form", ["csv", pytest.param("jsonl", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "column", [pytest.param(name, marks=[pytest.mark.slow] * (name not in ("age", "work"))) for name in ODD]
)
def test_an_odd_cell_means_the_same_whole_or_in_parts(column: str, form: str, folder: Path, tmp_path: Path) -> None:
    model, given = load(folder / "model", device="cpu"), tmp_path / "given"
    given.mkdir()
    whole = {}
    for number, cell in enumerate(ODD[column]):
        for beside in ([], [{**COMMON, column: "zzz"}]):
            path = given / f"{number:02}-{len(beside)}.{form}"
            path.write_text(written([COMMON, {**COMMON, column: cell}, *beside], form))
            whole[path.name, cell] = facts(predict(model.clf, read(path, like=model).X).frame(0.05))
    assert not score_files(folder / "model", given, tmp_path / "out", device="cpu", workers=1).failed
    for (name, cell), shard in zip(whole, sorted((tmp_path / "out").glob("*.parquet")), strict=True):  # one per file
        assert facts(pd.read_parquet(shard)) == whole[name, cell], cell


def test_a_bad_cell_does_not_change_what_another_row_says(folder: Path, tmp_path: Path) -> None:
    model = load(folder / "model", device="cpu")
    rows = [COMMON, {**COMMON, "age": "NA"}, {**COMMON, "age": "zzz"}]
    answers = []
    for n in (2, 3):
        (tmp_path / "a.csv").write_text(written(rows[:n], "csv"))
        answers.append(facts(predict(model.clf, read(tmp_path / "a.csv", like=model).X).frame(0.05)))
    assert answers[0] == answers[1][:2]
    assert "zzz" in answers[1][2][0]


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_how_a_large_file_is_written_is_judged_once_from_its_beginning(
    form: str, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dwac.reading.layouts.BLOCK", 500)
    monkeypatch.setattr("dwac.scoring.pieces.BLOCK", 500)
    days = ["31/05/2020", *["01/05/2020"] * 40]  # only the first says that days come first
    path = tmp_path / f"a.{form}"
    path.write_text(written([{**COMMON, "when": day} for day in days], form))
    model = load(folder / "model", device="cpu")
    whole = facts(predict(model.clf, read(path, like=model).X).frame(0.05))
    score_files(folder / "model", path, tmp_path / "out", device="cpu", workers=1)
    assert len(list((tmp_path / "out").glob("*.parquet"))) > 2
    assert facts(pd.read_parquet(tmp_path / "out")) == whole
