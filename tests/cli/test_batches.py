"""`dwac train` on datasets of Parquet, which are read in batches."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dwac.cli.app import app
from dwac.reading import is_dataset
from tests.named import named

RUN = CliRunner()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng, found = np.random.default_rng(0), tmp_path_factory.mktemp("rows")
    frame = pd.DataFrame({"age": rng.normal(size=6_000), "town": rng.choice(["east", "west"], 6_000)})
    frame["id"] = [f"p{i}" for i in range(6_000)]
    frame["label"] = np.where(frame["age"] + 0.3 * rng.normal(size=6_000) > 0, "old", "young")
    for number, part in enumerate(np.array_split(np.arange(6_000), 3)):
        frame.iloc[part].to_parquet(found / f"{number}.parquet", index=False)
    return found


@pytest.mark.slow
def test_a_folder_of_parquet_is_trained_on_in_batches(folder: Path, tmp_path: Path) -> None:
    options = ["--target", "label", "--id", "id", "--epochs", "1", "--device", "cpu", "--test-size", "500"]
    options += ["--voters", "30", "--encoder", "tabular:paper", "--json"]
    result = RUN.invoke(app, ["train", str(folder / "*.parquet"), "-o", str(tmp_path / "model"), *options])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["rows"] == 6_000
    assert found["streamed"]
    assert found["test"]["n"] == 500
    assert found["examples"] == found["stream"]["training"] == 6_000 - 500 - found["validation"] - found["calibration"]
    again = RUN.invoke(app, ["predict", str(tmp_path / "model"), str(folder / "0.parquet"), "--json"])
    assert again.exit_code == 0, again.output


def test_parts_without_rows_an_index_and_labels_that_only_test_rows_have_do_no_harm(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"age": rng.normal(size=12_000)})
    frame["label"] = np.where(frame["age"] > 0, "old", "young")
    frame.loc[::400, "label"] = [f"only {i}" for i in range(30)]
    frame = frame[rng.random(12_000) < 0.5]  # its index has gaps, and is written as a column
    (tmp_path / "rows").mkdir()
    for number, part in enumerate((frame[:0], frame)):
        part.to_parquet(tmp_path / f"rows/{number}.parquet", index=True)
    options = ["--target", "label", "--epochs", "1", "--device", "cpu", "--test-size", "0.2", "--json"]
    options += ["--encoder", "tabular:paper"]
    result = RUN.invoke(app, ["train", str(tmp_path / "rows"), "-o", str(tmp_path / "model"), *options])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert len(frame) // 5 - 15 <= found["test"]["n"] < len(frame) // 5
    assert (tmp_path / "model").exists()


def test_the_dataset_is_described_and_what_is_wrong_is_named(folder: Path, tmp_path: Path) -> None:
    cases: list[tuple[list[str], list[str]]] = [
        ([], ["--target"]),
        (["--target", "lable"], ["'lable'"]),
        (["--target", "label", "--task", "ordered"], ["ordered", "numbers", "batches"]),
        (["--target", "label", "--order", "young,old"], ["--order"]),
        (["--target", "label", "--test-size", "0.99"], ["hold out fewer"]),
    ]
    for options, facts in cases:
        result = RUN.invoke(app, ["train", str(folder), "-o", str(tmp_path / "model"), *options])
        assert result.exit_code != 0
        assert named(result.output, *facts), result.output
    assert not (tmp_path / "model").exists()


def test_what_is_read_in_batches(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "photos" / "cat").mkdir(parents=True)
    (tmp_path / "photos" / "cat" / "1.png").write_bytes(b"")
    assert is_dataset(folder)
    assert is_dataset(f"{folder}/*.parquet")
    assert is_dataset("s3://bucket/rows/")
    assert not is_dataset(folder / "0.parquet")  # it fits into memory
    assert not is_dataset(tmp_path / "photos")
    assert not is_dataset("-")
    assert not is_dataset(folder, "csv")
    monkeypatch.setattr("dwac.reading.datasets.room", lambda: 1_000)
    assert is_dataset(folder / "0.parquet")
