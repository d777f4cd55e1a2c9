"""Votes of other models: the same predictions to 1e-9, and what follows from their weights."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy.sparse import csr_array
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.ensemble import (
    ExtraTreesClassifier,
    ExtraTreesRegressor,
    GradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.kernel_ridge import KernelRidge
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor

import dwac
from dwac import ReferenceSet
from dwac.errors import CalibrationError, CalibrationWarning, InputError, KindError, ShapeError
from dwac.explain import explain
from dwac.votes import VotingModel, Weights, from_forest, from_gaussian_process, from_kernel_ridge, from_neighbors
from tests.named import refuses

CANCER, MALIGNANT = load_breast_cancer(return_X_y=True, as_frame=True)
X, Y = CANCER[:200].set_axis([f"p{i}" for i in range(200)], axis=0), MALIGNANT[:200].map({0: "ill", 1: "well"})
X_NEW, Y_NEW = CANCER[200:300], MALIGNANT[200:300].map({0: "ill", 1: "well"})
DIABETES = load_diabetes(return_X_y=True)
A, B = DIABETES[0][:150], DIABETES[1][:150]
A_NEW, B_NEW = DIABETES[0][150:200], DIABETES[1][150:200]
SAMPLE_WEIGHT = np.tile([1.0, 2.0, 0.5, 3.0], 50)


def forest(kind: Any = RandomForestClassifier, **settings: Any) -> Any:
    return kind(n_estimators=10, random_state=0, **settings)


@pytest.fixture(scope="module")
def voters() -> VotingModel:
    return from_forest(forest().fit(X, Y), X, Y)


# The same predictions


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores", "ignore:invalid value encountered")
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(RandomForestClassifier, id="random"),
        pytest.param(ExtraTreesClassifier, id="extra", marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("weighted", [False, True], ids=["equal", "weighted"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"class_weight": "balanced", "max_depth": 3},
        pytest.param({"class_weight": {"ill": 3.0, "well": 1.0}}, marks=pytest.mark.slow),
        {"class_weight": "balanced_subsample", "bootstrap": True},
        pytest.param({"bootstrap": True, "max_samples": 0.3, "min_samples_leaf": 4}, marks=pytest.mark.slow),
        pytest.param({"criterion": "entropy", "max_leaf_nodes": 8}, marks=pytest.mark.slow),
    ],
    ids=["plain", "balanced", "by class", "balanced by tree", "small samples", "few leaves"],
)
def test_a_forest_and_its_voters_agree(kind: Any, settings: dict[str, Any], weighted: bool) -> None:
    weights = SAMPLE_WEIGHT if weighted else None
    model = forest(kind, **settings)
    model.set_params(oob_score=model.bootstrap).fit(X, Y, sample_weight=weights)
    voters = from_forest(model, X, Y, sample_weight=weights)
    assert np.abs(voters.predict_proba(X_NEW) - model.predict_proba(X_NEW)).max() <= 1e-9
    assert (voters.predict(X_NEW) == model.predict(X_NEW)).all()
    if model.bootstrap:
        own = np.concatenate([rows @ voters._values for rows in voters.own_weights()])
        judged = own.sum(axis=1) > 0
        assert judged.mean() > 0.9
        assert np.abs(own - model.oob_decision_function_)[judged].max() <= 1e-9
    else:
        with refuses(CalibrationError, "X", "y"):
            voters.calibrate()


def test_neighbors_that_are_all_rows_leave_none_for_a_row_without_itself() -> None:
    model = KNeighborsClassifier(n_neighbors=len(X)).fit(X, Y)
    voters = from_neighbors(model, X, Y)
    for ask in (voters.calibrate, voters.worth):
        with refuses(CalibrationError, f"{len(X) - 1:,} neighbors", f"{len(X):,}", "X and y"):
            ask()


@pytest.mark.filterwarnings("ignore:Some inputs do not have OOB scores")
@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        (RandomForestRegressor, {"oob_score": True, "criterion": "poisson"}),
        (RandomForestRegressor, {"oob_score": True, "max_features": 3, "max_depth": 4}),
        (ExtraTreesRegressor, {}),
    ],
    ids=["poisson", "shallow", "extra"],
)
@pytest.mark.parametrize("several", [False, True], ids=["one number", "two numbers"])
def test_a_forest_of_numbers_and_its_voters_agree(kind: Any, settings: dict[str, Any], several: bool) -> None:
    y = np.stack([B, B**0.5], axis=1) if several else B
    model = forest(kind, **settings).fit(A, y)
    voters = from_forest(model, A, y)
    assert voters.predict(A_NEW).shape == model.predict(A_NEW).shape
    assert np.abs(voters.predict(A_NEW) - model.predict(A_NEW)).max() <= 1e-9
    if model.bootstrap:
        own = np.concatenate([rows @ voters._values for rows in voters.own_weights()])
        judged = np.concatenate([np.diff(rows.indptr) > 0 for rows in voters.own_weights()])
        assert np.abs(own - model.oob_prediction_.reshape(own.shape))[judged].max() <= 1e-9


def test_sparse_tables_and_missing_values_are_read_as_scikit_learn_reads_them() -> None:
    sparse, holes = csr_array(A * (A > 0)), np.where(A > 0.08, np.nan, A)
    for rows in (sparse, holes):
        model = forest().fit(rows, B > 140)
        voters = from_forest(model, rows, B > 140).calibrate()
        assert np.abs(voters.predict_proba(rows) - model.predict_proba(rows)).max() <= 1e-9
        told = voters.explain(rows[:2])[1]
        assert told.label == model.predict(rows[:2])[1]
        assert (told.neighbors[0].record is None) == (rows is sparse)
    near = KNeighborsClassifier().fit(sparse, B > 140)
    assert (from_neighbors(near, sparse, B > 140).predict(sparse) == near.predict(sparse)).all()


def test_what_needs_a_model_of_ours_says_so(voters: VotingModel, tmp_path: Path) -> None:
    with refuses(AttributeError, "records", "explorer", "explain"):
        dwac.records.record(tmp_path, voters, X_NEW)  # type: ignore[arg-type]
    with refuses(AttributeError, "explorer", "explain"):
        dwac.explore(voters, X_NEW, show=False)  # type: ignore[arg-type]
    with refuses(KindError, "RandomForestClassifier", "dwac.votes"):
        dwac.explore(forest(RandomForestClassifier), X_NEW, show=False)


def test_one_of_several_outputs_of_a_classifier_is_explained() -> None:
    both = np.stack([Y, np.where(X["mean texture"] > 19, "rough", "smooth")], axis=1)
    model = forest().fit(X, both)
    for output in (0, 1):
        voters = from_forest(model, X, both, output=output)
        assert np.abs(voters.predict_proba(X_NEW) - model.predict_proba(X_NEW)[output]).max() <= 1e-9


@pytest.mark.parametrize("algorithm", ["brute", "kd_tree"])
@pytest.mark.parametrize(
    "weights", ["uniform", "distance", lambda d: np.exp(-d / 100)], ids=["uniform", "distance", "function"]
)
def test_neighbours_and_their_voters_agree_with_ties_as_in_scikit_learn(algorithm: str, weights: Any) -> None:
    grid = np.round(X / X.std())[["mean radius", "mean texture"]]  # many rows at the same place
    new = np.round(X_NEW / X.std())[["mean radius", "mean texture"]]
    model = KNeighborsClassifier(6, weights=weights, algorithm=algorithm).fit(grid, Y)
    voters = from_neighbors(model, grid, Y)
    assert np.abs(voters.predict_proba(new) - model.predict_proba(new)).max() <= 1e-9
    assert (voters.predict(new) == model.predict(new)).all()
    own = np.concatenate([rows @ voters._values for rows in voters.own_weights()])
    assert np.abs(own - model.predict_proba(None)).max() <= 1e-9
    numbers = KNeighborsRegressor(6, weights=weights, algorithm=algorithm).fit(A, B)
    assert np.abs(from_neighbors(numbers, A, B).predict(A_NEW) - numbers.predict(A_NEW)).max() <= 1e-9


# Smoothers, whose weights may be negative


@pytest.mark.parametrize("weights", [None, SAMPLE_WEIGHT[:150]], ids=["equal", "weighted"])
def test_kernel_ridge_adds_up_and_knows_itself_without_an_example(weights: Any) -> None:
    def fit(rows: Any) -> Any:
        some = None if weights is None else weights[rows]
        return KernelRidge(kernel="rbf", gamma=2.0, alpha=0.1).fit(A[rows], B[rows], sample_weight=some)

    model = fit(np.arange(150))
    voters = from_kernel_ridge(model, A, B, sample_weight=weights)
    assert np.abs(voters.predict(A_NEW) - model.predict(A_NEW)).max() <= 1e-9 * B.max()
    every = voters.contributions(A_NEW[:1], k=150)[0]
    assert every["contribution"].sum() == pytest.approx(model.predict(A_NEW[:1])[0])
    assert (every["weight"] < 0).any()
    first = every.iloc[0]
    again = fit(np.delete(np.arange(150), int(first["id"])))
    assert first["without"] == pytest.approx(again.predict(A_NEW[:1])[0])
    own = np.concatenate([rows @ voters._values for rows in voters.own_weights()])
    assert own[3, 0] == pytest.approx(fit(np.delete(np.arange(150), 3)).predict(A[3:4])[0])
    for refused in (voters.explain, lambda rows: voters.worth(rows, B_NEW)):
        with refuses(KindError, "contributions"):
            refused(A_NEW)
    ends = voters.calibrate(A_NEW, B_NEW).predict_interval(A_NEW, 0.1)
    assert ((ends[:, 0] <= B_NEW) & (ends[:, 1] >= B_NEW)).mean() >= 0.9


@pytest.mark.filterwarnings("ignore:Singular matrix")
def test_a_smoother_that_cannot_be_read_says_why() -> None:
    weights = np.ones(150)
    weights[3] = 0.0
    model = KernelRidge(kernel="rbf", gamma=2.0, alpha=0.1).fit(A, B, sample_weight=weights)
    with refuses(InputError, "sample_weight", "above 0", "row 3"):
        from_kernel_ridge(model, A, B, sample_weight=weights)
    with refuses(InputError, "alpha"):
        from_kernel_ridge(KernelRidge(kernel="sigmoid", coef0=-1.0, alpha=0.1).fit(A, B), A, B)


def test_the_mean_of_a_gaussian_process_is_a_sum_of_contributions() -> None:
    model = GaussianProcessRegressor(RBF(0.2) + WhiteKernel(0.1), optimizer=None).fit(A, B)
    assert np.abs(from_gaussian_process(model, A, B).predict(A_NEW) - model.predict(A_NEW)).max() <= 1e-9 * B.max()
    with refuses(InputError, "normalize_y=True"):
        from_gaussian_process(GaussianProcessRegressor(normalize_y=True, optimizer=None).fit(A, B), A, B)


# Any model, by the protocol


class Given:
    """Weights (n, m) of rows, which are numbers of its lines, in blocks of two rows."""

    def __init__(self, table: Any) -> None:
        self.table = table

    def weights(self, X: Any) -> Iterator[Any]:
        rows = np.asarray(X, dtype=int).ravel()
        for start in range(0, len(rows), 2):
            yield self.table[rows[start : start + 2]]


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_our_own_votes_are_explained_as_by_our_own_model(sparse: bool) -> None:
    rng = np.random.default_rng(0)
    labels, names = rng.integers(3, size=30), [f"r{i}" for i in range(30)]
    refs, h = ReferenceSet(rng.normal(size=(30, 2)), labels, names), rng.normal(size=(5, 2))
    table = np.exp(refs.voters.every_vote(h)) * 7.0
    voters = VotingModel.of(Given(csr_array(table) if sparse else table), labels, ids=names)
    assert isinstance(voters.source, Weights)
    assert isinstance(voters, Weights)  # and so are the voters themselves
    for own, other in zip(voters.explain(range(5)), explain(refs, h), strict=True):
        assert (own.label, own.deciding, own.flip_set()) == (other.label, other.deciding, other.flip_set())
        assert own.probability == pytest.approx(other.probability)
        assert [(n.id, n.label) for n in own.neighbors] == [(n.id, n.label) for n in other.neighbors]
        assert [n.share for n in own.neighbors] == pytest.approx([n.share for n in other.neighbors])
        assert own.n_effective == pytest.approx(other.n_effective)
        assert own.vote_interval == pytest.approx(other.vote_interval)
    with refuses(CalibrationError, "X", "y"):
        voters.worth()


@pytest.mark.parametrize(
    ("table", "facts"),
    [
        (np.ones((2, 4)), ["3", "(2, 4)"]),
        ([[0.5, 0.5, np.nan]] * 2, ["finite"]),
        ([[0.5, 0.5, 0.0], [1.0, -0.5, 0.2]], ["row 0", "signed=True"]),
        ([[0.5, 0.5, 0.0], [0.0, 0.0, 0.0]], ["row 1"]),
    ],
    ids=["another width", "not a number", "negative", "no vote"],
)
def test_weights_that_are_no_vote_are_refused(table: Any, facts: list[str]) -> None:
    with refuses((ShapeError, InputError), *(word for fact in facts for word in fact.split())):
        VotingModel.of(Given(np.asarray(table)), ["a", "b", "a"]).predict([0, 1])


@pytest.mark.parametrize("form", [np.asarray, csr_array], ids=["array", "sparse"])
def test_weights_may_be_one_block(form: Any) -> None:
    class Whole:
        def weights(self, X: Any) -> Any:
            return form([[0.5, 0.5, 0.0], [0.0, 1.0, 0.0]])

    assert VotingModel.of(Whole(), ["a", "b", "a"]).predict_proba([0, 1]).tolist() == [[0.5, 0.5], [0.0, 1.0]]


def test_what_has_no_weights_is_refused() -> None:
    with refuses(KindError, "from_neighbors", "RandomForestClassifier"):
        from_neighbors(forest(RandomForestClassifier), X, Y)
    with refuses(KindError, "weights", "dict"):
        VotingModel.of({}, ["a", "b"])  # type: ignore[arg-type]
    with refuses(KindError, "GradientBoostingClassifier", "weights"):
        from_forest(GradientBoostingClassifier(n_estimators=2).fit(X, Y), X, Y)
    with refuses(KindError, "numbers", "predict"):
        from_forest(forest(RandomForestRegressor).fit(A, B), A, B).predict_proba(A)


@pytest.mark.parametrize("changed", ["labels", "rows", "sample weights", "a median"])
def test_rows_that_are_not_those_of_fit_are_refused(changed: str) -> None:
    y = Y.mask(Y.index == 19, "ill") if changed == "labels" else Y  # one of 200
    rows = X[::-1] if changed == "rows" else X
    weights = SAMPLE_WEIGHT if changed == "sample weights" else None
    with refuses(InputError, "X", "y", "sample_weight", "fit"):
        if changed == "a median":
            from_forest(forest(RandomForestRegressor, criterion="absolute_error", max_depth=3).fit(A, B), A, B)
        from_forest(forest(ExtraTreesClassifier, max_depth=3).fit(X, Y, sample_weight=weights), rows, y)
    if changed == "rows":
        with refuses(InputError, "X", "y"):
            from_neighbors(KNeighborsClassifier().fit(X, Y), X, Y[::-1])


# What follows from the weights


def test_a_row_has_the_same_numbers_alone_and_in_a_batch(voters: VotingModel) -> None:
    together, alone = voters.predict_proba(X_NEW), voters.predict_proba(X_NEW[7:8])
    assert (together[7] == alone[0]).all()
    assert voters.explain(X_NEW[5:9])[2].to_dict() == voters.explain(X_NEW[7:8])[0].to_dict()


def test_an_explanation_names_voters_whose_removal_changes_the_label(voters: VotingModel) -> None:
    unsure = int(np.abs(voters.predict_proba(X_NEW)[:, 0] - 0.7).argmin())
    row = X_NEW[unsure : unsure + 1]
    told = voters.explain(row, k=500)[0]
    assert told.label == voters.predict(row)[0] == "ill"
    assert told.probability == voters.predict_proba(row)[0, 0]
    assert sum(n.share for n in told.neighbors) == pytest.approx(1)
    assert sum(group.share for group in told.groups) == pytest.approx(1)
    assert told.neighbors[0].record == X.loc[told.neighbors[0].id].to_dict()
    assert told.neighbors[0].weight == pytest.approx(told.neighbors[0].share)
    names = told.flip_set()
    assert names is not None
    assert voters.silence(names[:-1]).predict(row)[0] == "ill"
    assert voters.silence(names).predict(row)[0] == "well"
    assert "ill" in told.to_html()
    frame = voters.explain(X_NEW[:5]).to_frame()
    assert frame.index.tolist() == X_NEW.index[:5].tolist()
    assert (frame["label"] == voters.predict(X_NEW[:5])).all()


def test_a_number_is_explained_with_its_interval() -> None:
    y = pd.DataFrame({"score": B, "root": B**0.5})
    for target in (B, y):
        voters = from_forest(forest(RandomForestRegressor).fit(A, target), A, target).calibrate(A_NEW, target[:50])
        told = voters.explain(A_NEW[:2])[1]
        assert np.ravel(told.prediction) == pytest.approx(np.ravel(voters.predict(A_NEW[1:2])), abs=0)
        assert np.ravel(told.interval) == pytest.approx(np.ravel(voters.predict_interval(A_NEW[1:2])), abs=0)
        assert told.guarantee == 0.95
        assert len(told.influential) > 0
    own = from_forest(forest(RandomForestRegressor).fit(A, B), A, B).calibrate().explain(A_NEW[:1])[0]
    assert own.guarantee == 0.0  # out-of-bag votes prove nothing


def test_sets_say_what_they_promise(voters: VotingModel) -> None:
    with refuses(CalibrationError, "calibrate"):
        voters.predict_set(X_NEW)
    exact, own = voters.calibrate(X_NEW, Y_NEW), voters.calibrate()
    assert exact.guarantee is not None
    assert own.guarantee is not None
    assert "at most ε" in exact.guarantee
    assert "not proved" in own.guarantee
    # On its own calibration rows, a set misses at most ⌊ε (n + 1)⌋ rows.
    sets = exact.predict_set(X_NEW, 0.1)
    assert (~sets[np.arange(100), (Y_NEW == "well").astype(int)]).sum() <= 10
    told = own.explain(X_NEW[:1], epsilon=0.1)[0]
    assert told.label_set == tuple(own.classes_[own.predict_set(X_NEW[:1], 0.1)[0]])
    assert own.silence(["p0"]).calibration == ()
    with refuses(KindError, "predict_set"):
        own.predict_interval(X_NEW)
    with pytest.warns(CalibrationWarning):  # a label that nobody votes for is always missed
        assert voters.calibrate(X_NEW, ["other"] * 100).predict_set(X_NEW[:5], 0.1).all()


def test_intervals_cover_as_promised_and_beyond_all_voters() -> None:
    voters = from_forest(forest(RandomForestRegressor).fit(A, B), A, B).calibrate(A_NEW, B_NEW)
    for epsilon in (0.3, 0.1, 0.04):
        ends = voters.predict_interval(A_NEW, epsilon)
        missed = (ends[:, 0] > B_NEW) | (ends[:, 1] < B_NEW)
        assert missed.sum() <= int(epsilon * 51)
    wide, narrow = (np.diff(voters.predict_interval(A_NEW, epsilon)) for epsilon in (0.1, 0.3))
    assert (wide >= narrow).all()


def test_worth_adds_up_to_what_the_vote_adds(voters: VotingModel) -> None:
    rows, y = X_NEW[:20], Y_NEW[:20]
    worth = voters.worth(rows, y)
    p = voters.predict_proba(rows)[np.arange(20), (y == "well").astype(int)]
    shares = Y.value_counts(normalize=True)[y].to_numpy()
    assert worth["worth"].sum() == pytest.approx((p - shares).mean(), abs=2e-4)
    assert worth.index.tolist() == X.index.tolist()
    assert (worth["label"].to_numpy() == Y.to_numpy()).all()
    left = voters.worth(rows[:1], y[:1], method="leave_one_out")["worth"]
    name = str(left.abs().idxmax())
    without = voters.silence([name]).predict_proba(rows[:1])[0, int(y.iloc[0] == "well")]
    assert left[name] == pytest.approx(p[0] - without)
    sources = voters.worth(rows, y, groups=pd.Series(np.where(X["mean area"] > 700, "north", "south"), X.index))
    assert sources["worth"].sum() == pytest.approx(worth["worth"].sum(), abs=4e-4)
    assert voters.worth(utility="accuracy", method="leave_one_out").attrs["queries"] <= 200


def test_votes_of_a_large_forest_come_in_sparse_blocks() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(3000, 4)).astype(np.float32)
    y = (rows[:, 0] + rng.normal(size=3000) > 0).astype(int)
    voters = from_forest(forest(max_features=1).fit(rows, y), rows, y)
    blocks = list(voters.weights(rows))
    assert sum(block.shape[0] for block in blocks) == 3000
    assert sum(block.nnz for block in blocks) < 0.03 * 3000 * 3000
    shallow = from_forest(forest(max_depth=1).fit(rows, y), rows, y)
    assert max(block.nnz for block in shallow.weights(rows)) <= 2**23
