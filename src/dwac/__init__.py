"""dwac: deep classifiers whose every prediction is a weighted vote of training examples.

Method: Card, Zhang and Smith, "Deep Weighted Averaging Classifiers", FAT* 2019.
"""

from collections.abc import Hashable, Iterable
from typing import Any

from dwac import conformal, datasets, encoders, engine, errors, explain, kernels, metrics, nn, report, training, worth
from dwac.estimator import DWACClassifier, DWACRegressor, load
from dwac.explain import Explanation
from dwac.reference import ReferenceSet

__version__ = "0.1.0"

__all__ = [
    "DWACClassifier",
    "DWACRegressor",
    "Explanation",
    "ReferenceSet",
    "conformal",
    "datasets",
    "encoders",
    "engine",
    "errors",
    "explain",
    "explore",
    "kernels",
    "load",
    "metrics",
    "nn",
    "report",
    "training",
    "worth",
]


def explore(
    clf: DWACClassifier | DWACRegressor,
    X: Any = None,
    y: Any = None,
    *,
    ids: Iterable[Hashable] | None = None,
    show: bool = True,
    **options: Any,
) -> Any:
    """Open a local page to explore every prediction: a map, the voters, and what would change without them.

    Needs the extra `dwac[server]`. The page is served in the background; call `.stop()` on the result to end it.

    Args:
        clf: a fitted classifier or regressor.
        X: rows to look at; by default the training examples. y: their labels or numbers, if known. ids: their names.
        show: open a browser; otherwise only print the address of the page.
        options: passed on to `dwac.server.explorer.Explorer.of`, such as private=True or title="…".
    """
    try:
        from dwac.server.explorer import Explorer, open_page
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] == "dwac":
            raise
        raise errors.InputError(f"explore needs {error.name}: pip install 'dwac[server]'") from None
    return open_page(Explorer.of(clf, X, y, ids=ids, **options), show=show)
