#!/usr/bin/env python3
"""Type the commands of README.md's first screen in a fresh clone, and measure when UNDERCOVER moves.

The clone is of the last commit, and nothing is compiled yet: Go's build cache is empty. Go's modules are there, since
downloads are not measured. The commands run as they stand, so the ports of the built-in configuration have to be free;
as root they run in a network of their own. At the end a browser opens the page and looks for the clone there.

Fails if the first undercover write shows later than --limit seconds after the first command, or if the page does not
show how much was written below demo-clone.

    .cache/venv/bin/python scripts/walk.py
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests"))
from test_readme import blocks  # noqa: E402

PAGE = "http://127.0.0.1:9400"

#: How long a browser may take to start and to open the page on a busy machine, in ms; nobody measures that.
START = 120_000


def isolate() -> None:
    """Run the whole script again in a network of its own, so that nobody else has the ports."""
    if os.environ.get("ARRAYSIM_WALK") or os.geteuid() != 0 or not shutil.which("unshare") or not shutil.which("ip"):
        return
    os.environ["ARRAYSIM_WALK"] = "1"
    up = 'ip link set lo up && exec "$0" "$@"'
    os.execvp("unshare", ["unshare", "--net", "sh", "-c", up, sys.executable, *sys.argv])


def cpu() -> float:
    """Return the processor seconds of the processes that have ended."""
    r = resource.getrusage(resource.RUSAGE_CHILDREN)
    return r.ru_utime + r.ru_stime


def wait_ready(log: Path, server: subprocess.Popen[bytes], limit: float) -> None:
    """Wait until the array says that it is ready."""
    deadline = time.monotonic() + limit
    while not re.search(rb"^ready: ", log.read_bytes(), re.MULTILINE):
        if server.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"the array is not ready:\n{log.read_text()}")
        time.sleep(0.05)


#: What a finding says of the clone: how much was written below it, and that hosts wrote nothing.
FINDING = re.compile(
    r"([\d.]+) ([KMGT]?)i?B below the host layer\s+to volume\s+demo-clone\b.*Hosts wrote 0 B", re.DOTALL
)


def undercover_bytes(finding: str) -> float:
    """Return how many bytes a finding of the page says that offloads wrote to demo-clone, 0 if it does not say so."""
    said = FINDING.search(finding)
    return float(said[1]) * 1024 ** " KMGT".index(said[2] or " ") if said else 0.0


def on_page(address: str = PAGE, patience: float = 30) -> str:
    """Look where a person would, in a browser, for what was written below the clone; return what the page says."""
    from playwright.sync_api import expect, sync_playwright

    # Either will do: one without a screen is what the tests need, a whole one is what a person has.
    chromium = shutil.which("chromium-headless-shell") or shutil.which("chromium")
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"], timeout=START)
        page = browser.new_page()
        page.goto(address, timeout=START)
        clone = page.locator("#findings li", has_text="demo-clone").first
        expect(clone).to_contain_text(re.compile(r"[1-9]"), timeout=1000 * patience)
        said = clone.inner_text()
        browser.close()
    if undercover_bytes(said) <= 0:
        sys.exit(f"the page shows no undercover bytes of demo-clone: {said}")
    return " ".join(said.split())


def walk(clone: Path, log: Path, env: dict[str, str], limit: float) -> float:
    """Type the commands; return how long it took until UNDERCOVER moved."""
    run, *others = [line.split("#")[0].strip() for line in blocks("README.md")[0]]
    start = time.monotonic()

    def say(what: str) -> None:
        print(f"{time.monotonic() - start:6.1f} s  {what}", flush=True)

    with log.open("wb") as out:
        # No shell between: it would not wait for what it started, whose processor time would be lost.
        server = subprocess.Popen(shlex.split(run), cwd=clone, env=env, stdout=out, stderr=out, start_new_session=True)
    moved = 0.0
    try:
        wait_ready(log, server, 20 * limit)
        say(f"{run}: ready")
        for command in others:
            p = subprocess.Popen(command, shell=True, cwd=clone, env=env, stdout=subprocess.PIPE, text=True)
            assert p.stdout is not None
            for line in p.stdout:
                sample = re.match(r" +[\d.]+  clone +[\d.]+ +([\d.]+) ", line)
                if sample and float(sample[1]) > 0 and not moved:
                    moved = time.monotonic() - start
                    say(f"UNDERCOVER moves: {sample[1]} MB/s")
            if p.wait() != 0:
                sys.exit(f"{command} ends with {p.returncode}")
            say(f"{command}: done")
        with urllib.request.urlopen(f"{PAGE}/api/v1/counters", timeout=10) as r:
            shown = {v["volume"]: v for v in json.load(r)["volumes"]}["demo-clone"]
        assert shown["undercover_write_bytes"] > 0 and shown["host_written_bytes"] == 0
        say(f"the page: {on_page()[:80]}")
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()
    return moved


def main() -> None:
    """Make a clone, walk, and judge."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--limit", type=float, default=60, help="seconds until UNDERCOVER has to move")
    p.add_argument("--warm", action="store_true", help="use Go's build cache: tries the walk, and not its time")
    opt = p.parse_args()
    isolate()
    work = Path(tempfile.mkdtemp(prefix="arraysim-walk-"))
    try:
        clone = work / "arraysim"
        subprocess.run(["git", "clone", "--quiet", REPO, clone], check=True)
        modules = subprocess.run(["go", "env", "GOMODCACHE"], capture_output=True, text=True, check=True).stdout.strip()
        env = os.environ | {"GOMODCACHE": modules}
        if not opt.warm:
            env["GOCACHE"] = str(work / "gocache")
        before = cpu()
        moved = walk(clone, work / "log", env, opt.limit)
        print(
            f"UNDERCOVER moved after {moved:.1f} s; all commands took {cpu() - before:.0f} s of processor time",
            flush=True,
        )
        if not 0 < moved <= opt.limit:
            sys.exit(f"that is later than {opt.limit:.0f} s")
    finally:
        shutil.rmtree(work, ignore_errors=True)


if __name__ == "__main__":
    main()
