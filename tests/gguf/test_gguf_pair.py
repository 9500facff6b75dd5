"""The pair check: each reason to refuse or warn, from two made-up headers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import gguf_families as families
import gguf_headers as headers
import pytest

from specctl.enginefacts import EngineFacts
from specctl.gguf.facts import ModelFacts, read_facts
from specctl.gguf.pair import PairCheck, check_pair


def model(
    path: Path, n: int = 1000, n_ff: int = 512, arch: str = "llama", **more: Any
) -> ModelFacts:
    """A model with `n` tokens; keys in `more` override its metadata, `__` stands for a dot."""
    keys = headers.base(arch, 2, 256, 4, 2, 64, n_ff, n)
    keys |= headers.vocabulary(n) | {key.replace("__", "."): value for key, value in more.items()}
    tensors = headers.ends(256, n, "f16")
    for i in range(2):
        tensors += headers.attention(i, 256, 256, 128, "f16") + headers.feed_forward(
            i, 256, n_ff, "f16"
        )
    return read_facts(str(headers.write(path, keys, tensors)))


@pytest.fixture
def target(tmp_path: Path) -> ModelFacts:
    return model(tmp_path / "target.gguf", n_ff=4096)


def said(found: PairCheck, level: str) -> str:
    return "\n".join(finding.text for finding in found.findings if finding.level == level)


def test_equal_vocabularies(target: ModelFacts, tmp_path: Path) -> None:
    found = check_pair(target, model(tmp_path / "d.gguf"))
    assert (found.verdict, found.method) == ("ok", "draft-simple")
    assert "the same 1000 token texts" in said(found, "note")


@pytest.mark.parametrize(("extra", "verdict"), [(128, "ok"), (129, "no")])
def test_padding(target: ModelFacts, tmp_path: Path, extra: int, verdict: str) -> None:
    found = check_pair(target, model(tmp_path / "d.gguf", 1000 + extra))
    assert found.verdict == verdict
    if verdict == "ok":
        assert "128 tokens of padding: harmless" in said(found, "note")
    else:
        assert "129" in said(found, "no")


def test_the_first_differing_token_is_shown(target: ModelFacts, tmp_path: Path) -> None:
    texts = [f"t{i}" for i in range(1000)]
    texts[139] = "other"
    texts[500] = "later"
    found = check_pair(target, model(tmp_path / "d.gguf", tokenizer__ggml__tokens=texts))
    assert found.verdict == "no"
    assert "token 139 differs: target 't139', draft 'other'" in said(found, "no")


def test_other_sizes_and_other_texts(target: ModelFacts, tmp_path: Path) -> None:
    texts = [f"t{i}" for i in range(700)] + [f"u{i}" for i in range(800)]
    found = check_pair(target, model(tmp_path / "d.gguf", 1500, tokenizer__ggml__tokens=texts))
    assert "sizes differ by 500" in said(found, "no")
    assert "token 700: target 't700', draft 'u0'" in said(found, "note")


def test_special_tokens_before_the_fifth_may_differ(target: ModelFacts, tmp_path: Path) -> None:
    texts = ["<a>", "<b>", *(f"t{i}" for i in range(2, 1000))]
    found = check_pair(target, model(tmp_path / "d.gguf", tokenizer__ggml__tokens=texts))
    assert found.verdict == "ok"


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"tokenizer__ggml__add_bos_token": True}, "add-BOS flag differs"),
        ({"tokenizer__ggml__add_eos_token": True}, "add-EOS flag differs"),
        ({"tokenizer__ggml__model": "llama"}, "tokenizer types differ: target bpe, draft spm"),
    ],
)
def test_flags_and_types(
    target: ModelFacts, tmp_path: Path, more: dict[str, Any], reason: str
) -> None:
    found = check_pair(target, model(tmp_path / "d.gguf", **more))
    assert found.verdict == "no"
    assert reason in said(found, "no")


def test_no_tokenizer(target: ModelFacts, tmp_path: Path) -> None:
    found = check_pair(target, read_facts(str(families.llama(tmp_path / "d.gguf"))))
    assert "the draft's file has no tokenizer" in said(found, "no")


def test_another_way_to_cut_text_warns(target: ModelFacts, tmp_path: Path) -> None:
    found = check_pair(target, model(tmp_path / "d.gguf", tokenizer__ggml__pre="smollm"))
    assert found.verdict == "ok with warnings"
    assert "target qwen2, draft smollm" in said(found, "warning")


def test_a_shorter_context_warns(target: ModelFacts, tmp_path: Path) -> None:
    found = check_pair(target, model(tmp_path / "d.gguf", llama__context_length=2048))
    assert found.verdict == "ok with warnings"
    assert "2048" in said(found, "warning")
    assert "32768" in said(found, "warning")


def test_a_draft_that_costs_as_much_is_refused(target: ModelFacts, tmp_path: Path) -> None:
    found = check_pair(target, model(tmp_path / "d.gguf", n_ff=8192))
    assert "cannot be faster" in said(found, "no")
    near = check_pair(target, model(tmp_path / "e.gguf", n_ff=3072))
    assert near.verdict == "ok with warnings"
    assert "too much to gain from" in said(near, "warning")
    same = check_pair(target, target)
    assert "the same file" in said(same, "no")


def test_an_engine_that_cannot_load_it(target: ModelFacts, tmp_path: Path) -> None:
    engine = EngineFacts("0.3.36", ("CPU",), (), frozenset({"llama"}), False, "")
    draft = model(tmp_path / "d.gguf", arch="qwen99")
    found = check_pair(target, draft, engine)
    assert "0.3.36 cannot load the draft's architecture 'qwen99'" in said(found, "no")
    assert check_pair(target, draft).verdict == "ok with warnings"  # nobody to ask
    silent = dataclasses.replace(engine, architectures=None)
    assert check_pair(target, draft, silent).verdict == "ok with warnings"
    knows = dataclasses.replace(engine, architectures=frozenset({"llama", "qwen99"}))
    assert check_pair(target, draft, knows).verdict == "ok"


def hybrid(path: Path, arch_moe: bool = False, **keys: Any) -> ModelFacts:
    found = read_facts(str(families.qwen35(path, moe=arch_moe, **keys)))
    words = model(path.with_suffix(".words.gguf")).tokenizer
    return dataclasses.replace(found, tokenizer=words)


def test_hybrid_targets_and_drafts(target: ModelFacts, tmp_path: Path) -> None:
    small = model(tmp_path / "d.gguf", n_ff=64)
    own = hybrid(tmp_path / "h.gguf")
    assert "snapshots" in said(check_pair(own, small), "note")
    old = dataclasses.replace(own, shape=dataclasses.replace(own.shape, arch="qwen3next"))
    assert "cannot roll back for qwen3next" in said(check_pair(old, small), "warning")
    found = check_pair(target, own)
    assert "the draft keeps a recurrent state" in said(found, "warning")


def test_experts_warn(tmp_path: Path) -> None:
    experts = hybrid(tmp_path / "m.gguf", arch_moe=True)
    found = check_pair(experts, model(tmp_path / "d.gguf", n_ff=64))
    assert "2 of 8 experts" in said(found, "warning")


def test_what_cannot_draft_at_all(target: ModelFacts, tmp_path: Path) -> None:
    keys = {"general.architecture": "clip"}
    eye = read_facts(str(headers.write(tmp_path / "mmproj.gguf", keys, [("v", (4,), "f32")])))
    assert "the draft is a projector" in said(check_pair(target, eye), "no")
    assert "the target is a projector" in said(check_pair(eye, target), "no")


def test_stripped_and_cut_files(target: ModelFacts, tmp_path: Path) -> None:
    stripped = hybrid(tmp_path / "s.gguf", mtp=1, mtp_tensors=False)
    assert "announces MTP layers" in said(check_pair(stripped, target), "no")
    cut = dataclasses.replace(model(tmp_path / "d.gguf"), missing=5)
    assert "the draft's file is incomplete" in said(check_pair(target, cut), "no")


def test_a_separate_mtp_head(tmp_path: Path) -> None:
    trunk = hybrid(tmp_path / "t.gguf")
    head = hybrid(tmp_path / "h.gguf", mtp=1, trunk=False)
    found = check_pair(trunk, head)
    assert (found.verdict, found.method) == ("ok", "draft-mtp")
    wide = hybrid(tmp_path / "w.gguf", s=families.Size(n_embd=512), mtp=1, trunk=False)
    assert "reads 512 values" in said(check_pair(trunk, wide), "no")
    other = model(tmp_path / "l.gguf")
    assert "cannot serve a target of llama" in said(check_pair(other, head), "no")


def test_feature_drafts(target: ModelFacts, tmp_path: Path) -> None:
    def eagle(name: str, width: int, layers: list[int]) -> ModelFacts:
        keys = headers.base("eagle3", 1, 64, 2, 1, 32, 64, 1000, target_layers=layers)
        keys["eagle3.target_hidden_size"] = width
        tensors: headers.Tensors = [
            ("fc.weight", (3 * 256, 64), "f32"),
            ("d2t", (16,), "i64"),
            ("token_embd.weight", (64, 1000), "f32"),
            ("output.weight", (64, 16), "f32"),
        ]
        path = headers.write(tmp_path / name, keys | headers.vocabulary(1000), tensors)
        return read_facts(str(path))

    good = check_pair(target, eagle("a.gguf", 256, [0, 1, 1]))
    assert (good.verdict, good.method) == ("ok", "draft-eagle3")
    assert "chat looks at its token ids (d2t) too" in said(good, "note")
    assert "width 128" in said(check_pair(target, eagle("b.gguf", 128, [0, 1, 2])), "no")
    assert "reads layer 9" in said(check_pair(target, eagle("c.gguf", 256, [0, 1, 9])), "no")
    last = eagle("e.gguf", 256, [0, 1, 2])
    assert "leaves the last layer of llama" in said(check_pair(target, last), "no")
    talks = check_pair(model(tmp_path / "o.gguf", arch="gpt-oss"), last)
    assert "last layer" not in said(talks, "no")
    deaf = model(tmp_path / "q.gguf", arch="qwen2")
    found = check_pair(deaf, eagle("d.gguf", 256, [0, 1, 2]))
    assert "does not hand out layer outputs of qwen2" in said(found, "no")


@pytest.mark.parametrize(
    ("changes", "method", "level", "words"),
    [
        ({}, "draft-dflash", "", ""),
        ({"markov": True}, "draft-dspark", "", ""),
        ({"layers": [0, 9]}, "draft-dflash", "no", "reads layer 9"),
        ({"layers": [0, 2]}, "draft-dflash", "no", "leaves the last layer of llama"),
        ({"layers": []}, "draft-dflash", "no", "which layers of a target"),
        ({"size": 1}, "draft-dflash", "no", "blocks of 1 tokens"),
        ({"size": 1, "markov": True}, "draft-dspark", "", ""),
        ({"size": 1, "markov": True, "anchor": False}, "draft-dspark", "no", "blocks of 1 tokens"),
        ({"size": 1, "markov": True, "anchor": 1}, "draft-dspark", "no", "blocks of 1 tokens"),
        ({"size": 2, "markov": True, "anchor": False}, "draft-dspark", "", ""),
        ({"size": 0, "markov": True}, "draft-dspark", "no", "blocks of 0 tokens"),
        ({"size": None, "markov": True}, "draft-dspark", "no", "blocks of 0 tokens"),
        ({"mask": 999}, "draft-dflash", "", ""),
        ({"mask": 1000}, "draft-dflash", "no", "mask token 1000 is outside its vocabulary"),
        ({"layers": [-1, 1]}, "draft-dflash", "no", "reads layer -1"),
        ({"mask": None}, "draft-dflash", "no", "names no mask token"),
        ({"width": 128}, "draft-dflash", "no", "width 128"),
    ],
)
def test_block_drafts(
    target: ModelFacts, tmp_path: Path, changes: dict[str, Any], method: str, level: str, words: str
) -> None:
    how = {"layers": [0, 1], "size": 8, "mask": 3, "width": 256, "markov": False} | changes
    keys = headers.base("dflash", 1, how["width"], 2, 1, 32, 64, 1000)
    if how["layers"]:
        keys["dflash.target_layers"] = how["layers"]
    if how["size"] is not None:
        keys["dflash.block_size"] = how["size"]
    if how["mask"] is not None:
        keys["tokenizer.ggml.mask_token_id"] = how["mask"]
    if "anchor" in how:
        keys["dflash.sample_from_anchor"] = how["anchor"]
    tensors: headers.Tensors = [("fc.weight", (512, 256), "f32")]
    if how["markov"]:
        tensors += [(f"markov_w{i}.weight", (8, 1000), "f32") for i in (1, 2)]
    path = headers.write(tmp_path / "b.gguf", keys | headers.vocabulary(1000), tensors)
    found = check_pair(target, read_facts(str(path)))
    assert found.method == method
    if level:
        assert words in said(found, level)
    else:
        assert found.verdict == "ok"
