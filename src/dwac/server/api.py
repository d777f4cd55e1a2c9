"""The REST API, version 1: predict, sets, explain, model, health and metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dwac.server import schemas
from dwac.server.refusals import RefusalError
from dwac.server.service import Service, json_response

OPEN = ("/v1/health/live", "/v1/health/ready")  # need no token: they reveal nothing about the model
_ASKED = {
    400: "The body is not JSON.",
    408: "The body arrived too slowly.",
    409: "The model cannot give this answer.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    422: "A field is invalid or, if `strict`, a row cannot be read.",
    503: "Busy; try again.",
    504: "No answer in time.",
}
_ALL = {401: "A bearer token is required.", 421: "The host name is not allowed.", 500: "The service failed."}


def _refusals(reasons: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": schemas.Refused, "description": text} for status, text in sorted(reasons.items())}


def router(service: Service) -> APIRouter:
    """The routes for one model."""
    api = APIRouter(prefix="/v1", responses=_refusals(_ALL))
    limits, reader = service.limits, service.reader

    def asked(kind: type[schemas._Asked]) -> dict[str, Any]:
        body = schemas.request_body(kind, reader, limits)
        return {"openapi_extra": body, "responses": _refusals(_ASKED)}

    @api.post("/predict", response_model=schemas.Predictions, summary="Predict", **asked(schemas.Ask))
    async def predict(request: Request) -> Response:
        """Label, probabilities, confidence, credibility, typicality and prediction set of each row."""
        ask = schemas.checked(schemas.Ask, await service.read(request))
        service.check_rows(ask.rows, limits.rows)
        predictions = await service.votes(ask.rows, strict=ask.strict)
        return json_response(service.answers.predictions(predictions, ask.epsilon))

    @api.post("/sets", response_model=schemas.Sets, summary="Prediction sets", **asked(schemas.Ask))
    async def sets(request: Request) -> Response:
        """The labels that cannot be rejected at error rate ε, and the p-value of every label."""
        ask = schemas.checked(schemas.Ask, await service.read(request))
        service.check_rows(ask.rows, limits.rows)
        return json_response(service.answers.sets(await service.votes(ask.rows, strict=ask.strict), ask.epsilon))

    @api.post("/explain", response_model=schemas.Explanations, summary="Explain", **asked(schemas.AskWhy))
    async def explain(request: Request) -> Response:
        """The training examples that voted and their shares; how few decide; how many must go to change the label."""
        ask = schemas.checked(schemas.AskWhy, await service.read(request))
        service.check_rows(ask.rows, limits.rows_to_explain)
        if ask.k > limits.neighbors:
            raise RefusalError(422, "invalid_request", f"k must be at most {limits.neighbors}; got {ask.k}")
        return json_response({"explanations": await service.explanations(ask.rows, ask.k, strict=ask.strict)})

    @api.get("/model", response_model=schemas.Card, summary="The model")
    async def model() -> Response:
        """Its kind and classes, the form of its rows, the number of voters, and the limits of this service."""
        return json_response(service.card())

    @api.get("/health/live", response_model=schemas.Health, summary="Alive?")
    async def live() -> Response:
        """Whether the process responds."""
        return json_response({"status": "alive"})

    @api.get(
        "/health/ready",
        response_model=schemas.Health,
        summary="Ready?",
        responses=_refusals({503: "Busy, or failed.", 504: "No answer in time."}),
    )
    async def ready() -> Response:
        """Whether the service accepts predictions now."""
        await service.require_ready()
        return json_response({"status": "ready"})

    @api.get("/metrics", response_class=Response, summary="Metrics",
             responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})  # fmt: skip
    async def metrics() -> Response:
        """Counters for Prometheus."""
        waiting = service.batcher.waiting if service.batcher else 0
        text = service.metrics.text(waiting_requests=waiting, buffered_bytes=service.buffered)
        return Response(text, media_type="text/plain; version=0.0.4")

    return api
