"""The errors dwac raises on purpose. Each message says what was required, what was given and what to do.

Every class is a `DwacError`, so one `except` catches them all. Each is also the built-in type that fits
(`ValueError`, `RuntimeError`, `OSError`), so code that does not know dwac still catches it.
"""

from collections.abc import Mapping

EPSILON = 0.05  # the error rate ε of prediction sets and intervals, unless another one is given

__all__ = [
    "BackendError",
    "CalibrationError",
    "CalibrationWarning",
    "ConversionError",
    "DwacError",
    "EmptyReferenceError",
    "EncodingError",
    "EpsilonError",
    "IdError",
    "InputError",
    "KernelError",
    "KindError",
    "LabelError",
    "NonFiniteError",
    "NotRememberedError",
    "PrivacyError",
    "ProcessError",
    "ShapeError",
    "StorageError",
    "UnreadableWarning",
]


class DwacError(Exception):
    """Base class of every error that dwac raises on purpose."""


class InputError(DwacError, ValueError):
    """An argument is not what was required.

    `rows`: if only some rows are at fault, what is wrong with each of them, by row number.
    """

    def __init__(self, *args: object, rows: Mapping[int, str] | None = None) -> None:
        super().__init__(*args)
        self.rows = dict(rows or {})


class KindError(InputError):
    """No row has the required type: the input is something else."""


class ShapeError(InputError):
    """An array has the wrong shape, or two arrays do not fit together."""


class NonFiniteError(InputError):
    """An array contains NaN or infinity where only finite numbers make sense."""


class LabelError(InputError):
    """A label is not a whole number in 0 … n_classes-1."""


class IdError(InputError):
    """An id is unknown, repeated, or already taken."""


class KernelError(InputError):
    """No kernel has the given name."""


class BackendError(InputError):
    """No engine backend has the given name, or it does not support this input."""


class EmptyReferenceError(InputError):
    """A reference set has no examples, so there is nothing to vote."""


class EpsilonError(InputError):
    """An error rate ε lies outside (0, 1)."""


class EncodingError(InputError):
    """A value cannot be stored as JSON, or the JSON was not written by dwac."""


class ConversionError(InputError):
    """A network has no last Linear layer that could be replaced by an embedding."""


class CalibrationError(DwacError, RuntimeError):
    """Conformal prediction was requested from a model without calibration examples."""


class NotRememberedError(DwacError, RuntimeError):
    """A prediction was requested before `remember` gave the model a reference set."""


class StorageError(DwacError, OSError):
    """A model folder or checkpoint is missing, damaged, not dwac's or too new, or could not be written."""


class PrivacyError(DwacError, RuntimeError):
    """Records were requested from a private explanation, which contains none."""


class ProcessError(DwacError, RuntimeError):
    """One of the processes that share a training stopped, or they do not fit together."""

    exit_code = 75  # if another process was lost (EX_TEMPFAIL: try again)


class UnreadableWarning(UserWarning):
    """Some rows to predict could not be read; they get no answer: None for a label, NaN for a number."""


class CalibrationWarning(UserWarning):
    """The calibration set is too small for the requested ε, so some labels can never be left out."""
