"""A recommendation as plain values: for `--json`, and the commands that follow from it."""

from __future__ import annotations

from typing import Any

from specctl.plan.acceptance import evidence_rows
from specctl.plan.budget import NO_GPU, Budget
from specctl.plan.candidates import Configuration
from specctl.plan.outlook import default_k, device_class
from specctl.plan.profile import HEADS, Evidence
from specctl.plan.recommend import Recommendation
from specctl.plan.schema import Span

SCHEMA = 1


def pull_command(one: Configuration) -> str:
    """What fetches all files of a configuration."""
    return f"specctl pull {one.selection.pull_name}"


def run_command(one: Configuration, ctx: int, budget: Budget | None = None) -> str:
    """What runs it: specctl chat, or llama-server for what specctl does not run.

    `budget`: the machine's, so that what is meant for the CPU beside a GPU says so.
    """
    command = _chat(one, ctx) if one.in_process else _server(one, ctx)
    if budget is None or budget.gpu_words == NO_GPU or one.fit.place != "CPU":
        return command
    draft = " --draft-gpu-layers 0" if one.in_process and one.selection.draft_file else ""
    return f"{command} --gpu-layers 0{draft}"


def chat_name(one: Configuration) -> str:
    """What --model is for it: with the method where that decides which files are opened."""
    named = one.selection.draft_file is not None or one.method in HEADS
    return one.selection.name if named else one.selection.target_name


def _chat(one: Configuration, ctx: int) -> str:
    """Chat's `auto` looks up, and drafts where the name has a draft. --k where snapshots of a
    recurrent state cost memory: priced is what is run.
    """
    shape = one.model.shape
    parts = [f"specctl chat --model {chat_name(one)} --ctx {ctx}"]
    if one.method in HEADS or one.method == "none":
        parts.append(f"--spec-type {one.method}")
    if one.method in HEADS or (one.method != "none" and shape and shape.is_hybrid):
        parts.append(f"--k {one.prediction.k}")
    if one.kv_type != "f16":
        parts.append(f"--kv-type {one.kv_type}")
    if one.fit.cpu_moe:
        parts.append(f"--n-cpu-moe {one.fit.cpu_moe}")
    return " ".join(parts)


def _server(one: Configuration, ctx: int) -> str:
    """Flags of llama.cpp's server as of b11434."""
    file, draft = one.selection.file, one.selection.draft_file
    parts = [f"llama-server -m {file.names[0].rsplit('/', 1)[-1]} -c {ctx} --parallel 1"]
    if draft is not None:
        parts.append(f"-md {draft.names[0].rsplit('/', 1)[-1]}")
    parts += [f"--spec-type {one.method}", f"--spec-draft-n-max {one.prediction.k}"]
    if one.kv_type != "f16":
        parts.append(f"-ctk {one.kv_type} -ctv {one.kv_type}")
    if one.fit.cpu_moe:
        parts.append(f"--n-cpu-moe {one.fit.cpu_moe}")
    return " ".join(parts)


def k_words(one: Configuration) -> str:
    """Where the K of a row is from: the default, what bounds it, the rows that used one, and K*."""
    k, (default, why) = one.prediction.k, default_k(one.selection)
    if default is not None and k < default:
        why += f", {default}, down to the snapshots kept of its recurrent state"
    rows = evidence_rows(one.model, one.method, "")
    used = sorted({row.k for row in rows if row.k})
    said = f"its measured rows used {', '.join(map(str, used))}" if used else ""
    said = said or "no measured row of it tells a K"
    best = "" if one.best_k in (None, k) else f"; best by this estimate: K {one.best_k}"
    return f"K {k}: {why}; {said}{best}"


def as_json(result: Recommendation) -> dict[str, Any]:
    """Everything `specctl recommend` knows, with units in the names."""
    budget, wish = result.budget, result.wish
    pace = budget.gpu_pace or budget.cpu_pace
    return {
        "schema": SCHEMA,
        "estimate": True,
        "machine": {
            "name": budget.name,
            "simulated": budget.simulated,
            "gpu_budget_bytes": budget.gpu,
            "gpu_budget": budget.gpu_words,
            "ram_budget_bytes": budget.ram,
            "ram_budget": budget.ram_words,
            "bandwidth_bytes_per_second": pace.bandwidth,
            "bandwidth_source": pace.source,
        },
        "wish": {
            "ctx": wish.ctx,
            "use": wish.use,
            "method": wish.method,
            "licence": wish.licence,
            "max_download_bytes": wish.max_download,
        },
        "ranked": [
            {"rank": rank, **_row(one, result)} for rank, one in enumerate(result.ranked, 1)
        ],
        "llama_server": [
            {"rank": rank, **_row(one, result)}
            for rank, one in enumerate(result.elsewhere, len(result.ranked) + 1)
        ],
        "not_chosen": [{"name": one.name, "reason": one.reason} for one in result.refused],
    }


def _row(one: Configuration, result: Recommendation) -> dict[str, Any]:
    prediction, model = one.prediction, one.model
    return {
        "name": one.selection.name,
        "model": model.id,
        "quant": one.selection.file.quant,
        "method": one.method,
        "k": prediction.k,
        "k_from": None if one.method == "none" else k_words(one),
        "best_k": one.best_k,
        "kv_type": one.kv_type,
        "runs_in": "specctl chat" if one.in_process else "llama-server",
        "place": one.fit.place,
        "n_cpu_moe": one.fit.cpu_moe,
        "quality": one.quality,
        "quality_source": model.quality_source,
        "memory_bytes": one.fit.used,
        "memory_parts": [
            {"name": name, "gpu_bytes": gpu, "ram_bytes": ram} for name, gpu, ram in one.fit.parts
        ],
        "usable_ctx": one.usable_ctx,
        "download_bytes": one.download,
        "download_exact": one.download_exact,
        "files": [
            {"repo": file.repo, "folder": file.folder and str(file.folder), "names": file.names}
            for file in one.selection.files
        ],
        "plain_tokens_per_second": prediction.plain,
        "tokens_per_second": prediction.spec,
        "speedup": prediction.speedup,
        "tokens_per_pass": prediction.tokens_per_pass,
        "break_even_accepted_per_cycle": None if one.method == "none" else prediction.break_even,
        "from": one.acceptance_source,
        "licence": model.licence,
        "notes": one.notes,
        "pull": pull_command(one),
        "run": run_command(one, result.wish.ctx, result.budget),
    }


def evidence_lines(one: Configuration, result: Recommendation, most: int = 6) -> list[str]:
    """The measured rows nearest to a configuration, one line each."""
    device = device_class(result.budget, one.fit)
    return [_evidence(row) for row in evidence_rows(one.model, one.method, device)[:most]]


def _evidence(row: Evidence) -> str:
    said = [row.hardware, row.engine, *filter(None, (row.settings, row.workload))]
    if row.plain and row.spec:
        said.append(f"{span(row.plain)} → {span(row.spec)} tok/s")
    elif row.spec or row.plain:
        said.append(f"{span(row.spec or row.plain)} tok/s")
    if row.speedup:
        said.append(f"{span(row.speedup)}-fold")
    if row.acceptance:
        said.append(f"acceptance rate {span(row.acceptance)}")
    if row.length:
        said.append(f"mean acceptance length {span(row.length)}")
    if row.note:
        said.append(row.note)
    return f"{'; '.join(said)} [{row.trust}] {row.source}"


def span(value: Span | None) -> str:
    """`(1.0, 1.5)` → `1–1.5`; one number where both are the same."""
    if value is None:
        return "–"
    low, high = (f"{number:.3g}" for number in value)
    return low if low == high else f"{low}–{high}"
