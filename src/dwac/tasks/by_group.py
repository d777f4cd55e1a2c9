"""Measures of predictions by group of rows: each with an interval, the largest difference, and a test.

Most measures are means over rows, so one computation serves every target (`dwac.tasks.group_statistics`). The intervals
of differences hold for all groups at once, and p-values count every comparison (Holm).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac._checks import listed, suggested
from dwac.drawing.groups import draw_groups
from dwac.drawing.legend import NO_LEGEND, Legend
from dwac.drawing.pages import render
from dwac.drawing.records import plain
from dwac.errors import InputError, ShapeError
from dwac.explain import privacy
from dwac.tasks.base import Bools, Floats
from dwac.tasks.group_statistics import LEVEL, Cells, GroupMeasure, Measure, holm, measure_groups

SMALL = 30  # rows: a smaller group is marked
_FEW_NUMBERS, _MOST_GROUPS, _PARTS = 12, 50, 4  # values of a number that are groups, groups of a column, parts of a cut
_ABREAST = 4  # groups side by side
_MISSING, _JOINED = "missing", "small groups together"
_SIGNIFICANT = 0.05


def label_measures(name: Any, truth: Bools, predicted: Bools, p: Floats) -> list[GroupMeasure]:
    """The measures of one label, from (n,): who has it, for whom it is predicted, and its probability."""
    return [
        GroupMeasure(f"rate of {name}", predicted),
        GroupMeasure(f"true rate of {name}", truth),
        GroupMeasure(f"false positives of {name}", predicted, ~truth),
        GroupMeasure(f"false negatives of {name}", ~predicted, truth),
        GroupMeasure(f"bias of {name}", p - truth, is_rate=False, bounds=(-1.0, 1.0)),
    ]


def typicality_measures(typicality: Floats | None) -> list[GroupMeasure]:
    """The measure of typicality (n,); none if it was not measured."""
    return [] if typicality is None else [GroupMeasure("typicality", typicality, is_rate=False)]


# Groups


def read_groups(by: Any, X: Any, n: int, legend: Legend = NO_LEGEND) -> pd.DataFrame:
    """(n, C): the group of each row by each column, as ordered categories; a missing value is a group of its own.

    by: names of columns of X, or one value per row: an array, a Series, a DataFrame, or a mapping of names to these.
    Numbers and dates with more than 12 values are cut at their quartiles. legend: the titles of columns and the
    meanings of codes, by which groups are named.
    """
    names = [by] if isinstance(by, str) else by
    if isinstance(names, list | tuple) and all(isinstance(name, Hashable) for name in names) and len(names) != n:
        frame = _columns(names, X)
    elif isinstance(by, pd.DataFrame):
        frame = by
    elif isinstance(by, Mapping):
        frame = pd.DataFrame({name: np.asarray(values) for name, values in by.items()})
    elif isinstance(by, pd.Series):
        frame = by.to_frame("group" if by.name is None else by.name)
    else:
        values = np.asarray(by, dtype=object if isinstance(by, list | tuple) else None)
        if values.ndim not in (1, 2):
            raise ShapeError(f"by must name columns of X, or have one value per row; got shape {values.shape}")
        names = ["group"] if values.ndim == 1 else [f"group {place + 1}" for place in range(values.shape[1])]
        frame = pd.DataFrame(values.reshape(len(values), -1), columns=names).infer_objects()
    if len(frame) != n:
        raise ShapeError(f"by must have one value for each of the {n:,} rows; got {len(frame):,}")
    if frame.shape[1] == 0:
        raise InputError("by must name at least one column; got none")
    groups = {name: _categories(frame.iloc[:, place]) for place, name in enumerate(frame.columns)}
    return pd.DataFrame({legend.head(name): _named(name, each, legend) for name, each in groups.items()})


def _named(column: Any, groups: pd.Categorical, legend: Legend) -> pd.Categorical:
    """The groups of a column by the meanings of their codes, unless two codes mean the same."""
    names = {value: legend.meaning(column, value) or value for value in groups.categories}
    return groups.rename_categories(names) if len(set(names.values())) == len(names) else groups


def _columns(names: Sequence[Any], X: Any) -> pd.DataFrame:
    if not isinstance(X, pd.DataFrame):
        raise InputError(f"by names columns of a DataFrame; X is {type(X).__name__}; give one value per row instead")
    for name in names:
        if name not in X:
            raise InputError(
                f"by must name columns of X, or have one value per row; X has no column {name!r}; "
                f"{suggested(str(name), X.columns)}its columns are {listed(X.columns, 20)}"
            )
    return X[list(dict.fromkeys(names))]


def _categories(values: pd.Series[Any]) -> pd.Categorical:
    """The groups of a column, in their order, missing values last."""
    values = values.reset_index(drop=True)
    known = values.dropna()
    numeric = pd.api.types.is_numeric_dtype(known) and not pd.api.types.is_bool_dtype(known)
    if (numeric or pd.api.types.is_datetime64_any_dtype(known)) and known.nunique() > _FEW_NUMBERS:
        cut = pd.qcut(values, _PARTS, duplicates="drop")
        edges = [_text(each.right) for each in cut.cat.categories]
        names = [f"over {low} to {high}" for low, high in pairwise(edges)]
        names = [f"up to {edges[0]}", *names[:-1], *([f"over {edges[-2]}"] if names else [])]
        codes = cut.cat.codes.to_numpy()
    else:
        category = values.astype("category")
        names, codes = [_text(each) for each in category.cat.categories], category.cat.codes.to_numpy()
    if len(names) > _MOST_GROUPS:
        raise InputError(
            f"by must divide the rows into at most {_MOST_GROUPS} groups; {values.name!r} has {len(names):,} values; "
            "join them first, for instance with pandas.cut or Series.map"
        )
    texts = np.array([*names, _MISSING], dtype=object)[codes]  # code -1 is the last
    return pd.Categorical(texts, list(dict.fromkeys([*names, *([_MISSING] if (codes < 0).any() else [])])))


def _text(value: Any) -> str:
    if isinstance(value, pd.Timestamp):
        return str(value.date() if value == value.normalize() else value)
    return f"{value:.6g}" if isinstance(value, float | np.floating) else str(value)


def _divisions(groups: pd.DataFrame, *, crossed: bool = True) -> Iterable[tuple[str, NDArray[np.int64], list[str]]]:
    """(name, codes (n,), names of groups with rows): of each column, then, if crossed, of the intersections of all."""
    for name in groups:
        used = groups[name].cat.remove_unused_categories()
        yield str(name), used.cat.codes.to_numpy().astype(np.int64), used.cat.categories.tolist()
    if groups.shape[1] > 1 and crossed:
        codes = groups.groupby(list(groups), observed=True, sort=True).ngroup().to_numpy().astype(np.int64)
        first = np.unique(codes, return_index=True)[1]
        names = [", ".join(map(str, row)) for row in groups.iloc[first].itertuples(index=False)]
        yield " × ".join(map(str, groups)), codes, names


# Comparison


def compare_groups(measures: Sequence[Measure], groups: pd.DataFrame, *, private: bool = False) -> GroupComparison:
    """The measures in every group, from groups (n, C) of `read_groups`.

    private: groups of fewer than 30 rows are joined, there are no intersections, and numbers are rounded.
    """
    if private:
        groups = pd.DataFrame({name: _join_small(groups[name].array) for name in groups})
    divisions = [("all", np.zeros(len(groups), dtype=np.int64), ["all rows"]), *_divisions(groups, crossed=not private)]
    cells, n_tests = _correct([measure_groups(measures, codes, len(names)) for _, codes, names in divisions])
    parts, differences = [], []
    for (by, codes, names), each in zip(divisions, cells, strict=True):
        parts.append(_frame(by, names, measures, each, np.bincount(codes, minlength=len(names)).tolist()))
        if len(names) > 1:
            differences += [_difference(by, names, m, place, each) for place, m in enumerate(measures)]
    table, largest = pd.concat(parts, ignore_index=True), pd.DataFrame(differences, columns=_DIFFERENCES)
    if private:
        table, largest = (each.astype(object).map(_rounded).infer_objects() for each in (table, largest))
    return GroupComparison(table, largest, n_tests, private)


def _join_small(groups: Any) -> Any:
    """The groups with those of fewer than 30 rows joined, and with the next larger one if they are still so few."""
    groups = groups.remove_unused_categories()
    sizes = np.bincount(groups.codes, minlength=len(groups.categories))
    small, order = sizes < SMALL, np.argsort(sizes, kind="stable")
    if small.any() and sizes[small].sum() < SMALL:
        small[order[: int(small.sum()) + 1]] = True
    if small.sum() < 2:
        return groups
    names = [name for name, few in zip(groups.categories, small, strict=True) if not few]
    kept = np.where(small, len(names), np.cumsum(~small) - 1)
    return pd.Categorical.from_codes(kept[groups.codes], pd.Index([*names, _JOINED]))


def _rounded(value: Any) -> Any:
    """A number as a private answer gives it: whole per cent, two digits from 1 on, and counts alike."""
    if isinstance(value, int) and not isinstance(value, bool):
        return privacy.count(value)
    if not isinstance(value, float) or np.isnan(value):
        return value
    return privacy.share(value) if abs(value) < 1 else float(f"{value:.2g}")


def _correct(divisions: list[Cells]) -> tuple[list[Cells], int]:
    """(the cells with p-values corrected for all comparisons, how many these are); two groups are one comparison."""
    tests = [each.p[:1] if len(each.p) == 2 else each.p for each in divisions]
    corrected = holm(np.concatenate([p.ravel() for p in tests]))
    parts = np.split(corrected, np.cumsum([p.size for p in tests])[:-1])
    cells = [
        each._replace(p=np.broadcast_to(part.reshape(p.shape), each.p.shape))
        for each, p, part in zip(divisions, tests, parts, strict=True)
    ]
    return cells, int(np.isfinite(corrected).sum())


def _frame(by: str, names: list[str], measures: Sequence[Measure], cells: Cells, sizes: list[int]) -> pd.DataFrame:
    g, m = (each.ravel() for each in np.indices(cells.value.shape))
    return pd.DataFrame(
        {
            "by": by,
            "group": np.array(names, dtype=object)[g],
            "rows": np.array(sizes)[g],
            "small": np.array(sizes)[g] < SMALL,
            "measure": np.array([each.name for each in measures], dtype=object)[m],
            "n": cells.n.ravel(),
            "value": cells.value.ravel(),
            "low": cells.low.ravel(),
            "high": cells.high.ravel(),
            "p_value": cells.p.ravel(),
        }
    )


_DIFFERENCES = ["by", "measure", "lowest", "highest", "difference", "low", "high", "ratio", "ratio_low", "ratio_high",
                "p_value"]  # fmt: skip


def _difference(by: str, names: list[str], measure: Measure, place: int, cells: Cells) -> list[Any]:
    """The largest difference and the smallest ratio of two groups; their intervals hold for all groups at once."""
    value = cells.value[:, place]
    if np.isnan(value).all():
        return [by, measure.name, None, None, *[np.nan] * 7]
    lowest, highest = int(np.nanargmin(value)), int(np.nanargmax(value))
    low, high = (ends[~np.isnan(ends)] for ends in (cells.lowest[:, place], cells.highest[:, place]))
    difference, ratio = value[highest] - value[lowest], np.nan
    inside, shares = (np.nan, np.nan), (np.nan, np.nan)
    if len(low) == np.isfinite(value).sum():  # every group has an interval
        inside = (max(low.max() - high.min(), 0.0), high.max() - low.min())
    if measure.bounds[0] >= 0:
        with np.errstate(invalid="ignore", divide="ignore"):
            ratio = np.divide(value[lowest], value[highest])
            if not np.isnan(inside[0]):
                shares = (np.divide(low.min(), high.max()), min(np.divide(high.min(), low.max()), 1.0))
    p = min(cells.p[:, place][~np.isnan(cells.p[:, place])].tolist(), default=np.nan)
    return [by, measure.name, names[lowest], names[highest], difference, *inside, ratio, *shares, p]


@dataclass(frozen=True, eq=False, repr=False)
class GroupComparison:
    """Measures by group, made by `evaluate(X, y, by=…)`.

    table: one row per group and measure: by, group, rows, small, measure, n (rows that count), value, low and high
        (95 % interval), p_value (is the group unlike all other rows? corrected for every comparison in the table).
    differences: one row per division and measure: the largest difference and the smallest ratio of two groups, with
        intervals that hold for all groups at once, and the smallest p-value.
    """

    table: pd.DataFrame
    differences: pd.DataFrame
    n_tests: int  # comparisons for which p-values are corrected
    private: bool = False  # whether small groups are joined, and numbers rounded

    @property
    def measures(self) -> list[str]:
        """The names of the measures."""
        return [str(name) for name in self.table["measure"].unique()]

    @property
    def divisions(self) -> list[str]:
        """The columns that divide the rows; of several, also their intersections."""
        return [by for by in self.table["by"].unique().tolist() if by != "all"]

    @property
    def small(self) -> list[str]:
        """The groups with fewer than 30 rows."""
        few = self.table[self.table["small"]].drop_duplicates(["by", "group"])
        return [f"{group} ({rows})" for group, rows in zip(few["group"], few["rows"], strict=True)]

    def to_frame(self) -> pd.DataFrame:
        """`table`; all rows come first."""
        return self.table.copy()

    def to_dict(self) -> dict[str, Any]:
        """As plain Python values, ready for JSON."""
        shown: dict[str, Any] = plain(
            {
                "level": LEVEL,
                "comparisons": self.n_tests,
                "groups": self.table.to_dict("records"),
                "differences": self.differences.to_dict("records"),
            }
        )
        return shown

    def texts(self, by: str, *, intervals: bool = False) -> list[pd.DataFrame]:
        """The values of a division as texts: one row per measure, a column for all rows and up to four groups each."""
        columns = []
        for group, rows, values in self.cells(by):
            texts = [f"{value} ({ends})" if intervals and ends else value for value, ends, _ in values]
            columns.append((group, [rows, *texts]))
        names = ["rows", *self.measures]
        chunks = [columns[start : start + _ABREAST] for start in range(1, len(columns), _ABREAST)]
        return [pd.DataFrame({by: names} | dict([columns[0], *chunk])) for chunk in chunks]

    def largest(self, by: str) -> pd.DataFrame:
        """One row per measure of a division, with its largest difference: texts."""
        part = self.differences[self.differences["by"] == by].dropna(subset=["difference"])
        rows = [
            [
                *(row[name] for name in ("measure", "lowest", "highest")),
                _number(row["difference"]),
                "–" if np.isnan(row["low"]) else f"{_number(row['low'])} to {_number(row['high'])}",
                p_text(row["p_value"]),
            ]
            for row in part.to_dict("records")
        ]
        return pd.DataFrame(rows, columns=["measure", "lowest", "highest", "difference", "95 % interval", "p"])

    @property
    def notes(self) -> list[str]:
        """How to read the tables, and which groups are small."""
        notes = [
            "Differences are the largest between two groups; their intervals hold for all groups at once. p: is a "
            f"group unlike all other rows? Corrected for all {self.n_tests:,} comparisons."
        ]
        if self.private:
            notes.append(f"Private: groups of fewer than {SMALL} rows are joined, and numbers are rounded.")
        few = self.small
        return notes + ([f"Small groups, of fewer than {SMALL} rows: {listed(few, 12, str)}."] if few else [])

    def __repr__(self) -> str:
        """The groups, then the largest differences."""
        parts = [
            str(table.to_string(index=False)) for by in self.divisions for table in (*self.texts(by), self.largest(by))
        ]
        return "\n\n".join([*parts, *self.notes])

    def to_html(self) -> str:
        """A self-contained HTML fragment: the groups with their intervals, then the largest differences."""
        return render("tasks/templates/by_group.html", comparison=self, cells=self.cells)

    def cells(self, by: str) -> list[tuple[str, str, list[tuple[str, str, bool]]]]:
        """(group, rows, (value, interval, whether it stands out) of each measure) of a division, all rows first."""
        part = self.table[self.table["by"].isin(["all", by])]
        rows = []
        for (_, group), lines in part.groupby(["by", "group"], sort=False):
            texts = []
            for line in lines.to_dict("records"):
                known = not np.isnan(line["low"])
                interval = f"{_number(line['low'])} to {_number(line['high'])}" if known else ""
                texts.append((_number(line["value"]), interval, bool(line["p_value"] < _SIGNIFICANT)))
            first = lines.iloc[0]
            rows.append((f"{group}{' (small)' if first['small'] else ''}", f"{first['rows']:,}", texts))
        return rows

    def _repr_html_(self) -> str:
        return self.to_html()

    def plot(self, measure: str | None = None, by: str | None = None) -> Any:
        """A matplotlib figure: a measure (the first by default) in each group of a division, with its intervals.

        Needs the extra `dwac[report]`.
        """
        names = self.measures
        measure, by = names[0] if measure is None else measure, self.divisions[0] if by is None else by
        for value, known, what in ((measure, names, "measure"), (by, self.divisions, "by")):
            if value not in known:
                raise InputError(f"{what} must be one of {listed(known, 30)}; got {value!r}")
        part = self.table[(self.table["measure"] == measure) & self.table["by"].isin(["all", by])]
        return draw_groups(part, measure, by)


def _number(value: float) -> str:
    if np.isnan(value):
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}" if abs(value) >= 10 else f"{value:.3f}"


def p_text(value: float) -> str:
    """A p-value as text.

    >>> p_text(0.00002), p_text(0.0312), p_text(1.0)
    ('< 0.001', '0.031', '1.000')
    """
    return "–" if np.isnan(value) else "< 0.001" if value < 0.001 else f"{value:.3f}"
