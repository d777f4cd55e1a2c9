"""Explanations by groups: shares are exact, how few decide is certified, and the words say so."""

import itertools
import json
import math
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dwac import ReferenceSet
from dwac.explain import Explanation, explain
from dwac.explain.voters import Group
from dwac.kernels import KERNELS
from dwac.metrics import Agreement
from dwac.reference.references import with_groups, without_members
from tests import oracle
from tests.explain.helpers import every_text
from tests.named import named

RNG = np.random.default_rng(0)
M = 300
LABELS = RNG.integers(0, 3, M)
POINTS = 0.3 * RNG.normal(size=(M, 2)) + np.eye(3)[LABELS][:, :2]  # clouds that are small beside the kernel
IDS = [f"r{i}" for i in range(M)]
QUERY = np.array([[0.6, 0.1]])
NAMES = ["a", "b", "c"]


def crowd(**changes: Any) -> ReferenceSet:
    return ReferenceSet(**{"embeddings": POINTS, "labels": LABELS, "ids": IDS, "n_classes": 3, **changes})


def divided(seed: int) -> tuple[ReferenceSet, Any]:
    """A few references, many coincident or equally far, in groups at random, in classes of several weights."""
    rng = np.random.default_rng(seed)
    n_classes, m = int(rng.integers(2, 4)), int(rng.integers(2, 9))
    points = rng.integers(-1, 2, size=(m, 1)).astype(float) if seed % 2 else rng.normal(size=(m, 2))
    labels, kernel = rng.integers(n_classes, size=m), sorted(KERNELS)[seed % 3]
    leaves = np.unique(labels * 10 + rng.integers(0, 3, m), return_inverse=True)[1]
    weights = None if seed % 4 < 2 else rng.choice([1.0, 2.0, 5.0], size=m)
    by_class = rng.choice([0.5, 1.0, 2.0, 3.7], size=n_classes)
    refs = ReferenceSet(points, labels, None, n_classes, kernel, by_class, weights)
    return with_groups(refs, leaves, np.arange(leaves.max() + 1)), [[0.0] * points.shape[1]]


# Shares


@pytest.mark.parametrize("kernel", KERNELS)
@pytest.mark.parametrize("by_class", [None, [0.5, 1.0, 4.0]])
@pytest.mark.parametrize("condensed", [False, True])
def test_shares_of_groups_are_exact_and_sum_to_those_of_their_labels(kernel, by_class, condensed):
    refs = crowd(kernel=kernel, class_weights=by_class)
    refs = refs.condensed() if condensed else refs
    e = explain(refs, QUERY, classes=NAMES)[0]
    assert sum(group.share for group in e.groups) == pytest.approx(1, abs=1e-9)
    for label, probability in e.probabilities.items():
        assert sum(g.share for g in e.groups if g.label == label) == pytest.approx(probability, rel=1e-4)
    votes = np.exp(oracle.log_weights(QUERY, refs.embeddings.numpy(), kernel)[0]) * refs.weights
    votes *= refs.class_weights[refs.labels.numpy()]
    for group in e.groups:
        rows = refs.voters.positions(group.ids)
        assert group.share == pytest.approx(votes[rows].sum() / votes.sum(), rel=1e-9)
        assert group.size == round(refs.weights[rows].sum())
        assert {NAMES[y] for y in refs.labels.numpy()[rows]} == {group.label}
    assert [g.share for g in e.groups] == sorted((g.share for g in e.groups), reverse=True)
    assert sum(group.size for group in e.groups) == M == e.n_examples
    assert e.n_references == len(refs)


def test_a_far_query_still_has_shares_of_groups():
    e = explain(crowd(), [[1e4, 0.0]])[0]
    assert sum(group.share for group in e.groups) == pytest.approx(1)
    for group in e.groups:
        assert not group.subgroups or sum(sub.share for sub in group.subgroups) == pytest.approx(group.share)


def test_subgroups_share_what_their_group_has():
    for refs in (crowd(), crowd().condensed()):
        e = explain(refs, QUERY)[0]
        assert any(group.subgroups for group in e.groups)
        for group in e.groups:
            if not group.subgroups:
                continue
            assert sum(sub.share for sub in group.subgroups) == pytest.approx(group.share, rel=1e-9)
            assert sum(sub.size for sub in group.subgroups) == group.size
            assert sorted(name for sub in group.subgroups for name in sub.ids) == sorted(group.ids)
            assert {sub.label for sub in group.subgroups} == {group.label}
            shares = [sub.share for sub in group.subgroups]
            assert shares == sorted(shares, reverse=True)
            assert all(sub.subgroups == () and sub.description is None for sub in group.subgroups)


def test_a_representative_is_a_member_with_its_own_vote():
    refs = crowd(class_weights=[0.5, 1.0, 4.0])
    e = explain(refs, QUERY, k=M)[0]
    votes = {neighbor.id: neighbor for neighbor in e.neighbors}
    for group in e.groups:
        for voter in (group.representative, *group.members):
            same = votes[voter.id]
            assert voter.id in group.ids
            assert (voter.label, voter.size) == (same.label, 1)
            assert voter.share == pytest.approx(same.share, rel=1e-4)
            assert voter.log_weight == pytest.approx(same.log_weight, abs=1e-9)
            assert voter.distance == pytest.approx(same.distance)
        representative = refs.voters.positions([group.representative.id])[0]
        rows = refs.voters.positions(group.ids)
        squared = oracle.squared_distances([POINTS[rows].mean(axis=0)], POINTS[rows])[0]
        assert representative == rows[squared.argmin()]


# Who is shown


def test_members_shown_are_those_most_alike_and_else_the_heaviest():
    asked = []

    def alike(row: int, ids: list[Any]) -> Any:
        asked.append(row)
        return np.array([abs(int(name[1:]) - 150) // 2 for name in ids], float)  # in pairs that are equally alike

    first, second = explain(crowd(), np.repeat(QUERY, 2, axis=0), alike=alike)
    log_w = dict(zip(IDS, crowd().voters.log_votes(crowd().embeddings.new_tensor(QUERY[0])), strict=True))
    for group in second.groups:
        order = sorted(group.ids, key=lambda name: (abs(int(name[1:]) - 150) // 2, -log_w[name]))
        assert [member.id for member in group.members] == order[:3]
        assert group.face.id == order[0]
    assert set(asked) == {1}
    plain = explain(crowd(), QUERY)[0]
    for group in plain.groups:
        assert [member.id for member in group.members] == sorted(group.ids, key=lambda name: -log_w[name])[:3]
    assert first.groups[0].ids == plain.groups[0].ids


def test_a_face_stands_for_its_whole_group():
    for group in explain(crowd(), QUERY, records={name: {"n": name} for name in IDS})[0].groups:
        assert (group.face.share, group.face.size) == (group.share, group.size)
        assert (group.face.id, group.face.record) == (group.members[0].id, {"n": group.members[0].id})


def test_groups_are_shown_where_few_examples_do_not_explain():
    e = explain(crowd(), QUERY, k=4)[0]
    assert e.deciding > 10
    assert not e.few_suffice
    assert e.shown_groups[:4] == e.groups[:4]
    assert any(group.label != e.label for group in e.shown_groups)
    assert [voter.id for voter in e.shown] == [group.face.id for group in e.shown_groups]
    near = explain(crowd(embeddings=20 * POINTS), 20 * POINTS[:1], k=4)[0]
    assert near.few_suffice
    assert near.shown == near.neighbors


def test_the_heaviest_rival_is_shown_though_it_is_light():
    labels = np.append(np.zeros(M - 1, int), 1)
    e = explain(crowd(labels=labels, n_classes=2, embeddings=np.append(POINTS[:-1], [[9.0, 9.0]], axis=0)), QUERY, k=2)[
        0
    ]
    assert [group.label for group in e.shown_groups] == [0, 0, 1]
    alone = explain(crowd(labels=np.zeros(M, int), n_classes=1), QUERY, k=2)[0]
    assert [group.label for group in alone.shown_groups] == [0, 0]


def test_descriptions_belong_to_their_groups():
    refs = crowd()
    texts = [f"group {code}" if code else None for code in range(len(refs.groups))]
    e = explain(refs, QUERY, descriptions=texts)[0]
    for group in e.groups:
        (code,) = set(refs.groups.of[refs.voters.positions(group.ids)].tolist())
        assert group.words == texts[code]
        percent = round(100 * group.size / len(refs))
        expected = None if texts[code] is None else f"{texts[code]}, {percent} % of training examples"
        assert group.description == expected
    assert "None" not in str(e)
    assert "None" not in e.to_html()
    frame = e.groups_frame()
    assert frame.columns.tolist() == ["label", "share", "size", "description", "representative"]
    assert frame["representative"].tolist() == [group.representative.id for group in e.groups]
    assert frame["share"].sum() == pytest.approx(1)
    assert "examples" in repr(e.groups[0])


# Certificates


def exact_votes(votes: Any, labels: Any, class_weights: Any) -> Any:
    return np.array([math.fsum(votes[labels == k]) * class_weights[k] for k in range(len(class_weights))])


@pytest.mark.parametrize("seed", range(60))
def test_deciding_groups_is_the_least_number_that_no_labels_of_the_rest_can_overturn(seed: int) -> None:
    refs, query = divided(seed)
    e = explain(refs, query)[0]
    groups, c = refs.groups, refs.class_weights
    votes = np.exp(oracle.log_weights(query, refs.embeddings.numpy(), refs.kernel)[0]) * refs.weights
    sums = np.array([math.fsum(votes[groups.of == g]) for g in range(len(groups))])
    order = [int(groups.of[refs.voters.positions(group.ids)[0]]) for group in e.groups]
    counted = sums[order] * c[groups.labels[order]]
    assert (np.diff(counted) <= 1e-12 * counted[0]).all()
    label = e.label

    def fixed(j: int) -> bool:
        """Whether the label stays, by a clear lead, whatever class each other group votes for."""
        for other in itertools.product(range(refs.n_classes), repeat=len(groups) - j):
            labels = groups.labels.copy()
            labels[order[j:]] = other
            found = exact_votes(sums, labels, c)
            if np.delete(found, label).max() >= found[label] * (1 - 1e-12):
                return False
        return True

    assert e.deciding_groups == next((j for j in range(len(groups)) if fixed(j)), len(groups))


@pytest.mark.parametrize("seed", range(8))
def test_no_labels_of_single_members_of_the_rest_overturn_it_either(seed: int) -> None:
    refs, query = divided(seed)
    e = explain(refs, query)[0]
    assert e.deciding_groups is not None
    free = refs.voters.positions([name for group in e.groups[e.deciding_groups :] for name in group.ids])
    votes = np.exp(oracle.log_weights(query, refs.embeddings.numpy(), refs.kernel)[0]) * refs.weights
    for other in itertools.product(range(refs.n_classes), repeat=len(free)):
        changed = refs.labels.numpy().copy()
        changed[free] = other
        assert np.bincount(changed, votes * refs.class_weights[changed]).argmax() == e.label


@settings(deadline=None, derandomize=True, max_examples=30)
@given(seed=st.integers(0, 9999))
def test_deciding_groups_lead_every_rival_by_more_than_all_the_rest(seed: int) -> None:
    rng = np.random.default_rng(seed)
    m = int(rng.integers(2, 60))
    refs = ReferenceSet(rng.normal(size=(m, 2)), rng.integers(3, size=m), n_classes=3)
    e = explain(refs, rng.normal(size=(1, 2)))[0]

    def lead(j: int) -> float:
        votes = [sum(group.share for group in e.groups[:j] if group.label == k) for k in range(3)]
        rest = sum(group.share for group in e.groups[j:])
        return float(votes[e.label] - max(v for k, v in enumerate(votes) if k != e.label) - rest)

    j = e.deciding_groups
    assert j is not None
    assert j == len(e.groups) or lead(j) > 0
    assert j == 0 or lead(j - 1) <= 1e-9


def test_a_tie_between_groups_takes_all_of_them() -> None:
    refs = ReferenceSet([[-1.0], [-1.0], [1.0], [1.0]], [0, 0, 1, 1])
    e = explain(refs, [[0.0]])[0]
    assert (e.label, e.deciding_groups) == (0, len(e.groups))


def test_one_label_alone_needs_no_group_to_decide() -> None:
    assert explain(ReferenceSet(POINTS, [0] * M), QUERY)[0].deciding_groups == 0


@pytest.mark.parametrize("alone", [False, True])
def test_removing_the_flip_set_of_a_condensed_set_changes_the_label(alone: bool) -> None:
    few = crowd().condensed()
    few = without_members(few) if alone else few
    e = explain(few, QUERY)[0]
    flip = e.flip_set()
    assert flip is not None
    sizes = few.weights.sum()
    assert (len(flip) == e.flip_size) == alone
    few.remove(flip)
    assert explain(few, QUERY)[0].label != e.label
    assert alone or few.weights.sum() == sizes - len(flip)  # whole groups are gone: nobody takes their place


# Words


def words(e: Explanation) -> str:
    return " ".join(e.sentences())


def test_few_that_suffice_are_named() -> None:
    e = explain(ReferenceSet([[0.0], [0.5], [3.0], [3.1]], [0, 0, 1, 1]), [[0.0]])[0]
    assert e.deciding == 1
    assert any(named(each, "nearest", 3) for each in e.sentences())
    two = explain(ReferenceSet([[0.0], [0.5]], [0, 1]), [[0.0]])[0]
    assert two.deciding == 1
    assert "nearest" in words(two)
    tie = explain(ReferenceSet([[-1.0], [1.0]], [0, 1]), [[0.0]])[0]
    assert any(named(each, "All 2") for each in tie.sentences())
    single = explain(ReferenceSet([[1.0]], [1], n_classes=2), [[0.0]])[0]
    assert any(named(each, "only") for each in single.sentences())


def test_groups_are_named_where_few_examples_do_not_explain() -> None:
    e = explain(crowd(), [[1.0, 0.0]], k=5, classes=NAMES)[0]
    held = 100 * sum(neighbor.share for neighbor in e.neighbors)
    size = sum(group.size for group in e.groups[: e.deciding_groups])
    number = {2: "Two", 3: "Three", 4: "Four", 5: "Five", 6: "Six", 7: "Seven", 8: "Eight"}[e.deciding_groups or 0]
    assert any(named(each, 5, f"{held:.1f} %", e.deciding) for each in e.sentences())
    assert any(named(each, number, size, 300) for each in e.sentences())
    one = explain(crowd(), [[1.0, 0.0]], k=1)[0]
    assert "nearest one" in words(one)
    assert len(e.to_text(width=200).splitlines()) == len(e.sentences()) + 3 + len(e.shown_groups)


def test_one_group_that_decides_and_all_groups_that_do_not_are_named() -> None:
    labels = (np.arange(100) >= 70).astype(int)
    refs = ReferenceSet(np.zeros((100, 2)), labels)
    assert any(named(each, "One group", 70, 100) for each in explain(refs, QUERY)[0].sentences())
    tie = ReferenceSet(np.zeros((100, 2)), np.arange(100) % 2)
    assert any(named(each, "All 2 groups") for each in explain(tie, QUERY)[0].sentences())
    single = explain(ReferenceSet(np.zeros((100, 2)), np.zeros(100, int), n_classes=2), QUERY)[0]
    assert any(named(each, "All 100", "one group") for each in single.sentences())
    only = explain(ReferenceSet(POINTS, [0] * M), QUERY)[0]
    assert any(named(each, "only one label") for each in only.sentences())


def test_representatives_are_called_so_and_their_agreement_is_told() -> None:
    few = crowd().condensed()
    agreement = Agreement(0.9975, 0.99, 0.9999, 400)
    e = explain(few, [[1.0, 0.0]], agreement=agreement)[0]
    text = words(e)
    assert named(text, f"{len(few)} representatives", 300, "99.75 %", 400, "99.00 %", "99.99 %")
    assert named(text, f"{e.flip_size} representatives")
    sure = explain(few, POINTS[LABELS == 0].mean(axis=0, keepdims=True) - [[0, 3]], k=len(few))[0]
    assert named(words(sure), f"{sure.deciding} representatives")
    assert "nearest" not in text + words(sure)
    assert not any("representative" in sentence for sentence in explain(crowd(), QUERY)[0].sentences())
    assert "size" in e.to_frame()
    assert "size" not in explain(crowd(), QUERY)[0].to_frame()
    assert "agreement" in e.to_dict()
    assert e.to_dict()["agreement"] == agreement._asdict()


def test_a_single_representative_that_changes_the_label_is_named() -> None:
    refs = ReferenceSet([[0.0], [0.1], [2.0]], [0, 0, 1]).condensed([0, 0, 1])
    e = explain(refs, [[0.2]])[0]
    assert e.flip_size == 1
    assert any(named(each, "single representative") for each in e.sentences())


def test_to_dict_is_json_with_groups() -> None:
    records = pd.DataFrame({"x": np.arange(M), "gap": [np.nan] * M}, index=IDS)
    for refs in (crowd(), crowd().condensed()):
        texts = [None, *["some text"] * (len(refs.groups) - 1)]
        e = explain(refs, QUERY, records=records, descriptions=texts, agreement=Agreement(1.0, 0.9, 1.0, 30))[0]
        plain = json.loads(json.dumps(e.to_dict(), allow_nan=False))
        assert [group["share"] for group in plain["groups"]] == [group.share for group in e.shown_groups]
        assert plain["groups"][0]["members"][0]["id"] == e.groups[0].members[0].id
        assert plain["groups"][0]["representative"]["record"]["gap"] is None
        assert (plain["n_groups"], plain["deciding_groups"]) == (len(e.groups), e.deciding_groups)
        assert (plain["n_references"], plain["n_examples"]) == (len(refs), M)


def test_html_of_groups_is_escaped() -> None:
    refs = crowd()
    e = explain(refs, QUERY, descriptions=["<script>alert(1)</script>"] * len(refs.groups))[0]
    assert "<script" not in e.to_html()
    assert "&lt;script" in e.to_html()


# Privacy


@pytest.mark.parametrize("condensed", [False, True])
def test_private_explanations_hold_no_group(condensed: bool) -> None:
    refs = crowd(ids=[f"secret{i}" for i in range(M)])
    refs = refs.condensed() if condensed else refs
    asked: list[Any] = []
    e = explain(
        refs,
        QUERY,
        records={name: {"x": "secret"} for name in refs.ids},
        descriptions=["secret words"] * len(refs.groups),
        alike=lambda row, ids: asked.append(ids) or np.zeros(len(ids)),  # type: ignore[func-returns-value]
        agreement=Agreement(0.9975, 0.9871, 0.9999, 4321),
        private=True,
    )[0]
    assert (e.groups, e.shown_groups, e.deciding_groups, e._votes, e._source) == ((), (), None, None, None)
    assert not any("secret" in text for text in every_text(e))
    assert e.groups_frame().empty
    assert e.to_dict()["groups"] == []
    assert asked == []
    assert e.n_examples == 300
    assert e.agreement == (0.99, 0.98, 1.0, 4300)
    text = words(e)
    if condensed:
        assert named(text, "representatives", "99 %", 300)
    else:
        assert "representative" not in text


def test_a_group_is_made_by_an_explanation_only_when_asked() -> None:
    e = explain(crowd(), QUERY)[0]
    assert not any(isinstance(value, tuple) and value and isinstance(value[0], Group) for value in vars(e).values())
    assert isinstance(e.groups[0], Group)
