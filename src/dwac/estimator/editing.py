"""Edits of a fitted model, without training: condense, add, relabel, forget or silence voters, and recalibrate.

Each takes a `Fitted` and returns a changed one; the old one stays as it was.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import copy, deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from dwac import _checks as checks
from dwac.encoders import Encoder, TabularEncoder
from dwac.encoders.sharded import Sharded
from dwac.errors import IdError, InputError
from dwac.estimator.condensing import LESS, SAME_LABEL, Condenser
from dwac.estimator.fitted import Fitted
from dwac.estimator.preparation import Examples, count, read_known, read_within, row_ids
from dwac.nn import batches
from dwac.nn.batches import Inputs
from dwac.reference import ReferenceSet
from dwac.reference.references import with_classes
from dwac.tasks import Labels, Target
from dwac.tasks.shift import estimate_shift
from dwac.training.validation import average_losses

HALF = 0.001  # the most that predictions and losses may change when a network is rounded to half precision


# Few voters


def condense(fitted: Fitted, size: int | None, *, strict: bool = True) -> Fitted:
    """Let few examples vote for all. Novelty is then the distance to the few.

    size: how many; by default as few as validation rows allow. strict: if no number keeps 99.5 % of labels, take one
    that keeps less and warn, or raise an error; otherwise all vote.
    """
    if size is not None:
        checks.positive_int(size, "size")
    if fitted.alone:
        raise InputError("this model was condensed and saved without the others; condense the model it came from")
    rows = fitted.validation
    if size is None and len(rows.y) == 0 and fitted.folds is None:
        raise InputError(
            "choosing the number of voters needs validation rows, and the model has none; give a number: size=…"
        )
    condenser = Condenser(fitted.references, rows.h, rows.y, fitted.target)
    few = condenser.fewest() if size is None else condenser.represent(size)
    if few is None and not strict:
        return fitted
    few = _nearly(condenser) if few is None else few
    folds = None if fitted.folds is None else fitted.folds.without(pd.Index([]))  # representatives are chosen again
    novelty = fitted.novelty.learn(few, rows, fitted.calibration, folds)
    return fitted.edited(few, folds=folds, novelty=novelty, stored_descriptions=None)


def _nearly(condenser: Condenser) -> ReferenceSet:
    """The fewest voters that keep most labels, with a warning."""
    few, kept = condenser.nearly()
    advice = "for a number of your choice: size=… (--size)"
    none = f"no number of voters up to {max([0, *condenser.sizes()]):,} keeps"
    if few is None:
        raise InputError(f"{none} {checks.percent(LESS[-1], 0)} of labels and the loss; all vote; {advice}")
    checks.warn(
        f"{none} {checks.percent(SAME_LABEL)} of labels and the loss; {len(few):,} are chosen, which keep "
        f"{checks.percent(kept, 0)} of labels and the loss within {checks.percent(1 - kept, 0)}; {advice}"
    )
    return few


# More voters, other labels


def add(fitted: Fitted, X: Any, inputs: Inputs, y: Any, ids: Iterable[Hashable] | None) -> Fitted:
    """Let more examples vote: the rows of X, also given as inputs of the network."""
    n = count(X)
    target, codes, exact, references = _adopt(fitted, *read_known(fitted.target, y, n, strict=True))
    names = new_ids(fitted, X, ids, n)
    shared = names[names.isin(fitted.calibration.ids)]
    if len(shared) and fitted.folds is None:  # cross-fitted rows vote and calibrate; ids that vote are refused below
        raise IdError(
            f"{shared.tolist()[0]!r} is a calibration row; if it voted too, prediction sets would lose their "
            "guarantee; forget it first, or give the rows other ids"
        )
    targets = exact if references.targets is not None else None
    references.add(batches.embed(fitted.model, inputs), codes, names.tolist(), targets=targets)
    novelty = fitted.novelty
    if novelty.known is not None:
        novelty = replace(novelty, known=novelty.known.joined(batches.compared_features(fitted.model, inputs), names))
    examples = keep(fitted.examples, fitted.encoder, names, X)
    return fitted.edited(references, target=target, novelty=novelty, examples=examples)


def relabel(fitted: Fitted, ids: Iterable[Hashable], y: Any) -> Fitted:
    """Let examples vote for other labels or numbers, one per id."""
    names = _voting_ids(fitted, ids, "relabelled")
    known = read_known(fitted.target, y, len(names), strict=True)
    target, codes, exact, references = _adopt(fitted, *known)
    references.relabel(names.tolist(), codes, targets=None if references.targets is None else exact)
    return fitted.edited(references, target=target)


def _adopt(
    fitted: Fitted, codes: NDArray[np.int64], exact: NDArray[np.float64]
) -> tuple[Target, NDArray[np.int64], NDArray[np.float64], ReferenceSet]:
    """Target, codes (n,), exact values, and a copy of the references, extended by new label sets."""
    target = fitted.target
    if not (codes < 0).any():
        return target, codes, exact, copy(fitted.references)
    assert isinstance(target, Labels)  # all other targets know their codes
    target = target.with_sets(exact[codes < 0])
    references = with_classes(fitted.references, np.arange(fitted.target.n_codes), target.n_codes)
    return target, target.codes(exact), exact, references


def keep(examples: Examples, encoder: Encoder, ids: pd.Index[Any], X: Any) -> Examples:
    """The examples and these rows, for explanations: as given, except that files and pictures are kept as pixels."""
    examples = copy(examples)
    if encoder.kind == "image" and isinstance(X, list | pd.Series):
        examples.add(ids, encoder.records(X))
    else:
        examples.add(ids, X, encoder.records)
    return examples


# Fewer voters


def forget(fitted: Fitted, ids: Iterable[Hashable]) -> Fitted:
    """Delete examples by id: from votes, calibration, validation and records."""
    names = forgettable_ids(fitted, ids)
    voters = names[names.isin(fitted.voter_ids)]
    gone = fitted.examples.rows(voters) if len(voters) else None
    other = _stop_votes(fitted, voters)
    within, held, shards = other.within, other.validation_ids, other.shards
    calibration = other.calibration.without(names)
    saw = set() if shards is None or shards.rows is None else shards.rows.seen_by(names)
    if shards is not None and saw:
        how = "in the model that was condensed, forget" if fitted.references.voters.represents else "forget"
        checks.warn(
            f"the votes are gone, but {len(saw)} of {shards.n} networks saw these rows and are as they were; "
            f"{how}(…, exact=True) trains them again",
        )
    return replace(
        other,
        encoder=other.encoder if gone is None else _without_names(other, gone),
        folds=None if other.folds is None else other.folds.without(names),
        validation_ids=held[~held.isin(names)],
        validation=other.validation.without(names),
        calibration=calibration,
        n_groups=other.n_groups_of(calibration),
        within=None if within is None else within[~within.index.isin(names)],
        shards=None if shards is None else shards.forgot(names),
        origin=None,
    )


def silence(fitted: Fitted, ids: Iterable[Hashable]) -> Fitted:
    """Stop examples from voting, and keep the guarantee of prediction sets."""
    return _stop_votes(fitted, _voting_ids(fitted, ids, "silenced"))


def _stop_votes(fitted: Fitted, names: pd.Index[Any]) -> Fitted:
    """Remove these voters and their records."""
    if len(names) == 0:
        return fitted
    if fitted.alone:
        _warn_of_votes(fitted.references, names.tolist())
    references, examples, novelty = copy(fitted.references), copy(fitted.examples), fitted.novelty
    references.remove(names.tolist())
    examples.remove(names.tolist())
    if novelty.known is not None:
        novelty = replace(novelty, known=novelty.known.without(names))
    return fitted.edited(references, examples=examples, novelty=novelty)


def _without_names(fitted: Fitted, gone: Any) -> Encoder:
    """The encoder without names of categories that only these rows had, if the model has the records of all voters."""
    encoder, examples = fitted.encoder, fitted.examples
    known = not fitted.alone and len(examples) == len(fitted.voter_ids)
    if known and isinstance(encoder, TabularEncoder) and not isinstance(encoder, Sharded):
        return encoder.without_names(gone, examples.frame())
    return encoder


def _warn_of_votes(references: ReferenceSet, ids: list[Any]) -> None:
    """Warn that removing representatives also removes the votes of examples that are not stored to replace them."""
    votes = round(float(references.sizes[references.voters.positions(ids)].sum()))
    if votes > len(ids):
        checks.warn(
            f"{len(ids):,} of the {len(references):,} representatives go, and with them the votes of "
            f"{votes:,} training examples: no other example can take their place, as the model was saved without the "
            "others; to remove only these, use the model that it came from, or save with include_members=True",
        )


# Calibration


def recalibrate(
    fitted: Fitted,
    X: Any,
    inputs: Inputs,
    y: Any,
    ids: Iterable[Hashable] | None,
    within: Any = None,
    *,
    half: bool = False,
) -> Fitted:
    """Calibrate with the rows of X, also given as inputs of the network, instead of those held out by fit.

    within: the groups of the rows, for guarantees within each; by default those in the columns that the settings name.
    half: before, round the weights of the network to half precision, if the rows keep their predictions.
    """
    n = count(X)
    codes, exact = read_known(fitted.target, y, n, strict=False)
    fitted = _halve(fitted, inputs, codes) if half else fitted
    names = new_ids(fitted, X, ids, n)
    shared = names[names.isin(fitted.voter_ids)]
    if len(shared):
        raise IdError(
            f"calibration rows must not be training rows; {shared.tolist()[0]!r} votes; give rows that were not "
            "trained on"
        )
    rows = fitted.novelty.hold_out(fitted.model, inputs, codes, names, exact)
    # No folds, and no groups of fit: these belong to other rows, which took part in training.
    groups = read_within(within, fitted.settings.within, X, names)
    return replace(fitted, calibration=rows, folds=None, n_groups=None, within=groups, shift=None, origin=None)


def calibrate_for(fitted: Fitted, h: torch.Tensor) -> Fitted:
    """Weigh the calibration rows by how likely they are among new rows with embeddings h (n, d)."""
    return replace(fitted, shift=estimate_shift(fitted, h), origin=None)


def _halve(fitted: Fitted, inputs: Inputs, codes: NDArray[np.int64]) -> Fitted:
    """The model with its network rounded to half precision; an error if that changes predictions of these rows.

    The voters stay where they are: any fixed points may vote, as long as calibration rows and new rows are embedded by
    the same network.
    """
    model = deepcopy(fitted.model, {id(fitted.references): fitted.references})
    with torch.no_grad():
        for weights in model.parameters():
            if weights.ndim > 1 and float(weights.abs().max()) < torch.finfo(torch.float16).max:
                weights.copy_(weights.half())
    rounded = replace(fitted, model=model, origin=None)
    before, after = (
        votes - np.logaddexp.reduce(votes, axis=1, keepdims=True)
        for votes in (some.votes(batches.embed(some.model, inputs)) for some in (fitted, rounded))
    )
    known, averaged = codes >= 0, fitted.target.loss(fitted.references.labels.cpu().numpy()).averaged
    losses = [
        -log_p[known, codes[known]].clip(-69)
        if averaged is None
        else average_losses(torch.as_tensor(log_p[known]).exp(), torch.as_tensor(codes[known]), averaged).numpy()
        for log_p in (before, after)
    ]
    same, loss, grown = float(fitted.target.same(after, before).mean()), losses[0].sum(), losses[1].sum()
    if 1 - same > HALF or grown > (1 + HALF) * loss:
        raise InputError(
            f"half precision must keep {checks.percent(1 - HALF)} of predictions, and the loss within "
            f"{checks.percent(HALF)}; {checks.percent(same, 2)} of these {len(codes):,} rows keep it, and "
            f"the loss is {grown / max(loss, 1e-300):.4f} times as large; leave half out"
        )
    return rounded


# Ids


def new_ids(fitted: Fitted, X: Any, ids: Iterable[Hashable] | None, n: int) -> pd.Index[Any]:
    """Ids of new rows: those given, the index of a frame, or numbers not used before."""
    if ids is not None or isinstance(X, pd.DataFrame | pd.Series):
        return row_ids(X, ids, n)
    held = [*fitted.voter_ids, *fitted.calibration.ids, *fitted.validation_ids]
    first = 1 + max((int(i) for i in held if isinstance(i, int | np.integer)), default=-1)
    return pd.RangeIndex(first, first + n)


def forgettable_ids(fitted: Fitted, ids: Iterable[Hashable]) -> pd.Index[Any]:
    """The ids as an index; an error unless the model holds them all."""
    names = _index_of(ids)
    known = names.isin(fitted.held_ids())
    if not known.all():
        unknown = (
            "it was condensed and saved without those who are represented: forget them in the model that it came "
            "from, condense and save that again"
        )
        raise IdError(
            f"ids must be of examples that the model holds; {names[~known].tolist()[0]!r} is not; "
            f"{f'{unknown}; ' if fitted.alone else ''}nothing was forgotten"
        )
    return names


def _voting_ids(fitted: Fitted, ids: Iterable[Hashable], done: str) -> pd.Index[Any]:
    """The ids as an index; an error unless all vote."""
    names, voters = _index_of(ids), fitted.voter_ids
    if not names.isin(voters).all():
        raise IdError(
            f"ids must be of examples that vote; {names[~names.isin(voters)].tolist()[0]!r} does not; nothing was "
            f"{done}"
        )
    return names


def _index_of(ids: Iterable[Hashable]) -> pd.Index[Any]:
    if isinstance(ids, str | bytes) or not isinstance(ids, Iterable):
        raise IdError(f"ids must be a list of ids; got {ids!r}; write [{ids!r}] for a single one")
    names: pd.Index[Any] = pd.Index(list(ids), tupleize_cols=False)
    return names
