"""A stand-in for the Hugging Face Hub on this machine: as much of its HTTP interface as models need."""

import base64
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

TOKEN = "hf_stand_in"


@dataclass
class Repository:
    private: bool
    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)  # files by path, by commit
    branches: dict[str, str] = field(default_factory=dict)

    def commit(self, branch: str, files: dict[str, bytes]) -> str:
        oid = hashlib.sha1(f"{len(self.commits)} {sorted(files)}".encode()).hexdigest()
        self.commits[oid], self.branches[branch] = files, oid
        return oid

    def find(self, revision: str) -> str | None:
        oid = self.branches.get(revision, revision)
        return oid if oid in self.commits else None


class Hub(ThreadingHTTPServer):
    """Repositories by name, and every request that came."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.repositories: dict[str, Repository] = {}
        self.requests: list[str] = []
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def files(self, name: str, revision: str = "main") -> dict[str, bytes]:
        repository = self.repositories[name]
        oid = repository.find(revision)
        assert oid is not None
        return repository.commits[oid]


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: Any) -> None:
        """Print nothing."""

    def do_GET(self) -> None:
        self.answer()

    def do_HEAD(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.answer()

    def answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        path = unquote(urlsplit(self.path).path)
        self.server.requests.append(f"{self.command} {path}")
        may_read = self.headers.get("Authorization") == f"Bearer {TOKEN}"
        if self.command == "POST" and not may_read:
            return self.send(401, {"error": "Invalid credentials"})
        if path == "/api/repos/create":
            return self.create(json.loads(body))
        if path == "/api/validate-yaml":
            assert json.loads(body)["content"].startswith("---\n")
            return self.send(200, {"errors": [], "warnings": []})
        parts = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/(revision|tree|preupload|commit|branch)/(.+))?", path)
        file = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        found = parts or file
        name = found[1] if found else ""
        repository = self.server.repositories.get(name)
        if found is None or repository is None or (repository.private and not may_read):
            return self.send(404 if may_read else 401, {"error": "Repository not found"}, "RepoNotFound")
        if parts and parts[2] == "branch":
            repository.branches.setdefault(parts[3], repository.branches["main"])
            return self.send(200, {})
        revision = (file[2] if file else parts[3] if parts else None) or "main"
        oid = repository.find(revision)
        if oid is None:
            return self.send(404, {"error": "Invalid rev id"}, "RevisionNotFound")
        files = repository.commits[oid]
        if file:
            return self.send_file(files.get(file[3]), oid)
        assert parts
        return self.api(parts[2] or "revision", repository, revision, oid, name, body)

    def create(self, asked: dict[str, Any]) -> None:
        name = f"{asked['organization']}/{asked['name']}" if asked.get("organization") else asked["name"]
        known = name in self.server.repositories
        if not known:
            private = asked.get("visibility", "private" if asked.get("private") else "public") == "private"
            self.server.repositories[name] = Repository(private)
            self.server.repositories[name].commit("main", {".gitattributes": b""})
        self.send(409 if known else 200, {"url": f"{self.server.url}/{name}", "id": name})

    def api(self, what: str, repository: Repository, revision: str, oid: str, name: str, body: bytes) -> None:
        files = repository.commits[oid]
        if what == "tree":
            listed = [{"type": "file", "path": p, "size": len(d), "oid": digest(d)} for p, d in files.items()]
            return self.send(200, listed)
        if what == "preupload":
            modes = [each | {"uploadMode": "regular", "shouldIgnore": False} for each in json.loads(body)["files"]]
            return self.send(200, {"files": [{k: v for k, v in each.items() if k != "sample"} for each in modes]})
        if what == "commit":
            files = dict(files)
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
                if line["key"] == "deletedFile":
                    del files[line["value"]["path"]]
            new = repository.commit(revision, files)
            place = f"{self.server.url}/{name}/commit/{new}"
            return self.send(200, {"success": True, "commitOid": new, "commitUrl": place})
        siblings = [{"rfilename": path} for path in files]
        return self.send(200, {"id": name, "sha": oid, "private": repository.private, "siblings": siblings})

    def send_file(self, data: bytes | None, oid: str) -> None:
        if data is None:
            return self.send(404, {"error": "Entry not found"}, "EntryNotFound")
        return self.send(200, data, headers={"ETag": f'"{digest(data)}"', "X-Repo-Commit": oid})

    def send(self, status: int, content: Any, code: str = "", headers: dict[str, str] | None = None) -> None:
        data = content if isinstance(content, bytes) else json.dumps(content).encode()
        self.send_response(status)
        message = {"X-Error-Code": code, "X-Error-Message": content["error"]} if code else {}
        for key, value in {"Content-Length": str(len(data)), **message, **(headers or {})}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)


def digest(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@contextmanager
def running() -> Iterator[Hub]:
    with Hub() as hub:
        thread = threading.Thread(target=hub.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield hub
        finally:
            hub.shutdown()
            thread.join()
