"""Answers of a model to several requests at once: what its task declares (`dwac.tasks.answers`), as JSON."""

from __future__ import annotations

import logging
import math
import secrets
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from itertools import islice, pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dwac.conformal import DecisionRule, smallest_calibration
from dwac.drawing.records import plain
from dwac.errors import CalibrationError, CalibrationWarning, InputError, PrivacyError
from dwac.estimator import DWACClassifier, DWACRegressor
from dwac.estimator.evaluation import predict
from dwac.estimator.observed import Observed
from dwac.explain import privacy
from dwac.explain.recourse import Constraints
from dwac.languages import ENGLISH, read_language, speaking
from dwac.reading.requests import Reader
from dwac.records.log import decisions, write
from dwac.server.limits import RefusalError
from dwac.server.schemas import names_field
from dwac.server.watch import Watch
from dwac.tasks import LABELS, NUMBERS
from dwac.tasks.answers import AnswerColumn, ValueKind, cells_of
from dwac.tasks.decisions import Decisions, control_of, stake_of

Model = DWACClassifier | DWACRegressor
log = logging.getLogger("dwac.server")


class PredictJob(NamedTuple):
    """A request for predictions without its rows."""

    epsilon: float
    quantiles: tuple[float, ...] = ()
    sets: bool = False  # whether it asks for everything that needs calibration rows
    watched: bool = True  # whether the monitor observes these rows

    @property
    def call(self) -> Any:
        """Requests with equal values are answered in one call of the model."""
        return PredictJob, self.watched


class DecideJob(NamedTuple):
    """A request for decisions without its rows."""

    arguments: dict[str, Any]  # of `decide`
    rule: DecisionRule
    epsilon: float  # of the sets that are recorded

    @property
    def call(self) -> Any:
        """Every request is answered in a call of its own."""
        return object()


class ExplainJob(NamedTuple):
    """A request for explanations without its rows."""

    k: int
    epsilon: float
    labels: tuple[Any, ...] = ()  # those to explain, if a row may have several; (): the predicted ones
    precedents: int | str = 0  # with how many, or which, each row is compared; 0: no reasons
    against: Any = None  # as `Explanation.reasons` takes it; of several numbers, {name: range}
    example: Any = None  # the id of a training example, as `Explanation.reasons` takes it
    language: str | None = None  # of texts

    @property
    def call(self) -> Any:
        """Requests with equal values are answered together; reasons call the model row by row, so these are alone."""
        return object() if self.precedents else self


class RecourseJob(NamedTuple):
    """A request for recourse without its rows."""

    arguments: dict[str, Any]  # of `recourse`
    language: str | None = None  # of texts

    @property
    def call(self) -> Any:
        """Every request is answered in a call of its own."""
        return object()


class Ask(NamedTuple):
    """A request to the model."""

    job: PredictJob | DecideJob | ExplainJob | RecourseJob
    rows: list[Any]


def json_rows(
    columns: Sequence[AnswerColumn],
    values: Mapping[str, NDArray[Any] | None],
    unreadable: Sequence[str | None],
    unknown: Sequence[str | None],
) -> list[dict[str, Any]]:
    """A JSON object per row; for a row that could not be read, everything except the reason is null.

    columns: with names that are JSON values. values: arrays (n, …) by the names of the columns, or None.
    """
    rows: list[dict[str, Any]] = [{} for _ in unreadable]
    for column in columns:
        array = values.get(column.name)
        for row, value in zip(rows, _json_values(column, array, len(rows)), strict=True):
            if not column.within:
                row[column.name] = value
                continue
            for key, part in value.items():
                row.setdefault(column.within, {}).setdefault(key, {})[column.name] = part
    return [
        {**(row if why is None else dict.fromkeys(row)), "unreadable": why, "unknown": note}
        for row, why, note in zip(rows, unreadable, unknown, strict=True)
    ]


def _json_values(column: AnswerColumn, array: NDArray[Any] | None, n: int) -> list[Any]:
    """(n,): the values of a column as JSON values."""
    keys = list(map(str, column.names)) if column.per_name else []
    if array is None:
        return [dict.fromkeys(keys) if column.within else None for _ in range(n)]
    if column.kind is ValueKind.NUMBER:
        array = np.where(np.isfinite(array), array.astype(object), np.array(None))  # an unbounded end
    cells = cells_of(column, array)
    if column.parts is not None:
        cells = [_with_keys(cell, column.parts, column.per_name) for cell in cells]
    return [dict(zip(keys, cell, strict=True)) for cell in cells] if column.per_name else cells


def _with_keys(values: list[Any], keys: Sequence[str], several: bool) -> Any:
    """The parts of a value by their keys; several: of each of several values."""
    return [dict(zip(keys, each, strict=True)) for each in values] if several else dict(zip(keys, values, strict=True))


@dataclass(frozen=True)
class Responder:
    """Answers requests with a model, which is never changed. The numbers equal those in Python."""

    model: Any
    reader: Reader
    private: bool
    watch: Watch | None = None  # observes every row that is predicted
    record: str | None = None  # the folder of a record of decisions (`dwac.records`)

    def run(self, requests: list[Ask]) -> list[Any]:
        """The answer to each request, or the exception that it raised: rows as JSON objects.

        If the requests fail together, each half is tried separately: only the request at fault is refused.
        """
        try:
            return self.together(requests)
        except (KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:  # a panic in native code is not an Exception
            if len(requests) == 1:
                return [error]
            half = len(requests) // 2
            return [*self.run(requests[:half]), *self.run(requests[half:])]

    def together(self, requests: list[Ask]) -> list[list[dict[str, Any]]]:
        """The answers to several requests, computed as one."""
        X = self.reader.sift([row for request in requests for row in request.rows])
        ends = np.cumsum([0, *(len(request.rows) for request in requests)]).tolist()
        parts = [slice(start, end) for start, end in pairwise(ends)]
        job = requests[0].job
        with silent():
            if isinstance(job, PredictJob):
                return self._answer_predictions(X, [request.job for request in requests], parts)
            if isinstance(job, DecideJob):
                rows = self._decide(X, ends[-1], job)
            else:
                with speaking(job.language):
                    rows = self._explain(X, job) if isinstance(job, ExplainJob) else self._recourse(X, job)
        return [rows[part] for part in parts]

    def _answer_predictions(self, X: Any, jobs: list[Any], parts: list[slice]) -> list[list[dict[str, Any]]]:
        """Predictions for the rows of several jobs, of which X has these parts."""
        recorded, watched = self.record is not None and jobs[0].watched, jobs[0].watched
        ids = _new_ids(parts[-1].stop) if recorded else []
        observed, predictions = self._predict(X, ids, watched=watched)
        answers: list[Any] = [None] * len(jobs)
        for job in dict.fromkeys(jobs):  # votes and p-values are computed once, what depends on ε for each job
            own = [place for place, each in enumerate(jobs) if each == job]
            seen, predicted, names = observed, predictions, ids
            if len(own) < len(jobs):
                places = np.concatenate([np.r_[parts[place]] for place in own])
                predicted = predictions.part(places)
                if recorded:
                    seen, names = observed.take(places), [ids[place] for place in places.tolist()]
            answered = self._rows(predicted, job)
            if recorded:
                self._record(seen, predicted, job, answered, names)
            rows = iter(answered)
            for place in own:
                answers[place] = list(islice(rows, parts[place].stop - parts[place].start))
        return answers

    def _predict(self, X: Any, ids: Sequence[str], *, watched: bool) -> tuple[Observed, Any]:
        """Predictions for X, the same as `dwac.estimator.evaluation.predict`; the monitor also observes the rows.

        ids: of the decisions on them, if they are recorded.
        """
        observed = self.model.observe(X, private=self.private)
        predictions = predict(self.model, observed, private=self.private)
        if watched and self.watch is not None:
            self.watch.observe(observed, predictions, ids)
        return observed, predictions

    def _record(
        self,
        observed: Observed,
        predictions: Any,
        job: PredictJob,
        rows: list[dict[str, Any]],
        names: Sequence[str],
        decide: Mapping[str, Any] | None = None,
    ) -> None:
        """Record the decisions, and give each row the id of its own; no answer is given that is not recorded."""
        assert self.record is not None
        for row, name in zip(rows, names, strict=True):
            row["id"] = name if row["unreadable"] is None else None
        options: Any = {"epsilon": job.epsilon, "quantiles": job.quantiles, "private": self.private}
        frame, ids = predictions.frame(job.epsilon, job.quantiles), [row["id"] for row in rows]
        try:
            write(self.record, decisions(self.model, observed, frame, ids, decide=decide, **options))
        except (OSError, InputError) as error:
            log.error("decisions cannot be recorded: %s", error)
            message = "the decision cannot be recorded, so none is given; try again later"
            raise RefusalError(503, "unrecorded", message) from None

    def _decide(self, X: Any, n: int, job: DecideJob) -> list[dict[str, Any]]:
        """A decision on each of n rows, or why it is handed over, for JSON."""
        ids = [] if self.record is None else _new_ids(n)
        observed, predictions = self._predict(X, ids, watched=True)
        decided: Decisions = self.model.decide(observed, private=self.private, **job.arguments)
        notes = [None] * len(observed) if predictions.unknown is None else predictions.unknown.tolist()
        columns = (
            decided.to_frame()["decision"].tolist(),
            decided.decided.tolist(),
            decided.expected.tolist(),
            decided.why,
        )
        rows = [
            {
                "decided": done,
                "decision": plain(decision),
                "expected_loss": None if math.isnan(loss) else loss,
                "why": why,
                "unreadable": bad,
                "unknown": note,
            }
            for decision, done, loss, why, bad, note in zip(*columns, observed.reasons.tolist(), notes, strict=True)
        ]
        if self.record is not None:
            self._record(observed, predictions, PredictJob(job.epsilon), rows, ids, job.arguments)
        return rows

    def _rows(self, predictions: Any, job: PredictJob) -> list[dict[str, Any]]:
        """The answer for each row, as JSON objects."""
        notes = (predictions.reasons, predictions.unknown)
        unreadable, unknown = ([None] * len(predictions) if each is None else each.tolist() for each in notes)
        columns, values = self.columns(job.quantiles, job.sets), predictions.answer(job.epsilon, job.quantiles)
        return json_rows(columns, values, unreadable, unknown)

    @cached_property
    def columns(self) -> Any:
        """The columns of answers with these quantiles, or of sets; cached, because all requests need the same few."""
        return lru_cache(maxsize=64)(self._columns)

    def _columns(self, quantiles: tuple[float, ...], sets: bool) -> list[AnswerColumn]:
        columns = self.model.target_.columns(quantiles)
        shown = [each for each in columns if (each.calibrated if sets else not each.evidence)]
        return [replace(each, names=tuple(plain(each.names))) for each in shown]

    def _explain(self, X: Any, job: ExplainJob) -> list[dict[str, Any]]:
        """An explanation per row of X, for JSON. Of several labels only some: each costs a separate vote."""
        explanations = self.model.explain(X, job.k, epsilon=job.epsilon, private=self.private)
        rows = []
        for each in explanations:
            if self.model.target_.kind != LABELS:
                rows.append(self._with_reasons(each, each.to_dict(), job))
                continue
            labels = job.labels or each.labels or (_likeliest(each),)
            row = each.to_dict(labels)
            for label in labels:
                self._with_reasons(each[label], row["explanations"][str(plain(label))], job)
            rows.append(row)
        return rows

    def _with_reasons(self, explanation: Any, row: dict[str, Any], job: ExplainJob) -> dict[str, Any]:
        """The JSON of an explanation, with reasons if they are asked for: null if the row has the other label."""
        if not job.precedents:
            return row
        row["reasons"] = None
        if explanation.unreadable or job.against == getattr(explanation, "label", ()):
            return row
        target, ask = self.model.target_, partial(explanation.reasons, precedents=job.precedents, example=job.example)
        if target.kind != NUMBERS or target.single:
            row["reasons"] = ask(job.against).to_dict()
        elif isinstance(job.against, dict):
            row["reasons"] = {str(name): ask(ends, name=name).to_dict() for name, ends in job.against.items()}
        else:
            row["reasons"] = {str(name): ask(job.against, name=name).to_dict() for name in target.plain_names}
        return row

    def _recourse(self, X: Any, job: RecourseJob) -> list[dict[str, Any]]:
        """The recourse of each row of X, for JSON."""
        return [each.to_dict() for each in self.model.recourse(X, private=self.private, **job.arguments)]

    # What a request needs from the model

    def predict_job(self, ask: Any, *, sets: bool = False, watched: bool = True) -> PredictJob:
        """What predictions and sets need from the model; sets: everything that needs calibration rows."""
        if sets and len(self.model.calibration_y_) == 0:
            raise CalibrationError(
                "prediction sets need calibration rows, and the model has none; add some with recalibrate"
            )
        return PredictJob(ask.epsilon, tuple(getattr(ask, "quantiles", ())), sets, watched)

    def decide_job(self, ask: Any) -> DecideJob:
        """What decisions need from the model: a label as it has it, and the rule."""
        label = None if ask.label is None else _by_text(self.model.target_.plain_names).get(str(plain(ask.label)))
        which = {"measure": ask.measure, "label": ask.label if label is None else label, "tolerance": ask.tolerance}
        control = control_of(self.model.fitted_, stake_of(self.model.sets_, **which, private=self.private))
        how = {"risk": ask.risk, "confidence": ask.confidence}
        return DecideJob({**which, **how}, control.rule(**how), ask.epsilon)

    def explain_job(self, ask: Any) -> ExplainJob:
        """What explanations need from the model."""
        read_language(ask.language or ENGLISH)  # refuses one that there is not
        job = ExplainJob(ask.k, ask.epsilon, language=ask.language)
        if ask.wants_reasons:
            self._require_examples()
            against, example = self._other(ask.against), None if ask.example is None else self._id(ask.example)
            job = job._replace(precedents=ask.precedents, against=against, example=example)
        labels = getattr(ask, "labels", None)
        if labels is None:
            return job
        known = _by_text(self.model.classes_.tolist())
        unknown = [label for label in labels if str(plain(label)) not in known]
        if unknown:
            message = f"labels must be among those of the model (GET /v1/model); got {unknown[0]!r:.60}"
            raise RefusalError(422, "invalid_request", message)
        return job._replace(labels=tuple(dict.fromkeys(known[str(plain(label))] for label in labels)))

    def recourse_job(self, ask: Any) -> RecourseJob:
        """What recourse needs from the model: labels and columns as it has them, ranges with open ends."""
        self._require_examples()
        columns = _by_text(self.reader.names() or ())
        kinds = {each["name"]: each["kind"] for each in self.reader.columns() or ()}
        named = {columns.get(name, name): bound for name, bound in ask.bounds.items()}

        def known(names: list[Any]) -> list[Any]:
            return [columns.get(str(plain(name)), name) for name in names]

        limits: dict[str, Any] = {
            "frozen": known(ask.frozen),
            "only": None if ask.only is None else known(ask.only),
            "tied": [known(names) for names in ask.tied],
            "bounds": {name: _bound(name, bound, kinds.get(name, "numeric")) for name, bound in named.items()},
        }
        Constraints(**limits).check(list(columns.values()))
        how = {name: getattr(ask, name) for name in ("least", "k", "probability", "alone", "epsilon")}
        read_language(ask.language or ENGLISH)
        return RecourseJob({"label": self._wanted(ask.label), **limits, **how}, ask.language)

    def _require_examples(self) -> None:
        if len(self.model.fitted_.examples) == 0:
            raise PrivacyError(
                "reasons and recourse compare rows with training examples, and this model was saved without them; "
                "serve the model that it was saved from, with --private if nobody may see them"
            )

    def _wanted(self, label: Any) -> Any:
        """The label or the range that recourse shall reach, from JSON."""
        target = self.model.target_
        if target.kind != NUMBERS:
            names = target.plain_names
            known = _by_text([*names, *(f"not {name}" for name in names)] if target.kind == LABELS else names)
            return known.get(str(plain(label)), label)
        return _numbers(label)

    def _other(self, against: Any) -> Any:
        """What reasons compare with, from JSON: a label, a range, or the id of a training example that votes."""
        target = self.model.target_
        if against is None or isinstance(against, list | dict):
            return _numbers(against)
        known = _by_text([] if target.kind in (LABELS, NUMBERS) else target.plain_names)
        if str(plain(against)) in known:
            return known[str(plain(against))]
        return self._id(against)

    def _id(self, name: Any) -> Any:
        """The id of a voter, from JSON; the name itself if there is none."""
        return name if name in self.model.references_.ids else self._ids.get(str(name), name)

    @cached_property
    def _ids(self) -> dict[str, Any]:
        """Ids of voters by their text in JSON, for those that are neither texts nor numbers."""
        return _by_text(self.model.references_.ids)

    # The form of answers

    def answer(self, job: PredictJob, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """The answer to /predict or /sets."""
        about = {"epsilon": job.epsilon, "note": self.note(job.epsilon), **self._counted(rows)}
        return {**about, "sets" if job.sets else "predictions": rows}

    def decided(self, job: DecideJob, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """The answer to /decide."""
        rule, sentence = job.rule, None
        if not self.private or not rule.decided:
            sentence = str(replace(rule, n_calibration=self.count(rule.n_calibration)))
        shown = {
            "risk": rule.risk,
            "confidence": rule.confidence,
            "threshold": rule.threshold if rule.decided else None,
            "share": privacy.share(rule.share) if self.private else rule.share,
            "proved": rule.certain,
            "sentence": sentence,
        }
        return {"rule": shown, **self._counted(rows), "decided": rows}

    def _counted(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """How many rows could not be read and, if decisions are recorded, their ids, which are taken from the rows."""
        counted: dict[str, Any] = {"n_unreadable": sum(row["unreadable"] is not None for row in rows)}
        if self.record is not None:
            counted["decisions"] = [row.pop("id", None) for row in rows]
        return counted

    @cached_property
    def note(self) -> Any:
        """What calibration does not allow at an ε; cached, because it takes longer than the rest of an answer."""
        return lru_cache(maxsize=64)(self._note)

    def _note(self, epsilon: float) -> str | None:
        """What calibration does not allow at this ε; None if there are no limits to report."""
        kind, n, needed = self.model.target_.kind, len(self.model.calibration_y_), smallest_calibration(epsilon)
        if n == 0:
            return None
        expected = None if kind in (LABELS, NUMBERS) else self.model.expected_sets(epsilon)
        n = n if expected is None else expected.n_calibration
        if n < needed:
            work = {LABELS: "deciding on a label", NUMBERS: "bounding a number"}.get(kind, "excluding a label")
            where = " in its smallest group" if expected is not None and expected.by_group is not None else ""
            return f"{work} at this epsilon needs {needed} calibration rows; the model has {self.count(n)}{where}"
        if expected is not None:
            shown = replace(expected, n_calibration=self.count(n), by_group=None)
            return str(shown) if (expected.full_share or 0) > 0.5 else None
        rare = self._rare_labels(epsilon) if kind == LABELS else ()
        few = ", ".join(map(str, rare[:5])) + (" and others" if len(rare) > 5 else "")
        return (
            f"fewer than {needed} calibration rows have, or lack, {few}: decisions on these are rare" if rare else None
        )

    def _rare_labels(self, epsilon: float) -> Sequence[Any]:
        """Labels that too few calibration rows have, or lack, to be decided on often."""
        rare: Sequence[Any] = self.model.sets_.calibration.labels.expected(epsilon, self.model.classes_).rare
        return rare

    def card(self) -> dict[str, Any]:
        """The facts about the model."""
        target, agreement = self.model.target_, self.model.agreement_
        if agreement is not None:
            agreement = (privacy.agreement(agreement) if self.private else agreement)._asdict()
        return {
            "task": target.kind,
            names_field(target.kind): plain(target.names),
            "fingerprint": self.model.fingerprint_,
            "kind": self.model.encoder_.kind,
            "kernel": self.model.kernel,
            "n_references": self.count(len(self.model.references_)),
            "n_examples": self.count(round(float(self.model.references_.sizes.sum()))),
            "agreement": agreement,
            "n_calibration": self.count(len(self.model.calibration_y_)),
            "columns": self.reader.columns(),
            "row": self.reader.schema(),
            "example": self.reader.example(),
            "private": self.private,
        }

    def count(self, n: int) -> int:
        """A number of examples; rounded if private."""
        return privacy.count(n) if self.private else int(n)


def _new_ids(n: int) -> list[str]:
    """Ids for n decisions."""
    return [secrets.token_hex(8) for _ in range(n)]


def _by_text(names: Iterable[Any]) -> dict[str, Any]:
    """Names by their text in JSON."""
    return {str(plain(name)): name for name in names}


def _numbers(ends: Any) -> Any:
    """A range of numbers from JSON, or {name: range}; anything else as it is."""
    return {name: _range(each) for name, each in ends.items()} if isinstance(ends, dict) else _range(ends)


def _bound(name: Any, bound: Any, kind: str) -> Any:
    """A bound on a column of this kind, from JSON: a word, or a range of numbers or dates."""
    if kind not in ("numeric", "boolean", "datetime"):
        raise InputError(f"bounds are for numbers and dates; column {name!r} has categories; use frozen or only")
    if not isinstance(bound, list):
        return bound
    dates = kind == "datetime"
    try:
        if len(bound) == 2 and all(end is None or isinstance(end, str if dates else int | float) for end in bound):
            return _dates(bound) if dates else _range(bound)
    except ValueError:
        pass
    what = "dates" if dates else "numbers"
    raise InputError(
        f"bounds of {name!r} must be 'grow', 'fall' or two {what}, null for an open end; got {bound!r:.60}"
    )


def _dates(ends: list[str | None]) -> tuple[pd.Timestamp, pd.Timestamp]:
    """A range of dates in UTC, without a time zone, as rows have them."""
    low, high = (None if end is None else pd.to_datetime(end, utc=True).tz_localize(None) for end in ends)
    return low or pd.Timestamp.min, high or pd.Timestamp.max


def _range(ends: Any) -> Any:
    """(low, high) from JSON, in which an open end is null; anything else as it is."""
    if not isinstance(ends, list) or len(ends) != 2:
        return ends
    low, high = ends
    return (-math.inf if low is None else low, math.inf if high is None else high)


def _likeliest(explanations: Any) -> Any:
    return max(explanations.probabilities, key=explanations.probabilities.__getitem__)


@contextmanager
def silent() -> Iterator[None]:
    """Silence warnings of what calibration does not allow at some ε: answers and pages show it themselves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CalibrationWarning)
        yield
