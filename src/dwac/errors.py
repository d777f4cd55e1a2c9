"""The errors dwac raises on purpose. Each message says what was required, what came and what to do.

Every class is a `DwacError`, so one `except` catches them all, and also the built-in type that fits
(`ValueError`, `RuntimeError`, `OSError`), so code that knows nothing of dwac still catches them.
"""

from collections.abc import Mapping

__all__ = [
    "BackendError",
    "CalibrationError",
    "CalibrationWarning",
    "ConversionError",
    "DwacError",
    "EmptyReferenceError",
    "EncodingError",
    "EpsilonError",
    "HeadError",
    "IdError",
    "InputError",
    "KernelError",
    "KindError",
    "LabelError",
    "NonFiniteError",
    "NotRememberedError",
    "PrivacyError",
    "ShapeError",
    "StorageError",
    "UnreadableWarning",
]


class DwacError(Exception):
    """Base of every error that dwac raises on purpose."""


class InputError(DwacError, ValueError):
    """An argument is not what was required.

    `rows`: where single rows are to blame and the others are fine, what is wrong with each, by its number.
    """

    def __init__(self, *said: object, rows: Mapping[int, str] | None = None) -> None:
        super().__init__(*said)
        self.rows = dict(rows or {})


class KindError(InputError):
    """No row is of the type that is required: something else was given."""


class ShapeError(InputError):
    """An array has the wrong shape, or two arrays do not fit together."""


class NonFiniteError(InputError):
    """An array holds NaN or infinity where only finite numbers make sense."""


class LabelError(InputError):
    """A label is not a whole number in 0 … n_classes-1."""


class IdError(InputError):
    """An id is unknown, repeated, or already taken."""


class KernelError(InputError):
    """No kernel has the given name."""


class BackendError(InputError):
    """No engine backend has the given name, or it cannot serve this input."""


class EmptyReferenceError(InputError):
    """A reference set without examples cannot vote."""


class EpsilonError(InputError):
    """An error rate ε lies outside (0, 1)."""


class EncodingError(InputError):
    """A value cannot be kept in JSON, or JSON holds none that dwac wrote."""


class ConversionError(InputError):
    """A network has no last Linear layer that could be swapped for an embedding."""


class HeadError(InputError):
    """No head has the given name, or it cannot do what was asked."""


class CalibrationError(DwacError, RuntimeError):
    """Conformal prediction was asked of a model without calibration examples."""


class NotRememberedError(DwacError, RuntimeError):
    """A model was asked to predict before `remember` gave it a reference set."""


class StorageError(DwacError, OSError):
    """A model folder or checkpoint is missing, damaged, foreign or newer, or could not be written."""


class PrivacyError(DwacError, RuntimeError):
    """A private explanation was asked for what it does not hold."""


class UnreadableWarning(UserWarning):
    """Rows to predict could not be read; each got an answer that says so, with prior probabilities."""


class CalibrationWarning(UserWarning):
    """The calibration set is too small for the asked ε, so some labels can never be left out."""
