"""One error rate everywhere: sets and intervals of one row are the same wherever they are shown, and say their ε."""

import inspect
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

import dwac.explain
import dwac.report
from dwac import DWACClassifier, DWACRegressor
from dwac.cli.app import app, command
from dwac.errors import EPSILON
from dwac.estimator.evaluation import predict
from dwac.explain.numbers import explain_numbers
from dwac.scoring.request import Request
from dwac.server.schemas import schemas_of
from dwac.tasks import class_target, label_target, number_target

RNG = np.random.default_rng(0)
X = pd.DataFrame(RNG.normal(size=(120, 2)), columns=["a", "b"])
X["noise"] = RNG.normal(size=120)
SIGNAL = X["a"] + X["noise"]
FAST: dict[str, Any] = {"epochs": 2, "random_state": 0, "device": "cpu", "verbose": False, "cross_fit": False}
TARGETS: dict[str, Any] = {
    "classes": np.where(SIGNAL > 0, "high", "low"),
    "ordered": pd.Categorical(np.digitize(SIGNAL, [-1, 0, 1]), ordered=True),
    "labels": [["a" if a > 0 else "c", *(["b"] if b > 0 else [])] for a, b in zip(X["a"], SIGNAL, strict=True)],
    "numbers": SIGNAL.to_numpy(),
}


@pytest.fixture(scope="module", params=TARGETS)
def model(request: pytest.FixtureRequest) -> Any:
    kind = DWACRegressor if request.param == "numbers" else DWACClassifier
    return kind(**FAST).fit(X[["a", "b"]], TARGETS[request.param])


@pytest.mark.filterwarnings("ignore::dwac.errors.CalibrationWarning")
@pytest.mark.parametrize("private", [False, True])
@pytest.mark.parametrize("epsilon", [None, 0.3])
def test_an_explanation_has_the_set_or_interval_of_the_prediction(model: Any, epsilon: Any, private: bool) -> None:
    rows, asked = X[["a", "b"]].head(3), {} if epsilon is None else {"epsilon": epsilon}
    found = model.explain(rows, private=private, **asked)
    frame = predict(model, rows, private=private).frame(**asked)
    for row, each in enumerate(found):
        facts = json.loads(json.dumps(each.to_dict()))
        assert facts["epsilon"] == (epsilon or EPSILON)
        share = "70 %" if epsilon else "95 %"
        if isinstance(model, DWACRegressor):
            assert facts["interval"] == pytest.approx([frame["lower"][row], frame["upper"][row]])
            said = f"{share} interval"
        else:
            assert facts["label_set"] == frame["set"][row]
            said = f"{share} prediction set"
        assert said in " ".join(each.sentences())
        assert said in each.to_html()
        assert said in each.to_text()
    if not private and not isinstance(model, DWACRegressor):
        assert [list(each.label_set) for each in found] == model.predict_set(rows, **asked, as_labels=True)


def test_a_row_that_cannot_be_read_has_no_set(model: Any) -> None:
    bad = X[["a", "b"]].head(1).astype(object)
    bad.iloc[0, 0] = "abc"
    rows = pd.concat([X[["a", "b"]].head(1), bad], ignore_index=True)
    if not isinstance(model, DWACRegressor):
        assert model.explain(rows)[1].label_set is None


@pytest.mark.parametrize(
    "asked",
    [
        DWACClassifier.predict_set,
        DWACClassifier.expected_sets,
        DWACClassifier.explain,
        DWACClassifier.explain_of,
        DWACRegressor.predict_interval,
        DWACRegressor.expected_intervals,
        DWACRegressor.explain,
        DWACRegressor.explain_of,
        dwac.explain.explain,
        explain_numbers,
        dwac.report.write,
        Request,
    ],
)
def test_the_library_has_one_default(asked: Callable[..., Any]) -> None:
    assert inspect.signature(asked).parameters["epsilon"].default == EPSILON


def test_commands_and_the_service_have_the_same() -> None:
    for name in ("train", "predict", "explain", "evaluate", "report", "score", "explore"):
        (option,) = (each for each in command(name).params if each.name == "epsilon")
        assert option.default == EPSILON, name
    names, table = np.array(["a", "b"]), np.eye(2)
    for target in (class_target(names), label_target(names, table), number_target(table, names.tolist(), single=False)):
        schemas = schemas_of(target)
        for asked in (schemas.ask, schemas.ask_why):
            assert asked.model_fields["epsilon"].default == EPSILON


def test_the_command_explains_with_the_set_that_it_predicts(tmp_path: Path) -> None:
    DWACClassifier(**FAST).fit(X[["a", "b"]], TARGETS["classes"]).save(tmp_path / "m")
    X[["a", "b"]].head(5).to_csv(tmp_path / "new.csv", index=False)
    words = [str(tmp_path / "m"), str(tmp_path / "new.csv"), "--json"]
    predicted, explained = (
        [json.loads(line) for line in CliRunner().invoke(app, [name, *words]).stdout.splitlines()]
        for name in ("predict", "explain")
    )
    assert [each["set"] for each in predicted] == [each["label_set"] for each in explained]
