"""The user's config.toml: command line before file before what is built in."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer

from specctl import paths
from specctl.cli import app
from specctl.cli.defaults import flags_of, read
from specctl.errors import UsageError

COMMANDS = ("chat", "bench", "bench compare")


def command(
    model: Annotated[str | None, typer.Option("--model", "-m")] = None,
    temperature: Annotated[float, typer.Option("--temperature", "--temp")] = 0.7,
    top_k: Annotated[int, typer.Option("--top-k")] = 40,
    spec_type: Annotated[list[str] | None, typer.Option("--spec-type", "-s")] = None,
    k: Annotated[list[int] | None, typer.Option("--k")] = None,
    quick: Annotated[bool, typer.Option("--quick")] = False,
    record: Annotated[Path | None, typer.Option("--record")] = None,
    name: Annotated[str, typer.Argument()] = "",
) -> None:
    """A command with a flag of every type."""


def write(text: str) -> Path:
    file = paths.config_file()
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return file


def test_flags_are_read_from_the_function() -> None:
    flags = flags_of(command)
    assert list(flags) == [
        *("model", "temperature", "temp", "top-k", "spec-type", "k", "quick", "record"),
    ]
    assert (flags["temp"].parameter, flags["temp"].kind) == ("temperature", float)
    assert (flags["k"].kind, flags["k"].repeatable) == (int, True)
    assert (flags["record"].kind, flags["record"].repeatable) == (Path, False)


def test_values_come_as_the_parser_wants_them() -> None:
    file = write(
        '[chat]\nmodel = "demo"\ntemp = 1\ntop-k = 0\nspec-type = "auto"\nk = [2, 4]\n'
        'quick = true\nrecord = "~/x.jsonl"\n[bench]\nno-such-flag-of-bench = 1\n'
    )
    found = read(file, "chat", command, COMMANDS)
    assert found.values == {
        "model": "demo",
        "temperature": 1,
        "top_k": 0,
        "spec_type": ["auto"],
        "k": [2, 4],
        "quick": True,
        "record": str(Path("~/x.jsonl").expanduser()),
    }
    assert found.flags[:2] == ("model", "temp")


def test_no_file_and_no_table_are_no_defaults(tmp_path: Path) -> None:
    assert read(tmp_path / "none.toml", "chat", command, COMMANDS).values == {}
    assert read(write("[bench]\nx = 1\n"), "chat", command, COMMANDS).values == {}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[chat]\ntemprature = 1", "[chat] has no 'temprature'; did you mean temperature?"),
        ("[chat]\nname = 'x'", "[chat] has no 'name'"),
        ("[chat]\nm = 'x'", "[chat] has no 'm'"),
        ("[chat]\nspec_type = 'x'", "[chat] has no 'spec_type'; did you mean spec-type?"),
        ("[chat]\ntemperature = 'hot'", '[chat] temperature = "hot": that is not a number'),
        ("[chat]\ntemperature = true", "temperature = True: that is not a number"),
        ("[chat]\ntop-k = 2.5", "top-k = 2.5: that is not a whole number"),
        ("[chat]\ntop-k = false", "top-k = False: that is not a whole number"),
        ("[chat]\nmodel = 3", "model = 3: that is not a text"),
        ("[chat]\nmodel = ['a']", "model = ['a']: that is not a text"),
        ("[chat]\nquick = 1", "quick = 1: that is not true or false"),
        ("[chat]\nk = [1, 'x']", '[chat] k = "x": that is not a whole number'),
        ("[chat]\nrecord = 1979-05-27", "that is not a text"),
        ("[chat]\ntemp = 1\ntemperature = 1", "the same flag stands there under another name"),
        ("[caht]\nmodel = 'x'", "'caht' is not a command; did you mean chat?"),
        ("model = 'x'", "'model' is not a command"),
        ("chat = 3", "'chat' is a value, not a table"),
        ("[chat\n", "is not TOML"),
        ("[chat]\nmodel = 'x'\nmodel = 'y'", "is not TOML"),
    ],
)
def test_wrong_files_are_told_by_file_and_key(text: str, said: str) -> None:
    file = write(text)
    with pytest.raises(UsageError) as told:
        read(file, "chat", command, COMMANDS)
    assert said in told.value.message
    assert str(file) in told.value.message


def test_files_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes(b"# caf\xe9\n")
    for file, said in ((tmp_path, "cannot read"), (latin, "is not UTF-8 text")):
        with pytest.raises(UsageError, match=said):
            read(file, "chat", command, COMMANDS)


@pytest.mark.parametrize("name", sorted(app.COMMANDS))
def test_every_flag_of_every_command_has_a_type_that_a_file_can_give(name: str) -> None:
    import importlib

    module, _, attribute = app.COMMANDS[name][0].partition(":")
    for flag in flags_of(getattr(importlib.import_module(module), attribute)).values():
        assert flag.kind in (str, int, float, bool, Path), flag


# ---------------------------------------------------------------- through the command line

Run = Callable[..., tuple[int, dict[str, Any], str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """`chat` and `bench` as they are parsed: what reaches the function."""
    import importlib

    got: dict[str, Any] = {}

    def caught(name: str) -> None:
        import functools

        module, _, attribute = app.COMMANDS[name][0].partition(":")
        function = getattr(importlib.import_module(module), attribute)

        @functools.wraps(function)
        def catch(**values: Any) -> None:
            got.update(values)
            if values.get("temperature") == -1:
                raise UsageError("temperature -1.0 is not in 0 … 100")

        monkeypatch.setattr(importlib.import_module(module), attribute, catch)

    caught("chat")
    caught("bench")

    def parsed(*argv: str) -> tuple[int, dict[str, Any], str]:
        got.clear()
        monkeypatch.setattr(sys, "argv", ["specctl", *argv])
        capfd.readouterr()
        with pytest.raises(SystemExit) as done:
            app.main()
        captured = capfd.readouterr()
        return int(done.value.code or 0), dict(got), captured.out + captured.err

    return parsed


def test_command_line_before_file_before_built_in(run: Run) -> None:
    _, before, _ = run("chat")
    write('[chat]\nmodel = "demo-f16"\ntemperature = 0.2\nstop = ["x", "y"]\nno-color = true\n')
    code, values, said = run("chat", "--temp", "0.9", "--top-k", "3")
    assert (code, said) == (0, "")
    assert values["model"] == "demo-f16"
    assert values["temperature"] == 0.9
    assert values["top_k"] == 3
    assert values["stop"] == ["x", "y"]
    assert values["no_color"] is True
    changed = {name for name in values if values[name] != before[name]}
    assert changed == {"model", "temperature", "top_k", "stop", "no_color"}
    assert run("chat", "--stop", "z")[1]["stop"] == ["z"]
    assert run("chat")[1]["temperature"] == 0.2
    assert run("bench")[1]["temperature"] == 0.0  # another command's table


def test_values_reach_the_function_with_their_types(run: Run) -> None:
    write(
        '[bench]\nspec-type = "auto"\nk = [2, 4]\nmax-tokens = 9\nhtml = "x.html"\nquick = true\n'
    )
    code, values, said = run("bench", "--workload", "chat")
    assert code == 0, said
    assert values["spec_type"] == ["auto"]
    assert values["k"] == [2, 4]
    assert values["max_tokens"] == 9
    assert values["html"] == Path("x.html")
    assert values["quick"] is True
    assert values["workload"] == ["chat"]


def test_a_wrong_file_exits_2_before_anything_runs(run: Run) -> None:
    file = write("[chat]\ntemprature = 0.2\n")
    code, values, said = run("chat")
    assert (code, values) == (2, {})
    assert f"{file}: [chat] has no 'temprature'; did you mean temperature?" in said
    assert run("bench")[0] == 0
    write("[chat\n")
    assert run("bench")[0] == 2
    code, _, said = run("chat", "--help")
    assert code == 0
    assert "table [chat] in" in " ".join(said.split())
    assert "config.toml" in said.replace("\n", "").replace(" ", "")
    assert run("--version")[0] == 0


def test_a_value_out_of_range_says_where_it_may_come_from(run: Run) -> None:
    file = write("[chat]\ntemperature = -1\n")
    code, _, said = run("chat")
    assert code == 2
    assert "temperature -1.0 is not in 0 … 100" in said
    assert f"defaults from {file}: temperature" in said


def test_another_file_by_the_environment(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("[chat]\ntop-k = 1\n")
    other = tmp_path / "other.toml"
    other.write_text("[chat]\ntop-k = 2\n")
    monkeypatch.setenv("SPECCTL_CONFIG", str(other))
    assert run("chat")[1]["top_k"] == 2


def test_the_real_command_obeys_the_file() -> None:
    write('[inspect]\njson = "yes"\n')
    done = subprocess.run(
        [sys.executable, "-m", "specctl", "inspect", "demo"],
        capture_output=True,
        encoding="utf-8",
        check=False,
    )
    assert done.returncode == 2
    assert '[inspect] json = "yes": that is not true or false' in done.stderr
    assert "Traceback" not in done.stderr
