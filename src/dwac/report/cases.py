"""Single predictions on a page: the example, its explanation, and the training examples that voted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from dwac._checks import listed
from dwac.drawing.legend import compare
from dwac.drawing.records import kind_of, shorten
from dwac.errors import InputError
from dwac.estimator.evaluation import amount
from dwac.estimator.preparation import take
from dwac.explain import Explanation, Neighbor, privacy
from dwac.explain.base import VoteExplanation
from dwac.explain.reasons import Reasons, example_title
from dwac.explain.rendering import OWN_HEADS
from dwac.languages import count, label_name, numeral, say, speaking
from dwac.report.findings import Findings
from dwac.report.measures import percent
from dwac.report.parts import Photo, Plot, ReportTable, RichCell, brief, images, picture
from dwac.tasks import LABELS, NUMBERS

_LONGEST_TEXT, _MOST_WORDS, _MOST_COLUMNS, _MOST_LISTED = 600, 150, 20, 12


class ShownVoter(NamedTuple):
    """A voter beside the picture of the example: its picture, label, name, and share of the vote."""

    picture: Photo
    label: str
    name: str
    bar: RichCell


class ShownVotes(NamedTuple):
    """The voters beside the example: the parts that a template shows, in this order."""

    label: str | None = None  # the label voted on, if there are several
    reason: str = ""  # the prediction of that label, and what decides
    reasons: ReportTable | None = None  # the columns that decide between the example and a precedent
    patches: Sequence[Plot] = ()  # the same of images
    recourse: Sequence[str] = ()  # what would have to be different for the other label
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
    """A prediction, how it compares with the truth, its voters, and the explanation: what precedes and follows them."""

    name: str
    predicted: str
    verdict: str
    votes: list[ShownVotes]
    lead: list[str]
    details: list[str]


def explain_cases(findings: Findings, most: int, k: int) -> list[tuple[str, list[Case]]]:
    """At most so many explained predictions of each kind, each with k voters or groups; empty if there are none."""
    rows = findings.cases(most)
    if not any(rows.values()):
        return []
    with speaking(findings.language):
        return [(kind, _explain(findings, chosen, k)) for kind, chosen in rows.items()]


def _explain(findings: Findings, rows: list[int], k: int) -> list[Case]:
    if not rows:
        return []
    ids: Any = range(len(findings.ids)) if findings.private else findings.ids
    settings: dict[str, Any] = {"private": findings.private, "epsilon": findings.result.epsilon}
    explanations = findings.clf.explain(take(findings.X, np.array(rows)), k, **settings)
    return [
        _case(each, ids[row], *findings.answer(row), first=place == 0, recourse=partial(_recourse, findings, row))
        for place, (each, row) in enumerate(zip(explanations, rows, strict=True))
    ]


def _case(
    explanation: Any, name: Any, predicted: str, verdict: str, *, first: bool, recourse: Callable[[Any], list[str]]
) -> Case:
    """One prediction. Several labels: the votes on each predicted label, or else on the most probable one.

    first: of its kind. recourse: what would give the example another label, in words.
    """
    if isinstance(explanation, VoteExplanation):
        reasons = _reasons(explanation, first=first)
        ways = [] if reasons is None or not first else recourse(reasons.other)
        votes = [_votes(explanation)._replace(**_between(reasons), recourse=ways)]
    else:
        labels = explanation.labels or sorted(explanation, key=lambda label: -explanation[label].probability)[:1]
        votes = [
            _votes(each)._replace(
                label=shorten(label), reason=each.sentences()[0], **_between(_reasons(each, first=first))
            )
            for label, each in ((label, explanation[label]) for label in labels)
        ]
    whole = isinstance(explanation, Explanation) and not explanation.private
    lead = explanation.lead() or explanation.sentences()
    details = [*([_shown_share(explanation)] if whole else []), *explanation.details()]
    return Case(shorten(name), predicted, verdict, votes, lead, details)


def _reasons(explanation: VoteExplanation, *, first: bool) -> Reasons | None:
    """The reasons of a prediction; of texts and images only for the first of its kind, because they take long."""
    reasons = explanation.main_reasons
    if reasons is not None or not (kind_of(explanation.record) == "table" or (first and not explanation.private)):
        return reasons
    try:
        return explanation.reasons()
    except InputError:  # the model holds no training examples, or gives all the same label
        return None


def _between(reasons: Reasons | None) -> dict[str, Any]:
    """The columns or phrases between the example and the precedent, with bars; of an image, its patches."""
    if reasons is None or not reasons.deciding:
        return {}
    if kind_of(reasons.record) == "image":
        return {"patches": images(reasons.plot())}
    most, precedent = max(abs(part.contribution) for part in reasons.deciding), reasons.precedent
    rows = []
    for part in reasons.deciding[:_MOST_LISTED]:
        cells = [] if precedent is None else [reasons.cell(part, part.value), reasons.cell(part, part.other_value)]
        size, other = abs(part.contribution) / most, part.contribution < 0
        rows.append((reasons.title(part), *cells, RichCell("signed", reasons.signed(part.contribution), size, other)))
    heads = [] if precedent is None else [say("this example"), example_title(precedent.id)]
    left = len(reasons.deciding[_MOST_LISTED:])
    caption = say("{cases}. What decides", cases=reasons.headline)
    return {"reasons": ReportTable(caption, ("", *heads, _scale(reasons)), rows, left=left)}


def _scale(reasons: Reasons) -> str:
    if reasons.unit != "log-odds":
        number = reasons.unit == "number"
        return say("contribution to the number") if number else say("contribution to {label}", label=reasons.unit)
    return say("contribution to the log-odds of {label}", label=shorten(label_name(reasons.label)))


def _recourse(findings: Findings, row: int, label: Any) -> list[str]:
    """The smallest changes that would give a test row this label, in words; for classes of a table."""
    if findings.clf.target_.kind in (LABELS, NUMBERS) or findings.clf.encoder_.kind != "tabular":
        return []
    (ways,) = findings.clf.recourse(take(findings.X, np.array([row])), label, private=findings.private)
    sentences: list[str] = ways.sentences()
    return sentences


def _votes(explanation: VoteExplanation) -> ShownVotes:
    if explanation.private and not isinstance(explanation, Explanation):
        return ShownVotes(table=_ranges(explanation))
    kind = "" if explanation.private else kind_of(explanation.record)
    groups = None if explanation.few_suffice else _groups(explanation)
    if groups is not None and not kind:
        return ShownVotes(groups=groups)
    show = {"image": _images, "text": _text, "table": _columns, "": _voters}[kind]
    return show(explanation)._replace(groups=groups)


def _ranges(explanation: VoteExplanation) -> ReportTable | None:
    """The votes for a private number, in ranges."""
    frame = explanation.to_frame()
    if not len(frame):
        return None
    rows = [
        (*map(str, cells), RichCell("bar", privacy.percent(share), share))
        for *cells, share in frame.itertuples(index=False, name=None)
    ]
    heads = [say(name) if name in OWN_HEADS else str(name) for name in frame.columns[:-1]]
    return ReportTable(say("Votes by range"), (*heads, say("share of the vote")), rows)


def _groups(explanation: VoteExplanation) -> ReportTable:
    """The heaviest groups."""
    groups = explanation.shown_groups
    described = any(group.compared for group in groups)
    rows = [
        (
            vote(group.label),
            _bar(group.face, explanation)._replace(size=1),
            numeral(f"{group.size:,}"),
            *((group.compared or "–",) if described else ()),
            _name(group.face),
        )
        for group in groups
    ]
    apart = (say("this example and the group"),) if described else ()
    head = (_target_name(explanation), say("share of the vote"), say("examples"), *apart, say("most alike"))
    return ReportTable(say("Votes by group, heaviest first"), head, rows, numbers=[2])


def _voters(explanation: VoteExplanation) -> ShownVotes:
    first = 1 if explanation.private else 0  # labels only
    rows = [(_name(voter), vote(voter.label), _bar(voter, explanation))[first:] for voter in explanation.shown]
    head = (say("training example"), _target_name(explanation), say("share of the vote"))[first:]
    caption = say("Votes per label") if explanation.private else _order(explanation)
    return ShownVotes(table=ReportTable(caption, head, rows))


def _images(explanation: VoteExplanation) -> ShownVotes:
    voters = [
        ShownVoter(
            picture(voter.record, say("training example {id}", id=_name(voter))),
            vote(voter.label),
            _name(voter),
            _bar(voter, explanation),
        )
        for voter in explanation.shown
    ]
    return ShownVotes(picture=picture(explanation.record, say("this example")), voters=voters)


def _text(explanation: VoteExplanation) -> ShownVotes:
    rows = [
        (_name(voter), vote(voter.label), _bar(voter, explanation), brief(voter.record)) for voter in explanation.shown
    ]
    head = (say("training example"), _target_name(explanation), say("share of the vote"), say("text"))
    table = ReportTable(_order(explanation), head, rows)
    if not explanation.attention:
        return ShownVotes(text=shorten(explanation.record["text"], _LONGEST_TEXT), table=table)
    most = max(weight for _, weight in explanation.attention) or 1.0
    words = [(word, weight / most, numeral(percent(weight))) for word, weight in explanation.attention[:_MOST_WORDS]]
    return ShownVotes(words=words, more=len(explanation.attention) > _MOST_WORDS, table=table)


def _columns(explanation: VoteExplanation) -> ShownVotes:
    """The columns of a row beside those of its voters."""
    voters = explanation.shown
    columns = compare(explanation.record, [voter.record for voter in voters], 40, explanation.legend)
    differing = [column for column in columns if any(column.differs)]
    same = [f"{column.name} {column.value}" for column in columns if not any(column.differs)]
    rows: list[tuple[Any, ...]] = [(say("share of the vote"), "–", *(_bar(voter, explanation) for voter in voters))]
    for column in differing[:_MOST_COLUMNS]:
        cells = zip(column.others, column.differs, strict=True)
        rows.append(
            (column.name, column.value, *(RichCell("different", text) if differs else text for text, differs in cells))
        )
    heads = [RichCell("named", vote(voter.label)[:40], name=_name(voter)) for voter in voters]
    caption = say("{order}; ≠ marks values that differ", order=_order(explanation))
    more = len(differing[_MOST_COLUMNS:])
    notes = [say("Same in all: {values}.", values=listed(same, _MOST_LISTED, str))] if same else []
    notes += [count("{n} more column differs.", "{n} more columns differ.", more)] if more else []
    table = ReportTable(caption, (say("column"), say("this example"), *heads), rows)
    return ShownVotes(table=table, note=" ".join(notes), is_compared=True)


def vote(value: Any) -> str:
    """What a voter or group votes for: a label, a number, the mean and range of numbers, or several of these."""
    if hasattr(value, "low") and hasattr(value, "high"):
        mean, low, high = (numeral(amount(each)) for each in (value.mean, value.low, value.high))
        return mean if value.low == value.high else say("{mean} ({low} to {high})", mean=mean, low=low, high=high)
    if isinstance(value, tuple):
        return ", ".join(map(vote, value))
    return numeral(amount(value)) if isinstance(value, float) else shorten(label_name(value))


def _bar(voter: Neighbor, explanation: VoteExplanation) -> RichCell:
    text = privacy.percent(voter.share) if explanation.private else numeral(percent(voter.share))
    other = isinstance(explanation, Explanation) and voter.label != explanation.label  # numbers have no other label
    return RichCell("bar", text, voter.share, other, voter.size)


def _name(voter: Neighbor) -> str:
    return "–" if voter.id is None else shorten(voter.id)


def _target_name(explanation: VoteExplanation) -> str:
    return say("label") if isinstance(explanation, Explanation) else say("number")


def _order(explanation: VoteExplanation) -> str:
    """A caption that says which voters are shown, and in which order."""
    if not explanation.few_suffice:
        return say("For each group, the member most like this example")
    weighted = explanation.n_examples != explanation.n_references
    return say("Votes, heaviest representative first") if weighted else say("Votes, nearest training example first")


def _shown_share(explanation: Explanation) -> str:
    """The share of the vote that the shown voters or groups hold, in words."""
    voters = explanation.shown
    known = {
        "share": numeral(percent(sum(voter.share for voter in voters))),
        "mine": sum(voter.label == explanation.label for voter in voters),
        "all": numeral(f"{explanation.n_references:,}"),
    }
    if not explanation.few_suffice:
        return say(
            "{n} of {groups} groups are shown, each by its member most like this example; they have {share} of the "
            "vote, and {mine} of them the predicted label.",
            n=len(voters),
            groups=len(explanation.groups),
            **known,
        )
    if explanation.n_examples != explanation.n_references:
        return count(
            "The heaviest of {all} representatives, shown here, has {share} of the vote; {mine} of {n} has the "
            "predicted label.",
            "The {n} heaviest of {all} representatives, shown here, have {share} of the vote; {mine} of {n} have the "
            "predicted label.",
            len(voters),
            **known,
        )
    return count(
        "The nearest of {all} training examples, shown here, has {share} of the vote; {mine} of {n} has the predicted "
        "label.",
        "The {n} nearest of {all} training examples, shown here, have {share} of the vote; {mine} of {n} have the "
        "predicted label.",
        len(voters),
        **known,
    )
