"""The letter: one page of plain words for the person whom a decision concerns, from a template that can be replaced.

letter = clf.letter(row, "granted", frozen=["age"], contact="Ms Lee, appeals@bank.example")
print(letter)
letter.write("letter.html")
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from itertools import accumulate
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from dwac import _checks as checks
from dwac.drawing.pages import HTML, MARKDOWN, TEXT, fill
from dwac.drawing.records import MISSING, kind_of, shorten
from dwac.errors import EPSILON, InputError, LabelError, ShapeError, StorageError
from dwac.explain.base import STRANGE, region_name, series
from dwac.explain.classes import Explanation
from dwac.explain.labels import LabelExplanations
from dwac.explain.numbers import NumberExplanation
from dwac.explain.reasons import Contribution, Reasons
from dwac.explain.recourse import Recourse, Way, outcome_words
from dwac.explain.rendering import Rendered, line_width, percent
from dwac.languages import count, current, message, numeral, say, spoken
from dwac.storage.files import replace_file

_TEMPLATES = Path(__file__).parent / "templates"
_FORMS = {".html": HTML, ".htm": HTML, ".md": MARKDOWN, ".txt": TEXT}  # of files, by their suffix
_WIDTH = 80  # characters of a line in a file
_ROOM = 600  # characters of all changes: a letter is one page
_NOT_KNOWN = message("The program cannot name single points that made the difference.")


class LetterPart(NamedTuple):
    """A part of a letter: its title, a paragraph, a list, and a last sentence.

    >>> print(LetterPart("Why", "These points made the difference:", ("income: 102", "seniority: 2")))
    These points made the difference: income: 102; seniority: 2
    """

    title: str
    text: str
    points: tuple[str, ...] = ()
    note: str = ""

    def __str__(self) -> str:
        """What it says, without its title, so that a template can name the part."""
        return " ".join(filter(None, (self.text, "; ".join(self.points), self.note)))


@dataclass(frozen=True, eq=False, repr=False)
class Letter(Rendered):
    """A page for the person concerned: the decision, why, what would change it, how sure it is, and whom to ask.

    If the row is unlike the training data, the prediction set does not hold exactly one label, or `decide` hands it
    over, the letter says that a person decides. It names no training example. Made by `letter` of an estimator.

    >>> import pandas as pd
    >>> from dwac import DWACClassifier
    >>> X = pd.DataFrame({"age": range(20, 80)})
    >>> clf = DWACClassifier(epochs=20, random_state=0, device="cpu").fit(X, ["no"] * 30 + ["yes"] * 30)
    >>> letter = clf.letter(X[:1], "yes", case="A-1", contact="Ms Lee, 555 0100")
    >>> values = letter.values()
    >>> values["about"], values["contact"].points
    ('About: A-1', ('Ms Lee, 555 0100',))
    """

    explanation: Explanation | NumberExplanation
    reasons: Reasons | None = None  # against a similar training example with another outcome; None if not known
    recourse: Recourse | None = None
    case: Any = None  # the id of the row
    sender: str = ""
    contact: str = ""
    words: Mapping[str, str] = field(default_factory=dict)  # the decision in words, by label
    risk: float | None = None  # at which `decide` hands the row over; None if it does not
    day: date = field(default_factory=date.today)

    @property
    def is_strange(self) -> bool:
        """Whether the row is unlike the training data."""
        return self.explanation.typicality is not None and self.explanation.typicality <= STRANGE

    @property
    def is_open(self) -> bool:
        """Whether the prediction set does not hold exactly one label, or the interval has no end."""
        if isinstance(self.explanation, NumberExplanation):
            return self.explanation.interval is not None and not all(map(math.isfinite, self.explanation.interval))
        return self.explanation.label_set is not None and self.explanation.label_set != (self.explanation.label,)

    @property
    def handed_over(self) -> bool:
        """Whether a person has to decide."""
        return self.is_strange or self.is_open or self.risk is not None

    # Parts

    @spoken
    def values(self, *, language: str | None = None) -> dict[str, Any]:
        """What a template can use: plain texts, and parts with a title, a text, points and a note."""
        del language  # see `spoken`
        return {
            "title": say("Letter about a decision"),
            "about": None if self.case is None else say("About: {case}", case=shorten(self.case)),
            "case": None if self.case is None else shorten(self.case),
            "sender": self.sender,
            "date": self.day.isoformat(),
            "language": current(),
            "handed_over": self.handed_over,
            "decision": self._decision(),
            "reasons": None if self.handed_over else self._reasons(),
            "changes": None if self.handed_over else self._changes(),
            "certainty": self._certainty(),
            "contact": self._contact(),
            "program": say(
                "A computer program compared this case with earlier cases whose outcome is known. The more similar an "
                "earlier case is, the more it counts."
            ),
        }

    def _outcome(self, outcome: Any) -> str:
        """A label, in the words for it if there are any, a number or a range."""
        if isinstance(outcome, float) and isinstance(self.explanation, NumberExplanation):
            return self.explanation._outcome_name(outcome)
        words = self.words.get(str(outcome))
        return shorten(outcome_words(outcome)) if words is None else words.rstrip(".")

    @property
    def _own(self) -> Any:
        e = self.explanation
        return float(e.prediction) if isinstance(e, NumberExplanation) else e.label

    def _decision(self) -> LetterPart:
        title = say("The decision")
        if self.handed_over:
            return LetterPart(title, say("The program does not decide this case. A person will."))
        words = self.words.get(str(self._own))
        return LetterPart(title, words or say("The decision is: {outcome}.", outcome=self._outcome(self._own)))

    def _reasons(self) -> LetterPart:
        title, turn = say("Why"), self.explanation.turn
        if turn is not None:
            text = count("This part decided most:", "These parts decided most:", len(turn.parts))
            note = say("If it were different, the answer could be “{outcome}”.", outcome=self._outcome(turn.outcome))
            return LetterPart(title, text, tuple(map(region_name, turn.parts)), note if turn.changed else "")
        parts = [] if self.reasons is None else self.reasons.main()
        if self.reasons is None or not parts:
            return LetterPart(title, say(_NOT_KNOWN))
        text = count(
            "This case was compared with a similar earlier case with the answer “{other}”. This point made the "
            "difference:",
            "This case was compared with a similar earlier case with the answer “{other}”. These points made the "
            "difference, the most important first:",
            len(parts),
            other=self._outcome(self.reasons.other),
        )
        return LetterPart(title, text, tuple(self._reason(self.reasons, part) for part in parts))

    def _reason(self, reasons: Reasons, part: Contribution) -> str:
        mine = f"{reasons.title(part)}: {_in_words(reasons.cell(part, part.value))}"
        if reasons.private:
            return mine
        other = _in_words(reasons.cell(part, part.other_value))
        return say("{mine} (in the other case: {other})", mine=mine, other=other)

    def _changes(self) -> LetterPart | None:
        if self.recourse is None or self.recourse.reached:
            return None
        title, known = say("What would change it"), {"wanted": self._outcome(self.recourse.wanted)}
        ways: dict[tuple[Any, ...], Way] = {}  # the first with these columns
        for way in self.recourse.ways:
            if not way.atypical:
                ways.setdefault(way.columns, way)
        if not ways:
            return LetterPart(title, say("No change of what can be changed would make the answer “{wanted}”.", **known))
        changes = [self._change(way) for way in ways.values()]
        ends = accumulate(map(len, changes))
        shown = [change for change, end in zip(changes, ends, strict=True) if end <= _ROOM] or changes[:1]
        text = count(
            "If everything else stays the same, the answer would be “{wanted}” with this change:",
            "If everything else stays the same, the answer would be “{wanted}” with one of these changes:",
            len(shown),
            **known,
        )
        note = say("This is how the program would answer today. It is not a promise.")
        return LetterPart(title, text, tuple(shown), note)

    def _change(self, way: Way) -> str:
        legend = self.explanation.legend
        steps = []
        for each in way.changes:
            if way.precedent is None:
                steps.append(say("another value of {column}", column=legend.title(each.column)))
                continue
            value, to = (_in_words(legend.value(each.column, part)) for part in (each.value, each.to))
            steps.append(say("{column}: {to} instead of {value}", column=legend.title(each.column), to=to, value=value))
        return series(steps)

    def _certainty(self) -> LetterPart:
        title = say("Why a person decides") if self.handed_over else say("How sure the program is")
        facts = self._doubts() if self.handed_over else self._assurances()
        return LetterPart(title, " ".join(facts))

    def _doubts(self) -> list[str]:
        e, facts = self.explanation, []
        if self.is_strange:
            n = numeral(f"{100 * STRANGE:g}")
            facts.append(
                say("This case is unlike those that the program knows: at most {n} of 100 are as unusual.", n=n)
            )
        if self.is_open and isinstance(e, Explanation) and e.label_set:
            labels = series([say("“{words}”", words=self._outcome(label)) for label in e.label_set])
            facts.append(say("The program cannot tell which of these is right: {labels}.", labels=labels))
        elif self.is_open:
            facts.append(say("The program finds no answer that fits well enough."))
        if self.risk is not None:
            text = message("Of 100 decisions, at most {n} may be wrong, and this case is too uncertain for that.")
            facts.append(say(text, n=numeral(f"{100 * self.risk:.3g}")))
        return facts

    def _assurances(self) -> list[str]:
        e, facts = self.explanation, []
        n = numeral(f"{100 * (1 - (e.epsilon or EPSILON)):.3g}")
        if isinstance(e, Explanation):
            text = message(
                "Of the earlier cases, counted by how similar they are to this one, {share} have the outcome "
                "“{outcome}”."
            )
            share = percent(e.probability, private=e.private)
            facts.append(say(text, share=share, outcome=self._outcome(e.label)))
            if e.label_set is not None:
                text = message(
                    "In about {n} of 100 cases, the right answer is among those that the program thinks possible. Here "
                    "it thinks only this one possible."
                )
                facts.append(say(text, n=n))
        elif e.interval is not None:
            low, high = map(e._outcome_name, e.interval)
            text = message(
                "In about {n} of 100 cases, the true number lies within the limits that the program states. Here these "
                "are {low} and {high}."
            )
            facts.append(say(text, n=n, low=low, high=high))
        if e.typicality is None:
            return [*facts, say("How often the program is right was not measured.")]
        return [*facts, say("This case is like others that the program knows.")]

    def _contact(self) -> LetterPart:
        ask = say(
            "Is something about this case wrong, do you have a question, or shall a person look at it again? Please "
            "ask:"
        )
        lines = tuple(line.strip() for line in self.contact.splitlines() if line.strip())
        return LetterPart(say("Whom to ask"), ask, lines or (self.sender or say("the sender of this letter"),))

    # Pages

    def __repr__(self) -> str:
        """What the letter says, in one line."""
        return f"<{type(self).__name__}: {self._decision().text}>"

    @spoken
    def to_text(self, width: int | None = None, *, language: str | None = None) -> str:
        """As plain text, in lines of at most `width` characters."""
        del language  # see `spoken`
        return self._wrapped(TEXT, line_width() if width is None else width)

    @spoken
    def to_html(self, *, language: str | None = None) -> str:
        """As a page that fits a sheet of paper; every value escaped."""
        del language  # see `spoken`
        return fill((_TEMPLATES / "letter.html").read_text("utf-8"), HTML, self.values())

    def _wrapped(self, form: str, width: int) -> str:
        lines = fill((_TEMPLATES / "letter.txt").read_text("utf-8"), form, self.values()).splitlines()
        wrapped = (
            textwrap.wrap(line, width, subsequent_indent="  " * line.startswith("- "), break_on_hyphens=False) or [""]
            for line in lines
        )
        return "\n".join(line for some in wrapped for line in some)

    @spoken
    def render(
        self, template: str | PathLike[str] | None = None, form: str | None = None, *, language: str | None = None
    ) -> str:
        """The letter from a template of yours, a file for Jinja2, or from that of dwac.

        It runs in a sandbox, may use the names of `values()`, and values are escaped for the `form` of the letter:
        "html", "markdown" or "text", by default that of the template's suffix.
        """
        del language  # see `spoken`
        if template is None:
            return self.to_html() if form == HTML else self._wrapped(form or TEXT, _WIDTH)
        suffixes = [each.lower() for each in reversed(Path(template).suffixes)]
        own = next((_FORMS[each] for each in suffixes if each in _FORMS), None)
        try:
            source = Path(template).read_text("utf-8")
        except (OSError, UnicodeError) as error:
            raise InputError(f"the template {template} cannot be read: {error}") from None
        form = HTML if HTML in (own, form) else form or own or TEXT  # a page is escaped, whatever it is called
        return fill(source, form, self.values(), name=str(template))

    def write(
        self, path: str | PathLike[str], template: str | PathLike[str] | None = None, *, language: str | None = None
    ) -> Path:
        """Write the letter to a .html, .md or .txt file; template and language as for `render`."""
        content = self.render(template, form_of(path), language=language)
        try:
            replace_file(Path(path), content.encode("utf-8", "replace"))
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error.strerror}; choose another path") from None
        return Path(path)


def form_of(path: str | PathLike[str]) -> str:
    """The form of a file, by its suffix."""
    form = _FORMS.get(Path(path).suffix.lower())
    if form is None:
        raise InputError(f"the file name of a letter must end in .html, .md or .txt; got {path}")
    return form


def read_words(words: Any, labels: Collection[Any]) -> dict[str, str]:
    """The decision in words, by label: from a CSV file with the columns label and words, or a mapping."""
    if isinstance(words, str | PathLike):
        try:
            frame = pd.read_csv(words, dtype=str, keep_default_na=False, skipinitialspace=True, encoding="utf-8-sig")
        except (OSError, ValueError, pd.errors.ParserError) as error:
            raise InputError(f"words must be a CSV file with the columns label and words: {error}") from None
        if list(frame.columns) != ["label", "words"]:
            found = checks.listed(map(str, frame.columns))
            raise InputError(f"words must be a CSV file with the columns label and words; got {found}")
        words = dict(zip(frame["label"], frame["words"], strict=True))
    known = {str(label) for label in labels}
    texts = {str(label): " ".join(str(text).split()) for label, text in (words or {}).items()}
    for label in texts:
        if label not in known:
            raise LabelError(f"words must be for labels of the model, {checks.listed(sorted(known))}; got {label!r}")
    return {label: text for label, text in texts.items() if text}


def make_letter(
    clf: Any,
    X: Any,
    wanted: Any = None,
    *,
    about: Any = None,
    words: Any = None,
    risk: float | None = None,
    epsilon: float = EPSILON,
    private: bool | None = None,
    sender: str = "",
    contact: str = "",
    case: Any = None,
    **limits: Any,
) -> Letter:
    """The letter about a row; see `letter` of an estimator. limits: as for `recourse`."""
    explanations = clf.explain(X, epsilon=epsilon, private=private)
    if len(explanations) != 1:
        raise ShapeError(f"a letter is about one row; got {len(explanations):,}")
    e: Any = explanations[0]
    against = None
    case = explanations.ids[0] if case is None and isinstance(X, pd.DataFrame | pd.Series) else case
    if e.unreadable:
        raise InputError(f"there is no letter about a row that could not be read: {e.unreadable}")
    if isinstance(e, LabelExplanations):
        if about not in e:
            raise InputError(
                f"with several labels, about must name the one that the letter is about, of {checks.listed(e)}; got "
                f"{about!r}"
            )
        wanted = (about if e.probabilities[about] < 0.5 else f"not {about}") if wanted is None else wanted
        e, names = e[about], [*e[about].probabilities]
    elif about is not None:
        raise InputError(f"about is for models of several labels; got {about!r}; leave it out")
    elif isinstance(e, NumberExplanation):
        names = []
        if len(e.names) > 1:
            raise InputError(f"a letter is about one number; this model predicts {checks.listed(e.names)}")
    else:
        names, others = [*e.probabilities], {label: p for label, p in e.probabilities.items() if label != e.label}
        if wanted is not None and wanted not in names:
            raise LabelError(f"wanted must be one of {checks.listed(names)}; got {wanted!r}")
        wanted = max(others, key=lambda label: others[label], default=None) if wanted is None else wanted
        against = wanted if wanted != e.label else None
    given: dict[str, Any] = {"sender": sender, "contact": contact, "words": read_words(words, names)}
    decided = risk is None or bool(clf.decide(X, risk, private=private).to_frame()["decided"].iloc[0])
    letter = Letter(e, case=case, risk=None if decided else risk, **given)
    if letter.handed_over or not len(clf.examples_):
        return letter
    recourse = reasons = None
    if kind_of(e.record) == "table":
        with suppress(InputError):  # no training example has another outcome
            reasons = e.reasons(against, tied=limits.get("tied", ()))
    if wanted is not None and (limits or kind_of(e.record) == "table"):
        recourse = clf.recourse(X, wanted, epsilon=epsilon, private=private, **limits)[0]
    return replace(letter, reasons=reasons, recourse=recourse)


def _in_words(value: str) -> str:
    """The text of a value; a missing one is a dash elsewhere."""
    return say("missing") if value == MISSING else value
