"""Who votes, and how it is changed without training: few voters for all, more voters, forgotten ones."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import copy
from dataclasses import replace
from typing import Any, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from dwac import _checks as checks
from dwac.encoders import TabularEncoder
from dwac.encoders.sharded import Sharded
from dwac.errors import IdError, InputError
from dwac.estimator.base import Voting
from dwac.estimator.condensing import LESS, SAME_LABEL, Condenser, agreement_on
from dwac.estimator.preparation import count
from dwac.estimator.targets import LABELS, NUMBERS
from dwac.explain.descriptions import describe
from dwac.metrics import Agreement
from dwac.nn import batches
from dwac.reference import ReferenceSet, with_classes


class Editable(Voting):
    """Few voters, and edits of who votes."""

    # Few voters

    def condense(self, size: int | None = None) -> Self:
        """The same model with few voters: real examples, each with the votes of those like it.

        They explain a prediction in few lines, and predict in a fraction of the time. Calibration follows, so
        prediction sets, intervals and typicality keep their promises: calibration rows take no part in the choice. (In
        a cross-fitted model, where every row calibrates, each fold has representatives found without its rows.)
        `agreement_` says how often the prediction stays the same. Saved, the model holds the representatives' records
        alone; until then `forget` and `add_references` act on everybody: when a representative is forgotten, another
        takes its place.

        size: how many vote, and at least one for each class, label set or bin of numbers; by default as few as
        validation rows allow: 99.5 % keep their label, or their number within a tenth of the spread of its votes, and
        the loss grows by at most 0.5 %. Where no number up to a quarter of all does so, the fewest of which 99 %, 98 %,
        95 % or 90 % keep it, with a warning.
        """
        check_is_fitted(self, "model_")
        if size is not None:
            checks.positive_int(size, "size")
        if self._alone:
            raise InputError("this model was condensed and saved without the others; condense the model it came from")
        other = copy(self)
        other.examples_ = copy(self.examples_)  # edits of one must not change the records of the other
        other._represent(size)
        return other

    def _represent(self, size: int | None, *, strict: bool = True) -> None:
        """Let few vote for all, in a model of their own. Novelty is then the distance to the few.

        strict: if no number keeps 99.5 % of labels, take one that keeps less and warn, or raise an error; otherwise
        all vote.
        """
        model, references = copy(self.model_), self.references_
        rows = self._validation_rows
        if size is None and len(rows.y) == 0 and self._folds is None:
            raise InputError(
                "choosing the number of voters needs validation rows, and the model has none; give a number: size=…"
            )
        condenser = Condenser(references, rows.h, rows.y, self.target_)
        few = condenser.fewest() if size is None else condenser.represented(size)
        if few is None and not strict:
            return
        if few is None:
            few, kept = condenser.nearly()
            asked = "for a number of your choice: size=… (--size)"
            none = f"no number of voters up to {max([0, *condenser.sizes()]):,} keeps"
            if few is None:
                raise InputError(f"{none} {checks.percent(LESS[-1], 0)} of labels and the loss; all vote; {asked}")
            checks.warn(
                f"{none} {checks.percent(SAME_LABEL)} of labels and the loss; {len(few):,} are chosen, which keep "
                f"{checks.percent(kept, 0)} of labels and the loss within {checks.percent(1 - kept, 0)}; {asked}"
            )
        model.references = few
        if self._folds is not None:
            self._folds = self._folds.without(pd.Index([]))  # who represents whom is found anew, and kept
        self._calibrate(self._calibration_rows)
        self.model_, self._described, self._agreed = model, None, None
        self._novelty = self._fitted_novelty()

    @property
    def _alone(self) -> bool:
        """Whether few vote for others who are not there."""
        return self.references_.voters.weighted and self.references_.members is None

    @property
    def agreement_(self) -> Agreement | None:
        """How often few voters predict what all would, on the calibration rows; None where all vote.

        A number counts as the same within a tenth of the standard deviation of its votes.
        """
        if not self.references_.voters.weighted:
            return None
        references, rows = self.references_, self._calibration_rows
        if references.members is None:
            return self._agreement
        known = self._agreed
        if known is None or known[0] is not references.voters or known[1] is not rows:
            known = references.voters, rows, agreement_on(references, rows.h, self.target_, self._judge_rows)
        self._agreed = known
        return known[2]

    def _judge_rows(self, references: ReferenceSet, h: torch.Tensor) -> NDArray[np.float64]:
        """(n, K): the votes of references on the calibration rows, whose h (n, d) these are, out of sample."""
        if self._folds is None:
            return np.asarray(references.log_class_weights(h).cpu().numpy())
        return self._folds.judged(references, h, self.calibration_ids_)

    @property
    def descriptions_(self) -> list[str | None] | None:
        """What sets each group of voters apart, in words; None where there is nothing to say."""
        groups = self.references_.groups
        if self._described is None or (self._described[1] is not groups and self._described[0] is not None):
            self._described = self._describe(), groups
        return self._described[0]

    def _describe(self, references: ReferenceSet | None = None) -> list[str | None] | None:
        """What sets each group apart; references: the same voters in other groups."""
        references = self.references_ if references is None else references
        if self.encoder_.kind not in ("tabular", "text", "huggingface") or self._alone:
            return None  # who represents a group does not tell what all its members have in common
        everybody = references.members or references
        records = self.examples_.rows(everybody.ids) if len(self.examples_) else None
        if records is None:
            return None
        kinds: Any = "text"
        if isinstance(self.encoder_, TabularEncoder):
            kinds = {column.name: column.kind for column in self.encoder_.columns}
        return describe(records, everybody.groups.of, len(everybody.groups), kinds=kinds, sizes=False)

    def __repr__(self, N_CHAR_MAX: int = 700) -> str:
        """The settings; of a condensed model also how many vote for how many, and how often as all would."""
        settings: str = super().__repr__(N_CHAR_MAX)
        if not hasattr(self, "model_") or not self.references_.voters.weighted:
            return settings
        few, known = self.references_, self.agreement_
        what = {LABELS: "labels", NUMBERS: "number"}.get(self.target_.kind, "label")
        voters = f"{len(few):,} representatives vote for {round(float(few.sizes.sum())):,} training examples"
        return f"{settings}\n# {voters}" + ("" if known is None else f"; the {what} of all on {known}")

    # Editing who votes, without training

    def add_references(self, X: Any, y: Any, *, ids: Iterable[Hashable] | None = None) -> Self:
        """Let more examples vote, without training. Calibration follows.

        ids: names that are new to the model; by default the index of a DataFrame or Series, else new numbers.
        """
        references = self.references_
        X, inputs = self._read(X)
        n = count(X)
        codes, exact = self._known(y, n, strict=True)
        codes, references = self._adopted(codes, exact), self.references_
        names = self._new_ids(X, ids, n)
        shared = names[names.isin(self.calibration_ids_)]
        if len(shared) and self._folds is None:  # cross-fitted rows do both, and ids that vote are refused below
            raise IdError(
                f"{shared.tolist()[0]!r} is a calibration row; if it voted too, prediction sets would lose their "
                "guarantee; forget it first, or give the rows other ids"
            )
        targets = exact if references.targets is not None else None
        references.add(batches.embed(self.model_, inputs), codes, names.tolist(), targets=targets)
        self._agreement = None
        if self._novelty.known is not None:
            known = self._novelty.known.joined(batches.compared(self.model_, inputs), names)
            self._novelty = replace(self._novelty, known=known)
        self._keep(names, X)
        return self

    def _adopted(self, codes: NDArray[np.int64], exact: NDArray[np.float64]) -> NDArray[np.int64]:
        """The codes of new voters (n,), with those of label sets that nobody had before."""
        if not (codes < 0).any():
            return codes
        before = self.target_.n_codes
        self.target_ = self.target_.with_sets(exact[codes < 0])
        self.model_.references = with_classes(self.references_, np.arange(before), self.target_.n_codes)
        return self.target_.codes(exact)

    def _keep(self, ids: pd.Index[Any], X: Any) -> None:
        """Keep examples for explanations: as given, except that files and pictures are kept as pixels."""
        if self.encoder_.kind == "image" and isinstance(X, list | pd.Series):
            self.examples_.add(ids, self.encoder_.records(X))
        else:
            self.examples_.add(ids, X, self.encoder_.records)

    def forget(self, ids: Iterable[Hashable]) -> Self:
        """Delete examples by id: from votes, calibration, validation and records."""
        names = self._forgettable(ids)
        voters = names[names.isin(self._voter_ids())]
        gone = self.examples_.rows(voters) if len(voters) else None
        self._stop_votes(voters)
        if gone is not None:
            self._drop_names(gone)
        if self._folds is not None:
            self._folds = self._folds.without(names)
        self.validation_ids_ = self.validation_ids_[~self.validation_ids_.isin(names)]
        self._validation_rows = self._validation_rows.without(names)
        self._calibrate(self._calibration_rows.without(names))
        if self._within is not None:
            self._within = self._within[~self._within.index.isin(names)]
        return self

    def _drop_names(self, gone: Any) -> None:
        """Drop the names of categories that only these rows had, if the records of all other voters can tell."""
        known = not self._alone and len(self.examples_) == len(self._voter_ids())
        if known and isinstance(self.encoder_, TabularEncoder) and not isinstance(self.encoder_, Sharded):
            self.encoder_ = self.encoder_.without_names(gone, self.examples_.frame())

    def silence(self, ids: Iterable[Hashable]) -> Self:
        """Let examples vote no more, however they were chosen, and keep what prediction sets promise.

        For cleaning: wrong labels, harmful examples. The rows of a cross-fitted model still calibrate, with the labels
        that they came with and judged by the models that left them out; so new rows may be wrong as often as they are.
        Their records are no longer shown. To undo it, give the rows to `add_references` with the same ids. To delete
        somebody's data, use `forget`.
        """
        self._stop_votes(self._voting_ids(ids, "silenced"))
        return self

    def relabel(self, ids: Iterable[Hashable], y: Any) -> Self:
        """Let examples vote for other labels or numbers, one per id, without training.

        The rows of a cross-fitted model calibrate with the labels that they came with, as new rows are labelled: so
        prediction sets keep what they promise, whichever labels are corrected.
        """
        names = self._voting_ids(ids, "relabelled")
        codes, exact = self._known(y, len(names), strict=True)
        codes = self._adopted(codes, exact)
        self.references_.relabel(names.tolist(), codes, targets=None if self.references_.targets is None else exact)
        self._agreement = None
        return self

    def _voting_ids(self, ids: Iterable[Hashable], done: str) -> pd.Index[Any]:
        """The ids as an index; an error unless all vote."""
        check_is_fitted(self, "model_")
        names, voters = _index_of(ids), self._voter_ids()
        if not names.isin(voters).all():
            raise IdError(
                f"ids must be of examples that vote; {names[~names.isin(voters)].tolist()[0]!r} does not; nothing was "
                f"{done}"
            )
        return names

    def _stop_votes(self, names: pd.Index[Any]) -> None:
        """Remove these voters and their records."""
        if len(names) == 0:
            return
        if self._alone:
            self._warn_of_votes(names.tolist())
        self.references_.remove(names.tolist())
        self._agreement = None  # of a model saved without those it represents, before it was edited
        self.examples_.remove(names.tolist())
        if self._novelty.known is not None:
            self._novelty = replace(self._novelty, known=self._novelty.known.without(names))

    def _held_ids(self) -> list[Any]:
        """The ids of all rows that the model holds; of some twice."""
        held = [*self._voter_ids(), *self.calibration_ids_, *self.validation_ids_]
        rows = None if self._shards is None else self._shards.rows  # which keep rows that were silenced
        return held if rows is None else [*held, *rows.ids]

    def _forgettable(self, ids: Iterable[Hashable]) -> pd.Index[Any]:
        """The ids as an index; an error unless the model holds them all."""
        check_is_fitted(self, "model_")
        names = _index_of(ids)
        known = names.isin(self._held_ids())
        if not known.all():
            unknown = (
                "it was condensed and saved without those who are represented: forget them in the model that it came "
                "from, condense and save that again"
            )
            raise IdError(
                f"ids must be of examples that the model holds; {names[~known].tolist()[0]!r} is not; "
                f"{f'{unknown}; ' if self._alone else ''}nothing was forgotten"
            )
        return names

    def _warn_of_votes(self, ids: list[Any]) -> None:
        """Say that representatives go with the votes of others, who are not there to take their place."""
        votes = round(float(self.references_.sizes[self.references_.voters.positions(ids)].sum()))
        if votes > len(ids):
            checks.warn(
                f"{len(ids):,} of the {len(self.references_):,} representatives go, and with them the votes of "
                f"{votes:,} training examples: nobody can take their place, as the model was saved without the "
                "others; to remove only these, use the model that it came from, or save with include_members=True",
            )


def _index_of(ids: Iterable[Hashable]) -> pd.Index[Any]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise IdError(f"ids must be a list of ids; got {ids!r}; write [{ids!r}] for a single one")
    names: pd.Index[Any] = pd.Index(list(ids), tupleize_cols=False)
    return names
