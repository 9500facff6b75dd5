"""Drafts made from tiny targets: made, read, judged, kept or not, and nothing left behind."""

from __future__ import annotations

import shutil
import sys
from collections import namedtuple
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import clocks
import pytest
from selfdraft_kit import SETTINGS, left, outcome_of, plan, steps_of, told_costs

from specctl.bench import selfdraft
from specctl.bench import selfdraft_steps as made_steps
from specctl.bench.selfdraft import agreement
from specctl.bench.selfdraft_plan import Prepared, estimated_size, prepare
from specctl.bench.selfdraft_steps import Judged, Made, Outcome, Quantised, Twin
from specctl.errors import GgufError, ModelError, SpecctlError, UsageError
from specctl.gguf.facts import read_facts
from specctl.hub import drafts
from specctl.hub.errors import DiskFullError
from specctl.llama.quantise import quantise

pytestmark = pytest.mark.native


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Costs as told: a draft's step over the target's; verifying costs nothing more."""
    return told_costs(monkeypatch)


# ---------------------------------------------------------------- agreement


def test_agreement_is_where_the_two_clocks_agree(tiny_models: Any) -> None:
    """Over several passes: wrong exactly after the words where the clock draft bets otherwise."""
    answer = clocks.clock_target().greedy(clocks.word("amber"), 150)
    prompt = [clocks.word("cedar"), clocks.word("amber")]
    before = [prompt[-1], *answer[:-1]]
    with selfdraft._draft(tiny_models["clock-draft"], SETTINGS, 1) as draft:
        found = agreement(draft, prompt, answer)
    assert found == [token not in clocks.disagreeing() for token in before]
    assert 0 < sum(found) < len(found)


def test_agreement_of_a_prompt_of_one_token(tiny_models: Any) -> None:
    answer = clocks.clock_target().greedy(clocks.word("amber"), 5)
    with selfdraft._draft(tiny_models["clock"], SETTINGS, 1) as draft:
        assert agreement(draft, [clocks.word("amber")], answer) == [True] * 5


# ---------------------------------------------------------------- the whole job


def test_a_draft_that_does_not_pay_is_not_kept(tiny_models: Any, cheap: Any) -> None:
    cheap(2.0)
    steps = list(steps_of(plan(tiny_models["clock"])))
    kinds = [type(step) for step in steps]
    assert kinds[0] is Prepared
    assert kinds[-1] is Outcome
    assert kinds.index(Quantised) < kinds.index(Made) < kinds.index(Judged)
    outcome = steps[-1]
    assert isinstance(outcome, Outcome)
    (judged,) = outcome.judged
    assert judged.forecast.beta == 1.0  # eight bits change no choice of a clock
    assert judged.forecast.positions == 80
    assert judged.made.mostly("q8_0")
    assert judged.made.size < outcome.prepared.size / 3
    assert outcome.kept is None
    assert left() == []
    assert drafts.find(tiny_models["clock"]) == (None, "")


def test_a_draft_that_pays_is_kept_and_found(tiny_models: Any, cheap: Any) -> None:
    cheap(0.1)
    target = tiny_models["clock"]
    outcome = outcome_of(plan(target))
    assert outcome.kept is not None
    assert outcome.record is not None
    assert left() == [outcome.kept.path.name, outcome.record.name]
    assert outcome.kept.path.name == "clock-Q8_0.gguf"
    assert (outcome.kept.k, outcome.kept.pays) == (4, True)
    assert outcome.kept.accepted == 4.0
    assert outcome.kept.break_even == pytest.approx(0.4)
    assert outcome.kept.speedup == pytest.approx(5 / 1.4)
    assert drafts.find(target) == (outcome.kept, "")
    with pytest.raises(UsageError, match="already"):
        prepare(plan(target))


def test_of_two_the_better_one_is_kept(tiny_models: Any, cheap: Any) -> None:
    cheap(0.1)
    outcome = outcome_of(plan(tiny_models["clock-emoji"], quants=("Q8_0", "Q4_0")))
    assert [one.made.quant for one in outcome.judged] == ["Q8_0", "Q4_0"]
    assert outcome.kept is not None
    assert outcome.kept.quant == outcome.best.made.quant
    assert len(left()) == 2  # the file and its record


def test_two_that_come_out_alike_are_judged_once(tiny_models: Any, cheap: Any) -> None:
    """320 and 32 columns: neither type's block of 256 fits, and both fall back to the same one."""
    cheap(0.1)
    steps = list(steps_of(plan(tiny_models["clock"], quants=("Q2_K", "Q3_K_S", "Q8_0"))))
    assert [step for step in steps if isinstance(step, Twin)] == [Twin("Q3_K_S", "Q2_K")]
    outcome = steps[-1]
    assert isinstance(outcome, Outcome)
    assert [one.made.quant for one in outcome.judged] == ["Q2_K", "Q8_0"]
    assert outcome.kept is not None
    assert len(left()) == 2


def test_real_costs_are_measured(tiny_models: Any) -> None:
    (judged,) = outcome_of(plan(tiny_models["jitter"], max_tokens=24)).judged
    costs = judged.forecast.costs
    assert [rows for rows, _ in costs.passes] == [2, 3, 5]
    assert costs.rounds == 2
    assert all(timing.seconds > 0 for _, timing in costs.passes)
    assert costs.step_ratio is not None
    assert costs.step_ratio > 0


def test_a_recurrent_target(tiny_models: Any, cheap: Any) -> None:
    """Its memory cannot be cut: the texts are read forwards only."""
    cheap(0.1)
    (judged,) = outcome_of(plan(tiny_models["hybrid-clock"])).judged
    assert judged.forecast.beta == 1.0


def test_out_keeps_what_does_not_pay(tiny_models: Any, cheap: Any, tmp_path: Path) -> None:
    cheap(2.0)
    outcome = outcome_of(plan(tiny_models["clock"], out=tmp_path / "mine.gguf"))
    assert outcome.kept is not None
    assert not outcome.kept.pays
    assert [path.name for path in tmp_path.glob("*.gguf")] == ["mine.gguf"]
    assert not list(tmp_path.glob("*.part"))
    found, _ = drafts.find(tiny_models["clock"])
    assert found is not None
    assert found.path == (tmp_path / "mine.gguf").resolve()


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize("at", [Quantised, Made, made_steps.Read, made_steps.Measured, Judged])
def test_ctrl_c_leaves_no_file(tiny_models: Any, at: type) -> None:
    steps = steps_of(plan(tiny_models["clock"]))
    for step in steps:
        if isinstance(step, at):
            break
    else:
        pytest.fail(f"no {at}")
    with pytest.raises(KeyboardInterrupt):
        steps.throw(KeyboardInterrupt)
    assert left() == []


def test_a_file_that_appears_meanwhile_is_not_overwritten(tiny_models: Any, cheap: Any) -> None:
    cheap(0.1)
    mine = drafts.folder() / "clock-Q8_0.gguf"

    def run() -> None:
        for step in steps_of(plan(tiny_models["clock"])):
            if isinstance(step, Judged):
                mine.write_text("mine")

    with pytest.raises(UsageError, match="nothing is overwritten"):
        run()
    assert mine.read_text() == "mine"
    assert left() == [mine.name]


def test_no_room(tiny_models: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(1 << 30, 1 << 30, 1 << 20))
    with pytest.raises(DiskFullError, match=r"1\.0 MiB are free"):
        next(steps_of(plan(tiny_models["clock"])))
    assert left() == []


def test_no_gguf(tmp_path: Path) -> None:
    path = tmp_path / "text.gguf"
    path.write_text("not a model")
    with pytest.raises(GgufError):
        prepare(plan(path))


def test_a_target_that_is_cut_off(tiny_models: Any, tmp_path: Path) -> None:
    cut = tmp_path / "cut.gguf"
    shutil.copy(tiny_models["clock"], cut)
    with cut.open("r+b") as file:
        file.truncate(cut.stat().st_size - 5000)
    with pytest.raises(
        ModelError, match=r"cut\.gguf is incomplete: .* 4\.9 KiB are missing"
    ) as bad:
        prepare(plan(cut))
    assert bad.value.exit_code == 1


def test_a_target_that_is_low_already(tiny_models: Any, tmp_path: Path) -> None:
    low = tmp_path / "low.gguf"
    for _ in quantise(tiny_models["clock"], low, "Q4_0", 1):
        pass
    with pytest.raises(UsageError, match="as Q8_0") as refused:
        prepare(plan(low))
    assert "low.gguf has" in refused.value.message
    with pytest.raises(UsageError, match=r"as Q2_K.*as Q3_K_S"):  # 320 columns: they fall back
        prepare(plan(low, quants=()))
    with pytest.raises(UsageError, match="not a quant"):
        prepare(plan(low, quants=("Q9_X",)))


@pytest.mark.parametrize("quant", ["Q2_K", "Q4_K_M", "Q6_K", "Q8_0", "IQ4_NL"])
def test_the_estimated_size_is_near(tiny_models: Any, tmp_path: Path, quant: str) -> None:
    """Rows of 320 and 32: every block of 256 falls back."""
    made = tmp_path / "made.gguf"
    for done, total in quantise(tiny_models["clock"], made, quant, 1):
        assert 1 <= done <= total
    real = read_facts(str(made)).weights.total
    assert real <= estimated_size(read_facts(str(tiny_models["clock"])), quant) <= 1.3 * real


def test_a_prompt_too_long(tiny_models: Any) -> None:
    with pytest.raises(UsageError, match="more than the context of 512"):
        list(steps_of(plan(tiny_models["clock"], max_tokens=600)))
    assert left() == []


def test_a_place_that_cannot_be(tiny_models: Any, tmp_path: Path) -> None:
    for out, words in ((tmp_path / "no" / "a.gguf", "no folder"), (tmp_path / "a.bin", "gguf")):
        with pytest.raises(UsageError, match=words):
            prepare(plan(tiny_models["clock"], out=out))


# ---------------------------------------------------------------- the child


def _child(tmp_path: Path, body: str) -> Sequence[str]:
    script = tmp_path / "child.py"
    script.write_text(
        f"import os, sys, time\nout = sys.argv[2]\nopen(out, 'w').write('x')\n{body}\n"
    )
    return sys.executable, str(script)


def test_closing_ends_the_child_and_its_file(tmp_path: Path) -> None:
    command = _child(
        tmp_path,
        "open(out + '.pid', 'w').write(str(os.getpid()))\n"
        "print('[1/9]', flush=True)\ntime.sleep(60)",
    )
    target = tmp_path / "made"
    steps = quantise(tmp_path / "source", target, "Q4_0", 1, command)
    assert next(steps) == (1, 9)
    pid = int(Path(f"{target}.pid").read_text())
    steps.close()
    assert not target.exists()
    if sys.platform != "win32":
        import os

        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("sys.exit('disk is full')", "disk is full"),
        ("sys.stderr.write('bad tensor'); sys.stderr.flush(); os.abort()", "SIGABRT: bad tensor"),
    ],
)
def test_what_the_child_says_is_shown(tmp_path: Path, body: str, words: str) -> None:
    if "abort" in body and sys.platform == "win32":
        pytest.skip("no signals")
    target = tmp_path / "made"
    with pytest.raises(ModelError, match=words):
        list(quantise(tmp_path / "source", target, "Q4_0", 1, _child(tmp_path, body)))
    assert not target.exists()


def test_a_broken_source(tmp_path: Path) -> None:
    source = tmp_path / "cut.gguf"
    source.write_bytes(b"GGUF" + bytes(60))
    with pytest.raises(ModelError, match=r"cut\.gguf could not be quantised"):
        list(quantise(source, tmp_path / "made", "Q4_0", 1))
    assert not (tmp_path / "made").exists()


def test_an_unwritable_record_keeps_no_orphan(
    tiny_models: Any, cheap: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    cheap(0.1)

    def full(_: Any) -> Path:
        raise SpecctlError("no room")

    monkeypatch.setattr(drafts, "keep", full)
    with pytest.raises(SpecctlError, match="no room"):
        list(steps_of(plan(tiny_models["clock"])))
    assert left() == []
