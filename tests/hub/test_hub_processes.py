"""Whole processes through the command line: killed, cut short of disk, two at once, Ctrl-C, TLS."""

from __future__ import annotations

import itertools
import os
import random
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hubserver import TOKEN, File, HubServer

from specctl.hub import partial, store
from specctl.hub.errors import CertificateError
from specctl.hub.fetch import FetchPolicy
from specctl.hub.progress import Done
from specctl.hub.pull import pull
from specctl.hub.remote import Wanted, hub_from_environment

DATA = random.Random(2).randbytes(2_000_000)
REF = "hf:org/model-GGUF/model-Q4.gguf"
MAIN = "from specctl.cli.app import main; main()"
posix = pytest.mark.skipif(os.name != "posix", reason="POSIX signals and limits")


@pytest.fixture
def model(hub: HubServer) -> File:
    return hub.add("org/model-GGUF", {"model-Q4.gguf": DATA}).files["model-Q4.gguf"]


def start(*args: str, code: str = MAIN, **more: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), **more}
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = process.communicate(timeout=30)
    return process.returncode, out, err


def until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def final() -> Path:
    return store.target_path("org/model-GGUF", "model-Q4.gguf")


def part_size() -> int:
    part = partial.part_path(final())
    return part.stat().st_size if part.exists() else 0


@posix
@pytest.mark.parametrize("percent", [10, 50, 99])
def test_kill_9_loses_nothing(hub: HubServer, model: File, percent: int) -> None:
    here = len(DATA) * percent // 100
    hub.faults.stalls = [here]
    process = start("pull", REF)
    until(lambda: part_size() == here, process)
    process.send_signal(signal.SIGKILL)
    assert finish(process)[0] == -signal.SIGKILL
    assert not final().exists()
    hub.stop.set()
    assert model.sent == here
    code, out, err = finish(start("pull", REF))
    assert code == 0, err
    assert final().read_bytes() == DATA
    assert model.sent == len(DATA)  # only the missing bytes came
    assert out.strip() == str(final())
    assert f"taking over the lock of pid {process.pid}" in err
    assert part_size() == 0


@posix
def test_ctrl_c_keeps_the_part_and_says_how_to_go_on(hub: HubServer, model: File) -> None:
    hub.faults.stalls = [1_000_000]
    process = start("pull", REF)
    until(lambda: part_size() == 1_000_000, process)
    process.send_signal(signal.SIGINT)
    code, _, err = finish(process)
    assert code == 130
    assert "the same command resumes it" in err
    assert part_size() == 1_000_000


@posix
def test_disk_full_midway_keeps_the_part(hub: HubServer, model: File) -> None:
    limited = "import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)); "
    code, _, err = finish(start("pull", REF, code=limited + MAIN))
    assert code == 1
    assert "no room for the rest of model-Q4.gguf: File too large" in err
    assert "the first 976.6 KiB are kept" in err
    assert "Traceback" not in err
    assert part_size() == 1_000_000
    assert not final().exists()
    sent, model.sent = model.sent, 0
    assert sent >= 1_000_000
    assert finish(start("pull", REF))[0] == 0
    assert final().read_bytes() == DATA
    assert model.sent == len(DATA) - 1_000_000


def test_second_pull_waits_for_the_first(hub: HubServer, model: File) -> None:
    hub.faults.stalls = [1_000_000]
    first = start("pull", REF)
    until(lambda: part_size() == 1_000_000, first)
    second = start("pull", REF)
    assert second.stderr is not None
    told = second.stderr.readline()
    assert f"is being pulled by pid {first.pid} on" in told
    assert "(976.6 KiB of 1.9 MiB); waiting" in told
    hub.stop.set()
    assert finish(first)[0] == 0
    code, out, err = finish(second)
    assert code == 0, err
    assert "already here (specctl)" in err
    assert out.strip() == str(final())
    assert model.sent == len(DATA)


def test_token_is_never_printed(hub: HubServer, model: File) -> None:
    hub.repos["org/model-GGUF"].gated = True
    for token in (TOKEN, "hf_nolicence", "hf_wrongwrongwrong"):
        _, out, err = finish(start("pull", REF, "--debug", HF_TOKEN=token, HF_DEBUG="1"))
        assert token not in out + err
    assert final().read_bytes() == DATA


def test_redirected_output_is_plain_lines(hub: HubServer, model: File) -> None:
    hub.faults.pause = 0.02
    code, out, err = finish(start("pull", REF))
    assert code == 0
    assert out == f"{final()}\n"
    assert "\x1b" not in err
    assert "\r" not in err
    assert "model-Q4.gguf: 1.9 MiB, fetched, sha256 ok" in err


@posix
def test_bar_on_a_terminal(hub: HubServer, model: File) -> None:
    import pty

    hub.faults.pause = 0.03
    master, slave = pty.openpty()
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TERM": "xterm"}
    environment["COLUMNS"] = "80"
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, "pull", REF],
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=slave,
    )
    os.close(slave)
    shown = b""
    while True:
        try:
            chunk = os.read(master, 4096)
        except OSError:  # Linux: the other end is closed
            break
        if not chunk:
            break
        shown += chunk
    os.close(master)
    out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert out.decode().strip() == str(final())
    text = shown.decode()
    assert "━" in text
    assert "of 1.9 MiB" in text
    assert "MiB/s" in text
    assert "sha256 ok" in text


# ---------------------------------------------------------------- TLS


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A certificate that signs itself, for 127.0.0.1 and localhost: a company's own CA."""
    folder = tmp_path_factory.mktemp("ca")
    pem = folder / "own-ca.pem"
    try:
        subprocess.run(
            [
                *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt"),
                *("ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj", "/CN=own CA"),
                *("-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"),
                *("-keyout", str(folder / "key.pem"), "-out", str(pem)),
            ],
            check=True,
            capture_output=True,
        )
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("no openssl to make a certificate with")
    return pem


def test_own_ca_fails_with_a_hint_and_passes_with_the_variable(
    hub: HubServer,
    certificate: Path,
    fast: FetchPolicy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    want = Wanted("org/model-GGUF", "model-Q4.gguf")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, certificate.with_name("key.pem"))
    number = itertools.count()

    def get(variable: str | None = None, value: object = None) -> bytes:
        monkeypatch.setenv("SPECCTL_MODELS", str(tmp_path / f"models-{next(number)}"))
        with monkeypatch.context() as patch:
            if variable:
                patch.setenv(variable, str(value))
            *_, done = pull((want,), hub_from_environment(), fast)
        assert isinstance(done, Done)
        return done.paths[0].read_bytes()

    with HubServer(context) as server:
        server.add(want.repo, {want.file: DATA})
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        with pytest.raises(CertificateError, match=r"certificate of 127\.0\.0\.1") as caught:
            get()
        assert "SSL_CERT_FILE" in str(caught.value.hint)
        assert get("SSL_CERT_FILE", certificate) == DATA
        assert get("REQUESTS_CA_BUNDLE", certificate) == DATA
        with pytest.raises(CertificateError, match="not there") as caught:
            get("SSL_CERT_FILE", "/nowhere/ca.pem")
        assert "SSL_CERT_FILE=/nowhere/ca.pem" in str(caught.value.hint)
        garbage = tmp_path / "garbage.pem"
        garbage.write_text("not a certificate")
        with pytest.raises(CertificateError):
            get("REQUESTS_CA_BUNDLE", garbage)
