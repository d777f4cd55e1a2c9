"""Requests drawn from the service's own OpenAPI schema are answered as it says, for every kind of rows and target."""

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings

from dwac.server import create_app
from tests.drawn import TIMES
from tests.server.client import HANG, served

# No schema can tell a picture from other base64, pixels that a network bears from those it does not, or says which
# labels a model has.
WIDER = ("digits", "pictures", "tags")


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize(
    "kind", ["digits", "table", "texts", "pictures", "condensed", "numbers", "two_numbers", "tags", "ordered"]
)
def test_requests_made_from_its_own_schema_are_answered_as_it_says(kind: str, request: pytest.FixtureRequest) -> None:
    import schemathesis  # every process that collects would import it
    from schemathesis import GenerationMode as modes  # noqa: N813
    from schemathesis.specs.openapi import checks as known

    calm = settings(max_examples=10 * TIMES, suppress_health_check=list(HealthCheck))
    always = [schemathesis.checks.not_a_server_error, known.status_code_conformance, known.content_type_conformance,
              known.response_schema_conformance, known.negative_data_rejection]  # fmt: skip
    checks = always if kind in WIDER else [*always, known.positive_data_acceptance]
    statuses: set[int] = set()

    def check(case: Any) -> None:
        # Nor can it tell the id of a training example from other texts, a range from two numbers, or the measures that
        # need a label.
        named = isinstance(case.body, dict) and any(case.body.get(name) is not None for name in ("against", "example"))
        wider = case.path in ("/v1/recourse", "/v1/decide") or named
        statuses.add(case.call_and_validate(checks=always if wider else checks, timeout=HANG).status_code)

    with served(create_app(request.getfixturevalue(kind))) as client:
        schema = schemathesis.openapi.from_url(f"http://127.0.0.1:{client.port}/openapi.json")
        found: list[Any] = list(schema.get_all_operations())
        for operation in (each.ok() for each in found):
            for mode in list(modes) if operation.method == "post" else [modes.POSITIVE]:
                calm(given(case=operation.as_strategy(generation_mode=mode))(check))()
        example = schema["/v1/predict"]["POST"].definition.raw["requestBody"]["content"]["application/json"]["example"]
        assert client.post("/v1/predict", {**example, "strict": True}).status == 200
        assert client.get("/v1/health/ready").status == 200
    assert {200, 422} <= statuses
