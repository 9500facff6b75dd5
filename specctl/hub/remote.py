"""The hub: which files a repo has, how large, with which hash; and why it says no.

huggingface_hub does the API calls and finds the token; it is imported when first asked, and
endpoint, token and offline switch are read from the environment at that moment, not at import.
The token is sent to the endpoint only (the HTTP client drops it on a redirect to another
origin) and never appears in a message.
"""

from __future__ import annotations

import json
import os
import re
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

from specctl.errors import HubError, UsageError
from specctl.hub.errors import BadTokenError, DamagedError, MovedError, OfflineError
from specctl.hub.refusals import explain_response, explain_transport

if TYPE_CHECKING:
    import httpx2

DEFAULT_ENDPOINT = "https://huggingface.co"
_TRUE = {"1", "on", "yes", "true"}
_REPO = re.compile(r"[\w.-]+/[\w.-]+")


@dataclass(frozen=True, slots=True)
class Wanted:
    """A file somebody asked for. Size and sha256 are what the asker believes, if anything."""

    repo: str
    file: str
    size: int | None = None
    sha256: str | None = None
    revision: str | None = None

    def __str__(self) -> str:
        return f"{self.repo}/{self.file}"


@dataclass(frozen=True, slots=True)
class RemoteFile:
    """A file as the hub lists it. `blob_id` is git's own hash, the only one small files have."""

    repo: str
    file: str
    commit: str
    size: int
    sha256: str | None
    blob_id: str | None

    def __str__(self) -> str:
        return f"{self.repo}/{self.file}"


@dataclass(frozen=True, slots=True)
class Listing:
    """A repo at one commit."""

    repo: str
    commit: str
    files: tuple[RemoteFile, ...]

    def get(self, file: str) -> RemoteFile | None:
        """The file of that name, if the repo has it."""
        return next((entry for entry in self.files if entry.file == file), None)


@dataclass(frozen=True, slots=True)
class Hub:
    """Where to ask and as whom. `timeout` seconds for connecting and for each API answer."""

    endpoint: str = DEFAULT_ENDPOINT
    token: str | None = field(default=None, repr=False)
    token_source: str | None = None
    offline: str | None = None  # what forbids the network: --offline, HF_HUB_OFFLINE
    timeout: float = 10.0

    def url(self, remote: RemoteFile) -> str:
        """The address of the file at the commit that was looked up."""
        return f"{self.endpoint}/{remote.repo}/resolve/{remote.commit}/{quote(remote.file)}"

    def headers(self) -> dict[str, str]:
        """What every request carries: no compression (sizes must be true), and the token."""
        headers = {"Accept-Encoding": "identity"}
        if self.token:
            headers["Authorization"] = f"Bearer {self.token}"
        return headers


def hub_from_environment(offline: bool = False, timeout: float = 10.0) -> Hub:
    """Endpoint (`HF_ENDPOINT`), token (`HF_TOKEN`, or the one of `hf auth login`), offline switch.

    Raises:
        UsageError: `HF_ENDPOINT` is not a web address.
    """
    endpoint = (os.environ.get("HF_ENDPOINT") or DEFAULT_ENDPOINT).rstrip("/")
    if urlsplit(endpoint).scheme not in ("http", "https") or not urlsplit(endpoint).hostname:
        raise UsageError(
            f"HF_ENDPOINT {endpoint!r} is not a web address", f"for example {DEFAULT_ENDPOINT}"
        )
    switch = "--offline" if offline else None
    for name in ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE"):
        if switch is None and os.environ.get(name, "").strip().lower() in _TRUE:
            switch = name
    if switch is not None:
        return Hub(endpoint, offline=switch, timeout=timeout)
    token, source = _find_token()
    return Hub(endpoint, token, source, timeout=timeout)


def _keep_quiet() -> None:
    """Before huggingface_hub is imported: else it asks the hub for a list of coding agents first.

    That request (2.4) goes to the endpoint that was set at import, and can hold a pull for
    three seconds where nothing answers.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")


def _find_token() -> tuple[str | None, str | None]:
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        token = "".join((os.environ.get(name) or "").split())
        if token:
            return token, name
    saved = _login_token()
    return (saved, "`hf auth login`") if saved else (None, None)


def hf_home() -> Path:
    """`HF_HOME`, else its default place, as of now."""
    direct = os.environ.get("HF_HOME")
    if direct:
        return Path(os.path.expandvars(direct)).expanduser()
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache).expanduser() if cache else Path.home() / ".cache") / "huggingface"


def _login_token() -> str | None:
    """What `hf auth login` left: by huggingface_hub, unless it was imported for another home."""
    _keep_quiet()
    from huggingface_hub import constants, get_token
    from huggingface_hub.errors import OIDCError

    path = Path(os.environ.get("HF_TOKEN_PATH") or hf_home() / "token").expanduser()
    try:
        if path == Path(constants.HF_TOKEN_PATH):
            return get_token()
        return path.read_text().strip() or None
    except OIDCError as error:
        raise BadTokenError(f"no token from this CI's identity: {error}", None) from error
    except (OSError, ValueError):
        return None


def list_repo(hub: Hub, repo: str, revision: str | None = None) -> Listing:
    """Every file of a repo with size and hash, in one request.

    Raises:
        UsageError: not a repo name.
        HubError: as explained by specctl/hub/refusals.py.
    """
    if not _REPO.fullmatch(repo):
        raise UsageError(f"{repo!r} is not a repo", "write it as owner/name")
    if hub.offline:
        raise OfflineError(
            f"{repo} would have to be looked up on the hub, and {hub.offline} forbids it"
        )
    session(hub)
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    try:
        info = HfApi(endpoint=hub.endpoint, token=hub.token or False).model_info(
            repo, revision=revision, files_metadata=True, timeout=hub.timeout
        )
    except HfHubHTTPError as error:
        raise explain_response(error.response, hub, repo, None, revision) from error
    except Exception as error:
        raise _explain_client(error, hub) from error
    commit = info.sha or revision or "main"
    files = []
    for entry in info.siblings or ():
        size = entry.lfs.size if entry.lfs else entry.size
        sha256 = entry.lfs.sha256 if entry.lfs else None
        if size is None:  # a mirror that lists names only
            files.append(RemoteFile(repo, entry.rfilename, commit, -1, None, None))
        else:
            files.append(RemoteFile(repo, entry.rfilename, commit, size, sha256, entry.blob_id))
    return Listing(repo, commit, tuple(files))


def confirm(hub: Hub, remote: RemoteFile) -> RemoteFile:
    """Ask for the file's headers only: may we have it, and are size and hash as listed?

    A mirror whose listing leaves sizes out tells them here.

    Raises:
        MovedError: another hash than listed.
        DamagedError: another size than listed.
        HubError: refused, or no answer.
    """
    session(hub)
    from huggingface_hub import get_hf_file_metadata
    from huggingface_hub.errors import HfHubHTTPError

    try:
        meta = get_hf_file_metadata(
            hub.url(remote), token=hub.token or False, timeout=hub.timeout, endpoint=hub.endpoint
        )
    except HfHubHTTPError as error:
        raise explain_response(
            error.response, hub, remote.repo, remote.file, remote.commit
        ) from error
    except Exception as error:
        raise _explain_client(error, hub) from error
    etag = meta.etag or ""
    check_identity(remote, meta.commit_hash, etag, meta.size)
    if remote.size >= 0:
        return remote
    if meta.size is None:
        raise HubError(
            f"{hub.endpoint} does not say how large {remote} is",
            "a mirror without sizes cannot be used; unset HF_ENDPOINT",
        )
    return RemoteFile(
        remote.repo,
        remote.file,
        remote.commit,
        meta.size,
        etag if re.fullmatch(r"[0-9a-f]{64}", etag) else None,
        etag if re.fullmatch(r"[0-9a-f]{40}", etag) else None,
    )


_MOVED = "run the same command again; a mirror may lag behind"


def check_identity(remote: RemoteFile, commit: str | None, etag: str, size: int | None) -> None:
    """Compare what an answer says of a file with what was listed.

    Raises:
        MovedError: another commit or hash.
        DamagedError: another size.
    """
    if remote.sha256 and re.fullmatch(r"[0-9a-f]{64}", etag) and etag != remote.sha256:
        raise MovedError(f"{remote} changed on the hub: its hash is now {etag[:12]}…", _MOVED)
    if commit and re.fullmatch(r"[0-9a-f]{40}", remote.commit) and commit != remote.commit:
        raise MovedError(f"{remote} changed on the hub: its commit is now {commit[:12]}", _MOVED)
    if size is not None and remote.size >= 0 and size != remote.size:
        raise size_lie(remote, size)


def size_lie(remote: RemoteFile, told: int) -> DamagedError:
    """The listing says one size, whoever sends it another."""
    return DamagedError(
        f"{remote}: listed with {remote.size} bytes, but the server has {told}",
        "one of the two is wrong; if a mirror or proxy is in between, try without it",
    )


def _explain_client(error: Exception, hub: Hub) -> HubError:
    """What huggingface_hub and its HTTP client raise; anything else is a bug and goes on."""
    import httpx2
    from huggingface_hub.errors import HFValidationError

    if isinstance(error, HFValidationError):
        raise UsageError(str(error).splitlines()[0]) from error
    if isinstance(error, json.JSONDecodeError):
        return HubError(
            f"{hub.endpoint} does not answer like a hub",
            "a login page of this network in between? a wrong HF_ENDPOINT?",
        )
    if isinstance(error, httpx2.HTTPError | httpx2.InvalidURL | OSError):
        return explain_transport(error, hub)
    raise error


_made_for: tuple[str | None, ...] | None = None
_CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_CLIENT_VARIABLES = (
    *("SSL_CERT_FILE", "SSL_CERT_DIR", *_CA_VARIABLES),
    *("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY"),
    *("https_proxy", "http_proxy", "all_proxy", "no_proxy"),
)


def session(hub: Hub) -> httpx2.Client:
    """huggingface_hub's HTTP client, made anew when proxy or certificate variables change.

    The client itself honours the proxy variables, `SSL_CERT_FILE` and `SSL_CERT_DIR`;
    `REQUESTS_CA_BUNDLE` and `CURL_CA_BUNDLE`, which company set-ups use too, are added here.

    Raises:
        CertificateError: a variable names a file that is no certificate.
    """
    global _made_for
    _keep_quiet()
    from huggingface_hub import get_session, set_client_factory

    wanted = tuple(os.environ.get(name) for name in _CLIENT_VARIABLES)
    if wanted != _made_for:
        set_client_factory(_make_client)
        _made_for = wanted
    try:
        return get_session()
    except (OSError, ValueError, ImportError) as error:  # a CA file that is not there; SOCKS
        raise explain_transport(error, hub) from error


def _make_client() -> httpx2.Client:
    import httpx2

    verify: ssl.SSLContext | bool = True
    if not (os.environ.get("SSL_CERT_FILE") or os.environ.get("SSL_CERT_DIR")):
        bundle = next((os.environ[name] for name in _CA_VARIABLES if os.environ.get(name)), None)
        if bundle:
            folder = os.path.isdir(bundle)
            verify = ssl.create_default_context(
                cafile=None if folder else bundle, capath=bundle if folder else None
            )
    return httpx2.Client(follow_redirects=True, timeout=30.0, verify=verify)
