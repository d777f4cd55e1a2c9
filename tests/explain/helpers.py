"""What the tests of explanations share: rows of patients, what an answer holds, and explanations to look at."""

import json
import re
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from dwac import ReferenceSet
from dwac.conformal import Calibration
from dwac.explain import Explanation, explain
from dwac.metrics import ood_scores

ASKED = 100
NUMBERS = ["height", "weight", "pulse", "sugar"]
MOVED = 0.001
OWN = {"record"}  # the asker's own row comes back as it was
GIVEN = {"epsilon", "limits", "point", "id"}  # what the asker or the operator chose


def patients(n: int, seed: int, name: str) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    frame = pd.DataFrame(rng.normal(size=(n, 4)), columns=NUMBERS, index=[f"{name}-{i:03}" for i in range(n)])
    return frame.assign(town=np.where((name == "patient") & (np.arange(n) % 3 == 0), "patient-ville", "Anytown"))


def truth(X: pd.DataFrame) -> Any:
    noise = np.random.default_rng(len(X)).normal(size=len(X))
    return np.array(["ill", "well", "unclear"])[np.digitize(X["height"] + 0.7 * noise, [-0.5, 0.5])].tolist()


UNSEEN = patients(ASKED, 2, "visitor")


def moved(rows: pd.DataFrame) -> pd.DataFrame:
    return rows.assign(**{name: rows[name] + MOVED for name in NUMBERS})


# What an answer holds


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number in a JSON value, those in sentences too, by where it stands."""
    if isinstance(value, dict):
        for name, part in value.items():
            if name not in OWN | GIVEN:
                yield from numbers(part, f"{path}.{name}")
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from numbers(part, f"{path}[{place}]")
    elif isinstance(value, str):
        for place, found in enumerate(re.findall(r"\d[\d,]*\.?\d*", value)):
            yield f"{path} word {place}", float(found.replace(",", ""))
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield path, float(value)


def all_numbers(given: list[Any]) -> pd.DataFrame:
    """A row an answer, a column a place where a number stands; -1 where there is none."""
    return pd.DataFrame([dict(numbers(row)) for row in given]).fillna(-1)


def aurocs(one: pd.DataFrame, other: pd.DataFrame) -> dict[str, float]:
    """How well each number alone tells two groups of answers apart."""
    names = [*one.columns.union(other.columns)]
    one, other = (part.reindex(columns=names, fill_value=-1) for part in (one, other))
    return {name: ood_scores(one[name], other[name]).auroc for name in names}


def held(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Everything that an object holds, however deep."""
    yield path, value
    if isinstance(value, dict):
        for name, part in value.items():
            yield from held(part, f"{path}.{name}")
    elif isinstance(value, list | tuple):
        for place, part in enumerate(value):
            yield from held(part, f"{path}[{place}]")
    elif hasattr(value, "__dict__"):
        yield from held(vars(value), path)


def every_text(e: Explanation) -> list[str]:
    return [str(e), repr(e), e.to_html(), json.dumps(e.to_dict()), e.to_frame().to_json()]


# Explanations with many columns

COLUMNS = [f"column {i} of the table" for i in range(30)]
IDS = ["ann", "bob", "eve", "joe"]
RECORDS = pd.DataFrame(np.arange(120.0).reshape(4, 30), index=IDS, columns=COLUMNS)
REFS = ReferenceSet([[0.0], [0.5], [1.1], [4.0]], [0, 0, 1, 1], ids=IDS)
SHOWN = {"record": dict(zip(COLUMNS, range(30), strict=True))}


def explained_by_voters(**more: Any) -> Explanation:
    given: dict[str, Any] = {
        "records": RECORDS,
        "shown": [SHOWN],
        "calibration": Calibration(np.linspace(-1, 1, 19)),
    } | more
    return explain(REFS, [[0.1]], k=3, classes=["no", "yes"], **given)[0]


def explained_by_groups(descriptions: list[str] | None = None, columns: Sequence[Hashable] = COLUMNS) -> Explanation:
    """An explanation by groups."""
    points = np.random.default_rng(0).normal(size=(300, 2))
    refs = ReferenceSet(points, np.arange(300) % 2, ids=[f"r{i}" for i in range(300)])
    records = pd.DataFrame(np.ones((300, 30)), index=refs.ids, columns=list(columns))
    own = {"record": dict(zip(columns, range(30), strict=True))}
    said = None if descriptions is None else [descriptions[i % len(descriptions)] for i in range(len(refs.groups))]
    return explain(refs, [[0.1, 0.0]], records=records, shown=[own], descriptions=said)[0]
