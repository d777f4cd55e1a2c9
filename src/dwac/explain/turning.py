"""Turns: the few phrases of a text, or patches of an image, that decide, for the first sentence of an explanation.

`Explanation.reasons` asks the model about up to a thousand hybrids. A sentence needs fewer: each part is left out
of a text, or taken from a precedent of an image; then those with the largest effect together, until the model gives
another label. These are some twenty texts or twelve images, and the sentence says what the model gave them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from dwac.explain.comparing import Inquiry, LabelCase, NumberCase, label_precedents, number_precedents
from dwac.explain.hybrids import Hybrids, Part
from dwac.explain.voters import plain_ids
from dwac.explain.votes import Votes

Floats = NDArray[np.float64]

_NAMED = 3  # parts in a sentence
_MATTERS = 0.25  # share of the largest effect from which a part is named


class Turn(NamedTuple):
    """The parts of an example that decide, and what it would get without them."""

    parts: tuple[Part, ...]  # the largest effect first
    outcome: Any  # a label or number: what the model gives the example without these parts
    changed: bool  # whether that is another label or number
    precedent: Any = None  # the id of the example that these parts are taken from instead; None: they are left out
    other: Any = None  # the label or number that the model gives that example


def turn_label(inquiry: Inquiry, case: LabelCase) -> Turn | None:
    """The fewest parts without which a row gets another label; if three do not suffice, these; None if none matters."""
    if not inquiry.is_quick or len(case.names) < 2:
        return None
    label, hybrids, precedent = case.votes.label, inquiry.phrases(), None
    other = next(code for code in np.argsort(-case.probabilities, kind="stable").tolist() if code != label)
    if hybrids is None:
        other, places = label_precedents(inquiry, case, None, 1)
        precedent, hybrids = _mix(inquiry, case.votes, places)
    effects, without = _effects_of(inquiry, hybrids, label, other, alone=precedent is None)
    places = _largest(effects)
    enough = np.flatnonzero(~inquiry.gives(without, label)) if places else np.zeros(0, dtype=np.int64)
    if len(enough):
        places = [int(enough[effects[enough].argmax()])]
    h = _remove(inquiry, hybrids, places, without)
    changed = np.flatnonzero(~inquiry.gives(h, label)) if places else enough
    n = int(changed[0]) + 1 if len(changed) else len(places)
    return _turn(inquiry, hybrids, places[:n], h[n - 1 : n], len(changed) > 0, precedent, case.names[other])


def turn_number(inquiry: Inquiry, case: NumberCase) -> Turn | None:
    """Up to three parts that raise, or lower, a predicted number most; None if none matters."""
    if not inquiry.is_quick or not case.single:
        return None
    hybrids, precedent, other = inquiry.phrases(), None, None
    if hybrids is None:
        voters = number_precedents(inquiry, case, 0, None, 1)
        precedent, hybrids = _mix(inquiry, case.votes, voters)
        other = inquiry.given(case.votes.references.embeddings[voters])
    effects, without = _effects_of(inquiry, hybrids, 0, 0, alone=precedent is None)
    if len(effects):
        effects = effects * np.sign(effects[np.abs(effects).argmax()])  # those in the direction of the largest
    places = _largest(effects)
    h = _remove(inquiry, hybrids, places, without)
    return _turn(inquiry, hybrids, places, h[-1:], True, precedent, other)


def _mix(inquiry: Inquiry, votes: Votes, places: list[int]) -> tuple[Any, Hybrids]:
    """(the id of a voter, hybrids of the row and this voter)."""
    precedent = plain_ids(votes.references.ids[places])[0]
    return precedent, inquiry.hybrids([precedent], ())[0]


def _effects_of(inquiry: Inquiry, hybrids: Hybrids, label: int, other: int, *, alone: bool) -> tuple[Floats, Tensor]:
    """(the effects (n,) of the parts, the embeddings (n, d) of the row without each of them).

    The effect is the mean of two differences in log-odds, or in the number: between the row and the row without the
    part; and, in a text, between the part alone and the part that has the least alone: phrases repeat each other.
    """
    n = len(hybrids.parts)
    if n < 2:
        return np.zeros(0), torch.zeros(0, 0)
    one = np.eye(n, dtype=bool)
    masks = [np.zeros((1, n), dtype=bool), one, *([~one] if alone else [])]
    h = inquiry.embed(hybrids.make(np.concatenate(masks)))
    f = inquiry.contrast(h, label, other)
    effects, rest = f[0] - f[1 : n + 1], f[n + 1 :]
    return (effects + rest - rest.min()) / 2 if alone else effects, h[1 : n + 1]


def _largest(effects: Floats) -> list[int]:
    """The places of up to three parts with the largest effects, not of all."""
    order = np.argsort(-effects, kind="stable")[: min(_NAMED, len(effects) - 1)].tolist()
    return [place for place in order if effects[place] > 0 and effects[place] >= _MATTERS * effects[order[0]]]


def _remove(inquiry: Inquiry, hybrids: Hybrids, places: list[int], without: Tensor) -> Tensor:
    """(n, d): the embeddings of the row without the first 1, …, n of these parts; without: those without each part."""
    if len(places) < 2:
        return without[places]
    masks = np.array([np.isin(np.arange(len(without)), places[:n]) for n in range(2, len(places) + 1)])
    return torch.cat([without[places[:1]], inquiry.embed(hybrids.make(masks))])


def _turn(
    inquiry: Inquiry, hybrids: Hybrids, places: list[int], h: Tensor, changed: bool, precedent: Any, other: Any
) -> Turn | None:
    """What becomes of the row without these parts; h (1, d): its embedding then."""
    if not places:
        return None
    return Turn(tuple(hybrids.parts[place] for place in places), inquiry.given(h), changed, precedent, other)
