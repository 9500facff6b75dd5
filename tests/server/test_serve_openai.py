"""The official client against a server over loopback."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from kit import wait_for

openai = pytest.importorskip("openai")
pytest.importorskip("uvicorn")

pytestmark = [pytest.mark.native, pytest.mark.skipif(sys.platform == "win32", reason="signals")]

SAY = [{"role": "user", "content": "amber"}]
LONG = 3000  # tokens: seconds of answering on the slow model


@pytest.fixture(scope="module")
def client(server: Any) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="x", max_retries=0) as opened:
        yield opened


def ask(client: Any, **fields: Any) -> Any:
    fields = {"model": "m", "messages": SAY, "max_tokens": 24, **fields}
    return client.chat.completions.create(**fields)


def text_of(stream: Any) -> str:
    return "".join(c.choices[0].delta.content or "" for c in stream if c.choices)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.read().decode()


def series(url: str) -> dict[str, float]:
    lines = [line for line in get(f"{url}/metrics").splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def test_streaming_whole_and_chat_say_the_same(
    client: Any, tiny_models: Mapping[str, Path]
) -> None:
    whole = ask(client)
    assert whole.choices[0].finish_reason == "length"
    stream = ask(client, stream=True, stream_options={"include_usage": True})
    chunks = list(stream)
    assert text_of(chunks) == whole.choices[0].message.content
    assert chunks[-1].usage.completion_tokens == 24
    assert chunks[-2].choices[0].finish_reason == "length"
    done = subprocess.run(
        [sys.executable, "-m", "specctl", "chat", "-m", str(tiny_models["clock"]), "--json",
         "-n", "24", "--temperature", "0", "-t", "1"],
        input="amber", capture_output=True, text=True, timeout=60, check=True, env=os.environ,
    )  # fmt: skip
    records = [json.loads(line) for line in done.stdout.splitlines()]
    assert "".join(r.get("text", "") for r in records) == whole.choices[0].message.content


def test_usage_counts_what_was_drafted(client: Any) -> None:
    used = ask(client).usage
    details = used.completion_tokens_details
    sums = used.specctl
    assert used.completion_tokens == 24
    assert used.total_tokens == used.prompt_tokens + 24
    assert details.accepted_prediction_tokens == sums["accepted"] > 0
    assert details.rejected_prediction_tokens == sums["drafted"] - sums["accepted"] > 0
    assert sums["cycles"] < 24
    again = ask(client).usage
    assert again.prompt_tokens_details.cached_tokens == used.prompt_tokens - 1


def test_seed_and_temperature_draw_the_same_text_again(client: Any) -> None:
    texts = [
        ask(client, temperature=1.0, seed=seed).choices[0].message.content for seed in (5, 5, 6)
    ]
    assert texts[0] == texts[1] != texts[2]


def test_completions_stop_and_models(client: Any) -> None:
    free = client.completions.create(model="m", prompt="amber", max_tokens=8)
    word = free.choices[0].text.split()[3]
    cut = client.completions.create(model="m", prompt="amber", max_tokens=8, stop=[word])
    assert cut.choices[0].finish_reason == "stop"
    assert free.choices[0].text.startswith(cut.choices[0].text)
    assert word not in cut.choices[0].text
    stream = client.completions.create(model="m", prompt="amber", max_tokens=8, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == free.choices[0].text
    only = client.models.list().data
    assert [(one.id, one.owned_by) for one in only] == [("clock.gguf", "specctl")]


def test_a_schema_binds_the_answer(client: Any) -> None:
    schema = {"type": "object", "properties": {"k": {"enum": ["a", "b"]}}, "required": ["k"]}
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}
    for stream in (False, True):
        answer = ask(client, response_format=form, stream=stream)
        text = text_of(answer) if stream else answer.choices[0].message.content
        assert json.loads(text)["k"] in ("a", "b")
    any_object = ask(client, response_format={"type": "json_object"}, max_tokens=5)
    assert any_object.choices[0].message.content.startswith("{")
    with pytest.raises(openai.BadRequestError, match=r"at #/type: .*nonsense.* is no type"):
        ask(client, response_format={"type": "json_object", "schema": {"type": "nonsense"}})
    with pytest.raises(openai.BadRequestError, match="left recursion"):
        ask(client, extra_body={"grammar": "root ::= root"})
    assert ask(client).choices[0].message.content


NO_CHARACTER = "[^\\U00000001-\\U0010FFFF]"


@pytest.mark.parametrize("stream", [False, True])
def test_what_no_answer_can_match_is_a_400_before_anything_is_streamed(
    client: Any, stream: bool
) -> None:
    with pytest.raises(openai.BadRequestError, match="no token of this model as the first") as said:
        ask(client, stream=stream, extra_body={"grammar": f"root ::= {NO_CHARACTER}"})
    assert (said.value.param, said.value.code) == ("grammar", "unsatisfiable_grammar")
    form = {"type": "json_object", "schema": {"enum": []}}
    with pytest.raises(openai.BadRequestError, match="nothing matches") as said:
        ask(client, stream=stream, response_format=form)
    assert (said.value.param, said.value.code) == ("response_format", "invalid_grammar")
    with pytest.raises(openai.BadRequestError, match="names a token that is none"):
        ask(client, stream=stream, extra_body={"grammar": "root ::= <no such token>"})


def test_a_dead_end_in_the_middle_is_said(client: Any) -> None:
    free = ask(client).choices[0].message.content
    grammar = {"grammar": f'root ::= " amber birch" {NO_CHARACTER}'}
    with pytest.raises(openai.BadRequestError, match=r"after \d+ tokens") as said:
        ask(client, extra_body=grammar)
    assert said.value.code == "unsatisfiable_grammar"
    stream = ask(client, stream=True, extra_body=grammar)
    seen: list[Any] = []
    with pytest.raises(openai.APIError, match=r"after \d+ tokens"):
        seen.extend(stream)
    assert text_of(seen) == " amber birch"
    assert ask(client).choices[0].message.content == free


def test_many_alternatives_are_refused_or_said_to_be_slow(client: Any) -> None:
    def choice(count: int) -> Any:
        form = {"type": "json_object", "schema": {"enum": [f"w{i}" for i in range(count)]}}
        return ask(client, response_format=form, max_tokens=2)

    with pytest.raises(openai.BadRequestError, match="59999 alternatives, more than 20000"):
        choice(60_000)
    assert "has 1999 alternatives" in choice(2000).specctl_notes[0]


def test_two_clients_at_once_get_what_one_alone_gets(client: Any) -> None:
    words = ["amber", "birch", "cedar", "delta", "eagle", "falcon"]

    def answer(word: str) -> str:
        text = text_of(ask(client, messages=[{"role": "user", "content": word}], stream=True))
        assert text
        return text

    alone = [answer(word) for word in words]
    with ThreadPoolExecutor(6) as pool:
        assert list(pool.map(answer, words)) == alone


def test_a_prompt_beyond_the_context_is_a_400_with_its_code(client: Any) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, messages=[{"role": "user", "content": "amber " * 170_000}])  # 1 MB
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as caught:
        ask(client, messages=[{"role": "user", "content": "amber " * 9000}], stream=True)
    assert caught.value.code == "context_length_exceeded"
    assert ask(client).choices[0].message.content


def post(url: str, body: bytes, **headers: str) -> tuple[int, dict[str, Any]]:
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", body, {"content-type": "application/json", **headers}
    )
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.loads(error.read())


@pytest.mark.parametrize(
    ("body", "headers", "status"),
    [
        (b"{", {}, 400),
        (b"\xff\xfe", {}, 400),
        (b"[]", {}, 400),
        (b"{}", {}, 400),
        (b"[" * 100_000, {}, 400),
        (b'{"messages": [{"role": "user", "content": "a"}], "n": 2}', {}, 400),
        (b'{"messages": [{"role": "user", "content": "\\ud800"}], "max_tokens": 1}', {}, 200),
        (b"{}", {"content-type": "text/plain"}, 415),
        (b"{}", {"host": "evil.example"}, 403),
        (b"{}", {"host": "127.0.0.1.evil.example:8080"}, 403),
        (b"{}", {"host": "10.0.0.1"}, 403),
        (b"{}", {"host": ""}, 403),
        (b"{}", {"host": "[::1"}, 403),
        (b"{}", {"host": "127.0.0.2:8080"}, 400),
        (b"{}", {"host": "LOCALHOST.:8080"}, 400),
        (b"{}", {"host": "[::1]"}, 400),
        (b"{}", {"host": "[::1]:8080"}, 400),
        (b" " * (5 << 20), {}, 413),
    ],
)
def test_bad_requests_are_told_what_is_wrong(
    server: Any, body: bytes, headers: dict[str, str], status: int
) -> None:
    got, answer = post(server.url, body, **headers)
    assert got == status
    if status != 200:
        assert set(answer["error"]) == {"message", "type", "param", "code"}
        assert answer["error"]["message"]


def test_unknown_paths_are_errors_in_the_same_shape(server: Any) -> None:
    with pytest.raises(urllib.error.HTTPError) as caught:
        get(f"{server.url}/v1/nothing")
    with caught.value as error:
        assert error.code == 404
        assert json.loads(error.read())["error"]["message"] == "Not Found"


def test_metrics_and_cycles_tell_what_happened(server: Any, client: Any) -> None:
    before = series(server.url)
    records: list[dict[str, Any]] = []

    def listen() -> None:
        with urllib.request.urlopen(f"{server.url}/cycles", timeout=20) as stream:
            for line in stream:
                if line.startswith(b"data: "):
                    records.append(json.loads(line[6:]))
                    if records[-1]["type"] == "finished":
                        return

    listener = threading.Thread(target=listen)
    listener.start()
    time.sleep(0.3)
    used = ask(client).usage
    listener.join(20)
    cycles = [record for record in records if record["type"] == "cycle"]
    assert [records[0]["type"], records[1]["type"]] == ["started", "prompt"]
    assert len(cycles) == used.specctl["cycles"]
    after = series(server.url)
    moved = {name: after[name] - before.get(name, 0.0) for name in after}
    spec = "specctl:spec_decode_num_"
    assert moved[f"{spec}draft_tokens_total"] == sum(len(c["drafted"]) for c in cycles)
    assert moved[f"{spec}accepted_tokens_total"] == sum(c["accepted"] for c in cycles)
    assert moved[f"{spec}drafts_total"] == sum(bool(c["drafted"]) for c in cycles)
    position = f'{spec}accepted_tokens_per_pos_total{{position="1"}}'
    assert moved[position] == sum(c["accepted"] > 1 for c in cycles)
    assert moved["specctl:generation_tokens_total"] == 24
    assert after["specctl:num_requests_running"] == 0
    assert json.loads(get(f"{server.url}/health"))["status"] == "ok"


def test_watch_says_by_what_it_speculates(server: Any, specctl: Callable[..., Any]) -> None:
    code, out, err = specctl("watch", server.url, "--once", "--json")
    said = json.loads(out)
    assert code == 0, err
    assert (said["engine"], said["speculates"], said["method"]) == ("specctl", True, "draft-simple")
    assert not any("speculation" in note for note in said["notes"])
    assert "speculation on, draft-simple; sums since" in specctl("watch", server.url, "--once")[1]


# ---------------------------------------------------------------- slow answers


@pytest.fixture(scope="module")
def slow(serve: Callable[..., Any], tiny_models: Mapping[str, Path]) -> Any:
    """12 layers: some milliseconds a token."""
    model = str(tiny_models["slow"])
    started = serve(
        "-m", model, "-s", "none", "--temperature", "0", "--max-waiting", "1", "--ctx", "4096"
    )
    assert started.url, started.lines
    return started


@pytest.fixture(scope="module")
def patient(slow: Any) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{slow.url}/v1", api_key="x", max_retries=0) as opened:
        yield opened


def test_watch_says_where_it_does_not_speculate(slow: Any, specctl: Callable[..., Any]) -> None:
    said = json.loads(specctl("watch", slow.url, "--once", "--json")[1])
    assert said["speculates"] is False
    assert said["notes"] == ["specctl runs without speculation"]


def is_running(url: str) -> bool:
    return series(url)["specctl:num_requests_running"] == 1


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_goes_stops_the_engine(slow: Any, patient: Any, stream: bool) -> None:
    if stream:
        answer = ask(patient, stream=True, max_tokens=LONG)
        next(iter(answer))
        wait_for(lambda: is_running(slow.url))
        answer.close()
    else:
        with pytest.raises(openai.APITimeoutError):
            ask(patient.with_options(timeout=0.5), max_tokens=LONG)
    gone = time.monotonic()
    wait_for(lambda: not is_running(slow.url), 3)
    assert time.monotonic() - gone < 2
    assert series(slow.url)['specctl:request_finished_total{reason="cancelled"}'] >= 1
    assert ask(patient, max_tokens=3).usage.completion_tokens == 3


def test_a_full_queue_is_a_429_and_metrics_move_while_it_answers(slow: Any, patient: Any) -> None:
    first = ask(patient, stream=True, max_tokens=LONG)
    wait_for(lambda: is_running(slow.url))
    with ThreadPoolExecutor(1) as pool:
        second = pool.submit(ask, patient, max_tokens=2)
        wait_for(lambda: series(slow.url)["specctl:num_requests_waiting"] == 1)
        with pytest.raises(openai.RateLimitError, match="too many"):
            ask(patient)
        assert json.loads(get(f"{slow.url}/health")) == {"status": "busy", "waiting": 1}
        tokens = series(slow.url)["specctl:generation_tokens_total"]
        wait_for(lambda: series(slow.url)["specctl:generation_tokens_total"] > tokens)
        first.close()
        assert second.result(20).usage.completion_tokens == 2


def test_a_reader_that_does_not_read_holds_nobody_up(slow: Any, patient: Any) -> None:
    host, port = slow.url.removeprefix("http://").split(":")
    body = json.dumps({"messages": SAY, "max_tokens": 100, "stream": True}).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: {len(body)}\r\n"
        "content-type: application/json\r\n\r\n"
    )
    with socket.socket() as stuck:
        stuck.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        stuck.connect((host, int(port)))
        stuck.sendall(head.encode() + body)
        wait_for(lambda: is_running(slow.url))
        assert ask(patient, max_tokens=3).usage.completion_tokens == 3


# ---------------------------------------------------------------- start and end


def test_ctrl_c_ends_an_answer_as_cancelled_and_the_port_is_free_again(
    serve: Callable[..., Any], tiny_models: Mapping[str, Path]
) -> None:
    model = str(tiny_models["slow"])
    started = serve("-m", model, "-s", "none", "--temperature", "0")
    with openai.OpenAI(base_url=f"{started.url}/v1", api_key="x", max_retries=0) as client:
        stream = ask(client, stream=True, max_tokens=LONG)
        next(iter(stream))
        started.process.send_signal(signal.SIGINT)
        assert list(stream)[-1].choices[0].finish_reason == "cancelled"
    assert started.stop(0) == 0
    assert started.lines[-1] == "stopped\n"
    port = started.url.rpartition(":")[2]
    again = serve("-m", str(tiny_models["clock"]), "--port", port)
    assert again.url == started.url
    assert json.loads(get(f"{again.url}/health"))["status"] == "ok"
    again.process.kill()
    again.process.wait(10)
    third = serve("-m", str(tiny_models["clock"]), "--port", port)
    assert json.loads(get(f"{third.url}/health"))["status"] == "ok"
    assert third.stop(signal.SIGTERM) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="one loopback address")
def test_another_loopback_address_answers(
    serve: Callable[..., Any], tiny_models: Mapping[str, Path]
) -> None:
    started = serve("-m", str(tiny_models["clock"]), "--host", "127.0.0.2")
    assert started.url.startswith("http://127.0.0.2:")
    assert json.loads(get(f"{started.url}/v1/models"))["data"]


def test_with_a_key_everything_but_health_asks_for_it(
    serve: Callable[..., Any], tiny_models: Mapping[str, Path]
) -> None:
    started = serve("-m", str(tiny_models["clock"]), environ={"SPECCTL_API_KEY": "secret"})
    with openai.OpenAI(base_url=f"{started.url}/v1", api_key="wrong", max_retries=0) as client:
        with pytest.raises(openai.AuthenticationError):
            ask(client)
        assert ask(client.with_options(api_key="secret"), max_tokens=2).choices
    for path in ("metrics", "cycles", "v1/models"):
        with pytest.raises(urllib.error.HTTPError) as caught:
            get(f"{started.url}/{path}")
        with caught.value as error:
            assert error.code == 401
    assert json.loads(get(f"{started.url}/health"))["status"] == "ok"
    assert not any("secret" in line for line in started.lines)
    assert started.stop(signal.SIGHUP) == 0
    assert started.lines[-1] == "stopped\n"


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--host", "0.0.0.0"), 2, "--allow-anyone"),
        (("--host", "no such host"), 2, "is no address"),
        (("--port", "70000"), 2, "not in 0 … 65535"),
        (("--max-body", "0"), 2, "--max-body 0"),
        (("-s", "nonsense"), 2, "nonsense"),
        (("-m", "/nonexistent.gguf"), 1, "nonexistent"),
    ],
)
def test_what_cannot_be_served_is_said_at_once(
    tiny_models: Mapping[str, Path], arguments: tuple[str, ...], code: int, said: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "specctl", "serve", "-m", str(tiny_models["clock"]), "--port", "0",
         *arguments],
        capture_output=True, text=True, timeout=60, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    assert said in done.stderr


def test_a_model_that_does_not_load_ends_the_server_with_the_reason(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + b"\0" * 100)
    done = subprocess.run(
        [sys.executable, "-m", "specctl", "serve", "-m", str(broken), "--port", "0"],
        capture_output=True, text=True, timeout=60, check=False, env=os.environ,
    )  # fmt: skip
    assert done.returncode == 1
    assert "error: " in done.stderr
    assert "Traceback" not in done.stderr


def test_without_the_extra_it_says_what_to_install() -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv = ['specctl', 'serve'];"
        "from specctl.cli.app import main; main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 1
    assert 'pip install -e ".[engine,serve]" in a clone' in done.stderr
