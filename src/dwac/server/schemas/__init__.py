"""Requests and answers as pydantic models, which check requests and document both: one set of models per task."""

from dwac.server.schemas.common import (
    Asked,
    AskWhy,
    Health,
    Monitored,
    Refused,
    Schemas,
    checked,
    request_body,
)

__all__ = ["AskWhy", "Asked", "Health", "Monitored", "Refused", "Schemas", "checked", "request_body"]
