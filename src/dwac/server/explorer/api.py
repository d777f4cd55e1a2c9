"""The requests of the page: columns of points, one example, edits, lists and exports. One session per page."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

from fastapi import APIRouter
from pydantic import Field
from starlette.requests import Request
from starlette.responses import FileResponse, Response

from dwac.drawing import COLOURS, MARKERS
from dwac.report.card import who_votes
from dwac.server.explorer import groups, lists, split, whatif, why, worth
from dwac.server.explorer.state import Explorer
from dwac.server.explorer.words import guide
from dwac.server.gate import HEADERS
from dwac.server.limits import RefusalError
from dwac.server.schemas import StrictModel, T, check_request
from dwac.server.service import Service, json_response

PAGE = Path(__file__).parent.parent / "static" / "explorer" / "index.html"
_NOTEBOOKS = "frame-ancestors http://localhost:* http://127.0.0.1:* https://localhost:* vscode-webview:"
SESSION = "x-session"
K = 5
MOST_NEIGHBORS, LONGEST, MOST_SELECTED = 100, 200, 200_000


class Step(StrictModel):
    """One edit: a training example and the code of its new label, or its new numbers; or undo or redo."""

    action: Literal["remove", "relabel", "undo", "redo"]
    point: int = -1
    label: int | float | list[float] = -1


class Question(StrictModel):
    """An example in the form that the service takes; a picture file in base64; or a loaded image, changed."""

    row: Any = None
    picture: str | None = None
    point: int | None = None
    right: int = 0
    down: int = 0
    brightness: float = Field(1.0, ge=0, le=10)
    k: int = Field(K, ge=1, le=MOST_NEIGHBORS)
    epsilon: float | None = Field(None, ge=1e-9, lt=1)
    label: int = 0
    replaces: int | None = None  # the number of an earlier answer, which need not be kept


class Selection(StrictModel):
    """Points of the map; start: the first one listed."""

    points: list[int] = Field(min_length=1, max_length=MOST_SELECTED)
    start: int = Field(0, ge=0)


class Words(StrictModel):
    """A text whose words are left out one by one."""

    row: str
    label: int = 0


def router(explorer: Explorer, *, framed: bool = False) -> APIRouter:
    """The page at `/`, and its requests below `/explorer`; framed: notebooks on this machine may show it in a frame."""
    routes, policy = APIRouter(include_in_schema=False), HEADERS["content-security-policy"]
    headers = {"content-security-policy": policy.replace("frame-ancestors 'none'", _NOTEBOOKS)} if framed else None
    finder, worths = lists.Finder(explorer), worth.Worths(explorer)

    async def call(function: Callable[..., Any], *values: Any, **options: Any) -> Any:
        """Call a function in a thread, one at a time, because there is one model."""

        def work() -> Any:
            with explorer.lock:
                return function(*values, **options)

        return await asyncio.to_thread(work)

    async def answer(request: Request, function: Callable[..., Any], *values: Any, **options: Any) -> Response:
        """The response from a function of the explorer and the session of a page."""
        return json_response(await call(function, explorer, _session(request), *values, **options))

    @routes.get("/")
    async def page() -> Response:
        return FileResponse(PAGE, headers=headers)

    @routes.get("/explorer/start")
    async def start(request: Request) -> Response:
        return json_response(
            {**_start(explorer, _service(request)), **(await call(lists.changes, explorer, _session(request)))}
        )

    @routes.get("/explorer/columns/{name}")
    async def column(request: Request, name: str) -> Response:
        known = explorer.points.columns
        if name not in known:
            raise RefusalError(404, "not_found", f"the column must be one of {', '.join(known)}; got {name!r:.40}")
        session, epsilon = _session(request), _epsilon(request)
        values = await call(lambda: explorer.points.column(name, explorer.view(session), epsilon))
        return Response(values.tobytes(), media_type="application/octet-stream")

    @routes.get("/explorer/points/{point:int}")
    async def example(request: Request, point: int) -> Response:
        k, label = _whole(request, "k", K, 1, MOST_NEIGHBORS), _label(request)
        return await answer(request, lists.example, point, k, epsilon=_epsilon(request), label=label)

    @routes.get("/explorer/points/{point:int}/brief")
    async def brief(request: Request, point: int) -> Response:
        return await answer(request, lists.brief, point)

    @routes.get("/explorer/points/{point:int}/words")
    async def words(request: Request, point: int) -> Response:
        return await answer(request, whatif.words_of_point, point, _label(request))

    @routes.post("/explorer/words")
    async def words_of(request: Request) -> Response:
        text = await _body(request, Words)
        return await answer(request, whatif.words_of_text, text.row, text.label)

    @routes.post("/explorer/selected")
    async def selected(request: Request) -> Response:
        selection = await _body(request, Selection)
        return await answer(request, lists.selected, selection.points, selection.start)

    @routes.post("/explorer/selected.csv")
    async def selected_table(request: Request) -> Response:
        selection, session = await _body(request, Selection), _session(request)
        text = await call(lists.selected_table, explorer, session, selection.points, _epsilon(request))
        return Response(text, media_type="text/csv")

    @routes.get("/explorer/values/{place:int}")
    async def values(place: int) -> Response:
        return json_response(await call(lists.column_values, explorer, place))

    @routes.get("/explorer/split/{place:int}")
    async def by_group(request: Request, place: int) -> Response:
        return await answer(request, split.split, place, _epsilon(request), _label(request))

    @routes.get("/explorer/discs/{disc:int}")
    async def members(request: Request, disc: int) -> Response:
        start, whole = _whole(request, "start", 0, 0, 10**9), bool(_whole(request, "whole", 0, 0, 1))
        return await answer(request, groups.members, disc, start, whole=whole)

    @routes.get("/explorer/groups")
    async def scores_of_groups(request: Request) -> Response:
        # Slow with many examples, like issues and worth: runs without the lock, so that other requests need not wait.
        return json_response(await asyncio.to_thread(groups.group_scores, explorer, _session(request)))

    @routes.get("/explorer/answers/{number:int}/groups/{group:int}")
    async def subgroups(request: Request, number: int, group: int) -> Response:
        return await answer(request, groups.subgroups, number, group)

    @routes.post("/explorer/answers/{number:int}/reasons")
    async def reasons(request: Request, number: int) -> Response:
        return await answer(request, why.reasons, number, await _body(request, why.Other))

    @routes.post("/explorer/answers/{number:int}/recourse")
    async def recourse(request: Request, number: int) -> Response:
        return await answer(request, why.recourse, number, await _body(request, why.Other))

    @routes.get("/explorer/importance")
    async def importance(request: Request) -> Response:
        start, label = _whole(request, "start", 0, 0, 10**9), _label(request)
        code = _whole(request, "code", -1, -1, 10**6)
        return await answer(request, why.importance, start, label, None if code < 0 else code)

    @routes.post("/explorer/ask")
    async def ask(request: Request) -> Response:
        question, session, reader = await _body(request, Question), _session(request), _service(request).reader

        def explain() -> Any:
            if question.point is not None:
                X = whatif.change_image(explorer, question.point, question.right, question.down, question.brightness)
            elif question.picture is not None:
                X = whatif.read_image(explorer, question.picture)
            else:
                X = reader.read([question.row])
            options = {name: getattr(question, name) for name in ("epsilon", "label", "replaces")}
            return explorer.ask(session, X, question.k, **options)

        return json_response(await call(explain))

    @routes.post("/explorer/edits")
    async def edit(request: Request) -> Response:
        step, session = await _body(request, Step), _session(request)
        match step.action:
            case "undo":
                await call(explorer.undo, session)
            case "redo":
                await call(explorer.redo, session)
            case _:
                value = None if step.action == "remove" else explorer.task.new_value(step)
                await call(explorer.edit, session, step.point, value)
        return await answer(request, lists.changes)

    @routes.get("/explorer/search")
    async def search(request: Request) -> Response:
        return json_response({"found": await call(finder.find, request.query_params.get("q", "")[:LONGEST])})

    @routes.get("/explorer/issues")
    async def issues(request: Request) -> Response:
        return json_response(await asyncio.to_thread(lists.issues, explorer, _session(request)))

    @routes.get("/explorer/worth")
    async def help_and_harm(request: Request) -> Response:
        return json_response(await asyncio.to_thread(worth.list_worth, worths, _session(request)))

    @routes.get("/explorer/worth/values")
    async def worth_values(request: Request) -> Response:
        values = await asyncio.to_thread(worth.column, worths, _session(request))
        return Response(values.tobytes(), media_type="application/octet-stream")

    @routes.get("/explorer/disagreements")
    async def disagreements(request: Request) -> Response:
        return await answer(request, lists.disagreements)

    @routes.get("/explorer/edits.json")
    async def export(request: Request) -> Response:
        content = await call(lists.changes, explorer, _session(request), None)
        return json_response({"model": explorer.title, **content})

    @routes.get("/explorer/examples.csv")
    async def table(request: Request) -> Response:
        text = await call(lists.table, explorer, _session(request), _epsilon(request))
        return Response(text, media_type="text/csv")

    def _epsilon(request: Request) -> float:
        return _number(request, "epsilon", explorer.epsilon, 1e-9, 1 - 1e-9)

    return routes


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


async def _body(request: Request, kind: type[T]) -> T:
    """The body of a request, checked."""
    return check_request(kind, await _service(request).read(request))


def _session(request: Request) -> str:
    """The name under which a page keeps its edits."""
    name = request.headers.get(SESSION, "")
    if not re.fullmatch(r"[0-9a-f]{16,64}", name):
        raise RefusalError(
            400, "no_session", f"the header {SESSION} must have 16 to 64 hexadecimal digits; choose some at random"
        )
    return name


def _number(request: Request, name: str, usual: float, least: float, most: float) -> float:
    """A number from the query string."""
    text = request.query_params.get(name, "")
    try:
        value = float(text) if text else usual
    except ValueError:
        value = math.nan
    if not least <= value <= most:
        raise RefusalError(
            422, "invalid_request", f"{name} must be a number from {least:g} to {most:g}; got {text!r:.40}"
        )
    return value


def _whole(request: Request, name: str, usual: int, least: int, most: int) -> int:
    return int(_number(request, name, usual, least, most))


def _label(request: Request) -> int:
    """Which of several labels or numbers the page shows, by its place."""
    return _whole(request, "label", 0, 0, 10**6)


def _start(explorer: Explorer, service: Service) -> dict[str, Any]:
    """What the page shows before anything is clicked."""
    points, rival, card, sentences = explorer.points, explorer.rival, service.card(), guide(explorer)
    voters = points.references
    return {
        "title": explorer.title,
        "note": explorer.note,
        "epsilon": explorer.epsilon,
        "card": card,
        "colours": COLOURS,
        "markers": MARKERS,
        "guide": sentences,
        "map": sentences["map"],
        "columns": points.columns,
        "data_columns": lists.column_names(explorer),
        "divisions": split.division_names(explorer),
        "split": split.first_division(explorer),
        "words": explorer.clf.encoder_.kind in whatif.TEXTS and not explorer.private,
        "worth": points.n_training > 1,
        "importance": len(points) > 0 and explorer.clf.encoder_.kind not in whatif.TEXTS,
        "target": explorer.task.start(explorer),
        "represented": who_votes(explorer.clf, private=explorer.private),
        "sizes": voters.sizes.tolist() if points.n_training and voters.voters.represents else None,
        **groups.discs(explorer),
        "private": explorer.private,
        "n_training": points.n_training,
        "n_data": points.n_data,
        "with_prediction": points.with_prediction.tolist() if points.examples.of_training else None,
        "compare": None if rival is None else rival.name,
    }
