"""The report on numbers and on several labels: one safe file, true numbers, nothing that does not apply."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import yaml

from dwac import DWACClassifier, metrics, report
from dwac.errors import InputError
from dwac.estimator import DWACRegressor
from dwac.estimator.evaluation import amount
from dwac.report import plots
from dwac.report.findings import LabelFindings, NumberFindings
from dwac.report.measures import percent
from tests.named import named, refuses
from tests.report.helpers import EVIL, Reader

pytestmark = [
    pytest.mark.usefixtures("undrawn"),  # test_first_page.py draws a report of each kind
    pytest.mark.filterwarnings("ignore:.*have no label at all:UserWarning"),
]

MOODS = ["happy", EVIL]


def table(n: int, seed: int) -> tuple[pd.DataFrame, Any]:
    """Rows, and numbers that follow from the first column."""
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame({"x": rng.normal(size=n), "noise": rng.normal(size=n)})
    frame["town"] = rng.choice(["Secretville", EVIL], n)
    frame.index = [f"row{seed}-{i}" for i in range(n)]
    return frame, (100 + 30 * frame["x"] + 5 * rng.normal(size=n)).to_numpy()


def moods(frame: pd.DataFrame) -> pd.DataFrame:
    return pd.DataFrame({MOODS[0]: (frame["x"] > 0) * 1, MOODS[1]: (frame["noise"] > 0.5) * 1})


@pytest.fixture(scope="module")
def of_amounts() -> DWACRegressor:
    return DWACRegressor(epochs=8, random_state=0, device="cpu").fit(*table(300, 0))


@pytest.fixture(scope="module")
def of_moods() -> DWACClassifier:
    X, _ = table(300, 0)
    return DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, moods(X))


def written(path: Path, model: Any, X: Any, y: Any, **options: Any) -> str:
    return report.write(model, X, y, path / "report.html", cases=1, k=3, **options).read_text()


def test_cards_of_numbers_and_of_several_labels_can_be_parsed_whatever_names_hold(
    of_amounts: DWACRegressor, of_moods: DWACClassifier, tmp_path: Path
) -> None:
    X, y = table(60, 1)
    for model, truth, measure in ((of_amounts, y, "absolute_error"), (of_moods, moods(X), "every_label_right")):
        card = report.write(model, X, truth, tmp_path / "card.md", by="town", epsilon=0.2, title=EVIL).read_text()
        fields = yaml.safe_load(card.split("---\n")[1])
        assert measure in fields["metrics"]
        assert fields["model-index"][0]["results"][1]["dataset"]["config"].startswith("town: ")
        assert "<" not in card.split("---\n")[2]


@pytest.mark.slow
def test_a_report_on_numbers_is_well_formed_and_says_what_was_measured(
    of_amounts: DWACRegressor, tmp_path: Path
) -> None:
    X, y = table(150, 1)
    page = written(tmp_path, of_amounts, X, y, unlike=X.assign(x=50.0), epsilon=0.1)
    shown = Reader(page)
    assert "<script" not in page
    text = " ".join("".join(shown.text).split())
    predicted, ends = of_amounts.predict(X), of_amounts.predict_interval(X, 0.1)
    for expected in (
        amount(float(np.sqrt(np.mean((predicted - y) ** 2)))),
        amount(float(np.mean(np.abs(predicted - y)))),
        amount(float(of_amounts.predict_distribution(X).crps(y).mean())),
        percent(metrics.interval_coverage(y, ends)).replace("\u00a0", " "),
        amount(metrics.interval_widths(ends).median),
        "predicting the mean",
        "size of the prediction",
        "least typical",
        "Out-of-distribution",
        "no map",
    ):
        assert expected in text, expected
    assert [a["id"] for a in shown.all("section")] == [
        "summary", "quality", "groups", "intervals", "quantiles", "decisions", "typicality", "columns", "cases",
        "worth", "model", "limits",
    ]  # fmt: skip
    assert len([a for a in shown.all("img") if a.get("alt", "")]) >= 4
    least = X.index[int(of_amounts.typicality(X).argmin())]
    assert least in text


def test_quantiles_of_good_votes_lie_on_the_line(of_amounts: DWACRegressor) -> None:
    X, y = table(400, 2)
    found = NumberFindings.of(of_amounts, X, y)
    asked = found.predictions.quantiles([0.25, 0.5, 0.75])[:, 0]
    shares = (y[:, None] <= asked).mean(axis=0)
    assert np.abs(shares - [0.25, 0.5, 0.75]).max() < 0.15
    drawn = plots.alone(plots.quantile_panel([0.25, 0.5, 0.75], [shares], ["this model"]))
    assert len(drawn.axes[0].lines) == 2


def test_the_largest_errors_are_explained_as_wrong(of_amounts: DWACRegressor) -> None:
    X, y = table(150, 1)
    y = y.copy()
    y[17] += 500
    found = NumberFindings.of(of_amounts, X, y)
    assert found.cases(2)["wrong"][0] == 17
    chosen = [row for rows in found.cases(3).values() for row in rows]
    assert len(set(chosen)) == len(chosen) == 9


@pytest.mark.slow
def test_several_numbers_are_reported_one_by_one(tmp_path: Path) -> None:
    X, y = table(200, 0)
    both = pd.DataFrame({"price": y, EVIL: X["noise"] * 2}, index=X.index)
    reg = DWACRegressor(epochs=2, random_state=0, device="cpu").fit(X, both)
    X, y = table(60, 1)
    page = written(tmp_path, reg, X, np.stack([y, X["noise"]], axis=1))
    assert named(Reader(page).words, "per number", "width of price")
    assert "<script" not in page


@pytest.mark.slow
def test_a_private_report_on_numbers_names_nobody(of_amounts: DWACRegressor, tmp_path: Path) -> None:
    X, y = table(150, 1)
    page = written(tmp_path, of_amounts, X, y, private=True)
    assert not re.search(r"row[01]-\d+", page)
    assert "Secretville" not in page
    assert named(page, "rounded outwards", "by range")
    Reader(page)


@pytest.mark.slow
def test_a_report_on_several_labels_shows_each(of_moods: DWACClassifier, tmp_path: Path) -> None:
    X, _ = table(150, 1)
    page = written(tmp_path, of_moods, X, moods(X), epsilon=0.1)
    shown = Reader(page)
    assert "<script" not in page
    text = " ".join("".join(shown.text).split())
    found = LabelFindings.of(of_moods, X, moods(X), epsilon=0.1)
    row: Any = found.result.by_label.set_index("label").loc["happy"]
    for expected in (
        f"{found.result.micro_f1:.3f}",
        f"{found.result.macro_f1:.3f}",
        percent(found.result.hamming_loss).replace("\u00a0", " "),
        percent(row["precision"]).replace("\u00a0", " "),
        "decided no",
        "sets miss",
        "no label",
        "no map",
    ):
        assert expected in text, expected
    assert [a["id"] for a in shown.all("section")] == [
        "summary", "quality", "groups", "calibration", "coverage", "decisions", "typicality", "columns", "cases",
        "worth", "model", "limits",
    ]  # fmt: skip


def test_wrong_cases_of_labels_are_the_most_wrong(of_moods: DWACClassifier) -> None:
    X, _ = table(150, 1)
    found = LabelFindings.of(of_moods, X, 1 - moods(X), epsilon=0.1)
    assert all(found.errors[row] == found.errors.max() for row in found.cases(3)["wrong"])
    assert all(found.errors[row] == 0 for row in found.cases(3)["typical"])


@pytest.mark.slow
def test_a_private_report_on_labels_names_nobody(of_moods: DWACClassifier, tmp_path: Path) -> None:
    X, _ = table(150, 1)
    page = written(tmp_path, of_moods, X, moods(X), private=True, epsilon=0.1)
    assert not re.search(r"row[01]-\d+", page)
    assert "Secretville" not in page
    Reader(page)


def test_labels_to_check_are_for_classes(of_amounts: DWACRegressor, tmp_path: Path) -> None:
    X, y = table(20, 1)
    with refuses(InputError, "numbers", "issues"):
        report.write(of_amounts, X, y, tmp_path / "r.html", issues=pd.DataFrame())


def test_without_calibration_the_report_has_no_intervals(tmp_path: Path) -> None:
    X, y = table(120, 0)
    bare = DWACRegressor(epochs=2, random_state=0, device="cpu", validation_size=0, calibration_size=0).fit(X, y)
    page = written(tmp_path, bare, *table(40, 1))
    sections = [a["id"] for a in Reader(page).all("section")]
    assert "quality" in sections
    assert named(page, "single case", "how far off")
    assert not {"intervals", "typicality"} & set(sections)
