"""What the tests of the engine share."""

import warnings
from collections.abc import Iterator

import numpy as np
import pytest

from tests.engine.helpers import INTERPRETED


@pytest.fixture(autouse=True)
def quiet_interpreter() -> Iterator[None]:
    """NumPy warns of overflows that a GPU passes on as infinities, and that the engine then answers in float64."""
    with np.errstate(all="ignore" if INTERPRETED else None), warnings.catch_warnings():
        if INTERPRETED:
            warnings.simplefilter("ignore", RuntimeWarning)  # from reductions over only NaN
        yield
