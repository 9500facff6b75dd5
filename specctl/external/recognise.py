"""Which engine answers at an address, and what it says of itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from specctl.errors import RemoteError
from specctl.external.errors import GoneError, JunkError, MetricsOffError, NotAnEngineError
from specctl.external.exposition import parse
from specctl.external.flags import ENGINES
from specctl.external.readings import PREFIX, Engine, specctl_method
from specctl.external.wire import Answer, Line
from specctl.units import printable

_OWNERS: dict[str, Engine] = {
    "llamacpp": "llama-server",
    "vllm": "vllm",
    "sglang": "sglang",
    "tensorrt_llm": "trtllm",
    "specctl": "specctl",
}
SWITCH: dict[Engine, str] = {
    "llama-server": "start it with --metrics; --probe works without",
    "vllm": "start it without --disable-log-stats",
    "sglang": "start it with --enable-metrics",
    "trtllm": "set enable_iter_perf_stats: true and return_perf_metrics: true in its --config file",
    "specctl": "start it with specctl serve",
}


@dataclass(frozen=True, slots=True)
class Seen:
    """A server. `speculates` None: it does not say. `method` in the server's own words.

    `cycles`: it streams its cycles; `metrics`: its counters can be read. `listed`: what looking at
    a list that empties itself took away.
    """

    engine: Engine
    url: str
    model: str = ""
    version: str = ""
    speculates: bool | None = None
    method: str = ""
    metrics: bool = True
    cycles: bool = False
    listed: tuple[Any, ...] = field(default=(), repr=False, compare=False)

    @property
    def title(self) -> str:
        """The engine's name."""
        return "specctl" if self.engine == "specctl" else ENGINES[self.engine].title


def recognise(line: Line) -> Seen:
    """Look at a server's own paths.

    Raises:
        GoneError: nobody answers, or it is not ready.
        KeyRefusedError: it wants a key.
        NotAnEngineError: something else answers.
    """
    metrics = line.get("/metrics")
    models = line.get("/v1/models")
    engine, counted = _by_metrics(metrics), True
    if engine is None:
        engine, counted = _by_words(line, models), False
    if engine is None:
        raise _stranger(line, metrics, models)
    if engine == "trtllm" and not counted:  # either of its two switches
        counted = _by_metrics(line.get("/prometheus/metrics")) == "trtllm"
    seen = _about(line, engine, _first_model(models), counted)
    if engine == "specctl" and counted:
        on, method = specctl_method(parse(metrics.text))
        return replace(seen, speculates=on, method=word(method))
    listed = metrics.json() if engine == "trtllm" and metrics.ok else None
    return replace(seen, listed=tuple(listed)) if isinstance(listed, list) else seen


def metrics_off(seen: Seen) -> MetricsOffError:
    """What to say where its counters cannot be read."""
    return MetricsOffError(
        f"{seen.title} at {seen.url} answers, but its metrics are switched off",
        SWITCH[seen.engine],
    )


def _by_metrics(answer: Answer) -> Engine | None:
    """By the prefix of its series; TensorRT-LLM answers a JSON list there."""
    if not answer.ok or answer.is_page:
        return None
    if isinstance(answer.json(), list):
        return "trtllm"
    try:
        samples = parse(answer.text)
    except JunkError:
        return None
    return next((engine for engine, prefix in PREFIX.items() if samples.has(prefix)), None)


def _by_words(line: Line, models: Answer) -> Engine | None:
    """By what it calls itself, then by paths that only one engine has."""
    owner = str(_first_model(models).get("owned_by", "")).lower()
    if owner in _OWNERS:
        return _OWNERS[owner]
    props = line.get("/props")
    if props.ok and isinstance(props.json(), dict) and "build_info" in props.json():
        return "llama-server"
    if _sglang_info(line):
        return "sglang"
    prometheus = line.get("/prometheus/metrics")
    if prometheus.ok and b"trtllm_" in prometheus.body:
        return "trtllm"
    version = line.get("/version")
    known = version.ok and isinstance(version.json(), dict) and "version" in version.json()
    return "vllm" if known and models.ok else None


def _first_model(models: Answer) -> dict[str, Any]:
    value = models.json() if models.ok else None
    data = value.get("data") if isinstance(value, dict) else None
    first = data[0] if isinstance(data, list) and data else None
    return first if isinstance(first, dict) else {}


def _sglang_info(line: Line) -> dict[str, Any]:
    for path in ("/server_info", "/get_server_info"):
        answer = line.get(path)
        value = answer.json() if answer.ok else None
        if isinstance(value, dict) and ("internal_states" in value or "served_model_name" in value):
            return value
    return {}


def _stranger(line: Line, metrics: Answer, models: Answer) -> RemoteError:
    where = line.where.shown
    if metrics.status >= 500 and metrics.status != 501:
        return GoneError(
            f"{where} answers {metrics.status}: it is loading its model, or in trouble",
            "try again when it is ready",
        )
    if metrics.is_page or models.is_page:
        what = "answers with a web page, not as an engine"
    else:
        what = f"answers ({metrics.status} for /metrics), but as no engine that specctl knows"
    return NotAnEngineError(
        f"{where} {what}",
        "llama-server, vLLM, SGLang, TensorRT-LLM and specctl serve are known; is the port right?",
    )


def _about(line: Line, engine: Engine, model: dict[str, Any], counted: bool) -> Seen:
    name = word(model.get("id"))
    url = line.where.shown
    if engine == "llama-server":
        return _llama(line, url, name, counted)
    if engine == "sglang":
        info = _sglang_info(line)
        told = info.get("speculative_algorithm", False)  # null: none is set
        method = word(told)
        on = bool(method) if told is None or isinstance(told, str) else None
        return Seen(engine, url, name, word(info.get("version")), on, method, counted)
    version = line.get("/version") if engine != "specctl" else None
    value = version.json() if version is not None and version.ok else None
    number = word(value.get("version")) if isinstance(value, dict) else ""
    return Seen(engine, url, name, number, metrics=counted, cycles=engine == "specctl")


def _llama(line: Line, url: str, name: str, counted: bool) -> Seen:
    """/slots tells whether it speculates; /props does not, whatever it says of types."""
    props = line.get("/props")
    value = props.json() if props.ok else None
    build = word(value.get("build_info")) if isinstance(value, dict) else ""
    if not name and isinstance(value, dict):
        name = word(value.get("model_alias")) or word(value.get("model_path"))
    on, method = slots(line.get("/slots"))
    return Seen("llama-server", url, name, build, on, method, counted)


def slots(answer: Answer) -> tuple[bool | None, str]:
    """Whether any slot speculates (None where it does not say), and by what, once it has."""
    value = answer.json() if answer.ok else None
    found = [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []
    if not found or not any("speculative" in one for one in found):
        return None, ""
    if not any(one.get("speculative") is True for one in found):
        return False, ""
    for one in found:
        params = one.get("params")
        types = params.get("speculative.types") if isinstance(params, dict) else None
        names = [part for part in word(types).split(",") if part and part != "none"]
        if names:
            return True, ",".join(names)
    return True, ""


def word(value: object) -> str:
    """A short printable word of somebody else's; empty where it is no text."""
    return printable(" ".join(value.split()))[:200] if isinstance(value, str) else ""
