# mypy: disallow-untyped-calls, disallow-untyped-defs, disallow-incomplete-defs, disallow-any-unimported
"""A user's own program is typed: mypy, strict, finds the types below; and no public function is without them."""

import inspect
from pathlib import Path
from types import ModuleType
from typing import Any, assert_type

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

import dwac
from dwac import DWACClassifier, DWACRegressor, Explanation, ReferenceSet
from dwac.conformal import Calibration, ConformalPrediction
from dwac.explain import Explanations, NumberExplanation


def users_program(X: pd.DataFrame, y: "pd.Series[Any]") -> None:
    """Read by mypy, never run."""
    clf = DWACClassifier(random_state=0).fit(X, y, ids=X.index)
    assert_type(clf, DWACClassifier)
    assert_type(clf.embed(X), NDArray[np.float32])
    assert_type(clf.transform(X), NDArray[np.float32])
    assert_type(clf.predict_proba(X), NDArray[np.float64])
    assert_type(clf.decision_function(X), NDArray[np.float64])
    assert_type(clf.predict_set(X), NDArray[np.bool_])
    assert_type(clf.predict_set(X, 0.1, as_labels=True), list[list[Any]])
    assert_type(clf.predict_set(X, as_frame=True), pd.DataFrame)
    assert_type(clf.explain(X), Explanations[Any])
    assert_type(clf.explain(X)[:2], Explanations[Any])
    assert_type(clf.references_, ReferenceSet)
    assert_type(clf.save("model"), Path)
    assert_type(clf.condense(), DWACClassifier)
    reg = DWACRegressor(average="median").fit(X, y)
    assert_type(reg.predict(X), NDArray[np.float64])
    assert_type(reg.predict_interval(X, 0.1), NDArray[np.float64])
    assert_type(reg.predict_interval(X, as_frame=True), pd.DataFrame)
    assert_type(reg.explain(X)[0], NumberExplanation)
    assert_type(dwac.load("model"), DWACClassifier | DWACRegressor)
    refs = ReferenceSet([[0.0]], [0], n_classes=2)
    assert_type(dwac.explain.explain(refs, [[0.0]]), list[Explanation])
    assert_type(Explanations([1, 2])[0], int)
    assert_type(Calibration([0.5]).predict([[0.1, 0.2]]), ConformalPrediction)
    assert_type(dwac.metrics.calibration_error([0, 1], [[0.5, 0.5], [0.1, 0.9]]), float)


def public() -> list[tuple[str, Any]]:
    """Every public function, and every public method of a public class, with its full name."""
    found: dict[str, Any] = {}
    for name in dwac.__all__:
        place = getattr(dwac, name)
        names = place.__all__ if isinstance(place, ModuleType) else [""]
        for part in names:
            thing = getattr(place, part) if part else place
            if inspect.isfunction(thing):
                found[f"{thing.__module__}.{thing.__qualname__}"] = thing
            elif inspect.isclass(thing):
                for method, value in vars(thing).items():
                    value = value.__func__ if isinstance(value, classmethod | staticmethod) else value
                    value = value.fget if isinstance(value, property) else getattr(value, "func", value)
                    own = method == "__init__" or not method.startswith("_")
                    if own and inspect.isfunction(value) and value.__module__.startswith("dwac."):
                        found[f"{value.__module__}.{value.__qualname__}"] = value
    return sorted(found.items())


def missing(function: Any) -> list[str]:
    """The parameters of a function that have no type, and "return"."""
    signature = inspect.signature(function)
    names = [name for name, given in signature.parameters.items() if given.annotation is given.empty]
    names = names[1:] if names[:1] in (["self"], ["cls"]) else names
    return names + (["return"] if signature.return_annotation is signature.empty else [])


def test_every_public_function_is_typed() -> None:
    functions = public()
    assert len(functions) > 250
    untyped = {name: gaps for name, function in functions if (gaps := missing(function))}
    assert untyped == {}


def test_what_is_missing_is_found() -> None:
    def half(x, y: int):  # type: ignore[no-untyped-def]
        return x + y

    assert missing(half) == ["x", "return"]


@pytest.mark.parametrize("kind", [DWACClassifier, DWACRegressor])
def test_the_package_says_that_it_is_typed(kind: type) -> None:
    assert (Path(inspect.getfile(kind)).parents[1] / "py.typed").exists()
