"""DWACClassifier: a scikit-learn classifier for tables, images, texts or any tensors.

clf = DWACClassifier(random_state=0).fit(X, y)
clf.predict(X); clf.predict_proba(X)
clf.predict_set(X, epsilon=0.05)       # prediction sets that miss the truth at most 5 % of the time
print(clf.explain(X, k=5)[0])          # who voted, and how much
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Iterator, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, Self, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.utils.data import Dataset

from dwac import _checks as checks
from dwac import storage, training
from dwac.conformal import Calibration, ConformalPrediction, ExpectedSets, nonconformity, typicality
from dwac.encoders import Encoder, ModuleEncoder, TabularEncoder, backbone, choose
from dwac.encoders.module import gathered
from dwac.errors import HeadError, IdError, InputError, NonFiniteError
from dwac.estimator import persistence
from dwac.estimator.condensing import Condenser, agreement_on, wanted
from dwac.estimator.folds import Folds
from dwac.estimator.held_out import HeldOutRows
from dwac.estimator.novelty import ROUNDING, Novelty
from dwac.estimator.preparation import (
    Examples,
    Parts,
    class_weights,
    count,
    encode_known,
    encode_labels,
    everybody,
    row_ids,
    row_weights,
    rows_of,
    split,
    take,
)
from dwac.estimator.readable import Reasons, Sifted, readable, sift, warn_of
from dwac.estimator.settings import check_settings, cross_fitted, device_of
from dwac.explain import Explanation, explain, privacy
from dwac.explain.descriptions import describe
from dwac.explain.explainer import unreadable
from dwac.metrics import Agreement
from dwac.nn import SoftmaxTwin, WeightedAverage, batches
from dwac.nn.batches import Inputs
from dwac.reference import Known, ReferenceSet
from dwac.training.cross_fit import FOLDS, VIEWS, folds_of, part_of
from dwac.training.progress import progress_bar

Floats = NDArray[np.float64]


class Evidence(NamedTuple):
    """All that the model says of n rows, from which `conformal_of` finds p-values and typicality."""

    votes: Floats  # (n, K) log class weights
    reasons: Reasons  # (n,) why a row could not be read, None for others
    novelty: Floats | None  # (n,), or by fold (n, F); None for a softmax, which has no voters to compare rows with
    fold_votes: Floats | None  # (n, F, K), of a cross-fitted model


class DWACClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A deep classifier whose every prediction is a weighted vote of training examples.

    Rows are divided into three parts: training rows vote, validation rows decide when training stops, and calibration
    rows give prediction sets their guarantee. A table of fewer than 4,000 rows is cross-fitted instead: every row
    trains, votes and calibrates (see `cross_fit`). Settings left at None follow the encoder's recipe.

    Args:
        encoder: "auto" looks at X: a DataFrame or 2-D array is a table, 3-D or 4-D arrays and image files are images,
            strings are texts. Or name it: "tabular", "image", "text"; with a network: "tabular:paper",
            "image:resnet18"; "huggingface:FOLDER". Or give an `Encoder` with its own settings, or any nn.Module.
        head: "dwac", or "softmax": the same network with a softmax, for comparison.
        kernel: how votes fall with distance: "gaussian", "laplace" or "inverse_quadratic".
        embedding_size: |h|, for each network of the ensemble.
        ensemble_size: how many networks to train side by side. Their embeddings are joined, so a prediction is still
            one vote of training examples. More accurate, and as many times slower. By default 1, or on a GPU as many
            as are known to help.
        penalty: weight of mean ‖h‖² in the loss.
        auxiliary_weight: weight of an auxiliary softmax cross-entropy in the loss. It takes no part in predictions.
        epochs: the maximum number of passes over the training rows.
        batch_size: rows per training step; they vote on one another.
        learning_rate: the peak of the one-cycle schedule.
        weight_decay: AdamW's weight decay.
        patience: how many epochs without a lower validation loss end the training.
        validation_size: share or number of rows for early stopping; 0 for none. By default 10 % of the rows up to 1,000
            rows, then 5 % up to 5,000.
        calibration_size: share or number of rows for conformal prediction. By default the same, but up to 10,000, and
            at least 100 if that is at most 20 % of the rows. With 0 the validation rows serve for both, as in the
            paper; the guarantee of prediction sets is then slightly too optimistic.
        cross_fit: for tables of few rows. Ten small networks train together, each without one of five folds of the
            rows; those that left a row out choose scales, calibrate and judge its label. Every row trains and votes.
            Prediction sets then have the guarantee of cross-conformal prediction, `expected_sets(epsilon).guarantee`.
            "auto": with fewer than 4,000 rows, unless a setting says how to train, such as `epochs`.
        nonconformity: what makes a label fit badly: a low "probability", which gives the smallest prediction sets, or
            low "weights", as in the paper, where credibility also falls on rows unlike any other. "auto": probability.
            `typicality` says how unlike, whatever the nonconformity.
        class_conditional: calibrate each class separately, so that the guarantee holds within each class.
        class_weight: a dict of weights by label, or "balanced". An example of a class with weight 2 counts twice, in
            the loss and in the vote.
        rescale: after training, fit the scale of the embeddings to the validation rows, for calibrated probabilities.
        raw_features: for a table, add its raw numbers to the embedding, with a weight fitted to the validation rows:
            voters are then similar in both. (Not if `embedding_size` is given.) Whether or not that gains anything,
            rows are compared as they are for their typicality. False does neither, and keeps no numbers of rows.
        look_alikes: let the nearest voters count more, by a second, narrower kernel, where validation rows gain by it.
            Representatives (`voters`, `condense`) have none.
        voters: who votes after training: "all" training examples, so many representatives, each with the votes of the
            examples like it, or "auto": all up to 20,000, beyond that as few as validation rows allow. See `condense`.
        mixed_precision: compute the network in bfloat16: True, False, or "auto" (on a GPU, where it helps).
        compiled: replay training steps as a CUDA graph: True, False, or "auto" (on a GPU, where it helps).
        checkpoint: a file that training writes after every epoch, and from which an interrupted fit resumes.
        device: "auto" (a GPU if available), "cpu", "cuda", …
        random_state: an integer makes fits on a CPU repeat exactly, unless other threads use torch's generator.
        verbose: show a progress bar: True, False, or "auto" (in a terminal or notebook).

    Attributes:
        classes_: the labels, sorted.
        history_: a DataFrame with one row per epoch; `history_.attrs["ended"]` says why training ended.
        encoder_: the fitted encoder. model_: the network. references_: who votes.
        validation_ids_, calibration_ids_: which rows were held out.
        private_: whether the model was saved without its training examples; its answers are then private by default.

    >>> X = pd.DataFrame({"x": range(60)}, index=[f"row{i}" for i in range(60)])
    >>> y = ["low" if x < 30 else "high" for x in X["x"]]
    >>> clf = DWACClassifier(epochs=20, random_state=0, device="cpu").fit(X, y)
    >>> clf.predict(X.iloc[[3, 57]])
    array(['low', 'high'], dtype='<U4')
    """

    def __init__(
        self,
        encoder: Any = "auto",
        *,
        head: str = "dwac",
        kernel: str = "gaussian",
        embedding_size: int | None = None,
        ensemble_size: int | None = None,
        penalty: float | None = None,
        auxiliary_weight: float | None = None,
        epochs: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        weight_decay: float | None = None,
        patience: int | None = None,
        validation_size: float | None = None,
        calibration_size: float | None = None,
        cross_fit: bool | str = "auto",
        nonconformity: str = "auto",
        class_conditional: bool = False,
        class_weight: Any = None,
        rescale: bool = True,
        raw_features: bool = True,
        look_alikes: bool = True,
        voters: str | int = "all",
        mixed_precision: bool | str = "auto",
        compiled: bool | str = "auto",
        checkpoint: str | PathLike[str] | None = None,
        device: str = "auto",
        random_state: Any = None,
        verbose: bool | str = "auto",
    ) -> None:
        self.encoder = encoder
        self.head = head
        self.kernel = kernel
        self.embedding_size = embedding_size
        self.ensemble_size = ensemble_size
        self.penalty = penalty
        self.auxiliary_weight = auxiliary_weight
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.patience = patience
        self.validation_size = validation_size
        self.calibration_size = calibration_size
        self.cross_fit = cross_fit
        self.nonconformity = nonconformity
        self.class_conditional = class_conditional
        self.class_weight = class_weight
        self.rescale = rescale
        self.raw_features = raw_features
        self.look_alikes = look_alikes
        self.voters = voters
        self.mixed_precision = mixed_precision
        self.compiled = compiled
        self.checkpoint = checkpoint
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    # Training

    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, ids: Iterable[Hashable] | None = None) -> Self:
        """Train on X and y.

        Ctrl-C ends training early and keeps the best model so far; `history_.attrs["ended"]` is then "interrupted". To
        a caller such as `cross_val_score` this is a normal fit.

        Args:
            X: a table, images, texts, tensors or a Dataset; see `encoder`.
            y: one hashable label per row. Not needed for a Dataset of (x, y) items.
            sample_weight: (n,) weights of the rows in the loss. Votes, validation and calibration ignore them.
            ids: unique names of the rows; by default the index of a DataFrame or Series, else 0 … n-1.
        """
        self._check_settings()
        if isinstance(X, Dataset):
            X, labels = gathered(X)
            y = labels if y is None else y
        encoder = choose(self.encoder, X)
        X = _rows(X, encoder)
        features = _features(X, encoder)
        n = count(X)
        codes, classes = encode_labels(y, n)
        names = row_ids(X, ids, n)
        weights = row_weights(sample_weight, n)
        rng = check_random_state(self.random_state)
        crossed = cross_fitted(self.get_params(deep=False), encoder, n, _width(X) if encoder.kind == "tabular" else 0)
        if crossed:
            encoder, parts = TabularEncoder(network="wide"), everybody(n)
        else:
            parts = split(codes, self.validation_size, self.calibration_size, rng)
        by_class = class_weights(self.class_weight, codes[parts.training], classes)
        if not (weights[parts.training] > 0).any():
            raise InputError(
                "sample_weight must be positive for at least one training row; all rows with positive weights are in "
                "validation or calibration"
            )
        seed = int(rng.randint(2**31 - 1))
        inputs = self._encoded(encoder, X, codes, parts)
        device = device_of(self.device)
        with torch.random.fork_rng(devices=range(torch.cuda.device_count()) if device.type == "cuda" else []):
            torch.manual_seed(seed)
            ensemble_size = self.ensemble_size or (encoder.recipe.ensemble_size if device.type == "cuda" else 1)
            ensemble_size = FOLDS * VIEWS if crossed else ensemble_size
            model = self._new_model(encoder, len(classes), ensemble_size).to(device)
            folds = folds_of(torch.as_tensor(codes), seed=seed)
            if crossed:
                history = self._cross_fit(model, inputs, codes, weights, by_class, folds, seed)
            else:
                history = self._train(model, encoder, inputs, codes, weights, by_class, parts, seed)
        # Only now, so that a fit that fails or is interrupted outside of training leaves the estimator unchanged.
        for name in ("n_features_in_", "feature_names_in_"):
            if hasattr(self, name):
                delattr(self, name)
        for name, value in features.items():
            setattr(self, name, value)
        self.classes_, self.encoder_, self.model_, self.history_ = classes, encoder, model, history
        self._fitted = self.get_params(deep=False)
        self.examples_, self.private_ = Examples(), False
        if isinstance(model, WeightedAverage):
            voter_ids = names[parts.training]
            model.references = model.references.replaced(ids=voter_ids.tolist(), class_weights=by_class)
            self._keep(voter_ids, take(X, parts.training))
        self._novelty = self._new_novelty(tuple(part[parts.training] for part in inputs))
        held = parts.calibration if len(parts.calibration) else parts.validation
        votes = isinstance(model, WeightedAverage)
        validation = parts.validation if votes else parts.validation[:0]
        self._validation_rows = self._held_out(inputs, codes, names, validation)
        self.validation_ids_ = names[parts.validation]
        self._folds = Folds(names, folds.numpy(), ensemble_size) if crossed else None
        if isinstance(encoder, TabularEncoder) and crossed:
            inputs, held = encoder.transform_left_out(X), parts.training
        self._calibrate(self._held_out(inputs, codes, names, held))
        if votes:
            self._novelty = self._fitted_novelty()
        self._agreement: Agreement | None = None  # of a model that was saved without those it represents
        self._agreed: tuple[Any, HeldOutRows, Agreement | None] | None = None
        self._described: tuple[list[str | None] | None, Any] | None = None
        n = len(self._validation_rows.y)
        if isinstance(model, WeightedAverage) and wanted(self.voters, len(model.references), n):
            self._represent(None if self.voters == "auto" else int(self.voters), strict=False)
        return self

    def _held_out(
        self, inputs: Inputs, codes: NDArray[np.int64], names: pd.Index[Any], rows: NDArray[np.int64]
    ) -> HeldOutRows:
        return self._rows_of(tuple(part[rows] for part in inputs), codes[rows], names[rows])

    def _rows_of(self, inputs: Inputs, codes: NDArray[np.int64], names: pd.Index[Any]) -> HeldOutRows:
        return HeldOutRows.of(self.model_, inputs, codes, names, compared=self._novelty.known is not None)

    def _new_novelty(self, inputs: Inputs) -> Novelty:
        """How novelty is measured: of a table, also by what its voters, given as inputs, are compared by."""
        model = self.model_
        if not isinstance(model, WeightedAverage) or not self.raw_features or model.n_compared_features == 0:
            return Novelty(directions=self.encoder_.kind != "tabular")
        return Novelty(Known(batches.compared(model, inputs), model.references.index_of_ids))

    def _fitted_novelty(self) -> Novelty:
        """Novelty that knows what is usual among rows that do not vote: validation rows, or those of a fold."""
        if self._folds is None:
            return self._novelty.fit(self.references_, self._validation_rows)
        rows, voters = self._calibration_rows, self._folds.sets(self.references_)[0]
        return self._novelty.fit(voters, rows.of_fold(self._folds, 0))

    def _check_settings(self) -> None:
        check_settings(self.get_params(deep=False))

    def _encoded(self, encoder: Encoder, X: Any, codes: NDArray[np.int64], parts: Parts) -> Inputs:
        """Fit the encoder on the training rows alone, and encode all."""
        try:
            encoder.fit(take(X, parts.training), codes[parts.training])
        except InputError:
            encoder.fit(X)  # names the row as the caller counts it
            raise
        return encoder.transform(X)

    def _new_model(
        self,
        encoder: Encoder,
        n_classes: int,
        ensemble_size: int,
        size: int | None = None,
        n_features: int | None = None,
    ) -> training.Model:
        """A new network; with n_features given, one of a stored model's size, to be filled with its weights."""
        size = size or self.embedding_size or encoder.recipe.embedding_size
        network = backbone(encoder, ensemble_size)
        if self.head == "softmax":
            return SoftmaxTwin(network, n_classes, size, n_features=n_features)
        terms = {
            name: getattr(encoder.recipe, name) if getattr(self, name) is None else getattr(self, name)
            for name in ("penalty", "auxiliary_weight")
        }
        if n_features is not None:
            terms["auxiliary_weight"] = 0.0  # no prediction needs the auxiliary head, and none is stored
        return WeightedAverage(network, n_classes, size, kernel=self.kernel, n_features=n_features, **terms)

    def _train(
        self,
        model: training.Model,
        encoder: Encoder,
        inputs: Inputs,
        codes: NDArray[np.int64],
        weights: Floats,
        by_class: Floats | None,
        parts: Parts,
        seed: int,
    ) -> pd.DataFrame:
        recipe, cuda = encoder.recipe, model.device.type == "cuda"
        settings = {
            name: getattr(recipe, name) if getattr(self, name) is None else getattr(self, name)
            for name in ("epochs", "batch_size", "learning_rate", "weight_decay", "patience")
        }
        settings["beta2"] = recipe.beta2
        for name in ("mixed_precision", "compiled"):
            asked = getattr(self, name)
            settings[name] = cuda and getattr(recipe, name) if asked == "auto" else asked
        weights = weights if by_class is None else weights * by_class[codes]
        y = torch.as_tensor(codes)
        rows, held = torch.as_tensor(parts.training), torch.as_tensor(parts.validation)
        validation = (tuple(part[held] for part in inputs), y[held]) if len(held) else None
        title = {"dwac": "training", "softmax": "training softmax"}[self.head]
        with progress_bar(title, settings["epochs"], show=self.verbose) as watch:
            return training.train(
                model,
                tuple(part[rows] for part in inputs),
                y[rows],
                validation=validation,
                weights=None if (weights == 1).all() else torch.as_tensor(weights)[rows],
                class_weights=None if by_class is None else by_class.tolist(),
                augment=encoder.augment,
                rescale=self.rescale,
                raw_features=self.raw_features and self.embedding_size is None,
                look_alikes=self.look_alikes,
                checkpoint=None if self.checkpoint is None else Path(self.checkpoint),
                seed=seed,
                **settings,
                **watch,
            )

    def _cross_fit(
        self,
        model: training.Model,
        inputs: Inputs,
        codes: NDArray[np.int64],
        weights: Floats,
        by_class: Floats | None,
        folds: torch.Tensor,
        seed: int,
    ) -> pd.DataFrame:
        weights = weights if by_class is None else weights * by_class[codes]
        with progress_bar("training", 10, show=self.verbose) as watch:
            return training.cross_fit(
                cast(WeightedAverage, model),
                inputs,
                torch.as_tensor(codes),
                folds,
                weights=None if (weights == 1).all() else torch.as_tensor(weights),
                class_weights=None if by_class is None else by_class.tolist(),
                rescale=self.rescale,
                base_votes=self.nonconformity != "weights",
                seed=seed,
                **watch,
            )

    # Predicting

    def _read(self, X: Any) -> tuple[Any, Inputs]:
        """The rows of X, and the tensors that the network takes; an error names a column or row that does not fit."""
        check_is_fitted(self, "model_")
        X = self._checked(X)
        return X, self.encoder_.transform(X)

    def _checked(self, X: Any) -> Any:
        """The rows of X, if it has the columns of fit."""
        X = _rows(X, self.encoder_)
        if _has_columns(X, self.encoder_):
            validate_data(self, X, reset=False, skip_check_array=True)
        return X

    def _sift(self, X: Any) -> Sifted:
        """The rows that can be read, and why the others cannot; an error if none can."""
        check_is_fitted(self, "model_")
        return sift(self.encoder_, X, self._checked)

    def votes(self, X: Any) -> tuple[Floats, Reasons]:
        """(log_class_weights (n, K), reasons (n,)): a reason says why a row could not be read, and is None for others.

        A row that could not be read, such as an empty text or a damaged file, gets the log of each class's share of the
        references, times the class weight.
        """
        return self._asked(X)[:2]

    def evidence(self, X: Any) -> Evidence:
        """The same, and what p-values and typicality are computed from; an unreadable row has novelty inf."""
        return self._asked(X, novelty=isinstance(self.model_, WeightedAverage), folds=True)

    def _asked(self, X: Any, *, novelty: bool = False, folds: bool = False) -> Evidence:
        rows = self._sift(X)
        h = torch.zeros(0, 1)
        if rows.inputs:
            rows, h = self._embedded(rows)
        n, shares, crossed = len(rows.reasons), self._log_shares(), self._folds is not None
        votes = np.tile(shares, (n, 1))
        by_fold = np.tile(shares, (n, FOLDS, 1)) if folds and crossed else None
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
        # A class without voters has -inf; a softmax has a number for every class.
        if not np.isfinite(votes.max(axis=1) if isinstance(self.model_, WeightedAverage) else votes).all():
            raise NonFiniteError("the network gives no finite votes for some rows")
        return votes

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

    def novelty_of_voters(self, references: ReferenceSet, places: NDArray[np.int64]) -> Floats:
        """The novelty of voters, by position among the references, compared with the others; as in `evidence`."""
        if self._folds is None:
            return self._novelty.of_voters(references, places)
        names = references.index_of_ids[places]
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
        if self._folds is None or self.references_.weighted:
            return None
        return self._folds.out_of_fold(self.references_)

    def _embedded(self, rows: Sifted) -> tuple[Sifted, torch.Tensor]:
        """h of the rows that can be read; a row whose h is not finite counts as unreadable."""
        h = batches.embed(self.model_, rows.inputs)
        finite = h.isfinite().all(dim=1)
        if not finite.all():
            rows = rows.only(finite.cpu().numpy(), "the network gives it no finite embedding")
        return rows, h[finite]

    def _log_shares(self) -> Floats:
        """(K,), finite: the log of each class's share of the vote if all voters were equally near.

        A softmax has no voters; its shares are those of the calibration rows, plus one row per class.
        """
        if isinstance(self.model_, WeightedAverage):
            references = self.references_
            voters = np.bincount(references.labels.cpu().numpy(), references.weights, references.n_classes)
            counts: NDArray[Any] = voters * references.class_weights
        else:
            counts = np.bincount(self.calibration_y_[self.calibration_y_ >= 0], minlength=len(self.classes_)) + 1.0
        return np.asarray(np.log(np.maximum(counts / counts.sum(), np.finfo(np.float64).tiny)))

    def unreadable(self, X: Any) -> dict[int, str]:
        """The numbers of the rows of X that cannot be read, and why."""
        rows = self._sift(X)
        if rows.inputs:
            rows = self._embedded(rows)[0]
        return {row: why for row, why in enumerate(rows.reasons) if why is not None}

    def log_class_weights(self, X: Any) -> Floats:
        """log Σ_i I(y_i=k) w(h, h_i), the votes for each class, (n, K); for a softmax, its logits.

        Rows that cannot be read, such as empty texts, get the logs of the class shares, with a warning. `votes` and
        `conformal` flag them.
        """
        votes, reasons = self.votes(X)
        warn_of(reasons, stacklevel=4)
        return votes

    def predict_proba(self, X: Any) -> Floats:
        """P(y=k given x), (n, K), in the order of `classes_`."""
        return -nonconformity(self.log_class_weights(X), "probability")

    def predict(self, X: Any) -> NDArray[Any]:
        """The label with the most votes, (n,)."""
        votes = self.log_class_weights(X)
        return np.asarray(self.classes_[votes.argmax(axis=1)])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """The accuracy. Labels that training did not have count as wrong."""
        predicted = self.log_class_weights(X).argmax(axis=1)
        truth = encode_known(y, len(predicted), self.classes_, strict=False)
        return float(np.average(predicted == truth, weights=row_weights(sample_weight, len(truth))))

    def embed(self, X: Any) -> NDArray[np.float32]:
        """(n, d): the embeddings that vote: of all networks of the ensemble, with raw features where these count."""
        return batches.embed(self.model_, self._read(X)[1]).cpu().numpy()

    def embed_with_novelty(self, X: Any) -> tuple[NDArray[np.float32], Floats]:
        """The embeddings, (n, d), and the novelty of the rows, as in `evidence`."""
        inputs = self._read(X)[1]
        h = batches.embed(self.model_, inputs)
        return h.cpu().numpy(), self._novelty_of(h, inputs)

    def conformal(self, X: Any) -> ConformalPrediction:
        """p-values, prediction sets, confidence, credibility and typicality. Rows that cannot be read are flagged."""
        return self.conformal_of(*self.evidence(X))

    def conformal_of(
        self,
        log_class_weights: Any,
        reasons: Reasons | None = None,
        novelty: Floats | None = None,
        fold_votes: Floats | None = None,
        *,
        private: bool = False,
    ) -> ConformalPrediction:
        """The same from the result of `evidence`, without computing it again; no typicality without novelty.

        private: round as `dwac.explain.privacy` does.
        """
        found: ConformalPrediction
        if private:
            found = privacy.conformal(self._calibration(), log_class_weights, self._score, self.classes_, fold_votes)
        else:
            by_fold = None if fold_votes is None else nonconformity(fold_votes, self._score)
            scores = nonconformity(log_class_weights, self._score)
            found = self._calibration().predict(scores, classes=self.classes_, fold_scores=by_fold)
        if novelty is not None:
            found = replace(found, typicality=self._typicality(novelty, private=private))
        return found if reasons is None else found.without(~readable(reasons))

    def _typicality(self, novelty: Floats, *, private: bool) -> Floats:
        """(n,): the typicality of rows of a novelty (n,), or by fold (n, F)."""
        if private:
            novelty = privacy.novelty(novelty)
        folds = None if self._folds is None else self._folds.numbers(self.calibration_ids_)
        found = typicality(self._calibration_novelty(), novelty, tolerance=ROUNDING, folds=folds)
        return privacy.p_values(found) if private else found

    def predict_set(self, X: Any, epsilon: float = 0.05) -> NDArray[np.bool_]:
        """(n, K): prediction sets, which miss the true label with probability at most `epsilon`.

        This holds on average over draws of the data, for new rows like those of fit, if calibration has its own rows.
        (A cross-fitted model has none: what is certain there is `expected_sets(epsilon).guarantee`.) A row whose label
        `fit` never saw is a miss; if such rows are more frequent than ε, no sets can do better.
        `expected_sets` says what to expect.
        """
        epsilon = checks.epsilon(epsilon)
        return self.conformal_of(*self._asked(X, folds=True)).label_sets(epsilon)

    def explain(self, X: Any, k: int = 5, *, private: bool | None = None) -> list[Explanation]:
        """Why each example gets its label: the k nearest training examples, their votes, and how few decide it.

        private: give labels and rounded shares only; no training id, record, distance or weight. By default for a model
        that was saved without its training examples. See `dwac.explain.privacy`.
        """
        self.references_  # noqa: B018 - raises an error for a softmax, which has no votes
        k = checks.positive_int(k, "k")
        rows = self._sift(X)
        found: Iterator[Explanation] = iter([])
        if rows.inputs:
            rows, h = self._embedded(rows)
            shown = self._shown(rows.X) if rows.inputs else []
            if rows.inputs:
                novelty = self._novelty_of(h, rows.inputs)
                found = iter(self.explain_of(h, k, private=private, shown=shown, X=rows.X, novelty=novelty))
        prior = partial(
            unreadable,
            shares=np.exp(self._log_shares()),
            classes=self._names,
            n_references=len(self.references_),
            n_examples=round(float(self.references_.sizes.sum())),
            calibrated=len(self.calibration_y_) > 0,
            private=self.private_ if private is None else private,
        )
        return [next(found) if why is None else prior(why) for why in rows.reasons]

    def _shown(self, X: Any) -> list[dict[str, Any]]:
        """Each row as a person would see it, for `explain_of`."""
        attention, frame = self.encoder_.attention(self.model_.backbone, X), self.encoder_.records(X)
        records: list[dict[Any, Any]] = frame.to_dict("records") or [{}] * len(frame)  # pandas 2: none without columns
        return [
            {"record": record or None} | ({} if attention is None else {"attention": attention[row]})
            for row, record in enumerate(records)
        ]

    @property
    def _names(self) -> list[Any]:
        """The classes as Python values; tolist would turn dates into integers."""
        return list(self.classes_) if self.classes_.dtype.kind in "mM" else self.classes_.tolist()

    def explain_of(
        self,
        h: Any,
        k: int = 5,
        *,
        private: bool | None = None,
        shown: Any = None,
        references: ReferenceSet | None = None,
        descriptions: Sequence[str | None] | None = None,
        X: Any = None,
        novelty: Floats | None = None,
        fold_votes: Floats | None = None,
    ) -> list[Explanation]:
        """The same from embeddings (n, d) that are already computed.

        shown: each example as a person would see it, as for `dwac.explain.explain`. references: who votes, and
        descriptions of their groups; by default all. X: the rows, to which those members of a group that look like them
        are shown. novelty: as in `evidence`, for their typicality. fold_votes: by default computed from h.
        """
        private = self.private_ if private is None else private
        calibrated = len(self.calibration_y_) > 0
        if calibrated and fold_votes is None:
            fold_votes = self.fold_votes(h, references=references)
        return explain(
            self.references_ if references is None else references,
            h,
            k=k,
            calibration=self._calibration() if calibrated else None,
            nonconformity_kind=self._score,
            fold_votes=fold_votes,
            typicality=self._typicality(novelty, private=private) if novelty is not None and calibrated else None,
            classes=self._names,
            records=self.examples_,
            private=private,
            shown=shown,
            alike=partial(self._differences, X) if X is not None and self._comparable and not private else None,
            descriptions=None if private else self.descriptions_ if references is None else descriptions,
            agreement=self.agreement_,
        )

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

    @property
    def references_(self) -> ReferenceSet:
        """The training examples that vote: their embeddings, labels (as codes into `classes_`) and ids."""
        check_is_fitted(self, "model_")
        if not isinstance(self.model_, WeightedAverage):
            raise HeadError("a softmax has no voting examples; fit with head='dwac' to have them")
        return self.model_.references

    # Calibration

    def _calibrate(self, rows: HeldOutRows) -> None:
        self._calibration_rows = rows
        self._calibrated: tuple[Any, Calibration, Any] | None = None
        self._measured: tuple[Any, Novelty, Floats] | None = None

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

    def _calibration(self) -> Calibration:
        """The calibration against the references as they are now; computed again only if those changed."""
        model = self.model_
        index = model.references.index if isinstance(model, WeightedAverage) else None
        state = (id(index), self._score, self.class_conditional)
        if self._calibrated is None or self._calibrated[0] != state:
            found = self._calibration_rows.calibration(
                model, self._score, class_conditional=self.class_conditional, folds=self._folds
            )
            self._calibrated = (state, found, index)  # holding the index keeps its id unique
        return self._calibrated[1]

    def _calibration_novelty(self) -> Floats:
        """(n,): the novelty of the calibration rows against the references as they are now."""
        references, known = self.references_, self._measured
        if known is None or known[0] is not references.index or known[1] is not self._novelty:
            rows = self._calibration_rows
            scores = self._novelty_scores(rows.h, rows.z)
            scores = scores if self._folds is None else self._folds.own(scores, rows.ids)
            known = references.index, self._novelty, scores
            self._measured = known
        return known[2]

    def expected_sets(self, epsilon: float = 0.05) -> ExpectedSets:
        """What prediction sets at `epsilon` will be like: their size, and how far coverage may be from 1 - ε by chance.

        With few calibration rows, sets are large and coverage is uncertain.
        """
        return self._calibration().expected_sets(epsilon)

    @property
    def _score(self) -> str:
        # Differs from the paper, whose sets are by weights: which labels fit is one question, whether anything like the
        # row is known is another (typicality).
        return "probability" if self.nonconformity == "auto" else self.nonconformity

    def recalibrate(self, X: Any, y: Any, *, ids: Iterable[Hashable] | None = None) -> Self:
        """Calibrate with these rows instead of those that `fit` set aside. They must not be training rows.

        Do not drop rows whose labels training did not have: they count as misses here, as they will among new rows.

        ids: as for `add_references`.
        """
        X, inputs = self._read(X)
        n = count(X)
        codes, names = encode_known(y, n, self.classes_, strict=False), self._new_ids(X, ids, n)
        shared = names[names.isin(self._voter_ids())]
        if len(shared):
            raise IdError(
                f"calibration rows must not be training rows; {shared.tolist()[0]!r} votes; give rows that were not "
                "trained on"
            )
        self._folds = None  # these rows took no part in training
        self._calibrate(self._rows_of(inputs, codes, names))
        return self

    def _voter_ids(self) -> pd.Index[Any]:
        """Of all who vote, or are represented in the vote."""
        ids: Any = []
        if isinstance(self.model_, WeightedAverage):
            ids = (self.references_.members or self.references_).ids
        index: pd.Index[Any] = pd.Index(ids, tupleize_cols=False)
        return index

    def _new_ids(self, X: Any, ids: Iterable[Hashable] | None, n: int) -> pd.Index[Any]:
        """Ids of new rows: those given, the index of a frame, or numbers not used before."""
        if ids is not None or isinstance(X, pd.DataFrame | pd.Series):
            return row_ids(X, ids, n)
        held = [*self._voter_ids(), *self.calibration_ids_, *self.validation_ids_]
        first = 1 + max((int(i) for i in held if isinstance(i, int | np.integer)), default=-1)
        return pd.RangeIndex(first, first + n)

    # Few voters

    def condense(self, size: int | None = None) -> Self:
        """The same classifier with few voters: real examples, each with the votes of those like it.

        They explain a prediction in few lines, and predict in a fraction of the time. Calibration follows, so
        prediction sets keep their guarantee. `agreement_` says how often the label stays the same. Saved, the model
        holds the representatives' records alone; until then `forget` and `add_references` act on everybody: when a
        representative is forgotten, another takes its place.

        size: how many vote; by default as few as validation rows allow: 99.5 % keep their label, and log-loss grows by
        at most 0.5 %.
        """
        self.references_  # noqa: B018 - raises an error for a softmax, which has no votes
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

        strict: raise an error if no number keeps labels and probabilities; otherwise all vote.
        """
        model, references = copy(cast(WeightedAverage, self.model_)), self.references_
        rows = self._validation_rows
        if size is None and len(rows.y) == 0 and self._folds is None:
            raise InputError(
                "choosing the number of voters needs validation rows, and the model has none; give a number: size=…"
            )
        condenser = Condenser(references, rows.h, rows.y)
        few = condenser.fewest() if size is None else condenser.represented(size)
        if few is None:
            if strict:
                raise InputError(
                    f"no number of voters up to {max([0, *condenser.sizes()]):,} keeps 99.5 % of labels and the "
                    "log-loss; all vote as before; give a number to have so many anyway: size=… (--size)"
                )
            return
        model.references = few
        self._calibrate(self._calibration_rows)
        self.model_, self._described, self._agreed = model, None, None
        self._novelty = self._fitted_novelty()

    @property
    def _alone(self) -> bool:
        """Whether few vote for others who are not there."""
        return self.references_.weighted and self.references_.members is None

    @property
    def agreement_(self) -> Agreement | None:
        """How often few voters give the label that all would, on the calibration rows; None where all vote."""
        if not isinstance(self.model_, WeightedAverage) or not self.references_.weighted:
            return None
        references, rows = self.references_, self._calibration_rows
        if references.members is None:
            return self._agreement
        known = self._agreed
        if known is None or known[0] is not references.index or known[1] is not rows:
            known = references.index, rows, agreement_on(references, rows.h, self._judge_rows)
        self._agreed = known
        return known[2]

    def _judge_rows(self, references: ReferenceSet, h: torch.Tensor) -> NDArray[np.int64]:
        """(n,): the labels that references give to the calibration rows, whose h (n, d) these are, out of sample."""
        if self._folds is None:
            return np.asarray(references.log_class_weights(h).argmax(dim=1).cpu().numpy())
        return np.asarray(self._folds.judged(references, h, self.calibration_ids_).argmax(axis=1))

    @property
    def descriptions_(self) -> list[str | None] | None:
        """What sets each group of voters apart, in words; None where there is nothing to say."""
        groups = self.references_.groups
        if self._described is None or (self._described[1] is not groups and self._described[0] is not None):
            self._described = self._describe(), groups
        return self._described[0]

    def _describe(self) -> list[str | None] | None:
        if self.encoder_.kind not in ("tabular", "text", "huggingface") or self._alone:
            return None  # who represents a group does not tell what all its members have in common
        everybody = self.references_.members or self.references_
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
        if not isinstance(getattr(self, "model_", None), WeightedAverage) or not self.references_.weighted:
            return settings
        few, known = self.references_, self.agreement_
        voters = f"{len(few):,} representatives vote for {round(float(few.sizes.sum())):,} training examples"
        return f"{settings}\n# {voters}" + ("" if known is None else f"; the label of all on {known}")

    # Editing who votes, without training

    def add_references(self, X: Any, y: Any, *, ids: Iterable[Hashable] | None = None) -> Self:
        """Let more examples vote, without training. Calibration follows.

        ids: names that are new to the model; by default the index of a DataFrame or Series, else new numbers.
        """
        references = self.references_
        X, inputs = self._read(X)
        n = count(X)
        codes, names = encode_known(y, n, self.classes_), self._new_ids(X, ids, n)
        shared = names[names.isin(self.calibration_ids_)]
        if len(shared) and self._folds is None:  # cross-fitted rows do both, and ids that vote are refused below
            raise IdError(
                f"{shared.tolist()[0]!r} is a calibration row; if it voted too, prediction sets would lose their "
                "guarantee; forget it first, or give the rows other ids"
            )
        references.add(batches.embed(self.model_, inputs), codes, names.tolist())
        self._agreement = None
        if self._novelty.known is not None:
            known = self._novelty.known.joined(batches.compared(self.model_, inputs), names)
            self._novelty = replace(self._novelty, known=known)
        self._keep(names, X)
        return self

    def _keep(self, ids: pd.Index[Any], X: Any) -> None:
        """Keep examples for explanations: as given, except that files and pictures are kept as pixels."""
        if self.encoder_.kind == "image" and isinstance(X, list | pd.Series):
            self.examples_.add(ids, self.encoder_.records(X))
        else:
            self.examples_.add(ids, X, self.encoder_.records)

    def forget(self, ids: Iterable[Hashable]) -> Self:
        """Remove examples by id, wherever they are: among the voters or in calibration, which follows.

        The network is not trained again: its weights hold no example, but all of them shaped it.
        """
        check_is_fitted(self, "model_")
        if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
            raise IdError(f"ids must be a list of ids; got {ids!r}; write [{ids!r}] for a single one")
        names = pd.Index(list(ids), tupleize_cols=False)
        voters = self._voter_ids()
        known = names.isin(voters) | names.isin(self.calibration_ids_) | names.isin(self.validation_ids_)
        alone = isinstance(self.model_, WeightedAverage) and self._alone
        if not known.all():
            unknown = (
                "it was condensed and saved without those who are represented: forget them in the model that it came "
                "from, condense and save that again"
            )
            raise IdError(
                f"ids must be of examples that the model holds; {names[~known].tolist()[0]!r} is not; "
                f"{f'{unknown}; ' if alone else ''}nothing was forgotten"
            )
        if alone and names.isin(voters).any():
            self._warn_of_votes(names[names.isin(voters)].tolist())
        if names.isin(voters).any():
            self.references_.remove(names[names.isin(voters)].tolist())
            self._agreement = None  # of a model saved without those it represents, before it was edited
            self.examples_.remove(names.tolist())
        if self._novelty.known is not None:
            self._novelty = replace(self._novelty, known=self._novelty.known.without(names))
        if self._folds is not None:
            self._folds = self._folds.without(names)
        self.validation_ids_ = self.validation_ids_[~self.validation_ids_.isin(names)]
        self._validation_rows = self._validation_rows.without(names)
        self._calibrate(self._calibration_rows.without(names))
        return self

    def _warn_of_votes(self, ids: list[Any]) -> None:
        """Say that representatives go with the votes of others, who are not there to take their place."""
        votes = round(float(self.references_.sizes[self.references_.positions(ids)].sum()))
        if votes > len(ids):
            warnings.warn(
                f"{len(ids):,} of the {len(self.references_):,} representatives are forgotten, and with them the votes "
                f"of {votes:,} training examples: nobody can take their place, as the model was saved without the "
                "others; to forget only these, use the model that it came from, or save with include_members=True",
                UserWarning,
                stacklevel=3,
            )

    # In a browser

    def explore(self, X: Any = None, y: Any = None, **options: Any) -> Any:
        """Open a local page to see and question every prediction: `dwac.explore(self, X, y, …)`."""
        from dwac import explore  # late: the explorer knows the classifier, not the other way round

        return explore(self, X, y, **options)

    # On disk

    def save(self, path: str | PathLike[str], *, include_examples: bool = True, include_members: bool = False) -> Path:
        """Write the model to a folder: settings as JSON, numbers as safetensors, training examples as Parquet.

        include_examples: False saves no training record and makes the saved model private: it only shows labels and
        rounded shares. Embeddings, labels and ids of the voters are saved, so examples can still be forgotten by id.
        (Where raw features vote, the embeddings of a table hold its numbers.) Typicality is then measured by embeddings
        alone, and may differ; nothing else does.

        include_members: of a condensed model, save also those who are represented, so that each can still be forgotten.
        By default the folder holds the representatives alone.
        """
        check_is_fitted(self, "model_")
        config, tensors, examples = persistence.pack(
            self, include_examples=include_examples, include_members=include_members
        )
        return storage.write_model(path, config, tensors, examples)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.input_tags.string = True
        tags.input_tags.categorical = True
        return tags


def load(path: str | PathLike[str], *, device: str = "auto", module: torch.nn.Module | None = None) -> DWACClassifier:
    """The model that `DWACClassifier.save` wrote to a folder. Nothing that the folder holds is ever executed.

    module: the network, where the model was trained with one of your own.
    """
    stored = storage.read_model(path, most_examples=persistence.most_examples)
    with persistence.reading(path):
        encoder = persistence.encoder_of(stored.config)
        if isinstance(encoder, ModuleEncoder):
            encoder.module = module
        clf = DWACClassifier(**persistence.settings_of(stored.config, encoder))
        clf.device = device
        clf._fitted = clf.get_params(deep=False)
        model = clf._new_model(encoder, *persistence.sizes_of(stored, module))
        persistence.unpack(clf, stored, encoder, model, device_of(device))
    return clf


def _rows(X: Any, encoder: Encoder) -> Any:
    """X in the form that everything below works on."""
    if isinstance(X, Dataset):
        X = gathered(X)[0]
    return rows_of(list(X) if isinstance(X, tuple) and encoder.kind != "module" else X)


def _width(X: Any) -> int:
    """The number of columns of a table."""
    return int(X.shape[1]) if getattr(X, "ndim", 0) == 2 else len(X[0]) if isinstance(X, list) and X else 0


def _has_columns(X: Any, encoder: Encoder) -> bool:
    """Whether X has columns that must be the same at predict time."""
    return (encoder.kind == "tabular" and getattr(X, "ndim", 2) == 2) or (
        encoder.kind == "module" and isinstance(X, pd.DataFrame)
    )


def _features(X: Any, encoder: Encoder) -> dict[str, Any]:
    """What scikit-learn keeps of the columns, found on another estimator: this one may already be fitted."""
    if not _has_columns(X, encoder):
        return {}
    probe = DWACClassifier()
    try:
        validate_data(probe, X, reset=True, skip_check_array=True)
    except TypeError as error:  # column names of several types
        raise InputError(
            f"the columns of X must be named by strings alone, or by whole numbers alone: {error}"
        ) from None
    return {name: value for name, value in vars(probe).items() if name in ("n_features_in_", "feature_names_in_")}
