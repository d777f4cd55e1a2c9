"""A fitted model as a value: fitting makes one, editing returns another, saving writes one.

Nothing here changes once it exists, except that `references` can be edited in place by their own methods; values
computed from them are then computed again.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from copy import copy, deepcopy
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac._machine import few_threads
from dwac.conformal import Calibration, CrossCalibration
from dwac.drawing.legend import NO_LEGEND, Legend
from dwac.encoders import Encoder, TabularEncoder
from dwac.errors import NonFiniteError
from dwac.estimator.certificate import Certificate
from dwac.estimator.condensing import agreement_of
from dwac.estimator.held_out import Folds, HeldOutRows
from dwac.estimator.novelty import ROUNDING, Novelty
from dwac.estimator.preparation import Examples
from dwac.estimator.settings import FitSettings
from dwac.estimator.shards import Shards
from dwac.explain import privacy
from dwac.explain.descriptions import GroupTexts, describe
from dwac.explain.descriptions import profile as describe_profile
from dwac.metrics import Agreement
from dwac.nn import WeightedAverage, batches
from dwac.nn.batches import Inputs
from dwac.reference import ReferenceSet
from dwac.reference.novelty import NEAREST
from dwac.tasks import Target
from dwac.tasks.shift import Shift
from dwac.training.cross_fit import FOLDS, part_of, parts_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
T = TypeVar("T")
_ROWS = 1024  # up to so many, few voters take one thread


class Features(NamedTuple):
    """What scikit-learn records about the columns of a table."""

    n: int | None = None
    names: NDArray[Any] | None = None

    def match(self, X: Any) -> bool:
        """Whether X surely has these columns: an array as wide, or a frame with the same names in the same order."""
        if isinstance(X, pd.DataFrame):
            return self.names is not None and X.columns.tolist() == self.names.tolist()
        return self.names is None and isinstance(X, np.ndarray) and X.ndim == 2 and X.shape[1] == self.n


class Descriptions(NamedTuple):
    """Groups of voters, and what sets them apart, in words."""

    texts: list[str | None] | None
    groups: Any


class Origin(NamedTuple):
    """The fingerprint of the folder that a model was loaded from, and its voters at that time."""

    fingerprint: str
    version: Any


@dataclass(frozen=True)
class StreamReport:
    """How a stream was read: what is exact and what is not; `str` puts it in words."""

    rows: int
    training: int
    sampled: int
    voters: int
    spooled_bytes: int
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True, eq=False)
class Fitted:
    """Everything learned in a fit."""

    settings: FitSettings  # of that fit
    encoder: Encoder
    model: WeightedAverage  # the network, and the references that vote
    target: Target
    history: pd.DataFrame
    examples: Examples  # records of the voters
    novelty: Novelty
    validation: HeldOutRows
    validation_ids: pd.Index[Any]  # including rows that a folder does not keep
    calibration: HeldOutRows
    features: Features = field(default_factory=Features)
    folds: Folds | None = None  # of a cross-fitted model
    shards: Shards | None = None  # of a model whose networks each saw a part of the rows
    within: pd.Series[Any] | None = None  # the group of rows, or a frozenset of groups, by id, for guarantees in each
    shift: Shift | None = None  # if it is calibrated for rows from elsewhere
    n_groups: int | None = None  # of the calibration rows, if rows belong to groups
    private: bool = False  # whether it was saved without its training examples
    deletions: tuple[Certificate, ...] = ()
    stream: StreamReport | None = None
    legend: Legend = NO_LEGEND  # what columns and codes are called
    target_columns: tuple[str, ...] = ()  # the names of y in a table, if it had any
    stored_agreement: Agreement | None = None  # of a model that was saved without the represented examples
    stored_descriptions: Descriptions | None = None
    origin: Origin | None = None
    _derived: dict[Hashable, tuple[Any, Any]] = field(default_factory=dict, init=False, repr=False)

    def derive(self, name: Hashable, compute: Callable[[], T]) -> T:
        """The result of `compute`, which is called once, and again only after the references were edited in place."""
        version = self.references.voters
        known = self._derived.get(name)
        if known is None or known[0] is not version:
            known = version, compute()
            self._derived[name] = known
        value: T = known[1]
        return value

    def __deepcopy__(self, memo: dict[int, Any]) -> Fitted:
        """A copy in memory; anything else that sends a model writes the files of its folder (`loading`)."""
        parts = {each.name: deepcopy(getattr(self, each.name), memo) for each in fields(self) if each.init}
        return Fitted(**parts)

    def edited(self, references: ReferenceSet, **changes: Any) -> Fitted:
        """The same model with other voters; values computed from the old ones are dropped."""
        model = copy(self.model)
        model.references = references
        return replace(self, model=model, stored_agreement=None, **changes)

    # The voters

    @property
    def references(self) -> ReferenceSet:
        """The training examples that vote."""
        return self.model.references

    @property
    def alone(self) -> bool:
        """Whether representatives vote for examples that the model does not hold."""
        return self.references.voters.represents and self.references.members is None

    @property
    def voter_ids(self) -> pd.Index[Any]:
        """The ids of all examples that vote or are represented."""
        ids: Any = (self.references.members or self.references).ids
        index: pd.Index[Any] = pd.Index(ids, tupleize_cols=False)
        return index

    def held_ids(self) -> list[Any]:
        """The ids of all rows that the model holds; some occur twice."""
        held = [*self.voter_ids, *self.calibration.ids, *self.validation_ids]
        rows = None if self.shards is None else self.shards.rows  # these include silenced rows
        return held if rows is None else [*held, *rows.ids]

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the folder that the model was loaded from; None if there is none, or after an edit."""
        same = self.origin is not None and self.origin.version is self.references.voters
        return self.origin.fingerprint if self.origin is not None and same else None

    @property
    def half(self) -> bool:
        """Whether half precision holds the weights of the network exactly."""
        return all(fits_half(weights) for weights in self.model.parameters() if weights.ndim > 1)

    # Votes

    def votes(self, h: Tensor) -> Floats:
        """(n, K): log class weights of rows with embeddings h (n, d)."""
        return self._finite(batches.votes(self.model, h))

    def _finite(self, log_class_weights: Tensor) -> Floats:
        votes: Floats = log_class_weights.cpu().numpy()
        if not np.isfinite(votes.max(axis=1)).all():  # a class without voters has -inf
            raise NonFiniteError("the network gives no finite votes for some rows")
        return votes

    def fold_votes(self, h: Any, ids: pd.Index[Any] | None = None, references: ReferenceSet | None = None) -> Any:
        """(n, F, K): votes on embeddings (n, d) by the models of the folds; None if the model is not cross-fitted.

        ids: the ids of rows that vote; these are judged by the model that left them out.
        """
        if self.folds is None:
            return None
        references = self.references if references is None else references
        h = torch.as_tensor(h, device=references.embeddings.device)
        if ids is None:
            return self.folds.votes(references, h)
        return np.repeat(self.folds.judge(references, h, ids)[:, None], FOLDS, axis=1)

    def judge(self, references: ReferenceSet, h: Tensor) -> Floats:
        """(n, K): the out-of-sample votes of references on the calibration rows, given their h (n, d)."""
        if self.folds is None:
            return np.asarray(references.log_class_weights(h).cpu().numpy())
        return self.folds.judge(references, h, self.calibration.ids)

    @property
    def calibrated(self) -> bool:
        """Whether there are rows to calibrate with."""
        return len(self.calibration.y) > 0

    def n_groups_of(self, rows: HeldOutRows) -> int | None:
        """The largest possible number of groups of these rows, if they calibrate alone; None if they belong to none."""
        return None if self.n_groups is None else min(self.n_groups, len(rows.y)) or None

    def groups(self) -> list[Any]:
        """The groups of the calibration rows, for guarantees within each."""
        assert self.within is not None
        return self.within.reindex(self.calibration.ids).tolist()

    # Novelty

    def votes_and_novelty(self, h: Tensor, inputs: Inputs) -> tuple[Floats, Floats, Floats | None]:
        """`votes`, `novelty_of` and `fold_votes` of rows, with one pass over the voters for votes and distances."""
        voters, folds = self.references.voters, self.folds
        sets = (voters,) if folds is None else folds.together(self.references).sets
        apart = self.novelty.voters is not None or any(each.weighted or len(each.labels) < NEAREST for each in sets)
        if apart or len(h) == 0:
            return self.votes(h), self.novelty_of(h, inputs), self.fold_votes(h)
        with few_threads(1 if len(h) <= _ROWS and voters.stack is not None else None):
            if folds is None:
                result = voters.query(h, NEAREST, "auto")
                votes = self._finite(result.log_class_weights)
                return votes, self.novelty_of(h, inputs, result.squared_distances), None
            by_fold, squared = folds.together(self.references).query(parts_of(h, folds.members), NEAREST)
            return self.votes(h), self.novelty_of(h, inputs, squared), by_fold.numpy()

    def novelty_of(self, h: Tensor, inputs: Inputs, squared: Tensor | None = None) -> Floats:
        """The novelty of rows with embeddings h (n, d): (n,), or by fold (n, F). squared: as for `Novelty.scores`."""
        z = h[:, :0] if self.novelty.known is None else batches.compared_features(self.model, inputs)
        return self._novelty_scores(h, z, self.novelty, squared)

    def _novelty_scores(self, h: Tensor, z: Tensor, measure: Novelty, squared: Tensor | None = None) -> Floats:
        """The same from features z (n, q), with this measure; squared: of the nearest voters, if known."""
        if self.folds is None:
            return measure.scores(self.references, h, z, squared=squared)
        measure = replace(measure, voters=None)
        sets = self.folds.together(self.novelty.voters or self.references)
        return measure.scores_by_set(sets, parts_of(h, self.folds.members), z, squared=squared)

    def calibration_novelty(self) -> Floats:
        """(n,): the novelty of the calibration rows against the references as they are now."""
        return self.derive("novelty", self._calibration_novelty)

    def _calibration_novelty(self) -> Floats:
        rows, folds = self.calibration, self.folds
        if folds is None:
            return self._novelty_scores(rows.h, rows.z, self.novelty)
        measure, numbers = replace(self.novelty, voters=None), np.maximum(folds.numbers(rows.ids), 0)
        novelty = np.empty(len(numbers))
        for fold, voters in enumerate(folds.sets(self.novelty.voters or self.references)):
            own = rows.at(numbers == fold)
            if len(own.y):
                novelty[numbers == fold] = measure.scores(voters, part_of(own.h, fold, folds.members), own.z)
        return novelty

    def novelty_of_voters(self, references: ReferenceSet, places: Ints) -> Floats:
        """The novelty of voters, by position among the references, compared with the others: (n,) or (n, F)."""
        names, folds, known = references.voters.ids[places], self.folds, self.novelty.known
        h = references.embeddings[torch.as_tensor(places, device=references.embeddings.device)]
        if folds is not None and known is not None:  # as in calibration: measured without the rows themselves
            known = known.joined(self.calibration.z, self.calibration.ids)
        # Voters added to the references alone have only an embedding.
        here = np.zeros(len(names), dtype=bool) if known is None else names.isin(known.ids)
        scores = np.empty(len(names) if folds is None else (len(names), FOLDS))
        for some, measure in ((here, self.novelty), (~here, replace(self.novelty, known=None))):
            if not some.any():
                continue
            own = h[torch.as_tensor(some, device=h.device)]
            z = own[:, :0] if known is None else known.of(names[some]).z
            if folds is None:
                scores[some] = measure.scores(references, own, z, own=True)
            else:
                scores[some] = self._novelty_scores(own, z, measure)
        return scores if folds is None else folds.repeat(scores, names)

    def typicality(self, novelty: Floats, *, private: bool) -> Floats:
        """(n,): the typicality of rows, from their novelty (n,), or by fold (n, F)."""
        if private:
            novelty = privacy.novelty(novelty)
        p_values = self.typical_scores().p_values(novelty)
        return privacy.p_values(p_values) if private else p_values

    def typical_scores(self) -> Calibration:
        """The novelty of the calibration rows, sorted; see `dwac.conformal.typicality`."""
        return self.derive("typicality", self._calibrate_typicality)

    def _calibrate_typicality(self) -> Calibration:
        novelty = self.calibration_novelty()
        if self.folds is None:
            return Calibration(novelty, tolerance=ROUNDING)
        return CrossCalibration(novelty, self.folds.numbers(self.calibration.ids), tolerance=ROUNDING)

    # Few voters, and groups

    @property
    def agreement(self) -> Agreement | None:
        """How often the representatives predict what all voters would, on the calibration rows; None if all vote."""
        few, members = self.references, self.references.members
        if not few.voters.represents:
            return None
        if members is None:
            return self.stored_agreement
        h, target = self.calibration.h, self.target
        return self.derive("agreement", lambda: agreement_of(few, members, h, target, self.judge))

    @property
    def descriptions(self) -> GroupTexts | None:
        """What sets each group of voters apart, in words; None where there is nothing to say."""
        stored = self.stored_descriptions
        if stored is None or (stored.texts is not None and stored.groups is not self.references.groups):
            return self.derive("descriptions", lambda: self.describe(self.references))
        if stored.texts is None or isinstance(stored.texts, GroupTexts):
            return stored.texts
        texts, profile = stored.texts, partial(self._read_groups, describe_profile, self.references)
        return self.derive("stored descriptions", lambda: GroupTexts(texts, profile))

    def describe(self, references: ReferenceSet) -> GroupTexts | None:
        """What sets each group apart; references: the voters, perhaps in other groups."""
        return self._read_groups(describe, references)

    def _read_groups(self, read: Callable[..., T], references: ReferenceSet) -> T | None:
        """What `describe` or `profile` says about the groups; None if their members are not known."""
        if self.encoder.kind not in ("tabular", "text", "huggingface") or self.alone:
            return None  # a representative does not show what all members of a group have in common
        examples = references.members or references
        records = self.examples.rows(examples.ids) if len(self.examples) else None
        if records is None:
            return None
        kinds: Any = "text"
        if isinstance(self.encoder, TabularEncoder):
            kinds = {column.name: column.kind for column in self.encoder.columns}
        return read(records, examples.groups.of, len(examples.groups), kinds, self.legend)


def fits_half(weights: Tensor) -> bool:
    """Whether half precision holds these weights exactly."""
    return weights.dtype == torch.float32 and bool((weights.half().float() == weights).all())
