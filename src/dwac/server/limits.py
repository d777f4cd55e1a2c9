"""Limits on requests, and refusals: every error of the service is JSON, {"error": {"code", "message"}}."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields

from starlette.responses import JSONResponse

from dwac.errors import CalibrationError, DwacError, InputError, PrivacyError

CLOSE = {"connection": "close"}


@dataclass(frozen=True)
class Limits:
    """A request beyond any of these is refused with a reason, before it costs more.

    >>> Limits(rows=10).rows
    10
    """

    body_bytes: int = 4 * 2**20  # per request, counted while it arrives
    buffered_bytes: int = 256 * 2**20  # of all requests currently arriving
    rows: int = 256  # per request
    explained: int = 32  # rows to explain per request: each sorts all references
    neighbors: int = 100  # per explanation
    compared: int = 8  # rows with reasons or recourse per request: each asks the model about thousands of rows
    precedents: int = 5  # per row with reasons
    pixels: int = 2**24  # per picture
    waiting: int = 64  # requests in the queue; the next one is refused at once
    batch_rows: int = 64  # rows gathered into one call of the model
    gather_seconds: float = 0.001  # how long the first request waits for others to join it
    seconds: float = 10.0  # for a request's body to arrive, and again for its answer

    @property
    def rows_to_explain(self) -> int:
        """Maximum per request."""
        return min(self.rows, self.explained)

    @property
    def rows_to_compare(self) -> int:
        """Maximum per request."""
        return min(self.rows_to_explain, self.compared)

    def __post_init__(self) -> None:
        for each in fields(self):
            value, whole = getattr(self, each.name), each.type == "int"
            number = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
            if not number or not math.isfinite(value) or value < 0 or (value == 0 and each.name != "gather_seconds"):
                raise InputError(f"{each.name} must be a positive {'whole ' * whole}number; got {value!r}")


class RefusalError(DwacError):
    """A refused request: its HTTP status, a code for programs and a message for people."""

    def __init__(self, status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.status, self.code, self.message, self.headers = status, code, message, dict(headers or {})

    def response(self) -> JSONResponse:
        """The answer to the client."""
        return JSONResponse({"error": {"code": self.code, "message": self.message}}, self.status, self.headers)


def refusal_of(error: BaseException) -> RefusalError:
    """The refusal for an error: names what the client can fix, and hides everything else."""
    match error:
        case RefusalError():
            return error
        case CalibrationError() | PrivacyError():
            return RefusalError(409, "not_available", str(error))
        case InputError():
            return RefusalError(422, "invalid_input", str(error))
        case _:
            return RefusalError(500, "internal", "the service failed on this request; see its log")


STOPPING = RefusalError(503, "stopping", "the service is shutting down; try again later", {"retry-after": "5", **CLOSE})
