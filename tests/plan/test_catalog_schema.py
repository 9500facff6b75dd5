"""A wrong profile names file, line and key; a user's own profile comes on top."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specctl.errors import ProfileError
from specctl.plan.catalog import load
from specctl.plan.profile import read_profile
from specctl.plan.schema import find_line

GOOD = """\
family = "own"

[[model]]
id = "mine"
name = "Mine"
licence = "mit"
params = 7.0
params_active = 7.0
role = "target"
released = "2026-01"
quality = 3
quality_source = "my own taste"

[model.shape]
arch = "llama"
n_layer = 32
n_embd = 4096
n_head = 32
n_vocab = 128256
context_length = 8192
kv_width_k = 1024
kv_width_v = 1024
n_attention = 32
source = "its header"

[[model.files]]
repo = "me/mine-GGUF"
list = [
    { quant = "Q4_K_M", file = "mine-q4.gguf", bytes = 4000000000 },
    { quant = "Q8_0", file = "mine-q8.gguf", gib = 7.2 },
]

[[model.draft]]
method = "draft-simple"
repo = "me/small-GGUF"
file = "small.gguf"
gib = 0.4
k = 4
status = "measured"
source = "my notes"

[[model.evidence]]
method = "draft-simple"
hardware = "my desk"
device = "gpu"
engine = "llama.cpp"
acceptance = [0.4, 0.6]
speedup = 1.3
source = "my notes"
trust = "M"
"""


def write(folder: Path, text: str, name: str = "own.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def line_of(text: str, needle: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), 1) if needle in line)


def test_a_good_profile_is_read(tmp_path: Path) -> None:
    (model,) = read_profile(write(tmp_path, GOOD))
    assert [(file.size, file.exact) for file in model.files] == [
        (4000000000, True),
        (round(7.2 * 2**30), False),
    ]
    assert model.evidence[0].acceptance == (0.4, 0.6)
    assert model.evidence[0].speedup == (1.3, 1.3)
    assert model.drafts[0].file is not None
    assert model.drafts[0].k == 4


@pytest.mark.parametrize(
    ("old", "new", "where", "said"),
    [
        ('licence = "mit"', 'license = "mit"', "license", 'did you mean "licence"?'),
        ("n_layer = 32", "n_layers = 32", "n_layers", 'shape.n_layers is not a key here'),
        ("n_head = 32", 'n_head = "32"', "n_head", "must be a whole number, not '32'"),
        ("n_head = 32", "n_head = true", "n_head", "must be a whole number, not True"),
        ("params = 7.0", "params = -1", "params = -1", "must be a number of at least 0"),
        ("quality = 3", "quality = 9", "quality = 9", "must be 1 … 5, not 9"),
        ('role = "target"', 'role = "boss"', "role", "must be one of target, draft, both"),
        ("bytes = 4000000000", "byts = 4000000000", "mine-q4", "list[1].byts is not a key"),
        ("gib = 7.2", "gib = 7.2, bytes = 1", "mine-q8", "list[2].gib and `bytes`: give one"),
        ('repo = "me/mine-GGUF"', "", "[[model.files]]", "or `folder`: give exactly one"),
        ("acceptance = [0.4, 0.6]", "acceptance = [0.6, 0.4]", "acceptance", "[low, high]"),
        ("acceptance = [0.4, 0.6]", "acceptance = 40", "acceptance", "a rate of at most 1"),
        ('trust = "M"', 'trust = "sure"', "trust", "must be one of H, M, L"),
        ('device = "gpu"', 'device = "abacus"', "device", "must be one of gpu"),
        ('method = "draft-simple"\nrepo', 'method = "draft-magic"\nrepo', "magic", "one of none"),
        ('name = "Mine"', "", "[[model]]", "model[1].name is missing"),
        ('family = "own"', 'family = ""', "family", "family is empty"),
    ],
)  # fmt: skip
def test_a_mistake_names_file_line_and_key(
    tmp_path: Path, old: str, new: str, where: str, said: str
) -> None:
    assert old in GOOD
    text = GOOD.replace(old, new, 1)
    path = write(tmp_path, text)
    with pytest.raises(ProfileError) as caught:
        read_profile(path)
    assert said in caught.value.message
    assert f"{path}, line {line_of(text, where)}: " in caught.value.message


def test_the_second_model_of_a_file_is_found_by_line(tmp_path: Path) -> None:
    second = GOOD.split("\n", 2)[2].replace('"mine"', '"other"').replace("n_embd = 4096", "")
    text = GOOD + "\n" + second
    with pytest.raises(ProfileError, match=r"model\[2\]\.shape\.n_embd is missing") as caught:
        read_profile(write(tmp_path, text))
    number = int(re.search(r"line (\d+)", caught.value.message)[1])  # type: ignore[index]
    assert text.splitlines()[number - 1] == "[model.shape]"
    assert number > len(GOOD.splitlines())


def test_not_toml_and_not_readable(tmp_path: Path) -> None:
    with pytest.raises(ProfileError, match=r"own\.toml: not valid TOML: .*line 1"):
        read_profile(write(tmp_path, "= = ="))
    with pytest.raises(ProfileError, match="cannot be read"):
        read_profile(tmp_path / "absent.toml")
    (tmp_path / "bad.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProfileError, match="cannot be read"):
        read_profile(tmp_path / "bad.toml")
    with pytest.raises(ProfileError, match="at least one"):
        read_profile(write(tmp_path, 'family = "x"\n'))


def test_a_users_profile_adds_and_overrides(tmp_path: Path) -> None:
    before = load(tmp_path)
    write(tmp_path, GOOD)
    write(tmp_path, GOOD.replace('id = "mine"', 'id = "qwen3-8b"'), "z.toml")
    after = load(tmp_path)
    assert len(after.models) == len(before.models) + 1
    own = after.get("qwen3-8b")
    assert own is not None
    assert own.name == "Mine"


def test_the_users_folder_is_in_the_config(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SPECCTL_HOME", str(tmp_path))
    folder = tmp_path / "config" / "profiles"
    folder.mkdir(parents=True)
    write(folder, GOOD)
    assert load().get("mine") is not None


def test_a_draft_or_successor_that_nobody_has_is_an_error(tmp_path: Path) -> None:
    text = GOOD.replace('repo = "me/small-GGUF"\nfile = "small.gguf"\ngib = 0.4', 'model = "ghost"')
    write(tmp_path, text)
    with pytest.raises(ProfileError, match="drafts with 'ghost'"):
        load(tmp_path)
    write(tmp_path, GOOD.replace('licence = "mit"', 'licence = "mit"\nsuccessor = "ghost"'))
    with pytest.raises(ProfileError, match="successor 'ghost'"):
        load(tmp_path)


def test_a_local_pair_is_described_by_path(tmp_path: Path) -> None:
    (tmp_path / "target.gguf").write_bytes(b"x" * 1000)
    text = GOOD.replace('repo = "me/mine-GGUF"', 'folder = "."').replace(
        '{ quant = "Q4_K_M", file = "mine-q4.gguf", bytes = 4000000000 }',
        '{ quant = "Q4_K_M", file = "target.gguf" }',
    )
    write(tmp_path, text)
    model = load(tmp_path).get("mine")
    assert model is not None
    file = model.file("Q4_K_M")
    assert file is not None
    assert (file.folder, file.size, file.exact) == (tmp_path, 1000, True)


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(st.integers(0, len(GOOD) - 1), st.text(max_size=6), st.integers(0, 6))
def test_damaged_profiles_are_profile_errors_or_fine(
    tmp_path: Path, at: int, new: str, cut: int
) -> None:
    text = GOOD[:at] + new + GOOD[at + cut :]
    path = tmp_path / "own.toml"
    path.write_text(text, encoding="utf-8", newline="")
    with suppress(ProfileError):  # any other exception fails
        assert read_profile(path)


def test_find_line_falls_back_to_the_start() -> None:
    assert find_line("", ("model", 0, "id")) == 1
    assert find_line("a = 1\n", ("b",)) == 1
    assert find_line("a = 1\nb = 2\n", ("b",)) == 2
