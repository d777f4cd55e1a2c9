"""What if: an image moved, made brighter or replaced by another, and a text without each of its words."""

from __future__ import annotations

import io
import re
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from dwac.drawing.records import plain
from dwac.encoders import ImageEncoder
from dwac.encoders.pictures import open_picture
from dwac.errors import InputError
from dwac.reading.requests import picture_bytes
from dwac.server.answers import silent
from dwac.server.explorer.state import Explorer
from dwac.server.limits import Limits

TEXTS = ("text", "huggingface")  # of encoders that read texts
_MOST_WORDS = 200  # words left out, one at a time


# Images


def change_image(explorer: Explorer, point: int, right: int, down: int, brightness: float) -> Any:
    """The image of a point as a new X: shifted (new pixels repeat the edge), and made brighter or darker."""
    X, encoder = None if explorer.private else explorer.source(point), explorer.clf.encoder_
    if X is None or not isinstance(encoder, ImageEncoder):
        raise InputError("only images that the explorer holds in their original form can be changed")
    seen, image = encoder.seen, X[0] if not hasattr(X, "iloc") else X.iloc[0]
    if isinstance(image, np.ndarray | Tensor):
        first = len(seen.lengths) == 3 and tuple(seen.lengths) == tuple(seen.shape)  # channels first
        values = np.asarray(image)
        axes = (-2, -1) if first else (0, 1)
        return _shift(values, right, down, brightness, (seen.low, seen.high), axes)[None]
    from PIL import Image

    with open_picture(0, image) as picture:
        plain = picture if picture.mode in ("L", "RGB") else picture.convert("RGB")
        return [Image.fromarray(_shift(np.asarray(plain), right, down, brightness, (0, 255), (0, 1)))]


def read_image(explorer: Explorer, encoded: str) -> Any:
    """A PNG or JPEG file in base64 as an X with one example; if training used arrays, resized and scaled like them."""
    encoder = explorer.clf.encoder_
    if not isinstance(encoder, ImageEncoder):
        raise InputError("this model does not read images")
    seen, data = encoder.seen, picture_bytes(encoded, Limits().pixels)
    if seen.numbers == "uint8" and seen.high >= 128:
        return [data]
    from PIL import Image

    channels, height, width = seen.shape
    if channels not in (1, 3):
        raise InputError(f"only images with 1 or 3 channels can be uploaded; this model reads {channels}")
    with open_picture(0, data) as picture:
        resized = picture.convert("L" if channels == 1 else "RGB").resize((width, height), Image.Resampling.BOX)
    file = io.BytesIO()
    resized.save(file, "PNG")
    return encoder.from_record(file.getvalue())


def _shift(
    values: NDArray[Any], right: int, down: int, brightness: float, ends: tuple[float, float], axes: tuple[int, int]
) -> NDArray[Any]:
    for axis, step in zip(axes, (down, right), strict=True):
        n = values.shape[axis]
        if abs(step) >= n:
            raise InputError(f"an image of {n} pixels can be moved by at most {n - 1}; got {step}")
        values = values.take(np.clip(np.arange(n) - step, 0, n - 1), axis=axis)
    low, high = ends
    brighter = np.clip((values.astype(np.float64) - low) * brightness + low, low, high)
    return np.asarray((np.round(brighter) if values.dtype.kind in "iu" else brighter).astype(values.dtype))


# The words that a prediction depends on: the text is predicted again without each of them, exactly


def words_of_point(explorer: Explorer, session: str, point: int, label: int) -> dict[str, Any]:
    """The words of a text on the map; for a training example, its own vote does not count."""
    explorer.require_open("it leaves no words out, because exact changes reveal training examples")
    if explorer.clf.encoder_.kind not in TEXTS:
        raise InputError("only texts have words to leave out; this model reads something else")
    X = explorer.source(point)
    if X is None:
        raise InputError("this model does not hold the text; only texts that it holds have words to leave out")
    return _leave_words_out(explorer, explorer.model_for(session, point), next(iter(X)), label)


def words_of_text(explorer: Explorer, session: str, text: str, label: int) -> dict[str, Any]:
    """The words of a new text."""
    explorer.require_open("it leaves no words out, because exact changes reveal training examples")
    return _leave_words_out(explorer, explorer.view(session).clf, text, label)


def _leave_words_out(explorer: Explorer, clf: Any, text: str, label: int) -> dict[str, Any]:
    """The text in pieces, and for each word the probability (or number) without it; None if nothing is left to read."""
    spans = [word.span() for word in re.finditer(r"\S+", text)][:_MOST_WORDS]
    texts = [text, *(text[:start] + text[end:] for start, end in spans)]
    bad = clf.unreadable(texts)
    if 0 in bad:
        raise InputError(f"the text cannot be read: {bad[0]}")
    rows = [i for i in range(len(texts)) if i not in bad]
    with silent():
        scores = explorer.task.scores(clf, [texts[i] for i in rows])
    subject = explorer.task.subject(scores[0], label)
    without = dict(zip(rows, scores[:, subject].tolist(), strict=True))
    return {
        "subject": plain(explorer.task.subjects[subject]),
        "all": without[0],
        "words": [{"word": text[start:end], "without": without.get(i + 1)} for i, (start, end) in enumerate(spans)],
        "rest": text[spans[-1][1] :].strip()[:4000] if spans else "",
        "n_labels": int(np.shape(scores)[1]),
    }
