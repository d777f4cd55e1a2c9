"""The application: `create_app(model)` is an ASGI application for any server; `dwac serve` runs it.

app = create_app(dwac.load("model"), token="…", private=True)
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

from fastapi import APIRouter, FastAPI
from fastapi.staticfiles import StaticFiles
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import FileResponse, RedirectResponse, Response

from dwac.errors import DwacError, InputError
from dwac.server import api
from dwac.server.answers import Model
from dwac.server.gate import LOOPBACK, Gate
from dwac.server.limits import Limits
from dwac.server.metrics import Metrics
from dwac.server.refusals import RefusalError, refusal_of
from dwac.server.service import Service
from dwac.server.watch import Watch

STATIC = Path(__file__).parent / "static"
_ABOUT = "Every prediction is a weighted vote of training examples, with a measure of how far to trust it."


def create_app(
    model: Model,
    *,
    token: str | None = None,
    limits: Limits | None = None,
    private: bool | None = None,
    hosts: Collection[str] | None = LOOPBACK,
    routers: Iterable[APIRouter] = (),
    watch: Watch | None = None,
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
    """
    if token is not None and (not token.isascii() or not token.isprintable() or len(token) < 16 or " " in token):
        raise InputError("the token must have at least 16 printable ASCII characters and no spaces; choose another one")
    service = Service.of(model, limits or Limits(), private, watch)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with app.state.service.running():
            yield

    app = FastAPI(title="dwac", version=version("dwac"), description=_ABOUT, docs_url=None, redoc_url=None,
                  lifespan=lifespan)  # fmt: skip
    app.state.service = service
    routers = (*routers, api.router(service), _pages())
    for router in routers:
        app.include_router(router)
    app.mount("/static", StaticFiles(directory=STATIC), name="static")
    service.metrics = Metrics(getattr(route, "path", "") for router in routers for route in router.routes)
    app.add_middleware(
        Gate,
        metrics=service.metrics,
        admit=service.queue,
        token=token,
        hosts=hosts,
        open_paths=(*api.OPEN, "/", "/docs"),
        fingerprint=model.fingerprint_,
    )
    app.add_exception_handler(DwacError, _refuse)
    app.add_exception_handler(HTTPException, _refuse_http)
    if token is not None:
        _document_token(app)
    return app


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
                operation["security"] = [] if path in api.OPEN else [{"token": []}]
        return described

    app.openapi = openapi  # type: ignore[method-assign]
