"""An encoder of every kind, and the same fitted: once for each module that asks all of them."""

import pytest
import torch

from dwac.encoders import Encoder
from tests.encoders.helpers import CASES, Case


@pytest.fixture(scope="module", params=CASES)
def case(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Case:
    torch.manual_seed(0)
    return CASES[request.param](tmp_path_factory.mktemp("encoder"))


@pytest.fixture(scope="module")
def fitted(case: Case) -> Encoder:
    return case.new().fit(case.X)
