"""Measures of predictions by group of rows: each with an interval, the largest difference, and a test.

A measure is a mean over rows: of 0 and 1 for a rate, of any numbers otherwise. So one computation serves every target.
The intervals of rates are exact (Clopper-Pearson), those of other means come from the studentised bootstrap. The
differences hold for all groups at once, and p-values count every comparison (Holm).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import beta, fisher_exact, ttest_ind_from_stats

from dwac._checks import listed, suggested
from dwac.drawing.groups import draw_groups
from dwac.drawing.pages import render
from dwac.drawing.records import plain
from dwac.errors import InputError, ShapeError
from dwac.tasks.base import Bools, Floats

LEVEL = 0.95
SMALL = 30  # rows: a smaller group is marked
_LEAST = 10  # rows: the bootstrap of fewer says nothing
_ENOUGH, _LARGE = 1000, 300  # rows from which a mean needs no bootstrap; from which Welch's test needs no permutations
_DRAWS = 1000  # resamples and permutations
_FEW_NUMBERS, _MOST_GROUPS, _PARTS = 12, 50, 4  # values of a number that are groups, groups of a column, parts of a cut
_ABREAST = 4  # groups side by side
_MISSING = "missing"
_SIGNIFICANT = 0.05


class GroupMeasure(NamedTuple):
    """A number for each of n rows, whose mean in a group is a measure of the group."""

    name: str
    values: NDArray[Any]  # (n,)
    among: Bools | None = None  # (n,): the rows that count; None for all
    is_rate: bool = True  # whether values are 0 and 1
    bounds: tuple[float, float] = (0.0, 1.0)  # where means lie


def label_measures(name: Any, truth: Bools, predicted: Bools, p: Floats) -> list[GroupMeasure]:
    """The measures of one label, from (n,): who has it, for whom it is predicted, and its probability."""
    return [
        GroupMeasure(f"rate of {name}", predicted),
        GroupMeasure(f"true rate of {name}", truth),
        GroupMeasure(f"false positives of {name}", predicted, ~truth),
        GroupMeasure(f"false negatives of {name}", ~predicted, truth),
        GroupMeasure(f"bias of {name}", p - truth, None, False, (-1.0, 1.0)),
    ]


def typicality_measures(typicality: Floats | None) -> list[GroupMeasure]:
    """The measure of typicality (n,); none if it was not measured."""
    return [] if typicality is None else [GroupMeasure("typicality", typicality, None, False)]


# Groups


def read_groups(by: Any, X: Any, n: int) -> pd.DataFrame:
    """(n, C): the group of each row by each column, as ordered categories; a missing value is a group of its own.

    by: names of columns of X, or one value per row: an array, a Series, a DataFrame, or a mapping of names to these.
    Numbers and dates with more than 12 values are cut at their quartiles.
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
    return pd.DataFrame({str(name): _categories(frame.iloc[:, place]) for place, name in enumerate(frame.columns)})


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


def _divisions(groups: pd.DataFrame) -> Iterable[tuple[str, NDArray[np.int64], list[str]]]:
    """(name, codes (n,), names of groups with rows): of each column, then of the intersections of all."""
    for name in groups:
        used = groups[name].cat.remove_unused_categories()
        yield str(name), used.cat.codes.to_numpy().astype(np.int64), used.cat.categories.tolist()
    if groups.shape[1] > 1:
        codes = groups.groupby(list(groups), observed=True, sort=True).ngroup().to_numpy().astype(np.int64)
        first = np.unique(codes, return_index=True)[1]
        names = [", ".join(map(str, row)) for row in groups.iloc[first].itertuples(index=False)]
        yield " × ".join(map(str, groups)), codes, names


# Intervals


def rate_interval(hits: Any, n: Any, level: float = LEVEL) -> tuple[Floats, Floats]:
    """Exact confidence intervals of rates (Clopper-Pearson), from counts of any shape; 0 to 1 where n is 0.

    >>> low, high = rate_interval([0, 9], [10, 10])
    >>> low.round(3), high.round(3)
    (array([0.   , 0.555]), array([0.308, 0.997]))
    """
    k, n = np.asarray(hits, dtype=np.float64), np.asarray(n, dtype=np.float64)
    tail = (1 - level) / 2
    low = np.where(k > 0, beta.ppf(tail, np.maximum(k, 1), n - k + 1), 0.0)
    high = np.where(k < n, beta.ppf(1 - tail, k + 1, np.maximum(n - k, 1)), 1.0)
    return low, high


def _resampled_t(values: Floats, among: Bools, rng: np.random.Generator) -> Floats:
    """(draws, M): the studentised means (m* - m) / se* of rows drawn with replacement, from (n, M)."""
    n, weights = len(values), among.astype(np.float64)
    if n >= _ENOUGH:
        return rng.standard_normal((_DRAWS, values.shape[1]))
    counts = rng.multinomial(n, np.full(n, 1 / n), size=_DRAWS).astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (values * weights).sum(axis=0) / weights.sum(axis=0)
        centred = (values - mean) * weights
        size = counts @ weights
        moved = (counts @ centred) / size
        spread = np.sqrt(np.maximum((counts @ centred**2) / size - moved**2, 0) / (size - 1))
        t = np.where(spread > 0, moved / spread, np.where(moved == 0, 0.0, np.inf))
    return np.asarray(np.where(np.isnan(t), np.inf, np.abs(t)) * np.sign(moved))


class _Cells(NamedTuple):
    """The measures M of the groups G of one division, (G, M) each: with `everywhere`, all groups hold at once."""

    n: NDArray[np.int64]
    value: Floats
    ends: tuple[Floats, Floats]
    everywhere: tuple[Floats, Floats]
    p: Floats


def _measure(measures: Sequence[GroupMeasure], codes: NDArray[np.int64], n_groups: int, seed: int) -> _Cells:
    among = np.stack([np.ones(len(codes), bool) if m.among is None else m.among for m in measures], axis=1)
    values = np.where(among, np.stack([np.asarray(m.values, dtype=np.float64) for m in measures], axis=1), 0.0)
    rates = np.array([m.is_rate for m in measures])
    n = np.stack([among[codes == g].sum(axis=0) for g in range(n_groups)])
    sums = np.stack([values[codes == g].sum(axis=0) for g in range(n_groups)])
    with np.errstate(invalid="ignore"):
        value = sums / n
    p = np.full(value.shape, np.nan)
    ends, everywhere = rate_interval(sums, n), rate_interval(sums, n, 1 - (1 - LEVEL) / n_groups)
    for column in np.flatnonzero(rates):
        p[:, column] = _fisher(sums[:, column], n[:, column])
    if not rates.all():
        _fill_means(measures, values, among, codes, value, ends, everywhere, p, np.random.default_rng(seed))
    for low, high in (ends, everywhere):
        low[n == 0], high[n == 0] = np.nan, np.nan
    if n_groups == 1:
        p[:] = np.nan  # there is nothing to compare with
    return _Cells(n, value, ends, everywhere, p)


def _fill_means(
    measures: Sequence[GroupMeasure],
    values: Floats,
    among: Bools,
    codes: NDArray[np.int64],
    value: Floats,
    ends: tuple[Floats, Floats],
    everywhere: tuple[Floats, Floats],
    p: Floats,
    rng: np.random.Generator,
) -> None:
    """Write the intervals and p-values of the measures that are no rates; NaN for groups that are too small."""
    means = np.array([place for place, m in enumerate(measures) if not m.is_rate])
    low, high = np.array([measures[place].bounds for place in means]).T
    n_groups, x, count = len(value), values[:, means], among[:, means]
    error = np.full((n_groups, len(means)), np.nan)
    t = np.zeros((n_groups, _DRAWS, len(means)))
    for g in range(n_groups):
        mine = codes == g
        n = count[mine].sum(axis=0)
        centred = (x[mine] - value[g, means]) * count[mine]
        spread = np.sqrt(np.square(centred).sum(axis=0) / np.maximum(n - 1, 1) / np.maximum(n, 1))
        error[g] = np.where((n >= _LEAST) & (spread > 0), spread, np.nan)
        t[g] = np.where(np.isnan(error[g]), 0.0, np.abs(_resampled_t(x[mine], count[mine], rng)))
        p[g, means] = _unlike(x, count, mine, rng) if n_groups > 1 else np.nan
    # No interpolation: where resamples have no spread, t* is infinite, and the interval all that is possible.
    alone, together = (np.quantile(each, LEVEL, axis=-2, method="higher") for each in (t, t.max(axis=0)))
    for (lower, upper), times in ((ends, alone), (everywhere, together)):
        with np.errstate(invalid="ignore"):  # inf · NaN
            lower[:, means] = np.maximum(value[:, means] - times * error, low)
            upper[:, means] = np.minimum(value[:, means] + times * error, high)
    p[:, means] = np.where(np.isnan(error), np.nan, p[:, means])


def _fisher(hits: Floats, n: Floats) -> Floats:
    """(G,): Fisher's exact test of each group's rate against that of all other rows; NaN without any."""
    p = np.full(len(n), np.nan)
    for g in range(len(n)):
        k, rest = hits[g], (hits.sum() - hits[g], n.sum() - n[g])
        if n[g] and rest[1]:
            table = [[int(k), int(n[g] - k)], [int(rest[0]), int(rest[1] - rest[0])]]
            p[g] = fisher_exact(table).pvalue
    return p


def _unlike(values: Floats, among: Bools, mine: Bools, rng: np.random.Generator) -> Floats:
    """(M,): p-values of the means in a group against those of all other rows, from (n, M).

    They come from the permutations of Welch's statistic; for large groups, and below what that many permutations can
    show, from Student's distribution of it.
    """
    scaled = values - values.sum(axis=0) / np.maximum(among.sum(axis=0), 1)  # centred: squares keep their digits
    sums = np.concatenate([among, scaled * among, scaled**2 * among], axis=1)
    whole, part, k = sums.sum(axis=0), sums[mine].sum(axis=0), int(min(mine.sum(), (~mine).sum()))
    t, p = _welch(part, whole)
    if k >= _LARGE:
        return p
    drawn = np.array([sums[rng.choice(len(sums), k, replace=False, shuffle=False)].sum(axis=0) for _ in range(_DRAWS)])
    with np.errstate(invalid="ignore"):
        above = (np.nan_to_num(np.abs(_welch(drawn, whole)[0]), nan=np.inf) >= np.abs(t)).sum(axis=0)
    return np.asarray(np.where(above > 0, (above + 1) / (_DRAWS + 1), np.minimum(p, 1 / (_DRAWS + 1))))


def _welch(part: Floats, whole: Floats) -> tuple[Floats, Floats]:
    """(…, M): Welch's statistic and its p-value, from counts, sums and sums of squares (…, 3 M) of one side and all."""
    sides = []
    for side in (part, whole - part):
        n, total, squares = np.split(side, 3, axis=-1)
        with np.errstate(invalid="ignore", divide="ignore"):
            mean = total / n
            sides += [mean, np.sqrt(np.maximum(squares - n * mean**2, 0) / (n - 1)), n]
    with np.errstate(invalid="ignore", divide="ignore"):
        t, p = ttest_ind_from_stats(*sides, equal_var=False)
    return np.asarray(t), np.asarray(p)


def holm(p: Any) -> Floats:
    """p-values corrected for how many there are (Holm): any below α is right about all with probability 1 - α.

    >>> holm([0.01, 0.04, 0.03]).round(3)
    array([0.03, 0.06, 0.06])
    """
    p = np.asarray(p, dtype=np.float64)
    corrected, known = np.full(p.shape, np.nan), np.flatnonzero(~np.isnan(p))
    order = known[np.argsort(p[known], kind="stable")]
    corrected[order] = np.minimum(np.maximum.accumulate(p[order] * np.arange(len(order), 0, -1)), 1)
    return corrected


# Comparison


def compare_groups(measures: Sequence[GroupMeasure], groups: pd.DataFrame, random_state: int = 0) -> GroupComparison:
    """The measures in every group, from groups (n, C) of `read_groups`."""
    divisions = [("all", np.zeros(len(groups), dtype=np.int64), ["all rows"]), *_divisions(groups)]
    cells, n_tests = _correct([_measure(measures, codes, len(names), random_state) for _, codes, names in divisions])
    parts, differences = [], []
    for (by, codes, names), each in zip(divisions, cells, strict=True):
        parts.append(_frame(by, names, measures, each, np.bincount(codes, minlength=len(names)).tolist()))
        if len(names) > 1:
            differences += [_difference(by, names, m, place, each) for place, m in enumerate(measures)]
    table, found = pd.concat(parts, ignore_index=True), pd.DataFrame(differences, columns=_DIFFERENCES)
    return GroupComparison(table, found, n_tests)


def _correct(divisions: list[_Cells]) -> tuple[list[_Cells], int]:
    """(the cells with p-values corrected for all comparisons, how many these are); two groups are one comparison."""
    tests = [each.p[:1] if len(each.p) == 2 else each.p for each in divisions]
    corrected = holm(np.concatenate([p.ravel() for p in tests]))
    parts = np.split(corrected, np.cumsum([p.size for p in tests])[:-1])
    cells = [
        each._replace(p=np.broadcast_to(part.reshape(p.shape), each.p.shape))
        for each, p, part in zip(divisions, tests, parts, strict=True)
    ]
    return cells, int(np.isfinite(corrected).sum())


def _frame(
    by: str, names: list[str], measures: Sequence[GroupMeasure], cells: _Cells, sizes: list[int]
) -> pd.DataFrame:
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
            "low": cells.ends[0].ravel(),
            "high": cells.ends[1].ravel(),
            "p_value": cells.p.ravel(),
        }
    )


_DIFFERENCES = ["by", "measure", "lowest", "highest", "difference", "low", "high", "ratio", "ratio_low", "ratio_high",
                "p_value"]  # fmt: skip


def _difference(by: str, names: list[str], measure: GroupMeasure, place: int, cells: _Cells) -> list[Any]:
    """The largest difference and the smallest ratio of two groups; their intervals hold for all groups at once."""
    value = cells.value[:, place]
    if np.isnan(value).all():
        return [by, measure.name, None, None, *[np.nan] * 7]
    lowest, highest = int(np.nanargmin(value)), int(np.nanargmax(value))
    low, high = (ends[:, place][~np.isnan(ends[:, place])] for ends in cells.everywhere)
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
        part = self.table[self.table["by"].isin(["all", by])]
        parts = [lines for _, lines in part.groupby(["by", "group"], sort=False)]
        first = part.drop_duplicates(["by", "group"])
        heads = [
            f"{group}{' (small)' if few else ''}" for group, few in zip(first["group"], first["small"], strict=True)
        ]
        columns = [
            [f"{rows:,}", *(_cell(line, intervals=intervals) for line in lines.to_dict("records"))]
            for rows, lines in zip(first["rows"], parts, strict=True)
        ]
        names = ["rows", *self.measures]
        chunks = [range(start, min(start + _ABREAST, len(heads))) for start in range(1, len(heads), _ABREAST)]
        return [pd.DataFrame({by: names} | {heads[place]: columns[place] for place in (0, *chunk)}) for chunk in chunks]

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


def _cell(line: dict[Any, Any], *, intervals: bool) -> str:
    """A value, with its interval if there is one and it is wanted."""
    if not intervals or np.isnan(line["low"]):
        return _number(line["value"])
    return f"{_number(line['value'])} ({_number(line['low'])} to {_number(line['high'])})"


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
