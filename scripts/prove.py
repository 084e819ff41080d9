#!/usr/bin/env python3
"""Runs the proofs: what takes too long for `make test` and is run before a release, or in the background.

    scripts/prove.py                  all of them, one after the other
    scripts/prove.py soak judge       some
    scripts/prove.py --list           their names, how long each takes, and when it last ran

docs/proofs.md keeps for each when it last ran, on which commit, with what result: a run that ends writes its row,
well or badly, and then with what failed; one that is interrupted writes none. While a proof runs, a line tells how
far it is; its output is in .cache/prove/NAME.log.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
DOCUMENT = REPO / "docs" / "proofs.md"
LOGS = REPO / ".cache" / "prove"

#: Seconds between two lines of progress where the output is no terminal.
TELL = 60

#: Seconds that an interrupted proof has to end its daemons and guests, and to remove their folders.
GRACE = 60.0


@dataclass
class Proof:
    """One proof: what it shows, a command, and how many minutes it takes on two idle cores."""

    name: str
    shows: str
    command: str
    minutes: int
    #: What in the output is a figure that the row keeps beside the result; "" for none.
    figure: str = ""


PROOFS = [
    Proof(
        "scenarios",
        "document 001's incident and ablations, 002's hours and figure 5, 003's terabyte by writes, every mutation",
        "go test ./internal/sim -run 'TestScenarios|TestMutations' -proofs -timeout 2h",
        25,
    ),
    Proof(
        "replicates",
        "every scenario except proofs, over 20 seeds: the 95 % interval of each mean is within its bounds",
        "go test ./internal/sim -run 'TestReplicates$' -replicates 20 -timeout 6h",
        90,
    ),
    Proof("race", "every Go test under the race detector", "go test -race -timeout 2h ./...", 30),
    Proof("guests", "every test in guests, including slow ones, in User Mode Linux", "make vm-test-all", 25),
    Proof("qemu", "the same in emulated machines: kernels 6.1 and 6.12, two processors", "make test-qemu", 45),
    Proof("judge", "precision and recall of analyze over 200 scenarios, and 200 without offloads", "make judge", 60),
    Proof(
        "judge-field", "sources, bytes, towers and causes in 200 cases of an independent model", "make judge-field", 5
    ),
    Proof(
        "cells",
        "`auto` within 2 points of its best candidate in 60 cells of public traces",
        "make cells",
        15,
        figure=r"\d+ cells: [-\d.]+ points on average, [\d.]+ at most, \d+ beyond 2",
    ),
    Proof("fuzz", "every fuzz target for 30 s", "make fuzz", 15),
    Proof("tier", "100,000 runs of the caching device under crashes, losses and offloads", "make tier-test", 30),
    Proof("tier-mutations", "each known defect of a write-back cache makes the model fail", "make tier-mutations", 30),
    Proof(
        "random",
        "the random tests of the core and of SCSI, ten times as many as in `make test`, each with seeds of its own",
        "go test -count 10 -timeout 4h ./internal/array/... ./internal/torture ./internal/hostcache/tier",
        60,
    ),
    Proof("torture", "2,000 random SCSI programs, each on all stores, profiles and copy modes", "make torture", 45),
    Proof("soak", "64 sessions at a portal for 30 minutes, all verified", "make soak", 31),
    Proof(
        "kills",
        "1,000 deaths of the daemon under verified writes and offloads",
        "make kill-test ARRAYSIM_KILLS=1000",
        12,
    ),
    Proof("guest-kills", "20 deaths of the daemon under a mounted file system", "make vm-kill-test", 10),
    Proof("guest-torture", "50 deaths under stress-ng, fs_mark and fio on xfs and ext4", "make vm-torture", 12),
    Proof(
        "take-overs",
        "50 take-overs of dead or silent hosts with caches, under verified writes",
        "make vm-take-over",
        14,
    ),
    Proof(
        "node-take-overs",
        "two nodes take an array's folder over from each other 20 times below dm-multipath, ext4 and fio with verify",
        "make vm-node-take-over",
        8,
        figure=r"\d+ take-overs, [\d.]+ s in the middle, [\d.]+ s at the most",
    ),
    Proof("conformance", "all of libiscsi's suite through LIO and TCMU", "make conformance-vm", 10),
    Proof("page", "ten minutes of the live page with 1,000 volumes", "make page-bench", 12),
    Proof("updates", "10,000 deaths inside updates of NVRAM and files", "make power-kill-test", 60),
    Proof("power", "100,000 power cuts", "make power-test", 30),
    Proof("sim-torture", "100,000 arrays in virtual time", "make sim-torture", 60),
    Proof(
        "rados",
        "arrays in a pool of one OSD: the store's conformance, faults, kill -9, take-overs, copies between two arrays",
        "make rados-test",
        9,
    ),
    Proof(
        "rados-three",
        "an array on three OSDs: the store's conformance, all of libiscsi's suite, sg3_utils, kill -9 of the daemon",
        "make rados-three",
        15,
    ),
    Proof(
        "rados-failures",
        "OSDs killed, stopped, slow or full, a quota, below min_size, no monitor: nothing is lost, nothing hangs",
        "make rados-failures",
        8,
    ),
    Proof(
        "rados-fencing",
        "500 take-overs on three OSDs under verified writes and offloads, and a control run without a blocklist",
        "make rados-take-overs ARRAYSIM_TAKE_OVERS=500",
        60,
        figure=r"^ *all killed: .*",
    ),
    Proof(
        "sweep",
        "10,000 runs on four Dask workers, one of which is killed: no run is lost or appears twice",
        "make sweep-test",
        8,
    ),
    Proof(
        "fit",
        "profile fit recovers 100 generated profiles: in 95 of them, all true parameters are inside the intervals",
        "go test ./internal/fit -run TestRecovery -recovery -cases 100 -seed 0 -v -timeout 6h",
        60,
    ),
    Proof(
        "rados-takeovers",
        "100,000 seeds of take-overs in a simulated cluster: no acknowledged write is lost, no read is stale",
        "go test ./internal/store/rados -run 'TestTakeovers$' -takeovers 100000 -timeout 6h -v",
        60,
    ),
    Proof(
        "packages",
        "lintian; two builds of a tag are identical; the package installs, runs and is purged; the image runs",
        "make package-test",
        5,
    ),
    Proof(
        "package-boot",
        "the package where systemd boots: readiness, sandbox, watchdog, sockets, TCMU with LIO, purge",
        "make package-boot-test",
        4,
    ),
    Proof(
        "walk",
        "in a fresh clone, UNDERCOVER moves within 60 s of README.md's first command, and the page shows it",
        "{ [ -x .cache/venv/bin/playwright ] || scripts/setup.sh; } && .cache/venv/bin/python scripts/walk.py",
        3,
        figure=r"^UNDERCOVER moved after [\d.]+ s",
    ),
]

HEAD = """# Proofs

Proofs are tests that take too long for `make test`. `make prove` runs all of them, and
`make prove PROOFS="soak judge"` some. A proof that ends updates its row with the date, the commit
and the result. A plus after a commit means that there were uncommitted changes.

| proof | shows | minutes | last run | commit | result |
| --- | --- | --- | --- | --- | --- |
"""


def rows() -> dict[str, list[str]]:
    """Return what the document says of each proof's last run: date, commit, result."""
    found = {}
    if DOCUMENT.exists():
        for line in DOCUMENT.read_text().splitlines():
            cells = [c.strip() for c in line.strip().strip("|").split("|")]
            if len(cells) == 6 and cells[0] in {p.name for p in PROOFS}:
                found[cells[0]] = cells[3:]
    return found


def write(last: dict[str, list[str]]) -> None:
    """Write the document."""
    lines = [
        f"| {p.name} | {p.shows} | {p.minutes} | {' | '.join(last.get(p.name, ['never', '', '']))} |" for p in PROOFS
    ]
    DOCUMENT.write_text(HEAD + "\n".join([*lines, ""]))


def commit() -> str:
    """Return the commit that is checked out, with a plus where files differ from it, but for the rows of this run."""
    said = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=REPO, capture_output=True, text=True)
    others = [".", f":!{DOCUMENT.relative_to(REPO)}"]
    clean = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", *others], cwd=REPO).returncode == 0
    return (said.stdout.strip() or "unknown") + ("" if clean else "+")


def follow(proof: Proof) -> int:
    """Run a proof and return its exit status."""
    log = LOGS / f"{proof.name}.log"
    terminal, told, began = sys.stdout.isatty(), 0.0, time.monotonic()
    with log.open("wb") as out:
        proc = subprocess.Popen(
            ["bash", "-c", proof.command],
            cwd=REPO,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=heed,
        )
    try:
        while proc.poll() is None:
            time.sleep(0.5)
            took = time.monotonic() - began
            if terminal or took - told >= TELL:
                told = took
                line = f"  {proof.name}: {took / 60:.1f} of some {proof.minutes} minutes; {last_line(log)[:80]}"
                print(f"\r{line:<110}" if terminal else line, end="" if terminal else "\n", flush=True)
    except BaseException:
        end(proc)
        raise
    if terminal:
        print()
    return proc.returncode


def heed() -> None:
    """Let Ctrl-C end a new process: what a shell starts with `&` ignores it, and what that starts, too."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def end(proc: subprocess.Popen[bytes]) -> None:
    """End what a proof started, by SIGKILL if it is still there after GRACE seconds or at a second Ctrl-C.

    First as Ctrl-C does: `go test` removes what it built then, and at SIGTERM it does not.
    """
    try:
        os.killpg(proc.pid, signal.SIGINT)
        deadline = time.monotonic() + GRACE
        while time.monotonic() < deadline:
            proc.poll()  # until somebody asks how it ended, it is a member of its group
            os.killpg(proc.pid, 0)
            time.sleep(0.05)
    except ProcessLookupError:
        return
    except KeyboardInterrupt:
        pass  # whoever presses Ctrl-C twice does not want to wait
    with contextlib.suppress(ProcessLookupError):
        os.killpg(proc.pid, signal.SIGKILL)


#: Signals that end the proof under way, too.
ENDS = (signal.SIGTERM, signal.SIGHUP)


def leave(sig: int, _: object) -> None:
    """Exit for a signal, and let nothing cut that short: after one to the whole group make sends another."""
    for other in ENDS:
        signal.signal(other, lambda *_: None)
    sys.exit(128 + sig)


#: What Go says of each test and of each of its cases, and what tells nobody how far it is.
STEP = re.compile(r"\s*(=== |--- PASS)")


def last_line(log: Path) -> str:
    """Return the last line of a log that tells how far it is."""
    with log.open("rb") as f:
        f.seek(max(0, log.stat().st_size - 65536))
        lines = f.read().decode(errors="replace").splitlines()
    return next((line.strip() for line in reversed(lines) if re.search(r"\w", line) and not STEP.match(line)), "")


#: What says that something failed, and not what: a frame around that.
FRAME = re.compile(r"^(make(\[\d+\])?: \*\*\*|FAIL\b|exit status \d|ok\s|={3,}|vm: )")

#: What names a failure: of pytest, here and in a guest, of mutations.py and of bench scripts, a test of Go, a panic.
NAMED = [
    re.compile(r"(?:^|\s)(?:failed|error) in \w+: (.+)"),
    re.compile(r"^(?:FAILED|ERROR) (\S+::.+)"),
    re.compile(r"^(\d+ of \d+ survived: .+)"),
    re.compile(r"^\s*--- FAIL: (\S+) \("),
    re.compile(r"^((?:panic|fatal error): .+)"),
    re.compile(r"(WARNING: DATA RACE)"),
]


def failure(text: str) -> str:
    """Return what failed, by the output of a proof: its name, what was said of it, and how many more there are."""
    lines = text.splitlines()
    for pattern in NAMED:
        found = [(n, m[1].strip()) for n, line in enumerate(lines) if (m := pattern.search(line))]
        # A case of a test is named after the test, more precisely.
        found = [(n, name) for n, name in found if not any(other.startswith(name + "/") for _, other in found)]
        if not found:
            continue
        n, name = found[0]
        said = lines[n + 1].strip() if "--- FAIL" in lines[n] and n + 1 < len(lines) else ""
        more = f" and {len(found) - 1} more" if len(found) > 1 else ""
        return f"{name}{more}" + (f": {said}" if re.match(r"\S+\.go:\d+: ", said) else "")
    said = [line.strip() for line in lines if re.search(r"\w", line) and not FRAME.search(line.strip())]
    return said[-1] if said else "it said nothing"


def proved_nothing(text: str) -> bool:
    """Tell whether all packages that ended well had no test to run: its name is another by now."""
    ended = re.findall(r"^ok\s.*$", text, re.M)
    return bool(ended) and all("[no tests to run]" in line for line in ended)


def judge(status: int, text: str) -> str:
    """Return what to write of a run with this exit status and output."""
    if status == 0 and not proved_nothing(text):
        return "passed"
    said = "there was no test to run" if status == 0 else failure(text)
    return f"FAILED: {said}"[:160].replace("|", "/")


def figure(proof: Proof, text: str) -> str:
    """Return the figure of a proof in its output, as the row has it: behind the result."""
    found = re.search(proof.figure, text, re.MULTILINE) if proof.figure else None
    return f", {found[0]}" if found else ""


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("proofs", nargs="*", metavar="PROOF", help="default: all")
    parser.add_argument("--list", action="store_true", help="print the proofs and run nothing")
    args = parser.parse_args()
    known = {p.name: p for p in PROOFS}
    if bad := [n for n in args.proofs if n not in known]:
        parser.error(f"no proof {bad[0]}; there are {', '.join(known)}")
    chosen: Sequence[Proof] = [known[n] for n in args.proofs] or PROOFS
    if args.list:
        for p in chosen:
            print(f"{p.name:<14} {p.minutes:>4} min  {' '.join(rows().get(p.name, ['never']))[:60]:<60}  {p.command}")
        return 0
    for sig in ENDS:
        if signal.getsignal(sig) != signal.SIG_IGN:
            signal.signal(sig, leave)
    LOGS.mkdir(parents=True, exist_ok=True)
    print(f"{len(chosen)} proofs, some {sum(p.minutes for p in chosen) / 60:.1f} hours on two idle cores", flush=True)
    bad = []
    for i, proof in enumerate(chosen, 1):
        print(f"{i} of {len(chosen)}: {proof.name}: {shlex.join(proof.command.split())}", flush=True)
        began, on = time.monotonic(), commit()
        status = follow(proof)
        took = (time.monotonic() - began) / 60
        text = (LOGS / f"{proof.name}.log").read_text(errors="replace")
        result = judge(status, text)
        last = rows()
        last[proof.name] = [time.strftime("%Y-%m-%d"), on, f"{result} in {took:.0f} min{figure(proof, text)}"]
        write(last)
        print(f"   {result} after {took:.1f} min", flush=True)
        if result != "passed":
            bad.append(proof.name)
    print(f"{len(chosen) - len(bad)} passed, {len(bad)} failed" + (f": {', '.join(bad)}" if bad else ""))
    return 1 if bad else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
