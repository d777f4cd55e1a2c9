"""Files of any format, whole or in pieces, into shards: the answers of `dwac predict`, nothing lost, same bytes."""

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec.implementations.memory import MemoryFileSystem

from dwac.errors import InputError
from dwac.reading import layouts
from dwac.scoring import pieces
from dwac.scoring.run import prepare, score_files
from tests.cli.helpers import run
from tests.named import named, posix, refuses
from tests.scoring.conftest import people

Folders = Any
KEYS: dict[str, Any] = {"device": "cpu", "workers": 1}


def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Divide little data into many pieces; only in this process."""
    monkeypatch.setattr(layouts, "BLOCK", 1000)
    monkeypatch.setattr(pieces, "BLOCK", 1000)
    monkeypatch.setattr(pieces, "ROWS", 35)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def write(frame: pd.DataFrame, path: Path) -> None:
    kind = path.name.partition(".")[2]
    if kind == "parquet":
        frame.to_parquet(path, row_group_size=45)
    elif kind == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    elif kind == "jsonl.zst":
        with pa.CompressedOutputStream(str(path), "zstd") as stream:
            stream.write(frame.to_json(orient="records", lines=True).encode())
    elif kind == "csv.gz":
        path.write_bytes(gzip.compress(frame.to_csv(index=False).encode()))
    elif kind == "utf16.csv":
        path.write_bytes(frame.to_csv(index=False).encode("utf-16"))
    else:
        frame.to_csv(path, index=False, sep="\t" if kind == "tsv" else ";" if kind == "semicolons.csv" else ",")


NAMES = ("a.parquet", "b.csv", "c.tsv", "d.jsonl", "e.csv.gz", "f.jsonl.zst", "g.utf16.csv", "h.semicolons.csv")


def test_every_format_whole_or_divided_gives_the_answers_of_predict(
    folder_of: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    frame = people(125, seed=5)
    frame.loc[[3, 77], "pay"] = np.nan
    (tmp_path / "in").mkdir()
    for name in NAMES:
        write(frame, tmp_path / "in" / name)
    (tmp_path / "in" / "_SUCCESS").write_text("")
    run("predict", folder_of("classes"), tmp_path / "in" / "b.csv", "-o", tmp_path / "expected.parquet")
    expected = pd.read_parquet(tmp_path / "expected.parquet").drop(columns=["set", "epsilon", "unreadable"])
    found = score_files(folder_of("classes"), tmp_path / "in", tmp_path / "out", **KEYS)
    assert (found.rows, found.unreadable, found.failed) == (125 * len(NAMES), 0, [])
    answers = pd.read_parquet(tmp_path / "out").drop(columns=["set", "unreadable"])
    for file, part in answers.groupby("file", observed=True):
        rest = part.drop(columns="file").sort_values("id").reset_index(drop=True)
        pd.testing.assert_frame_equal(rest, expected, check_dtype=False, rtol=1e-9, obj=str(file))
    shards = pd.Series(sorted(path.name for path in (tmp_path / "out").glob("part-*")))
    divided = shards.str[5:10].astype(int).value_counts().sort_index()
    assert (divided[[0, 1, 2, 3, 7]] >= 3).all()
    assert (divided[[4, 5, 6]] == 1).all()  # compressed, or in bytes that cannot be divided


def test_rows_that_cannot_be_read_are_set_aside_with_the_reason(
    folder_of: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small_pieces(monkeypatch)
    good = 'age,pay,town,note\n30,0.5,a,"two\nlines"\n'
    filler = "31,0.25,8,x\n" * 200
    bad = b"1,2\n32,NA,a,x\n33,abc,a,x\n34,1,a,\xff\n35,1,a,x\n"
    (tmp_path / "rows.csv").write_bytes(good.encode() + filler.encode() + bad)
    shown = run("score", folder_of("classes"), tmp_path / "rows.csv", "-o", tmp_path / "out", "--workers", 1, ends=3)
    assert named(shown.stderr, "3 rows", "_unreadable")
    sides = [path.read_text() for path in sorted((tmp_path / "out/_unreadable").iterdir())]
    lines = [json.loads(line) for line in "".join(sides).splitlines()]
    assert [(line["row"], line["line"], line["text"]) for line in lines] == [
        (201, 204, "1,2"),
        (203, 206, "33,abc,a,x"),
        (204, 207, "34,1,a,\\xff"),
    ]
    reasons: list[list[Any]] = [["2 fields", 4], ["'pay'", "numbers", "'abc'"], ["0xff"]]
    for line, facts in zip(lines, reasons, strict=True):
        assert named(line["reason"], *facts)
    answers = pd.read_parquet(tmp_path / "out")
    assert answers["id"].tolist() == [*range(201), 202, 203, 205]
    assert answers["unreadable"].notna().sum() == 1
    (tmp_path / "rows.jsonl").write_text('{"age": 1, "pay": 2, "town": "a"}\n{"age":\n\n[1]\n')
    found = score_files(folder_of("classes"), tmp_path / "rows.jsonl", tmp_path / "json", **KEYS)
    assert (found.rows, found.unreadable) == (1, 2)
    mixed = [{"age": "30", "pay": 0.5, "town": 7}, {"age": 30, "pay": "0.5", "town": "7"}, {"pay": 1, "town": "a"}]
    (tmp_path / "mixed.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in mixed))
    found = score_files(folder_of("classes"), tmp_path / "mixed.jsonl", tmp_path / "mixed", rows=1, **KEYS)
    assert (found.rows, found.unreadable) == (3, 0)
    run("predict", folder_of("classes"), tmp_path / "mixed.jsonl", "-o", tmp_path / "mixed.parquet")
    both = [pd.read_parquet(path)["probability"] for path in (tmp_path / "mixed", tmp_path / "mixed.parquet")]
    np.testing.assert_allclose(both[0], both[1], rtol=1e-9)
    assert both[0][0] == both[0][1]
    (tmp_path / "empty.csv").write_text("age,pay,town\n")
    with refuses(InputError, "empty.csv", "rows"):
        score_files(folder_of("classes"), tmp_path / "empty.csv", tmp_path / "none", **KEYS)
    strict = score_files(folder_of("classes"), tmp_path / "rows.jsonl", tmp_path / "strict", strict=True, **KEYS)
    assert named(strict.failed[0].error, "line 2", "JSON")


def test_a_file_of_something_else_is_named_and_nothing_is_said_to_be_written(
    folder_of: Folders, tmp_path: Path
) -> None:
    (tmp_path / "other.csv").write_text("urteil;text\ngut;ja\n")
    shown = run("score", folder_of("classes"), tmp_path / "other.csv", "-o", tmp_path / "out", "--workers", 1, ends=1)
    assert named(shown.stderr, "other.csv", "1 of 1 pieces", "repair")
    assert "written" not in shown.stderr + shown.stdout


def test_damaged_files_and_other_schemas_lose_nothing_and_can_be_repaired(folder_of: Folders, tmp_path: Path) -> None:
    data, out, frame = tmp_path / "in", tmp_path / "out", people(40, seed=6)
    data.mkdir()
    for name in ("a", "b", "c", "d"):
        write(frame, data / f"{name}.parquet")
    whole = (data / "b.parquet").read_bytes()
    (data / "b.parquet").write_bytes(whole[: len(whole) // 2])
    write(frame.drop(columns="town"), data / "c.parquet")
    shown = run("score", folder_of("classes"), data, "-o", out, "--workers", 1, ends=1)
    assert named(shown.stderr, "b.parquet", "c.parquet", "missing: 'town'", "2 of 4 pieces", "repair")
    assert {path.name for path in out.glob("part-*")} == {"part-00000-00000.parquet", "part-00003-00000.parquet"}
    before = (out / "part-00000-00000.parquet").stat().st_mtime_ns
    for name in ("b", "c"):
        write(frame, data / f"{name}.parquet")
    shown = run("score", folder_of("classes"), data, "-o", out, "--workers", 1)
    assert named(shown.stderr, "4 pieces", "1 worker", "2 are done already")
    assert (out / "part-00000-00000.parquet").stat().st_mtime_ns == before
    run("score", folder_of("classes"), data, "-o", tmp_path / "fresh", "--workers", 1)
    assert contents(out) == contents(tmp_path / "fresh")
    write(people(41), data / "d.parquet")
    with refuses(InputError, "d.parquet"):
        score_files(folder_of("classes"), data, out, **KEYS)


def test_a_folder_that_holds_another_run_is_refused_and_says_what_differs(folder_of: Folders, tmp_path: Path) -> None:
    write(people(20), tmp_path / "a.csv")
    asked: dict[str, Any] = {**KEYS, "epsilon": 0.2}
    score_files(folder_of("classes"), tmp_path / "a.csv", tmp_path / "out", **asked)
    for model, data, options, why in (
        ("classes", "a.csv", {"epsilon": 0.1}, ["--epsilon", 0.2, 0.1]),
        ("labels", "a.csv", {}, ["model"]),
        ("classes", "*.csv", {}, ["new files", "b.csv"]),
    ):
        write(people(20), tmp_path / "b.csv")
        with refuses(InputError, "--overwrite", *why):
            score_files(folder_of(model), tmp_path / data, tmp_path / "out", **(asked | options))
    found = score_files(folder_of("classes"), tmp_path / "*.csv", tmp_path / "out", overwrite=True, **asked)
    assert found.rows == 40
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear …")
    with refuses(InputError, "other"):
        score_files(folder_of("classes"), tmp_path / "a.csv", tmp_path / "other", **asked)
    with refuses(InputError, "Parquet", "CSV", "TSV", "JSON Lines"):
        score_files(folder_of("classes"), tmp_path / "other", tmp_path / "new", **asked)
    with refuses(InputError, "-o"):
        score_files(folder_of("classes"), tmp_path / "a.csv", tmp_path / "b.csv", **asked)
    with refuses(InputError, "fsspec"):
        score_files(folder_of("classes"), "nowhere://a", tmp_path / "new", **asked)
    with refuses(InputError, "abacus", "local"):
        score_files(folder_of("classes"), tmp_path / "a.csv", tmp_path / "new", engine="abacus", **asked)


def test_ids_come_from_the_column_that_predict_takes(folder_of: Folders, tmp_path: Path) -> None:
    frame = people(12).assign(key=range(100, 112), code=[f"{i:03}" for i in range(12)])
    write(frame, tmp_path / "a.parquet")
    score_files(folder_of("classes"), tmp_path / "a.parquet", tmp_path / "whole", id="key", **KEYS)
    found = pd.read_parquet(tmp_path / "whole")
    assert found["id"].tolist() == list(range(100, 112))
    assert "file" not in found
    write(frame, tmp_path / "a.csv")
    score_files(folder_of("classes"), tmp_path / "a.csv", tmp_path / "text", id="code", **KEYS)
    assert pd.read_parquet(tmp_path / "text")["id"].tolist() == frame["code"].tolist()


def test_an_object_store_is_read_and_written(folder_of: Folders, tmp_path: Path) -> None:
    store = MemoryFileSystem()
    try:
        for name in ("x/a.csv", "x/b.csv"):
            with store.open(f"/store/in/{name}", "wb") as file:
                file.write(people(30).to_csv(index=False).encode())
        found = score_files(folder_of("classes"), "memory://store/in", "memory://store/out", **KEYS)
        assert found.rows == 60
        names = sorted(os.path.basename(path) for path in store.ls("/store/out", detail=False))
        assert names == ["_dwac.json", "part-00000-00000.parquet", "part-00001-00000.parquet"]
        with store.open("/store/out/part-00001-00000.parquet", "rb") as file:
            assert pq.read_table(file)["file"].unique().to_pylist() == ["x/b.csv"]
        store.rm("/store/out/part-00000-00000.parquet")
        assert len(prepare(folder_of("classes"), "memory://store/in", "memory://store/out", device="cpu").pending) == 1
    finally:
        store.rm("/store", recursive=True)


KILLED = """
import glob, os, signal
from dwac.cli import main
from dwac.scoring.task import Task

write = Task._write

def killed(*given):
    if len(glob.glob(f"{os.environ['OUT']}/part-*")) == 3:
        os.killpg(0, signal.SIGKILL)
    return write(*given)

Task._write = killed  # in the worker, too, which runs this file
if __name__ == "__main__":
    main()
"""


@pytest.mark.slow
@posix
def test_a_run_that_is_killed_goes_on_and_ends_with_the_same_bytes(folder_of: Folders, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(30):
        write(people(400, seed=number), tmp_path / "in" / f"{number:02}.parquet")
    out = tmp_path / "out"
    words = ["score", str(folder_of("classes")), str(tmp_path / "in"), "-o", str(out), "--device", "cpu"]
    (tmp_path / "main.py").write_text(KILLED)
    command = [sys.executable, str(tmp_path / "main.py"), *words, "--workers", "1"]
    environment = os.environ | {"OUT": str(out)}
    ended = subprocess.run(command, start_new_session=True, stderr=subprocess.DEVNULL, env=environment)
    assert ended.returncode == -signal.SIGKILL
    done = len(list(out.glob("part-*")))
    assert 0 < done < 30
    shown = run(*words, "--workers", 2)
    assert named(shown.stderr, "30 pieces", "2 workers", f"{done} {'is' if done == 1 else 'are'} done already")
    run(*words[:4], str(tmp_path / "fresh"), *words[5:], "--workers", 1)
    assert contents(out) == contents(tmp_path / "fresh")


def test_the_command_tells_programs_what_it_did(folder_of: Folders, tmp_path: Path) -> None:
    write(people(20), tmp_path / "a.csv")
    words = ("score", folder_of("numbers"), tmp_path / "a.csv", "-o", tmp_path / "out", "--quantiles", "0.1,0.9")
    told = json.loads(run(*words, "--voters", 1, "--workers", 1, "--json").stdout)
    assert (told["rows"], told["pieces"], told["failed"], told["unreadable"]) == (20, 1, [], 0)
    found = pq.read_table(tmp_path / "out")
    assert {"prediction", "lower", "upper", "quantile_0.1", "quantile_0.9", "voters"} <= set(found.column_names)


def test_a_file_replaced_in_the_life_of_a_process_is_read_anew(folder_of: Folders, tmp_path: Path) -> None:
    for columns in (["age", "pay", "town"], ["town", "pay", "age"]):
        people(20, seed=3)[columns].to_csv(tmp_path / "rows.csv", index=False)
        score_files(folder_of("classes"), tmp_path / "rows.csv", tmp_path / columns[0], **KEYS)
    both = [pd.read_parquet(tmp_path / name)["probability"] for name in ("age", "town")]
    assert both[0].tolist() == both[1].tolist()


def test_another_run_is_neither_cleared_nor_mixed_while_it_goes_on(folder_of: Folders, tmp_path: Path) -> None:
    for number in range(3):
        people(5).to_csv(tmp_path / f"{number}.csv", index=False)
    data, out = str(tmp_path / "*.csv"), tmp_path / "out"
    results = prepare(folder_of("classes"), data, out, device="cpu").results("local", 1)
    next(results)
    with refuses(InputError, "another", out, "new folder"):
        prepare(folder_of("classes"), data, out, device="cpu", epsilon=0.3, overwrite=True)
    assert len(list(results)) == 2
    assert len(list(out.glob("part-*"))) == 3


@posix
def test_linked_files_and_folders_are_scored_too(folder_of: Folders, tmp_path: Path) -> None:
    for folder in ("in", "elsewhere"):
        (tmp_path / folder).mkdir()
        people(5).to_csv(tmp_path / folder / "a.csv", index=False)
    (tmp_path / "in/b.csv").symlink_to(tmp_path / "elsewhere/a.csv")
    (tmp_path / "in/more").symlink_to(tmp_path / "elsewhere")
    assert score_files(folder_of("classes"), tmp_path / "in", tmp_path / "out", **KEYS).rows == 15


def test_a_damaged_first_file_does_not_change_the_ids_of_the_others(folder_of: Folders, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    for number in range(2):
        people(5).assign(key=np.arange(5) + 5 * number).to_parquet(tmp_path / f"in/{number}.parquet")
    whole = (tmp_path / "in/0.parquet").read_bytes()
    (tmp_path / "in/0.parquet").write_bytes(whole[:100])
    first = score_files(folder_of("classes"), tmp_path / "in", tmp_path / "out", id="key", **KEYS)
    assert len(first.failed) == 1
    (tmp_path / "in/0.parquet").write_bytes(whole)
    assert not score_files(folder_of("classes"), tmp_path / "in", tmp_path / "out", id="key", **KEYS).failed
    assert pd.read_parquet(tmp_path / "out")["id"].tolist() == list(range(10))


def test_lines_that_end_with_a_carriage_return_alone_are_refused(folder_of: Folders, tmp_path: Path) -> None:
    people(5).to_csv(tmp_path / "rows.csv", index=False, lineterminator="\r")
    people(5).to_csv(tmp_path / "sound.csv", index=False)
    found = score_files(folder_of("classes"), str(tmp_path / "*.csv"), tmp_path / "out", **KEYS)
    assert found.rows == 5
    assert named(found.failed, "carriage return")


def test_one_bad_cell_among_decimal_commas_spoils_its_own_row_alone(folder_of: Folders, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("age;pay;town\n" + "30;0,5;a\n" * 5 + "30;oops;a\n")
    found = score_files(folder_of("classes"), tmp_path / "rows.csv", tmp_path / "out", **KEYS)
    assert (found.rows, found.unreadable) == (6, 1)


def test_points_between_thousands_beside_decimal_commas_are_read(folder_of: Folders, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("age;pay;town\n" + "30;0,5;a\n30;1.234,5;a\n30;1.500;a\n30;1 234,5;a\n")
    found = score_files(folder_of("classes"), tmp_path / "rows.csv", tmp_path / "out", **KEYS)
    assert (found.rows, found.unreadable) == (4, 0)
