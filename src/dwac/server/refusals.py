"""Refusals: every error of the service is JSON, {"error": {"code", "message"}}, with a suitable status."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse

from dwac.errors import CalibrationError, DwacError, InputError, PrivacyError

CLOSE = {"connection": "close"}


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
