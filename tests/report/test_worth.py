"""The most and the least helpful examples, in the report: the right ones, with the exact effect of removing each."""

import hashlib
import re
from copy import copy
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dwac import DWACClassifier, DWACRegressor, load, report
from dwac.drawing.picture import Picture
from dwac.errors import InputError
from dwac.report.findings import ClassFindings, NumberFindings
from dwac.report.worth import columns_of_people, draw_judges, judges_of, points, worth_for, worth_section
from tests.named import named, refuses
from tests.report.helpers import Reader

QUICK: dict[str, Any] = {"epochs": 4, "random_state": 0, "device": "cpu", "cross_fit": False, "verbose": False}


def patients(n: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Two classes that follow a column; a tenth of the labels are wrong."""
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"dose": rng.normal(size=n), "sex": rng.choice(["f", "m"], n)})
    X["native-country"] = pd.Series(rng.choice(["here", "there"], n)).where(rng.random(n) < 0.9)
    X.index = pd.Index([f"p{seed}-{i}" for i in range(n)])
    return X, pd.Series(np.where((X["dose"] > 0) ^ (rng.random(n) < 0.1), "ill", "well"), index=X.index)


NEW, TRUE = patients(40, 1)


@pytest.fixture(scope="module")
def of_patients() -> DWACClassifier:
    return DWACClassifier(**QUICK).fit(*patients(120, 0))


@pytest.fixture(scope="module")
def page_on_worth(of_patients: DWACClassifier, tmp_path_factory: pytest.TempPathFactory) -> str:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Picture, "svg", lambda self: "<svg/>")  # words alone are read
        return report.write(of_patients, NEW, TRUE, tmp_path_factory.mktemp("worth") / "r.html", cases=0).read_text()


def cells(page: str) -> list[list[str]]:
    """The cells of the tables of this section, row by row."""
    part = page.split('<section id="worth">')[-1].split("</section>")[0]
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in re.findall(r"<tr>(.*?)</tr>", part)]
    return [[re.sub("<[^>]*>", "", cell).replace("&lt;", "<") for cell in row] for row in rows]


def test_the_ten_best_and_the_ten_worst_are_listed_with_what_removing_each_changes(
    of_patients, page_on_worth: str
) -> None:
    rows = {row[0]: row for row in cells(page_on_worth)}
    whole = of_patients.worth(NEW, TRUE)
    table, ranked = whole["worth"], whole["relative"].sort_values(ascending=False)
    codes = [of_patients.classes_.tolist().index(label) for label in TRUE]
    before = of_patients.predict_proba(NEW)[np.arange(40), codes].mean()
    listed = [name for name in rows if name in table.index]
    assert len(listed) == 20
    np.testing.assert_allclose(ranked[listed[:10]], ranked[:10], atol=0.02)
    np.testing.assert_allclose(ranked[listed[10:]], ranked[:-11:-1], atol=0.02)
    for name in (listed[0], listed[-1]):
        others = copy(of_patients.references_)
        others.remove([name])
        change = others.probabilities(of_patients.embed(NEW))[np.arange(40), codes].mean() - before
        assert float(rows[name][4].replace("−", "-")) == pytest.approx(100 * change, rel=0.06)
        assert float(rows[name][3].replace("−", "-")) == pytest.approx(ranked[name], abs=0.06)
        assert float(rows[name][2].split()[0].replace("−", "-")) == pytest.approx(
            100 * table[name], rel=0.02, abs=0.005
        )
        assert rows[name][1] == patients(120, 0)[1][name]
    text = " ".join("".join(Reader(page_on_worth).text).split())
    assert named(text, "40 test examples", int((table < 0).sum()))


def test_whose_data_carries_the_model_is_said_by_column(of_patients, page_on_worth: str, tmp_path: Path) -> None:
    assert columns_of_people(of_patients) == ["sex", "native-country"]
    assert {"f", "m", "here", "there", "missing"} <= {row[0] for row in cells(page_on_worth)}
    codes = np.array([of_patients.classes_.tolist().index(label) for label in TRUE])
    found = worth_for(of_patients, judges_of(of_patients, of_patients.embed(NEW), codes, np.full(40, -1)))
    groups = found.by("sex")
    assert groups["sum"].sum() == pytest.approx(found.together)
    assert groups["worth"].sum() == pytest.approx(found.together, abs=2e-3)
    others = copy(of_patients.references_)
    women = of_patients.references_.voters.ids[patients(120, 0)[0].loc[of_patients.references_.ids, "sex"] == "f"]
    others.remove(women.tolist())
    after = others.probabilities(of_patients.embed(NEW))[np.arange(40), codes].mean()
    assert groups.loc["f", "if_removed"] == pytest.approx(after - found.whole, abs=1e-6)
    section = worth_section(ClassFindings.of(of_patients, NEW, TRUE), by=["sex"])
    assert section is not None
    named = {row[0] for table in section.groups for row in table.rows}
    assert "f" in named
    assert "here" not in named
    with refuses(InputError, "by", "dose", "sex", "native-country", "'clinic'"):
        report.write(of_patients, NEW, TRUE, tmp_path / "r.html", by="clinic")


@pytest.mark.usefixtures("undrawn")
def test_a_report_can_be_filed_with_results_by_group_and_decisions_by_cost(of_patients, tmp_path: Path) -> None:
    of_patients.save(tmp_path / "model")
    clf, data = load(tmp_path / "model"), tmp_path / "new.csv"
    data.write_text("the rows")
    costs = {(clf.classes_[0], clf.classes_[1]): 4.0, (clf.classes_[1], clf.classes_[0]): 1.0}
    options: Any = {"by": ["sex"], "costs": costs, "source": data, "target": ["outcome"], "cases": 0}
    page = Reader(report.write(clf, NEW, TRUE, tmp_path / "r.html", **options).read_text()).words
    result = clf.evaluate(NEW, TRUE, by="sex", costs=costs)
    encoder: Any = clf.encoder_
    kinds = [f"{column.name} ({column.kind})" for column in encoder.columns]
    digest = hashlib.sha256(b"the rows").hexdigest()
    assert named(page, "outcome", "new.csv", digest, clf.fingerprint_, version("dwac"), *kinds)
    assert re.search(r"Date: \d{4}-\d\d-\d\d", page)
    for row in result.groups.to_frame().query("by == 'sex' and measure in ('accuracy', 'coverage')").to_dict("records"):
        assert f"{row['value']:.3f} ({row['low']:.3f} to {row['high']:.3f})" in page
    assert named(page, result.costs.rule, "0.8", "cost ratio")
    assert "By sex: whose data carries the model" in page


def test_a_private_report_names_nobody_who_helps_or_harms(of_patients) -> None:
    findings = ClassFindings.of(of_patients, NEW, TRUE, private=True, by="sex")
    assert worth_section(findings) is None
    assert findings.result.groups is not None
    assert findings.result.groups.private


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*an interval is finite only:dwac.errors.CalibrationWarning")
def test_errors_of_numbers_rise_without_those_who_help() -> None:
    X, _ = patients(90, 0)
    reg = DWACRegressor(**QUICK).fit(X, 10 * X["dose"])
    y = 10 * NEW["dose"]
    found = NumberFindings.of(reg, NEW, y)
    section = worth_section(found)
    assert section is not None
    rows = {row[0]: row for _, table in section.examples for row in table.rows}
    first = next(name for name in rows if name.startswith("p0-"))
    others = copy(reg.references_)
    others.remove([first])
    errors = [_error(reg, references, y) for references in (reg.references_, others)]
    assert float(rows[first][4].replace("−", "-")) == pytest.approx(100 * (errors[1] - errors[0]), rel=0.06)
    whole = worth_for(reg, judges_of(reg, found.h, found.truth, np.full(40, -1))).whole
    assert -whole == pytest.approx(errors[0], rel=1e-5)


def _error(reg: DWACRegressor, references: Any, y: Any) -> float:
    """The mean squared error of the voters' mean, in units of the variance."""
    shares = np.exp(references.voters.every_vote(reg.embed(NEW)))
    means = shares @ references.targets.numpy()[:, 0] / shares.sum(axis=1)
    return float((((means - y) / reg.target_.scale[1][0]) ** 2).mean())


def test_few_of_many_rows_judge_always_the_same() -> None:
    assert draw_judges(400, 1000).tolist() == list(range(400))
    many = draw_judges(10_000, 1000)
    assert len(np.unique(many)) == 500
    np.testing.assert_array_equal(many, draw_judges(10_000, 1000))
    assert [len(draw_judges(10_000, voters)) for voters in (20_000, 10**6)] == [250, 50]


def test_values_of_a_column_have_equal_digits() -> None:
    say = points([0.5, -0.001])
    assert [say(value) for value in (0.5, -0.001, 0.0, np.nan)] == ["+50.0", "−0.1", "0", "–"]
