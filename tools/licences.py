"""Write docs/licences.md: the licences of all dependencies, from one resolution of all extras, of data and of weights.

    pip install --dry-run --ignore-installed --report report.json ".[bench,dev,docs,engines,mlflow,onnx]"
    python tools/licences.py report.json

These extras include all others. The first command fails if pip finds no versions that fit together; the second if the
core needs a package under a GPL or without a licence.
"""

import json
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

PAGE = Path(__file__).parent.parent / "docs" / "licences.md"
Packages = dict[str, dict[str, Any]]  # pip's metadata by name

HEADER = """<!-- written by tools/licences.py, never by hand -->
# Licences

dwac has the Apache License 2.0. It contains no files of others: the pages of the service and the explorer, their
scripts, styles and pictures are its own, and fonts are those of the reader's system. So it needs no NOTICE file. The
site that `make docs` builds contains scripts and styles of MkDocs Material (MIT), its search (lunr, MIT) and icons
(Material Design Icons, Apache 2.0).
"""

# What each source says, where it says something; NONE where it does not.
NONE = "none stated"
DATA = (
    ("adult", "[UCI](https://archive.ics.uci.edu/dataset/2/adult)", "CC BY 4.0"),
    ("covertype", "[UCI](https://archive.ics.uci.edu/dataset/31/covertype)", "CC BY 4.0"),
    (
        "lending_club",
        "[Kaggle](https://www.kaggle.com/datasets/wordsforthewise/lending-club)",
        "an account and its terms; by hand",
    ),
    ("fashion_mnist", "[Zalando](https://github.com/zalandoresearch/fashion-mnist)", "MIT"),
    ("mnist", "[LeCun, Cortes, Burges](http://yann.lecun.com/exdb/mnist/)", NONE),
    ("cifar10", "[Krizhevsky](https://www.cs.toronto.edu/~kriz/cifar.html)", f"{NONE}; asks to be cited"),
    ("cifar100", "[Krizhevsky](https://www.cs.toronto.edu/~kriz/cifar.html)", f"{NONE}; asks to be cited"),
    (
        "stackoverflow",
        "[Xu et al.](https://github.com/jacoxu/StackOverflow)",
        f"{NONE}; asks to be cited, and to acknowledge Kaggle; the titles are by users of Stack Overflow (CC BY-SA)",
    ),
    (
        "subjectivity",
        "[Pang and Lee](https://www.cs.cornell.edu/people/pabo/movie-review-data/)",
        f"{NONE}; asks to be cited",
    ),
    ("imdb", "[Maas et al.](https://ai.stanford.edu/~amaas/data/sentiment/)", f"{NONE}; asks to be cited"),
    ("amazon_beauty", "[McAuley](https://jmcauley.ucsd.edu/data/amazon/)", f"{NONE}; asks to be cited"),
    ("glove", "[Pennington et al.](https://nlp.stanford.edu/projects/glove/)", "PDDL 1.0 (public domain)"),
)
DATA_NOTE = """\
No data is in the wheel or the source distribution. `python -m reproduction data get` fetches official files from their
sources, each under its own terms; where none are stated, ask before you pass the files on. The demo and the examples
use the small datasets that come with scikit-learn. Tables of benchmarks come from the packages named in their scripts.
"""
WEIGHTS = """No weights are in the wheel or the source distribution; none are downloaded unless you name a model of a
hub. A pretrained network keeps the terms of its authors, which are in its folder or on its page. Those measured in
benchmarks are named in the scripts; all-MiniLM-L6-v2 has the Apache License 2.0."""


def licence(about: dict[str, Any]) -> str:
    """The licence of a package as its metadata gives it: expression, classifiers, or the first line of the text.

    >>> licence({"classifier": ["License :: OSI Approved :: MIT License"]})
    'MIT License'
    """
    if expression := about.get("license_expression"):
        return str(expression)
    named = [entry.rpartition(" :: ")[2] for entry in about.get("classifier", ()) if entry.startswith("License ::")]
    named = [name for name in named if name != "OSI Approved"]
    text = str(about.get("license") or "").strip().partition("\n")[0]
    return ", ".join(named) or text[:60] or NONE


def needed(requirements: Iterable[str], extras: Iterable[str], packages: Packages) -> Iterator[str]:
    """Names of all packages that requirements with these extras lead to."""
    todo = [(line, extra) for line in requirements for extra in ("", *extras)]
    seen: set[tuple[str, str]] = set()
    while todo:
        line, extra = todo.pop()
        requirement = Requirement(line)
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": extra}):
            continue
        name = canonicalize_name(requirement.name)
        for wanted in ("", *requirement.extras):
            if name in packages and (name, wanted) not in seen:
                seen.add((name, wanted))
                todo += [(next_line, wanted) for next_line in packages[name].get("requires_dist", ())]
    yield from sorted({name for name, _ in seen})


def page(packages: Packages) -> str:
    """The page, from pip's metadata of dwac and all it may need."""
    own = packages["dwac"]
    requirements = own["requires_dist"]
    core = list(needed(requirements, (), packages))
    refused = [f"{name}: {terms}" for name in core if "GPL" in (terms := licence(packages[name])) or terms == NONE]
    if refused:
        raise SystemExit(f"the core must need no package under a GPL or without a licence; got {'; '.join(refused)}")
    by_package: dict[str, list[str]] = {}
    for extra in own["provides_extra"]:
        for name in needed(requirements, [extra], packages):
            by_package.setdefault(name, []).append(extra)
    lines = [HEADER, "## The core\n", "| package | version | licence |", "|---|---|---|"]
    lines += [f"| {name} | {packages[name]['version']} | {licence(packages[name])} |" for name in core]
    lines += [
        "\nPyTorch's default build for Linux also brings NVIDIA's libraries, under NVIDIA's terms. The wheels of",
        "numpy, scipy and scikit-learn hold GCC's runtime libraries, whose GPL makes an exception for their users.",
        "\n## Extras\n",
        "Installed only with the extra, and not part of dwac.\n",
        "| package | version | licence | extras |",
        "|---|---|---|---|",
    ]
    others = {name: extras for name, extras in by_package.items() if name not in {*core, "dwac"}}
    lines += [
        f"| {name} | {packages[name]['version']} | {licence(packages[name])} | {', '.join(extras)} |"
        for name, extras in sorted(others.items())
    ]
    lines += ["\n## Data\n", DATA_NOTE, "| dataset | source | terms |", "|---|---|---|"]
    lines += [f"| {name} | {source} | {terms} |" for name, source, terms in DATA]
    lines += ["\n## Weights\n", WEIGHTS]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the page from the report that is named."""
    report = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    found = [item["metadata"] for item in report["install"]]
    if not any("license_expression" in about for about in found):
        raise SystemExit(f"pip {report['pip_version']} reports no licence expressions; upgrade pip, and report again")
    PAGE.write_text(page({canonicalize_name(about["name"]): about for about in found}), encoding="utf-8")
    print(f"written: docs/licences.md, {len(found)} packages resolved together")


if __name__ == "__main__":
    main()
