"""Exact deletion: each network of a sharded model sees a known part of the rows, and can be retrained alone.

clf = DWACClassifier(shards=4, random_state=0).fit(X, y)
clf.forget(["customer-7"], exact=True)        # as if the row had never been there, bit for bit

`fit` and exact `forget` are one computation: first the networks, each from the rows of its shard alone, then
everything else from the networks and the remaining rows. See docs/decisions/0026-exact-deletion.md.
"""

from __future__ import annotations

import time
from collections.abc import Hashable, Iterable
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from sklearn.utils import check_random_state
from threadpoolctl import threadpool_limits

from dwac._checks import warn
from dwac._machine import few_threads
from dwac.encoders import Encoder, choose
from dwac.encoders.sharded import PLAIN, join_encoders, plain_rows, unfitted_copy
from dwac.errors import IdError, InputError
from dwac.estimator.certificate import Certificate, Retrained, fingerprint, hash_id, weights_sha256
from dwac.estimator.editing import forgettable_ids, keep
from dwac.estimator.fit.network import (
    EncodedRows,
    TrainingRows,
    class_weights_of,
    encoder_for_target,
    ignore_columns,
    name_voters,
    new_model,
    own_seed,
    train,
)
from dwac.estimator.fit.rows import prepare
from dwac.estimator.fitted import Fitted
from dwac.estimator.preparation import Examples, FitInput, Parts, read_groups, row_weights, take
from dwac.estimator.settings import FitSettings, device_of
from dwac.estimator.shards import SHARE, TRAINING, ShardRows, Shards, as_stored, deal, require_rows
from dwac.nn import WeightedAverage
from dwac.nn.batches import Inputs, batches_of
from dwac.nn.ensemble import Member
from dwac.nn.ensemble import ShardedNetwork as Network
from dwac.nn.ranks import sharing_ranks
from dwac.tasks import Target
from dwac.training.steps import repeatable
from dwac.training.validation import fit_look_alikes, fit_raw_features, fit_scale

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_JUDGES = 400  # validation rows that choose what all networks share
# Targets find groups of several numbers by sums, which several threads would add in any order.
repeatable_sums = partial(threadpool_limits, 1)


class Trained(NamedTuple):
    """What was learned from one shard alone."""

    encoder: Encoder
    member: Member
    history: pd.DataFrame


def fit_sharded(settings: FitSettings, rows: FitInput) -> Fitted:
    """Train `settings.shards` networks, each alone and on its own part of the rows."""
    assert settings.shards is not None
    if rows.apart is not None:
        raise InputError("networks of shards cannot tell groups apart; leave out apart=…, or shards")
    encoder = ignore_columns(settings, encoder_for_target(settings, _shardable(settings, rows.X)))
    X, features, outcomes, names, within = prepare(settings, encoder, rows)
    n, weights = len(names), np.ones(len(names))
    if rows.sample_weight is not None:
        row_weights(rows.sample_weight, n)  # an error if they are invalid
        weights = weights * np.asarray(rows.sample_weight, np.float64)
    seed = int(check_random_state(settings.random_state).randint(2**31 - 1))
    shares = (SHARE if size is None else float(size) for size in (settings.validation_size, settings.calibration_size))
    dealt = names  # or groups, whose rows stay together
    if rows.groups is not None:
        dealt = pd.Index(read_groups(rows.groups, names, "groups").tolist(), tupleize_cols=False)
    shard, role = deal(dealt, seed, settings.shards, *shares)
    with repeatable_sums():
        target = outcomes.target(np.flatnonzero(role == TRAINING))
    codes = outcomes.strata if target.has_codes else np.zeros(n, dtype=np.int64)
    stored = as_stored(plain_rows(encoder, X))
    every = ShardRows(stored, names, codes, outcomes.exact, weights, shard, role).at(np.argsort(role, kind="stable"))
    threads, device = torch.get_num_threads(), device_of(settings.device).type
    shards = Shards(settings.shards, seed, threads, device, every)
    fitted = _from_shards(settings, shards, encoder, target, {})
    n_groups = None if rows.groups is None else dealt[names.isin(fitted.calibration.ids)].nunique()
    return replace(fitted, features=features, within=within, n_groups=n_groups)


def _shardable(settings: FitSettings, X: Any) -> Encoder:
    """The encoder; an error if it cannot be fitted on parts of the rows."""
    if sharing_ranks() is not None:
        raise InputError("networks of shards are each trained alone; with shards, use a single process")
    encoder = choose(settings.encoder, X)
    if encoder.kind not in PLAIN:
        raise InputError(
            f"shards are for tables, texts and images with networks of dwac's own; got {encoder.kind} data; a "
            "network of yours may have learned from these rows before"
        )
    return encoder


# From rows to a model


def _from_shards(
    settings: FitSettings, shards: Shards, encoder: Encoder, target: Target, trained: dict[int, Trained]
) -> Fitted:
    """The model of these rows, given the trained networks of some shards; the others are trained."""
    rows, device = cast(ShardRows, shards.rows), device_of(settings.device)
    require_rows(rows, shards.n)
    with repeatable(device, shards.threads):
        every = [
            trained[s] if s in trained else _train_member(settings, shards, s, encoder, target, device)
            for s in range(shards.n)
        ]
        forked = range(torch.cuda.device_count()) if device.type == "cuda" else []
        with torch.random.fork_rng(devices=forked), few_threads(every[0].encoder.recipe.threads):
            fitted = _join_members(settings, every, rows, encoder, target, device)
    return replace(fitted, shards=replace(shards, stale=frozenset(), pending=()))


def _train_member(
    settings: FitSettings, shards: Shards, shard: int, encoder: Encoder, target: Target, device: torch.device
) -> Trained:
    """Train the network of a shard, on its rows alone."""
    rows, seed = cast(ShardRows, shards.rows).of(shard), shards.seed_of(shard)
    parts = rows.parts
    with repeatable_sums():
        own = target.of_part(rows.exact, parts.training)
    codes = rows.codes if own.has_codes else own.codes(rows.exact)
    part = unfitted_copy(encoder).fit(take(rows.X, parts.training), codes[parts.training])
    weights = np.ones(len(rows))
    weights[parts.training] = row_weights(rows.weights[parts.training], len(parts.training))
    by_class = class_weights_of(settings, own, codes[parts.training])
    with few_threads(part.recipe.threads), own_seed(seed, device):
        loss = own.loss(codes[parts.training])
        model = new_model(settings, part, own, 1, loss=loss).to(device)
        options = {"raw_features": False, "look_alikes": False}  # these belong to all networks together
        learned = TrainingRows.of(part.transform(rows.X), codes, weights, by_class)
        held_out = learned.at(_judged(own, codes, parts))
        history = train(settings, model, part, learned.at(parts.training), held_out, by_class, seed, **options)
    if history.attrs["ended"] == "interrupted":
        raise KeyboardInterrupt  # a partly trained network depends on when it was stopped
    history.insert(0, "shard", shard)
    return Trained(part, Member(model.backbone, model.embedding).eval().requires_grad_(False), history)


def _join_members(
    settings: FitSettings,
    trained: list[Trained],
    rows: ShardRows,
    encoder: Encoder,
    target: Target,
    device: torch.device,
) -> Fitted:
    """Everything that the shards share: scale, voters, calibration, novelty. It depends on the present rows alone."""
    members, parts = [each.member for each in trained], rows.parts
    codes = rows.codes if target.has_codes else target.codes(rows.exact)
    whole = join_encoders(
        encoder, take(rows.X, parts.training), codes[parts.training], [each.encoder for each in trained], members
    )
    by_class = class_weights_of(settings, target, codes[parts.training])
    loss, size = target.loss(codes[parts.training]), sum(size for _, size in whole.sizes)
    model = new_model(settings, whole, target, 1, size, size, loss=loss)
    model.backbone = Network(members, shared=whole.shared)
    with torch.no_grad():
        model.embedding.weight.copy_(torch.eye(size))  # the scale is multiplied into it
        model.embedding.bias.zero_()
    model.to(device).eval().requires_grad_(False)
    inputs, y = whole.transform(rows.X), torch.as_tensor(codes)
    voters = tuple(part[parts.training] for part in inputs)
    model.remember(batches_of(voters, y[parts.training], size=4096 if device.type == "cuda" else 512))
    _rescale(settings, model, inputs, y, voters, _some(_judged(target, codes, parts)), by_class)
    history = pd.concat([each.history for each in trained], ignore_index=True)
    history.attrs["ended"] = "finished"
    encoded = EncodedRows(inputs, codes, rows.ids, rows.exact)
    novelty = name_voters(settings, model, whole, target, encoded.at(parts.training), by_class)
    validation = novelty.hold_out(model, *encoded.at(parts.validation))
    calibration = parts.calibration if len(parts.calibration) else parts.validation
    return Fitted(
        settings=settings,
        encoder=whole,
        model=model,
        target=target,
        history=history,
        examples=keep(Examples(), whole, rows.ids[parts.training], take(rows.X, parts.training)),
        novelty=novelty.fit(model.references, validation.at(_some(np.arange(len(validation.y))))),
        validation=validation,
        validation_ids=rows.ids[parts.validation],
        calibration=novelty.hold_out(model, *encoded.at(calibration)),
    )


def _rescale(
    settings: FitSettings,
    model: WeightedAverage,
    inputs: Inputs,
    y: torch.Tensor,
    voters: Inputs,
    held: Ints,
    by_class: Floats | None,
) -> None:
    """Fit what all networks share to held-out rows."""
    if not settings.rescale or len(held) == 0:
        return
    judges = tuple(part[held] for part in inputs), y[held].to(model.device)
    weights = None if by_class is None else by_class.tolist()
    fit_scale(model, *judges, class_weights=weights)
    if settings.raw_features and settings.embedding_size is None:
        fewer = tuple(part[::2] for part in judges[0]), judges[1][::2]  # the slowest step
        fit_raw_features(model, voters, *fewer, class_weights=weights)
    if settings.look_alikes:
        fit_look_alikes(model, *judges, class_weights=weights)


# Forgetting


def forget_exactly(fitted: Fitted, ids: Iterable[Hashable], device: str, verbose: bool | str) -> Fitted:
    """Retrain the networks that saw these rows: the model is then, bit for bit, that of a fit without them."""
    start, names = time.perf_counter(), forgettable_ids(fitted, ids)
    shards = _exact_shards(fitted, names, device)
    rows, before = cast(ShardRows, shards.rows), fingerprint(fitted)
    left, stale = rows.without(names), shards.stale | rows.seen_by(names)
    with repeatable_sums():
        target, codes, exact = fitted.target.remaining(left.codes, left.exact, left.parts.training)
    left = replace(left, codes=codes, exact=exact)
    if len(target.names) != len(fitted.target.names):
        warn(f"these were the last rows with their label; all {shards.n} networks are trained again")
        stale = frozenset(range(shards.n))
    known = _learned_members(fitted)
    within = None if fitted.within is None else fitted.within[fitted.within.index.isin(left.ids)]
    kept = {shard: each for shard, each in enumerate(known) if shard not in stale}
    settings = replace(fitted.settings, verbose=verbose)
    other = _from_shards(settings, replace(shards, rows=left), unfitted_copy(fitted.encoder), target, kept)
    made = _learned_members(other)
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
        [*shards.pending, *map(hash_id, names.tolist())],
        shards=shards.n,
        retrained=retrained,
        before=before,
        after=fingerprint(other),
        rows=len(left),
        seconds=time.perf_counter() - start,
        device=torch.cuda.get_device_name() if shards.device == "cuda" else shards.device,
        threads=shards.threads,
    )
    return replace(
        other,
        settings=fitted.settings,
        features=fitted.features,
        within=within,
        n_groups=fitted.n_groups_of(other.calibration),
        deletions=(*fitted.deletions, certificate),
    )


def _learned_members(fitted: Fitted) -> list[Trained]:
    """What the model learned from each shard."""
    members = cast(Network, fitted.model.backbone).members
    histories = [part for _, part in fitted.history.groupby("shard", sort=True)]
    parts: list[Encoder] = cast(Any, fitted.encoder).parts
    return [
        Trained(part, cast(Member, member), history.reset_index(drop=True).dropna(axis=1, how="all"))
        for part, member, history in zip(parts, members, histories, strict=True)
    ]


def _exact_shards(fitted: Fitted, names: pd.Index[Any], device: str) -> Shards:
    """How the model was sharded, if these rows can be deleted exactly; an error says why not."""
    shards, nothing = fitted.shards, "nothing was forgotten"
    if shards is None:
        raise InputError(
            "exact deletion needs a model whose networks each saw a known part of the rows; fit with shards=4, or "
            f"forget without exact=True, which removes votes alone; {nothing}"
        )
    if shards.rows is None:
        raise InputError(
            "exact deletion retrains networks on their rows, and this model was saved without its examples; "
            f"use the model that it came from, or save with include_examples=True; {nothing}"
        )
    if fitted.references.voters.weighted:
        raise InputError(
            "exact deletion needs all voters, with one vote each; delete in the model that was condensed or reweighed, "
            f"then condense or reweigh; {nothing}"
        )
    if device_of(device).type != shards.device:
        raise InputError(
            f"the networks were trained on {shards.device}, and another device would not give the same bits; load the "
            f"model with device={shards.device!r}; {nothing}"
        )
    voters, held = fitted.references.voters.ids, fitted.calibration.ids
    parts = shards.rows.parts
    own = parts.calibration if len(parts.calibration) else parts.validation
    same = voters.tolist() == shards.rows.ids[parts.training].tolist() and _votes_as_fitted(fitted, shards.rows)
    if not same or held.tolist() != shards.rows.ids[own].tolist():
        raise InputError(
            "exact deletion gives the model that fit would give, and this one has had other voters, labels or "
            "calibration rows since; delete before add_references, silence, relabel and recalibrate, and do those "
            f"again; {nothing}"
        )
    unknown = names[~names.isin(shards.rows.ids)]
    if len(unknown):
        raise IdError(f"ids must name rows that fit was given; {unknown.tolist()[0]!r} is not; {nothing}")
    return shards


def _votes_as_fitted(fitted: Fitted, rows: ShardRows) -> bool:
    """Whether all voters of fit still vote for the same outcomes."""
    references, places = fitted.references, rows.parts.training
    if references.targets is not None:
        return np.array_equal(references.targets.cpu().numpy(), rows.exact[places])
    codes = rows.codes if fitted.target.has_codes else fitted.target.codes(rows.exact)
    return np.array_equal(references.labels.cpu().numpy(), codes[places])


def _some(places: Ints) -> Ints:
    """At most 400 of these, evenly spread: every exact deletion repeats the choices made after training."""
    return places[:: -(-len(places) // _JUDGES) or 1]


def _judged(target: Target, codes: Ints, parts: Parts) -> Ints:
    """The validation rows whose class is in training."""
    held = parts.validation
    return held[np.isin(codes[held], codes[parts.training])] if target.cross_entropy else held
