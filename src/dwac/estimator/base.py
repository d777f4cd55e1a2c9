"""What classifier and regressor share once they are fitted: reading rows, votes, novelty, calibration rows, saving."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Never, Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.utils.data import DataLoader, Dataset

from dwac import storage
from dwac.conformal import typicality
from dwac.encoders import Encoder, ModuleEncoder
from dwac.encoders.module import gathered
from dwac.errors import IdError, InputError, NonFiniteError
from dwac.estimator import persistence
from dwac.estimator.certificate import Certificate
from dwac.estimator.containers import batches_of, gathered_batches, native, require_order
from dwac.estimator.folds import Folds
from dwac.estimator.held_out import HeldOutRows
from dwac.estimator.novelty import ROUNDING, Novelty
from dwac.estimator.preparation import Examples, count, row_ids, rows_of, take
from dwac.estimator.readable import Reasons, Sifted, sift
from dwac.estimator.settings import check_settings
from dwac.estimator.shards import Shards
from dwac.estimator.targets import Target
from dwac.estimator.unknown import Judged, judge
from dwac.explain import privacy
from dwac.metrics import Agreement
from dwac.nn import WeightedAverage, batches
from dwac.nn.batches import Inputs
from dwac.reference import Known, ReferenceSet
from dwac.training.cross_fit import FOLDS, part_of

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Evidence(NamedTuple):
    """All that the model says of n rows, from which p-values, intervals and typicality are found."""

    votes: Floats  # (n, K) log class weights; NaN where a row could not be read
    reasons: Reasons  # (n,) why a row could not be read, None for others
    novelty: Floats | None  # (n,), or by fold (n, F); None if it was not asked for
    fold_votes: Floats | None  # (n, F, K), of a cross-fitted model


class Voting(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A fitted estimator whose training examples vote."""

    encoder: Any
    unknown: str
    raw_features: bool
    private_: bool
    target_: Target
    encoder_: Encoder
    model_: WeightedAverage
    history_: pd.DataFrame
    examples_: Examples
    validation_ids_: pd.Index[Any]
    _fitted: dict[str, Any]
    _novelty: Novelty
    _folds: Folds | None
    deletions_: list[Certificate]
    _shards: Shards | None  # of a model whose networks each saw a part of the rows
    _n_groups: int | None  # of the calibration rows, if rows belong to groups
    _within: pd.Series[Any] | None  # the groups of rows, by id, for guarantees within each
    _validation_rows: HeldOutRows
    _calibration_rows: HeldOutRows
    _measured: tuple[Any, Novelty, Floats] | None
    _agreement: Agreement | None  # of a model that was saved without those it represents
    _agreed: tuple[Any, HeldOutRows, Agreement | None] | None
    _described: tuple[list[str | None] | None, Any] | None
    _loaded: tuple[str, Any, HeldOutRows] | None = None  # the fingerprint of its folder, and what was read from there

    def _named(self) -> None:
        """Say what is predicted, in attributes that follow from the target."""
        raise NotImplementedError

    # Rows

    def _received(self, X: Any, y: Any, ids: Any) -> tuple[Any, Any]:
        """X and y of fit as pandas, NumPy, tensors, lists or a stream."""
        if not isinstance(X, DataLoader):
            return native(X), native(y, "y")
        if ids is not None and not isinstance(ids, str):
            require_order(X, "ids name rows in the order of the dataset")
        found, tables = batches_of(X)
        if tables and not isinstance(self.encoder, torch.nn.Module | ModuleEncoder):
            return found, y  # a stream
        rows, labels = gathered_batches(found)
        if labels is None and y is not None:
            require_order(X, "y has labels in the order of the dataset")
        if labels is not None and y is not None:
            raise InputError("the batches of the DataLoader have labels, and y was given besides; leave y out")
        return rows, native(y, "y") if labels is None else labels

    def _read(self, X: Any) -> tuple[Any, Inputs]:
        """The rows of X, and the tensors that the network takes; an error names a column or row that does not fit."""
        check_is_fitted(self, "model_")
        X = self._checked(X)
        return X, self._judged(X).inputs

    def _judged(self, X: Any, *, private: bool = False) -> Judged:
        """Rows as the network takes them: values that training never had are read as `unknown` says.

        private: values of a single training row count as unknown, too; whoever asks must not learn of that row.
        """
        seen: Callable[[Any], Collection[str]] = (lambda _: ()) if private else self.examples_.values_of
        return judge(self.encoder_, X, self.encoder_.transform(X), self.unknown, seen)

    def _checked(self, X: Any) -> Any:
        """The rows of X, if it has the columns of fit."""
        X = rows_for(X, self.encoder_)
        if has_columns(X, self.encoder_):
            validate_data(self, X, reset=False, skip_check_array=True)
        return X

    def _sift(self, X: Any, *, private: bool | None = None) -> Sifted:
        """The rows that can be read, and why the others cannot; an error if none can."""
        check_is_fitted(self, "model_")
        private = self.private_ if private is None else private
        return sift(self.encoder_, X, self._checked, partial(self._judged, private=private))

    def _embedded(self, rows: Sifted) -> tuple[Sifted, torch.Tensor]:
        """h of the rows that can be read; a row whose h is not finite counts as unreadable."""
        h = batches.embed(self.model_, rows.inputs)
        finite = h.isfinite().all(dim=1)
        if not finite.all():
            rows = rows.only(finite.cpu().numpy(), "the network gives it no finite embedding")
        return rows, h[finite]

    def unreadable(self, X: Any) -> dict[int, str]:
        """The numbers of the rows of X that cannot be read, and why."""
        rows = self._sift(X)
        if rows.inputs:
            rows = self._embedded(rows)[0]
        return {row: why for row, why in enumerate(rows.reasons) if why is not None}

    def embed(self, X: Any) -> NDArray[np.float32]:
        """(n, d): the embeddings that vote: of all networks of the ensemble, with raw features where these count."""
        return batches.embed(self.model_, self._read(X)[1]).cpu().numpy()

    def transform(self, X: Any) -> NDArray[np.float32]:
        """(n, d): the embeddings, as `embed` gives them: an estimator is a step of a pipeline, too.

        Follows `set_output`: a DataFrame of pandas or polars if asked. The embeddings of training rows were learned
        with their labels: whoever trains on top of them should hold rows out.
        """
        return self.embed(X)

    @property
    def _n_features_out(self) -> int:
        return int(self.model_.vector_size)

    @property
    def partial_fit(self) -> Never:
        """There is none, on purpose: hasattr is False, and asking says what to do instead (decision 0024)."""
        raise AttributeError(
            f"{type(self).__name__} has no partial_fit: trained batch by batch, a network forgets what it read first, "
            "and calibration rows must be drawn from all rows. Use fit(batches) for more rows than memory holds, and "
            "add_references(X, y) to let more examples vote without training; see docs/decisions/0024-python-habits.md"
        )

    def embed_with_novelty(self, X: Any) -> tuple[NDArray[np.float32], Floats]:
        """The embeddings, (n, d), and the novelty of the rows, as in `evidence`."""
        inputs = self._read(X)[1]
        h = batches.embed(self.model_, inputs)
        return h.cpu().numpy(), self._novelty_of(h, inputs)

    def _shown(self, X: Any, unknown: Iterable[str | None] | None = None) -> list[dict[str, Any]]:
        """Each row as a person would see it, for `explain_of`; unknown: the values that training never had."""
        attention, frame = self.encoder_.attention(self.model_.backbone, X), self.encoder_.records(X)
        records: list[dict[Any, Any]] = frame.to_dict("records") or [{}] * len(frame)  # pandas 2: none without columns
        notes = [None] * len(records) if unknown is None else list(unknown)
        return [
            {"record": record or None, "unknown": notes[row]}
            | ({} if attention is None else {"attention": attention[row]})
            for row, record in enumerate(records)
        ]

    @property
    def _comparable(self) -> bool:
        """Whether training examples can be compared with others in the input; a folder keeps none of a module's."""
        return len(self.examples_) > 0 and self.encoder_.kind != "module"

    def _differences(self, X: Any, row: int, ids: list[Any]) -> Floats:
        """How different training examples are from a row of X in the input."""
        rows = self.examples_.rows(ids)
        if rows is None:
            return np.zeros(len(ids))
        return self.encoder_.input_distances(take(X, np.array([row])), rows)

    # Votes

    @property
    def references_(self) -> ReferenceSet:
        """The training examples that vote: their embeddings, labels (as codes into `classes_`) and ids."""
        check_is_fitted(self, "model_")
        return self.model_.references

    def votes(self, X: Any) -> tuple[Floats, Reasons]:
        """(log_class_weights (n, K), reasons (n,)): a reason says why a row could not be read, and is None for others.

        A row that could not be read, such as an empty text or a damaged file, has NaN.
        """
        return self._asked(X)[:2]

    def evidence(self, X: Any) -> Evidence:
        """The same, and what p-values and typicality are computed from; an unreadable row has novelty inf."""
        return self._asked(X, novelty=True, folds=True)

    def _asked(self, X: Any, *, novelty: bool = False, folds: bool = False) -> Evidence:
        return self._evidence_of(*self._heard(X), novelty=novelty, folds=folds)

    def _heard(self, X: Any, *, private: bool | None = None) -> tuple[Sifted, torch.Tensor]:
        """The rows of X, and the embeddings of those that can be read."""
        rows, h = self._sift(X, private=private), torch.zeros(0, self.model_.vector_size, device=self.model_.device)
        return self._embedded(rows) if rows.inputs else (rows, h)

    def _observed(self, X: Any, *, private: bool) -> tuple[Reasons | None, Evidence]:
        """The values of rows that training never had, as in `_notes_of`, and the evidence."""
        rows, h = self._heard(X, private=private)
        return self._notes_of(rows), self._evidence_of(rows, h, novelty=True, folds=True)

    def _notes_of(self, rows: Sifted) -> Reasons | None:
        """(n,): None, or the values of a row that training never had; None if the model reads no table."""
        return rows.unknown if self.encoder_.kind == "tabular" else None

    def _evidence_of(self, rows: Sifted, h: torch.Tensor, *, novelty: bool = False, folds: bool = False) -> Evidence:
        n, width, crossed = len(rows.reasons), len(self._log_shares()), self._folds is not None
        votes = np.full((n, width), np.nan)
        by_fold = np.full((n, FOLDS, width), np.nan) if folds and crossed else None
        strange = np.full((n, FOLDS) if crossed else n, np.inf) if novelty else None
        if len(h):
            votes[rows.readable] = self._counted(h)
            if strange is not None:
                strange[rows.readable] = self._novelty_of(h, rows.inputs)
            if by_fold is not None:
                by_fold[rows.readable] = self.fold_votes(h)
        return Evidence(votes, rows.reasons, strange, by_fold)

    def _counted(self, h: torch.Tensor) -> Floats:
        votes: Floats = batches.votes(self.model_, h).cpu().numpy()
        if not np.isfinite(votes.max(axis=1)).all():  # a class without voters has -inf
            raise NonFiniteError("the network gives no finite votes for some rows")
        return votes

    def _log_shares(self) -> Floats:
        """(K,), finite: the log of each class's share of the vote if all voters were equally near."""
        references = self.references_
        voters = np.bincount(references.labels.cpu().numpy(), references.weights, references.n_classes)
        counts: NDArray[Any] = voters * references.class_weights
        return np.asarray(np.log(np.maximum(counts / counts.sum(), np.finfo(np.float64).tiny)))

    def fold_votes(self, h: Any, ids: pd.Index[Any] | None = None, references: ReferenceSet | None = None) -> Any:
        """(n, F, K): votes on embeddings (n, d) by the models of the folds; None where the model is not cross-fitted.

        ids: of rows that vote, who are judged by the model that left them out.
        """
        if self._folds is None:
            return None
        references = self.references_ if references is None else references
        h = torch.as_tensor(h, device=references.embeddings.device)
        if ids is None:
            return self._folds.votes(references, h)
        return np.repeat(self._folds.judged(references, h, ids)[:, None], FOLDS, axis=1)

    @property
    def cross_fitted_(self) -> bool:
        """Whether every voter calibrates, judged by networks that left it out."""
        check_is_fitted(self, "model_")
        return self._folds is not None

    @property
    def out_of_fold_(self) -> Floats | None:
        """(m, K): log class weights of each voter by the networks and voters that left it out; None if there are none.

        In the order of `references_`. A cross-fitted model has them, and they judge the labels of the training rows.
        """
        if self._folds is None or self.references_.voters.weighted:
            return None
        return self._folds.out_of_fold(self.references_)

    # Novelty

    def _new_novelty(self, inputs: Inputs) -> Novelty:
        """How novelty is measured: of a table, also by what its voters, given as inputs, are compared by."""
        model = self.model_
        if not self.raw_features or model.n_compared_features == 0:
            return Novelty(directions=self.encoder_.kind != "tabular")
        return Novelty(Known(batches.compared(model, inputs), model.references.voters.ids))

    def _fitted_novelty(self) -> Novelty:
        """Novelty that knows what is usual among rows that do not vote: validation rows, or those of a fold."""
        if self._folds is None:
            return self._novelty.fit(self.references_, self._validation_rows)
        rows, voters = self._calibration_rows, self._folds.sets(self.references_)[0]
        return self._novelty.fit(voters, rows.of_fold(self._folds, 0))

    def _novelty_of(self, h: torch.Tensor, inputs: Inputs) -> Floats:
        """The novelty of rows with embeddings h (n, d): (n,), or by fold (n, F)."""
        z = h[:, :0] if self._novelty.known is None else batches.compared(self.model_, inputs)
        return self._novelty_scores(h, z)

    def _novelty_scores(self, h: torch.Tensor, z: torch.Tensor, measure: Novelty | None = None) -> Floats:
        """The same from features z (n, q); measure: how, by default as everywhere."""
        if self._folds is None:
            return self._novelty.scores(self.references_, h, z)
        measure = replace(measure or self._novelty, voters=None)
        sets = self._folds.sets(self._novelty.voters or self.references_)
        found = [measure.scores(voters, part_of(h, f, self._folds.members), z) for f, voters in enumerate(sets)]
        return np.stack(found, axis=1)

    def _own_novelty(self, rows: HeldOutRows, folds: Folds) -> Floats:
        """(n,): `Folds.own` of the novelty of rows, each compared with the voters of its own fold's model alone."""
        measure, numbers = replace(self._novelty, voters=None), np.maximum(folds.numbers(rows.ids), 0)
        found = np.empty(len(numbers))
        for fold, voters in enumerate(folds.sets(self._novelty.voters or self.references_)):
            here = torch.as_tensor(np.flatnonzero(numbers == fold), device=rows.h.device)
            if len(here):
                scores = measure.scores(voters, part_of(rows.h[here], fold, folds.members), rows.z[here])
                found[numbers == fold] = scores
        return found

    def novelty_of_voters(self, references: ReferenceSet, places: NDArray[np.int64]) -> Floats:
        """The novelty of voters, by position among the references, compared with the others; as in `evidence`."""
        if self._folds is None:
            return self._novelty.of_voters(references, places)
        names = references.voters.ids[places]
        h = references.embeddings[torch.as_tensor(places, device=references.embeddings.device)]
        rows, known = self._calibration_rows, self._novelty.known
        if known is None:
            return self._folds.repeated(self._novelty_scores(h, h[:, :0]), names)
        # As they calibrate: compared by what was measured without them. Those added later have no fold.
        known = known.joined(rows.z, rows.ids)
        here = names.isin(known.ids)  # whoever was added to the references alone is known by its embedding only
        found = np.empty((len(places), FOLDS))
        for some, measure in ((here, self._novelty), (~here, replace(self._novelty, known=None))):
            if some.any():
                part = torch.as_tensor(some, device=h.device)
                found[some] = self._novelty_scores(h[part], known.of(names[some]).z, measure)
        return self._folds.repeated(found, names)

    def _calibration_novelty(self) -> Floats:
        """(n,): the novelty of the calibration rows against the references as they are now."""
        references, known = self.references_, self._measured
        if known is None or known[0] is not references.voters or known[1] is not self._novelty:
            rows, folds = self._calibration_rows, self._folds
            scores = self._novelty_scores(rows.h, rows.z) if folds is None else self._own_novelty(rows, folds)
            known = references.voters, self._novelty, scores
            self._measured = known
        return known[2]

    def _typicality(self, novelty: Floats, *, private: bool) -> Floats:
        """(n,): the typicality of rows of a novelty (n,), or by fold (n, F)."""
        if private:
            novelty = privacy.novelty(novelty)
        folds = None if self._folds is None else self._folds.numbers(self.calibration_ids_)
        found = typicality(self._calibration_novelty(), novelty, tolerance=ROUNDING, folds=folds)
        return privacy.p_values(found) if private else found

    # Calibration rows

    def _held_out(self, inputs: Inputs, codes: Ints, exact: Floats, names: pd.Index[Any], rows: Ints) -> HeldOutRows:
        return self._rows_of(tuple(part[rows] for part in inputs), codes[rows], names[rows], exact[rows])

    def _rows_of(self, inputs: Inputs, codes: Ints, names: pd.Index[Any], exact: Floats | None = None) -> HeldOutRows:
        exact = np.zeros((len(codes), 0)) if exact is None else exact
        return HeldOutRows.of(self.model_, inputs, codes, names, exact, compared=self._novelty.known is not None)

    def _calibrate(self, rows: HeldOutRows) -> None:
        self._calibration_rows = rows
        self._calibrated: tuple[Any, Any, Any] | None = None
        self._measured = None

    def _calibrated_with(self, state: tuple[Any, ...], compute: Callable[[], Any]) -> Any:
        """What `compute` gives, against the references as they are now; computed again only if those or state change.

        Holding the index keeps its id unique.
        """
        index = self._version
        state = (id(index), *state)
        if self._calibrated is None or self._calibrated[0] != state:
            self._calibrated = (state, compute(), index)
        return self._calibrated[1]

    @property
    def _version(self) -> Any:
        """Another object after every edit of the voters."""
        return self.references_.voters

    @property
    def fingerprint_(self) -> str | None:
        """The fingerprint of the folder that the model was loaded from; None if there is none, or after an edit."""
        known = self._loaded
        same = known is not None and known[1] is self._version and known[2] is self._calibration_rows
        return known[0] if known is not None and same else None

    @property
    def calibration_ids_(self) -> pd.Index[Any]:
        """The ids of the calibration rows."""
        return self._calibration_rows.ids

    @property
    def calibration_y_(self) -> NDArray[np.int64]:
        """Their labels, as codes into `classes_`; -1 for a label that training did not have."""
        return self._calibration_rows.y

    @property
    def validation_y_(self) -> NDArray[np.int64]:
        """The labels of the validation rows, as codes; none of a model that was saved with representatives alone."""
        return self._validation_rows.y

    @property
    def calibration_h_(self) -> torch.Tensor:
        """Their embeddings."""
        return self._calibration_rows.h

    def _known(self, y: Any, n: int, *, strict: bool) -> tuple[Ints, Floats]:
        """(codes (n,), exact (n, T)) of new rows; if not `strict`, an unknown outcome has code -1."""
        raise NotImplementedError

    def recalibrate(self, X: Any, y: Any, *, ids: Iterable[Hashable] | None = None) -> Self:
        """Calibrate with these rows instead of those that `fit` set aside. They must not be training rows.

        Do not drop rows whose labels training did not have: they count as misses here, as they will among new rows.

        ids: as for `add_references`.
        """
        X, inputs = self._read(X)
        n = count(X)
        codes, exact = self._known(y, n, strict=False)
        names = self._new_ids(X, ids, n)
        shared = names[names.isin(self._voter_ids())]
        if len(shared):
            raise IdError(
                f"calibration rows must not be training rows; {shared.tolist()[0]!r} votes; give rows that were not "
                "trained on"
            )
        self._folds = self._n_groups = None  # these rows took no part in training
        self._calibrate(self._rows_of(inputs, codes, names, exact))
        return self

    def _voter_ids(self) -> pd.Index[Any]:
        """Of all who vote, or are represented in the vote."""
        ids: Any = (self.references_.members or self.references_).ids
        index: pd.Index[Any] = pd.Index(ids, tupleize_cols=False)
        return index

    def _new_ids(self, X: Any, ids: Iterable[Hashable] | None, n: int) -> pd.Index[Any]:
        """Ids of new rows: those given, the index of a frame, or numbers not used before."""
        if ids is not None or isinstance(X, pd.DataFrame | pd.Series):
            return row_ids(X, ids, n)
        held = [*self._voter_ids(), *self.calibration_ids_, *self.validation_ids_]
        first = 1 + max((int(i) for i in held if isinstance(i, int | np.integer)), default=-1)
        return pd.RangeIndex(first, first + n)

    # Settings, the page and the folder

    def _check_settings(self) -> None:
        check_settings(self.get_params(deep=False))

    def explore(self, X: Any = None, y: Any = None, **options: Any) -> Any:
        """Open a local page to see and question every prediction: `dwac.explore(self, X, y, …)`."""
        from dwac import explore  # late: the explorer knows the classifier, not the other way round

        return explore(self, X, y, **options)

    def save(
        self,
        path: str | PathLike[str],
        *,
        include_examples: bool = True,
        include_members: bool = False,
        overwrite: bool = False,
    ) -> Path:
        """Write the model to a folder: settings as JSON, numbers as safetensors, training examples as Parquet.

        include_examples: False saves no training record and makes the saved model private: it only shows labels and
        rounded shares. Embeddings, labels and ids of the voters are saved, so examples can still be forgotten by id.
        (Where raw features vote, the embeddings of a table hold its numbers.) Typicality is then measured by embeddings
        alone, and may differ; nothing else does.

        include_members: of a condensed model, save also those who are represented, so that each can still be forgotten.
        By default the folder holds the representatives alone.

        overwrite: replace the model that the folder holds; otherwise that is an error, also if it is this model's own.
        """
        check_is_fitted(self, "model_")
        config, tensors, examples = persistence.pack(
            self, include_examples=include_examples, include_members=include_members
        )
        rows = persistence.all_rows(self, include_examples=include_examples)
        return storage.write_model(path, config, tensors, examples, rows, overwrite=overwrite)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = []  # embeddings are float32, whatever X is
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def rows_for(X: Any, encoder: Encoder) -> Any:
    """X in the form that everything below works on."""
    if isinstance(X, DataLoader):
        require_order(X, "rows are answered in the order of the dataset")
        X = gathered_batches(batches_of(X)[0])[0]
    elif isinstance(X, Dataset):
        X = gathered(X)[0]
    return rows_of(list(X) if isinstance(X, tuple) and encoder.kind != "module" else native(X))


def has_columns(X: Any, encoder: Encoder) -> bool:
    """Whether X has columns that must be the same at predict time."""
    return (encoder.kind == "tabular" and getattr(X, "ndim", 2) == 2) or (
        encoder.kind == "module" and isinstance(X, pd.DataFrame)
    )
