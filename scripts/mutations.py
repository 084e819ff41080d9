#!/usr/bin/env python3
"""Puts known defects back into the host cache, one at a time, and asserts that the model of its tests turns red.

    scripts/mutations.py                     all of testdata/mutations.toml, 10,000 seeds each
    scripts/mutations.py --seeds 500 flush   those whose name contains "flush", 500 seeds each

The sources are not touched: a mutated file is laid over its original when the tests are built (go build -overlay). A
text that is not there exactly once is an error. The exit status is 1 if a mutation survives or cannot be applied.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path
from typing import Any

REPO = Path(__file__).resolve().parents[1]
TABLE = REPO / "internal/hostcache/tier/testdata/mutations.toml"
PACKAGE = "./internal/hostcache/tier"
GO = os.environ.get("GO", "go")


class UnfitError(Exception):
    """A mutation does not fit the sources any more."""


def mutate(m: dict[str, Any]) -> str:
    """Return the text of a mutation's file with the defect in it."""
    text = (REPO / m["file"]).read_text()
    for old, new in [(m["old"], m["new"]), *m.get("also", [])]:
        if (n := text.count(old)) != 1:
            raise UnfitError(f"{m['file']} has this {n} times, not once: {old.strip().splitlines()[0]}")
        text = text.replace(old, new)
    return text


def overlay(m: dict[str, Any], folder: Path) -> Path:
    """Write a mutated file and the overlay that puts it in its original's place."""
    mutated = folder / "mutated.go"
    mutated.write_text(mutate(m))
    table = folder / "overlay.json"
    table.write_text(json.dumps({"Replace": {str(REPO / m["file"]): str(mutated)}}))
    return table


def run(m: dict[str, Any], seeds: int, folder: Path) -> str:
    """Run what has to turn red; return what did, "" if nothing did."""
    table = overlay(m, folder)
    if tests := m.get("tests"):
        command = [GO, "test", "-vet=off", "-timeout", "120s", f"-overlay={table}", "-count=1", *tests.split()]
        out = subprocess.run(command, cwd=REPO, capture_output=True, text=True)
        if "[build failed]" in out.stdout + out.stderr:
            raise UnfitError(out.stderr.strip() or out.stdout.strip())
        failed = re.findall(r"^--- FAIL: (\S+)", out.stdout, re.M)
        return ", ".join(failed) or ("killed by its time" if "panic: test timed out" in out.stdout else "")
    binary, model = folder / "tier.test", m.get("model", "TestModel")
    built = subprocess.run(
        [GO, "test", "-c", "-vet=off", f"-overlay={table}", "-o", str(binary), PACKAGE],
        cwd=REPO,
        capture_output=True,
        text=True,
    )
    if built.returncode != 0:
        raise UnfitError(built.stderr.strip())
    command = [str(binary), "-test.run", f"^{model}$", f"-tier.seeds={seeds}", "-tier.stop", "-test.timeout", "2h"]
    out = subprocess.run(command, cwd=REPO / PACKAGE, capture_output=True, text=True)
    if found := re.search(rf"--- FAIL: {model}/(\d+)", out.stdout):
        said = re.search(r"seed \d+: (.*)", out.stdout)
        return f"seed {found[1]}: {said[1][:90] if said else 'panic'}"
    return outcome(out.returncode, model, out.stdout + out.stderr)


def outcome(status: int, model: str, said: str) -> str:
    """Return how a model without a failed seed turned red, "" if it did not; whatever else failed is an error.

    A model that cannot even begin, as with a flag that it does not have, finds no defect.
    """
    if status == 0:
        return ""
    if not re.search(r"^(panic|fatal error): |^--- FAIL: ", said, re.M):
        raise UnfitError(f"the model ended with {status}: {said.strip()[-200:]}")
    if found := re.search(rf"=== RUN +{model}/(\d+)|{model}/(\d+)", said):
        return f"seed {found[1] or found[2]}: panic"
    return "failed: " + said.strip().splitlines()[-1][:90]


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only mutations whose name contains one of these")
    parser.add_argument("--seeds", type=int, default=10_000, help="seeds of the model for each, default 10,000")
    args = parser.parse_args()
    mutations = tomllib.loads(TABLE.read_text())["mutation"]
    chosen = [m for m in mutations if not args.words or any(w in m["name"] for w in args.words)]
    if not chosen:
        parser.error("no mutation has such a name")
    survived = []
    for m in chosen:
        began = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            try:
                red = run(m, args.seeds, Path(folder))
            except UnfitError as e:
                red = ""
                print(f"{m['name']}: {e}", file=sys.stderr)
        if not red:
            survived.append(m["name"])
        print(f"| {m['name']} | {red or 'SURVIVED'} | {time.monotonic() - began:.0f} s |", flush=True)
    if survived:
        print(f"{len(survived)} of {len(chosen)} survived: " + "; ".join(survived))
        return 1
    print(f"all {len(chosen)} turned something red")
    return 0


if __name__ == "__main__":
    sys.exit(main())
