"""dwac: deep classifiers whose every prediction is a weighted vote of training examples.

Method: Card, Zhang and Smith, "Deep Weighted Averaging Classifiers", FAT* 2019.
"""

from collections.abc import Hashable, Iterable
from importlib import import_module
from os import PathLike
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dwac import (
        conformal,
        encoders,
        engine,
        errors,
        explain,
        kernels,
        metrics,
        mlflow,
        monitoring,
        nn,
        records,
        report,
        scoring,
        training,
        votes,
        worth,
    )
    from dwac.estimator import DWACClassifier, DWACRegressor, Training, load
    from dwac.explain import Explanation
    from dwac.reference import ReferenceSet
    from dwac.storage import fingerprint

__version__ = "1.0.0rc1"

__all__ = [
    "DWACClassifier",
    "DWACRegressor",
    "Explanation",
    "ReferenceSet",
    "Training",
    "conformal",
    "encoders",
    "engine",
    "errors",
    "explain",
    "explore",
    "fingerprint",
    "kernels",
    "load",
    "metrics",
    "mlflow",
    "monitoring",
    "nn",
    "records",
    "report",
    "scoring",
    "training",
    "votes",
    "worth",
]


# Names that are not submodules, and the submodule that has each. They are imported on first use: importing takes
# seconds, which `dwac --help` and a worker that needs one submodule should not pay.
_PLACES = {
    "DWACClassifier": "estimator",
    "DWACRegressor": "estimator",
    "Explanation": "explain",
    "ReferenceSet": "reference",
    "Training": "estimator",
    "fingerprint": "storage",
    "load": "estimator",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'dwac' has no attribute {name!r}")
    place = import_module(f"dwac.{_PLACES.get(name, name)}")
    globals()[name] = getattr(place, name) if name in _PLACES else place
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def explore(
    clf: "DWACClassifier | DWACRegressor",
    X: Any = None,
    y: Any = None,
    *,
    ids: Iterable[Hashable] | None = None,
    show: bool = True,
    path: "str | PathLike[str] | None" = None,
    **options: Any,
) -> Any:
    """Open a local page to explore every prediction: a map, the voters, and what would change without them.

    Needs the extra `dwac[server]`. The page is served in the background; call `.stop()` on the result to end it.

    Args:
        clf: a fitted classifier or regressor.
        X: rows to look at; by default the training examples. y: their labels or numbers, if known. ids: their names.
        show: open a browser; otherwise only print the address of the page.
        path: write the page to this .html file instead, to read without a server or a network, and return the path. The
            file holds the examples with their values, unless private=True; nothing can be changed in it.
        options: passed on to `dwac.server.explorer.Explorer.of`, such as private=True or title="…".

    >>> import tempfile
    >>> import pandas as pd
    >>> from dwac import DWACClassifier
    >>> X = pd.DataFrame({"age": range(20, 80)})
    >>> clf = DWACClassifier(epochs=5, random_state=0, device="cpu").fit(X, X["age"] < 50)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     explore(clf, X[:5], path=f"{folder}/page.html").name
    'page.html'
    """
    from dwac import errors

    try:
        from dwac.server.explorer import Explorer, open_page, write_page
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "dwac":
            raise
        raise errors.InputError(f"explore needs {error.name}: pip install 'dwac[server]'") from None
    from sklearn.base import BaseEstimator

    if isinstance(clf, BaseEstimator) and not hasattr(clf, "encoder"):
        other = type(clf).__name__
        raise errors.KindError(f"explore shows models of dwac; got {other}; dwac.votes explains forests and neighbours")
    explorer = Explorer.of(clf, X, y, ids=ids, **options)
    return open_page(explorer, show=show) if path is None else write_page(explorer, path)
