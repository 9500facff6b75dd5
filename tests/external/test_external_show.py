"""The commands themselves: exact lines, refusals, and that every flag in them is known."""

from __future__ import annotations

import itertools
import json
import shlex

import pytest

from specctl.errors import ModelError, UsageError
from specctl.external import vllm, wish
from specctl.external.flags import ENGINES, FLAGS, KEYS, flag_of
from specctl.external.method import COUNTERPARTS, LLAMA_PRIORITY, METHODS, WITH_WEIGHTS
from specctl.external.wish import Options, make_wish
from specctl.plan import catalog

AT = "--host 127.0.0.1 --port"
LLAMA = f"--metrics {AT} 8080"
VLLM_DETAIL = "--per-request-spec-decode-metrics detailed"
SGLANG = f"--enable-metrics --decode-log-interval 5 {AT} 30000"


def sc(**config) -> str:
    return f"--speculative-config {shlex.quote(json.dumps(config, separators=(',', ':')))}"


LINES = [
    (
        ("llama-server", "qwen3-8b:Q4_K_M+draft-simple"),
        {},
        "llama-server -hf Qwen/Qwen3-8B-GGUF -hff Qwen3-8B-Q4_K_M.gguf "
        "-hfd Qwen/Qwen3-0.6B-GGUF -md Qwen3-0.6B-Q8_0.gguf --spec-type draft-simple "
        f"--spec-draft-n-max 4 {LLAMA}",
    ),
    (  # the heads are in the file of the MTP repository: no second file
        ("llama-server", "qwen3.6-27b+draft-mtp"),
        {"ctx": 16384},
        "llama-server -hf unsloth/Qwen3.6-27B-MTP-GGUF -hff Qwen3.6-27B-Q4_K_M.gguf "
        f"--spec-type draft-mtp --spec-draft-n-max 2 -c 16384 {LLAMA}",
    ),
    (
        ("llama-server", "gpt-oss-120b+draft-eagle3"),
        {"k": 5},
        "llama-server -hf ggml-org/gpt-oss-120b-GGUF "
        "-hff gpt-oss-120b-MXFP4.gguf -hfd ggml-org/gpt-oss-120b-GGUF "
        "-md eagle3-gpt-oss-120b-Q8_0.gguf --spec-type draft-eagle3 --spec-draft-n-max 5 "
        f"{LLAMA}",
    ),
    (  # --k caps look-ups too, and ngram-mod's minimum with it
        ("llama-server", "qwen3-8b+ngram-mod"),
        {"k": 16, "port": 9000},
        "llama-server -hf Qwen/Qwen3-8B-GGUF -hff Qwen3-8B-Q4_K_M.gguf --spec-type ngram-mod "
        "--spec-ngram-mod-n-max 16 --spec-ngram-mod-n-min 16 --metrics --host 127.0.0.1 "
        "--port 9000",
    ),
    (
        ("vllm", "qwen3-8b+draft-simple"),
        {"tp": 2},
        "vllm serve Qwen/Qwen3-8B "
        + sc(method="draft_model", model="Qwen/Qwen3-0.6B", num_speculative_tokens=4)
        + f" {VLLM_DETAIL} --tensor-parallel-size 2 {AT} 8000",
    ),
    (
        ("vllm", "hf:Qwen/Qwen3-8B"),
        {"spec_type": "draft-p-eagle", "draft": "hf:me/p-eagle"},
        "vllm serve Qwen/Qwen3-8B "
        + sc(method="eagle3", model="me/p-eagle", num_speculative_tokens=5, parallel_drafting=True)
        + f" {VLLM_DETAIL} {AT} 8000",
    ),
    (
        ("vllm", "qwen3-8b+ngram-suffix"),
        {},
        "vllm serve Qwen/Qwen3-8B "
        + sc(method="suffix", num_speculative_tokens=32)
        + f" {VLLM_DETAIL} {AT} 8000",
    ),
    (
        ("vllm", "qwen3-8b+ngram-simple"),
        {"adaptive": True},
        "vllm serve Qwen/Qwen3-8B "
        + sc(
            method="ngram",
            num_speculative_tokens=4,
            prompt_lookup_min=2,
            prompt_lookup_max=5,
            num_speculative_tokens_per_batch_size=[[1, 4, 4], [5, 8, 2], [9, 32, 1], [33, 512, 0]],
        )
        + f" {VLLM_DETAIL} {AT} 8000",
    ),
    (
        ("vllm", "qwen3.6-27b+draft-mtp"),
        {"adaptive": True},
        "vllm serve Qwen/Qwen3.6-27B "
        + sc(method="mtp", num_speculative_tokens=2, enable_adaptive_verification=True)
        + f" {VLLM_DETAIL} {AT} 8000",
    ),
    (
        ("sglang", "qwen3-8b+draft-eagle3"),
        {"adaptive": True},
        "sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm EAGLE3 "
        "--speculative-draft-model-path Tengyunw/qwen3_8b_eagle3 --speculative-num-steps 3 "
        "--speculative-eagle-topk 1 --speculative-num-draft-tokens 4 --speculative-adaptive "
        f"{SGLANG}",
    ),
    (
        ("sglang", "qwen3-8b+ngram-simple"),
        {"k": 11, "ctx": 4096},
        "sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm NGRAM "
        "--speculative-num-draft-tokens 12 --speculative-ngram-max-bfs-breadth 1 "
        f"--context-length 4096 {SGLANG}",
    ),
    (  # the block is the checkpoint's: the profile's advice is for llama.cpp
        ("sglang", "qwen3-8b+draft-dflash"),
        {},
        "sglang serve --model-path Qwen/Qwen3-8B --speculative-algorithm DFLASH "
        f"--speculative-draft-model-path z-lab/Qwen3-8B-DFlash-b16 {SGLANG}",
    ),
    (
        ("sglang", "qwen3.6-27b+draft-mtp"),
        {"tp": 4},
        "sglang serve --model-path Qwen/Qwen3.6-27B --speculative-algorithm NEXTN "
        "--speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3 "
        f"--tp-size 4 {SGLANG}",
    ),
    (
        ("trtllm", "qwen3-8b+ngram-simple"),
        {"tp": 8, "ctx": 4096},
        f"trtllm-serve Qwen/Qwen3-8B --config specctl-trtllm.yaml --tp_size 8 {AT} 8000",
    ),
]


@pytest.mark.parametrize(("what", "options", "line"), LINES, ids=lambda value: str(value)[:40])
def test_exact_lines(show, what, options, line):
    launch = show(*what, **options)
    assert shlex.join(launch.commands[0]) == line
    assert launch.unverified == ()


def test_plain_is_no_speculation(show):
    for engine in ENGINES:
        launch = show(engine, "qwen3-8b" if engine == "llama-server" else "hf:Qwen/Qwen3-8B")
        text = shlex.join(launch.commands[0]) + "".join(text for _, text in launch.files)
        assert "spec" not in text.replace("specctl-trtllm.yaml", "")
        assert any("name a method" in note for note in launch.notes)


def test_every_flag_and_key_is_known_for_the_whole_catalogue(show):
    """Every model × method × engine, with what adds flags: nothing is printed from nowhere."""
    built = refused = 0
    models = [model.id for model in catalog.load()]
    for engine, method in itertools.product(ENGINES, METHODS):
        for model in models:
            options = {"ctx": 8192, "tp": 4, "nearest": True, "k": 6}
            if engine != "llama-server":
                options |= {"nodes": 2, "head": "10.0.0.1"}
            try:
                launch = show(engine, f"{model}+{method}", **options)
            except UsageError:
                refused += 1
                continue
            built += 1
            assert launch.unverified == (), (engine, model, method)
            if launch.config is not None:
                assert set(launch.keys) <= set(KEYS[engine])
            for command in launch.commands:
                assert "None" not in command
                flags = [flag for token in command if (flag := flag_of(token))]
                assert len(flags) == len(set(flags)), command
    assert built > 2000
    assert refused > 300  # methods with weights that nobody made for a target


def test_a_flag_that_no_source_has_is_marked(show):
    launch = show("vllm", "hf:a/b", extra=("--frobnicate", "1", "--max-model-len", "8"))
    assert launch.unverified == ("--frobnicate",)
    assert launch.commands[0][-4:] == ("--frobnicate", "1", "--max-model-len", "8")


def test_tables_have_every_row_and_nearest_is_there():
    for engine in ENGINES:
        assert set(COUNTERPARTS[engine]) == set(METHODS)
        for name, counterpart in COUNTERPARTS[engine].items():
            if counterpart.value is None:
                assert counterpart.why, (engine, name)
                assert counterpart.nearest is not None
                assert COUNTERPARTS[engine][counterpart.nearest].value is not None
        for method, counterpart in COUNTERPARTS[engine].items():
            if counterpart.value and engine == "llama-server" and method != "none":
                assert method in LLAMA_PRIORITY
    assert not {"--draft-model", "--draft-max"} & set(FLAGS["llama-server"])


# ---------------------------------------------------------------- refusals

REFUSED = [
    ("vllm", "qwen3-8b+ngram-map-k", {}, "no ngram-map-k in vLLM", "ngram-suffix"),
    ("sglang", "qwen3-8b+ngram-suffix", {}, "no ngram-suffix in SGLang", "ngram-simple"),
    ("llama-server", "qwen3-8b+draft-p-eagle", {}, "no draft-p-eagle", "draft-dflash"),
    ("trtllm", "qwen3-8b+auto", {}, "no auto in TensorRT-LLM", "--nearest"),
    ("vllm", "qwen3-8b+draft-mtp", {}, "has no MTP heads", "draft-simple"),
    ("llama-server", "qwen3-8b+draft-mtp", {}, "no ready file for draft-mtp", "draft-simple"),
    ("llama-server", "qwen3-8b+draft-eagle3", {}, "no ready file", "Tengyunw/qwen3_8b_eagle3"),
    ("vllm", "gemma-4-31b-it+draft-mtp", {}, "the assistant", "--draft hf:"),
    ("vllm", "muse-glimmer-30b+draft-dflash", {}, "only GGUF files", "--draft hf:"),
    ("vllm", "qwen3-8b+draft-eagle", {}, "no draft for draft-eagle", "--draft"),
    ("vllm", "qwen3-8b+ngram-simple,draft-simple", {}, "cannot combine", "draft-simple alone"),
    ("vllm", "hf:a/b", {"spec_type": "draft-simple"}, "nothing of a draft", "--draft"),
    ("vllm", "hf:a/b/c.gguf", {}, "reads safetensors", "original repository"),
    ("llama-server", "hf:a/b", {}, "names no file", "hf:owner/repo/file.gguf"),
    ("vllm", "hf:a/b@main", {}, "names a revision", "leave it out"),
    ("vllm", "Qwen/Qwen3-8B", {}, "no profile", "hf:Qwen/Qwen3-8B"),
    ("vllm", "qwen3-9b", {}, "no profile 'qwen3-9b'", "qwen3-"),
    ("vllm", "qwen3-8b:Q77", {}, "no quant 'Q77'", "Q4_K_M"),
    ("vllm", "qwen3-8b+medusa", {}, "'medusa' is not a drafting method", "draft-mtp"),
    ("vllm", "qwen3-8b+none,auto", {}, "cannot be part of a list", ""),
    ("vllm", "qwen3-8b+auto", {"spec_type": "none"}, "two methods", ""),
    ("vllm", "nemotron-3.5-lightning-30b-a3b", {}, "no original repository", "hf:owner/repo"),
    ("vllm", "qwen3-8b", {"draft": "qwen3-0.6b"}, "drafts without a model", "--spec-type"),
    ("llama-server", "qwen3-8b", {"nodes": 2, "tp": 2}, "no cluster engine", "--rpc"),
    ("llama-server", "qwen3-8b+ngram-mod", {"adaptive": True}, "by load", "p-min"),
    ("sglang", "qwen3-8b+ngram-simple", {"adaptive": True}, "not of ngram-simple", "--adaptive"),
    ("vllm", "qwen3-8b", {"nodes": 2, "tp": 2}, "first node's address", "--head"),
    ("vllm", "demo", {}, "vLLM reads safetensors", "hf:owner"),
    ("trtllm", "qwen3.6-27b+draft-mtp,draft-eagle3", {}, "cannot combine", "draft-mtp alone"),
]


@pytest.mark.parametrize(("engine", "name", "options", "says", "hint"), REFUSED)
def test_refusals_say_what_to_do(show, engine, name, options, says, hint):
    with pytest.raises(UsageError) as caught:
        show(engine, name, **options)
    assert says in caught.value.message
    assert hint in (caught.value.hint or "")
    assert caught.value.exit_code == 2


def test_the_demo_is_a_file_for_llama_server(show):
    command = show("llama-server", "demo", spec_type="ngram-simple").commands[0]
    assert command[command.index("-m") + 1].endswith(".gguf")


@pytest.mark.demo
def test_the_demo_says_its_method_with_a_plus(show):
    named = show("llama-server", "demo+ngram-simple")
    assert named.commands == show("llama-server", "demo", spec_type="ngram-simple").commands
    with pytest.raises(UsageError, match="vLLM reads safetensors"):
        show("vllm", "demo+ngram-simple")
    with pytest.raises(UsageError, match="is not a drafting method"):
        show("llama-server", "demo+ngram")


@pytest.mark.demo
def test_plain_decoding_says_how_a_method_is_named(show, tmp_path):
    file = tmp_path / "x.gguf"
    file.write_bytes(b"GGUF")
    assert "NAME+METHOD or --spec-type" in " ".join(show("llama-server", "demo").notes)
    notes = " ".join(show("llama-server", str(file)).notes)
    assert "name a method to speculate, --spec-type METHOD" in notes
    assert "NAME+METHOD" not in notes


@pytest.mark.parametrize(
    "options",
    [{"k": 0}, {"k": 1025}, {"ctx": 31}, {"port": 0}, {"port": 65536}, {"tp": 0}, {"nodes": 3}],
)
def test_numbers_that_cannot_be(show, options):
    with pytest.raises(UsageError):
        show("vllm", "hf:a/b", **options)


def test_no_such_engine():
    with pytest.raises(UsageError, match="'ollama' is not an engine") as caught:
        make_wish("ollama", "qwen3-8b", Options(), catalog.load())
    assert "sglang" in (caught.value.hint or "")


def test_a_folder_is_safetensors_unless_a_profile_has_its_name(show, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "qwen3-8b").mkdir()
    (tmp_path / "mine").mkdir()
    assert show("vllm", "qwen3-8b").commands[0][2] == "Qwen/Qwen3-8B"
    assert show("vllm", "mine").commands[0][2] == str(tmp_path / "mine")
    with pytest.raises(UsageError, match="mine is a folder"):
        show("llama-server", "mine")


def test_files_of_this_machine_are_named_by_path(show, tmp_path, monkeypatch):
    """The pair lies in the store: its paths, and nothing of the hub."""
    monkeypatch.setattr(wish, "find", lambda repo, file, *_: tmp_path / file)
    launch = show("llama-server", "qwen3-8b+draft-simple")
    argv = launch.commands[0]
    assert argv[argv.index("-m") + 1] == str(tmp_path / "Qwen3-8B-Q4_K_M.gguf")
    assert argv[argv.index("-md") + 1] == str(tmp_path / "Qwen3-0.6B-Q8_0.gguf")
    assert not {"-hf", "-hfd"} & set(argv)
    assert not any("specctl pull" in note for note in launch.notes)


def test_a_split_model_is_here_only_with_all_its_parts(show, monkeypatch, tmp_path):
    model, file = next((m, f) for m in catalog.load() for f in m.files if len(f.names) > 1)
    name, first = f"{model.id}:{file.quant}", file.names[0]
    monkeypatch.setattr(
        wish, "find", lambda repo, file, *_: tmp_path / file if file == first else None
    )
    assert show("llama-server", name).commands[0][1] == "-hf"
    monkeypatch.setattr(wish, "find", lambda repo, file, *_: tmp_path / file)
    assert show("llama-server", name).commands[0][1:3] == ("-m", str(tmp_path / first))


def test_a_missing_file_is_no_profile(show):
    with pytest.raises(ModelError, match="no such file"):
        show("llama-server", "./nowhere/x.gguf")


# ---------------------------------------------------------------- substitution and lists


def test_nearest_takes_and_says_so(show):
    launch = show("vllm", "qwen3-8b+ngram-map-k", nearest=True)
    assert launch.methods == ("ngram-suffix",)
    assert any("this is ngram-suffix instead" in note for note in launch.notes)


def test_auto_is_nearest_to_the_draft_model_where_there_is_one(show):
    assert show("vllm", "qwen3-8b+auto", nearest=True).methods == ("draft-simple",)
    assert show("vllm", "hf:a/b", spec_type="auto", nearest=True).methods == ("ngram-suffix",)
    both = show("llama-server", "qwen3-8b+auto", nearest=True)
    assert both.methods == ("ngram-mod", "draft-simple")
    assert "-md" in both.commands[0]


def test_a_checkpoint_of_a_missing_method_is_not_given_to_another(show):
    with pytest.raises(UsageError, match="does not load as draft-eagle3"):
        show("trtllm", "qwen3-8b+draft-p-eagle", nearest=True, draft="hf:me/p-eagle")
    launch = show("trtllm", "qwen3-8b+draft-p-eagle", nearest=True)
    assert launch.config["speculative_model"] == "Tengyunw/qwen3_8b_eagle3"


def test_llama_server_keeps_the_list_and_says_its_own_order(show):
    launch = show("llama-server", "qwen3-8b+draft-simple,ngram-simple")
    assert launch.commands[0][launch.commands[0].index("--spec-type") + 1] == (
        "draft-simple,ngram-simple"
    )
    (note,) = [note for note in launch.notes if "fixed order" in note]
    assert "ngram-simple > draft-simple" in note
    assert "in list order" in note
    same = show("llama-server", "qwen3-8b+ngram-simple,draft-simple")
    assert not any("in list order" in note for note in same.notes)


def test_llama_server_takes_one_draft_file(show):
    with pytest.raises(UsageError, match="a draft file each"):
        show("llama-server", "qwen3.6-27b+draft-dflash,draft-eagle3")
    beside = show("llama-server", "qwen3.6-27b+draft-mtp,draft-dflash")  # heads inside, one file
    assert "Qwen3.6-27B-MTP-GGUF" in beside.commands[0][2]
    assert any("dflash" in token for token in beside.commands[0])
    assert beside.commands[0][beside.commands[0].index("--spec-draft-n-max") + 1] == "2"
    named = show("llama-server", "qwen3.6-27b+draft-mtp,draft-simple", draft="hf:a/b/c.gguf")
    assert "Qwen3.6-27B-MTP-GGUF" in named.commands[0][2]  # heads inside, the draft beside
    assert named.commands[0][5:9] == ("-hfd", "a/b", "-md", "c.gguf")
    sidecar = show("llama-server", "qwen3.6-27b+draft-mtp", draft="hf:a/b/mtp.gguf")
    assert sidecar.commands[0][2] == "unsloth/Qwen3.6-27B-GGUF"  # heads in the file named
    with pytest.raises(UsageError, match="a draft file each"):
        show("llama-server", "qwen3.8-27b+draft-mtp,draft-simple", draft="hf:a/b/c.gguf")


def test_suffix_beside_a_head_in_trtllm(show):
    launch = show("trtllm", "qwen3-8b+ngram-suffix,draft-eagle3")
    assert launch.config["decoding_type"] == "Eagle3"
    assert launch.config["sa_config"] == {"threshold": 4}
    alone = show("trtllm", "qwen3-8b+ngram-suffix")
    assert alone.config["decoding_type"] == "SA"
    assert "sa_config" not in alone.config


# ---------------------------------------------------------------- nodes and values


def test_nodes(show):
    first, second = show("vllm", "hf:a/b", tp=16, nodes=2, head="10.0.0.1").commands
    assert first[-6:] == ("--nnodes", "2", "--node-rank", "0", "--master-addr", "10.0.0.1")
    assert second[-1] == "--headless"
    assert second[:-1] == tuple(
        "1" if at == len(first) - 3 else token for at, token in enumerate(first)
    )
    sglang = show("sglang", "hf:a/b", tp=16, nodes=2, head="10.0.0.1").commands
    assert [c[-3:] for c in sglang] == [
        (rank, "--dist-init-addr", "10.0.0.1:25000") for rank in ("0", "1")
    ]
    (slurm,) = show("trtllm", "hf:a/b", tp=16, nodes=2).commands
    assert shlex.join(slurm).startswith(
        "srun -N 2 --ntasks 16 --ntasks-per-node 8 --mpi=pmix trtllm-llmapi-launch trtllm-serve a/b"
    )


@pytest.mark.parametrize("k", range(1, 20))
def test_schedules_cover_every_batch_and_never_grow(k):
    """Ranges without a hole; TensorRT-LLM's first entry is max_draft_len, as its check asks."""
    from specctl.external import trtllm

    rows = vllm.schedule(k)
    assert rows[0][0] == 1
    assert all(after[0] == before[1] + 1 for before, after in itertools.pairwise(rows))
    assert [row[2] for row in rows] == sorted((row[2] for row in rows), reverse=True)
    assert rows[0][2] == k
    by_size = trtllm.schedule(k)
    assert by_size[min(by_size)] == by_size[1] == k
    assert list(by_size.values()) == sorted(by_size.values(), reverse=True)


def test_what_needs_weights_has_some_in_every_engine(show):
    """No method with a checkpoint becomes a command without one, but MTP inside the target."""
    for engine in ("vllm", "sglang", "trtllm"):
        for method in WITH_WEIGHTS - {"draft-mtp"}:
            if COUNTERPARTS[engine][method].value is None:
                continue
            launch = show(engine, "hf:a/b", spec_type=method, draft="hf:c/d")
            text = shlex.join(launch.commands[0]) + "".join(text for _, text in launch.files)
            assert "c/d" in text


def test_listening_wide_is_said(show):
    assert any("other machines" in note for note in show("vllm", "hf:a/b", host="0.0.0.0").notes)
    assert not any("other machines" in note for note in show("vllm", "hf:a/b").notes)
