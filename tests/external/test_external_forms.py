"""Shell, docker, YAML and JSON forms: what is printed means what was built."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from specctl.errors import UsageError
from specctl.external.launch import Launch, docker, folded, shell
from specctl.external.yaml import emit

WORD = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=12)
STUB = """#!{python}
import json, pathlib, sys
pathlib.Path("argv.json").write_text(json.dumps(sys.argv[1:]))
"""


@given(st.lists(WORD, min_size=1, max_size=12))
def test_shell_round_trip(words):
    launch = Launch("vllm", (tuple(words),), ("none",), "none", "127.0.0.1", 8000)
    assert shlex.split(shell(launch)) == words
    assert shlex.split(folded(tuple(words)).replace(" \\\n  ", " ")) == words


@pytest.mark.skipif(shutil.which("sh") is None, reason="no POSIX shell")
@pytest.mark.parametrize(
    ("engine", "name", "program"),
    [
        ("trtllm", "qwen3-8b+ngram-suffix,draft-eagle3", "trtllm-serve"),
        ("vllm", "qwen3-8b+draft-simple", "vllm"),
    ],
)
def test_a_shell_runs_it(show, tmp_path: Path, engine, name, program):
    """The printed text, in a real shell, calls the program with these arguments and files."""
    stub = tmp_path / "bin" / program
    stub.parent.mkdir()
    stub.write_text(STUB.format(python=sys.executable))
    stub.chmod(0o755)
    launch = show(engine, name)
    path = f"{stub.parent}:{os.environ['PATH']}"
    for text in (shell(launch), folded(launch.commands[0])):
        subprocess.run(
            ["sh", "-e"], input=text, text=True, cwd=tmp_path, env={"PATH": path}, check=True
        )
        argv = json.loads((tmp_path / "argv.json").read_text())
        assert (program, *argv) == launch.commands[0]
    for file, text in launch.files:
        assert (tmp_path / file).read_text() == text


def test_vllm_json_parses_back(show):
    command = show("vllm", "qwen3-8b+draft-eagle3").commands[0]
    text = command[command.index("--speculative-config") + 1]
    assert json.loads(text) == {
        "method": "eagle3",
        "model": "Tengyunw/qwen3_8b_eagle3",
        "num_speculative_tokens": 3,
    }


SCALARS = (
    st.sampled_from(["true", "No", "null", "on", "~", "1e5", "12"])
    | st.booleans()
    | st.integers()
    | st.text(st.characters(exclude_categories=("Cs", "Cc")))
)
KEYS = st.text("abcxyz_", min_size=1) | st.integers(0, 99)


@given(st.recursive(SCALARS, lambda inner: st.dictionaries(KEYS, inner, max_size=4)))
def test_yaml_parses_back(value):
    tree = {"key": value}
    assert yaml.safe_load(emit(tree)) == tree


def test_trtllm_yaml_is_what_was_built(show):
    launch = show("trtllm", "qwen3-8b:Q4_K_M+ngram-simple", k=5, ctx=4096, adaptive=True)
    ((name, text),) = launch.files
    assert name in launch.commands[0]
    assert yaml.safe_load(text) == {
        "enable_iter_perf_stats": True,
        "return_perf_metrics": True,
        "max_seq_len": 4096,
        "speculative_config": {
            "decoding_type": "NGram",
            "max_draft_len": 5,
            "max_matching_ngram_size": 3,
            "is_use_oldest": False,
            "draft_len_schedule": {1: 5, 4: 5, 8: 2, 32: 1},
        },
    }
    assert any("Q4_K_M is a GGUF quant" in note and "≈ 16.4 GB" in note for note in launch.notes)


# ---------------------------------------------------------------- docker


def test_docker_of_vllm(show):
    launch = docker(show("vllm", "hf:a/b", port=9000))
    assert shlex.join(launch.commands[0]) == (
        "docker run --rm --gpus all --ipc=host -p 127.0.0.1:9000:9000 "
        "-v specctl-models:/root/.cache vllm/vllm-openai:v0.33.0 a/b --host 0.0.0.0 --port 9000"
    )
    assert launch.unverified == ()
    assert launch.metrics_url == "http://127.0.0.1:9000/metrics"


def test_docker_mounts_what_lies_here(show, tmp_path: Path):
    target, link = tmp_path / "t.gguf", tmp_path / "d.gguf"
    target.write_bytes(b"GGUF")
    (tmp_path / "blob").write_bytes(b"GGUF")
    link.symlink_to("blob")  # as in a hub cache: the name is a link
    launch = show("llama-server", str(target), spec_type="draft-simple", draft=str(link))
    line = shlex.join(docker(launch).commands[0])
    assert f"-v {target}:/models0/t.gguf:ro" in line
    assert "-m /models0/t.gguf" in line
    assert "-md /models1/d.gguf" in line
    assert f"-v {tmp_path / 'blob'}:/models1/d.gguf:ro" in line


def test_docker_mounts_the_folder_of_a_split_model(show, tmp_path: Path):
    first = tmp_path / "t-00001-of-00002.gguf"
    first.write_bytes(b"GGUF")
    line = shlex.join(docker(show("llama-server", str(first))).commands[0])
    assert f"-v {tmp_path}:/models0:ro" in line
    assert f"-m /models0/{first.name}" in line


def test_docker_moves_paths_inside_json_and_yaml(show, tmp_path: Path):
    draft = tmp_path / "brouillon é"
    draft.mkdir()
    options = {"spec_type": "draft-eagle3", "draft": str(draft)}
    command = docker(show("vllm", "hf:a/b", **options)).commands[0]
    config = json.loads(command[command.index("--speculative-config") + 1])
    assert config["model"] == f"/models0/{draft.name}"
    assert f"{draft}:/models0/{draft.name}:ro" in command
    ((_, text),) = docker(show("trtllm", "hf:a/b", **options)).files
    assert yaml.safe_load(text)["speculative_config"]["speculative_model"] == (
        f"/models0/{draft.name}"
    )


@pytest.mark.parametrize(
    ("host", "url", "published"),
    [
        ("::1", "http://[::1]:8000", "[::1]:8000:8000"),
        ("0.0.0.0", "http://127.0.0.1:8000", "0.0.0.0:8000:8000"),
        ("10.0.0.9", "http://10.0.0.9:8000", "10.0.0.9:8000:8000"),
    ],
)
def test_addresses(show, host, url, published):
    launch = show("vllm", "hf:a/b", host=host)
    assert launch.url == url
    assert launch.metrics_url == f"{url}/metrics"
    assert published in docker(launch).commands[0]


def test_docker_of_trtllm_mounts_its_file(show):
    command = docker(show("trtllm", "hf:a/b")).commands[0]
    assert "./specctl-trtllm.yaml:/specctl/specctl-trtllm.yaml:ro" in command
    assert command[command.index("--config") + 1] == "/specctl/specctl-trtllm.yaml"
    with pytest.raises(UsageError, match="Slurm"):
        docker(show("trtllm", "hf:a/b", tp=2, nodes=2))


def test_docker_of_a_node_uses_the_hosts_network(show):
    launch = show("sglang", "hf:a/b", tp=2, nodes=2, head="10.0.0.1")
    command = docker(launch, 1).commands[0]
    assert command[command.index("--network") + 1] == "host"
    assert command[command.index("--node-rank") + 1] == "1"
    with pytest.raises(UsageError, match="no node 2"):
        docker(launch, 2)
