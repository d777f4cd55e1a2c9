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
    """Base class of every error that dwac raises on purpose.

    >>> import dwac
    >>> try:
    ...     dwac.load("no-such-folder")
    ... except dwac.errors.DwacError as error:
    ...     print(type(error).__name__, isinstance(error, OSError))
    StorageError True
    """


class InputError(DwacError, ValueError):
    """An argument is not what was required.

    `rows`: if only some rows are at fault, what is wrong with each of them, by row number.

    >>> import dwac
    >>> dwac.ReferenceSet([[0.0]], [0]).nearest([[0.0]], k=0)
    Traceback (most recent call last):
        ...
    dwac.errors.InputError: k must be a whole number of at least 1; got 0
    """

    def __init__(self, *args: object, rows: Mapping[int, str] | None = None) -> None:
        super().__init__(*args)
        self.rows = dict(rows or {})


class KindError(InputError):
    """No row has the required type: the input is something else.

    >>> from sklearn.ensemble import RandomForestClassifier
    >>> import dwac
    >>> dwac.explore(RandomForestClassifier())
    Traceback (most recent call last):
        ...
    dwac.errors.KindError: explore shows models of dwac; got RandomForestClassifier; dwac.votes explains forests
        and neighbours
    """


class ShapeError(InputError):
    """An array has the wrong shape, or two arrays do not fit together.

    >>> import torch
    >>> from dwac.kernels import squared_distances
    >>> squared_distances(torch.zeros(2, 3), torch.zeros(2, 4))
    Traceback (most recent call last):
        ...
    dwac.errors.ShapeError: points must be (n, d) and (m, d) with the same d; got (2, 3) and (2, 4)
    """


class NonFiniteError(InputError):
    """An array contains NaN or infinity where only finite numbers make sense.

    >>> import dwac
    >>> dwac.ReferenceSet([[float("nan")]], [0])
    Traceback (most recent call last):
        ...
    dwac.errors.NonFiniteError: embeddings must be finite and at most 1e+150 in size; got nan at row 0, column 0;
        drop or repair such rows first
    """


class LabelError(InputError):
    """A label is not a whole number in 0 … n_classes-1.

    >>> import dwac
    >>> dwac.ReferenceSet([[0.0]], [2], n_classes=2)
    Traceback (most recent call last):
        ...
    dwac.errors.LabelError: labels must lie in 0 … 1; got 2 at row 0
    """


class IdError(InputError):
    """An id is unknown, repeated, or already taken.

    >>> import dwac
    >>> dwac.ReferenceSet([[0.0]], [0], ids=["ann"]).remove(["bob"])
    Traceback (most recent call last):
        ...
    dwac.errors.IdError: ids must be in the set; not in it: 'bob'; its ids look like 'ann'
    """


class KernelError(InputError):
    """No kernel has the given name.

    >>> from dwac.kernels import get_kernel
    >>> get_kernel("guassian")
    Traceback (most recent call last):
        ...
    dwac.errors.KernelError: unknown kernel 'guassian'; choose gaussian, laplace, inverse_quadratic
    """


class BackendError(InputError):
    """No engine backend has the given name, or it does not support this input.

    >>> import dwac
    >>> dwac.ReferenceSet([[0.0]], [0]).log_class_weights([[0.0]], backend="magic")
    Traceback (most recent call last):
        ...
    dwac.errors.BackendError: unknown backend 'magic'; choose auto, ...
    """


class EmptyReferenceError(InputError):
    """A reference set has no examples, so there is nothing to vote.

    >>> import numpy as np
    >>> import dwac
    >>> dwac.ReferenceSet(np.zeros((0, 2)), [], n_classes=2)
    Traceback (most recent call last):
        ...
    dwac.errors.EmptyReferenceError: a reference set needs at least one example and one dimension; got shape (0,
        2)
    """


class EpsilonError(InputError):
    """An error rate ε lies outside (0, 1).

    >>> from dwac.conformal import label_sets
    >>> label_sets([[0.8, 0.03]], epsilon=5)
    Traceback (most recent call last):
        ...
    dwac.errors.EpsilonError: epsilon must lie in (0, 1); got 5; 0.05 gives sets with an error rate of at most 5 %
    """


class EncodingError(InputError):
    """A value cannot be stored as JSON, or the JSON was not written by dwac.

    >>> import pandas as pd
    >>> import dwac
    >>> X = pd.DataFrame({"age": range(20, 80)}, index=pd.period_range("2020-01", periods=60, freq="M"))
    >>> clf = dwac.DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> clf.save("model")
    Traceback (most recent call last):
        ...
    dwac.errors.EncodingError: cannot store Period('2020-01', 'M') of type Period as a label or id; use None,
        bool, int, float, str, bytes, a date, a Decimal, a numpy scalar, or a tuple of these
    """


class ConversionError(InputError):
    """A network has no last Linear layer that could be replaced by an embedding.

    >>> from torch import nn
    >>> import dwac
    >>> dwac.nn.convert(nn.ReLU(), n_classes=2)
    Traceback (most recent call last):
        ...
    dwac.errors.ConversionError: convert needs a network with an nn.Linear layer to replace; ReLU has no
        nn.Linear; use WeightedAverage(backbone, n_classes) with a backbone that returns (n, features)
    """


class CalibrationError(DwacError, RuntimeError):
    """Conformal prediction was requested from a model without calibration examples.

    >>> from sklearn.neighbors import KNeighborsClassifier
    >>> from dwac.votes import from_neighbors
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
    >>> from_neighbors(KNeighborsClassifier(2).fit(X, y), X, y).predict_set(X)
    Traceback (most recent call last):
        ...
    dwac.errors.CalibrationError: sets and intervals need calibration; call calibrate(X, y), or calibrate(), first
    """


class NotRememberedError(DwacError, RuntimeError):
    """A prediction was requested before `remember` gave the model a reference set.

    >>> import torch
    >>> import dwac
    >>> model = dwac.nn.WeightedAverage(torch.nn.Linear(2, 4), n_classes=2, n_features=4).eval()
    >>> model(torch.zeros(1, 2))
    Traceback (most recent call last):
        ...
    dwac.errors.NotRememberedError: the model needs references before it can predict; call remember(loader) with
        training data
    """


class StorageError(DwacError, OSError):
    """A model folder or checkpoint is missing, damaged, not dwac's or too new, or could not be written.

    >>> import dwac
    >>> dwac.load("no-such-folder")
    Traceback (most recent call last):
        ...
    dwac.errors.StorageError: no-such-folder must be a model folder; it does not exist
    """


class PrivacyError(DwacError, RuntimeError):
    """Records were requested from a private explanation, which contains none.

    >>> from dwac import ReferenceSet
    >>> from dwac.explain import explain
    >>> e = explain(ReferenceSet([[0.0], [1.0]], [0, 1]), [[0.1]], private=True)[0]
    >>> e.flip_set()
    Traceback (most recent call last):
        ...
    dwac.errors.PrivacyError: a private explanation holds no ids; use flip_size for the number of examples
    """


class ProcessError(DwacError, RuntimeError):
    """One of the processes that share a training stopped, or they do not fit together.

    >>> import os
    >>> from unittest.mock import patch
    >>> import dwac
    >>> with patch.dict(os.environ, RANK="0"), dwac.training.processes():
    ...     pass
    Traceback (most recent call last):
        ...
    dwac.errors.ProcessError: several processes need the variables RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT;
        WORLD_SIZE is not set; start them with torchrun
    """

    exit_code = 75  # if another process was lost (EX_TEMPFAIL: try again)


class UnreadableWarning(UserWarning):
    """Some rows to predict could not be read; they get no answer: None for a label, NaN for a number.

    >>> import warnings
    >>> import pandas as pd
    >>> import dwac
    >>> X = pd.DataFrame({"age": range(20, 80)})
    >>> clf = dwac.DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> with warnings.catch_warnings(record=True) as given:
    ...     warnings.simplefilter("always")
    ...     answers = clf.predict(pd.DataFrame({"age": [33, "old"]}))
    >>> print(given[0].message, list(answers))
    1 of 2 rows could not be read (row 1: column 'age' must hold numbers; got 'old'); their answer is None or NaN;
    unreadable(X) names them all [True, None]
    """


class CalibrationWarning(UserWarning):
    """The calibration set is too small for the requested ε, so some labels can never be left out.

    >>> import warnings
    >>> from dwac.conformal import Calibration
    >>> with warnings.catch_warnings(record=True) as given:
    ...     warnings.simplefilter("always")
    ...     sets = Calibration([0.1, 0.2, 0.9]).predict([[0.2, 0.95]]).label_sets(0.05)
    >>> print(given[0].message)
    at epsilon=0.05 a label can be left out only with at least 19 calibration examples, and the calibration set
    has 3: the affected labels are in every set. Calibrate with more examples or use a larger epsilon
    """
