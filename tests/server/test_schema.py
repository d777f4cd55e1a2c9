"""Requests drawn from the service's own OpenAPI schema are answered as it says, for every kind of rows and target."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_schema_conformance,
    status_code_conformance,
)

from dwac.server import create_app
from tests.drawn import TIMES
from tests.server.client import HANG, served

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance,
          negative_data_rejection]  # fmt: skip
# No schema can tell a picture from other base64, pixels that a network bears from those it does not, or says which
# labels a model has.
WIDER = ("digits", "pictures", "tags")


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize(
    "kind", ["digits", "table", "texts", "pictures", "condensed", "numbers", "two_numbers", "tags", "ordered"]
)
def test_requests_made_from_its_own_schema_are_answered_as_it_says(kind: str, request: pytest.FixtureRequest) -> None:
    calm = settings(max_examples=10 * TIMES, suppress_health_check=list(HealthCheck))
    checks = CHECKS if kind in WIDER else [*CHECKS, positive_data_acceptance]
    statuses: set[int] = set()

    def check(case: Any) -> None:
        # Nor can it tell the id of a training example from other texts, or a range from two numbers.
        named = isinstance(case.body, dict) and any(case.body.get(name) is not None for name in ("against", "example"))
        wider = case.path == "/v1/recourse" or named
        statuses.add(case.call_and_validate(checks=CHECKS if wider else checks, timeout=HANG).status_code)

    with served(create_app(request.getfixturevalue(kind))) as client:
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{client.port}/openapi.json")
        found: list[Any] = list(schema.get_all_operations())
        for operation in (each.ok() for each in found):
            for mode in list(GenerationMode) if operation.method == "post" else [GenerationMode.POSITIVE]:
                calm(given(case=operation.as_strategy(generation_mode=mode))(check))()
        example = schema["/v1/predict"]["POST"].definition.raw["requestBody"]["content"]["application/json"]["example"]
        assert client.post("/v1/predict", {**example, "strict": True}).status == 200
        assert client.get("/v1/health/ready").status == 200
    assert {200, 422} <= statuses
