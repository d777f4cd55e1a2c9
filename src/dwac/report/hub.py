"""`clf.push_to_hub`: the model folder and its card to the Hugging Face Hub. Needs the extra `dwac[hub]`."""

from __future__ import annotations

import logging
import shutil
from os import PathLike
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from dwac._checks import listed
from dwac.errors import InputError, PrivacyError
from dwac.estimator import load
from dwac.report import write
from dwac.report.markdown import untested_card
from dwac.report.measures import Estimator
from dwac.storage.files import replace_file
from dwac.storage.hub import MODEL_FILES, hub_errors, place_of

logger = logging.getLogger(__name__)
CARD = "README.md"


def push(
    clf: Estimator,
    repo: str,
    X: Any = None,
    y: Any = None,
    *,
    private: bool = True,
    include_examples: bool | None = None,
    card: str | PathLike[str] | None = None,
    message: str = "Upload a dwac model",
    token: str | None = None,
    **options: Any,
) -> str:
    """As `push_to_hub` of an estimator."""
    name, branch = place_of(repo)
    _check_card(X, y, card, options)
    columns = _columns(clf) if include_examples is not False else None
    if columns is not None and include_examples is None and not private:
        raise PrivacyError(
            f"{name} would be public, with {_amount(clf)} training examples as the model keeps them{columns}; upload "
            "the model without them (include_examples=False), or state that anybody may read them "
            "(include_examples=True)"
        )
    with hub_errors(f"hf://{name}", "write the model to a folder with clf.save, and upload that from elsewhere"):
        from huggingface_hub import HfApi

        api = HfApi(token=token)
        api.create_repo(name, private=private, exist_ok=True)
        if private and not api.model_info(name).private:
            raise PrivacyError(
                f"{name} exists and is public, and the upload was to be private; nothing was uploaded; make it private "
                "in its settings on the Hub, or give private=False"
            )
        if branch is not None:
            api.create_branch(name, branch=branch, exist_ok=True)
        with TemporaryDirectory(prefix="dwac-hub-") as folder:
            path = clf.save(Path(folder, "model"), include_examples=columns is not None)
            place = f"hf://{name}" if branch is None else f"hf://{name}@{branch}"
            _write_card(clf, path, place, X, y, card, options)
            what = "embeddings, labels and ids" if columns is None else f"records{columns}, labels and ids"
            # A warning, so that it is seen: what is uploaded cannot be taken back from those who read it.
            log = logger.info if columns is None else logger.warning
            log(
                "uploading to %s (%s): %s of %s training examples%s",
                name,
                "private" if private else "public",
                what,
                _amount(clf),
                "" if columns is None else "; include_examples=False uploads no records",
            )
            # Files of an earlier model would remain; a columns.json of one would change the fingerprint.
            commit = api.upload_folder(
                repo_id=name,
                folder_path=path,
                revision=branch,
                commit_message=message,
                delete_patterns=list(MODEL_FILES),
            )
    return f"hf://{name}@{commit.oid}"


def _columns(clf: Estimator) -> str | None:
    """The columns of the training examples that the model keeps, in brackets; None for a model without examples."""
    if clf.private_:
        return None
    records = clf.examples_.frame()
    return "" if records is None or not len(records.columns) else f" ({listed(records.columns, 6, str)})"


def _amount(clf: Estimator) -> str:
    return f"{len(clf.references_):,}"


def _check_card(X: Any, y: Any, card: str | PathLike[str] | None, options: dict[str, Any]) -> None:
    """Refuse a card that cannot be written, before anything is at the Hub."""
    if card is not None and (X is not None or options):
        raise InputError("a card is a file as it is; leave X, y and the options of the report out, or the card")
    if card is not None and not Path(card).is_file():
        raise InputError(f"there is no card {str(card)!r}; give a Markdown file, or leave it out")
    if (X is None) != (y is None):
        raise InputError("test rows need their targets; give both X and y, or neither")
    unknown = sorted(set(options) - {"title", "purpose", "licence"})
    if X is None and unknown:
        raise InputError(f"{unknown[0]} is for a card with results; give test rows X and y, too")


def _write_card(
    clf: Estimator, folder: Path, place: str, X: Any, y: Any, card: str | PathLike[str] | None, options: dict[str, Any]
) -> None:
    """README.md in the folder: the given file, or a card measured on X and y, or one without results."""
    path, title = folder / CARD, options.pop("title", place.removeprefix("hf://"))
    if card is not None:
        shutil.copyfile(card, path)
        return
    saved = load(folder, device="cpu", module=getattr(clf.encoder_, "module", None))  # with its fingerprint
    if X is not None:
        write(saved, X, y, path, title=title, place=place, **options)
        return
    text = untested_card(saved, title, options.get("purpose", ""), options.get("licence", ""), place)
    replace_file(path, text.encode())
