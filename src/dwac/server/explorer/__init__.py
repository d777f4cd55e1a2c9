"""The explorer: a local page to look into every prediction. Needs the extra `dwac[server]`.

app = explorer_app(Explorer.of(clf, X, y), token="…")     # any ASGI server; `dwac explore` is one
page = open_page(Explorer.of(clf, X, y))                  # in the background, as clf.explore() does; page.stop()
write_page(Explorer.of(clf, X, y), "page.html")            # one file, to read without a server
"""

from dwac.server.explorer.onefile import write_page
from dwac.server.explorer.page import Page, explorer_app, open_page
from dwac.server.explorer.state import Explorer

__all__ = ["Explorer", "Page", "explorer_app", "open_page", "write_page"]
