"""The README's session, as a newcomer pastes it, against the built-in configuration."""

from __future__ import annotations

import re
from pathlib import Path

from harness import REPO, Daemon, binary, run


def session() -> str:
    """Return the commands that README.md shows for the second terminal."""
    text = (REPO / "README.md").read_text()
    block = text.split("In another:\n\n", 1)[1].split("\n\n", 1)[0]
    lines = [line[4:] for line in block.splitlines()]
    assert len(lines) > 5 and all(line.startswith("    ") for line in block.splitlines())
    return "\n".join(line for line in lines if not line.startswith("apt-get"))


def test_session(tmp_path: Path) -> None:
    with Daemon(name="readme") as d:
        script = session().replace("127.0.0.1:3260", d.portal().removeprefix("iscsi://"))
        script = script.replace("/tmp/disk.img", str(tmp_path / "disk.img"))
        script = script.replace("bin/arraysim", f"{binary()} --data {d.data}")
        out = run(["bash", "-euo", "pipefail", "-c", script], timeout=300).stdout
    assert "Images are identical." in out
    # Hosts wrote the image once; the clone cost as much again, below.
    assert re.search(r"^vol2 +silver .* 256 MiB ", out, re.MULTILINE), out
    assert re.search(r"^clone +silver +\S+ \S+ +\S+ \S+ +\S+ \S+ +256 MiB ", out, re.MULTILINE), out
