"""One cause, one message, one way out; no two alike, and no token in any."""

from __future__ import annotations

import email.utils
import time
from pathlib import Path

import httpx2
import pytest
from hubserver import TOKEN, HubServer

from specctl.errors import UsageError
from specctl.hub.errors import (
    AccessError,
    BadTokenError,
    CertificateError,
    GatedError,
    HubError,
    NetworkError,
    NotFoundError,
    NoTokenError,
    RateLimitError,
    ServerError,
    is_transient,
)
from specctl.hub.fetch import FetchPolicy
from specctl.hub.pull import pull
from specctl.hub.refusals import explain_response, explain_transport, retry_after
from specctl.hub.remote import Hub, Wanted, hub_from_environment

REPO, FILE = "org/model-GGUF", "Model-Q4_K_M.gguf"


@pytest.fixture
def served(hub: HubServer) -> HubServer:
    hub.add(REPO, {FILE: b"m", "Model-Q8_0.gguf": b"m8", "other.txt": b"t"})
    hub.add("org/gated", {FILE: b"g"}, gated=True)
    hub.add("org/private", {FILE: b"p"}, private=True)
    return hub


CASES = {
    # name: token, repo, file, revision, error, what it says, what to do
    "gated, no token": (
        None,
        "org/gated",
        FILE,
        None,
        GatedError,
        "no token to show",
        "/org/gated",
    ),
    "gated, no licence": (
        *("hf_nolicence", "org/gated", FILE, None, GatedError),
        *("no access yet", "accept the licence"),
    ),
    "bad token": ("hf_wrong", REPO, FILE, None, BadTokenError, "expired or mistyped", "unset HF_"),
    "repo typo": (None, "org/modle", FILE, None, NotFoundError, "no public repo", "check owner"),
    "repo typo, token": (
        *(TOKEN, "org/modle", FILE, None, NotFoundError),
        *("that the token of HF_TOKEN may see", "right account"),
    ),
    "private, no token": (
        *(None, "org/private", FILE, None, NotFoundError),
        *("no public repo", "for a private one set HF_TOKEN"),
    ),
    "file typo": (
        *(None, REPO, "model-q4_k_s.gguf", None, NotFoundError),
        *("has no file", "nearest: Model-Q4_K_M.gguf"),
    ),
    "nothing like it": (None, REPO, "zzz", None, NotFoundError, "has no file", "it has: Model-Q4"),
    "revision": (None, REPO, FILE, "v9", NotFoundError, "has no revision 'v9'", "tree/main"),
}


@pytest.mark.parametrize("case", CASES)
def test_refusals_are_told_apart(
    case: str, served: HubServer, fast: FetchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, repo, file, revision, kind, says, way_out = CASES[case]
    if token:
        monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(HubError) as caught:
        list(pull((Wanted(repo, file, revision=revision),), hub_from_environment(), fast))
    assert type(caught.value) is kind
    assert says in caught.value.message
    assert way_out in (caught.value.hint or "")
    assert not token or token not in f"{caught.value!r} {caught.value.hint}"
    assert served.sent == 0


def test_pages_to_open_are_those_of_the_endpoint(served: HubServer, fast: FetchPolicy) -> None:
    with pytest.raises(GatedError) as caught:
        list(pull((Wanted("org/gated", FILE),), hub_from_environment(), fast))
    assert f"{served.url}/org/gated" in (caught.value.hint or "")


def test_token_is_looked_up_when_asked(
    served: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert hub_from_environment().token is None  # huggingface_hub is imported by now
    monkeypatch.setenv("HF_HOME", str(tmp_path))
    (tmp_path / "token").write_text(f"{TOKEN}\n")
    hub = hub_from_environment()
    assert (hub.token, hub.token_source) == (TOKEN, "`hf auth login`")
    monkeypatch.setenv("HF_TOKEN", f"  {TOKEN}\n")
    hub = hub_from_environment()
    assert (hub.token, hub.token_source) == (TOKEN, "HF_TOKEN")
    assert TOKEN not in repr(hub)


def answer(status: int, **headers: str) -> httpx2.Response:
    request = httpx2.Request("GET", "http://hub/org/m")
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx2.Response(status, headers=names, request=request)


@pytest.mark.parametrize(
    ("status", "headers", "token", "kind"),
    [
        (401, {}, None, NoTokenError),
        (401, {}, "t", BadTokenError),
        (
            401,
            {"X_Error_Code": "RepoNotFound", "X_Error_Message": "Invalid credentials in header"},
            "t",
            BadTokenError,
        ),
        (403, {"X_Error_Message": "needs read access"}, "t", AccessError),
        (404, {}, "t", NotFoundError),
        (408, {}, None, ServerError),
        (429, {}, None, RateLimitError),
        (502, {}, None, ServerError),
        (451, {}, None, HubError),
    ],
)
def test_bare_statuses(
    status: int, headers: dict[str, str], token: str | None, kind: type[HubError]
) -> None:
    error = explain_response(answer(status, **headers), Hub(token=token), "o/m", None, None)
    assert type(error) is kind
    assert is_transient(error) == (status in (408, 429, 502))


def test_retry_after_forms() -> None:
    assert retry_after(answer(429)) is None
    assert retry_after(answer(429, Retry_After="7")) == 7
    date = email.utils.formatdate(time.time() + 100, usegmt=True)
    assert retry_after(answer(429, Retry_After=date)) == pytest.approx(100, abs=3)
    assert retry_after(answer(429, Retry_After="soon")) is None
    assert retry_after(answer(429, RateLimit='"api";r=0;t=55')) == 55
    assert retry_after(answer(429, RateLimit='"api";r=9;t=55')) is None


def test_proxy_is_named_without_its_password(
    served: HubServer, fast: FetchPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://user:secret@127.0.0.1:9")
    with pytest.raises(NetworkError) as caught:
        list(pull((Wanted(REPO, FILE),), hub_from_environment(), fast))
    assert "through the proxy of HTTP_PROXY" in caught.value.message
    assert "HTTP_PROXY=http://127.0.0.1:9" in (caught.value.hint or "")
    assert "secret" not in f"{caught.value} {caught.value.hint}"
    monkeypatch.setenv("NO_PROXY", "127.0.0.1,localhost")
    assert list(pull((Wanted(REPO, FILE),), hub_from_environment(), fast))


def test_no_proxy_is_not_blamed(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    error = explain_transport(OSError("gone"), Hub(endpoint="http://hub"))
    assert "proxy" not in error.message
    assert "proxy of HTTPS_PROXY" in explain_transport(OSError("gone"), Hub("https://hub")).message
    assert not isinstance(error, CertificateError)


def test_endpoint_must_be_an_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "hub.example")
    with pytest.raises(UsageError, match="HF_ENDPOINT"):
        hub_from_environment()


@pytest.mark.parametrize("repo", ["no-slash", "a/b/c", "../etc", "a b/c", "-x/..", "a--b/c--d"])
def test_wrong_repo_names_are_usage_errors(repo: str, hub: HubServer, fast: FetchPolicy) -> None:
    with pytest.raises(UsageError):
        list(pull((Wanted(repo, FILE),), hub_from_environment(), fast))
