"""Every command for every target: numbers, several labels, and labels in an order."""

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest
from rich.console import Console
from sklearn.datasets import load_diabetes, make_multilabel_classification
from sklearn.metrics import f1_score, hamming_loss, mean_absolute_error, root_mean_squared_error

import dwac
from dwac import metrics
from dwac.cli import explain as explaining
from dwac.cli import tasks
from dwac.cli.output import evaluation_tables
from dwac.reading import load, read
from dwac.tasks.classes import check_class_count
from tests.cli.helpers import error_line, run
from tests.named import named

# The command shows these as notes.
pytestmark = [
    pytest.mark.usefixtures("few_steps"),
    pytest.mark.filterwarnings("always:.*have no label at all:UserWarning"),
    pytest.mark.filterwarnings("always:.*were used in training:UserWarning"),
]

MOODS = ["happy", "calm", "sad"]
QUICK = ("--epochs", "3", "--ensemble-size", "1", "--device", "cpu")


def diabetes() -> pd.DataFrame:
    X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
    frame: pd.DataFrame = X[["age", "bmi", "bp", "s5"]].assign(progression=y.astype(int), change=y / 7 - 3)
    return frame


def songs() -> tuple[pd.DataFrame, Any]:
    """Songs, and which moods each has; some have none."""
    X, Y = make_multilabel_classification(360, 6, n_classes=3, random_state=0)
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(6)]), Y


def grades() -> pd.DataFrame:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(360, 2))
    code = np.digitize(x[:, 0] + 0.3 * rng.normal(size=360), [-0.7, 0.7])
    return pd.DataFrame(x, columns=["a", "b"]).assign(grade=np.array(["low", "mid", "high"])[code], stars=code + 1)


@pytest.fixture(scope="module")
def numbers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """patients.csv, new.csv, and model/, which learned how a disease progresses."""
    folder = tmp_path_factory.mktemp("numbers")
    frame = diabetes().drop(columns="change")
    frame.iloc[:330].to_csv(folder / "patients.csv", index=False)
    frame.iloc[330:].to_csv(folder / "new.csv", index=False)
    run("train", folder / "patients.csv", "-t", "progression", "-o", folder / "model", *QUICK)
    return folder


@pytest.fixture(scope="module")
def labels(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """songs.csv, new.csv, and model/, which learned their moods from three columns of 0 and 1."""
    folder = tmp_path_factory.mktemp("labels")
    X, Y = songs()
    frame = pd.concat([X, pd.DataFrame(Y, columns=MOODS)], axis=1)
    frame.iloc[:300].to_csv(folder / "songs.csv", index=False)
    frame.iloc[300:].to_csv(folder / "new.csv", index=False)
    targets = [word for mood in MOODS for word in ("-t", mood)]
    run("train", folder / "songs.csv", *targets, "-o", folder / "model", *QUICK)
    return folder


@pytest.fixture(scope="module")
def ordered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """grades.csv, new.csv, and model/, which learned grades that have an order."""
    folder = tmp_path_factory.mktemp("ordered")
    frame = grades().drop(columns="stars")
    frame.iloc[:300].to_csv(folder / "grades.csv", index=False)
    frame.iloc[300:].to_csv(folder / "new.csv", index=False)
    run("train", folder / "grades.csv", "-t", "grade", "--order", "low,mid,high", "-o", folder / "model", *QUICK)
    return folder


def frame_of(*words: Any) -> pd.DataFrame:
    return pd.read_csv(io.StringIO(run("predict", *words).stdout))


# train


def test_train_finds_numbers_and_says_how_to_have_another_task(numbers: Path, tmp_path: Path) -> None:
    words = ("train", numbers / "patients.csv", "-t", "progression", "-o", tmp_path / "m", *QUICK)
    shown = run(*words, "--test-size", "0.2").output
    for expected in ("numbers (", "different ones)", "--task classes|ordered|labels", "median",
                     "intervals from", "66 held-out rows", "RMSE", "CRPS", "coverage"):  # fmt: skip
        assert expected in shown
    assert isinstance(dwac.load(tmp_path / "m"), type(load(numbers / "model").clf))


def test_train_for_machines_says_the_task(numbers: Path, tmp_path: Path) -> None:
    words = ("train", numbers / "patients.csv", "-t", "progression", "-o", tmp_path / "m", *QUICK)
    facts = json.loads(run(*words, "--test-size", "30", "--json").stdout)
    assert facts["task"] == "numbers"
    assert facts["numbers"] == {"progression": [25.0, 346.0]}
    assert facts["test"]["n"] == 30
    assert facts["expected_intervals"]["epsilon"] == 0.05


def test_train_says_the_error_of_the_model_that_it_wrote(numbers: Path, tmp_path: Path) -> None:
    shown = run(
        "train", numbers / "patients.csv", "-t", "progression", "-o", tmp_path / "m", "--epochs", "1", "--seed", "1"
    ).output
    reg, rows = dwac.load(tmp_path / "m"), pd.read_csv(numbers / "patients.csv")
    held = rows.loc[reg.validation_ids_]
    wrong = root_mean_squared_error(held["progression"], reg.predict(held.drop(columns="progression")))
    assert named(shown, "validation rows", f"{wrong:.4g}")


@pytest.mark.parametrize(
    ("name", "words", "task"),
    [
        ("cells.csv", ["--task", "labels"], "several labels (as asked)"),
        ("lists.jsonl", [], "several labels (lists of labels)"),
    ],
)
def test_several_labels_are_read_from_cells_and_lists(
    labels: Path, tmp_path: Path, name: str, words: list[str], task: str
) -> None:
    X, Y = songs()
    lists = [[mood for mood, has in zip(MOODS, row, strict=True) if has] for row in Y[:300]]
    path = tmp_path / name
    if name.endswith("csv"):
        X[:300].assign(moods=["|".join(row) for row in lists]).to_csv(path, index=False)
    else:
        X[:300].assign(moods=pd.Series(lists)).to_json(path, orient="records", lines=True)
    shown = run("train", path, "-t", "moods", "-o", tmp_path / "m", *QUICK, *words)
    assert task in shown.output
    none = int((Y[:300].sum(axis=1) == 0).sum())
    assert named(shown.stderr, f"{none} of 300")
    model, table = load(tmp_path / "m"), load(labels / "model")
    assert sorted(model.clf.classes_) == sorted(table.clf.classes_)
    found = json.loads(run("evaluate", tmp_path / "m", path, "--json").stdout)
    assert found["without_label"] == none


def test_a_cross_fitted_model_of_several_labels_says_how_good_it_is() -> None:
    X, Y = songs()
    with pytest.warns(UserWarning, match="5 of 90 rows have no label at all"):
        clf = dwac.DWACClassifier(cross_fit=True, random_state=0, device="cpu").fit(X[:90], Y[:90])
    votes, outcomes = clf.out_of_fold_, clf.target_.outcomes.tolist()
    assert votes is not None
    right = []
    for row, code in zip(np.exp(votes), clf.references_.labels.tolist(), strict=True):
        shares = {m: sum(w for w, has in zip(row, outcomes, strict=True) if m in has) / row.sum() for m in range(3)}
        right.append({mood for mood, share in shares.items() if share >= 0.5} == set(outcomes[code]))
    assert named(tasks.out_of_fold_score(clf), f"{np.mean(right):.3f}")


def test_cells_with_several_labels_are_hinted_at(tmp_path: Path) -> None:
    X, Y = songs()
    moods = ["|".join(np.array(MOODS)[row > 0]) for row in Y]
    X.assign(moods=moods).to_csv(tmp_path / "a.csv", index=False)
    assert "--task labels" in error_line("train", tmp_path / "a.csv", "-t", "moods", "-o", tmp_path / "m")


@pytest.mark.parametrize(
    ("words", "facts"),
    [
        (["-t", "bmi", "-t", "work"], [0, 1, "numbers", "'work'", "'state'"]),
        (["-t", "work", "--task", "numbers"], ["a.csv line 2", "'work'", "number", "'state'"]),
        (["-t", "gap", "--task", "numbers"], ["a.csv line 5", "'gap'", "missing"]),
        (["-t", "endless"], ["a.csv line 6", "'endless'", "infinite"]),
        (["-t", "same", "--task", "numbers"], ["'same'", 3, "every row"]),
        (["-t", "bmi", "-t", "same"], ["'same'", 3, "every row"]),
        (["-t", "all", "-t", "none"], ["'all', 'none'", "some rows"]),
        (["-t", "yes", "-t", "age", "--task", "labels"], [0, 1, "'age'"]),
        (["-t", "age", "-t", "bmi", "--task", "classes"], ["classes", "one column"]),
        (["-t", "work", "--task", "ordered"], ["'work'", "--order"]),
        (["-t", "work", "--order", "state,free"], ["'work'", "'self'"]),
        (["-t", "work", "--order", "a,b", "--task", "numbers"], ["order", "numbers"]),
        (["-t", "bmi", "--class-conditional"], ["--class-conditional", "one label", "numbers"]),
        (["-t", "yes", "-t", "no", "--class-conditional"], ["--class-conditional", "one label"]),
    ],
)
def test_train_refuses_what_does_not_fit_the_task(tmp_path: Path, words: list[str], facts: list[object]) -> None:
    n = 120
    rng = np.random.default_rng(0)
    yes = rng.integers(2, size=n)
    frame = diabetes()[["age", "bmi"]].head(n)
    frame = frame.assign(work=["state", "self"] * (n // 2), yes=yes, no=1 - yes, same=3, all=1, none=0)
    frame["gap"] = ["" if i == 3 else "2.5" for i in range(n)]
    frame["endless"] = ["inf" if i == 4 else f"{i}.5" for i in range(n)]
    frame.to_csv(tmp_path / "a.csv", index=False)
    assert named(error_line("train", tmp_path / "a.csv", *words, "-o", tmp_path / "m"), *facts)
    assert not (tmp_path / "m").exists()


def test_an_unknown_task_is_wrong_usage(numbers: Path, tmp_path: Path) -> None:
    words = ("train", numbers / "patients.csv", "-t", "progression", "-o", tmp_path / "m", "--task", "regression")
    assert named(run(*words, ends=2).stderr, "classes", "ordered", "labels", "numbers")


@pytest.mark.slow
def test_several_numbers_are_trained_predicted_and_evaluated(tmp_path: Path) -> None:
    diabetes().to_csv(tmp_path / "a.csv", index=False)
    words = ("train", tmp_path / "a.csv", "-t", "progression", "-t", "change", "-o", tmp_path / "m", *QUICK)
    assert named(run(*words).output, "numbers (2 columns", "--task labels")
    frame = frame_of(tmp_path / "m", tmp_path / "a.csv", "-e", "0.2")
    assert [name for name in map(str, frame) if name.startswith(("pred", "lower"))] == [
        "prediction_progression", "lower_progression", "prediction_change", "lower_change"
    ]  # fmt: skip
    found = json.loads(run("evaluate", tmp_path / "m", tmp_path / "a.csv", "--json").stdout)
    assert [row["number"] for row in found["by_number"]] == ["progression", "change"]
    assert found["rmse"] is None  # the two have different units


# predict


def test_predicted_numbers_are_those_of_python(numbers: Path) -> None:
    model = load(numbers / "model")
    rows = read(numbers / "new.csv", like=model)
    frame = frame_of(numbers / "model", numbers / "new.csv", "-e", "0.2", "--quantiles", "0.1,0.9")
    assert list(frame.columns) == ["id", "prediction", "lower", "upper", "epsilon", "quantile_0.1", "quantile_0.9",
                                   "typicality", "unknown", "unreadable"]  # fmt: skip
    reg: Any = model.clf
    np.testing.assert_allclose(frame["prediction"], reg.predict(rows.X), rtol=1e-9)
    np.testing.assert_allclose(frame[["lower", "upper"]], reg.predict_interval(rows.X, 0.2), rtol=1e-9)
    np.testing.assert_allclose(frame[["quantile_0.1", "quantile_0.9"]], reg.predict_quantiles(rows.X, [0.1, 0.9]))
    np.testing.assert_allclose(frame["typicality"], reg.typicality(rows.X), atol=1e-12)


def test_private_numbers_are_rounded_and_intervals_outwards(numbers: Path) -> None:
    words = (numbers / "model", numbers / "new.csv", "-e", "0.2")
    exact, private = frame_of(*words), frame_of(*words, "--private")
    assert (private["lower"] <= exact["lower"]).all()
    assert (private["upper"] >= exact["upper"]).all()
    assert (private["prediction"] % 5 == 0).all()
    assert (private["prediction"] - exact["prediction"]).abs().max() <= 2.5


def test_predicted_labels_are_those_of_python(labels: Path, tmp_path: Path) -> None:
    model = load(labels / "model")
    rows = read(labels / "new.csv", like=model)
    clf: Any = model.clf
    lines = [
        json.loads(line)
        for line in run("predict", labels / "model", labels / "new.csv", "-e", "0.2", "--json").stdout.splitlines()
    ]
    sets, has, p = clf.predict_set(rows.X, 0.2), clf.predict(rows.X), clf.predict_proba(rows.X)
    decisions = clf.conformal(rows.X).decisions(0.2)
    words = {1: "yes", 0: "no", -1: "undecided"}
    for row, line in enumerate(lines):
        assert line["labels"] == [mood for mood, own in zip(MOODS, has[row], strict=True) if own]
        assert line["set"] == [mood for mood, own in zip(MOODS, sets[row], strict=True) if own]
        for place, mood in enumerate(MOODS):
            assert line[f"probability_{mood}"] == pytest.approx(p[row, place])
            assert line[f"decision_{mood}"] == words[decisions[row, place]]
    for name in ("a.csv", "a.parquet"):
        run("predict", labels / "model", labels / "new.csv", "-e", "0.2", "-o", tmp_path / name)
    assert pd.read_parquet(tmp_path / "a.parquet")["labels"].map(list).tolist() == [line["labels"] for line in lines]
    table = pd.read_csv(tmp_path / "a.csv", keep_default_na=False)
    assert table["labels"].tolist() == ["|".join(line["labels"]) for line in lines]


def test_sets_of_ordered_labels_have_no_gaps(ordered: Path) -> None:
    frame = frame_of(ordered / "model", ordered / "new.csv", "-e", "0.2")
    sets = set(frame["set"].fillna(""))
    assert sets <= {"", "low", "mid", "high", "low|mid", "mid|high", "low|mid|high"}
    assert load(ordered / "model").task == "ordered"


def test_quantiles_are_refused_where_there_are_none(labels: Path, numbers: Path) -> None:
    words = ("predict", labels / "model", labels / "new.csv", "--quantiles", "0.5")
    assert named(error_line(*words), "--quantiles", "numbers", "labels")
    words = ("predict", numbers / "model", numbers / "new.csv", "--quantiles", "50%")
    assert named(error_line(*words), "--quantiles", 0, 1)


def test_a_row_that_cannot_be_read_has_no_number_and_no_interval(numbers: Path, tmp_path: Path) -> None:
    frame = pd.read_csv(numbers / "new.csv").head(3).astype(object)
    frame.loc[1, "bmi"] = "heavy"
    frame.to_csv(tmp_path / "a.csv", index=False)
    shown = run("predict", numbers / "model", tmp_path / "a.csv", ends=3)
    assert named(shown.stderr, "1 of 3")
    found = pd.read_csv(io.StringIO(shown.stdout))
    assert found.loc[1, ["prediction", "lower", "upper", "typicality"]].isna().all()
    assert found.loc[[0, 2], ["prediction", "lower", "upper", "typicality"]].notna().all(axis=None)
    assert "bmi" in str(found.loc[1, "unreadable"])
    assert json.loads(run("evaluate", numbers / "model", tmp_path / "a.csv", "--json", ends=3).stdout)["n"] == 2


# evaluate


def test_evaluated_numbers_are_those_of_the_metrics(numbers: Path) -> None:
    model = load(numbers / "model")
    rows = read(numbers / "new.csv", like=model, labelled=True)
    found = json.loads(run("evaluate", numbers / "model", numbers / "new.csv", "-e", "0.2", "--json").stdout)
    reg: Any = model.clf
    predicted, ends = reg.predict(rows.X), reg.predict_interval(rows.X, 0.2)
    assert found["rmse"] == pytest.approx(root_mean_squared_error(rows.y, predicted))
    assert found["mae"] == pytest.approx(mean_absolute_error(rows.y, predicted))
    assert found["crps"] == pytest.approx(reg.predict_distribution(rows.X).crps(rows.y).mean())
    assert found["r2"] == pytest.approx(reg.score(rows.X, rows.y))
    assert found["coverage"] == metrics.interval_coverage(rows.y, ends)
    assert found["mean_width"] == pytest.approx(metrics.interval_widths(ends).mean)
    law = metrics.coverage_interval(0.2, len(reg.calibration_y_), len(rows), 0.99)
    assert law is not None
    assert found["coverage_range"] == pytest.approx(law)
    shown = run("evaluate", numbers / "model", numbers / "new.csv", "-e", "0.2").output
    for expected in ("RMSE", "MAE", "CRPS", "ε=0.2", "0.8", "mean width", *(f"{bound:.3f}" for bound in law)):
        assert expected in shown


def test_names_in_the_table_of_parts_break_between_words_only() -> None:
    names = ["label", "n", "precision", "recall", "f1", "calibration_error", "wrongly_told_no", "wrongly_told_yes"]
    parts = pd.DataFrame([("a", 5, *[0.5] * 7), ("quite a long label", 6, *[0.5] * 7)], columns=[*names, "undecided"])
    printed = io.StringIO()
    console = Console(width=80, file=printed)
    console.print(*evaluation_tables(cast(Any, SimpleNamespace(facts=[], cost_facts=[], parts=parts)), "")[1:])
    assert {"precision", "calibration", "wrongly", "undecided"} <= set(printed.getvalue().split())


def test_evaluated_labels_are_those_of_the_metrics(labels: Path) -> None:
    model = load(labels / "model")
    rows = read(labels / "new.csv", like=model, labelled=True)
    found = json.loads(run("evaluate", labels / "model", labels / "new.csv", "-e", "0.2", "--json").stdout)
    clf: Any = model.clf
    has, truth = clf.predict(rows.X), rows.y.to_numpy()
    assert found["micro_f1"] == pytest.approx(f1_score(truth, has, average="micro"))
    assert found["macro_f1"] == pytest.approx(f1_score(truth, has, average="macro"))
    assert found["hamming_loss"] == pytest.approx(hamming_loss(truth, has))
    assert found["subset_accuracy"] == pytest.approx(clf.score(rows.X, rows.y))
    told = metrics.decision_shares(truth, clf.conformal(rows.X).decisions(0.2))
    assert (found["wrong_of_having"], found["wrong_of_lacking"], found["undecided"]) == pytest.approx(told)
    assert found["missed_share"] == pytest.approx(metrics.missed_share(truth, clf.predict_set(rows.X, 0.2)))
    assert [row["label"] for row in found["by_label"]] == MOODS


def test_evaluated_order_says_how_far_off(ordered: Path) -> None:
    model = load(ordered / "model")
    rows = read(ordered / "new.csv", like=model, labelled=True)
    found = json.loads(run("evaluate", ordered / "model", ordered / "new.csv", "--json").stdout)
    place = {"low": 0, "mid": 1, "high": 2}
    clf: Any = model.clf
    assert clf.classes_.tolist() == list(place)
    truth = np.array([place[label] for label in rows.y])
    apart = np.abs(truth - [place[label] for label in clf.predict(rows.X)])
    assert found["mean_distance"] == pytest.approx(apart.mean())
    assert found["ranked_probability_score"] == pytest.approx(
        metrics.ranked_probability_score(truth, clf.predict_proba(rows.X))
    )
    assert "mean distance" in run("evaluate", ordered / "model", ordered / "new.csv").output


def test_a_label_that_training_did_not_have_is_named_with_its_line(tmp_path: Path) -> None:
    X, Y = songs()
    moods = ["|".join(np.array(MOODS)[row > 0]) for row in Y]
    X.assign(moods=moods).to_csv(tmp_path / "a.csv", index=False)
    run("train", tmp_path / "a.csv", "-t", "moods", "--task", "labels", "-o", tmp_path / "m", *QUICK)
    X[:2].assign(moods=["happy", "calm|bored"]).to_csv(tmp_path / "b.csv", index=False)
    line = error_line("evaluate", tmp_path / "m", tmp_path / "b.csv")
    assert named(line, "b.csv line 3", "'bored'", "'moods'")


# explain, condense, report


def test_explain_shows_the_numbers_of_voters(numbers: Path, tmp_path: Path) -> None:
    words = ("explain", numbers / "model", numbers / "new.csv", "--row", "3")
    model = load(numbers / "model")
    reg: Any = model.clf
    rows = read(numbers / "new.csv", like=model)
    (found,) = reg.explain(rows.X.iloc[[3]], k=3, epsilon=0.2)
    shown = " ".join(run(*words, "-k", "3", "-e", "0.2").output.split())
    assert found.sentences()[0] in shown
    assert json.loads(run(*words, "-k", "3", "-e", "0.2", "--json").stdout)["prediction"] == found.prediction
    assert "range" in run(*words, "--private").output
    run(*words, "--html", tmp_path / "why.html")
    assert "Predicted" in (tmp_path / "why.html").read_text()


def test_many_rows_are_explained_a_part_at_a_time(numbers: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ("explain", numbers / "model", numbers / "new.csv", "--json", *(w for r in range(4) for w in ("--row", r)))
    at_once = [json.loads(line) for line in run(*words).stdout.splitlines()]
    monkeypatch.setattr(explaining, "AT_ONCE", 3)
    in_parts = [json.loads(line) for line in run(*words).stdout.splitlines()]
    assert len(at_once) == len(in_parts) == 4
    for one, other in zip(at_once, in_parts, strict=True):
        assert other["prediction"] == pytest.approx(one["prediction"], rel=1e-5)
        assert [voter["id"] for voter in other["neighbors"]] == [voter["id"] for voter in one["neighbors"]]


def test_explain_shows_who_voted_on_each_label(labels: Path) -> None:
    words = ("explain", labels / "model", labels / "new.csv", "--row", "0")
    (line,) = frame_of(labels / "model", labels / "new.csv").head(1).to_dict("records")
    shown = run(*words).output
    for mood in MOODS:
        assert (f"votes on {mood}" in shown) == (mood in str(line["labels"]).split("|"))
    assert "95 % prediction set" in shown
    assert "80 % prediction set" in run(*words, "-e", "0.2").output


@pytest.mark.parametrize("kind", ["numbers", "labels"])
def test_condense_says_how_often_predictions_stay_the_same(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = request.getfixturevalue(kind)
    shown = run("condense", folder / "model", "-o", tmp_path / "m", "--size", "40").output
    assert named(shown, {"numbers": "the same number", "labels": "the same labels"}[kind])
    assert named(shown, "prediction sets") == (kind == "labels")
    assert len(frame_of(tmp_path / "m", folder / "new.csv")) > 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", ["numbers", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("labels", "ordered"))]
)
@pytest.mark.usefixtures("undrawn")
def test_report_is_written_for_every_target(kind: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    folder = request.getfixturevalue(kind)
    run("report", folder / "model", folder / "new.csv", "-o", tmp_path / "r.html", "--cases", "1", "-k", "2")
    page = (tmp_path / "r.html").read_text()
    expected = {"numbers": "Trust: quantiles", "labels": "Micro F1", "ordered": "in an order"}
    assert expected[kind] in page
    assert ('id="labels"' in page) == (kind == "ordered")
    if kind != "ordered":
        words = ("report", folder / "model", folder / "new.csv", "--check-labels", folder / "new.csv")
        assert named(error_line(*words), "--check-labels", "classes", kind)


def test_two_classes_for_every_three_rows_are_enough_for_the_command_as_for_the_library(tmp_path: Path) -> None:
    labels = [f"c{min(row, 19)}" for row in range(30)]
    pd.DataFrame({"x": np.arange(30) / 7, "kind": labels}).to_csv(tmp_path / "a.csv", index=False)
    rows = read(tmp_path / "a.csv", target="kind")
    tasks.check(rows, "a.csv")
    check_class_count(20, len(rows))
