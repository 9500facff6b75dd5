"""A hub on loopback: the API shape of the real one, and every way in which it can misbehave.

`HubServer` serves `/api/models/{repo}[/revision/{rev}]`, `/{repo}/resolve/{rev}/{file}` (HEAD and
GET; a redirect to a CDN on another port, as the real one does for large files) and the CDN's
files with ranges. Faults are attributes of the server or of one file; every request and every
body byte that left is counted.
"""

from __future__ import annotations

import hashlib
import json
import re
import ssl
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

TOKEN = "hf_goodgoodgoodgoodgood"


def git_hash(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class File:
    """One file of a repo and its faults. `lfs` False: a small file, served without redirect."""

    data: bytes
    lfs: bool = True
    listed_size: int | None = None  # what the listing claims
    linked_size: int | None = None  # what the resolve headers claim
    content_length: int | None = None  # what the body's header claims; -1: no header
    etag: str | None = None  # what X-Linked-ETag claims
    served: bytes | None = None  # what really comes
    sent: int = 0

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.data).hexdigest()


@dataclass
class Repo:
    files: dict[str, File]
    commit: str = "1" * 40
    gated: bool = False
    private: bool = False
    sizes: bool = True  # a mirror may list names only


@dataclass
class Faults:
    """Each is used up by the requests that it hits, unless it says always."""

    cuts: list[int] = field(default_factory=list)  # close after so many bytes of the body
    stalls: list[int] = field(default_factory=list)  # go silent after so many bytes
    statuses: list[tuple[int, dict[str, str]]] = field(default_factory=list)  # on the CDN
    api_statuses: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    resolve_statuses: list[tuple[int, dict[str, str]]] = field(default_factory=list)
    no_ranges: bool = False  # always: answers 200 with everything
    refuse_ranges: bool = False  # always: answers 416
    no_hash: bool = False  # always: the listing has no sha256 and no blob id
    html: bool = False  # always: a login page in between
    block: int = 1 << 16
    pause: float = 0.0  # seconds after every block
    on_body: object = None  # called once, after the next body


class HubServer:
    """`with HubServer() as hub:`; `hub.url` is the endpoint."""

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self.repos: dict[str, Repo] = {}
        self.faults = Faults()
        self.requests: Counter[str] = Counter()
        self.log: list[tuple[str, str, dict[str, str]]] = []
        self.stop = threading.Event()
        self._api = self._serve(_ApiHandler, context)
        self._cdn = self._serve(_CdnHandler, context)
        scheme = "https" if context else "http"
        self.url = f"{scheme}://127.0.0.1:{self._api.server_address[1]}"
        self.cdn_url = f"{scheme}://localhost:{self._cdn.server_address[1]}"

    def _serve(self, handler: type, context: ssl.SSLContext | None) -> ThreadingHTTPServer:
        server = ThreadingHTTPServer(("127.0.0.1", 0), type("H", (handler,), {"hub": self}))
        server.daemon_threads = True
        server.handle_error = lambda *_: None  # clients that hang up are the point
        if context:
            server.socket = context.wrap_socket(server.socket, server_side=True)
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        return server

    def __enter__(self) -> HubServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        for server in (self._api, self._cdn):
            server.shutdown()
            server.server_close()

    def add(self, repo: str, files: dict[str, bytes | File], **kind: object) -> Repo:
        made = {k: v if isinstance(v, File) else File(v) for k, v in files.items()}
        self.repos[repo] = Repo(made, **kind)
        return self.repos[repo]

    @property
    def sent(self) -> int:
        """Body bytes of model files that left."""
        return sum(file.sent for repo in self.repos.values() for file in repo.files.values())


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"
    kind = ""

    def log_message(self, *_: object) -> None:
        pass

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        self.hub.requests[f"{self.kind} {self.command}"] += 1
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.hub.log.append((self.kind, self.path, headers))
        self.answer(unquote(urlsplit(self.path).path))

    def answer(self, path: str) -> None:
        raise NotImplementedError

    def reply(self, status: int, headers: dict[str, str], body: bytes = b"") -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def refuse(self, status: int, code: str = "", message: str = "", **more: str) -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message, **more}
        body = json.dumps({"error": message or code}).encode()
        self.reply(status, {k: v for k, v in headers.items() if v}, body)


class _ApiHandler(_Handler):
    kind = "api"

    def answer(self, path: str) -> None:
        faults = self.hub.faults
        if faults.html:
            self.reply(200, {"Content-Type": "text/html"}, b"<html>please log in</html>")
            return
        api = re.fullmatch(r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?", path)
        resolve = re.fullmatch(r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path)
        queue = faults.api_statuses if api else faults.resolve_statuses
        if queue:
            status, headers = queue.pop(0)
            self.refuse(status, **headers)
        elif api:
            self.model_info(api[1], api[2])
        elif resolve:
            self.resolve(*resolve.groups())
        else:
            self.refuse(404)

    def allowed(self, repo: str, revision: str | None) -> Repo | None:
        """The repo, or None after having said no as the real hub does."""
        given = self.headers.get("Authorization")
        entry = self.hub.repos.get(repo)
        if given is not None and given != f"Bearer {TOKEN}" and "nolicence" not in given:
            self.refuse(401, "", "Invalid credentials in Authorization header")
        elif entry is None or (entry.private and given is None):
            message = "Invalid username or password." if given is None else "Repository not found"
            self.refuse(404 if given else 401, "RepoNotFound", message)
        elif revision not in (None, "main", entry.commit):
            self.refuse(404, "RevisionNotFound", f"Invalid rev id: {revision}")
        else:
            return entry
        return None

    def model_info(self, name: str, revision: str | None) -> None:
        repo = self.allowed(name, revision)
        if repo is None:
            return
        siblings = []
        for path, file in repo.files.items():
            entry: dict[str, object] = {"rfilename": path}
            size = len(file.data) if file.listed_size is None else file.listed_size
            if repo.sizes:
                entry["size"] = size
            if repo.sizes and not self.hub.faults.no_hash:
                entry["blobId"] = git_hash(b"pointer") if file.lfs else git_hash(file.data)
                if file.lfs:
                    entry["lfs"] = {"size": size, "sha256": file.sha256, "pointerSize": 134}
            siblings.append(entry)
        body = {"id": name, "sha": repo.commit, "siblings": siblings, "gated": repo.gated}
        self.reply(200, {"Content-Type": "application/json"}, json.dumps(body).encode())

    def resolve(self, name: str, revision: str, path: str) -> None:
        repo = self.allowed(name, None)
        if repo is None:
            return
        given = self.headers.get("Authorization")
        if repo.gated and given is None:
            self.refuse(401, "GatedRepo", f"Access to model {name} is restricted.")
        elif repo.gated and given != f"Bearer {TOKEN}":
            self.refuse(403, "GatedRepo", f"Access to model {name} is restricted.")
        elif path not in repo.files:
            self.refuse(404, "EntryNotFound", "Entry not found")
        else:
            self.found(name, repo, path, repo.files[path])

    def found(self, name: str, repo: Repo, path: str, file: File) -> None:
        headers = {"X-Repo-Commit": repo.commit, "Accept-Ranges": "bytes"}
        if not file.lfs:
            self.reply(200, {**headers, "ETag": f'"{git_hash(file.data)}"'}, file.data)
            return
        size = len(file.data) if file.linked_size is None else file.linked_size
        headers["X-Linked-Size"] = str(size)
        headers["X-Linked-ETag"] = f'"{file.etag or file.sha256}"'
        headers["Location"] = f"{self.hub.cdn_url}/{name}/{path}?signature=secret"
        self.reply(302, headers)


class _CdnHandler(_Handler):
    kind = "cdn"

    def answer(self, path: str) -> None:
        faults = self.hub.faults
        owner, name, file_name = path.lstrip("/").split("/", 2)
        file = self.hub.repos[f"{owner}/{name}"].files[file_name]
        data = file.data if file.served is None else file.served
        if faults.statuses:
            status, headers = faults.statuses.pop(0)
            self.refuse(status, **headers)
            return
        span = re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", ""))
        if span and faults.refuse_ranges:
            self.reply(416, {"Content-Range": f"bytes */{len(data)}"})
        elif span is None or faults.no_ranges:
            self.body(200, {}, file, data)
        elif int(span[1]) >= len(data):
            self.reply(416, {"Content-Range": f"bytes */{len(data)}"})
        else:
            start, end = int(span[1]), min(int(span[2] or len(data)), len(data) - 1)
            headers = {"Content-Range": f"bytes {start}-{end}/{len(data)}"}
            self.body(206, headers, file, data[start : end + 1])

    def body(self, status: int, headers: dict[str, str], file: File, data: bytes) -> None:
        faults = self.hub.faults
        cut = faults.cuts.pop(0) if faults.cuts else None
        stall = faults.stalls.pop(0) if faults.stalls else None
        length = len(data) if file.content_length is None else file.content_length
        self.send_response(status)
        if length >= 0:
            headers = {**headers, "Content-Length": str(length)}
        else:  # the body ends where the connection does
            self.close_connection = True
        for name, value in {**headers, "ETag": '"cdn"'}.items():
            self.send_header(name, value)
        self.end_headers()
        limit = min(x for x in (cut, stall, len(data)) if x is not None)
        for start in range(0, limit, faults.block):
            block = data[start : min(start + faults.block, limit)]
            self.wfile.write(block)
            file.sent += len(block)
            if faults.pause:
                time.sleep(faults.pause)
        if stall is not None:
            self.hub.stop.wait(30)
        if faults.on_body:
            action, faults.on_body = faults.on_body, None
            action()
        if limit < length:
            self.close_connection = True
