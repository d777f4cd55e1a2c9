"""The words that a prediction depends on: the text is predicted again without each of them, exactly."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from dwac.drawing.records import plain
from dwac.errors import InputError
from dwac.server.answers import silent
from dwac.server.explorer.edits import edited
from dwac.server.explorer.state import Explorer

KINDS = ("text", "huggingface")  # of encoders that read texts
MOST = 200  # words left out, one at a time


def of_point(explorer: Explorer, session: str, point: int, label: int) -> dict[str, Any]:
    """The words of a text on the map; for a training example, its own vote does not count."""
    explorer.require_open("it leaves no words out, because exact changes reveal training examples")
    if explorer.clf.encoder_.kind not in KINDS:
        raise InputError("only texts have words to leave out; this model reads something else")
    X = explorer.source(point)
    edits = dict(explorer.view(session).edits)
    if not explorer.points.is_data(point):
        edits[point] = None
    if X is None:
        raise InputError("this model does not hold the text; only texts that it holds have words to leave out")
    clf = edited(explorer.first.clf, edits) if edits else explorer.first.clf
    return _left_out(explorer, clf, next(iter(X)), label)


def of_text(explorer: Explorer, session: str, text: str, label: int) -> dict[str, Any]:
    """The words of a new text."""
    explorer.require_open("it leaves no words out, because exact changes reveal training examples")
    return _left_out(explorer, explorer.view(session).clf, text, label)


def _left_out(explorer: Explorer, clf: Any, text: str, label: int) -> dict[str, Any]:
    """The text in pieces, and for each word the probability (or number) without it; None if nothing is left to read."""
    spans = [found.span() for found in re.finditer(r"\S+", text)][:MOST]
    texts = [text, *(text[:start] + text[end:] for start, end in spans)]
    bad = clf.unreadable(texts)
    if 0 in bad:
        raise InputError(f"the text cannot be read: {bad[0]}")
    rows = [i for i in range(len(texts)) if i not in bad]
    with silent():
        scores = explorer.task.scores(clf, [texts[i] for i in rows])
    subject = explorer.task.subject(scores[0], label)
    found = dict(zip(rows, scores[:, subject].tolist(), strict=True))
    return {
        "subject": plain(explorer.task.subjects[subject]),
        "all": found[0],
        "words": [{"word": text[start:end], "without": found.get(i + 1)} for i, (start, end) in enumerate(spans)],
        "rest": text[spans[-1][1] :].strip()[:4000] if spans else "",
        "n_labels": int(np.shape(scores)[1]),
    }
