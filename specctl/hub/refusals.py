"""Why the hub or the line said no: one error per cause, each with what to do.

The hub's own signs are the status, `X-Error-Code` (GatedRepo, RepoNotFound, EntryNotFound,
RevisionNotFound) and `X-Error-Message`. A missing repo answers 401 to whoever has no token, and
a bad token answers 401 even for public repos: status alone tells neither apart.
"""

from __future__ import annotations

import difflib
import email.utils
import os
import re
import socket
import ssl
import time
import urllib.request
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from specctl.errors import HubError
from specctl.hub.errors import (
    AccessError,
    BadTokenError,
    CertificateError,
    GatedError,
    NetworkError,
    NotFoundError,
    NoTokenError,
    RateLimitError,
    ServerError,
)
from specctl.units import format_seconds

if TYPE_CHECKING:
    import httpx2

    from specctl.hub.remote import Hub

_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY", "NO_PROXY")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
NEAREST = 5


def explain_response(
    response: httpx2.Response, hub: Hub, repo: str, file: str | None, revision: str | None
) -> HubError:
    """The error of a response with status 400 or above."""
    status = response.status_code
    code = response.headers.get("X-Error-Code", "")
    said = response.headers.get("X-Error-Message", "")
    if status == 429:
        return _rate_limit(response, hub)
    if status >= 500 or status == 408:
        return ServerError(
            f"the hub answered {status} for {repo}", "it is the hub's trouble; try again later"
        )
    if code == "GatedRepo":
        return _gated(hub, repo)
    if status == 401 and "credentials" in said.lower():
        return _bad_token(hub)
    if code in ("EntryNotFound", "RevisionNotFound"):
        what = f"revision {revision!r}" if code == "RevisionNotFound" else f"file {file!r}"
        return NotFoundError(f"{repo} has no {what}", f"see {hub.endpoint}/{repo}/tree/main")
    if code == "RepoNotFound" or status == 404:
        return _no_repo(hub, repo)
    if status == 401 and hub.token is None:
        return NoTokenError(
            f"{repo} wants a token, and there is none", _LOGIN.format(endpoint=hub.endpoint)
        )
    if status == 401:
        return _bad_token(hub)
    if status == 403:
        return AccessError(
            f"the hub does not give {repo} to the token of {hub.token_source or 'nobody'}"
            + (f": {said}" if said else ""),
            "a fine-grained token needs the permission to read this repo (or gated repos): "
            f"{hub.endpoint}/settings/tokens",
        )
    return HubError(f"the hub answered {status} for {repo}" + (f": {said}" if said else ""))


_LOGIN = "make one at {endpoint}/settings/tokens, then set HF_TOKEN or run `hf auth login`"


def _gated(hub: Hub, repo: str) -> GatedError:
    page = f"{hub.endpoint}/{repo}"
    if hub.token is None:
        return GatedError(
            f"{repo} is gated, and there is no token to show that you accepted its licence",
            f"open {page}, accept the licence, then set HF_TOKEN or run `hf auth login`",
            repo,
        )
    return GatedError(
        f"{repo} is gated, and the account of your token ({hub.token_source}) has no access yet",
        f"open {page} and accept the licence (some owners approve by hand), then pull again",
        repo,
    )


def _bad_token(hub: Hub) -> BadTokenError:
    source = hub.token_source or "your token"
    way_out = (
        f"or unset {source}" if source.isupper() else "or `hf auth logout`"
    )  # environment variables are upper case
    return BadTokenError(
        f"the hub does not accept the token of {source} (expired or mistyped)",
        f"make a new one at {hub.endpoint}/settings/tokens, {way_out}: public models need none",
    )


def _no_repo(hub: Hub, repo: str) -> NotFoundError:
    if hub.token is None:
        return NotFoundError(
            f"there is no public repo {repo}",
            "check owner and name; for a private one set HF_TOKEN or run `hf auth login`",
        )
    return NotFoundError(
        f"there is no repo {repo} that the token of {hub.token_source} may see",
        "check owner and name, and whether the token belongs to the right account",
    )


def no_such_file(hub: Hub, repo: str, file: str, names: tuple[str, ...]) -> NotFoundError:
    """A typo in a file name: the nearest names that the repo does have."""
    models = [name for name in names if name.endswith(".gguf")] or list(names)
    lower = {name.lower(): name for name in models}
    near = difflib.get_close_matches(file.lower(), lower, NEAREST, 0.5)
    shown = [lower[name] for name in near] or models[:NEAREST]
    hint = f"the repo is empty: {hub.endpoint}/{repo}"
    if shown:
        hint = ("nearest: " if near else "it has: ") + ", ".join(shown)
    return NotFoundError(f"{repo} has no file {file!r}", hint)


def _rate_limit(response: httpx2.Response, hub: Hub) -> RateLimitError:
    wait = retry_after(response)
    message = "the hub says: too many requests"
    if wait is not None:
        message += f"; again in {format_seconds(wait)}"
    hint = "wait a few minutes"
    if hub.token is None:
        hint += "; with a token (HF_TOKEN or `hf auth login`) the limit is higher"
    return RateLimitError(message, hint, wait)


def retry_after(response: httpx2.Response) -> float | None:
    """Seconds to wait: `Retry-After` (seconds or a date), else the hub's `RateLimit` header."""
    value = response.headers.get("Retry-After", "").strip()
    if value.isdigit():
        return float(value)
    if value:
        try:
            return max(0.0, email.utils.parsedate_to_datetime(value).timestamp() - time.time())
        except ValueError:
            return None
    limit = re.search(r";\s*r=0\s*;\s*t=(\d+)", response.headers.get("RateLimit", ""))
    return float(limit[1]) if limit else None


def explain_transport(error: Exception, hub: Hub) -> NetworkError:
    """No answer at all: certificate, proxy, name, refused, timeout. Names the variables in use."""
    host = urlsplit(hub.endpoint).hostname or hub.endpoint
    causes = tuple(_causes(error))
    reason = _reason(causes)
    if any(isinstance(cause, ssl.SSLError) for cause in causes):
        return CertificateError(
            f"the certificate of {host} is not trusted: {reason}",
            "behind a company proxy, point SSL_CERT_FILE at its CA (PEM); "
            + _in_use(_CERTIFICATES + _PROXIES),
        )
    files = [cause for cause in causes if isinstance(cause, FileNotFoundError)]
    if files:
        return CertificateError(
            "the certificate file that the environment names is not there",
            _in_use(_CERTIFICATES),
        )
    proxied = _proxies_used(hub.endpoint)
    what = f"{host} cannot be reached"
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        what = f"the name {host} cannot be resolved"
    if proxied:
        what += f" through the proxy of {', '.join(proxied)}"
    return NetworkError(
        f"{what}: {reason}",
        "check the connection; " + _in_use((*_PROXIES, "HF_ENDPOINT")),
    )


def _proxies_used(endpoint: str) -> list[str]:
    """The variables by which a request to this address goes through a proxy."""
    address = urlsplit(endpoint)
    if urllib.request.proxy_bypass_environment(address.netloc):  # type: ignore[attr-defined]
        return []
    return [n for n in (f"{address.scheme.upper()}_PROXY", "ALL_PROXY") if _variable(n)][:1]


def _causes(error: BaseException | None) -> list[BaseException]:
    causes: list[BaseException] = []
    while error is not None and error not in causes:
        causes.append(error)
        error = error.__cause__ or error.__context__
    return causes


def _reason(causes: tuple[BaseException, ...]) -> str:
    """The first words that say something; credentials in addresses are cut out."""
    text = next((str(cause) for cause in causes if str(cause)), type(causes[0]).__name__)
    return re.sub(r"//[^/@\s]+@", "//", text).splitlines()[0]


def _variable(name: str) -> str | None:
    return os.environ.get(name) or os.environ.get(name.lower()) or None


def _in_use(names: tuple[str, ...]) -> str:
    """`in use: HTTPS_PROXY=http://proxy:3128`, without user and password."""
    parts = []
    for name in names:
        value = _variable(name)
        if value:
            parts.append(f"{name}={re.sub(r'//[^/@]+@', '//', value)}")
    return "in use: " + (", ".join(parts) if parts else f"none of {', '.join(names)}")
