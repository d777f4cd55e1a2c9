"""Likeness in the input: what differs little for a person, and that shown members are like the query on real data."""

from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.cluster import KMeans
from sklearn.datasets import load_breast_cancer, load_digits, load_wine
from torch import nn

from dwac import DWACClassifier
from dwac.encoders import Encoder, ImageEncoder, ModuleEncoder, TabularEncoder, TextEncoder, text
from dwac.errors import DwacError, InputError, ShapeError
from dwac.estimator.preparation import take
from dwac.storage.parquet import pack_examples, unpack_examples
from tests.encoders.helpers import Case, N, restored, rows
from tests.named import refuses


def stored(records: pd.DataFrame) -> pd.DataFrame:
    """Records as they are after the model was saved and loaded."""
    return unpack_examples(pack_examples(records), "examples")


# Every encoder


def test_distances_are_finite_not_negative_and_zero_from_itself(case: Case, fitted: Encoder) -> None:
    for row in (0, 7):
        distances = fitted.input_distances(rows(case.X, row), case.X)
        assert distances.shape == (N,)
        assert distances.dtype == np.float64
        assert np.isfinite(distances).all()
        assert distances.min() >= 0
        assert distances[row] == pytest.approx(0, abs=1e-7)
        assert distances.max() > 0.01


def test_candidates_in_another_order_have_the_same_distances(case: Case, fitted: Encoder) -> None:
    order = np.random.default_rng(0).permutation(N)
    given = fitted.input_distances(rows(case.X, 3), case.X)
    permuted = fitted.input_distances(rows(case.X, 3), rows(case.X, *order))
    np.testing.assert_allclose(permuted, given[order], atol=1e-12)


def test_stored_records_are_compared_like_the_examples(case: Case, fitted: Encoder) -> None:
    records = stored(fitted.records(case.X))
    again = restored(fitted).input_distances(rows(case.X, 3), records)
    if isinstance(fitted, ModuleEncoder):  # its records are empty, so nothing is known about them
        assert again.tolist() == [0.0] * N
    else:
        np.testing.assert_allclose(again, fitted.input_distances(rows(case.X, 3), case.X), atol=1e-12)


def test_only_one_example_at_a_time_is_compared(case: Case, fitted: Encoder) -> None:
    with refuses(ShapeError, "one", 2):
        fitted.input_distances(rows(case.X, 0, 1), case.X)


def test_an_encoder_that_is_not_fitted_says_so(case: Case) -> None:
    encoder = case.new()
    if encoder.kind not in ("text", "huggingface"):  # words need no training
        with refuses(DwacError, "fit"):
            encoder.input_distances(rows(case.X, 0), case.X)


# Tables


def gower(column: Any, one: Any, many: Any) -> list[float]:
    """Distances by one column: trained on `column`, beside a constant one, which does not count."""
    frames = [pd.DataFrame({"a": pd.Series(values), "same": 1.0}) for values in (column, [one], many)]
    distances = TabularEncoder().fit(frames[0]).input_distances(*frames[1:])
    return [float(value) for value in distances.round(6)]


def test_numbers_differ_in_units_of_their_usual_range() -> None:
    column = np.append(np.linspace(0, 100, 1001), 1e6)  # one value far outside
    assert gower(column, 50.0, [50.0, 59.0, 95.0, 1e6, np.nan]) == pytest.approx([0, 0.1, 0.5, 1, 1], abs=2e-3)
    assert gower([*column, np.nan], np.nan, [50.0, np.nan]) == [1, 0]


def test_a_number_that_rarely_varies_has_its_whole_range() -> None:
    column = [0.0] * 30_000 + [10.0, 20.0]
    assert gower(column, 0.0, [0.0, 5.0, 20.0]) == [0, 0.25, 1]


def test_categories_dates_booleans_and_gaps() -> None:
    assert gower(["a", "b", None] * 9, "a", ["a", "b", "new", None]) == [0, 1, 1, 1]
    assert gower(["a", "b", None] * 9, None, ["a", None]) == [1, 0]
    assert gower([True, False] * 9, True, [True, False]) == [0, 1]
    days = pd.date_range("2024-01-01", periods=101)
    apart = gower(days, days[20], [days[20], days[65], days[95]])
    assert apart == pytest.approx([0, 0.5, 75 / 90], abs=1e-3)


def test_columns_that_do_not_vary_or_hold_free_texts_do_not_count() -> None:
    X = pd.DataFrame({"a": [1.0, 2.0] * 9, "same": 1.0, "empty": None, "note": [f"text {i}" for i in range(18)]})
    assert TabularEncoder().fit(X).input_distances(X[:1], X[:4]).tolist() == [0, 1, 0, 1]


def test_columns_of_several_types_are_compared_after_they_were_stored_as_text() -> None:
    X = pd.DataFrame(
        {
            "code": pd.Series([1, "a", 2, "b"] * 9, dtype=object),
            "sum": pd.Series([Decimal("1.5"), 2.5, 3, None] * 9, dtype=object),
            "day": pd.Series([date(2024, 1, 1), "2024-06-01", None, pd.Timestamp("2024-03-01")] * 9, dtype=object),
            "size": pd.Categorical([1, 2, 3, 4] * 9),
        }
    )
    X["day"] = pd.to_datetime(X["day"]).astype(object)
    encoder = TabularEncoder().fit(X)
    after = stored(encoder.records(X))
    assert [type(value) for value in after["sum"][:3]] == [str, str, str]
    for row in range(4):
        given = encoder.input_distances(X[row : row + 1], X)
        np.testing.assert_allclose(encoder.input_distances(X[row : row + 1], after), given, atol=1e-9)
        assert (given[row::4] == 0).all()
        assert (np.delete(given, np.s_[row::4]) > 0.5).all()


# Texts


@pytest.mark.parametrize("X", [["sort a list"], np.array(["sort a list"]), pd.DataFrame({"q": ["sort a list"]})])
def test_texts_that_share_rare_words_are_alike(X: Any) -> None:
    many = ["Sort a LIST!", "how to sort a dict", "a dict of how", "draw a map", "draw a list", "to draw"]
    distances = TextEncoder(min_count=1).fit(many).input_distances(X, many)
    assert distances[0] == pytest.approx(0, abs=1e-12)
    assert distances[5] == 1  # nothing shared
    assert distances[3] > 0.8  # only "a", which most have
    assert distances.argmin() == 0


class InOrder(list[str]):
    """A set of words with an order of our choice; that of Python's sets differs from run to run."""

    def __and__(self, other: list[str]) -> "InOrder":
        return InOrder(word for word in self if word in other)


def test_distances_of_texts_do_not_depend_on_the_order_of_words_in_a_set(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{k}" for k in np.unique(rng.geometric(0.05, 40))) for _ in range(100)]

    def distances(backwards: bool) -> list[float]:
        monkeypatch.setattr(text, "words_of", lambda text: InOrder(sorted(text.split(), reverse=backwards)))
        numbers: list[float] = text.word_distances(texts[0], texts).tolist()
        return numbers

    assert distances(backwards=False) == distances(backwards=True)


def test_words_weigh_by_their_rarity_among_the_candidates() -> None:
    many = ["python list"] * 8 + ["python pandas", "java list"]
    distances = TextEncoder().fit(many).input_distances(["python pandas"], many)
    assert distances[8] == pytest.approx(0, abs=1e-12)
    assert distances[9] == 1
    log = np.log
    common, rare, listed = log(11 / 9), log(11), log(11 / 9)
    expected = 1 - common**2 / (np.hypot(common, rare) * np.hypot(common, listed))
    np.testing.assert_allclose(distances[:8], expected)


def test_of_many_long_texts_only_the_beginnings_count() -> None:
    many = ["same words " * 40 + str(i) for i in range(3000)]
    assert TextEncoder().fit(many[:9]).input_distances(["same words " * 40], many).max() == pytest.approx(0, abs=1e-9)
    few = TextEncoder().fit(many[:9]).input_distances(["same words " * 40], many[:3])
    assert few.min() > 0.01


def test_texts_without_words_and_in_other_scripts() -> None:
    encoder = TextEncoder(min_count=1).fit(["?!", "a"])
    assert encoder.input_distances(["?!"], ["...", "a b"]).tolist() == [0, 1]
    near = encoder.input_distances(["我想学习编程"], ["我想学习音乐", "明日は雨", "naïve café"])
    assert near[0] < near[1] == near[2] == 1


# Images


def test_images_are_alike_when_moved_a_little_and_different_when_another_colour() -> None:
    images = np.zeros((4, 32, 32, 3), dtype=np.uint8)
    images[0, 8:24, 8:24] = (200, 0, 0)
    images[1, 9:25, 8:24] = (200, 0, 0)  # moved by a pixel
    images[2, 8:24, 8:24] = (0, 200, 0)  # another colour
    images[3, 0:8, 0:32] = (200, 0, 0)  # another shape
    distances = ImageEncoder().fit(images).input_distances(images[:1], images)
    assert distances[0] == 0
    assert distances[1] < 0.3 * min(distances[2], distances[3])
    same_grey = np.sqrt(2 / 3 * (200 / 255) ** 2 / 4)  # two channels differ by 200 in a quarter of the image
    assert distances[2] == pytest.approx(same_grey, abs=1e-6)


@pytest.mark.parametrize("scale", [1, 1 / 255, 300])
def test_the_scale_of_pixels_does_not_matter(scale: float) -> None:
    images = np.random.default_rng(0).integers(0, 256, (9, 6, 5))
    images[0].flat[:2] = 0, 255
    X = images * scale if scale != 1 else images.astype(np.uint8)
    distances = ImageEncoder().fit(X).input_distances(X[:1], X)
    expected = np.sqrt(np.square((images - images[0]) / 255).mean(axis=(1, 2)))
    np.testing.assert_allclose(distances, expected, atol=3e-3)


def test_broken_records_of_images_are_refused() -> None:
    X = np.random.default_rng(0).integers(0, 256, (3, 4, 4)).astype(np.uint8)
    encoder = ImageEncoder().fit(X)
    records = encoder.records(X)
    png = records["image"].iloc[0]
    other = ImageEncoder().fit(X[:, :3]).records(X[:, :3])["image"].iloc[0]
    for broken in (other, png[:50], png[:41] + b"x" * 20, b"", None):
        with refuses(InputError, "4 × 4"):
            encoder.input_distances(X[:1], pd.DataFrame({"image": [broken]}))


# Tensors


def test_tensors_are_compared_in_standard_deviations_and_by_the_mean_of_inputs() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(size=(30, 4)) * [1, 100, 1e-3, 0], rng.normal(size=(30, 2, 3)).astype(np.float32)
    X = (torch.as_tensor(a).float(), torch.as_tensor(b))
    encoder = ModuleEncoder(nn.Bilinear(4, 3, 2)).fit(X)
    expected = np.zeros(30)
    for part in (a[:, :3], b.reshape(30, 6)):
        z = part / np.concatenate([part[:1], part]).std(axis=0)
        expected += np.sqrt(np.square(z - z[0]).mean(axis=1)) / 2
    np.testing.assert_allclose(encoder.input_distances(take(X, np.array([0])), X), expected, rtol=1e-4, atol=1e-6)


def test_tensors_of_whole_numbers_booleans_and_no_features_are_compared_too() -> None:
    for X in (
        torch.arange(6),
        torch.tensor([True, False] * 3),
        torch.zeros(6, 0),
        torch.ones(6, 2),
        torch.randn(6) + 1j,
    ):
        distances = ModuleEncoder(nn.Identity()).fit(X).input_distances(X[:1], X)
        assert distances[0] == 0
        assert np.isfinite(distances).all()


# Choosing


# Real data: shown members are nearer to the query, by another measure, than 95 % of their group


def nearer_than(encoder: Encoder, X: Any, flat: Any, labels: Any, k: int = 3, every: int = 7) -> list[float]:
    """For each of some held-out rows, the share of its group that is farther away than its k shown members are.

    By another measure than the encoder's: standardised Manhattan distance of `flat`. A share is that of the mean of the
    members shown. Groups are k-means within the class, of some 50 members: in smaller ones not even the nearest member
    is nearer than 95 %.
    """
    z = (flat - flat.mean(axis=0)) / (flat.std(axis=0) + 1e-9)
    shares = []
    for label in np.unique(labels):
        inside = np.flatnonzero(labels == label)
        queries, members = inside[::every], np.delete(inside, np.s_[::every])
        means = KMeans(max(len(members) // 50, 1), n_init=1, random_state=0).fit(z[members])
        for query in queries:
            group = members[means.labels_ == means.predict(z[[query]])[0]]
            shown = encoder.input_distances(take(X, np.array([query])), take(X, group)).argsort(kind="stable")[:k]
            manhattan = np.abs(z[group] - z[query]).mean(axis=1)
            shares.append(float((manhattan > manhattan[shown].mean()).mean()))
    return shares


@pytest.mark.parametrize(("load", "every"), [(load_wine, 7), (load_breast_cancer, 25)])
def test_members_shown_of_tables_are_nearer_than_most_of_their_group(load: Any, every: int) -> None:
    X, y = load(return_X_y=True, as_frame=True)
    shares = nearer_than(TabularEncoder().fit(X), X, X.to_numpy(), y.to_numpy(), k=1, every=every)
    assert len(shares) > 15
    assert np.median(shares) >= 0.95


def test_members_shown_of_digits_are_nearer_than_most_of_their_group() -> None:
    digits = load_digits()
    images, flat = digits.images, digits.data
    shares = nearer_than(ImageEncoder().fit(images), images, flat, digits.target)
    assert len(shares) > 200
    assert np.median(shares) >= 0.95


def test_a_row_of_a_table_is_compared_with_all_examples_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    X = pd.DataFrame(np.random.default_rng(0).normal(size=(80, 2)), columns=["a", "b"])
    clf = DWACClassifier("tabular:paper", epochs=1, random_state=0, device="cpu").fit(X, X["a"] > 0)
    measure, compared = TabularEncoder.input_distances, []

    def note(encoder: TabularEncoder, one: Any, many: Any) -> Any:
        compared.append(len(many))
        return measure(encoder, one, many)

    monkeypatch.setattr(TabularEncoder, "input_distances", note)
    found = [e.to_dict() for e in clf.explain(X[:2])]
    assert compared == []
    monkeypatch.setattr("dwac.estimator.observed._AT_ONCE", 0)  # as with many examples: group by group
    assert [e.to_dict() for e in clf.explain(X[:2])] == found
    assert len(compared) > 2
