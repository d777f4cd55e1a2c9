"""Single predictions on a page: the example, its explanation, and the training examples that voted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from dwac._checks import listed
from dwac.drawing.records import compared, kind_of, written
from dwac.estimator.evaluation import amount
from dwac.estimator.preparation import take
from dwac.explain import Explanation, Neighbor, privacy
from dwac.explain.base import VoteExplanation
from dwac.report.findings import Findings
from dwac.report.measures import percent
from dwac.report.parts import Different, Named, Photo, ReportTable, VoteShare, brief, picture

_LONGEST_TEXT, _MOST_WORDS, _MOST_COLUMNS, _MOST_LISTED = 600, 150, 20, 12
Say = Callable[[Any, int], tuple[str, str]]


class ShownVoter(NamedTuple):
    """A voter beside the picture of the example: its picture, label, name, and share of the vote."""

    picture: Photo
    label: str
    name: str
    bar: VoteShare


class ShownVotes(NamedTuple):
    """The voters beside the example: the parts that a template shows, in this order."""

    label: str | None = None  # the label voted on, if there are several
    groups: ReportTable | None = None
    picture: Photo | None = None
    voters: Sequence[ShownVoter] = ()
    words: Sequence[tuple[str, float, str]] = ()  # of a text: word, attention between 0 and 1, attention in per cent
    text: str = ""  # shown instead of words
    more: bool = False  # whether the text has more words
    table: ReportTable | None = None
    note: str = ""
    is_compared: bool = False  # whether the table compares columns


class Case(NamedTuple):
    """A prediction, how it compares with the truth, its voters, and the explanation in sentences."""

    name: str
    predicted: str
    verdict: str
    votes: list[ShownVotes]
    sentences: list[str]


def explained_cases(
    findings: Findings, rows: dict[str, list[int]], say: Say, **settings: Any
) -> list[tuple[str, list[Case]]]:
    """Explained predictions of each kind, for the chosen rows of each; empty if there are none.

    say: returns the prediction of a row, and how it compares with the truth, in words. settings: of `explain`.
    """
    if not any(rows.values()):
        return []
    cases: list[tuple[str, list[Case]]] = []
    ids: Any = range(len(findings.ids)) if findings.private else findings.ids
    for kind, chosen in rows.items():
        explanations: list[Any] = []
        if chosen:
            explanations = findings.clf.explain(
                take(findings.X, np.array(chosen)), private=findings.private, **settings
            )
        pairs = zip(explanations, chosen, strict=True)
        cases.append((kind, [_case(each, ids[row], *say(findings, row)) for each, row in pairs]))
    return cases


def _case(explained: Any, name: Any, predicted: str, verdict: str) -> Case:
    """One prediction. Several labels: the votes on each predicted label, or else on the most probable one."""
    if isinstance(explained, VoteExplanation):
        votes = [_votes(explained)]
    else:
        labels = explained.labels or sorted(explained, key=lambda label: -explained[label].probability)[:1]
        votes = [_votes(explained[label])._replace(label=written(label)) for label in labels]
    whole = isinstance(explained, Explanation) and not explained.private
    sentences = explained.sentences() + ([_shown_share(explained)] if whole else [])
    return Case(written(name), predicted, verdict, votes, sentences)


def _votes(explained: VoteExplanation) -> ShownVotes:
    if explained.private and not isinstance(explained, Explanation):
        return ShownVotes(table=_ranges(explained))
    kind = "" if explained.private else kind_of(explained.record)
    groups = None if explained.few_suffice else _groups(explained)
    if groups is not None and not kind:
        return ShownVotes(groups=groups)
    show = {"image": _images, "text": _text, "table": _columns, "": _voters}[kind]
    return show(explained)._replace(groups=groups)


def _ranges(explained: VoteExplanation) -> ReportTable | None:
    """The votes for a private number, in ranges."""
    frame = explained.to_frame()
    if not len(frame):
        return None
    rows = [
        (*map(str, cells), VoteShare(share, privacy.percent(share)))
        for *cells, share in frame.itertuples(index=False, name=None)
    ]
    return ReportTable("Votes by range", (*map(str, frame.columns[:-1]), "share of the vote"), rows)


def _groups(explained: VoteExplanation) -> ReportTable:
    """The heaviest groups."""
    groups = explained.shown_groups
    described = any(group.description for group in groups)
    rows = [
        (
            vote(group.label),
            _bar(group.face, explained)._replace(size=1),
            f"{group.size:,}",
            *((group.description or "–",) if described else ()),
            _name(group.face),
        )
        for group in groups
    ]
    apart = ("what sets it apart",) if described else ()
    head = (_what(explained), "share of the vote", "examples", *apart, "most alike")
    return ReportTable("Votes by group, heaviest first", head, rows, numbers=[2])


def _voters(explained: VoteExplanation) -> ShownVotes:
    first = 1 if explained.private else 0  # labels only
    rows = [(_name(voter), vote(voter.label), _bar(voter, explained))[first:] for voter in explained.shown]
    head = ("training example", _what(explained), "share of the vote")[first:]
    return ShownVotes(table=ReportTable("Votes per label" if explained.private else _order(explained), head, rows))


def _images(explained: VoteExplanation) -> ShownVotes:
    voters = [
        ShownVoter(
            picture(voter.record, f"training example {_name(voter)}"),
            vote(voter.label),
            _name(voter),
            _bar(voter, explained),
        )
        for voter in explained.shown
    ]
    return ShownVotes(picture=picture(explained.record, "this example"), voters=voters)


def _text(explained: VoteExplanation) -> ShownVotes:
    rows = [(_name(voter), vote(voter.label), _bar(voter, explained), brief(voter.record)) for voter in explained.shown]
    head = ("training example", _what(explained), "share of the vote", "text")
    table = ReportTable(_order(explained), head, rows)
    if not explained.attention:
        return ShownVotes(text=written(explained.record["text"], _LONGEST_TEXT), table=table)
    most = max(weight for _, weight in explained.attention) or 1.0
    words = [(word, weight / most, percent(weight)) for word, weight in explained.attention[:_MOST_WORDS]]
    return ShownVotes(words=words, more=len(explained.attention) > _MOST_WORDS, table=table)


def _columns(explained: VoteExplanation) -> ShownVotes:
    """The columns of a row beside those of its voters."""
    voters = explained.shown
    columns = compared(explained.record, [voter.record for voter in voters], most=40)
    differing = [column for column in columns if any(column.differs)]
    same = [f"{column.name} {column.value}" for column in columns if not any(column.differs)]
    rows: list[tuple[Any, ...]] = [("share of the vote", "–", *(_bar(voter, explained) for voter in voters))]
    for column in differing[:_MOST_COLUMNS]:
        cells = zip(column.others, column.differs, strict=True)
        rows.append((column.name, column.value, *(Different(text) if differs else text for text, differs in cells)))
    heads = [Named(vote(voter.label)[:40], _name(voter)) for voter in voters]
    caption = f"{_order(explained)}; ≠ marks values that differ"
    more = len(differing[_MOST_COLUMNS:])
    left = f" {more} more column{'s differ' if more > 1 else ' differs'}." if more else ""
    note = (f"Same in all: {listed(same, _MOST_LISTED, str)}." if same else "") + left
    return ShownVotes(table=ReportTable(caption, ("column", "this example", *heads), rows), note=note, is_compared=True)


def vote(value: Any) -> str:
    """What a voter or group votes for: a label, a number, the mean and range of numbers, or several of these."""
    if hasattr(value, "low") and hasattr(value, "high"):
        alone = value.low == value.high
        return amount(value.mean) if alone else f"{amount(value.mean)} ({amount(value.low)} to {amount(value.high)})"
    if isinstance(value, tuple):
        return ", ".join(map(vote, value))
    return amount(value) if isinstance(value, float) else written(value)


def _bar(voter: Neighbor, explained: VoteExplanation) -> VoteShare:
    text = privacy.percent(voter.share) if explained.private else percent(voter.share)
    other = isinstance(explained, Explanation) and voter.label != explained.label  # numbers have no other label
    return VoteShare(voter.share, text, other, voter.size)


def _name(voter: Neighbor) -> str:
    return "–" if voter.id is None else written(voter.id)


def _what(explained: VoteExplanation) -> str:
    return "label" if isinstance(explained, Explanation) else "number"


def _order(explained: VoteExplanation) -> str:
    """A caption that says which voters are shown, and in which order."""
    if not explained.few_suffice:
        return "Of each group the member most like this example"
    weighted = explained.n_examples != explained.n_references
    return f"Votes, {'heaviest representative' if weighted else 'nearest training example'} first"


def _shown_share(explained: Explanation) -> str:
    """The share of the vote that the shown voters or groups hold, in words."""
    voters = explained.shown
    share = sum(voter.share for voter in voters)
    mine = sum(voter.label == explained.label for voter in voters)
    if not explained.few_suffice:
        return (
            f"{len(voters)} of {len(explained.groups)} groups are shown, each by its member most like this example; "
            f"they have {percent(share)} of the vote, and {mine} of them the predicted label."
        )
    weighted = explained.n_examples != explained.n_references
    order, who = ("heaviest", "representatives") if weighted else ("nearest", "training examples")
    few = f"The {order}" if len(voters) == 1 else f"The {len(voters)} {order}"
    return (
        f"{few} of {explained.n_references:,} {who}, shown here, have {percent(share)} of the vote; "
        f"{mine} of {len(voters)} have the predicted label."
    )
