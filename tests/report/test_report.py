"""The report: one safe file, true numbers, plain words; and training labels that look wrong."""

import ast
import hashlib
import io
import re
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2 import UndefinedError
from PIL import Image
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from dwac import DWACClassifier, ReferenceSet, Training, load, metrics, report
from dwac.cli.app import app
from dwac.drawing.pages import UNSEEN, templates
from dwac.drawing.picture import Picture
from dwac.drawing.records import data_url
from dwac.errors import CalibrationWarning, InputError, LabelError, StorageError
from dwac.estimator.out_of_fold import fold_classifiers
from dwac.explain import privacy
from dwac.kernels import KERNELS, get_kernel
from dwac.report import card, classes, parts, wrong_labels
from dwac.report.findings import ClassFindings
from dwac.report.measures import percent
from dwac.report.wrong_labels import votes_of_all
from tests.chance import usual
from tests.named import named, refuses, warns
from tests.report.helpers import CSS, EVIL, Reader, check_safe, facts, table

pytestmark = pytest.mark.usefixtures("few_steps")

# Models to report on


@pytest.fixture(scope="module")
def of_answers() -> DWACClassifier:
    return DWACClassifier(epochs=8, random_state=0, device="cpu").fit(*table())


@pytest.fixture(scope="module")
def page(of_answers: DWACClassifier, tmp_path_factory: pytest.TempPathFactory) -> str:
    X, y = table(200, seed=1)
    path = tmp_path_factory.mktemp("report") / "report.html"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Picture, "svg", lambda self: "<svg/>")  # a fixture of a module cannot use `undrawn`
        named_so: dict[str, Any] = {"unlike": X.assign(signal=80.0), "title": "A report", "cases": 2, "importance": 12}
        assert report.write(of_answers, X, y, path, **named_so) == path
    return path.read_text()


# What a page is made of


def test_the_report_is_one_safe_file_that_reads_well(page: str) -> None:
    reader = check_safe(page)
    assert page.startswith("<!doctype html>")
    assert reader.all("html")[0]["lang"] == "en"
    assert len(reader.all("h1")) == 1
    levels = [int(name[1]) for name, _ in reader.elements if re.fullmatch(r"h[1-6]", name)]
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert all(image["alt"] for image in reader.all("img"))
    assert len(reader.all("caption")) == len(reader.all("table"))
    anchors, names = {a["href"] for a in reader.all("a")}, {f"#{a['id']}" for a in reader.all("section")}
    assert anchors == names
    assert reader.all("details")
    assert not any("open" in a for a in reader.all("details"))  # cases and labels to check are folded
    ids = [a["id"] for _, a in reader.elements if "id" in a]
    assert len(ids) == len(set(ids))


@pytest.mark.slow
def test_the_report_is_the_same_every_time(of_answers: DWACClassifier, tmp_path: Path) -> None:
    X, y = table(60, seed=1)
    one, two = (report.write(of_answers, X, y, tmp_path / name).read_bytes() for name in "ab")
    assert one == two


def test_the_report_says_what_the_library_measures(of_answers: DWACClassifier, page: str) -> None:
    X, y = table(200, seed=1)
    text, codes = Reader(page).words, np.searchsorted(of_answers.classes_, y)
    assert f"Accuracy {100 * of_answers.score(X, y):.1f}".rstrip("0").rstrip(".") in text
    assert f"Calibration error {metrics.calibration_error(codes, of_answers.predict_proba(X)):.4f}" in text
    trust: Any = of_answers.conformal(X)
    assert f"Mean typicality {trust.typicality.mean():.3f}" in text
    covered = metrics.coverage(codes, trust.label_sets(0.1))
    assert f"0.1 90 % {percent(covered)}".replace("\u00a0", " ") in text
    assert f"{metrics.set_sizes(trust.label_sets(0.1)).mean:.2f}" in text
    for label in of_answers.classes_:
        share = metrics.coverage(codes[y == label], trust.label_sets(0.05)[y == label])
        assert re.search(rf"{label} {(y == label).sum()} .* {percent(share)}".replace("\u00a0", " "), text)


def test_the_report_decides_and_lists_strangers_as_the_model_does(of_answers: DWACClassifier, page: str) -> None:
    X, y = table(200, seed=1)
    text = Reader(page).words.partition("Decisions on the test examples")[2]
    for risk in (0.05, 0.1):
        decided = of_answers.decide(X, risk).decided
        wrong = int((of_answers.predict(X) != y)[decided].sum())
        shown = f"{decided.sum()} ({percent(decided.mean())}) {wrong} ({percent(wrong / decided.sum())})"
        assert f"{percent(risk)} {shown}".replace("\u00a0", " ") in text
    found = facts(page)
    with warns(CalibrationWarning, "25", "200"):  # too few calibration rows to find any
        assert len(of_answers.strangers(X)) == 0
    assert found["Strangers"][0] == "0 of 200"
    assert named(found["Strangers"][1], "25", "200")
    assert found["Strangers found"][0] == "200 of 200"  # all rows of the other kind


def test_each_number_has_a_sentence(page: str) -> None:
    found = facts(page)
    quality = {"Accuracy", "ROC AUC", "Macro F1", "Coverage at ε\u00a0=\u00a00.05", "Labels per prediction set"}
    trust = {"Calibration error", "Error of the top label", "Resolution", "Log loss"}
    trust |= {"Mean typicality", "Out-of-distribution"}
    data = {"Kind", "2 classes", "Training", "Validation", "Calibration", "Test"}
    model = {"Network", "Embedding", "Kernel", "Groups", "Settings"}
    assert quality | trust | data | model <= found.keys()
    for name, (value, meaning) in found.items():
        assert name
        assert value
        assert re.search(r"[.)]$", meaning), name


def test_predictions_are_explained_by_the_explanation_itself(of_answers: DWACClassifier, page: str) -> None:
    X, y = table(200, seed=1)
    found, text = ClassFindings.of(of_answers, X, y), Reader(page).words
    for rows in found.cases(2).values():
        for row in rows:
            (explained,) = of_answers.explain(X.iloc[[row]])
            assert f"Example {X.index[row]}: predicted {explained.label}" in text
            for sentence in explained.sentences():
                assert sentence in text
            for voter in explained.shown:
                assert str(voter.id) in text
            for group in () if explained.few_suffice else explained.shown_groups:
                assert f"{percent(group.share)} {group.size} {group.compared}".replace("\u00a0", " ") in text


def test_the_columns_that_decide_come_first(page: str) -> None:
    columns, cases = (page.partition(f'id="{name}">')[2].partition("</section>")[0] for name in ("columns", "cases"))
    assert re.findall(r'<th scope="row">(.*?)</th>', columns)[0] == "signal"
    assert len(re.findall("<img", columns)) == 3
    assert named(columns, "12 test examples", "from 200")
    first = cases.partition("<article")[2].partition("</article>")[0]
    why, votes = first.index("contribution to the log-odds of"), first.index("share of the vote")
    assert first.index("Predicted") < why < votes
    assert re.search(r'<th scope="row">signal</th>.*?\+[0-9.]+</span> <span class="track signed"', first, re.S)
    assert "It would be" in first[why:votes]


def test_cases_are_what_they_are_called(of_answers: DWACClassifier) -> None:
    X, y = table(400, seed=2)
    y[:6] = np.where(y[:6] == "yes", "no", "yes")
    found = ClassFindings.of(of_answers, X, y)
    chosen = found.cases(3)
    predicted = of_answers.predict(X)
    trust: Any = of_answers.conformal(X)
    assert all(predicted[row] == y[row] for row in chosen["typical"])
    assert {y[row] for row in chosen["typical"]} == {"yes", "no"}
    assert all(predicted[row] != y[row] for row in chosen["wrong"])
    surest = found.probability[chosen["wrong"]]
    assert surest.tolist() == sorted(found.probability[~found.right], reverse=True)[:3]
    assert not set(chosen["doubtful"]) & set(chosen["wrong"])
    others = np.setdiff1d(np.arange(len(y)), chosen["wrong"])
    assert trust.typicality[chosen["doubtful"][0]] == trust.typicality[others].min()
    assert trust.confidence[chosen["doubtful"][2]] <= np.sort(trust.confidence)[8]


# Groups


@pytest.mark.slow
def test_the_report_counts_groups_as_explanations_do(of_answers: DWACClassifier, page: str) -> None:
    X, y = table(200, seed=1)
    found, text = ClassFindings.of(of_answers, X, y), Reader(page).words
    explained = of_answers.explain(X)
    assert found.deciding is not None
    assert found.deciding.n == found.deciding.of == 200
    assert found.deciding.groups == np.median([e.deciding_groups for e in explained])
    assert found.deciding.voters == np.median([e.deciding for e in explained])
    shares = [sum(group.share for group in e.groups[:5]) for e in explained]
    assert found.deciding.share == pytest.approx(np.median(shares))
    groups = next(fact for fact in card.groups(found) if fact.value == f"{found.deciding.groups:g}")
    assert f"{groups.name} {groups.value} {groups.meaning}".replace("\u00a0", " ") in text
    assert named(groups.name, "Groups")
    assert named(groups.meaning, "median", 200)
    assert f"Share of the five heaviest {percent(found.deciding.share)}".replace("\u00a0", " ") in text


def test_the_largest_groups_of_each_class_are_shown_with_their_most_central_example(
    of_answers: DWACClassifier, page: str
) -> None:
    text, groups, described = Reader(page).words, of_answers.references_.groups, of_answers.descriptions_
    assert described is not None
    for code, name in enumerate(of_answers.classes_):
        mine = np.flatnonzero(groups.labels == code)
        for group in mine[np.argsort(-groups.sizes[mine], kind="stable")][:3]:
            central = of_answers.references_.ids[groups.representatives[group]]
            assert f"{name} {groups.sizes[group]:.0f} {described[group]} {central}" in text


def test_with_many_test_rows_a_sample_is_said_to_be_one(of_answers: DWACClassifier) -> None:
    X, y = table(250, seed=3)
    found = ClassFindings.of(of_answers, X, y)
    assert any(named(fact.meaning, 200, 250) for fact in card.groups(found))


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_condensed_model_says_how_many_represent_how_many_and_how_well(
    of_answers: DWACClassifier, tmp_path: Path
) -> None:
    few = of_answers.condense(12)
    known, total = few.agreement_, len(of_answers.references_)
    assert known is not None
    X, y = table(60, seed=1)
    text = check_safe(report.write(few, X, y, tmp_path / "a.html").read_text()).words
    assert text.count(f"Representatives 12 for {total} examples") == 2  # the model card, and the section on groups
    assert f"Training {total} examples" in text
    interval = f"between {percent(known.low)} and {percent(known.high)}".replace("\u00a0", " ")
    assert text.count(f"Agreement {percent(known.share)}".replace("\u00a0", " ")) == 2
    assert text.count(interval) >= 2
    assert card.GROUPS in text
    assert named(report.embedding_map(few).axes[0].get_title(), f"{total} training examples", 12)
    private = check_safe(report.write(few, X, y, tmp_path / "b.html", private=True).read_text()).words
    assert f"Representatives {privacy.count(12)} for {privacy.count(total):,} examples" in private
    assert f"Agreement {percent(privacy.agreement(known).share)}".replace("\u00a0", " ") in private
    assert card.GROUPS not in private


def test_rows_that_a_condensed_model_represents_are_known_again() -> None:
    X, y = table(300)
    few = DWACClassifier(epochs=1, random_state=0, device="cpu").fit(X[:200], y[:200]).condense(8)
    assert report.used_in_training(few, X.index, few.embed(X)).tolist() == [True] * 200 + [False] * 100


# The model card


def front(card: str) -> dict[str, Any]:
    """The front matter of a card, as YAML reads it."""
    found: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return found


def test_a_card_has_the_fields_that_others_read_and_the_results_by_group(
    of_answers: DWACClassifier, tmp_path: Path
) -> None:
    X, y = table(200, seed=1)
    data = tmp_path / "test: #1.csv"
    data.write_text("rows")
    told: dict[str, Any] = {"by": "town", "source": data, "purpose": "To: *test*", "licence": "apache-2.0"}
    card = report.write(of_answers, X, y, tmp_path / "README.md", title='A "card": #1', **told).read_text()
    fields, expected = front(card), of_answers.evaluate(X, y, by="town").groups.to_frame()
    assert (fields["license"], fields["library_name"]) == ("apache-2.0", "dwac")
    assert fields["pipeline_tag"] == "tabular-classification"
    (model,) = fields["model-index"]
    assert model["name"] == 'A "card": #1'
    names = [result["dataset"].get("config", "all") for result in model["results"]]
    assert names == ["all", "town: Hiddenham", "town: Secretville"]
    for name, result in zip(names, model["results"], strict=True):
        assert result["dataset"]["revision"] == hashlib.sha256(b"rows").hexdigest()
        lines = expected[expected["group"] == {"all": "all rows"}.get(name, name.removeprefix("town: "))]
        for metric in result["metrics"]:
            (line,) = lines[lines["measure"] == metric["name"]].to_dict("records")
            assert metric["value"] == pytest.approx(line["value"], rel=1e-5)
            assert metric["args"]["low"] == pytest.approx(line["low"], rel=1e-5)
    assert {"accuracy", "coverage", "typicality"} <= set(fields["metrics"])
    assert r"To: \*test\*" in card
    assert named(card, "Hiddenham", "Secretville", data.name.replace("#", r"\#"), hashlib.sha256(b"rows").hexdigest())


def test_a_card_says_what_is_not_known(of_answers: DWACClassifier, tmp_path: Path) -> None:
    place = 'models/{{ title }} {# "a" #}'
    card = report.write(of_answers, *table(60, seed=1), tmp_path / "card.md", place=place).read_text()
    (line,) = re.findall(r"dwac\.load\((.*)\)", card)
    assert ast.literal_eval(f"({line},)")[0] == place
    assert "Not stated" in card
    assert "No groups were compared" in card
    assert "license" not in front(card)
    assert len(front(card)["model-index"][0]["results"]) == 1


# Whatever the data hold


def test_nothing_in_the_data_becomes_html(tmp_path: Path) -> None:
    X, y = table(300)
    X = X.rename(columns={"signal": f"signal{EVIL}"}).assign(town=[f"{EVIL}{i % 3}" for i in range(300)])
    y = np.where(y == "yes", f"yes{EVIL}", f"no{EVIL}")
    X.index = pd.Index([f"{i}{EVIL}" for i in range(300)])
    clf = DWACClassifier(epochs=2, random_state=0, device="cpu").fit(X[:250], y[:250])
    path = report.write(clf, X[250:], y[250:], tmp_path / "r.html", title=EVIL + "\ud800", note=EVIL, cases=2)
    reader = check_safe(path.read_text())
    assert reader.words.count("<script>alert('x')</script>") > 20
    assert "\u202e" not in reader.words
    assert "\x00" not in reader.words


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
@pytest.mark.parametrize("encoder", ["text", "huggingface-like"])
def test_texts_cannot_break_out_either(encoder: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    texts = [f"{EVIL} good film {i}" if i % 2 else f"bad </p></article> film {i}" for i in range(120)]
    y = [("good" if i % 2 else "bad") for i in range(120)]
    clf = DWACClassifier("text", epochs=2, random_state=0, device="cpu").fit(texts[:100], y[:100])
    if encoder != "text":  # no attention to show: the text itself
        monkeypatch.setattr(clf.encoder_, "attention", lambda network, X: None)
    reader = check_safe(report.write(clf, texts[100:], y[100:], tmp_path / "r.html").read_text())
    shaded = [a for a in reader.all("span") if "--read" in (a.get("style") or "")]
    assert bool(shaded) == (encoder == "text")


PARAGRAPH = templates().from_string('<p title="{{ title }}">{{ text }}</p>')


@settings(max_examples=60, deadline=None)
@given(st.text(), st.text())
@pytest.mark.slow
def test_any_text_comes_back_as_the_text_it_was(text: str, attribute: str) -> None:
    page = PARAGRAPH.render(text=text, title=attribute)
    reader = Reader(page.encode("utf-8", "strict").decode())
    unseen = UNSEEN.sub("\ufffd", text)
    assert "".join(reader.text).replace("\r", "\n") == unseen.replace("\r", "\n")
    assert reader.all("p")[0]["title"] == UNSEEN.sub("\ufffd", attribute)


def test_a_value_that_a_template_lacks_is_an_error() -> None:
    with pytest.raises(UndefinedError, match="title"):
        templates().from_string("{{ title }}").render()
    with pytest.raises(UndefinedError):
        templates().from_string("{{ table.caption }}").render(table=object())


def test_a_large_picture_is_shown_small_and_a_broken_one_not_at_all() -> None:
    def png(width: int, height: int) -> bytes:
        file = io.BytesIO()
        noise = np.random.default_rng(0).integers(256, size=(height, width, 3), dtype=np.uint8)
        Image.fromarray(noise).save(file, "PNG")
        return file.getvalue()

    large, small = parts.picture({"image": png(900, 600)}, "large"), png(8, 8)
    assert large.src is not None
    assert len(large.src) < 20_000  # a page has up to 120
    assert parts.picture({"image": small}, "small").src == data_url(small)
    for broken in (png(900, 600)[:2000], b"\x89PNG\r\n\x1a\n" + b"\xff" * 100, b"\x89PNG\r\n\x1a\n"):
        assert parts.picture({"image": broken}, "broken").src is None


# What is kept back


@pytest.mark.usefixtures("undrawn")
def test_a_private_report_holds_labels_and_rounded_shares_alone(
    of_answers: DWACClassifier, page: str, tmp_path: Path
) -> None:
    X, y = table(200, seed=1)
    of_answers.save(tmp_path / "model", include_examples=False)
    kept = load(tmp_path / "model", device="cpu")
    shown = {
        "without records": report.write(kept, X, y, tmp_path / "a.html").read_text(),
        "asked for": report.write(of_answers, X, y, tmp_path / "b.html", private=True).read_text(),
    }
    assert "Secretville" in page
    for private in shown.values():
        text = check_safe(private).words
        assert "Secretville" not in private
        assert "Hiddenham" not in private
        assert len(Reader(private.partition('id="summary">')[2].partition("</section>")[0]).all("img")) == 3
        assert not re.search(r"row\d-", text)
        assert "share of the vote" in text
    assert "signal" not in Reader(shown["without records"]).words
    # Reasons name columns and rounded contributions, and no value of any row.
    why = shown["asked for"].partition('id="columns">')[2].partition('id="labels"')[0]
    assert re.search(r'<tr><th scope="row">signal</th><td><span class="share signed">\+\d+\.\d0</span>', why)
    assert "It would be" in why
    assert "→" not in why
    assert "signal" not in shown["asked for"].replace(why, "")


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_private_report_on_images_and_texts_shows_none(tmp_path: Path) -> None:
    digits = load_digits()
    images, y = digits.images[:300], digits.target[:300]
    clf = DWACClassifier(epochs=1, random_state=0, device="cpu").fit(images[:200], y[:200])
    test = (images[200:], y[200:], tmp_path / "r.html")
    assert "data:image/png" in report.write(clf, *test, ids=range(200, 300)).read_text()
    assert "data:image/png" not in report.write(clf, *test, ids=range(200, 300), private=True).read_text()


# Models that lack something


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_without_calibration_the_report_does_without_sets(tmp_path: Path) -> None:
    X, y = table(120)
    clf = DWACClassifier(epochs=1, validation_size=0, calibration_size=0, random_state=0, device="cpu").fit(X, y)
    reader = check_safe(report.write(clf, *table(50, seed=1), tmp_path / "r.html").read_text())
    text, sections = reader.words, {section.get("id") for section in reader.all("section")}
    assert {"calibration", "cases"} <= sections
    assert not {"coverage", "typicality"} & sections
    assert "recalibrate" in text
    assert "explained predictions" in text
    assert named(text, "always gives one answer")


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_calibration_by_class_is_reported_too(tmp_path: Path) -> None:
    clf = DWACClassifier(epochs=1, class_conditional=True, random_state=0, device="cpu").fit(*table())
    text = check_safe(report.write(clf, *table(80, seed=1), tmp_path / "r.html").read_text()).words
    assert "class_conditional=True" in text


@pytest.mark.usefixtures("undrawn")
def test_what_cannot_be_reported_on_is_refused_with_a_reason(of_answers: DWACClassifier, tmp_path: Path) -> None:
    X, y = table(50, seed=1)
    with refuses(LabelError, "'maybe'", "'no'", "'yes'"):
        report.write(of_answers, X, ["maybe"] * 50, tmp_path / "r.html")
    with refuses(StorageError, tmp_path / "no" / "r.html"):
        report.write(of_answers, X, y, tmp_path / "no" / "r.html", cases=0)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_model_of_20_000_references_has_a_report_under_3_mb(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    images = rng.integers(256, size=(140, 64, 64, 3), dtype=np.uint8)  # noise: nothing to compress
    clf = DWACClassifier("image:paper", training=Training(embedding_size=2), epochs=1, random_state=0, device="cpu")
    clf.fit(images[:100], np.arange(100) % 10)
    voters, labels = clf.references_.ids, rng.integers(10, size=20_000)
    many = ReferenceSet(rng.normal(size=(20_000, 2)), labels, ids=[*voters, *range(1000, 21_000 - len(voters))])
    monkeypatch.setattr(clf.model_, "references", many)
    suspects = pd.DataFrame({"id": voters[:60], "label": 0, "suggested": 1, "suggested_probability": 0.9})
    monkeypatch.setattr("dwac.report.findings.label_issues", lambda _: suspects)  # the real one takes minutes
    path = report.write(clf, images[100:], np.arange(40) % 10, tmp_path / "r.html", ids=range(100, 140))
    assert path.stat().st_size < 3e6
    assert "20,000 training examples" in check_safe(path.read_text()).words


# Rows that the model has met


def test_rows_of_training_are_known_again_and_others_with_their_numbers_are_not() -> None:
    X, y = table(300)
    X.index = pd.RangeIndex(300)
    clf = DWACClassifier(epochs=1, random_state=0, device="cpu").fit(X[:200], y[:200])
    met = report.used_in_training(clf, X.index, clf.embed(X))
    assert met.tolist() == [True] * 200 + [False] * 100
    others = table(200, seed=5)[0].set_axis(pd.RangeIndex(200))
    assert not report.used_in_training(clf, others.index, clf.embed(others)).any()


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_a_report_on_training_rows_says_so(of_answers: DWACClassifier, tmp_path: Path) -> None:
    text = Reader(report.write(of_answers, *table(), tmp_path / "r.html").read_text()).words
    assert re.search(r"Note: \d+ of the 400 test examples .* training", text)


# Labels that look wrong


def slow_leave_one_out(refs: ReferenceSet) -> Any:
    """A double loop in float64."""
    h, y = refs.embeddings.double(), refs.labels.numpy()
    votes = np.full((len(refs), refs.n_classes), -np.inf)
    for j in range(len(refs)):
        log_w = get_kernel(refs.kernel).log_weights((h - h[j]).square().sum(1)).numpy()
        for i in range(len(refs)):
            if i != j:
                votes[j, y[i]] = np.logaddexp(votes[j, y[i]], log_w[i] + np.log(refs.class_weights[y[i]]))
    return votes


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("scale", [0.01, 0.5, 2.0, 30.0, 1e4])
def test_leaving_one_out_is_exact_however_much_the_own_vote_weighs(kernel: str, scale: float) -> None:
    rng = np.random.default_rng(0)
    h = (rng.normal(size=(60, 3)) * scale).astype(np.float32)
    h[5] = h[6]  # duplicates vote for one another
    labels = np.append(rng.integers(3, size=59), 3)  # the last is alone in its class
    refs = ReferenceSet(h, labels, kernel=kernel, class_weights=[1.0, 5.0, 0.1, 2.0])
    found, wanted = report.leave_one_out(refs), slow_leave_one_out(refs)
    assert (np.isinf(found) == np.isinf(wanted)).all()
    finite = np.isfinite(wanted)
    assert np.allclose(found[finite], wanted[finite], rtol=1e-6, atol=5e-4)


def test_relabelled_examples_are_the_first_suspects(of_answers: DWACClassifier, tmp_path: Path) -> None:
    of_answers.save(tmp_path / "model")
    changed = load(tmp_path / "model", device="cpu")
    before = set(report.label_issues(changed)["id"])
    votes, refs = report.leave_one_out(changed.references_), changed.references_
    clear = [refs.ids[(votes[:, k] - votes[:, 1 - k]).argmax()] for k in (0, 1)]
    assert not before & set(clear)
    codes = refs.labels.numpy()[refs.voters.positions(clear)]
    refs.relabel(clear, 1 - codes)
    issues = report.label_issues(changed)
    assert set(clear) <= set(issues["id"][:2])
    row = issues.set_index("id").loc[clear[0]]
    assert row["label"] == changed.classes_[1 - codes[0]]
    assert row["suggested"] == changed.classes_[codes[0]]
    assert row["log_odds"] == pytest.approx(np.log(row["suggested_probability"] / row["probability"]), rel=1e-6)
    assert issues["probability"].is_monotonic_increasing
    assert (issues["wrong"] >= 0.5).all()
    assert (issues["log_odds"] > 0).all()


@pytest.mark.slow
def test_suspicious_labels_are_those_that_the_votes_of_all_others_make_noise() -> None:
    X, y = table(250)
    y = np.where(np.arange(250) % 12 == 0, np.where(y == "yes", "no", "yes"), y)
    clf = DWACClassifier(epochs=8, random_state=0, device="cpu").fit(X, y)
    refs = clf.references_
    h, labels, rows = refs.embeddings, refs.labels, torch.arange(len(refs))
    others = [ReferenceSet(h[rows != row], labels[rows != row], n_classes=2) for row in range(len(refs))]
    votes = [one.log_class_weights(h[row : row + 1])[0].numpy() for row, one in enumerate(others)]
    noise = report.label_noise(np.stack(votes), labels.numpy())
    suspects = report.label_issues(clf)
    assert len(suspects) > 0
    assert set(suspects["id"]) == set(refs.ids[noise.issues])
    assert suspects.attrs["judged"] == "in sample"
    assert suspects.attrs["checked"] == len(refs)


def test_without_suspects_there_are_columns_and_a_sentence() -> None:
    refs = ReferenceSet([[0.0], [0.1], [9.0], [9.1]], [0, 0, 1, 1])
    model: Any = SimpleNamespace(references_=refs, classes_=np.array(["a", "b"]))
    issues = report.label_issues(model)
    assert issues.empty
    assert list(issues.columns)[:3] == ["id", "label", "suggested"]
    sentence = classes.issues(SimpleNamespace(issues=issues, clf=model, count=int))  # type: ignore[arg-type]
    assert named(sentence, "4 training examples", wrong_labels.LEARNED)


def mislabelled() -> tuple[pd.DataFrame, Any, Any]:
    """Rows whose label is clear, some labels of which are wrong: rows, labels, and which."""
    X, y = table(480)
    X["signal"] += 4 * (y == "yes")
    wrong = np.arange(480) % 15 == 0
    return X, np.where(wrong, np.where(y == "yes", "no", "yes"), y), wrong


@pytest.mark.slow
def test_wrong_labels_are_found_out_of_fold_among_all_rows_given(tmp_path: Path) -> None:
    X, y, wrong = mislabelled()
    clf = DWACClassifier(epochs=15, random_state=0, device="cpu", checkpoint=tmp_path / "c").fit(X, y)
    (tmp_path / "c").unlink(missing_ok=True)
    before = clf.predict_proba(X)
    issues = report.label_issues(clf, X, y, folds=3)
    assert issues.attrs["judged"] == "out of fold"
    assert issues.attrs["checked"] == 480  # training, validation and calibration rows
    assert issues.attrs["folds"] == 3
    found = issues["id"].isin(X.index[wrong])
    assert found.mean() > 0.9
    assert found.sum() > 0.8 * wrong.sum()
    assert (issues["suggested"] != issues["label"]).all()
    assert (clf.predict_proba(X) == before).all()  # the model is as it was
    assert not (tmp_path / "c").exists()  # and its checkpoint is not written by others


def test_classifiers_that_saw_a_label_are_asked_without_its_own_vote() -> None:
    X, y, _ = mislabelled()
    clf = DWACClassifier(epochs=2, random_state=0, device="cpu")
    _, seen = votes_of_all(clf, X, y, 2)
    assert seen is not None
    codes = (y == "yes").astype(int)
    for inside, outside, other in fold_classifiers(clf, X, y, 2):
        voters = other.references_
        at_itself = float(voters.voters.log_weights_at(torch.zeros(1)).exp())
        for row, log_w in zip(outside[:20], other.log_class_weights(X.iloc[outside[:20]]), strict=True):
            if row in voters.ids:
                log_w[codes[row]] = np.log(np.exp(log_w[codes[row]]) - at_itself)
            assert seen[row] == pytest.approx(np.exp(log_w[codes[row]] - np.logaddexp.reduce(log_w)), abs=1e-4)
        assert set(voters.ids) <= set(outside)
        assert not set(inside) & set(outside)


def test_votes_out_of_fold_that_the_model_has_are_used(
    of_answers: DWACClassifier, monkeypatch: pytest.MonkeyPatch
) -> None:
    refs = of_answers.references_
    labels = refs.labels.numpy()
    votes = np.where(np.arange(2) == labels[:, None], 0.0, -9.0)
    votes[[3, 5]] = votes[[3, 5], ::-1]
    monkeypatch.setattr(DWACClassifier, "out_of_fold_", votes)
    issues = report.label_issues(of_answers)
    assert set(issues["id"]) == set(refs.ids[[3, 5]])
    assert issues.attrs["judged"] == "out of fold"
    assert set(report.label_issues(of_answers, rows=np.arange(5, 280))["id"]) == {refs.ids[5]}
    monkeypatch.setattr(DWACClassifier, "out_of_fold_", None)
    assert report.label_issues(of_answers).attrs["judged"] == "in sample"


@pytest.mark.usefixtures("all_steps")
@pytest.mark.slow
def test_a_cross_fitted_model_judges_labels_out_of_fold_at_no_cost() -> None:
    rng = np.random.default_rng(0)
    y = np.arange(500) % 2
    X, wrong = rng.normal(size=(500, 3)) + 2.5 * y[:, None], rng.choice(500, 40, replace=False)
    given = y.copy()
    given[wrong] = 1 - y[wrong]
    issues = report.label_issues(DWACClassifier(random_state=0, device="cpu").fit(X, given))
    assert issues.attrs["judged"] == "out of fold"
    found = set(issues["id"])
    assert len(found & set(wrong.tolist())) > 0.6 * len(wrong)
    assert len(found & set(wrong.tolist())) > 0.8 * len(found)


def test_y_and_rows_need_what_they_refer_to(of_answers: DWACClassifier) -> None:
    X, y = table(50)
    with refuses(InputError, "y", "X"):
        report.label_issues(of_answers, y=y)
    with refuses(InputError, "rows", "X"):
        report.label_issues(of_answers, X, y, rows=np.arange(3))
    with refuses(InputError, "folds", 2, 1):
        report.label_issues(of_answers, X, y, folds=1)


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_the_report_says_who_judged_the_labels(of_answers: DWACClassifier, page: str, tmp_path: Path) -> None:
    X, y = table(100, seed=1)
    issues = pd.DataFrame({"id": [9], "label": "no", "suggested": "yes", "suggested_probability": 0.9})
    issues.attrs.update(judged="out of fold", checked=700, folds=5)
    text = Reader(report.write(of_answers, X, y, tmp_path / "r.html", issues=issues).read_text()).words
    assert "1 of 700 training examples" in text
    assert wrong_labels.UNSEEN in text
    assert wrong_labels.LEARNED not in text
    assert wrong_labels.UNSEEN not in Reader(page).words


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_the_command_checks_labels_out_of_fold(tmp_path: Path) -> None:
    X, y, wrong = mislabelled()
    X.assign(label=y).to_csv(tmp_path / "train.csv", index_label="name")
    new, truth = table(60, seed=3)
    new.assign(label=truth).to_csv(tmp_path / "new.csv", index_label="name")
    model, page = str(tmp_path / "model"), tmp_path / "r.html"
    train = ["train", str(tmp_path / "train.csv"), "--target", "label", "--id", "name", "-o", model, "--epochs", "8"]
    assert CliRunner().invoke(app, [*train, "--seed", "0", "--device", "cpu"]).exit_code == 0
    asked = ["report", model, str(tmp_path / "new.csv"), "--check-labels", str(tmp_path / "train.csv")]
    made = CliRunner().invoke(app, [*asked, "-o", str(page), "--device", "cpu", "--epsilon", "0.2"])
    assert made.exit_code == 0, made.output
    text = Reader(page.read_text()).words
    assert wrong_labels.UNSEEN in text
    assert re.search(r"\d+ of 480 training examples", text)
    assert str(X.index[wrong][0]) in text


def test_a_table_without_rows_is_empty() -> None:
    assert parts.ReportTable.of("Nothing", [], [1]) == ("Nothing", [], [], [1], 0)


# Words


def coverage_sentence(coverage: float, advice: str | None = None) -> str:
    model = SimpleNamespace(calibration_y_=np.zeros(1000), class_conditional=False)
    found: Any = SimpleNamespace(
        result=SimpleNamespace(coverage=coverage, epsilon=0.1, advice=advice),
        clf=model,
        count=int,
        chance=lambda e: metrics.coverage_interval(e, 1000, 5000, 0.99),
    )
    return classes.coverage(found)


@pytest.mark.parametrize(
    ("coverage", "verdict"),
    [(0.5, "lower"), (0.895, "agrees"), (0.901, "met"), (0.99, "higher")],
)
def test_coverage_is_judged_against_chance(coverage: float, verdict: str) -> None:
    said = coverage_sentence(coverage)
    assert [word for word in ("lower", "agrees", "met", "higher") if named(said, word)] == [verdict]


@pytest.mark.parametrize("coverage", [0.895, 0.901])
def test_a_class_that_falls_short_is_named_though_the_target_is_met(coverage: float) -> None:
    assert coverage_sentence(coverage, "The rare class falls short").endswith(" The rare class falls short.")


def test_coverage_of_valid_sets_is_in_the_interval_in_99_of_100_draws() -> None:
    rng = np.random.default_rng(0)
    low, high = metrics.coverage_interval(0.1, 99, 300, 0.99) or (0, 0)
    n = 4000
    limits = np.sort(rng.random((n, 99)), axis=1)[:, 89]  # the 90th of 99 calibration scores
    covered = (rng.random((n, 300)) <= limits[:, None]).mean(axis=1)
    # 99.17 % are: either bound is reached once in 1e9 times.
    assert 0.98 < np.mean((covered >= low) & (covered <= high)) < 0.999
    assert metrics.coverage_interval(0.001, 99, 300, 0.99) is None


def calibration_sentence(y: Any, p: Any) -> str:
    right = p.argmax(axis=1) == y
    found: Any = SimpleNamespace(calibration=metrics.calibration_test(y, p), probability=p.max(axis=1), right=right)
    return classes.calibration(found)


def drawn(n: int, n_classes: int, power: float = 1.0) -> tuple[Any, Any]:
    """Labels as calibrated probabilities have them, and these probabilities to a power: above 1, too sure."""
    p = np.random.default_rng(n + n_classes).dirichlet(np.full(n_classes, 0.5), size=n)
    stated = p**power / (p**power).sum(axis=1, keepdims=True)
    return usual(p, stated, n), stated


@pytest.mark.parametrize("n_classes", [2, 5, 20])
@pytest.mark.parametrize("n", [60, 600])
def test_a_perfectly_calibrated_model_is_no_rough_guide_however_few_the_rows(n: int, n_classes: int) -> None:
    sentence = calibration_sentence(*drawn(n, n_classes))
    assert named(sentence, "no evidence")
    assert not named(sentence, "rough guide")


@pytest.mark.parametrize(("power", "how"), [(2.0, "overconfident"), (0.4, "underconfident")])
def test_miscalibration_beyond_chance_is_reported(power: float, how: str) -> None:
    sentence = calibration_sentence(*drawn(600, 5, power))
    assert named(sentence, how, "rough guide")
    assert not named(sentence, "no evidence")


def test_constant_base_rates_are_reported_as_uninformative() -> None:
    y = np.arange(600) % 20
    sentence = calibration_sentence(y, np.full((600, 20), 0.05))
    assert named(sentence, "nothing", "single example")
    assert not named(sentence, "at their word")


def test_the_page_does_not_call_a_training_example_new(page: str) -> None:
    assert wrong_labels.UNSEEN not in Reader(page).words
    assert wrong_labels.LEARNED in Reader(page).words


def luminance(colour: str) -> float:
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_everything_written_has_contrast_in_light_and_in_dark() -> None:
    themes = [
        dict(re.findall(r"--([\w-]+): (#[0-9a-f]+)", theme)) for theme in re.findall(r":root \{(.*?)\}", CSS, re.DOTALL)
    ]
    assert len(themes) == 2
    for theme in themes:
        colours = {
            name: value if len(value) == 7 else "#" + "".join(2 * c for c in value[1:]) for name, value in theme.items()
        }
        for above, below in (
            ("ink", "page"),
            ("ink", "card"),
            ("soft", "page"),
            ("soft", "card"),
            ("blue", "page"),
            ("ink", "mark"),
        ):
            a, b = sorted((luminance(colours[above]), luminance(colours[below])))
            assert (b + 0.05) / (a + 0.05) >= 4.5, (above, below)


# The command


def run(*arguments: Any) -> Any:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


@pytest.mark.usefixtures("undrawn")
def test_from_a_csv_to_a_report_in_two_commands(tmp_path: Path) -> None:
    X, y = table(300)
    X.assign(answer=y).to_csv(tmp_path / "people.csv", index=False)
    X.assign(signal=99.0).to_csv(tmp_path / "martians.csv", index=False)
    trained = run(
        "train", tmp_path / "people.csv", "-t", "answer", "-o", tmp_path / "m", "--test-size", 0.2, "--epochs", 2
    )
    assert trained.exit_code == 0, trained.output
    result = run(
        "report",
        tmp_path / "m",
        tmp_path / "people.csv",
        "-o",
        tmp_path / "r.html",
        "--unlike",
        tmp_path / "martians.csv",
    )
    assert result.exit_code == 0, result.output
    assert named(result.output, 240, 300)
    read = check_safe((tmp_path / "r.html").read_text()).words
    assert "Report on m" in read
    assert "Test 60 examples" in read
    assert "Out-of-distribution" in read


@pytest.mark.slow
@pytest.mark.usefixtures("undrawn")
def test_where_no_row_is_new_the_command_reports_on_calibration_rows_and_says_so(tmp_path: Path) -> None:
    X, y = table(300)
    X.assign(answer=y).to_csv(tmp_path / "people.csv", index=False)
    run("train", tmp_path / "people.csv", "-t", "answer", "-o", tmp_path / "m", "--epochs", 1)
    result = run("report", tmp_path / "m", tmp_path / "people.csv", "-o", tmp_path / "r.html")
    assert result.exit_code == 0, result.output
    assert named(result.output, "no row")
    assert named(Reader((tmp_path / "r.html").read_text()).words, "by construction")


def test_the_command_says_in_one_line_what_is_wrong(tmp_path: Path) -> None:
    result = run("report", tmp_path / "nothing", tmp_path / "people.csv")
    assert result.exit_code == 1
    assert len(result.output.strip().splitlines()) == 1
