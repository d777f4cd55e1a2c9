"""Pages from templates, of the package or of a user: every value is escaped, and a missing value is an error.

render("report/templates/classes.html", title="Benign or malignant?", …)
fill(template, HTML, values)        # a template from anywhere, in a sandbox
"""

from __future__ import annotations

import re
from functools import cache
from html import escape
from typing import TYPE_CHECKING, Any

from dwac.errors import InputError
from dwac.languages import current, say

if TYPE_CHECKING:
    from jinja2 import Environment

# Not allowed in HTML: control characters, lone surrogates, and characters that reverse the reading order.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\u202a-\u202e\u2066-\u2069]")


HTML, MARKDOWN, TEXT = "html", "markdown", "text"  # forms of pages
_FAULTS = ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError  # of a template
_MARKS = re.compile(r"([\\`*_{}\[\]#|~])")  # of Markdown


def render(template: str, **values: Any) -> str:
    """The HTML of a template, named by its path in the package, with these values."""
    return templates().get_template(template).render(values)


@cache
def templates() -> Environment:
    """All templates of the package. Jinja2 is imported only when the first page is rendered."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    pages = Environment(
        loader=PackageLoader("dwac", "."),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_visible,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    pages.globals |= {"say": say, "language": current}
    return pages


def _visible(value: Any) -> Any:
    """A value for a template as text, without characters that HTML does not allow; markup is unchanged."""
    return value if hasattr(value, "__html__") else UNSEEN.sub("\ufffd", str(value))


def fill(template: str, form: str, values: dict[str, Any], name: str = "the template") -> str:
    """A template that need not be trusted, filled with values; form: "html", "markdown" or "text".

    It runs in a sandbox without other files. name: of the template, for errors.
    """
    from jinja2 import StrictUndefined, TemplateError
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    pages = ImmutableSandboxedEnvironment(
        autoescape=form == HTML,
        undefined=StrictUndefined,
        finalize={HTML: _visible, MARKDOWN: _unmarked}.get(form, one_line),
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    try:
        return pages.from_string(template).render(values)
    except (*_FAULTS, TemplateError) as error:
        line = getattr(error, "lineno", None)
        where = name if line is None else f"{name}, line {line}"
        raise InputError(f"{where} cannot be used: {error}; it may use {', '.join(values)}") from None


def one_line(value: Any) -> str:
    """A value for a text: no line begins within it."""
    return " ".join(str(_visible(value)).split())


def _unmarked(value: Any) -> str:
    """A value for Markdown, in which every mark and all HTML is escaped."""
    return _MARKS.sub(r"\\\1", escape(one_line(value), quote=False))
