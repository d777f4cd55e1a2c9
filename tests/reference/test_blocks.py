"""References in files answer as those in memory do, and as the definitions say, however they are divided."""

import math
import pickle
import secrets
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dwac import ReferenceSet
from dwac.errors import EmptyReferenceError, InputError
from dwac.kernels import KERNELS
from dwac.reference import ReferenceWriter, merge, novelty
from dwac.reference.files import mapped_set
from dwac.reference.references import set_of
from dwac.storage import tensor_rows
from tests import oracle
from tests.named import refuses
from tests.reference.helpers import each, wanted

relaxed = settings(max_examples=8)
CLOSE = 1e-9
# The root of a distance of 0 that is 1e-16 by rounding is 1e-8: the float64 of one machine has that too.
NEAR = {"laplace": 1e-7}
K = 4
FOLDER = tempfile.TemporaryDirectory()


def in_files(refs: ReferenceSet, sizes: list[int], ask: Any = map) -> ReferenceSet:
    """The same set in files, asked in blocks of these sizes. The files are removed at the end of the process."""
    folder = Path(FOLDER.name) / secrets.token_hex(8)
    held = {"weights": refs.weights if refs.voters.weighted else None, "targets": refs.targets}
    with ReferenceWriter(folder, refs.n_classes) as writer:
        writer.add(refs.embeddings, refs.labels, **held)
    rows = {path.stem: tensor_rows(path)[path.stem] for path in folder.glob("*.safetensors")}
    options: dict[str, Any] = {"kernel": refs.kernel, "ids": refs.ids, "look_alikes": refs.voters.look_alikes}
    voters = mapped_set(rows, n_classes=refs.n_classes, class_weights=refs.class_weights, **options, ask=ask).voters
    return set_of(replace(voters, cuts=tuple(np.cumsum([0, *sizes]).tolist())))  # type: ignore[call-arg]


@st.composite
def examples(draw: Any, *, targets: bool = False) -> tuple[ReferenceSet, ReferenceSet, torch.Tensor]:
    """A set, the same in blocks, and queries: with ties, copies, classes that blocks lack, and far queries."""
    m, d = draw(st.integers(1, 30)), draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    points = rng.integers(-3, 4, (m, d)) / 2 if draw(st.booleans()) else rng.normal(size=(m, d))
    kernel, weighted = draw(st.sampled_from(list(KERNELS))), draw(st.booleans())
    seconds = [None, (0.0, 0.01)] if weighted else [None, (0.0, 0.01), (3.0, 20.0)]
    refs = ReferenceSet(
        points,
        rng.integers(0, K - 1, m),  # nobody is of the last class
        [f"r{i}" for i in range(m)],
        n_classes=K,
        kernel=kernel,
        weights=10.0 ** rng.uniform(-3, 3, m) if weighted else None,
        class_weights=rng.uniform(0.2, 5, K) if draw(st.booleans()) else None,
        look_alikes=draw(st.sampled_from(seconds)),
        targets=np.stack([rng.normal(size=m), rng.integers(0, 4, m)], axis=1) if targets else None,
    )
    cuts = sorted(draw(st.sets(st.integers(1, m - 1), max_size=6))) if m > 1 else []
    queries = np.concatenate([points[:2], rng.normal(size=(3, d)), rng.normal(size=(1, d)) + 300.0])
    return refs, in_files(refs, np.diff([0, *cuts, m]).tolist()), torch.tensor(queries)


def definition(refs: ReferenceSet, queries: Any) -> Any:
    """(n, m): the log of every vote, with all that weighs it."""
    points, h = refs.embeddings.numpy(), np.asarray(queries)
    log_w = oracle.log_weights(h, points, refs.kernel)
    if refs.voters.look_alikes is not None:
        factor, weight = refs.voters.look_alikes
        log_w = np.logaddexp(log_w, oracle.log_weights(factor * h, factor * points, refs.kernel) + math.log(weight))
    return log_w + np.log(refs.weights) + np.log(refs.class_weights)[refs.labels.numpy()]


def sums(log_w: Any, codes: Any, n: int) -> Any:
    return np.array([[oracle.log_sum_exp(row[codes == code].tolist()) for code in range(n)] for row in log_w])


def assert_logs(found: Any, want: Any, kernel: str = "gaussian") -> None:
    """Equal to 1e-9, or to the last places of large numbers; -inf where that is wanted."""
    np.testing.assert_allclose(np.asarray(found), np.asarray(want), rtol=1e-12, atol=NEAR.get(kernel, CLOSE))


@relaxed
@given(examples(), st.integers(1, 30), st.randoms(use_true_random=False))
def test_votes_and_neighbours_of_blocks_are_those_of_the_whole_set(example: Any, k: int, random: Any) -> None:
    refs, blocks, queries = example
    k = min(k, len(refs))
    votes, near = refs.query(queries, k=k)
    found, same = blocks.query(queries, k=k)
    assert_logs(found, votes, refs.kernel)
    assert_logs(found, sums(definition(refs, queries), refs.labels.numpy(), K), refs.kernel)
    assert (same.ids == near.ids).all()
    assert (same.labels == near.labels).all()
    assert (same.sizes == near.sizes).all()
    np.testing.assert_allclose(same.squared_distances, near.squared_distances, rtol=1e-12, atol=1e-12)
    assert_logs(same.log_weights, near.log_weights, refs.kernel)
    # Any order, any tree.
    parts = [block.votes(queries, k) for block in blocks.voters.blocks]
    while len(parts) > 1:
        one, other = (parts.pop(random.randrange(len(parts))) for _ in range(2))
        parts.append(merge([one, other]))
    assert_logs(parts[0].log_sums, votes, refs.kernel)
    assert (refs.ids[parts[0].rows.numpy()] == near.ids).all()


@relaxed
@given(examples())
def test_groups_novelty_and_single_votes_are_those_of_the_whole_set(example: Any) -> None:
    refs, blocks, queries = example
    groups, found = refs.groups, blocks.log_group_weights(queries)
    assert_logs(found, refs.log_group_weights(queries), refs.kernel)
    assert_logs(found, sums(definition(refs, queries), groups.of, len(groups)), refs.kernel)
    assert_logs(blocks.voters.log_votes(queries[2]), refs.voters.log_votes(queries[2]))
    assert_logs(novelty(blocks, queries, directions=True), novelty(refs, queries, directions=True))


@pytest.mark.slow
@relaxed
@given(examples(targets=True))
def test_distributions_of_blocks_are_those_of_the_whole_set(example: Any) -> None:
    refs, blocks, queries = example
    whole, divided, want = refs.distribution(queries), blocks.distribution(queries), wanted(refs, queries)
    np.testing.assert_allclose(divided.mean, each(want, lambda d: d.mean), atol=CLOSE)
    np.testing.assert_allclose(divided.variance, each(want, lambda d: d.variance), atol=CLOSE)
    assert_logs(divided.log_total, whole.log_total)
    for value in (-0.5, 1.0, 2.0, math.inf):
        np.testing.assert_allclose(divided.cdf(value), whole.cdf(value), atol=CLOSE)
        for side in (0, 1):
            assert_logs(divided.tails(value)[side], each(want, lambda d: d.log_tails(value)[side]))  # noqa: B023
    edges = [-1.0, 0.0, 1.0, 3.0]
    np.testing.assert_allclose(divided.histogram(edges), whole.histogram(edges), atol=CLOSE)
    levels = [0.0, 0.1, 0.5, 0.77, 1.0]
    assert (divided.quantiles(levels) == whole.quantiles(levels)).all()
    for level in (-40.0, -3.0, math.log(0.5)):
        lower, upper = divided.ends(level)
        np.testing.assert_array_equal(np.stack([lower, upper], -1), each(want, lambda d: d.ends(level)))  # noqa: B023
    assert (divided.influence(2).ids == whole.influence(2).ids).all()
    np.testing.assert_allclose(divided.crps(0.5), whole.crps(0.5), atol=CLOSE)
    assert torch.equal(divided[1:3].median, whole[1:3].median)


def test_a_quantile_among_many_targets_is_that_of_the_whole_set() -> None:
    rng = np.random.default_rng(0)
    refs = ReferenceSet(rng.normal(size=(5000, 2)), np.zeros(5000, int), targets=rng.normal(size=5000).round(5))
    queries = rng.normal(size=(3, 2))
    for sizes in ([2500] * 2, [500] * 10):
        found = in_files(refs, sizes).distribution(queries).quantiles([0.01, 0.3, 0.9])
        assert (found == refs.distribution(queries).quantiles([0.01, 0.3, 0.9])).all()


def test_float32_sets_are_summed_in_float64_by_blocks() -> None:
    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(400, 16)).astype(np.float32), rng.integers(0, 3, 400)
    queries = rng.normal(size=(5, 16)).astype(np.float32)
    found = in_files(ReferenceSet(points, labels), [100, 250, 50]).log_class_weights(queries)
    assert_logs(found, oracle.log_class_weights(queries, points, labels, 3, "gaussian"))


def test_blocks_can_be_sent_and_asked_by_a_pool() -> None:
    rng = np.random.default_rng(0)
    refs = ReferenceSet(rng.normal(size=(50, 2)), rng.integers(0, 2, 50))
    queries = torch.tensor(rng.normal(size=(4, 2)))
    blocks = in_files(refs, [20, 20, 10])
    before = len(pickle.dumps(blocks.voters.blocks[0]))
    want = blocks.log_class_weights(queries)
    assert len(pickle.dumps(blocks.voters.blocks[0])) == before  # what was computed for a query is not sent
    sent = pickle.loads(pickle.dumps(blocks.voters.blocks))
    assert torch.equal(merge(pickle.loads(pickle.dumps(block.votes(queries))) for block in sent).log_sums, want)
    with ThreadPoolExecutor(2) as pool:
        assert torch.equal(in_files(refs, [20, 20, 10], pool.map).log_class_weights(queries), want)


def test_gradients_go_through_blocks() -> None:
    rng = np.random.default_rng(0)
    refs = ReferenceSet(rng.normal(size=(20, 2)), rng.integers(0, 3, 20))
    found = []
    for each_set in (refs, in_files(refs, [5] * 4)):
        queries = torch.tensor(rng.normal(size=(3, 2)) * 0 + [[0.1, 0.2]], requires_grad=True)
        each_set.log_probabilities(queries)[:, 0].sum().backward()
        found.append(queries.grad)
    torch.testing.assert_close(*found, rtol=1e-9, atol=1e-9)


def test_impossible_questions_are_refused() -> None:
    blocks = in_files(ReferenceSet([[0.0], [1.0]], [0, 1]), [1, 1])
    with refuses(InputError, "k"):
        blocks.nearest([[0.0]], k=3)
    with refuses(EmptyReferenceError, "one"):
        merge([])
