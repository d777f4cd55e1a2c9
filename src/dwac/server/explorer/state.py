"""The explorer of one model: its points, their predictions, and the edits of each page.

explorer = Explorer.of(clf, X, y)                  # private=True: labels and rounded shares only
explorer.point(session, 3, k=5)                    # one example: its prediction and explanation
explorer.edit(session, 3, None)                    # without training example 3; undo, redo
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from dwac.drawing.records import image_of, kind_of
from dwac.encoders import ImageEncoder
from dwac.errors import EPSILON, DwacError, InputError, PrivacyError
from dwac.estimator.evaluation import predict
from dwac.estimator.preparation import count, row_ids, rows_of, take
from dwac.explain import privacy
from dwac.reference import ReferenceSet
from dwac.report.measures import CLOSE
from dwac.server.answers import Model
from dwac.server.explorer.edits import Edits, History, descriptions_after, edit_model, without_represented
from dwac.server.explorer.points import Points, explanation_dict
from dwac.server.explorer.tasks import PageTask
from dwac.server.explorer.views import MOST, LoadedExamples, Progress, View, first_view, task_of, view_after
from dwac.server.limits import RefusalError
from dwac.tasks.by_group import read_groups

_SESSIONS, _VIEWS, _ANSWERS = 64, 4, 16
_FEWEST = 2  # voters
_SHADES = 0.05  # the most that rounding to the 256 shades of a record may move an image


@dataclass(frozen=True, eq=False)
class Rival:
    """A second model, and its predictions for the same rows."""

    clf: Model
    X: Any
    predictions: Any
    name: str

    @classmethod
    def of(cls, clf: Model, X: Any, name: str, *, private: bool) -> Rival:
        """The second model with its predictions; private if either model is."""
        return cls(clf, X, predict(clf, X, private=private or clf.private_), name)

    def explain(self, row: int, k: int, epsilon: float) -> Any:
        """Its explanation for one row."""
        one = take(self.X, np.array([row]))
        return task_of(self.clf).explain(self.clf, one, k, epsilon, private=self.predictions.private)


class Answer(NamedTuple):
    """An explained example that a page shows: the vote, which of several labels it is on, and the row or its point."""

    vote: Any
    label: int
    point: int | None = None
    X: Any = None


@dataclass(eq=False)
class Explorer:
    """Everything behind the page. Edits are visible to one page only; the model itself is never changed."""

    clf: Any  # a `Model`
    examples: LoadedExamples
    points: Points
    first: View
    private: bool
    rival: Rival | None
    title: str
    note: str
    epsilon: float  # at first
    unreadable: Mapping[int, str]  # rows of data left out, and why
    groups: pd.DataFrame | None  # of the rows of data, by the columns given for it
    members: ReferenceSet | None  # all training examples, if the voters represent them and the model keeps them
    _histories: dict[str, History] = field(default_factory=dict)  # by session, the least recently changed first
    _answers: dict[tuple[str, int], Answer] = field(default_factory=dict)  # for further questions, the oldest first
    _n_answers: int = 0
    lock: threading.RLock = field(default_factory=threading.RLock)

    @classmethod
    def of(
        cls,
        clf: Model,
        X: Any = None,
        y: Any = None,
        *,
        ids: Iterable[Hashable] | None = None,
        rival: tuple[Model, Any, str] | None = None,
        by: Any = None,
        private: bool | None = None,
        most: int = MOST,
        progress: Progress | None = None,
        title: str = "model",
        note: str = "",
        epsilon: float = EPSILON,
    ) -> Explorer:
        """Predict all rows of X, or without X the training examples, and place them on a map.

        Args:
            clf: the model.
            X: rows to explore. y: their labels or numbers, if known. ids: their names.
            rival: a second model, X in the form that it reads, and its name.
            by: groups of the rows of X, as for `evaluate`; the page can split its measures by these, and by columns
                of the model with few values.
            private: the default for a model that was saved without its training examples.
            most: maximum number of training examples to predict at the start, if there is no X.
            progress: called with the number of rows done and the total.
            title, note, epsilon: what the page shows at first.
        """
        task = task_of(clf)
        hidden = clf.private_ if private is None else private
        all_examples, clf = clf.references_.members, without_represented(clf)
        bad: dict[int, str] = {}
        groups = None
        if by is not None:
            if X is None:
                raise InputError("by divides rows of data; give X")
            groups = read_groups(by, X, count(rows_of(X)), clf.legend_)
        if X is not None:
            X, y, ids, rival, bad = _drop_unreadable(clf, X, y, ids, rival)
            groups = None if groups is None else groups.drop(index=list(bad))
            note = " ".join(filter(None, [note, _describe_left_out(bad, private=hidden)]))
        examples = (
            LoadedExamples.none(clf) if hidden and X is None else LoadedExamples.of(clf, X, y, ids=ids, most=most)
        )
        if rival is not None and X is None:
            raise InputError("comparing two models needs rows of data; give X")
        if rival is not None and not task.comparable(task_of(rival[0])):
            raise InputError(
                f"two models can be compared if they predict the same; one predicts {task.predicts}, the other "
                f"{task_of(rival[0]).predicts}"
            )
        other = None if rival is None else Rival.of(*rival, private=hidden)
        view = first_view(clf, examples, progress, private=hidden)
        codes = task.codes(view.predictions)
        points = Points.of(task, clf.references_, examples, codes, private=hidden, members=all_examples)
        members = None if hidden else all_examples
        return cls(clf, examples, points, view, hidden, other, title, note, epsilon, bad, groups, members)

    @property
    def task(self) -> PageTask:
        """What the page does differently by what the model predicts."""
        return self.points.task

    # Edits

    def history(self, session: str) -> History:
        """The edits of a page."""
        return self._histories.get(session, History())

    def view(self, session: str) -> View:
        """The predictions with the edits of a page."""
        return self.view_with(self.history(session).net)

    def view_with(self, edits: Edits) -> View:
        """The predictions after some edits."""
        if not edits:
            return self.first
        with self.lock:
            return self._views(tuple(sorted(edits.items())))

    @cached_property
    def _views(self) -> Callable[..., View]:
        """The view after some edits; cached for the edits of the latest requests."""
        return lru_cache(_VIEWS)(lambda edits: view_after(self.first, self.examples, dict(edits)))

    def edit(self, session: str, place: int, value: Any) -> None:
        """Give a training example another label or number, or remove it with None."""
        self.require_open("training examples cannot be edited")
        if self.points.is_data(place):
            raise InputError("only training examples vote and can be edited; this is a row of data")
        if value is None and len(self.view(session).clf.references_) <= _FEWEST:
            raise InputError(
                f"at least {_FEWEST} training examples must remain, so that each has another to vote on it"
            )
        first = self.task.value_of(self.points.references, place)
        self._change(session, lambda history: history.add(place, value, first))

    def undo(self, session: str) -> None:
        """Undo the last edit."""
        self._change(session, History.undo)

    def redo(self, session: str) -> None:
        """Redo the edit that was undone last."""
        self._change(session, History.redo)

    def _change(self, session: str, step: Callable[[History], History]) -> None:
        with self.lock:
            history = step(self.history(session))
            self.view_with(history.net)  # refuses an invalid edit before it is stored
            self._histories.pop(session, None)
            self._histories[session] = history
            _drop_first(self._histories, _SESSIONS)

    def require_open(self, why: str) -> None:
        """Raise an error if the explorer is private."""
        if self.private:
            raise PrivacyError(f"this explorer is private: {why}")

    def count(self, n: int) -> int:
        """A number of training examples; rounded if private."""
        return privacy.count(n) if self.private else n

    # One example

    @cached_property
    def ranges(self) -> list[list[float] | None]:
        """Between which numbers the values of each column usually lie, for sliders; None for other columns."""
        records, columns = self.clf.examples_.frame(), getattr(self.clf.encoder_, "columns", None) or ()
        if self.private or records is None:
            return []
        return [_usual_ends(records[column.name]) if column.kind == "numeric" else None for column in columns]

    def point(
        self, session: str, point: int, k: int, *, epsilon: float | None = None, label: int = 0
    ) -> dict[str, Any]:
        """The explained prediction for a point, the prediction before the edits, and that of the second model.

        epsilon: of an interval. label: which of several labels is explained.
        """
        epsilon, view = self.epsilon if epsilon is None else epsilon, self.view(session)
        explanation = self.explain_point(view, point, k, epsilon)
        before = self.explain_point(self.first, point, 1, epsilon) if view.edits else None
        answer = self._show(session, Answer(self.task.vote(explanation, label), label, point), explanation, before)
        answer |= {"point": point, "xy": self.points.positions[point].tolist(), "disc": self.points.disc_of(point)}
        answer["editable"] = not self.private and self.source(point) is not None
        if self.rival is not None and self.points.is_data(point):
            other = self._hide_record(self.rival.explain(point - self.points.n_training, k, epsilon))
            answer["rival"] = explanation_dict(task_of(self.rival.clf), other, None, label)
        return answer

    def ask(
        self,
        session: str,
        X: Any,
        k: int,
        *,
        epsilon: float | None = None,
        label: int = 0,
        replaces: int | None = None,
    ) -> dict[str, Any]:
        """The same for a new example; replaces: the number of an earlier answer that need not be kept."""
        view, task = self.view(session), self.task
        self._answers.pop((session, replaces or 0), None)
        epsilon = self.epsilon if epsilon is None else epsilon
        explanation = task.explain(view.clf, X, k, epsilon, private=self.private)
        before = task.explain(self.first.clf, X, 1, epsilon, private=self.private) if view.edits else None
        code = task.predicted_code(explanation if before is None else before)
        xy = self.points.place(view.clf.embed(X), [code])[0].tolist()
        answer = self._show(session, Answer(task.vote(explanation, label), label, X=X), explanation, before)
        return {**answer, "point": None, "xy": xy, "disc": None, "editable": True}

    def _show(self, session: str, answer: Answer, explanation: Any, before: Any) -> dict[str, Any]:
        """An explanation, and the one before any edit, for JSON; the answer is kept for later questions."""
        self._n_answers += 1
        self._answers[session, self._n_answers] = answer
        _drop_first(self._answers, _ANSWERS)
        shown = explanation_dict(self.task, explanation, self.points, answer.label)
        shown["before"] = None if before is None else explanation_dict(self.task, before, self.points, answer.label)
        return {**shown, "answer": self._n_answers}

    def answer(self, session: str, number: int) -> Answer:
        """An answer that this page received before; only the last ones are kept."""
        if (session, number) not in self._answers:
            raise RefusalError(410, "gone", "this explanation is no longer kept; select the example again")
        return self._answers[session, number]

    def model_for(self, session: str, point: int | None) -> Any:
        """The model with the edits of a page; without the vote of this point, if it is a training example."""
        view = self.view(session)
        if point is None or self.points.is_data(point):
            return view.clf
        return edit_model(self.first.clf, {**view.edits, point: None})

    def source(self, point: int) -> Any:
        """The example of a point as an X with one row; None if the model does not hold it as it was read."""
        if self.points.is_data(point):
            return self.points.row(point)
        record = self.clf.examples_.get(self.points.references.ids[point])
        if not record:
            return None
        h = self._embedding(point).astype(np.float64)
        try:
            X = self._as_row(record)
            close = _SHADES if kind_of(record) == "image" else CLOSE
            same = np.linalg.norm(self.clf.embed(X)[0] - h) <= close * (1 + np.linalg.norm(h))
        except DwacError:  # such as a picture for a model that expects an array
            return None
        return X if same else None

    def _embedding(self, point: int) -> Any:
        """The embedding (d,) of a training example."""
        return self.points.references.embeddings[point].cpu().numpy()

    def explain_point(self, view: View, point: int, k: int, epsilon: float) -> Any:
        """The explanation of a point; of a training example, by the others."""
        clf, task = view.clf, self.task
        if self.points.is_data(point):
            return self._hide_record(task.explain(clf, self.points.row(point), k, epsilon, private=self.private))
        clf.references_.groups  # noqa: B018 - computed once, and kept without the example
        name, voters = self.points.references.ids[point], copy(clf.references_)
        if view.edits.get(point, 0) is not None:
            voters.remove([name])
        shown: dict[str, Any] = {"record": clf.examples_.get(name), "legend": clf.legend_}
        if clf.encoder_.kind == "text" and shown["record"]:
            words = clf.encoder_.attention(clf.model_.backbone, [shown["record"]["text"]])
            shown["attention"] = None if words is None else words[0]
        options = {"descriptions": descriptions_after(clf, voters), "X": self.source(point)}
        options["novelty"] = clf.fitted_.novelty_of_voters(self.points.references, np.array([point]))
        h = self._embedding(point)[None]
        options["fold_votes"] = clf.fitted_.fold_votes(h, pd.Index([name], tupleize_cols=False), voters)
        options |= {"private": self.private, "shown": [shown], "references": voters}
        return task.explain_voter(clf, h, k, epsilon, **options)

    def _hide_record(self, explanation: Any) -> Any:
        """The explanation without the record of the row itself, if private."""
        return self.task.without_record(explanation) if self.private else explanation

    def _as_row(self, record: Mapping[Any, Any]) -> Any:
        """A record as an X with one example."""
        match kind_of(record):
            case "image":
                assert isinstance(self.clf.encoder_, ImageEncoder)
                return self.clf.encoder_.from_record(image_of(record) or b"")
            case "text":
                return [record["text"]]
            case _:
                return pd.DataFrame([record])


def _drop_first(kept: dict[Any, Any], most: int) -> None:
    """Drop the first entries of a dict that has more than so many."""
    while len(kept) > most:
        del kept[next(iter(kept))]


def _drop_unreadable(
    clf: Model, X: Any, y: Any, ids: Iterable[Hashable] | None, rival: tuple[Model, Any, str] | None
) -> tuple[Any, Any, Any, Any, dict[int, str]]:
    """X, y, ids and the rival's X without rows that one of the two models cannot read; and the reasons."""
    X = rows_of(list(X) if isinstance(X, tuple) and clf.encoder_.kind != "module" else X)
    bad = clf.unreadable(X)
    if rival is not None:
        bad = {**rival[0].unreadable(rival[1]), **bad}
    if not bad:
        return X, y, ids, rival, bad
    n = count(X)
    stays = np.setdiff1d(np.arange(n), list(bad))
    if len(stays) == 0:
        row, why = next(iter(bad.items()))
        raise InputError(f"no row of X could be read; row {row}: {why}")
    names = row_ids(X, ids, n)[stays]
    truth = None if y is None else take(list(y) if isinstance(y, tuple) else rows_of(y), stays)
    other = None if rival is None else (rival[0], take(rows_of(rival[1]), stays), rival[2])
    return take(X, stays), truth, names, other, dict(sorted(bad.items()))


def _describe_left_out(bad: Mapping[int, str], *, private: bool) -> str:
    if not bad:
        return ""
    row, why = next(iter(bad.items()))
    rows = "1 row could not be read and is" if len(bad) == 1 else f"{len(bad):,} rows could not be read and are"
    return f"{rows} left out." if private else f"{rows} left out; row {row}: {why}."


def _usual_ends(values: pd.Series[Any]) -> list[float] | None:
    """The first and the last percentile of the known numbers."""
    numbers = pd.to_numeric(values, errors="coerce").astype(float)
    known = np.sort(numbers[np.isfinite(numbers)].to_numpy())
    return [float(known[int(share * (len(known) - 1))]) for share in (0.01, 0.99)] if len(known) else None
