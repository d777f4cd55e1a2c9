"""Private answers: the same on every surface, too coarse to tell who took part, and nothing of anybody in them."""

import csv
import io
import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from typer.testing import CliRunner

from dwac import DWACClassifier, ReferenceSet, load, report
from dwac.cli.app import app
from dwac.conformal import Calibration, label_sets, nonconformity
from dwac.estimator.evaluation import evaluate, predict
from dwac.explain import Explanation, explain, privacy
from dwac.metrics import ood_scores
from dwac.server import Limits, create_app
from dwac.server.explorer import Explorer, explorer_app
from tests.explain.helpers import ASKED, NUMBERS, UNSEEN, all_numbers, aurocs, held, moved, numbers, patients, truth
from tests.named import named
from tests.server.client import TOKEN, served

pytestmark = pytest.mark.usefixtures("few_steps")

K = 10
TRUST = ("confidence", "credibility", "typicality")
X = patients(400, 1, "patient")


@pytest.fixture(scope="module")
def clf() -> DWACClassifier:
    return DWACClassifier(epochs=30, random_state=0, device="cpu", verbose=False).fit(X, truth(X))


@pytest.fixture(scope="module")
def folder(clf: DWACClassifier, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return clf.save(tmp_path_factory.mktemp("private") / "model", include_examples=False)


@dataclass
class Groups:
    """Rows by what they were to the model."""

    training: pd.DataFrame
    calibration: pd.DataFrame
    unseen: pd.DataFrame


@pytest.fixture(scope="module")
def groups(clf: DWACClassifier) -> Groups:
    voters, calibration = X.loc[list(clf.references_.ids)[:ASKED]], X.loc[clf.calibration_ids_[:ASKED]]
    return Groups(voters, calibration, UNSEEN)


# What each surface says about rows: one JSON value per row


def json_rows(rows: pd.DataFrame) -> list[dict[str, Any]]:
    return [{str(name): value for name, value in row.items()} for row in rows.to_dict("records")]


def of_python(model: DWACClassifier, rows: pd.DataFrame) -> list[Any]:
    return [{"explain": e.to_dict(), "sentences": e.sentences()} for e in model.explain(rows, K)]


def of_predictions(model: DWACClassifier, rows: pd.DataFrame) -> list[Any]:
    predictions = predict(model, rows)
    frame = predictions.frame().drop(columns=["unknown", "unreadable"]).to_dict("records")
    return [{**row, "p": p} for row, p in zip(frame, predictions.probabilities.tolist(), strict=True)]


def of_service(model: DWACClassifier, rows: pd.DataFrame) -> list[Any]:
    asked = json_rows(rows)
    with served(create_app(model, limits=Limits(explained=ASKED))) as client:
        given = [
            client.post("/v1/predict", {"rows": asked}).json["predictions"],
            client.post("/v1/sets", {"rows": asked, "epsilon": 0.0437}).json["sets"],
            client.post("/v1/explain", {"rows": asked, "k": K}).json["explanations"],
        ]
        card = client.get("/v1/model").json
    return [{"predict": a, "sets": b, "explain": c, "card": card} for a, b, c in zip(*given, strict=True)]


def of_explorer(model: DWACClassifier, rows: pd.DataFrame) -> list[Any]:
    session = {"authorization": f"Bearer {TOKEN}", "x-session": "0123456789abcdef"}
    with served(explorer_app(Explorer.of(model, rows), token=TOKEN)) as client:

        def ask(path: str, body: Any = None) -> Any:
            answer = client.ask("GET" if body is None else "POST", f"/explorer/{path}", body, session)
            assert answer.status == 200, answer.body
            return answer

        columns = {
            name: np.frombuffer(ask(f"columns/{name}").body, dtype).astype(float).reshape(len(rows), -1).round(6)
            for name, dtype in {"xy": "<f4", "predicted": "<u2", "typicality": "<f4", "p_values": "<f8"}.items()
        }
        table = list(csv.DictReader(io.StringIO(ask("examples.csv").body.decode())))
        start = ask("start").json
        return [
            {
                "shown": ask(f"points/{row}?k={K}").json,
                "asked": ask("ask", {"row": asked, "k": K}).json,
                "columns": {name: column[row].tolist() for name, column in columns.items()},
                "table": {name: float(table[row][name]) for name in ("probability", *TRUST)},
                "start": {name: start[name] for name in ("n_references", "map", "card")},
            }
            for row, asked in enumerate(json_rows(rows))
        ]


def of_commands(folder: Path, rows: pd.DataFrame, place: Path) -> list[Any]:
    rows.rename_axis("who").to_csv(place / "rows.csv")
    given = []
    for words in (["predict", "--id", "who"], ["explain", "-k", str(K), "--id-column", "who"]):
        done = CliRunner().invoke(app, [words[0], str(folder), str(place / "rows.csv"), *words[1:], "--json"])
        assert done.exit_code == 0, done.output
        given.append([json.loads(line) for line in done.stdout.splitlines()])
    return [{"predict": a, "explain": b} for a, b in zip(*given, strict=True)]


SURFACES = ("python", "predictions", "service", "explorer", "commands")


def answers(surface: str, folder: Path, rows: pd.DataFrame, place: Path) -> list[Any]:
    if surface == "commands":
        return of_commands(folder, rows, place)
    ask = {"python": of_python, "predictions": of_predictions, "service": of_service, "explorer": of_explorer}[surface]
    return ask(load(folder, device="cpu"), rows)


# Who was among the training examples?


# All surfaces say the same, below: it is enough to ask one of them in every run.
@pytest.mark.parametrize(
    "surface", [SURFACES[0], *(pytest.param(each, marks=pytest.mark.slow) for each in SURFACES[1:])]
)
def test_no_number_reveals_membership(surface: str, folder: Path, groups: Groups, tmp_path: Path) -> None:
    given = {who: all_numbers(answers(surface, folder, rows, tmp_path)) for who, rows in vars(groups).items()}
    for who, rows in vars(groups).items():
        near = all_numbers(answers(surface, folder, moved(rows), tmp_path))
        for name, auroc in aurocs(given[who], near).items():
            assert abs(auroc - 0.5) < 0.05, (who, "near copies", name, auroc)
        # Row by row, too: hardly an answer changes where a row is moved a little, whoever it is.
        assert (given[who] != near.reindex(columns=given[who].columns)).any(axis=1).mean() <= 0.2
        for name, auroc in aurocs(given[who], given["unseen"]).items():
            # 100 rows of each, 80 that calibrate: a deviation of .043. Fewer than a hundred numbers are compared.
            assert abs(auroc - 0.5) < 0.25, (who, "new rows", name, auroc)


@pytest.mark.slow
def test_no_number_reveals_who_represents_others(clf: DWACClassifier, groups: Groups, tmp_path: Path) -> None:
    few = clf.condense(ASKED).save(tmp_path / "few", include_examples=False)
    model = load(few, device="cpu")
    representatives = set(model.references_.ids)
    others = [name for name in clf.references_.ids if name not in representatives][:ASKED]
    unseen = all_numbers(of_python(model, groups.unseen))
    for rows in (X.loc[sorted(representatives)[:ASKED]], X.loc[others], groups.calibration):
        answers = of_python(model, rows)
        given, near = all_numbers(answers), all_numbers(of_python(model, moved(rows)))
        for name, auroc in aurocs(given, near).items():
            assert abs(auroc - 0.5) < 0.05, ("near copies", name, auroc)
        assert (given != near.reindex(columns=given.columns)).any(axis=1).mean() <= 0.2
        for name, auroc in aurocs(given, unseen).items():
            assert abs(auroc - 0.5) < 0.25, ("new rows", name, auroc)
        for path, number in (found for row in answers for found in numbers(row)):
            assert abs(number * 100 - round(number * 100)) < 1e-9, (path, number)


@pytest.mark.slow
def test_a_network_that_memorised_its_training_rows_reveals_none() -> None:
    digits = load_digits()
    images, y = digits.images, digits.target
    clf = DWACClassifier(epochs=8, random_state=0, device="cpu", verbose=False).fit(images[:1200], y[:1200])
    rows = (images[np.array(clf.references_.ids[:400], dtype=int)], images[1200:1600])
    shown = [[{**e.to_dict(), "record": None} for e in clf.explain(X, private=True)] for X in rows]
    for name, auroc in aurocs(*map(all_numbers, shown)).items():
        assert abs(auroc - 0.5) < 0.15, (name, auroc)  # 7 deviations
    shares = [[e.neighbors[0].share for e in clf.explain(X, 1)] for X in rows]
    assert ood_scores(*shares).auroc > 0.85  # whereas the share of the nearest one alone tells most of them


def test_exact_answers_do_tell_them_apart(clf: DWACClassifier, groups: Groups) -> None:
    there, near = (
        pd.Series([e.neighbors[0].log_weight for e in clf.explain(rows, 1)])
        for rows in (groups.training, moved(groups.training))
    )
    assert ood_scores(there, near).auroc > 0.95  # so the test above can fail


@pytest.mark.parametrize("kind", ["weights", "probability"])
def test_a_calibration_row_does_not_tie_with_itself_alone(kind: str) -> None:
    votes = np.random.default_rng(0).normal(scale=3, size=(60, 2))
    beside = votes - [1e-5, 0.0]  # fits its label a little less
    calibration = Calibration(nonconformity(votes, kind)[:, 0])
    exact = [calibration.p_values(nonconformity(rows, kind))[:, 0] for rows in (votes, beside)]
    assert (exact[0] > exact[1]).all()
    given = [privacy.conformal(calibration, rows, kind).p_values[:, 0] for rows in (votes, beside)]
    assert (given[0] == given[1]).all()


# The same everywhere, and nothing else


def test_every_surface_gives_the_same_answer(clf: DWACClassifier, folder: Path, tmp_path: Path) -> None:
    rows = UNSEEN[:8]
    private = load(folder, device="cpu")
    asked: list[Any] = [
        {"explain": e.to_dict(), "sentences": e.sentences()} for e in clf.explain(rows, K, private=True)
    ]
    # What rows are compared by is not stored without the training rows: typicality is by the embedding alone.
    known = of_python(private, rows)
    assert [row["explain"]["probabilities"] for row in asked] == [row["explain"]["probabilities"] for row in known]
    given = {surface: answers(surface, folder, rows, tmp_path) for surface in SURFACES}
    for row, wanted in enumerate(known):
        why = wanted["explain"]
        service, page, command = (given[name][row] for name in ("service", "explorer", "commands"))
        assert json.loads(json.dumps(given["python"][row])) == json.loads(json.dumps(wanted))
        assert service["explain"] == page["asked"]["explanation"] == command["explain"] == why
        assert {**page["shown"]["explanation"], "record": why["record"]} == why
        assert page["shown"]["sentences"] == page["asked"]["sentences"] == wanted["sentences"]
        trust = {name: why[name] for name in TRUST}
        brief = {"label": why["label"], "probability": why["probability"], **trust}
        for answer in (service["predict"], command["predict"], given["predictions"][row]):
            assert {name: answer[name] for name in brief} == brief
        assert service["predict"]["probabilities"] == why["probabilities"]
        assert list(why["probabilities"].values()) == given["predictions"][row]["p"]
        assert service["sets"]["p_values"] == why["p_values"]
        assert page["columns"]["p_values"] == list(why["p_values"].values())
        assert page["columns"]["typicality"] == pytest.approx([why["typicality"]])
        assert page["table"] == {name: brief[name] for name in page["table"]}
        held = [label for label, p in why["p_values"].items() if p > 0.05]
        assert service["predict"]["label_set"] == command["predict"]["set"] == held


@pytest.mark.parametrize("surface", SURFACES)
def test_nothing_of_a_training_row_and_no_exact_number_leaves(surface: str, folder: Path, tmp_path: Path) -> None:
    given = answers(surface, folder, UNSEEN[:8], tmp_path)
    text = json.dumps(given)
    assert "patient" not in text
    for value in X[NUMBERS].to_numpy().ravel():
        assert f"{value:.5f}"[:-1] not in text
    for row in given:
        for path, number in numbers(row):
            assert abs(number * 100 - round(number * 100)) < 1e-9, (path, number)
    if surface != "predictions":
        for row in given:
            shown = row["shown"]["explanation"] if surface == "explorer" else row["explain"]
            assert {tuple(neighbor) for neighbor in shown["neighbors"]} == {("label", "share")}


def test_a_private_explanation_holds_no_more_than_it_tells(clf: DWACClassifier) -> None:
    for explanation in clf.explain(X[:5], K, private=True):
        texts = [str(explanation), explanation.to_html(), explanation.to_frame().to_json(), str(explanation.to_dict())]
        own = vars(explanation).pop("record")
        explanation.deciding, explanation.flip_size  # noqa: B018 - cached values are held too
        for path, value in held(explanation):
            assert not isinstance(value, torch.Tensor | np.ndarray | pd.DataFrame), path
            assert not (isinstance(value, float) and abs(value * 100 - round(value * 100)) > 1e-9), (path, value)
            assert "patient" not in str(value)
        assert own is not None
        for text in texts:
            assert "patient-0" not in text
            assert "distance" not in text


def test_every_field_of_a_private_explanation_is_chosen(clf: DWACClassifier) -> None:
    """A new field of an explanation must be thought of here, and in `_make_private` of `dwac.explain.classes`."""
    assert set(Explanation.__dataclass_fields__) == {
        "label", "probability", "probabilities", "neighbors", "n_references", "n_examples", "confidence", "credibility",
        "typicality", "p_values", "private", "record", "attention", "unreadable", "unknown", "agreement", "legend",
        "_votes", "_source", "_counts", "epsilon", "ordered", "_question",
    }  # fmt: skip
    private = clf.explain(X[:1], private=True)[0]
    assert private._votes is None
    assert private._source is None  # ids, records, descriptions and the training rows themselves
    assert private.agreement is None  # all vote; see test_groups for few
    assert private.groups == ()


def test_attention_is_rounded_too() -> None:
    refs = ReferenceSet([[0.0], [1.0]], [0, 1])
    shown = [{"record": {"text": "so so"}, "attention": (("so", 0.12345), ("so", 0.87655))}]
    assert explain(refs, [[0.2]], private=True, shown=shown)[0].attention == (("so", 0.12), ("so", 0.88))


# A model that is saved private


def test_a_private_model_stays_private_whatever_is_done_with_it(
    clf: DWACClassifier, folder: Path, tmp_path: Path
) -> None:
    model = load(folder, device="cpu")
    assert not clf.private_
    assert model.private_
    model.add_references(UNSEEN[:5], ["ill"] * 5)
    again = load(model.save(tmp_path / "again"), device="cpu")
    for private in (model, again):
        assert len(private.examples_) == 5
        assert private.explain(X[:1])[0].private
        assert predict(private, X[:1]).private
        assert Explorer.of(private).private
        with served(create_app(private)) as client:
            assert client.get("/v1/model").json["private"] is True
    assert not again.explain(X[:1], private=False)[0].private  # who has the folder may look
    assert not again.set_params(epochs=1).fit(X, truth(X)).private_


def test_a_private_rival_is_shown_as_private(clf: DWACClassifier, folder: Path) -> None:
    rival = load(folder, device="cpu")
    explorer = Explorer.of(clf, UNSEEN, rival=(rival, UNSEEN, "other"))
    assert not explorer.private
    answer = explorer.point("s", explorer.points.n_training, K)
    assert answer["explanation"]["private"] is False
    assert answer["rival"]["explanation"]["private"] is True


def test_a_private_map_has_places_in_whole_steps_and_no_training_example(clf: DWACClassifier) -> None:
    explorer = Explorer.of(clf, UNSEEN, private=True)
    xy = explorer.points.column("xy", explorer.first)
    assert xy.shape == (ASKED, 2)
    assert (xy == np.round(xy)).all()
    assert 20 < np.ptp(xy) < 400  # a map can still be read


@pytest.mark.usefixtures("undrawn")
def test_a_private_report_names_nobody(folder: Path, tmp_path: Path) -> None:
    page = report.write(load(folder, device="cpu"), UNSEEN, truth(UNSEEN), tmp_path / "r.html").read_text()
    text = re.sub(r"data:image/svg\+xml;base64,[\w+/=]+", "", page)
    assert "patient" not in text
    assert "visitor" not in text
    assert named(text, "private")
    assert 'id="map"' not in text
    assert named(text, "share of the vote")


# The grid


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40).filter(sum))
def test_rounded_shares_still_sum_to_one_and_keep_their_order(weights: list[float]) -> None:
    exact = np.array(weights) / np.sum(weights)
    rounded = privacy.shares(exact)
    assert rounded.sum() == pytest.approx(1)
    assert (np.abs(rounded - exact) < 0.01 + 1e-9).all()
    more = exact[:, None] > exact + 1e-9
    assert (rounded[:, None] >= rounded)[more].all()
    assert rounded[exact.argmax()] == rounded.max()
    assert rounded.tolist() == [round(value, 2) for value in rounded.tolist()]


@given(st.integers(1, 400), st.integers(0, 400), st.sampled_from([0.01, 0.05, 0.1, 0.2]))
def test_rounded_p_values_give_the_same_sets_up_to_ten_per_cent(n: int, above: int, epsilon: float) -> None:
    p = (min(above, n) + 1) / (n + 1)
    rounded = privacy.p_values([[p]])
    assert p - 1e-12 <= rounded[0, 0]
    if epsilon <= privacy.PLAIN and abs(p - epsilon) > 1e-12:
        assert label_sets(rounded, epsilon).item() == (p > epsilon)
    assert label_sets(rounded, epsilon).item() >= (p > epsilon + 1e-12)


@given(st.lists(st.floats(-700, 700), min_size=2, max_size=6), st.sampled_from(["weights", "probability"]))
def test_scores_on_the_grid_never_make_a_label_less_likely(votes: list[float], kind: str) -> None:
    calibration = Calibration(np.linspace(-1, 0, 50) if kind == "probability" else np.linspace(-700, 700, 50))
    exact = calibration.p_values(nonconformity([votes], kind))
    rounded = privacy.conformal(calibration, [votes], kind)
    assert (rounded.p_values >= exact - 1e-12).all()
    assert (rounded.credibility <= 1).all()


def test_private_sets_keep_their_coverage(clf: DWACClassifier, folder: Path) -> None:
    fresh = patients(2000, 3, "new")
    y = truth(fresh)
    exact, rounded = (evaluate(predict(clf, fresh, private=private), y) for private in (False, True))
    assert rounded.coverage is not None
    assert exact.coverage is not None
    assert rounded.coverage >= exact.coverage
    assert rounded.mean_set_size == pytest.approx(exact.mean_set_size, abs=0.25)
    assert rounded.accuracy == exact.accuracy
    assert rounded.log_loss == pytest.approx(exact.log_loss, abs=0.05)


@pytest.mark.parametrize(("n", "rounded"), [(0, 0), (7, 7), (99, 99), (101, 100), (1234, 1200), (99_999, 100_000)])
def test_counts_have_two_digits(n: int, rounded: int) -> None:
    assert privacy.count(n) == rounded
