"""examples/scripts: each script runs and shows what its head says; the workflow runs the script that it names."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from harness import REPO, binary, run

SCRIPTS = REPO / "examples" / "scripts"

#: What the heads of the scripts promise, in this order.
SHOWS = {
    "failing-lun.sh": [
        "succeeds while the disk works",
        r"error while reading",
        "fails while the disk is offline",
        "succeeds while the disk is slow",
        "succeeds while the disk works again",
    ],
    "thin-exhaustion.sh": ["write 50M 10M", "0x3807", "write 60M 10M", "0x2707", "No space left", "discard", "wrote"],
    "undercover-clone.sh": [
        r"unbounded: hosts wrote 0 bytes to the clone, the array [1-9]\d{7,};",
        r"bounded: hosts wrote 0 bytes to the clone, the array [1-9]\d{7,};",
        "UNDERCOVER",
    ],
}


#: What scripts source, and nobody runs.
SOURCED = ["array.sh", "paths.sh"]


def example(name: str, tmp_path: Path, *args: object, expect: int = 0) -> str:
    """Run a script with a folder for temporary files of its own, in which it leaves nothing; return its output."""
    (tmp_path / "tmp").mkdir(exist_ok=True)
    env = os.environ | {"ARRAYSIM": str(binary()), "TMPDIR": str(tmp_path / "tmp")}
    command = [str(a) for a in (SCRIPTS / name, *args)]
    p = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=300, env=env, cwd=tmp_path
    )
    assert p.returncode == expect, p.stdout
    assert list((tmp_path / "tmp").iterdir()) == []
    return p.stdout


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow) if n == "undercover-clone.sh" else n for n in SHOWS]
)
def test_script(name: str, tmp_path: Path) -> None:
    text = example(name, tmp_path)
    at = 0
    for want in SHOWS[name]:
        m = re.compile(want).search(text, at)
        assert m, f"{want} is not shown, or not there:\n{text}"
        at = m.end()


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("false", "fails while the disk works"),  # an application that does not work at all
        ("true", "succeeds while the disk is offline"),  # and one that hides the error
    ],
)
def test_failing_lun_fails_with_the_application(tmp_path: Path, command: str, complaint: str) -> None:
    assert complaint in example("failing-lun.sh", tmp_path, command, expect=1)


def test_each_script_is_described_and_short() -> None:
    readme = (SCRIPTS / "README.md").read_text()
    names = sorted(p.name for p in SCRIPTS.glob("*.sh"))
    assert set(names) == {*SHOWS, *SOURCED, "lost-path.sh"}
    for name in names:
        assert name in readme
        run(["sh", "-n", SCRIPTS / name])
        lines = (SCRIPTS / name).read_text().splitlines()
        assert sum(not line.startswith("#") and line.strip() != "" for line in lines) <= 20, name
        if name not in SOURCED:
            assert "What to see" in "\n".join(lines) and os.access(SCRIPTS / name, os.X_OK), name


def test_workflow(tmp_path: Path) -> None:
    """What its last step runs is run here; what it names exists. (TestWorkflowExample parses it.)"""
    text = (SCRIPTS / "ci-failing-lun.yml").read_text()
    last = text.split("        run: |\n")[-1]
    shutil.copytree(SCRIPTS, tmp_path / "arraysim" / "examples" / "scripts")
    (tmp_path / "step.sh").write_text("set -e\n" + last)
    env = os.environ | {"ARRAYSIM": str(binary())}
    p = subprocess.run(["bash", "step.sh"], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300)
    assert p.returncode == 0 and "fails while the disk is offline" in p.stdout, p.stdout + p.stderr
