"""Download official files: resumed after an interruption, checked, and never half-written."""

from __future__ import annotations

import http.client
import logging
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from reproduction.datasets.files import DatasetError, File, check, check_download, find, folders, is_folder

logger = logging.getLogger(__name__)

Progress = Callable[[str, int, int | None], None]
"""Called during a download: name of the file, bytes so far, total bytes (None if unknown)."""

_BLOCK = 1 << 18
_TRIES = 3  # connections to one URL before the next is tried
_TIMEOUT = 30.0  # seconds without a byte
_NO_SUCH_RANGE = 416
_BROKEN = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, ssl.SSLError)


def fetch(file: File, progress: Progress | None = None, *, folder: Path | None = None) -> Path:
    """The file's path; it is downloaded first unless an intact copy exists.

    A partial download is kept as NAME.part until it is complete and checked: the next call resumes it. A file that
    must be downloaded by hand is only checked; if it is missing or wrong, an error explains where to get it.
    """
    if file.by_hand:
        check(file, path := find(file))
        return path
    if folder is None and (there := _intact(file)):
        return there
    folder = folder or folders()[0] / file.folder
    target, part = folder / file.name, folder / f"{file.name}.part"
    if target.is_dir():
        raise is_folder(file, target)
    faults: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for url in file.urls:
            if fault := _fetch_from(url, file, part, progress):
                faults.append(f"{url}: {fault}")
                continue
            os.replace(part, target)
            return target
    except OSError as error:
        raise DatasetError(
            f"{file.name} could not be written to {folder}: {error.strerror or error}; "
            "free space there, or set $DWAC_DATA to another folder"
        ) from None
    raise DatasetError(
        f"{file.name} ({file.required}) could not be downloaded: {'; '.join(faults)}; try again later "
        f"(the partial download is kept), or put the file at {target} yourself"
    )


def _intact(file: File) -> Path | None:
    try:
        path = find(file)
        check(file, path)
    except DatasetError:
        return None
    return path


def _fetch_from(url: str, file: File, part: Path, progress: Progress | None) -> str | None:
    """Complete `part` from one URL and check it. Returns what went wrong, or None."""
    fault = ""
    for _ in range(_TRIES):
        resumed = part.exists()
        try:
            _transfer(url, file, part, progress)
            check_download(file, part)
            if not file.name.endswith(".zip"):
                check(file, part)
            return None
        except urllib.error.HTTPError as error:
            error.close()
            fault = f"HTTP {error.code} {error.reason}"
            if error.code != _NO_SUCH_RANGE:
                return fault
            part.unlink()  # it is longer than the file, so it belongs to another one
        except DatasetError as error:
            part.unlink()
            fault = str(error).removesuffix(f"; {file.remedy}")
            if not resumed:  # otherwise the first half may be of another version
                return fault
        except _BROKEN as error:
            fault = str(getattr(error, "reason", None) or error or type(error).__name__)
        logger.info("%s: %s", url, fault)  # the final error, if any, repeats it
    return fault


def _transfer(url: str, file: File, part: Path, progress: Progress | None) -> None:
    there = part.stat().st_size if part.exists() else 0
    if there and there == file.size:
        return
    headers = {"User-Agent": "dwac", "Accept-Encoding": "identity"} | ({"Range": f"bytes={there}-"} if there else {})
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=_TIMEOUT) as response:
        if goes_on := response.headers.get("Content-Range", "").startswith(f"bytes {there}-"):
            logger.info("%s: resuming from byte %d", url, there)
        else:
            there = 0
        length = response.headers.get("Content-Length")
        total = there + int(length) if length else file.size
        with part.open("ab" if goes_on else "wb") as out:
            while block := response.read(_BLOCK):
                out.write(block)
                there += len(block)
                if progress is not None:
                    progress(file.name, there, total)
            out.flush()
            os.fsync(out.fileno())
    if total is not None and there < total:
        raise ConnectionError(f"stopped at {there:,} of {total:,} bytes")
