"""Flags that several commands share, and the frozen settings they become."""

from __future__ import annotations

import secrets
from pathlib import Path
from typing import Annotated

import typer

from specctl.errors import GrammarError, UsageError
from specctl.paths import expanded
from specctl.settings import (
    DraftSettings,
    EngineSettings,
    FlashAttention,
    ModelSettings,
    NgramModSettings,
    NgramSettings,
    Sampling,
    SpecSettings,
)

MODEL_FORMS = (
    "a .gguf file, a profile (id, id:QUANT, id:QUANT+METHOD), hf:owner/repo/file.gguf, demo or "
    "demo-f16"
)
Model = Annotated[
    str | None, typer.Option("--model", "-m", help=MODEL_FORMS[0].upper() + MODEL_FORMS[1:] + ".")
]
DraftModel = Annotated[
    str | None,
    typer.Option("--draft", "-d", help="Draft model, named like --model; a profile's own else."),
]
NamedModel = Annotated[
    str,
    typer.Argument(metavar="MODEL", help="A .gguf file, a profile, hf:owner/repo/file.gguf, demo."),
]
DraftBeside = Annotated[
    str | None, typer.Option("--draft", "-d", help="A draft beside it, named alike.")
]
Vram = Annotated[
    str | None,
    typer.Option("--vram", metavar="SIZE", help="Plan for this GPU memory (16); 0: CPU only."),
]
Ram = Annotated[str | None, typer.Option("--ram", metavar="SIZE", help="Plan for this much RAM.")]
Gpu = Annotated[
    str | None, typer.Option("--gpu", metavar="NAME|INDEX", help="A GPU here, or any listed card.")
]
Ctx = Annotated[int, typer.Option("--ctx", help="Context length, tokens.")]
Threads = Annotated[
    int | None, typer.Option("--threads", "-t", help="Default: physical cores in the CPU quota.")
]
GpuLayers = Annotated[int, typer.Option("--gpu-layers", help="Layers on the GPU; -1 is all.")]
DraftGpuLayers = Annotated[int, typer.Option("--draft-gpu-layers", help="The same of the draft.")]
KvType = Annotated[str, typer.Option("--kv-type", help="KV cache type: f16, q8_0, q4_0, …")]
DraftKvType = Annotated[
    str, typer.Option("--draft-kv-type", help="The draft's; below f16 it may cost acceptance.")
]
CpuMoe = Annotated[int, typer.Option("--n-cpu-moe", help="Experts of the first N layers in RAM.")]
FlashAttn = Annotated[str, typer.Option("--flash-attn", help="auto, on or off.")]

Compat = Annotated[bool, typer.Option("--spec-compat", help="n-gram drafters as llama.cpp's.")]
Preset = Annotated[
    str | None, typer.Option("--spec-preset", help="text: n-gram sizes for prose (8/32/2 hits).")
]
SimpleN = Annotated[int | None, typer.Option("--spec-ngram-simple-size-n", help="Default 12.")]
SimpleM = Annotated[int | None, typer.Option("--spec-ngram-simple-size-m", help="Default 48.")]
SimpleHits = Annotated[int | None, typer.Option("--spec-ngram-simple-min-hits", help="Default 1.")]
ModMatch = Annotated[int, typer.Option("--spec-ngram-mod-n-match", help="Tokens to match.")]
ModMax = Annotated[int, typer.Option("--spec-ngram-mod-n-max", help="Longest draft.")]
ModMin = Annotated[int, typer.Option("--spec-ngram-mod-n-min", help="Shortest draft.")]
DraftMax = Annotated[int, typer.Option("--spec-draft-n-max", help="Longest draft of the model.")]
DraftMin = Annotated[int, typer.Option("--spec-draft-n-min", help="Shortest draft of the model.")]
DraftPMin = Annotated[
    float, typer.Option("--spec-draft-p-min", help="Stop drafting below this probability.")
]
DraftSampling = Annotated[
    str, typer.Option("--spec-draft-sampling", help="How the draft draws: greedy or sampled.")
]

Temperature = Annotated[float, typer.Option("--temperature", "--temp", help="0 is greedy.")]
TopK = Annotated[int, typer.Option("--top-k", help="Keep the k likeliest; 0 is off.")]
TopP = Annotated[float, typer.Option("--top-p", help="Keep this much probability; 1 is off.")]
MinP = Annotated[float, typer.Option("--min-p", help="Drop below this share of the best; 0 off.")]
RepeatPenalty = Annotated[float, typer.Option("--repeat-penalty", help="1 is off.")]
FrequencyPenalty = Annotated[float, typer.Option("--frequency-penalty", help="0 is off.")]
PresencePenalty = Annotated[float, typer.Option("--presence-penalty", help="0 is off.")]
GrammarFile = Annotated[
    Path | None, typer.Option("--grammar", help="A GBNF file that each answer must match.")
]
JsonSchema = Annotated[
    str | None,
    typer.Option(
        "--json-schema",
        metavar="FILE|JSON",
        help="A JSON schema for each answer; {} is any object.",
    ),
]
Think = Annotated[str | None, typer.Option("--think", help="on or off, for models that can think.")]
Seed = Annotated[int | None, typer.Option("--seed", help="Default: a new one each time.")]

MinAccept = Annotated[
    float,
    typer.Option("--spec-min-accept", help="Off below this acceptance rate (fixed drafters)."),
]

_FORMS = 'a file, or the schema itself: \'{"type": "object"}\''
PRESETS = {"text": NgramSettings(size_n=8, size_m=32, min_hits=2)}


def engine_settings(
    ctx: int,
    threads: int | None,
    gpu_layers: int,
    kv_type: str,
    draft_gpu_layers: int,
    draft_kv_type: str,
    n_cpu_moe: int,
    flash_attn: str,
) -> EngineSettings:
    """The engine flags as one value. Raises SettingsError on a value that cannot be."""
    flash: FlashAttention = flash_attn  # type: ignore[assignment]  # checked when made
    return EngineSettings(
        n_ctx=ctx,
        threads=threads,
        flash_attn=flash,
        target=ModelSettings(
            gpu_layers=gpu_layers, kv_type_k=kv_type, kv_type_v=kv_type, n_cpu_moe=n_cpu_moe
        ),
        draft=ModelSettings(
            gpu_layers=draft_gpu_layers, kv_type_k=draft_kv_type, kv_type_v=draft_kv_type
        ),
    )


def spec_settings(
    types: str,
    k: int | None,
    compat: bool,
    preset: str | None,
    simple: tuple[int | None, int | None, int | None],
    mod: tuple[int, int, int],
    draft: tuple[int, int, float, str],
    min_accept: float = 0.0,
) -> SpecSettings:
    """The speculation flags of one comma chain. Raises SettingsError on a value that cannot be."""
    if preset is not None and preset not in PRESETS:
        raise typer.BadParameter(f"{preset!r} is not a preset; there is: {', '.join(PRESETS)}")
    base = PRESETS[preset] if preset else NgramSettings()
    n, m, hits = simple
    n_max, n_min, p_min, drawing = draft
    return SpecSettings(
        types=tuple(part.strip() for part in types.split(",") if part.strip()),
        k=k,
        compat=compat,
        min_accept=min_accept,
        ngram_simple=NgramSettings(
            base.size_n if n is None else n,
            base.size_m if m is None else m,
            base.min_hits if hits is None else hits,
        ),
        ngram_map_k=base,
        ngram_map_k4v=base,
        ngram_mod=NgramModSettings(n_match=mod[0], n_max=mod[1], n_min=mod[2]),
        draft=DraftSettings(n_max, n_min, p_min, drawing),  # type: ignore[arg-type]  # checked
    )


def sampling(
    temperature: float,
    top_k: int,
    top_p: float,
    min_p: float,
    penalties: tuple[float, float, float],
    seed: int | None,
) -> Sampling:
    """The sampling flags as one value; without a seed, a new one."""
    repeat, frequency, presence = penalties
    return Sampling(
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        min_p=min_p,
        repeat_penalty=repeat,
        frequency_penalty=frequency,
        presence_penalty=presence,
        seed=secrets.randbits(32) if seed is None else seed,
    )


def thinking(think: str | None) -> bool | None:
    """--think as a switch; None leaves it to the model's template. UsageError: another word."""
    if think not in (None, "on", "off"):
        raise UsageError(f"--think {think!r} is no switch", "say on or off")
    return None if think is None else think == "on"


def grammar(file: Path | None, schema: str | None) -> tuple[str | None, tuple[str, ...]]:
    """GBNF of the grammar flags, checked, or None; and what a user should know of it.

    Raises:
        UsageError: both flags, or a file that cannot be read. GrammarError: what is in it.
    """
    if file is None and schema is None:
        return None, ()
    if file is not None and schema is not None:
        raise UsageError("--grammar and --json-schema exclude each other", "name one of them")
    from specctl.llama import gbnf
    from specctl.llama.schema import from_schema

    if file is not None:
        text = _read(file, "--grammar")
        try:
            gbnf.check(text)
        except GrammarError as error:
            raise GrammarError(f"--grammar {file}: {error.message}", error.hint) from error
        return text, _notes(text)
    assert schema is not None
    inline = schema.lstrip().startswith("{")
    name = "--json-schema" if inline else f"--json-schema {schema}"
    try:
        text, ignored = from_schema(
            schema if inline else _read(Path(schema), "--json-schema", _FORMS)
        )
        gbnf.check(text)
    except GrammarError as error:
        raise GrammarError(f"{name}: {error.message}", error.hint) from error
    return text, _notes(text, ignored)


def _notes(text: str, ignored: tuple[str, ...] = ()) -> tuple[str, ...]:
    from specctl.llama import gbnf

    left_out = f"of the JSON schema, not enforced: {', '.join(ignored)}" if ignored else ""
    return tuple(note for note in (left_out, gbnf.slow(text)) if note)


def _read(file: Path, flag: str, hint: str | None = None) -> str:
    path = expanded(str(file))
    if path == Path():
        raise UsageError(f"{flag} '' names no file", hint)
    try:
        return path.read_text(encoding="utf-8-sig")  # Windows' editors may begin with a mark
    except UnicodeDecodeError as error:
        raise UsageError(f"{flag}: {path} is no UTF-8 text") from error
    except OSError as error:
        raise UsageError(f"{flag}: cannot read {path}: {error.strerror}", hint) from error
