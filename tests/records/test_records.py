"""The record of decisions: written once, read back, replayed bit for bit, and compared with an edited model."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from copy import copy
from io import StringIO
from pathlib import Path
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from scipy.special import softmax

import dwac
from dwac import records
from dwac.errors import IdError, InputError
from dwac.server import create_app
from tests.cli.helpers import error_line, run
from tests.scoring.conftest import people
from tests.server.client import served

FolderOf = Callable[[str], Path]
NEW = people(40, seed=1).assign(case=[f"c{i}" for i in range(40)])
X, IDS = NEW[["age", "pay", "town"]], NEW["case"].tolist()


def model(folder_of: FolderOf, kind: str = "classes") -> Any:
    return dwac.load(folder_of(kind), device="cpu")


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers", "two numbers"])
def test_recorded_decisions_are_computed_again_bit_for_bit(folder_of: FolderOf, tmp_path: Path, kind: str) -> None:
    clf = model(folder_of, kind)
    quantiles = (0.1, 0.9) if "number" in kind else ()
    for rows in (slice(0, 7), slice(7, 40)):
        records.record(tmp_path, clf, X[rows], IDS[rows], epsilon=0.2, quantiles=quantiles)
    records.record(tmp_path, clf, X, IDS, private=True, epsilon=0.2)
    result = records.replay(tmp_path, clf, X[::-1], IDS[::-1])
    assert result.same
    assert result.n == 80
    table = records.read(tmp_path)
    assert set(table["model"]) == {dwac.fingerprint(folder_of(kind))}
    assert table["time"].is_monotonic_increasing
    shares = [sum(group["share"] for group in groups) for groups in table["groups"][:40]]
    assert 0 < min(shares) <= max(shares) <= 1 + 1e-12


def test_a_changed_row_a_missing_row_and_another_answer_are_named(folder_of: FolderOf, tmp_path: Path) -> None:
    clf = model(folder_of)
    records.record(tmp_path, clf, X, IDS)
    other = X.assign(age=X["age"].where(X.index != 3, 17))
    result = records.replay(tmp_path, clf, other[:-1], IDS[:-1])
    assert (result.changed, result.missing, result.n, result.same) == (["c3"], ["c39"], 38, False)
    edited = model(folder_of).forget(["p0", "p1", "p2"])
    folder = edited.save(tmp_path / "edited")
    with pytest.raises(InputError, match="other_model=True"):
        records.replay(tmp_path, dwac.load(folder, device="cpu"), X, IDS)
    compared = records.replay(tmp_path, dwac.load(folder, device="cpu"), X, IDS, other_model=True)
    assert {"probability", "groups"} <= set(compared.differences["column"])
    with pytest.raises(InputError, match="save it"):
        records.record(tmp_path, edited, X, IDS)


def test_a_private_record_holds_neither_values_nor_voters(folder_of: FolderOf, tmp_path: Path) -> None:
    records.record(tmp_path, model(folder_of), X, IDS, private=True)
    table = records.read(tmp_path)
    assert table["groups"].isna().all()
    assert np.allclose(table["probability"], table["probability"].round(2))
    content = b"".join(path.read_bytes() for path in tmp_path.glob("*.parquet"))
    assert not any(f"p{i}".encode() in content for i in range(100, 160))


def test_a_row_has_the_same_hash_from_csv_and_json(folder_of: FolderOf, tmp_path: Path) -> None:
    NEW.to_csv(tmp_path / "new.csv", index=False)
    NEW.to_json(tmp_path / "new.jsonl", orient="records", lines=True)
    for form in ("csv", "jsonl"):
        run("predict", folder_of("classes"), tmp_path / f"new.{form}", "--id", "case", "--record", tmp_path / "record")
    run("score", folder_of("classes"), tmp_path / "new.csv", "-o", tmp_path / "out", "--id", "case", "--workers", "1",
        "--record", tmp_path / "record")  # fmt: skip
    assert "own" in error_line("score", folder_of("classes"), tmp_path / "new.csv", "-o", tmp_path / "out",
                               "--record", tmp_path / "out")  # fmt: skip
    table = records.read(tmp_path / "record")
    assert len(table) == 120
    assert len(table.drop_duplicates(["id", "row", "label", "probability"])) == table["row"].nunique() == 40
    shown = run("replay", tmp_path / "record", folder_of("classes"), tmp_path / "new.jsonl", "--id", "case")
    assert "120 decisions" in shown.stdout


def test_rows_without_ids_are_named_by_file_and_number(folder_of: FolderOf, tmp_path: Path) -> None:
    X.to_csv(tmp_path / "new.csv", index=False)
    run("predict", folder_of("classes"), tmp_path / "new.csv", "--record", tmp_path / "record")
    run("score", folder_of("classes"), tmp_path / "new.csv", "-o", tmp_path / "out", "--workers", "1",
        "--record", tmp_path / "record")  # fmt: skip
    assert set(records.read(tmp_path / "record")["id"]) == {f"new.csv:{i}" for i in range(40)}
    X.assign(age=X["age"] + 1).to_csv(tmp_path / "new.csv", index=False)
    shown = run("replay", tmp_path / "record", folder_of("classes"), tmp_path / "new.csv", "--json", ends=1)
    assert '"new.csv:0"' in shown.stdout


def test_several_writers_append_and_overrides_concern_the_latest_decision(folder_of: FolderOf, tmp_path: Path) -> None:
    clf = model(folder_of)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda i: records.record(tmp_path, clf, X[i : i + 1], IDS[i : i + 1]), range(12)))
    before = {path: path.read_bytes() for path in tmp_path.glob("*.parquet")}
    records.override(tmp_path, "c4", "Dr Lee", "old", "a second reading")
    records.override(tmp_path, "c4", "Dr Roe", "young", "a third reading")
    records.record(tmp_path, clf, X[4:5], ["c4"])
    assert {path: path.read_bytes() for path in before} == before
    table = records.read(tmp_path)
    assert len(table) == 13
    assert table["overridden_by"].dropna().tolist() == ["Dr Roe"]
    assert table.loc[table["overridden_by"].notna(), "id"].tolist() == ["c4"]
    assert table["overridden_by"].iloc[-1] is None
    with pytest.raises(IdError, match="c99"):
        records.override(tmp_path, "c99", "Dr Lee", "old", "")


@pytest.mark.parametrize("kind", ["classes", "labels", "numbers"])
def test_impact_equals_predicting_with_the_edited_model(folder_of: FolderOf, tmp_path: Path, kind: str) -> None:
    clf = model(folder_of, kind)
    rows = people(300, seed=2)[["age", "pay", "town"]]
    records.record(tmp_path, clf, rows, epsilon=0.2)
    voters = clf.references_.ids.tolist()
    gone, wrong = voters[:25], voters[25:45]
    y: Any = {"classes": "old", "labels": [1, 0], "numbers": 90.0}[kind]
    edited = copy(clf).relabel(wrong, [y] * len(wrong)).forget(gone)
    before, after = clf.predict(rows), edited.predict(rows)
    touched = np.flatnonzero((before != after).reshape(300, -1).any(axis=1))
    assert len(touched)
    result = records.impact(tmp_path, clf, rows, forget=gone, relabel=dict.fromkeys(wrong, y))
    assert result.n == 300
    assert result.decisions["id"].tolist() == [str(row) for row in touched]
    if kind == "labels":
        assert result.decisions["after"].tolist() == [
            [name for name, has in zip(clf.classes_, row, strict=True) if has] for row in after[touched]
        ]
    else:
        assert result.decisions["after"].tolist() == after[touched].tolist()
    assert clf.references_.ids.tolist() == voters


def test_the_ledger_sums_shares_of_votes_over_decisions(folder_of: FolderOf, tmp_path: Path) -> None:
    clf = model(folder_of)
    records.record(tmp_path, clf, X, IDS)
    table = records.ledger(tmp_path, clf, X, IDS, by="town").set_index("source")
    towns = clf.fitted_.examples.rows(clf.references_.ids)["town"].astype(str).to_numpy()
    shares = softmax(np.asarray(clf.references_.voters.every_vote(clf.embed(X))), axis=1).sum(axis=0)
    assert table["decisions"].sum() == pytest.approx(40)
    assert table["decisions"].to_dict() == pytest.approx({town: shares[towns == town].sum() for town in set(towns)})
    few = dwac.load(clf.condense(12).save(tmp_path / "few", include_members=True), device="cpu")
    records.record(tmp_path / "few record", few, X, IDS)
    shared = records.ledger(tmp_path / "few record", few, X, IDS, by="town").set_index("source")["decisions"]
    votes = softmax(np.asarray(few.references_.voters.every_vote(few.embed(X))), axis=1).sum(axis=0)
    leaves = cast(dwac.ReferenceSet, few.references_.members).groups.leaves
    each = (votes / np.bincount(leaves))[leaves]
    assert shared.to_dict() == pytest.approx({town: each[towns == town].sum() for town in set(towns)})
    half = dict.fromkeys(clf.references_.ids[::2].tolist(), "ann")
    assert set(records.ledger(tmp_path, clf, X, IDS, by=half)["source"]) == {"ann", "unknown"}
    with pytest.raises(InputError, match="clinic"):
        records.ledger(tmp_path, clf, X, IDS, by="clinic")


def test_the_commands_say_who_is_touched_and_who_contributed(folder_of: FolderOf, tmp_path: Path) -> None:
    NEW.to_csv(tmp_path / "new.csv", index=False)
    words = tmp_path / "record", folder_of("classes"), tmp_path / "new.csv", "--id", "case"
    run("predict", *words[1:], "--record", words[0])
    clf = model(folder_of)
    labels, wrong = clf.predict(X), [f"--relabel={name}=old" for name in clf.references_.ids]
    shown = run("impact", *words, *wrong, "-o", tmp_path / "touched.csv")
    touched = pd.read_csv(tmp_path / "touched.csv")
    assert touched["id"].tolist() == [name for name, label in zip(IDS, labels, strict=True) if label == "young"]
    assert f"{len(touched)} of 40" in shown.stdout
    assert "'middle'" in run("impact", *words, "--relabel", "p1=middle", ends=1).stderr
    table = pd.read_csv(StringIO(run("ledger", *words, "--by", "town").stdout))
    assert set(table["source"]) == {"7", "8", "a"}
    assert table["decisions"].sum() == pytest.approx(40)


def test_the_service_gives_each_answer_with_the_id_of_its_record(folder_of: FolderOf, tmp_path: Path) -> None:
    clf, rows = model(folder_of), [*X[:3].to_dict("records"), {"age": 3}]
    with served(create_app(clf, record=str(tmp_path / "record"))) as client:
        told = client.post("/v1/predict", {"rows": rows}).json
        *ids, nothing = told["decisions"]
        assert nothing is None
        table = records.read(tmp_path / "record").set_index("id")
        assert [each["label"] for each in told["predictions"][:3]] == table.loc[ids, "label"].tolist()
        told = client.post("/v1/decide", {"rows": rows, "risk": 0.2}).json
        decided = clf.decide(X[:3], 0.2)
        assert [each["decided"] for each in told["decided"]] == [*decided.decided.tolist(), False]
        assert [each["expected_loss"] for each in told["decided"][:3]] == decided.expected.tolist()
        assert told["decided"][3]["why"] == told["decided"][3]["unreadable"]
        assert told["rule"]["sentence"] == str(decided.rule)
        table = records.read(tmp_path / "record").set_index("id")
        assert table.loc[told["decisions"][:3], "decided"].tolist() == decided.decided.tolist()
        ids += told["decisions"][:3]
        (tmp_path / "record").rename(tmp_path / "moved")
        (tmp_path / "record").write_text("a file, so that nothing can be written")
        refused = client.post("/v1/sets", {"rows": rows})
        assert (refused.status, refused.json["error"]["code"]) == (503, "unrecorded")
    assert records.replay(tmp_path / "moved", clf, pd.concat([X[:3], X[:3]]), ids).same
