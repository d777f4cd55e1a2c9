"""Pages from the package's templates: every value is escaped, and a missing value is an error.

render("report/templates/classes.html", title="Benign or malignant?", …)
"""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

from dwac.languages import current, say

if TYPE_CHECKING:
    from jinja2 import Environment

# Not allowed in HTML: control characters, lone surrogates, and characters that reverse the reading order.
UNSEEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff\u202a-\u202e\u2066-\u2069]")


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
