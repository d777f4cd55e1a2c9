"""The model card in Markdown: purpose, data, results, groups, limits; with the fields of Hugging Face's cards."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dwac._checks import listed
from dwac.drawing.pages import MARKDOWN, fill, one_line
from dwac.drawing.records import plain
from dwac.estimator.evaluation import Fact, GroupComparison
from dwac.explain import privacy
from dwac.report.card import KINDS, LEAD, LEADS
from dwac.report.filing import filed_facts
from dwac.report.findings import Findings
from dwac.report.measures import Estimator, percent
from dwac.report.worth import columns_of_people
from dwac.tasks import LABELS, NUMBERS

_TEMPLATE = Path(__file__).parent / "templates" / "card.md"
_INPUTS = {"tabular": "tabular", "image": "image", "text": "text", "huggingface": "text"}
_NOT_STATED = "not stated"
_DIGITS = 6  # of numbers in the front matter


def card_text(
    findings: Findings, filed: Sequence[Fact], title: str, notes: Sequence[str], purpose: str, licence: str, place: str
) -> str:
    """The card of a model, from findings that compare groups; filed: what it is about, by name and hash."""
    groups: GroupComparison = findings.result.groups
    results = {
        "notes": notes,
        "facts": findings.result.facts,
        "measures": list(zip(groups.measures, groups.cells("all")[0][2], strict=True)),
        "n": f"{findings.result.n:,}",
        "divisions": [_tables(groups, by) for by in compared(groups)],
        "group_notes": groups.notes if compared(groups) else [],
        "limits": limits(findings),
    }
    body = _body(findings.clf, findings.n_examples, filed, title, purpose, licence, place, results)
    return f"{front_matter(_fields(findings, groups, filed, title, licence))}\n\n{body}"


def untested_card(clf: Estimator, title: str, purpose: str, licence: str, place: str) -> str:
    """The card of a model without test rows: what it is, what it reads and how to load it, but no results."""
    n, filed = round(float(clf.references_.sizes.sum())), filed_facts(clf, private=clf.private_)
    no_results: dict[str, Any] = dict.fromkeys(("notes", "facts", "measures", "divisions", "group_notes"), ())
    no_results["limits"] = ["The model was not tested for this card, so nothing is known about its errors."]
    body = _body(clf, privacy.count(n) if clf.private_ else n, filed, title, purpose, licence, place, no_results)
    return f"{front_matter(_about(clf, licence))}\n\n{body}"


def _body(
    clf: Estimator,
    n_training: int,
    filed: Sequence[Fact],
    title: str,
    purpose: str,
    licence: str,
    place: str,
    results: dict[str, Any],
) -> str:
    """The card below its front matter. results: the values of its other sections."""
    values = {
        "title": title,
        "purpose": purpose or "Not stated.",
        "lead": LEADS.get(clf.target_.kind, LEAD),
        "licence": licence or _NOT_STATED,
        "filed": filed,
        "n_training": f"{n_training:,}",
        "kind": KINDS.get(clf.encoder_.kind, "cases"),
        "fingerprint": clf.fingerprint_,
    }
    code = json.dumps(place).replace("{", r"\u007b")  # in code nothing is a mark, and a place is no template
    template = _TEMPLATE.read_text("utf-8").replace('"model"', code)
    return fill(template, MARKDOWN, values | results)


def _tables(groups: GroupComparison, by: str) -> list[tuple[list[Any], list[Any]]]:
    """(head, rows) of the tables of a division: values with intervals, then the largest differences."""
    frames = [*groups.texts(by, intervals=True), groups.largest(by)]
    return [(list(frame.columns), frame.to_numpy().tolist()) for frame in frames]


def compared(groups: GroupComparison | None) -> list[str]:
    """The divisions with more than one group."""
    if groups is None:
        return []
    sizes = groups.table.groupby("by")["group"].nunique()
    return [by for by in groups.divisions if sizes[by] > 1]


def limits(findings: Findings) -> list[str]:
    """What was not compared, which groups are small, and how many rows are unlike the training data."""
    groups, divisions = findings.result.groups, compared(findings.result.groups)
    left = [name for name in columns_of_people(findings.clf) if name not in " × ".join(divisions).split(" × ")]
    facts = [] if divisions else ["No groups were compared: nothing is known about differences between groups."]
    if left and not findings.private:
        facts.append(f"Groups were not compared by {listed(left, 12, str)}.")
    if divisions and groups.small:
        facts.append(f"Little is known about small groups: {listed(groups.small, 12, str)} rows.")
    if findings.typicality is None:
        facts.append("The model cannot tell when a row is unlike its training data: it has no calibration rows.")
    else:
        share = percent(findings.strange.mean())
        facts.append(f"{share} of the test rows are unlike the training data: leave such rows to a person.")
    return facts


# Front matter


def front_matter(fields: dict[str, Any]) -> str:
    """Fields as YAML between two lines of dashes.

    >>> print(front_matter({"tags": ["a: b"], "results": [{"value": 1e-07, "name": "#1"}]}))
    ---
    tags:
      - "a: b"
    results:
      - value: 1.0e-07
        name: "#1"
    ---
    """
    return "\n".join(["---", *_yaml(fields), "---"])


def _yaml(value: Any, depth: int = 0) -> list[str]:
    """The lines of a dict or list; texts are quoted as in JSON, on one line."""
    lines, start = [], "  " * depth
    for key, part in value.items() if isinstance(value, dict) else ((None, part) for part in value):
        head = start + ("- " if key is None else f"{key}:")
        if isinstance(part, dict | list):
            inner = _yaml(part, depth + 1)
            lines += [head + inner[0].lstrip(), *inner[1:]] if key is None else [head, *inner]
        else:
            text = json.dumps(one_line(part) if isinstance(part, str) else part, ensure_ascii=False, allow_nan=False)
            text = re.sub(r"^(-?\d+)e", r"\1.0e", text)  # YAML 1.1 takes 1e-07 for a text
            lines.append(f"{head}{text}" if key is None else f"{head} {text}")
    return lines


def _fields(
    findings: Findings, groups: GroupComparison, filed: Sequence[Fact], title: str, licence: str
) -> dict[str, Any]:
    """The fields that Hugging Face's cards have."""
    kind, known = findings.clf.target_.kind, {fact.name: fact for fact in filed}
    data, about = known.get("Test data"), _about(findings.clf, licence)
    task = about["pipeline_tag"]
    source: dict[str, Any] = {"type": "file", "name": _NOT_STATED if data is None else data.value}
    if data is not None and data.meaning.startswith("SHA-256 "):
        source["revision"] = data.meaning.removeprefix("SHA-256 ").rstrip(".")
    whole = groups.table["by"].isin(["all", *compared(groups)])
    of_labels = groups.table["measure"].str.contains(" of ") & (kind != NUMBERS)  # in the tables below
    results = []
    for (by, group), lines in groups.table[whole & ~of_labels].groupby(["by", "group"], sort=False):
        part: dict[str, Any] = {} if by == "all" else {"config": f"{by}: {group}"}
        tested = source | part | {"split": "test"}
        results.append({"task": {"type": task}, "dataset": tested, "metrics": _metrics(lines)})
    names = groups.table[~of_labels]["measure"].drop_duplicates().map(_slug).tolist()
    return about | {"metrics": names, "model-index": [{"name": title, "results": results}]}


def _about(clf: Estimator, licence: str) -> dict[str, Any]:
    """The fields that need no test."""
    kind = clf.target_.kind
    task = "regression" if kind == NUMBERS else "classification"
    return {
        **({"license": licence} if licence else {}),
        "library_name": "dwac",
        "pipeline_tag": f"{_INPUTS.get(clf.encoder_.kind, 'tabular')}-{task}",
        "tags": ["dwac", "interpretability", "conformal-prediction", *(["multi-label"] if kind == LABELS else [])],
    }


def _metrics(lines: pd.DataFrame) -> list[dict[str, Any]]:
    """The measures of a group, with their 95 % intervals where they have one."""
    metrics = []
    for line in lines.to_dict("records"):
        value, low, high = (plain(line[name], _DIGITS) for name in ("value", "low", "high"))
        interval = {} if low is None or high is None else {"args": {"low": low, "high": high, "level": 0.95}}
        if value is not None:
            metrics.append({"type": _slug(line["measure"]), "name": line["measure"], "value": value, **interval})
    return metrics


def _slug(name: str) -> str:
    return name.replace(" ", "_")
