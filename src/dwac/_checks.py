"""Input checks. Each function returns its input in canonical form or raises a `dwac` error."""

from __future__ import annotations

import difflib
import math
import sys
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from dwac.errors import EpsilonError, InputError, LabelError, NonFiniteError, ShapeError
from dwac.languages import say

LARGEST = 1e150  # above this, a squared distance overflows float64

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_NOT_THE_USER = {"dwac", "contextlib", "sklearn", "torch"}
_MOST_CLASSES = 2**31  # a larger label is a mistake (an id, an infinity), not a class


def _position(mask: NDArray[np.bool_] | Tensor) -> str:
    """The position of the first True in a mask, for messages: "row 3, column 0"."""
    where = [int(i) for i in np.argwhere(np.asarray(mask.cpu() if isinstance(mask, Tensor) else mask))[0]]
    return ", ".join(f"{name} {i}" for name, i in zip(("row", "column", "axis 2"), where, strict=False))


def listed(names: Iterable[Any], most: int = 5, show: Callable[[Any], str] = repr) -> str:
    """The first names, separated by commas, and how many more there are, for messages.

    >>> listed(["a", "b", "c"], most=2)
    "'a', 'b', … (1 more)"
    """
    shown = [show(name) for name in names]
    rest = len(shown) - most
    return ", ".join(shown[:most]) + (say(", … ({n} more)", n=rest) if rest > 0 else "")


def suggested(name: Any, names: Iterable[Any]) -> str:
    """The name that was probably meant, as a question for messages; "" if none is similar.

    >>> suggested("LVR", ["income", "lvr"])
    "did you mean 'lvr'? "
    """
    by_lower = {str(known).lower(): known for known in names}
    near = difflib.get_close_matches(str(name).lower(), by_lower, n=1)
    return f"did you mean {by_lower[near[0]]!r}? " if near else ""


def percent(share: float, digits: int = 1, most: int | None = None) -> str:
    """A share in per cent, for messages.

    most: show as many digits as are useful, up to `most`: more than `digits` near 0 and 1, and no trailing zeros.

    >>> percent(0.911), percent(0.4, 0)
    ('91.1 %', '40 %')
    >>> [percent(share, most=3) for share in (0.5, 0.98765, 0.99999, 0.00012)]
    ['50 %', '98.8 %', '99.999 %', '0.01 %']
    """
    if most is None:
        return f"{share:.{digits}%}".replace("%", " %")
    value = 100 * share
    while digits < most and value not in (0, 100) and round(value, digits) in (0, 100):
        digits += 1
    shown = f"{value:.{digits}f}"
    return f"{shown.rstrip('0').rstrip('.') if digits else shown} %"


def warn(message: str, category: type[Warning] = UserWarning) -> None:
    """Warn at the user's line: the nearest one outside this package and the libraries that call it."""
    frame = sys._getframe(1)
    while frame.f_globals.get("__name__", "").partition(".")[0] in _NOT_THE_USER and frame.f_back is not None:
        frame = frame.f_back
    name, registry = frame.f_globals.get("__name__", "<string>"), frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, category, frame.f_code.co_filename, frame.f_lineno, name, registry)


def float_tensor(value: Any, name: str, *, ndim: int = 2) -> Tensor:
    """A finite floating-point tensor of `ndim` dimensions. Integers become float32; float64 stays float64."""
    try:
        tensor = value if isinstance(value, Tensor) else torch.as_tensor(_native(np.asarray(value)))
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers; got {type(value).__name__}: {error}") from None
    if tensor.is_complex() or tensor.dtype == torch.bool:
        raise InputError(f"{name} must be real numbers; got {tensor.dtype}; convert them to a float type")
    if tensor.ndim != ndim:
        hint = "; reshape one query to (1, d)" if (ndim, tensor.ndim) == (2, 1) else ""
        raise ShapeError(f"{name} must be a {ndim}-D array; got shape {tuple(tensor.shape)}{hint}")
    tensor = tensor if tensor.is_floating_point() else tensor.float()
    usable = tensor.abs() <= LARGEST if tensor.dtype == torch.float64 else torch.isfinite(tensor)
    if not bool(usable.all()):
        raise NonFiniteError(
            f"{name} must be finite and at most {LARGEST:g} in size; got {tensor[~usable][0].item()} at "
            f"{_position(~usable)}; drop or repair such rows first"
        )
    return tensor


def _native(array: NDArray[Any]) -> NDArray[Any]:
    """The array in a form torch accepts: a copy if it is read-only, strided or in another byte order, else itself."""
    return np.require(array, dtype=array.dtype.newbyteorder("="), requirements=["C", "W"])


def class_labels(value: Any, name: str, *, n: int | None = None, n_classes: int | None = None) -> Ints:
    """Whole numbers 0 … n_classes-1 in a 1-D array; `n` is the required length."""
    try:
        array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError) as error:
        raise LabelError(f"{name} must be a 1-D array of whole numbers; got {type(value).__name__}: {error}") from None
    if array.ndim != 1:
        raise ShapeError(f"{name} must be a 1-D array; got shape {array.shape}")
    if n is not None and len(array) != n:
        raise ShapeError(f"{name} must have one entry per row: {n} required, got {len(array)}")
    if len(array) == 0:
        return np.zeros(0, dtype=np.int64)
    whole = array == np.round(array) if array.dtype.kind == "f" else np.full(len(array), array.dtype.kind in "iu")
    if not whole.all():
        raise LabelError(
            f"{name} must be whole numbers 0 … n_classes-1; got {array.dtype} such as {array[~whole][0]!r} "
            f"at {_position(~whole)}; encode other labels first, e.g. with sklearn.preprocessing.LabelEncoder"
        )
    bad = (array < 0) | (array >= (_MOST_CLASSES if n_classes is None else n_classes))
    if bad.any():
        top = "n_classes-1" if n_classes is None else str(n_classes - 1)
        raise LabelError(f"{name} must lie in 0 … {top}; got {array[bad][0]} at {_position(bad)}")
    return array.astype(np.int64)


def scores(value: ArrayLike, name: str, *, ndim: int | None = None) -> Floats:
    """Float64 numbers without NaN. Infinities are kept: they can be ordered like any other score."""
    try:
        array = np.asarray(value.detach().cpu() if isinstance(value, Tensor) else value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be an array of numbers: {error}") from None
    if ndim is not None and array.ndim != ndim:
        raise ShapeError(f"{name} must be a {ndim}-D array; got shape {array.shape}")
    if np.isnan(array).any():
        raise NonFiniteError(f"{name} must not contain NaN; got one at {_position(np.isnan(array))}")
    return array


def probabilities(value: ArrayLike, name: str) -> Floats:
    """An (n, K) array whose rows are probability distributions."""
    array = scores(value, name, ndim=2)
    bad = (array < 0) | (array > 1 + 1e-6)
    if bad.any():
        raise InputError(f"{name} must lie in [0, 1]; got {array[bad][0]:.6g} at {_position(bad)}")
    off = np.abs(array.sum(axis=1) - 1) > 1e-3
    if off.any():
        row = int(np.argmax(off))
        raise InputError(
            f"each row of {name} must sum to 1; row {row} sums to {array[row].sum():.6g}; "
            "give probabilities, not log-probabilities or logits"
        )
    return array


def p_values(value: ArrayLike, name: str = "p_values") -> Floats:
    """An (n, K) array of numbers in [0, 1], K ≥ 1."""
    array = scores(value, name, ndim=2)
    if array.shape[1] == 0:
        raise ShapeError(f"{name} must have one column per label, at least one; got shape {array.shape}")
    bad = (array < 0) | (array > 1)
    if bad.any():
        raise InputError(f"{name} must lie in [0, 1]; got {array[bad][0]:.6g} at {_position(bad)}; are they scores?")
    return array


_RATES = {  # an example of each rate, for messages
    "epsilon": "0.05 gives sets with an error rate of at most 5 %",
    "alpha": "0.05 gives sets that miss at most 5 % of a row's labels on average",
    "risk": "0.05 allows that 5 % of the decided rows are wrong",
    "confidence": "0.9 keeps the promise in 90 % of all fits",
    "rate": "0.1 allows that 10 % of the rows found are none",
}


def epsilon(value: float, name: str = "epsilon") -> float:
    """An error rate strictly between 0 and 1, or another rate of `_RATES`."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.number) or math.isnan(float(value)):
        raise EpsilonError(f"{name} must be a number in (0, 1); got {value!r}; {_RATES[name]}")
    if not 0 < float(value) < 1:
        raise EpsilonError(f"{name} must lie in (0, 1); got {value}; {_RATES[name]}")
    return float(value)


def positive_int(value: int, name: str, *, minimum: int = 1) -> int:
    """A whole number of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < minimum:
        raise InputError(f"{name} must be a whole number of at least {minimum}; got {value!r}")
    return int(value)
