"""Explanations of numbers: who voted for which, how the votes split, whose removal matters; and what privacy hides."""

import itertools
import json
import math
from copy import copy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dwac import ReferenceSet
from dwac.errors import InputError, ShapeError
from dwac.explain import NumberExplanation, explain_numbers, privacy
from dwac.explain.numbers import in_groups
from dwac.explain.rendering import Numerals, edges_of, step_of
from dwac.explain.voters import Neighbor
from dwac.kernels import KERNELS
from dwac.metrics import Agreement
from dwac.reference.references import without_members
from tests import oracle
from tests.explain.helpers import held, numbers
from tests.named import named, refuses

M = 120
NAMES = ("width", "height")


def voters(seed: int = 0, m: int = M, *, n_targets: int = 1, weighted: bool = False, kernel: str = "gaussian") -> Any:
    """References in a plane whose numbers grow along it, and a query in their midst."""
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(m, 2))
    targets = 1000 * np.exp(points @ rng.normal(size=(2, n_targets)) / 2 + 0.1 * rng.normal(size=(m, n_targets)))
    weights = rng.integers(1, 4, m) if weighted else None
    bins = np.argsort(np.argsort(targets[:, 0])) * min(12, m) // m
    refs = ReferenceSet(points, bins, [f"r{i}" for i in range(m)], kernel=kernel, weights=weights, targets=targets)
    return refs, rng.normal(size=(1, 2)) / 2


def shares_of(refs: ReferenceSet, query: Any) -> Any:
    """The share of each reference, by the oracle."""
    votes = np.exp(oracle.log_weights(query, refs.embeddings.numpy(), refs.kernel)[0]) * refs.weights
    return votes / votes.sum()


def targets_of(refs: ReferenceSet) -> Any:
    assert refs.targets is not None
    return refs.targets.numpy()


def one(refs: ReferenceSet, query: Any, **more: Any) -> NumberExplanation:
    return explain_numbers(refs, query, **more)[0]


def every_text(e: NumberExplanation) -> list[str]:
    return [str(e), repr(e), e.to_html(), json.dumps(e.to_dict()), e.to_frame().to_json()]


# Votes


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("weighted", [False, True])
def test_the_prediction_is_the_sum_of_shares_times_numbers(kernel: str, weighted: bool) -> None:
    refs, query = voters(weighted=weighted, kernel=kernel)
    e = one(refs, query, k=M)
    shares = shares_of(refs, query)
    assert e.prediction == pytest.approx(float(shares @ targets_of(refs)[:, 0]), rel=1e-9)
    assert sum(n.share for n in e.neighbors) == pytest.approx(1)
    assert sum(n.share * n.label for n in e.neighbors) == pytest.approx(e.prediction, rel=1e-6)
    for n in e.neighbors:
        row = refs.voters.positions([n.id])[0]
        assert n.label == targets_of(refs)[row, 0]
        assert n.share == pytest.approx(shares[row], rel=1e-4)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("condensed", [False, True])
@pytest.mark.parametrize("n_targets", [1, 2])
def test_shares_of_groups_sum_to_one_and_their_means_to_the_prediction(
    weighted: bool, condensed: bool, n_targets: int
) -> None:
    refs, query = voters(n_targets=n_targets, weighted=weighted)
    refs = refs.condensed() if condensed else refs
    e = one(refs, query, names=NAMES[:n_targets])
    assert 2 <= len(e.groups) <= 12  # few enough to read, whatever the number of bins
    assert sum(group.share for group in e.groups) == pytest.approx(1, abs=1e-9)
    shares, targets = shares_of(refs, query), targets_of(refs)
    for group in e.groups:
        rows = refs.voters.positions(group.ids)
        assert group.share == pytest.approx(shares[rows].sum(), rel=1e-9)
        for t, own in enumerate([group.label] if n_targets == 1 else group.label):
            assert own.mean == pytest.approx(shares[rows] @ targets[rows, t] / shares[rows].sum(), rel=1e-9)
            assert (own.low, own.high) == (targets[rows, t].min(), targets[rows, t].max())
            assert own.low <= own.mean <= own.high
    for t, prediction in enumerate([e.prediction] if n_targets == 1 else e.prediction):
        means = [(group.label if n_targets == 1 else group.label[t]).mean for group in e.groups]
        total = sum(g.share * mean for g, mean in zip(e.groups, means, strict=True))
        assert total == pytest.approx(prediction, rel=1e-8)
    assert [g.share for g in e.groups] == sorted((g.share for g in e.groups), reverse=True)
    assert sum(group.size for group in e.groups) == e.n_examples
    for group in e.groups:
        assert sum(sub.share for sub in group.subgroups) == pytest.approx(group.share if group.subgroups else 0)


def test_groups_are_few_however_many_bins_numbers_have() -> None:
    refs, query = voters(m=300)
    y = targets_of(refs)[:, 0]
    many = ReferenceSet(refs.embeddings, np.argsort(np.argsort(y)) // 5, targets=y)
    assert len(many.groups) == 60
    assert len(one(many, query).groups) == 12
    few = one(many.condensed(), query)
    assert few._votes is not None
    assert few._votes.references.members is not None  # whose groups are described
    assert (few._votes.references.groups.parents == few._votes.references.members.groups.parents).all()
    heavy = ReferenceSet(refs.embeddings, refs.labels, targets=y, class_weights=np.arange(1, 13))
    assert sum(group.share for group in one(heavy, query).groups) == pytest.approx(1, abs=1e-9)
    assert sum(g.share * g.label.mean for g in one(heavy, query).groups) == pytest.approx(one(heavy, query).prediction)


@pytest.mark.parametrize("average", ["mean", "median"])
@pytest.mark.parametrize(("seed", "weighted"), [*itertools.product(range(4), (False, True)), (4, False), (5, True)])
def test_influence_is_what_removal_does(average: str, weighted: bool, seed: int) -> None:
    m = [2, 3, 5, 9, 30, 31][seed]
    refs, query = voters(seed, m, n_targets=2, weighted=weighted, kernel=sorted(KERNELS)[seed % 3])
    e = one(refs, query, k=m, average=average, names=NAMES)

    def predicted(without: list[Any]) -> Any:
        left = copy(refs)
        left.remove(without)
        votes = left.distribution(query)
        return (votes.mean if average == "mean" else votes.median)[0]

    for t, name in enumerate(NAMES):
        mine = [each for each in e.influential if each.name == name]
        moves = {who: float(predicted([who])[t] - e.prediction[t]) for who in refs.ids.tolist()}
        assert len(mine) == m
        for each in mine:
            assert each.move == pytest.approx(moves[each.id], abs=1e-6, rel=1e-6)
            row = refs.voters.positions([each.id])[0]
            assert each.target == targets_of(refs)[row, t]
            assert each.share == pytest.approx(shares_of(refs, query)[row], rel=1e-6)
        sizes = [abs(each.move) for each in mine]
        assert sizes == sorted(sizes, reverse=True)


def test_a_representative_is_removed_with_all_its_votes() -> None:
    refs, query = voters()
    few = refs.condensed()
    e = one(few, query)
    left = without_members(few)
    left.remove([e.influential[0].id])
    moved = left.distribution(query).mean[0, 0] - e.prediction
    assert e.influential[0].move == pytest.approx(moved, rel=1e-6)
    assert named(e, f"{len(few)} representatives", f"{M} training examples", e.influential[0].id)


@pytest.mark.parametrize("average", ["mean", "median"])
def test_whoever_has_nearly_all_votes_leaves_the_prediction_to_the_others(average: str) -> None:
    refs = ReferenceSet([[0.0], [30.0], [31.0]], [0, 0, 0], ["ann", "bob", "eve"], targets=[5.0, 70.0, 90.0])
    e = one(refs, [[0.0]], average=average)
    assert e.neighbors[0].share == 1.0
    assert e.influential[0].id == "ann"
    assert e.influential[0].move == pytest.approx(65.0)


def test_a_far_query_still_has_votes() -> None:
    refs, _ = voters()
    e = one(refs, [[1e4, 0.0]])
    assert e.neighbors[0].weight == 0.0  # underflows
    assert sum(group.share for group in e.groups) == pytest.approx(1)
    assert math.isfinite(e.prediction)
    assert all(math.isfinite(each.move) for each in e.influential)
    assert e.plot() is not None


def test_quantiles_and_histogram_are_those_of_the_votes() -> None:
    refs, query = voters()
    e = one(refs, query, intervals=[[[100.0, 9000.0]]])
    shares, y = shares_of(refs, query), targets_of(refs)[:, 0]
    assert e.quantiles is not None
    for level, value in e.quantiles.items():
        assert shares[y <= value].sum() >= level - 1e-12
        assert shares[y < value].sum() < level
    edges, found = e.histogram
    assert 3 <= len(found) <= 45
    for low, high, share in zip(edges[:-1], edges[1:], found, strict=True):
        assert share == pytest.approx(shares[(y >= low) & (y < high)].sum(), abs=1e-9)
    assert 0.99 <= sum(found) <= 1 + 1e-9
    assert edges[0] <= 100.0  # so that the interval can be drawn
    assert edges[-1] >= 9000.0


@pytest.mark.parametrize("target", [0.0, 7.0, -1e100, 1e-100])
def test_constant_numbers_are_defined(target: float) -> None:
    refs = ReferenceSet([[0.0], [1.0], [2.0]], [0, 0, 0], targets=[target] * 3)
    for private in (False, True):
        e = one(refs, [[0.4]], private=private, intervals=[[[target, target]]])
        assert e.prediction == pytest.approx(target)
        assert sum(e.histogram[1]) == pytest.approx(1)
        for text in every_text(e):
            assert "nan" not in text.lower()
        e.plot()


def test_a_single_voter_decides_alone() -> None:
    e = one(ReferenceSet([[0.0]], [0], ["ann"], targets=[3.5]), [[1.0]])
    assert (e.prediction, e.influential, e.neighbors[0].label) == (3.5, (), 3.5)
    assert any(named(each, "only") for each in e.sentences())


# Several numbers


def test_several_numbers_have_an_answer_for_each_name() -> None:
    refs, query = voters(n_targets=2)
    e = one(refs, query, k=3, names=NAMES, intervals=[[[100.0, 2000.0], [-np.inf, np.inf]]], epsilon=0.2)
    assert len(e.prediction) == 2
    assert e.interval == ((100.0, 2000.0), (-math.inf, math.inf))
    assert e.neighbors[0].label == tuple(targets_of(refs)[refs.voters.positions([e.neighbors[0].id])[0]].tolist())
    assert [each.name for each in e.influential] == ["width"] * 3 + ["height"] * 3
    assert list(e.to_frame().columns[:3]) == ["id", "width", "height"]
    assert list(e.groups_frame().columns[:6]) == [f"{n} {part}" for n in NAMES for part in ("mean", "low", "high")]
    first = e.sentences()[0]
    assert named(first, "width", "80 %", "100 to 2000", "height", "any number")
    given = json.loads(json.dumps(e.to_dict()))
    assert given["prediction"] == pytest.approx(list(e.prediction))
    assert given["interval"] == [[100.0, 2000.0], [None, None]]
    assert len(given["histogram"]) == 2


def test_one_column_may_still_be_answered_as_several() -> None:
    refs, query = voters()
    e = one(refs, query, names=["price"], single=False)
    assert len(e.prediction) == 1
    assert e.sentences()[0].startswith("Predicted price ")


# Words


def test_words_say_the_numbers() -> None:
    refs = ReferenceSet([[0.0], [1.0], [5.0]], [0, 0, 0], ["ann", "bob", "eve"], targets=[200_000, 220_000, 450_000.0])
    e = one(refs, [[0.5]], k=2, intervals=[[[171_000.0, 265_000.0]]], typicality=np.array([0.42]))
    facts = [
        ("210,000", "95 %", "171,000 to 265,000", "few cases"),
        ("200,000 to 220,000",),
        (2, "> 99.9 %", "200,000 to 220,000"),
        ("2.0", "200,000 to"),
        ("ann", "200,000", "50.0 %", "+10,000", "220,000"),
        ("at least 95 %",),
        ("0.420", "42 %"),
    ]
    for sentence, known in zip(e.sentences(), facts, strict=True):
        assert named(sentence, *known), sentence
    assert any("ann" in line and "200000" in line.replace(",", "") for line in str(e).splitlines())


@pytest.mark.parametrize(
    ("ends", "words"),
    [
        ((-math.inf, math.inf), "too few calibration"),
        ((-math.inf, 7.0), "interval at most 7"),
        ((1.0, math.inf), "interval at least 1"),
    ],
)
def test_an_infinite_interval_is_said(ends: tuple[float, float], words: str) -> None:
    e = one(ReferenceSet([[0.0], [1.0]], [0, 0], targets=[2.0, 4.0]), [[0.5]], intervals=[[ends]])
    assert words in " ".join(str(e).split())
    e.plot()


def test_a_weaker_guarantee_is_said() -> None:
    refs = ReferenceSet([[0.0], [1.0]], [0, 0], targets=[2.0, 4.0])
    e = one(refs, [[0.5]], intervals=[[[1.0, 5.0]]], guarantee=0.7876)
    assert any(named(each, "at least 78.7 %") for each in e.sentences())
    without = one(refs, [[0.5]])
    assert (without.interval, without.epsilon, without.guarantee) == (None, None, None)
    assert named(without, "no calibration")


def test_groups_are_told_with_their_numbers_and_what_sets_them_apart() -> None:
    refs, query = voters(m=300)
    described = [f"town {g}" for g in range(len(in_groups(refs).groups))]
    e = one(refs, query, descriptions=described)
    assert len(e.groups) == len(described)
    with refuses(ShapeError, "descriptions", len(described)):
        one(refs, query, descriptions=described[1:])
    assert not e.few_suffice
    heaviest = e.groups[0]
    told = next(sentence for sentence in e.sentences() if str(heaviest.words) in sentence)
    assert named(told, f"{100 * heaviest.share:.0f} %", heaviest.words)
    assert len(e.shown) == 5


@given(st.floats(-1e12, 1e12), st.floats(1e-6, 1e9))
def test_shown_numbers_are_near_the_exact_ones(value: float, spread: float) -> None:
    text = Numerals(np.linspace(-spread, spread, 41)).text(value)
    assert abs(float(text.replace(",", "")) - value) <= max(0.006 * abs(value), 0.001 * spread)
    if abs(value) <= spread and "e" not in text:
        assert len(text.strip("-0.").replace(".", "").replace(",", "").strip("0")) <= 5


def test_agreement_with_all_is_said() -> None:
    refs, query = voters()
    known = Agreement(0.97, 0.95, 0.99, 200)
    assert named(one(refs.condensed(), query, agreement=known), known)


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9), st.integers(2, 50), st.booleans())
def test_edges_are_ascending_and_hold_the_range(low: float, span: float, most: int, whole: bool) -> None:
    low, high = (round(low), round(low) + round(span)) if whole else (low, low + span)
    edges = edges_of(low, high, most, whole=whole)
    assert (np.diff(edges) > 0).all()
    assert edges[0] <= low + 1e-6 * span
    assert edges[-1] >= high - 1e-6 * span
    assert len(edges) <= most + 3
    step = step_of(high - low, most, whole=whole)
    assert step == 0 or (high - low) / step <= most + 1e-6


# What goes in and comes out


def test_wrong_input_is_an_error() -> None:
    refs, query = voters()
    with refuses(ShapeError, "names", 1, 2):
        one(refs, query, names=["a", "b"])
    with refuses(ShapeError, "intervals", (1, 1, 2)):
        one(refs, query, intervals=[[1.0, 2.0]])
    with refuses(InputError, "records"):
        one(refs, query, records=[1])
    with refuses(InputError, "targets"):
        one(ReferenceSet([[0.0, 1.0]], [0]), query)


def test_a_dict_survives_json_and_html_is_escaped() -> None:
    refs = ReferenceSet([[0.0], [1.0]], [0, 0], ["<b>ann", "bob"], targets=[2.0, 4.0])
    records = {"<b>ann": {"<i>": "<script>"}, "bob": {"<i>": "x"}}
    e = one(refs, [[0.2]], records=records, shown=[{"record": {"a": "<img>"}}], intervals=[[[1.0, 5.0]]])
    given = e.to_dict()
    assert json.loads(json.dumps(given)) == given
    assert given["neighbors"][0]["label"] == 2.0
    assert given["groups"][0]["label"] == [pytest.approx(e.prediction), 2.0, 4.0]
    assert given["influential"][0]["id"] == e.influential[0].id
    for hostile in ("<b>ann", "<script>", "<i>", "<img>"):
        assert hostile not in e.to_html()


# Privacy


def test_every_field_of_a_private_explanation_is_chosen() -> None:
    """A new field of an explanation must be thought of here, and in `_make_private` of `dwac.explain.numbers`."""
    assert set(NumberExplanation.__dataclass_fields__) == {
        "prediction", "interval", "epsilon", "guarantee", "names", "average", "neighbors", "n_references", "n_examples",
        "typicality", "private", "record", "attention", "unreadable", "unknown", "agreement", "legend", "_votes",
        "_source", "_numerals", "_histogram", "_question",
    }  # fmt: skip


@pytest.mark.parametrize("n_targets", [1, 2])
def test_private_explanations_hold_rounded_numbers_only(n_targets: int) -> None:
    refs, query = voters(n_targets=n_targets)
    records = {name: {"name": f"record of {name}"} for name in refs.ids}
    ends = np.stack([targets_of(refs)[:2].min(axis=0), targets_of(refs)[:2].max(axis=0)], axis=1)[None]
    more: dict[str, Any] = {"records": records, "names": NAMES[:n_targets], "intervals": ends, "k": 3}
    open_, private = one(refs, query, **more), one(refs, query, **more, private=True)
    assert any("record of" in text for text in every_text(open_))
    assert private._votes is None
    assert private._source is None
    assert (private.neighbors, private.groups, private.influential, private.quantiles) == ((), (), (), None)
    for text in every_text(private):
        assert not any(name in text for name in ("record of", *refs.ids.tolist()))
    steps = [each.step for each in private._numerals]
    found = [private] if n_targets == 1 else [private, private]
    for t, e in enumerate(found):

        def pick(value: Any, t: int = t) -> Any:
            return value if n_targets == 1 else value[t]

        assert pick(e.prediction) / steps[t] == pytest.approx(round(pick(e.prediction) / steps[t]), abs=1e-9)
        low, high = pick(e.interval)
        assert low <= ends[0, t, 0] < low + steps[t]
        assert high - steps[t] < ends[0, t, 1] <= high
        _, shares = pick(e.histogram)
        assert len(shares) <= 10
        assert sum(shares) == pytest.approx(1)
        assert [round(20 * share, 9) for share in shares] == [round(20 * share) for share in shares]
    # No number that anybody has is said, nor anything as exact.
    exact = {f"{value:.6g}" for value in targets_of(refs).ravel()}
    for path, number in numbers(private.to_dict()):
        assert f"{number:.6g}" not in exact, path
    for path, value in held(private):
        assert not (isinstance(value, float) and f"{value:.6g}" in exact), path
        assert not isinstance(value, Neighbor), path


def test_the_number_of_a_lone_voter_cannot_be_read_off() -> None:
    rng = np.random.default_rng(0)
    y = rng.uniform(1000, 9000, 60)
    refs = ReferenceSet(100 * np.arange(60.0)[:, None], np.zeros(60, dtype=int), targets=y)
    given = explain_numbers(refs, refs.embeddings, private=True, intervals=np.stack([y, y], axis=1)[:, None])
    step = given[0]._numerals[0].step
    assert 8000 / 50 <= step <= 8000 / 15
    assert all(abs(e.prediction - v) <= step / 2 for e, v in zip(given, y, strict=True))
    # Another number in its place, of the same step, gives the same answer.
    for i in range(0, 60, 5):
        other = float(privacy.numbers(y[i], step))
        changed = ReferenceSet(refs.embeddings, refs.labels, targets=np.where(np.arange(60) == i, other, y))
        mine = one(changed, [[100.0 * i]], private=True, intervals=[[[other - 1e-3, other + 1e-3]]])
        assert mine.prediction == given[i].prediction


@given(st.floats(-1e9, 1e9), st.floats(0, 1e9), st.sampled_from([0.01, 0.2, 5.0, 1e6]))
def test_private_intervals_are_never_narrower(low: float, width: float, step: float) -> None:
    wide = privacy.interval([low, low + width], step)
    assert wide[0] <= low + 1e-8 * step
    assert wide[1] >= low + width - 1e-8 * step
    assert privacy.interval([-np.inf, np.inf], step).tolist() == [-np.inf, np.inf]


@pytest.mark.slow
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_a_little_move_hardly_changes_a_private_answer(seed: int) -> None:
    refs, _ = voters(seed)
    h = refs.embeddings.numpy()[:20]
    there, near = ([e.to_dict() for e in explain_numbers(refs, points, private=True)] for points in (h, h + 1e-5))
    assert sum(a != b for a, b in zip(there, near, strict=True)) <= 4
