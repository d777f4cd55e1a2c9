"""The REST API, version 1: predict, sets, explain, model, health and metrics."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response

from dwac.server import schemas
from dwac.server.refusals import RefusalError
from dwac.server.service import Service, told

OPEN = ("/v1/health/live", "/v1/health/ready")  # what needs no token: it says nothing of the model
_ASKED = {
    400: "Not JSON.",
    408: "The body came too slowly.",
    409: "This model has no such answer.",
    413: "Too much.",
    415: "Not application/json.",
    422: "A field does not fit; or, where `strict`, a row.",
    503: "Busy: try again.",
    504: "No answer in time.",
}
_ALL = {401: "A bearer token is needed.", 421: "Asked for under a foreign name.", 500: "The service failed."}


def _refusals(said: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": schemas.Refused, "description": text} for status, text in sorted(said.items())}


def router(service: Service) -> APIRouter:
    """The routes for one model."""
    api = APIRouter(prefix="/v1", responses=_refusals(_ALL))
    limits, reader = service.limits, service.reader

    def asked(kind: type[schemas._Asked]) -> dict[str, Any]:
        body = schemas.request_body(kind, reader, limits)
        return {"openapi_extra": body, "responses": _refusals(_ASKED)}

    @api.post("/predict", response_model=schemas.Predictions, summary="Predict", **asked(schemas.Ask))
    async def predict(request: Request) -> Response:
        """Label, probabilities, confidence, credibility and label set of each row."""
        ask = schemas.checked(schemas.Ask, await service.read(request))
        service.check_rows(ask.rows, limits.rows)
        said = await service.votes(ask.rows, strict=ask.strict)
        return told(service.answers.predictions(said, ask.epsilon))

    @api.post("/sets", response_model=schemas.Sets, summary="Label sets", **asked(schemas.Ask))
    async def sets(request: Request) -> Response:
        """The labels that cannot be rejected at error rate ε, and the p-value of every label."""
        ask = schemas.checked(schemas.Ask, await service.read(request))
        service.check_rows(ask.rows, limits.rows)
        return told(service.answers.sets(await service.votes(ask.rows, strict=ask.strict), ask.epsilon))

    @api.post("/explain", response_model=schemas.Explanations, summary="Explain", **asked(schemas.AskWhy))
    async def explain(request: Request) -> Response:
        """Which training examples voted, how much each, how few suffice, and how many would have to go."""
        ask = schemas.checked(schemas.AskWhy, await service.read(request))
        service.check_rows(ask.rows, limits.rows_to_explain)
        if ask.k > limits.neighbors:
            raise RefusalError(
                422, "invalid_request", f"k: at most {limits.neighbors} neighbours are shown; got {ask.k}"
            )
        return told({"explanations": await service.explanations(ask.rows, ask.k, strict=ask.strict)})

    @api.get("/model", response_model=schemas.Card, summary="The model")
    async def model() -> Response:
        """Its kind, classes, the rows it takes, who votes, and the limits of this service."""
        return told(service.card())

    @api.get("/health/live", response_model=schemas.Health, summary="Alive?")
    async def live() -> Response:
        """Whether the process answers."""
        return told({"status": "alive"})

    @api.get(
        "/health/ready",
        response_model=schemas.Health,
        summary="Ready?",
        responses=_refusals({503: "Busy, or failed.", 504: "No answer in time."}),
    )
    async def ready() -> Response:
        """Whether a prediction would be taken now."""
        await service.require_ready()
        return told({"status": "ready"})

    @api.get("/metrics", response_class=Response, summary="Metrics",
             responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})  # fmt: skip
    async def metrics() -> Response:
        """Counters for Prometheus."""
        waiting = service.batcher.waiting if service.batcher else 0
        text = service.metrics.text(waiting_requests=waiting, buffered_bytes=service.buffered)
        return Response(text, media_type="text/plain; version=0.0.4")

    return api
