"""The notices of what is linked into the binary: each module's licence once, with all modules that have it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]

#: Files of a module that have to go with it.
NOTICES = re.compile(r"^((?:un)?licen[cs]e|copying|notice|patents|copyright)([.-]|$)", re.I)


def modules(go: str) -> dict[str, Path]:
    """Return the modules that the binary is linked of, "name version", with their folders."""
    template = "{{with .Module}}{{if not .Main}}{{.Path}} {{.Version}}\t{{.Dir}}{{end}}{{end}}"
    command = [go, "list", "-deps", "-f", template, "./cmd/arraysim"]
    env = {**os.environ, "CGO_ENABLED": "0"}
    said = subprocess.run(command, cwd=REPO, env=env, capture_output=True, text=True, check=True).stdout
    return {name: Path(folder) for name, folder in (line.split("\t") for line in said.splitlines() if line)}


def folders(go: str) -> dict[str, Path]:
    """Return the same with what is no module: Go's library and runtime, and the pictures' script."""
    root = subprocess.run([go, "env", "GOROOT"], cwd=REPO, capture_output=True, text=True, check=True).stdout.strip()
    return {"Go (standard library and runtime)": Path(root)} | modules(go)


def common(text: str) -> bool:
    """Tell whether a text is the Apache License, which every Debian system has."""
    return "Apache License" in text and "TERMS AND CONDITIONS FOR USE, REPRODUCTION, AND DISTRIBUTION" in text


def notices(go: str) -> str:
    """Return all notices. A module without one is an error: it could not be passed on."""
    by_text: dict[str, list[str]] = {}
    for name, folder in folders(go).items():
        found = sorted(f for f in folder.iterdir() if f.is_file() and NOTICES.match(f.name) and f.suffix != ".go")
        if not found:
            raise SystemExit(f"release: {name} has no licence in {folder}")
        for f in found:
            by_text.setdefault(f.read_text(errors="replace").strip(), []).append(name)
    echarts = REPO / "internal/report/assets"
    for f in (echarts / "echarts.LICENSE", echarts / "echarts.NOTICE"):
        by_text.setdefault(f.read_text().strip(), []).append("Apache ECharts")
    by_text[(HERE / "web-licences.txt").read_text().strip()] = ["Preact and uPlot (the live page)"]
    out, apache = [], []
    for text, names in sorted(by_text.items(), key=lambda item: item[1]):
        if common(text):
            apache += names
            continue
        out.append("\n".join([*names, "", *("  " + line.rstrip() for line in text.splitlines())]))
    head = "\n".join([*sorted(set(apache)), "", "  Apache License, version 2.0: /usr/share/common-licenses/Apache-2.0"])
    return "\n\n\n".join([head, *out]) + "\n"
