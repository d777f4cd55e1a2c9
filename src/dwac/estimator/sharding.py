"""Exact deletion: each network of a sharded model sees a known part of the rows, and can be trained again alone.

clf = DWACClassifier(shards=4, random_state=0).fit(X, y)
clf.forget(["customer-7"], exact=True)        # as if the row had never been there, bit for bit

`fit` and exact `forget` are one computation: networks, each from the rows of its shard alone, and then all the rest
from the networks and the rows that there are. See docs/decisions/0026-exact-deletion.md.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple, Self, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from dwac._checks import warn
from dwac.encoders import Encoder, choose
from dwac.encoders.sharded import PLAIN, fresh, joined, plain_rows
from dwac.errors import IdError, InputError, LabelError
from dwac.estimator.base import rows_for
from dwac.estimator.certificate import Certificate, Retrained, fingerprint, hashed, weights_sha256
from dwac.estimator.fitting import DWACEstimator, grouped
from dwac.estimator.preparation import Parts, count, row_ids, row_weights, take
from dwac.estimator.settings import device_of
from dwac.estimator.shards import SHARE, TRAINING, Rows, Shards, as_stored, deal, require_rows
from dwac.estimator.targets import CLASSES, LABELS, NUMBERS, ORDERED, Target, classes, numbers, several_labels
from dwac.nn.batches import batches_of
from dwac.nn.ranks import shared
from dwac.nn.shards import Member
from dwac.nn.shards import Shards as Network
from dwac.training import rescale
from dwac.training.repeatable import repeatable
from dwac.training.threads import few_threads

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_JUDGES = 400  # validation rows that choose what all networks share


class Trained(NamedTuple):
    """What was learned from one shard alone."""

    encoder: Encoder
    member: Member
    history: pd.DataFrame


class ShardedEstimator(DWACEstimator):
    """An estimator that can forget rows as if it had never seen them."""

    shards: int | None

    def _fit_shared(
        self,
        X: Any,
        y: Any,
        sample_weight: Any,
        ids: Iterable[Hashable] | None,
        within: Iterable[Hashable] | None,
        groups: Iterable[Hashable] | None,
    ) -> Self:
        if self.shards is None:
            return super()._fit_shared(X, y, sample_weight, ids, within, groups)
        self._check_settings()
        encoder = self._suited(self._shardable(X))
        X = rows_for(X, encoder)
        features, n = self._features(X, encoder), count(X)
        reading, names = self._read_target(y, n), row_ids(X, ids, n)
        within_of = None if within is None else grouped(within, names, "within")
        row_weights(sample_weight, n)  # an error if they are none
        weights = np.ones(n) if sample_weight is None else np.full(n, 1.0) * np.asarray(sample_weight, np.float64)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        shares = (SHARE if size is None else float(size) for size in (self.validation_size, self.calibration_size))
        dealt = names  # or their groups, which stay together
        if groups is not None:
            dealt = pd.Index(grouped(groups, names, "groups").tolist(), tupleize_cols=False)
        shard, role = deal(dealt, seed, self.shards, *shares)
        target = _numbers_apart(lambda: reading.target(np.flatnonzero(role == TRAINING)))
        codes = reading.strata if target.kind in (CLASSES, ORDERED) else np.zeros(n, dtype=np.int64)
        stored = as_stored(plain_rows(encoder, X))
        rows = Rows(stored, names, codes, reading.exact, weights, shard, role).at(np.argsort(role, kind="stable"))
        threads, device = torch.get_num_threads(), device_of(self.device).type
        self._sharded(Shards(self.shards, seed, threads, device, rows), encoder, target, features, within_of, {})
        if groups is not None:
            self._n_groups = dealt[names.isin(self.calibration_ids_)].nunique()
        return self

    def _shardable(self, X: Any) -> Encoder:
        """The encoder, if it can be fitted on parts of the rows."""
        if shared() is not None:
            raise InputError("networks of shards are each trained alone; with shards, use a single process")
        encoder = choose(self.encoder, X)
        if encoder.kind not in PLAIN:
            raise InputError(
                f"shards are for tables, texts and images with networks of dwac's own; got {encoder.kind} data; a "
                "network of yours may have learned from these rows before"
            )
        return encoder

    # From rows to a model

    def _sharded(
        self,
        shards: Shards,
        encoder: Encoder,
        target: Target,
        features: dict[str, Any],
        within: pd.Series[Any] | None,
        trained: dict[int, Trained],
    ) -> None:
        """Take the model of these rows, given what was learned from some shards; the others are trained."""
        rows, device = cast(Rows, shards.rows), device_of(self.device)
        require_rows(rows, shards.n)
        with repeatable(device, shards.threads):
            every = [
                trained[s] if s in trained else self._train_member(shards, s, encoder, target, device)
                for s in range(shards.n)
            ]
            forked = range(torch.cuda.device_count()) if device.type == "cuda" else []
            with torch.random.fork_rng(devices=forked), few_threads(every[0].encoder.recipe.threads):
                self._join_members(every, rows, encoder, target, features, within, device)
        self._shards = replace(shards, stale=frozenset(), pending=())

    def _train_member(
        self, shards: Shards, shard: int, encoder: Encoder, target: Target, device: torch.device
    ) -> Trained:
        """Train the network of a shard, on its rows alone."""
        rows, seed = cast(Rows, shards.rows).of(shard), shards.seed_of(shard)
        parts = rows.parts
        own, codes = _own_target(target, rows)
        part = fresh(encoder).fit(take(rows.X, parts.training), codes[parts.training])
        weights = np.ones(len(rows))
        weights[parts.training] = row_weights(rows.weights[parts.training], len(parts.training))
        by_class = self._class_weights(own, codes[parts.training])
        heard = Parts(parts.training, _judged(own, codes, parts), parts.calibration)
        forked = range(torch.cuda.device_count()) if device.type == "cuda" else []
        with few_threads(part.recipe.threads), torch.random.fork_rng(devices=forked):
            torch.manual_seed(seed)
            task = self._task(own, codes[parts.training])
            model = self._new_model(part, own, 1, task=task).to(device)
            options = {"raw_features": False, "look_alikes": False}  # which are for all networks together
            inputs = part.transform(rows.X)
            history = self._train_parts(model, part, inputs, codes, weights, by_class, heard, seed, **options)
        if history.attrs["ended"] == "interrupted":
            raise KeyboardInterrupt  # what it has learned so far depends on when that was
        history.insert(0, "shard", shard)
        return Trained(part, Member(model.backbone, model.embedding).eval().requires_grad_(False), history)

    def _join_members(
        self,
        trained: list[Trained],
        rows: Rows,
        encoder: Encoder,
        target: Target,
        features: dict[str, Any],
        within: pd.Series[Any] | None,
        device: torch.device,
    ) -> None:
        """All that does not belong to one shard: scale, voters, calibration, novelty. Only what is there decides it."""
        members, parts = [each.member for each in trained], rows.parts
        codes = rows.codes if target.kind in (CLASSES, ORDERED) else target.codes(rows.exact)
        whole = joined(
            encoder, take(rows.X, parts.training), codes[parts.training], [each.encoder for each in trained], members
        )
        by_class = self._class_weights(target, codes[parts.training])
        task, size = self._task(target, codes[parts.training]), sum(size for _, size in whole.sizes)
        model = self._new_model(whole, target, 1, size, size, task=task)
        model.backbone = Network(members, shared=whole.shared)
        with torch.no_grad():
            model.embedding.weight.copy_(torch.eye(size))  # what a scale is multiplied into
            model.embedding.bias.zero_()
        model.to(device).eval().requires_grad_(False)
        inputs, y = whole.transform(rows.X), torch.as_tensor(codes)
        voters = tuple(part[parts.training] for part in inputs)
        model.remember(batches_of(voters, y[parts.training], size=4096 if device.type == "cuda" else 512))
        held = _some(_judged(target, codes, parts))
        if self.rescale and len(held):
            judges = tuple(part[held] for part in inputs), y[held].to(device)
            weights = None if by_class is None else by_class.tolist()
            rescale.fit_scale(model, *judges, class_weights=weights)
            if self.raw_features and self.embedding_size is None:
                fewer = tuple(part[::2] for part in judges[0]), judges[1][::2]  # it takes longest
                rescale.fit_raw_features(model, voters, *fewer, class_weights=weights)
            if self.look_alikes:
                rescale.fit_look_alikes(model, *judges, class_weights=weights)
        history = pd.concat([each.history for each in trained], ignore_index=True)
        history.attrs["ended"] = "finished"
        self._took(features, target, whole, model, history, within)
        exact = rows.exact[parts.training] if target.kind == NUMBERS else None
        self._name_voters(rows.ids[parts.training], take(rows.X, parts.training), exact, by_class)
        self._novelty, self._folds = self._new_novelty(voters), None
        self._validation_rows = self._held_out(inputs, codes, rows.exact, rows.ids, parts.validation)
        self.validation_ids_ = rows.ids[parts.validation]
        calibration = parts.calibration if len(parts.calibration) else parts.validation
        self._calibrate(self._held_out(inputs, codes, rows.exact, rows.ids, calibration))
        usual = rows.ids[~rows.ids.isin(rows.ids[_some(parts.validation)])]
        self._novelty = self._novelty.fit(self.references_, self._validation_rows.without(usual))

    # Forgetting

    def forget(self, ids: Iterable[Hashable], *, exact: bool = False) -> Self:
        """Delete examples by id because somebody asked for it: from votes, calibration, validation and records.

        The network is not trained again: its weights hold no example, but all of them shaped it. What was counted over
        all rows stays as well, and may hold values of these: quantiles of each column of numbers with its smallest and
        largest value, words of texts, labels, and names of categories. A category that no other voter has loses its
        name, if the model holds the records of all voters and has no shards. `exact` leaves nothing.

        Prediction sets, intervals and typicality then promise what they promise for rows like those that are left. So
        do not choose by outcome whom to forget: without its wrong or difficult rows, calibration promises too much.
        To clean the votes, use `silence` or `relabel`.

        exact: train again the networks that saw these rows, of a model with `shards`, and those that saw rows forgotten
        before without it: forget([], exact=True) makes up for them. The model is then, bit for bit, the one that `fit`
        gives without the rows: on the same machine and device, with the same versions. `deletions_` gets a certificate.
        If it is interrupted, the model stays as it was.
        """
        if exact:
            return self._forget_exactly(ids)
        names = self._forgettable(ids)
        shards = self._shards
        saw = set() if shards is None or shards.rows is None else shards.rows.seen_by(names)
        super().forget(names)
        if shards is not None:
            self._shards = shards.forgot(names)
        if shards is not None and saw:
            how = "in the model that was condensed, forget" if self.references_.voters.weighted else "forget"
            warn(
                f"the votes are gone, but {len(saw)} of {shards.n} networks saw these rows and are as they were; "
                f"{how}(…, exact=True) trains them again",
            )
        return self

    def _forget_exactly(self, ids: Iterable[Hashable]) -> Self:
        start, names = time.perf_counter(), self._forgettable(ids)
        shards = self._exact_shards(names)
        rows, before = cast(Rows, shards.rows), fingerprint(self)
        left, stale = rows.without(names), shards.stale | rows.seen_by(names)
        target, left = _remaining_target(self.target_, left)
        if len(target.names) != len(self.target_.names):
            warn(
                f"with these rows a label is gone, of which they were the last; all {shards.n} networks are trained "
                "again",
            )
            stale = frozenset(range(shards.n))
        known = self._learned_members()
        other = copy(self)
        other.__dict__.update(self._fitted, verbose=self.verbose)
        features = {
            name: value for name, value in vars(self).items() if name in ("n_features_in_", "feature_names_in_")
        }
        within = None if self._within is None else self._within[self._within.index.isin(left.ids)]
        kept = {shard: each for shard, each in enumerate(known) if shard not in stale}
        other._sharded(replace(shards, rows=left), fresh(self.encoder_), target, features, within, kept)
        other._n_groups = self._n_groups
        made = other._learned_members()
        retrained = tuple(
            Retrained(
                shard,
                shards.seed_of(shard),
                len(own := left.of(shard)),
                own.digest(),
                weights_sha256(known[shard].member),
                weights_sha256(made[shard].member),
            )
            for shard in sorted(stale)
        )
        certificate = Certificate.of(
            [*shards.pending, *map(hashed, names.tolist())],
            shards=shards.n,
            retrained=retrained,
            before=before,
            after=fingerprint(other),
            rows=len(left),
            seconds=time.perf_counter() - start,
            device=_device_name(shards.device),
            threads=shards.threads,
        )
        deletions = [*self.deletions_, certificate]
        self.__dict__.update(vars(other) | self.get_params(deep=False), _fitted=self._fitted, deletions_=deletions)
        return self

    def _learned_members(self) -> list[Trained]:
        """What the model learned from each shard."""
        members = cast(Network, self.model_.backbone).members
        histories = [part for _, part in self.history_.groupby("shard", sort=True)]
        parts: list[Encoder] = cast(Any, self.encoder_).parts
        return [
            Trained(part, cast(Member, member), history.reset_index(drop=True).dropna(axis=1, how="all"))
            for part, member, history in zip(parts, members, histories, strict=True)
        ]

    def _exact_shards(self, names: pd.Index[Any]) -> Shards:
        """How the model was sharded, if these rows can be deleted exactly; an error says why not."""
        shards, nothing = self._shards, "nothing was forgotten"
        if shards is None:
            raise InputError(
                "exact deletion needs a model whose networks each saw a known part of the rows; fit with shards=4, or "
                f"forget without exact=True, which removes votes alone; {nothing}"
            )
        if shards.rows is None:
            raise InputError(
                "exact deletion needs the rows that networks are trained again on, and this model was saved without "
                f"its examples; use the model that it came from, or save with include_examples=True; {nothing}"
            )
        if self.references_.voters.weighted:
            raise InputError(
                f"exact deletion needs all voters; delete in the model that was condensed, then condense; {nothing}"
            )
        if device_of(self.device).type != shards.device:
            raise InputError(
                f"the networks were trained on {shards.device}, whose bits another device does not repeat; load the "
                f"model with device={shards.device!r}; {nothing}"
            )
        voters, held = self.references_.voters.ids, self.calibration_ids_
        parts = shards.rows.parts
        own = parts.calibration if len(parts.calibration) else parts.validation
        same = voters.tolist() == shards.rows.ids[parts.training].tolist() and self._votes_as_fitted(shards.rows)
        if not same or held.tolist() != shards.rows.ids[own].tolist():
            raise InputError(
                "exact deletion gives the model of fit, and this one has been given other voters, labels or "
                "calibration rows since; delete before add_references, silence, relabel and recalibrate, and do those "
                f"again; {nothing}"
            )
        unknown = names[~names.isin(shards.rows.ids)]
        if len(unknown):
            raise IdError(f"ids must be of rows of fit; {unknown.tolist()[0]!r} is not; {nothing}")
        return shards

    def _votes_as_fitted(self, rows: Rows) -> bool:
        """Whether all voters, which are those of fit, vote for what they did then."""
        references, places = self.references_, rows.parts.training
        if references.targets is not None:
            return np.array_equal(references.targets.cpu().numpy(), rows.exact[places])
        codes = self.target_.codes(rows.exact) if self.target_.kind == LABELS else rows.codes
        return np.array_equal(references.labels.cpu().numpy(), codes[places])


def _some(places: Ints) -> Ints:
    """At most 400 of these, evenly spread: what is chosen after training is chosen again in every exact deletion."""
    return places[:: -(-len(places) // _JUDGES) or 1]


def _judged(target: Target, codes: Ints, parts: Parts) -> Ints:
    """The validation rows whose class training has."""
    held = parts.validation
    return held[np.isin(codes[held], codes[parts.training])] if target.kind == CLASSES else held


def _own_target(target: Target, rows: Rows) -> tuple[Target, Ints]:
    """What the network of a shard predicts, as its own rows show it, and their codes."""
    if target.kind in (CLASSES, ORDERED):
        return target, rows.codes
    if target.kind == LABELS:
        own = several_labels(target.names, rows.exact, listed=target.listed)
    else:
        exact = rows.exact[rows.parts.training]
        own = _numbers_apart(lambda: numbers(exact, target.names.tolist(), single=target.single))
    return own, own.codes(rows.exact)


def _remaining_target(target: Target, rows: Rows) -> tuple[Target, Rows]:
    """What is predicted as the remaining rows show it, and these rows with its codes."""
    if target.kind == NUMBERS:
        exact = rows.exact[rows.parts.training]
        return _numbers_apart(lambda: numbers(exact, target.names.tolist(), single=target.single)), rows
    if target.kind == LABELS:
        if not target.listed:
            return several_labels(target.names, rows.exact), rows
        has = rows.exact.any(axis=0)
        if not has.any():
            raise LabelError("without these rows no label would be left; nothing was forgotten")
        rows = replace(rows, exact=rows.exact[:, has])
        return several_labels(_named_anew(target.names[has]), rows.exact, listed=True), rows
    here = np.unique(rows.codes)
    if len(here) == len(target.names):
        return target, rows
    if len(here) < 2:
        raise LabelError(
            "without these rows only one class would be left; a classifier needs two; nothing was forgotten"
        )
    rows, names = replace(rows, codes=np.searchsorted(here, rows.codes)), target.names[here]
    if target.kind == ORDERED:
        return classes(_named_anew(names), ordered=True), rows
    return classes(names), rows


def _named_anew(names: NDArray[Any]) -> NDArray[Any]:
    """Texts in an array as wide as the longest of them."""
    return names.astype(object).astype(str) if names.dtype.kind == "U" else names


def _numbers_apart(read: Any) -> Target:
    """A target that repeats: groups of several numbers are found by sums, which several threads add up in any order."""
    with threadpool_limits(1):
        return cast(Target, read())


def _device_name(kind: str) -> str:
    return torch.cuda.get_device_name() if kind == "cuda" else kind
