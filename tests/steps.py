"""How small tables are cross-fitted, and the weights of representatives: roughly, or as users fit them."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dwac.estimator import condensing
from dwac.training import cross_fit

_PLACES = (cross_fit, "STEPS"), (cross_fit, "BATCH"), (cross_fit, "QUERIES"), (condensing, "STEPS")


def now() -> tuple[int, ...]:
    """Steps of cross-fitting, the rows of each, the rows that choose scales, and the steps of fitting weights."""
    return tuple(getattr(*place) for place in _PLACES)


ALL, FEW = now(), (10, 32, 64, 20)


@contextmanager
def steps(wanted: tuple[int, ...]) -> Iterator[None]:
    """Take so many steps meanwhile."""
    with pytest.MonkeyPatch.context() as patch:
        for (module, name), number in zip(_PLACES, wanted, strict=True):
            patch.setattr(module, name, number)
        yield
