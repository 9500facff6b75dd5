"""What can go wrong between here and a model file on disk; each says what to do about it.

HubError                        transient: asking again may help
├── NetworkError                ✓  nobody answers, or the line was cut
│   ├── StalledError            ✓  the line is open and nothing comes
│   └── CertificateError           the other side's certificate is not trusted
├── ServerError                 ✓  5xx
├── RateLimitError              ✓  429; `retry_after` seconds, where the hub said so
├── OfflineError                   the network was forbidden, and something is missing
├── AccessError                    the hub knows it and does not give it to us
│   ├── NoTokenError               without a token
│   ├── BadTokenError              with a token that it does not accept
│   └── GatedError                 until its licence page is accepted
├── NotFoundError                  no such repo, revision or file
├── DamagedError                   what arrives is not what was announced
│   └── MovedError                 the file changed on the hub since it was looked up
└── StoreError                     the model folder: permission, odd names
    ├── DiskFullError              no room; what was fetched is kept
    └── LockedError                another pull is at it
"""

from __future__ import annotations

from specctl.errors import HubError


class NetworkError(HubError):
    """Nobody answers, or the line was cut."""


class StalledError(NetworkError):
    """The line is open, and less than the least rate comes through."""


class CertificateError(NetworkError):
    """TLS: the certificate is not trusted (a company proxy's own CA, as a rule)."""


class ServerError(HubError):
    """The hub answers with 5xx."""


class RateLimitError(HubError):
    """Too many requests."""

    def __init__(self, message: str, hint: str | None, retry_after: float | None) -> None:
        super().__init__(message, hint)
        self.retry_after = retry_after


class OfflineError(HubError):
    """The network was forbidden (`--offline`, `HF_HUB_OFFLINE`), and something is missing."""


class AccessError(HubError):
    """The hub has it and does not give it to this user."""


class NoTokenError(AccessError):
    """The hub wants a token, and there is none."""


class BadTokenError(AccessError):
    """The hub does not accept the token, not even for public models."""


class GatedError(AccessError):
    """A licence has to be accepted on the model's page first."""

    def __init__(self, message: str, hint: str | None, repo: str) -> None:
        super().__init__(message, hint)
        self.repo = repo


class NotFoundError(HubError):
    """No such repo, revision or file."""


class DamagedError(HubError):
    """Size or hash of what arrives is not what was announced."""


class MovedError(DamagedError):
    """The file on the hub is no longer the one that was looked up."""


class StoreError(HubError):
    """The folder for models cannot be used as asked."""


class DiskFullError(StoreError):
    """No room for the rest; what was fetched is kept."""


class LockedError(StoreError):
    """Another pull holds the file, and has not moved for too long."""


def is_transient(error: HubError) -> bool:
    """Whether asking again may help."""
    if isinstance(error, CertificateError):
        return False
    return isinstance(error, NetworkError | ServerError | RateLimitError)
