"""Messages to prompt tokens, by the chat template in the model's file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specctl.errors import EngineMissingError
from specctl.llama.api import INSTALL_HINT, library
from specctl.llama.model import Model

Message = Mapping[str, str]  # {"role": "user", "content": "…"}

_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}"
    "<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
)


class ChatTemplate:
    """The model's own template; a broken or missing one falls back to ChatML, and says so.

    `warning` is the reason of a fall-back, or None.
    """

    def __init__(self, model: Model) -> None:
        self._model = model
        self.warning: str | None = None
        self.writes_think_tags = False
        source = model.chat_template
        if source is None:
            self._fall_back("the file has no chat template")
            return
        self.knows_thinking = "enable_thinking" in source
        self.writes_think_tags = "<think>" in source
        try:
            self._formatter = self._compile(source)
            self._formatter(messages=[{"role": "user", "content": "a"}])
        except EngineMissingError:
            raise
        except Exception as error:  # jinja2's many errors, and raise_exception() of templates
            self._fall_back(f"its chat template is broken ({error})")

    def _fall_back(self, why: str) -> None:
        self.warning = f"{why}; using ChatML, which the model may not know"
        self.knows_thinking = False
        self._formatter = self._compile(_CHATML)

    def _compile(self, source: str) -> Any:
        library()
        try:
            from llama_cpp.llama_chat_format import Jinja2ChatFormatter
        except ImportError as error:
            raise EngineMissingError(f"this needs {error.name}", INSTALL_HINT) from error
        model = self._model
        return Jinja2ChatFormatter(
            template=source,
            eos_token=model.control_text(model.eos) if model.eos >= 0 else "",
            bos_token=model.control_text(model.bos) if model.bos >= 0 else "",
        )

    def text(self, messages: Sequence[Message], *, think: bool | None = None) -> str:
        """The prompt as text, up to where the assistant speaks.

        `think` switches the thinking of models whose template knows `enable_thinking`.
        """
        extra = {} if think is None else {"enable_thinking": think}
        plain = [dict(message) for message in messages]
        try:
            return str(self._formatter(messages=plain, **extra).prompt)
        except Exception as error:  # e.g. a template that refuses a system role
            merged = _without_system(plain)
            if merged == plain:
                self._fall_back(f"its chat template refuses these messages ({error})")
                return str(self._formatter(messages=plain).prompt)
            return str(self._formatter(messages=merged, **extra).prompt)

    def tokens(self, messages: Sequence[Message], *, think: bool | None = None) -> list[int]:
        """The prompt as tokens. BOS comes from the template, or is added where it writes none."""
        text = self.text(messages, think=think)
        model = self._model
        bos = model.control_text(model.bos) if model.bos >= 0 else ""
        add = model.adds_bos and not (bos and text.startswith(bos))
        return model.tokenize(text, special=True, add_special=add)


def _without_system(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """Fold system text into the first user message, for templates without a system role."""
    system = "\n\n".join(m["content"] for m in messages if m["role"] == "system")
    rest = [m for m in messages if m["role"] != "system"]
    if not system or not rest:
        return messages
    return [{**rest[0], "content": f"{system}\n\n{rest[0]['content']}"}, *rest[1:]]
