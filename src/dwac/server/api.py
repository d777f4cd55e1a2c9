"""The REST API, version 1: predict, sets, explain, model, monitor, health and metrics.

What a request takes and answers depends on the task: one label, several labels or numbers, which have no sets.
"""

from __future__ import annotations

import asyncio
from typing import Any

from fastapi import APIRouter
from pydantic import BaseModel
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

    task = service.answers.schemas

    def asked(name: str, kind: type[schemas.Asked], answer: type[BaseModel]) -> dict[str, Any]:
        body = schemas.request_body(kind, reader, limits)
        about = {"response_model": answer, "description": task.about[name]}
        return {**about, "openapi_extra": body, "responses": _refusals(_ASKED)}

    @api.post("/predict", summary="Predict", **asked("predict", task.ask, task.predictions))
    async def predict(request: Request) -> Response:
        ask = await rows_of(request, task.ask)
        return json_response(service.answers.predictions(await service.votes(ask), ask))

    if task.sets is not None:

        @api.post("/sets", summary="Prediction sets", **asked("sets", task.ask, task.sets))
        async def sets(request: Request) -> Response:
            ask = await rows_of(request, task.ask)
            return json_response(service.answers.sets(await service.votes(ask), ask))

    @api.post("/explain", summary="Explain", **asked("explain", task.ask_why, task.explanations))
    async def explain(request: Request) -> Response:
        ask = schemas.checked(task.ask_why, await service.read(request))
        service.check_rows(ask.rows, limits.rows_to_explain)
        if ask.k > limits.neighbors:
            raise RefusalError(422, "invalid_request", f"k must be at most {limits.neighbors}; got {ask.k}")
        return json_response({"explanations": await service.explanations(ask)})

    async def rows_of(request: Request, kind: type[schemas.Asked]) -> schemas.Asked:
        ask = schemas.checked(kind, await service.read(request))
        service.check_rows(ask.rows, limits.rows)
        return ask

    @api.get("/model", response_model=task.card, summary="The model", description=task.about["model"])
    async def model() -> Response:
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

    @api.get(
        "/monitor",
        response_model=schemas.Monitored,
        summary="Are rows as before?",
        responses=_refusals({409: "The model has nothing to compare with, or the service does not monitor."}),
    )
    async def monitor() -> Response:
        """Whether the rows of `predict` and `sets` are still like those of calibration, and what moved if not.

        The alarm is false with probability at most `false_alarms`, ever, however often one looks.
        """
        return json_response(await asyncio.to_thread(service.watch.answer))

    @api.get("/metrics", response_class=Response, summary="Metrics",
             responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}})  # fmt: skip
    async def metrics() -> Response:
        """Counters for Prometheus, of all workers; those of others are up to a second old."""
        waiting = service.batcher.waiting if service.batcher else 0
        watch = service.watch
        counted = service.metrics.plus(await asyncio.to_thread(watch.other_metrics))
        gauges = await asyncio.to_thread(watch.gauges)
        text = counted.text(waiting_requests=waiting, buffered_bytes=service.buffered, **gauges)
        return Response(text, media_type="text/plain; version=0.0.4")

    return api
