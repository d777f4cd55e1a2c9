"""Models on the Hugging Face Hub: `hf://owner/name[@revision]` as a local folder. Needs the extra `dwac[hub]`.

Files are downloaded once, into the cache of huggingface_hub, and then only again if they changed. Offline
(HF_HUB_OFFLINE=1, or without a network) the copy in the cache is used.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

from dwac.errors import InputError, StorageError
from dwac.storage.files import replacing

MODEL_FILES = ("model.json", "columns.json", "weights-*.safetensors", "examples-*.parquet", "rows-*.parquet")
_NAME = r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*"
_PLACE = re.compile(rf"(?:hf:/+)?(?P<repo>{_NAME})(?:@(?P<revision>[^@\s]+))?")  # a Path has one slash of two


def place_of(text: str) -> tuple[str, str | None]:
    """(owner/name, revision or None) of a place on the Hub.

    >>> place_of("hf://ann/cancer@v2"), place_of("ann/cancer")
    (('ann/cancer', 'v2'), ('ann/cancer', None))
    """
    place = _PLACE.fullmatch(text) if isinstance(text, str) else None
    if place is None:
        raise InputError(f"a model on the Hub must be named hf://owner/name or hf://owner/name@revision; got {text!r}")
    return place["repo"], place["revision"]


def local_folder(path: str | PathLike[str]) -> str | PathLike[str]:
    """The folder of a model: downloaded if the path begins with hf:, otherwise the path itself."""
    text = os.fspath(path)
    if not text.startswith("hf:/"):
        return path
    repo, revision = place_of(text)
    with hub_errors(text, f"download it on a machine with a connection (hf download {repo}), and give the folder"):
        from huggingface_hub import snapshot_download

        folder: Any = snapshot_download(repo, revision=revision, allow_patterns=list(MODEL_FILES))
        return _without_links(Path(folder))


def _without_links(snapshot: Path) -> Path:
    """The files of a snapshot in a folder beside it: the cache holds links to files, which no model folder may have."""
    folder = snapshot.parents[1] / "dwac" / snapshot.name
    folder.mkdir(parents=True, exist_ok=True)
    for link in snapshot.iterdir():
        if link.is_file() and not (folder / link.name).exists():
            with replacing(folder / link.name) as temporary:
                try:
                    os.link(link.resolve(), temporary)  # takes no space
                except OSError:
                    shutil.copyfile(link, temporary)
    return folder


@contextmanager
def hub_errors(place: str, offline: str) -> Iterator[None]:
    """Turn every failure of huggingface_hub into one sentence; offline: what to do without a connection."""
    try:
        from huggingface_hub import errors
    except ModuleNotFoundError as error:
        raise InputError(f"{place} needs {error.name}: pip install 'dwac[hub]'") from None
    try:
        yield
    except (errors.RepositoryNotFoundError, errors.RevisionNotFoundError):
        raise StorageError(
            f"{place} was not found: there is no such model or revision, or it is private; check the name, and log in: "
            "hf auth login, or set HF_TOKEN"
        ) from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        login = "log in with a token that may do this: hf auth login, or set HF_TOKEN"
        remedy = login if status in (401, 403) else "try again later"
        raise StorageError(
            f"{place}: the Hub refused with status {status} ({error.server_message}); {remedy}"
        ) from None
    except (errors.LocalEntryNotFoundError, errors.OfflineModeIsEnabled, ConnectionError) as error:
        reason = str(error.__cause__ or error).splitlines()[0]
        raise StorageError(f"{place} cannot be reached ({reason:.200}); {offline}") from None
    except errors.HFValidationError as error:
        raise InputError(f"{place} is not a name on the Hub: {error}") from None
    except Exception as error:  # of the HTTP client, whose package depends on the version of huggingface_hub
        if type(error).__module__.partition(".")[0] not in ("httpx", "httpx2", "httpcore", "httpcore2", "requests"):
            raise
        raise StorageError(f"{place} cannot be reached ({error!s:.200}); {offline}") from None
