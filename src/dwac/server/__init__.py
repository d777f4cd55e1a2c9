"""The service: a documented REST API for one model. Needs the extra `dwac[server]`.

from dwac.server import create_app
app = create_app(dwac.load("model"))         # any ASGI server; `dwac serve model` is one
"""

from dwac.server.app import create_app
from dwac.server.limits import Limits
from dwac.server.watch import Watch

__all__ = ["Limits", "Watch", "create_app"]
