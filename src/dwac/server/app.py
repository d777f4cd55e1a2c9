"""The application: `create_app(model)` is an ASGI application for any server; `dwac serve` runs it.

app = create_app(dwac.load("model"), token="…", private=True)

The REST API, version 1, has predict, sets, decide, explain, recourse, model, monitor, health and metrics. The contents
of requests and answers depend on the task: one label, several labels or numbers, which have no sets.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from types import MappingProxyType
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.routing import APIRoute
from fastapi.staticfiles import StaticFiles
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response
from starlette.routing import Match
from starlette.types import ASGIApp, Receive, Scope, Send

from dwac.errors import DwacError, InputError
from dwac.languages import preferred
from dwac.server import schemas
from dwac.server.answers import Model
from dwac.server.gate import LOOPBACK, Gate
from dwac.server.limits import Limits, RefusalError, refusal_of
from dwac.server.service import Service, json_response
from dwac.server.watch import AskOutcomes, Metrics, Monitored, OutcomesTaken, Watch

STATIC = Path(__file__).parent / "static"
_ABOUT = "Every prediction is a weighted vote of training examples, with a measure of how far to trust it."
OPEN = ("/v1/health/live", "/v1/health/ready")  # need no token: they reveal nothing about the model
_POST_REFUSALS = {
    400: "The body is not JSON.",
    408: "The body arrived too slowly.",
    409: "The model cannot give this answer.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    422: "A field is invalid or, if `strict`, a row cannot be read.",
    503: "Busy; try again.",
    504: "No answer in time.",
}
_ANY_REFUSALS = {
    401: "A bearer token is required.",
    421: "The host name is not allowed.",
    500: "The service failed.",
}


def create_app(
    model: Model,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    private: bool | None = None,
    hosts: Collection[str] | None = LOOPBACK,
    routers: Iterable[APIRouter] = (),
    watch: Watch | None = None,
    record: str | None = None,
) -> FastAPI:
    """An application that answers for a fitted model.

    Args:
        model: never changed by requests.
        token: required as `Authorization: Bearer …`, except for health and the pages themselves.
        limits: on each request and on all requests together.
        private: answers contain only labels and numbers in whole per cent: no id, distance, weight or record of a
            training example. The default for a model that was saved without its training examples.
        hosts: host names that requests may use; None for any.
        routers: further routes, behind the same gate; they may use `app.state.service`.
        watch: how the rows of requests are monitored; by default in this process, and forgotten with it.
        record: the folder of a record of decisions (`dwac.records`), to which each answer to /v1/predict, /v1/sets and
            /v1/decide is appended before it is given; by default none.
    """
    if token is not None and (not token.isascii() or not token.isprintable() or len(token) < 16 or " " in token):
        raise InputError("the token must have at least 16 printable ASCII characters and no spaces; choose another one")
    service = Service(model, limits or Limits(), private, watch, record)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with app.state.service.running():
            yield

    app = Application(title="dwac", version=version("dwac"), description=_ABOUT, docs_url=None, redoc_url=None,
                      lifespan=lifespan)  # fmt: skip
    app.state.service = service
    own, further = routes_of(service), tuple(routers)
    routers = (*further, own, _pages())
    for router in routers:
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    service.metrics = Metrics(getattr(route, "path", "") for router in routers for route in router.routes)
    gate: dict[str, Any] = {
        "metrics": service.metrics,
        "admit": service.queue,
        "token": token,
        "hosts": hosts,
        "open_paths": (*OPEN, "/", "/docs"),
        "fingerprint": model.fingerprint_,
    }
    app.add_middleware(Gate, **gate)
    app.shortcuts = {
        route.path: Gate(_respond(route.endpoint), **gate)
        for route in own.routes
        if isinstance(route, APIRoute) and route.methods == {"POST"} and not _is_taken(route.path, further)
    }
    app.add_exception_handler(DwacError, _refuse)
    app.add_exception_handler(HTTPException, _refuse_http)
    if token is not None:
        _document_token(app)
    return app


class Application(FastAPI):
    """Requests to the model take a shortcut behind the gate: the routing of FastAPI takes longer than all else.

    They take the usual way, too, if the application has further middleware.
    """

    shortcuts: Mapping[str, Gate] = MappingProxyType({})  # by path, for POST

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] == "http" and scope["method"] == "POST" and len(self.user_middleware) == 1:
            gate = self.shortcuts.get(scope["path"])
            if gate is not None and not self.root_path:
                await gate(scope, receive, send)
                return
        await super().__call__(scope, receive, send)


def _is_taken(path: str, routers: Iterable[APIRouter]) -> bool:
    """Whether one of these routers, which come first, answers POST requests to a path."""
    scope = {"type": "http", "method": "POST", "path": path}
    return any(route.matches(scope)[0] is Match.FULL for router in routers for route in router.routes)


def _respond(endpoint: Callable[[Request], Awaitable[Response]]) -> ASGIApp:
    """The ASGI application of one endpoint; the gate turns its errors into refusals."""

    async def respond(scope: Scope, receive: Receive, send: Send) -> None:
        response = await endpoint(Request(scope, receive))
        await response(scope, receive, send)

    return respond


def _pages() -> APIRouter:
    """The documentation page."""
    pages = APIRouter(include_in_schema=False)

    @pages.get("/docs")
    async def docs() -> Response:
        return FileResponse(STATIC / "docs.html")

    @pages.get("/")
    async def start() -> Response:
        return RedirectResponse("/docs")

    return pages


def _refuse(request: Request, error: Exception) -> Response:
    del request
    refusal = refusal_of(error)
    if refusal.status == 500:
        raise error  # the gate logs it
    return refusal.response()


def _refuse_http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "refused")
    message = f"{request.method} {request.url.path[:100]}: {error.detail}; GET /docs lists all requests"
    return RefusalError(error.status_code, code, message, error.headers).response()


def _document_token(app: FastAPI) -> None:
    """Mark in the OpenAPI description which requests need a token."""
    made = app.openapi

    def openapi() -> dict[str, Any]:
        described = made()
        described.setdefault("components", {})["securitySchemes"] = {"token": {"type": "http", "scheme": "bearer"}}
        for path, methods in described["paths"].items():
            for operation in methods.values():
                operation["security"] = [] if path in OPEN else [{"token": []}]
        return described

    app.openapi = openapi  # type: ignore[method-assign]


def _refusals(reasons: dict[int, str]) -> dict[int | str, dict[str, Any]]:
    return {status: {"model": schemas.Refused, "description": text} for status, text in sorted(reasons.items())}


def routes_of(service: Service) -> APIRouter:
    """The routes for one model."""
    api = APIRouter(prefix="/v1", responses=_refusals(_ANY_REFUSALS))
    limits, reader = service.limits, service.reader

    task = service.schemas

    def describe(name: str, kind: type[schemas.Asked], answer: type[BaseModel]) -> dict[str, Any]:
        body = schemas.request_body(kind, reader, limits, service.model.target_)
        about = {"response_model": answer, "description": task.about[name]}
        return {**about, "openapi_extra": body, "responses": _refusals(_POST_REFUSALS)}

    @api.post("/predict", summary="Predict", **describe("predict", task.ask, task.predictions))
    async def predict(request: Request) -> Response:
        ask = await rows_of(request, task.ask)
        return json_response(await service.predict(ask))

    if task.sets is not None:

        @api.post("/sets", summary="Prediction sets", **describe("sets", task.ask, task.sets))
        async def sets(request: Request) -> Response:
            ask = await rows_of(request, task.ask)
            return json_response(await service.predict(ask, sets=True))

    @api.post("/decide", summary="Decide or hand over",
              **describe("decide", schemas.AskDecision, schemas.Decided))  # fmt: skip
    async def decide(request: Request) -> Response:
        ask = await rows_of(request, schemas.AskDecision)
        return json_response(await service.decide(ask))

    @api.post("/explain", summary="Explain", **describe("explain", task.ask_why, task.explanations))
    async def explain(request: Request) -> Response:
        ask = in_language(schemas.check_request(task.ask_why, await service.read(request)), request)
        service.check_rows(ask.rows, limits.rows_to_compare if ask.wants_reasons else limits.rows_to_explain)
        for name, value, most in (("k", ask.k, limits.neighbors), ("precedents", ask.precedents, limits.precedents)):
            if isinstance(value, int) and value > most:
                raise RefusalError(422, "invalid_request", f"{name} must be at most {most}; got {value}")
        return json_response({"explanations": await service.explain(ask)})

    if reader.names() is not None:

        @api.post("/recourse", summary="Recourse", **describe("recourse", schemas.AskRecourse, schemas.Recourses))
        async def recourse(request: Request) -> Response:
            ask = in_language(schemas.check_request(schemas.AskRecourse, await service.read(request)), request)
            service.check_rows(ask.rows, limits.rows_to_compare)
            return json_response({"recourse": await service.recourse(ask)})

    def in_language(ask: Any, request: Request) -> Any:
        """The request with the language of its answer."""
        return ask.model_copy(update={"language": ask.language or preferred(request.headers.get("accept-language"))})

    async def rows_of(request: Request, kind: type[schemas.T]) -> Any:
        ask: Any = schemas.check_request(kind, await service.read(request))
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
        response_model=Monitored,
        summary="Are rows as before?",
        responses=_refusals({409: "The model has nothing to compare with, or the service does not monitor."}),
    )
    async def monitor() -> Response:
        """Whether the rows of `predict` and `sets` are still like those of calibration, and what moved if not.

        The alarm is false with probability at most `false_alarms`, ever, however often one looks.
        """
        return json_response(await asyncio.to_thread(service.watch.answer))

    if service.record is not None:

        @api.post(
            "/outcomes",
            response_model=OutcomesTaken,
            summary="Outcomes",
            openapi_extra=AskOutcomes.body(),
            responses=_refusals(_POST_REFUSALS),
        )
        async def outcomes(request: Request) -> Response:
            """Tell what became of earlier decisions, so that risk and calibration are watched: see `monitor`."""
            ask = schemas.check_request(AskOutcomes, await service.read(request))
            return json_response(await asyncio.to_thread(service.watch.outcomes, ask))

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
