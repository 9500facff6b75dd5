"""Compare a built wheel with what git tracks: nothing forgotten, nothing stale.

usage: check_wheel.py WHEEL
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

MOUNTED = {"profiles/": "specctl/profiles/", "tui/": "specctl/tui/"}


def tracked() -> set[str]:
    """The names that the wheel should hold, from git."""
    root = Path(__file__).parent.parent
    out = subprocess.run(
        ["git", "ls-files", "specctl", *MOUNTED],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    names = set()
    for line in out.stdout.splitlines():
        if (root / line).is_symlink():
            continue
        prefix = next((p for p in MOUNTED if line.startswith(p)), None)
        names.add(line.replace(prefix, MOUNTED[prefix], 1) if prefix else line)
    return names


def main() -> None:
    wheel = zipfile.ZipFile(sys.argv[1])
    shipped = {name for name in wheel.namelist() if ".dist-info/" not in name}
    missing, extra = sorted(tracked() - shipped), sorted(shipped - tracked())
    for name in missing:
        print(f"missing from the wheel: {name}")
    for name in extra:
        print(f"in the wheel but not tracked: {name}")
    print(f"wheel: {len(shipped)} files")
    sys.exit(bool(missing or extra))


if __name__ == "__main__":
    main()
