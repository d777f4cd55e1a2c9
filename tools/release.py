"""A release: cut its version, build and check its files, and go through the checklist of docs/notes/release.md.

    python -m tools.release cut 1.0.0    # sets the version and dates the changelog; look at it and commit
    python -m tools.release              # the whole checklist, hours; `python -m tools.release version build` is a part

Uses the standard library alone.
"""

import datetime
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile
from collections.abc import Iterable
from io import BytesIO
from pathlib import Path

from tools.environments import BIN, PIP, PYPROJECT, ROOT, install, run

VERSION = re.compile(r"\d+\.\d+\.\d+(rc\d+)?")
# Files that have the version: the package, whose version the build reads, and two whose format wants a copy.
COPIES = {
    "src/dwac/__init__.py": r'(?m)(?<=^__version__ = ").*(?="$)',
    "CITATION.cff": r"(?m)(?<=^version: ).*$",
    "deploy/conda/recipe.yaml": r'(?m)(?<=^  version: ").*(?="$)',
}
PLACEHOLDER = ".example/"  # a name that nobody can own
BLOCK = re.compile(r"(?<!<!-- not run by the tests -->\n)^```(python|sh)\n(.*?)^```", re.M | re.S)
LINK = re.compile(r"(!?)(\[[^\]]*\]\()(?![a-z]+:|#)")  # to a file, up to its path; ! before a picture
LARGEST = 10**6  # bytes of one file of the wheel
JOBS = ("test", "test-slow", "test-triton", "test-lowest", "test-engines", "docs", "build")


def read(name: str) -> str:
    """The text of a file of the repository."""
    return (ROOT / name).read_text(encoding="utf-8")


def version() -> str:
    """The version of the package, from the one place that states it."""
    return next(iter(versions().values()))


def versions() -> dict[str, str]:
    """The version by file."""
    return {name: found[0] if (found := re.search(pattern, read(name))) else "" for name, pattern in COPIES.items()}


def address() -> str:
    """Where the repository is: the one place that states it is pyproject.toml."""
    return str(tomllib.loads(PYPROJECT.read_text(encoding="utf-8"))["project"]["urls"]["Repository"])


def cut(new: str, changelog: str, today: datetime.date) -> str:
    """The changelog with what is unreleased as a version of today.

    >>> print(cut("1.0.0", "# Changelog\\n\\n## [Unreleased]\\n\\n### Added\\n", datetime.date(2026, 12, 1)))
    # Changelog
    <BLANKLINE>
    ## [1.0.0] - 2026-12-01
    <BLANKLINE>
    ### Added
    <BLANKLINE>
    """
    if not VERSION.fullmatch(new):
        raise SystemExit(f"a version must be like 1.2.3 or 1.2.3rc1; got {new!r}")
    if f"\n## [{new}]" in changelog or "\n## [Unreleased]\n" not in changelog:
        raise SystemExit(f"CHANGELOG.md must have changes under [Unreleased], and no [{new}] yet; look at its headings")
    return changelog.replace("\n## [Unreleased]\n", f"\n## [{new}] - {today.isoformat()}\n", 1)


def write_cut(new: str) -> None:
    """Set the version everywhere."""
    texts = {"CHANGELOG.md": cut(new, read("CHANGELOG.md"), datetime.datetime.now(datetime.UTC).date())}
    texts |= {name: re.sub(pattern, new, read(name), count=1) for name, pattern in COPIES.items()}
    for name, text in texts.items():
        (ROOT / name).write_text(text, encoding="utf-8", newline="\n")
    print(f"{new} is in {', '.join(texts)}; read `git diff`, run python -m tools.release, then commit and tag v{new}")


def check_tree() -> None:
    """Nothing is changed, and nothing is left over."""
    if changed := _git("status", "--short").strip():
        raise SystemExit(f"the checkout must be as committed; got\n{changed}\ncommit or remove these")


def check_version() -> None:
    """One version everywhere, which the changelog has as its newest."""
    if len(set(versions().values())) != 1:
        raise SystemExit(f"files must state one version; got {versions()}; run python -m tools.release cut VERSION")
    if not re.search(rf"\n## \[{re.escape(version())}\] - \d{{4}}-", read("CHANGELOG.md").partition("\n### ")[0]):
        raise SystemExit(
            f"the newest entry of CHANGELOG.md must be {version()}; run python -m tools.release cut VERSION"
        )


def check_address() -> None:
    """The repository has an address."""
    if PLACEHOLDER in address():
        raise SystemExit(f"{address()} is a placeholder; write the real address under [project.urls] in pyproject.toml")


def check_licences() -> None:
    """All extras fit together; the page of licences is that of today's versions."""
    install("licences", "packaging", venv=".venv-build")
    report = ROOT / "build" / "report.json"
    report.parent.mkdir(exist_ok=True)
    words = ("--dry-run", "--ignore-installed", "--report", str(report), ".[bench,dev,docs,engines,mlflow,onnx]")
    run(*PIP, *words, venv=".venv-build")
    run("-m", "tools.licences", str(report), venv=".venv-build")
    print(_git("diff", "--stat", "docs/licences.md") or "docs/licences.md is up to date")


def build() -> None:
    """Build the wheel and the source distribution of the last commit, and check them as a user would meet them."""
    install("installed", "build", "cyclonedx-bom", "twine", venv=".venv-build")
    dist, when = ROOT / "dist", _git("log", "-1", "--format=%ct").strip()
    shutil.rmtree(dist, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        with tarfile.open(fileobj=BytesIO(_output("git", "archive", "HEAD"))) as archive:
            archive.extractall(folder, filter="data")
        page = Path(folder, "README.md")  # PyPI shows it, and has no other file of the repository
        shown = absolute(page.read_text(encoding="utf-8"), address(), f"v{version()}")
        page.write_text(shown, encoding="utf-8", newline="\n")
        # The wheel is built from the source distribution: so both can be.
        run("-m", "build", "--outdir", str(dist), folder, venv=".venv-build", SOURCE_DATE_EPOCH=when)
    wheel, source = next(dist.glob("*.whl")), next(dist.glob("*.tar.gz"))
    run("-m", "twine", "check", "--strict", str(wheel), str(source), venv=".venv-build")
    check_files(wheel)
    check_installed(wheel)


def absolute(page: str, base: str, tag: str) -> str:
    """A page whose links to files of the repository start at an address.

    >>> absolute("[a](docs/a.md), [b](https://b.org), ![c](c.png)", "https://d.org", "v1")
    '[a](https://d.org/blob/v1/docs/a.md), [b](https://b.org), ![c](https://d.org/raw/v1/c.png)'
    """
    return LINK.sub(lambda found: f"{found[0]}{base}/{'raw' if found[1] else 'blob'}/{tag}/", page)


def check_files(wheel: Path) -> None:
    """The wheel holds the package, its licence and nothing large."""
    with zipfile.ZipFile(wheel) as archive:
        sizes = {item.filename: item.file_size for item in archive.infolist()}
    wanted = {name.removeprefix("src/") for name in _git("ls-files", "src/dwac").splitlines()}
    about = f"dwac-{version()}.dist-info/"
    others = {name for name in sizes.keys() - wanted if not name.startswith(about)}
    if missing := sorted(wanted - sizes.keys()) + sorted({f"{about}licenses/LICENSE"} - sizes.keys()):
        raise SystemExit(f"the wheel must have every file of the package; it lacks {', '.join(missing[:5])}")
    if large := sorted(others | {name for name, size in sizes.items() if size > LARGEST}):
        raise SystemExit(f"the wheel must hold the package alone, no file above 1 MB; got {', '.join(large[:5])}")
    print(f"{wheel.name}: {len(sizes)} files, {wheel.stat().st_size:,} bytes")


def check_installed(wheel: Path) -> None:
    """Follow the README's Python in an empty environment with the core alone, then the first page with the command."""
    venv = ROOT / ".venv-wheel"
    subprocess.run([sys.executable, "-m", "venv", "--clear", venv], check=True)
    run(*PIP, str(wheel), venv=venv.name)
    _follow("README.md", venv, languages={"python"})
    bill = ROOT / "build" / f"dwac-{version()}.cdx.json"
    bill.parent.mkdir(exist_ok=True)
    words = ("environment", "--output-reproducible", "--output-format", "JSON", "--output-file", str(bill))
    run("-m", "cyclonedx_py", *words, str(venv / BIN / "python"), venv=".venv-build")
    run(*PIP, f"{wheel}[cli]", venv=venv.name)
    _follow("docs/start.md", venv, languages={"python", "sh"})
    run("-m", "pip", "--quiet", "check", venv=venv.name)
    print(f"built and checked: dist/{wheel.name}, the source distribution beside it, and build/{bill.name}")


def _follow(name: str, venv: Path, languages: Iterable[str]) -> None:
    """Run the blocks of a page from top to bottom in an empty folder, with the installed package."""
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    environment["PATH"] = os.pathsep.join([str(venv / BIN), environment["PATH"]])
    blocks = [(language, code) for language, code in BLOCK.findall(read(name)) if language in languages]
    with tempfile.TemporaryDirectory() as folder:
        program = "\n".join(code for language, code in blocks if language == "python")
        for code in (code for language, code in blocks if language == "sh"):
            subprocess.run(["bash", "-euc", code], cwd=folder, env=environment, check=True)
        subprocess.run([venv / BIN / "python", "-c", program], cwd=folder, env=environment, check=True)
    print(f"{name}: {len(blocks)} blocks ran")


def _git(*words: str) -> str:
    return _output("git", *words).decode()


def _output(*words: str) -> bytes:
    return subprocess.run(words, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout


def _job(name: str) -> None:
    subprocess.run([sys.executable, "-m", "tools", name], cwd=ROOT, check=True)


STEPS = {"tree": check_tree, "version": check_version, "address": check_address, "licences": check_licences}


def main() -> None:
    """Cut a version, or go through the steps that are named, or all; what must be seen by a person is listed last."""
    if sys.argv[1:2] == ["cut"] and len(sys.argv) == 3:
        return write_cut(sys.argv[2])
    if unknown := set(sys.argv[1:]) - {*STEPS, *JOBS}:
        raise SystemExit(f"steps are {', '.join([*STEPS, *JOBS])}; got {', '.join(sorted(unknown))}")
    failed: dict[str, BaseException] = {}
    for step in sys.argv[1:] or [*STEPS, *JOBS]:
        print(f"== {step}", flush=True)
        try:
            STEPS[step]() if step in STEPS else _job(step)
        except (SystemExit, subprocess.CalledProcessError) as error:
            failed[step] = error
    for step, reason in failed.items():
        print(f"{step} failed: {reason}")
    print("Then, by hand: steps 1, 5, 7 and from 14 on of docs/notes/release.md.")
    sys.exit(len(failed) > 0)


if __name__ == "__main__":
    main()
