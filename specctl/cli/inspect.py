"""`specctl inspect`: what a GGUF file is, from its header alone, here or on the hub."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from specctl.cli import options as o
from specctl.cli.render import err, out
from specctl.errors import HubError
from specctl.gguf.facts import ModelFacts, facts_of_source
from specctl.gguf.shape import Shape
from specctl.gguf.source import RemoteSource, Traffic, open_source
from specctl.resolve import header_places
from specctl.units import format_bytes

_MTP_WORDS = {
    "none": "no head",
    "embedded": "embedded head",
    "stripped": "announced, but not in the file",
    "head": "separate head",
}


def load_facts(name: str) -> tuple[ModelFacts, Traffic | None]:
    """Facts of the model a user named, see `specctl.resolve`; its own draft is left out."""
    return facts_at(header_places(name)[0])


def facts_at(place: str) -> tuple[ModelFacts, Traffic | None]:
    """Facts of a path or of `hf:owner/repo/file.gguf`.

    Raises:
        NetworkError: the hub cannot be reached, in `pull`'s words; OfflineError: it may not be.
        HubError: any other refusal of the hub. GgufError, ModelError: of the file.
    """
    try:
        with open_source(place) as source:
            facts = facts_of_source(source)
            return facts, source.traffic if isinstance(source, RemoteSource) else None
    except HubError as error:
        raise _in_words_of_pull(error, place) from error


def _in_words_of_pull(error: HubError, place: str) -> HubError:
    """One fault of the network is told in one way, whichever command meets it."""
    from specctl.hub.errors import NetworkError, OfflineError
    from specctl.hub.refusals import explain_transport
    from specctl.hub.remote import hub_from_environment

    hub = hub_from_environment()
    if hub.offline:
        return OfflineError(
            f"the header of {place} would have to be read on the hub, and {hub.offline} forbids it",
            "pull the model first, or go online",
        )
    cause = error.__cause__
    if not isinstance(cause, Exception):
        return error  # the hub answered, and refused
    said = explain_transport(cause, hub)
    hint = f"pull the model first, or go online: {said.hint}"
    return type(said)(said.message, hint) if isinstance(said, NetworkError) else said


def inspect(
    model: o.NamedModel,
    draft: o.DraftBeside = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object.")] = False,
) -> None:
    """What is this model? From its header; no weights are read."""
    place, beside = header_places(model)
    if draft:
        beside = header_places(draft)[0]
    places = [("model", place)] + ([("draft", beside)] if beside else [])
    found = [(role, *facts_at(where)) for role, where in places]
    if as_json:
        print(json.dumps({role: facts_json(facts, traffic) for role, facts, traffic in found}))
    else:
        for role, facts, traffic in found:
            _show(role if beside else None, facts, traffic)
    if any(facts.missing for _, facts, _ in found):
        raise typer.Exit(1)


def facts_json(facts: ModelFacts, traffic: Traffic | None) -> dict[str, Any]:
    """Everything but the token texts and the raw header."""
    plain = asdict(replace(facts, header=None, tokenizer=None))
    del plain["header"]
    tokenizer = None
    if facts.tokenizer is not None:
        vocabulary = facts.tokenizer.vocabulary
        tokenizer = {
            "kind": vocabulary.kind,
            "pre": facts.tokenizer.pre,
            "size": vocabulary.size,
            "bos": vocabulary.bos,
            "eos": vocabulary.eos,
            "add_bos": vocabulary.add_bos,
            "add_eos": vocabulary.add_eos,
            "sha256": facts.tokenizer.sha256,
        }
    plain["tokenizer"] = tokenizer
    plain["traffic"] = asdict(traffic) if traffic else None
    return plain


def _show(role: str | None, facts: ModelFacts, traffic: Traffic | None) -> None:
    grid = Table.grid(padding=(0, 2))
    grid.add_column(no_wrap=True)
    grid.add_column(overflow="fold")
    for label, text in _rows(role, facts):
        grid.add_row(Text(label, "bold"), Text(text))
    out().print(grid)
    for note in facts.notes:
        out().print(Text(note, "yellow"))
    out().print()
    if traffic is not None:
        err().print(
            f"read by {traffic.requests} requests, {format_bytes(traffic.bytes)} of "
            f"{format_bytes(facts.file_size or 0)}",
            style="dim",
        )


def _rows(role: str | None, facts: ModelFacts) -> list[tuple[str, str]]:
    shape, weights = facts.shape, facts.weights
    parts = f" in {len(facts.sources)} parts" if len(facts.sources) > 1 else ""
    rows = [
        ((role or "file").capitalize(), facts.sources[0] + parts),
        ("Name", facts.name or "–"),
        ("Kind", f"{facts.kind}, architecture {facts.arch}{'' if facts.known_arch else ' (?)'}"),
        ("Size", _size_line(facts)),
        ("Types", ", ".join(f"{kind} {size / max(1, weights.total):.0%}"
                            for kind, size in facts.tensor_types[:5])),
    ]  # fmt: skip
    if shape.n_layer or shape.n_nextn:
        rows += _shape_rows(facts, shape)
    rows += [
        ("MTP", _MTP_WORDS[facts.mtp] + (f", {shape.n_nextn} layer(s)" if shape.n_nextn else "")),
        ("Tokens", _token_line(facts)),
        ("Licence", facts.licence or "not named in the file"),
    ]
    if facts.target_layers:
        layers = ", ".join(map(str, facts.target_layers))
        width = f" of width {facts.target_n_embd}" if facts.target_n_embd else ""
        rows.append(("Reads", f"layers {layers} of a target{width}"))
    if facts.block_size is not None:
        mask = "no mask token" if facts.mask_token is None else f"mask token {facts.mask_token}"
        rows.append(("Block", f"{facts.block_size} tokens in one pass, {mask}"))
    return rows


def _size_line(facts: ModelFacts) -> str:
    bits = 8 * facts.weights.total / facts.n_params if facts.n_params else 0
    billions = facts.n_params / 1e9
    return (
        f"{format_bytes(facts.weights.total, 2)} of weights, {billions:.2f} B parameters, "
        f"{facts.quant} ({bits:.2f} bits per weight)"
    )


def _shape_rows(facts: ModelFacts, shape: Shape) -> list[tuple[str, str]]:
    layers = [f"{shape.n_layer}"]
    if shape.n_attention and shape.n_attention != shape.n_layer:
        layers.append(f"{shape.n_attention} full attention")
    if shape.n_swa:
        layers.append(f"{shape.n_swa} sliding window of {shape.window}")
    if shape.n_recurrent:
        layers.append(f"{shape.n_recurrent} recurrent")
    attention = f"{shape.n_head} heads of {shape.head_dim}, "
    if facts.mla:
        attention += f"latent KV of {shape.kv_width_k} values per token and layer (MLA)"
    else:
        attention += f"KV {shape.kv_width_k} + {shape.kv_width_v} values per token and layer"
    rows = [
        ("Layers", ", ".join(layers)),
        ("Width", f"{shape.n_embd}, feed-forward {shape.n_ff}"),
        ("Attention", attention),
        ("Context", f"trained for {shape.context_length} tokens"),
    ]
    if shape.is_moe:
        share = sum(facts.weights.experts) / max(1, facts.weights.total)
        rows.append(
            ("Experts", f"{shape.n_expert_used} of {shape.n_expert} used, {share:.0%} of the bytes")
        )
    if shape.is_hybrid:
        can = "can" if facts.can_roll_back else "cannot"
        size = format_bytes(shape.recurrent_bytes)
        rows.append(("State", f"{size} per sequence; llama.cpp {can} roll it back"))
    return rows


def _token_line(facts: ModelFacts) -> str:
    if facts.tokenizer is None:
        return "no tokenizer in the file"
    vocabulary = facts.tokenizer.vocabulary
    adds = [name for name, on in (("BOS", vocabulary.add_bos), ("EOS", vocabulary.add_eos)) if on]
    return (
        f"{vocabulary.size}, {vocabulary.kind} ({facts.tokenizer.pre or 'no pre-tokenizer'}), "
        f"adds {' and '.join(adds) or 'nothing'}, sha256 {facts.tokenizer.sha256[:12]}, "
        f"{'chat template' if facts.chat_template else 'no chat template'}"
    )
