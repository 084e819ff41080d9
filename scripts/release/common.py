"""What packages and images have in common: the binary's version, the time of its commit, the notices."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import licences

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
BINARY = REPO / "bin" / "arraysim"
DESCRIPTION = "storage array in user space that shows what offloads cost below the host layer"


def build() -> dict[str, Any]:
    """Return what the binary says that it was built from."""
    if not BINARY.exists():
        raise SystemExit(f"release: there is no {BINARY.relative_to(REPO)}: run make build")
    said = subprocess.run([BINARY, "version", "--json"], capture_output=True, text=True, check=True).stdout
    made = json.loads(said)
    if made["commit"] == "unknown":
        raise SystemExit(
            "release: the binary does not know its commit, so that nobody could tell what the package is of: run make "
            "build where git can read this folder (git status says why not), or in an archive that git archive made"
        )
    return made


def epoch() -> int:
    """Return the time that files get: SOURCE_DATE_EPOCH, else the commit's, which in an archive the files have."""
    if at := os.environ.get("SOURCE_DATE_EPOCH"):
        return int(at)
    if (REPO / ".git").exists():
        said = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=REPO, capture_output=True, text=True)
        if said.returncode == 0 and said.stdout.strip():
            return int(said.stdout)
    return int((REPO / "internal/admin/archived.txt").stat().st_mtime)


def architecture(platform: str, names: dict[str, str]) -> str:
    """Return what somebody calls the architecture of "linux/amd64"; names has those that differ from Go's."""
    system, _, machine = platform.partition("/")
    if system != "linux":
        raise SystemExit(f"release: the binary is for {platform}, and a package needs one for linux")
    return names.get(machine, machine)


def copyright_text() -> str:
    """Return the copyright file: ours, then those of what is linked in."""
    ours = (HERE / "debian" / "copyright").read_text()
    return ours + "\n\n" + licences.notices(os.environ.get("GO", "go"))
