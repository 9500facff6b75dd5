"""What can go wrong, as one tree. Each error says what is wrong and what to do.

SpecctlError                exit 1
├── UsageError              exit 2   a flag, value or request that cannot be meant
│   ├── SettingsError       exit 2   a setting out of range, or one that contradicts another
│   └── GrammarError        exit 2   a grammar or JSON schema that cannot bind an answer
│       └── DeadEndError    exit 2   one that no token of the model can go on with
├── EngineMissingError      exit 1   llama-cpp-python is not installed
├── ModelError              exit 1   a model file is missing, broken or not loadable
│   ├── GgufError           exit 1   the file's header cannot be read
│   └── PairError           exit 1   the draft cannot draft for this target
├── ProfileError            exit 1   a profile file is wrong: file, line, key
├── EngineError             exit 1   llama.cpp refused or failed at run time
│   └── ContextFullError    exit 1   the prompt does not fit the context
├── RemoteError             exit 1   see specctl/external: a server of another engine
└── HubError                exit 1   see specctl/hub: network, permission, disk, damage
"""

from __future__ import annotations


class SpecctlError(Exception):
    """An error a user can act on; the CLI prints `message`, then `hint`, and no traceback."""

    exit_code = 1

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(SpecctlError):
    """The command or value cannot be meant."""

    exit_code = 2


class SettingsError(UsageError):
    """A setting is out of range or contradicts another one."""


class GrammarError(UsageError):
    """A grammar or JSON schema that cannot be read, or not by this model."""


class DeadEndError(GrammarError):
    """No token of the model may come next, not even the end."""


class EngineMissingError(SpecctlError):
    """Generating needs the `engine` extra, which is not installed."""


class ModelError(SpecctlError):
    """A model file is missing, broken, or cannot be loaded by this build."""


class GgufError(ModelError):
    """A GGUF header cannot be read: truncated, lying, or not a GGUF at all."""


class PairError(ModelError):
    """This draft cannot draft for this target."""


class ProfileError(SpecctlError):
    """A profile file is wrong; the message names file, line and key."""


class EngineError(SpecctlError):
    """llama.cpp refused or failed while running."""


class ContextFullError(EngineError):
    """The prompt needs more tokens than the context holds."""


class RemoteError(SpecctlError):
    """A server of another engine cannot be watched; the subclasses are in specctl/external."""


class HubError(SpecctlError):
    """A model could not be fetched; the subclasses are in specctl/hub."""
