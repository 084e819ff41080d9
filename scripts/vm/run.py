#!/usr/bin/env python3
"""Runs tests in guests: the kernel's own iSCSI stack, LIO and TCMU, without touching the host's.

    scripts/vm/run.py                               # all of tests/vm
    scripts/vm/run.py tests/vm/test_stack.py -k sg  # a selection, in pytest's words
    scripts/vm/run.py --command 'lsmod; uname -a'   # something else
    scripts/vm/run.py --shell                       # a console for a person
    scripts/vm/run.py --engine qemu --kernel 6.12 ...
    scripts/vm/run.py --systemd --shell             # booted by systemd, with nothing of arraysim installed

A guest is a process of User Mode Linux (the default) or a machine that QEMU emulates. Neither needs KVM,
a network or, once its root is there (root.py, image.py), a download. User Mode Linux gets a guest for each
test file, up to three side by side; QEMU gets one guest for all. A guest starts from
the same root every time and sees a copy of bin/arraysim and tests/, made as the run starts. Its output is
shown as it comes; .cache/vm/results/last has a folder a guest with its logs: dmesg.log, console.log,
junit.xml, and what the tests left. The exit status is 0 when all tests passed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
import xml.etree.ElementTree as ET
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import image
import root
from engines import Engine, GuestError, Qemu, Size, Uml
from machine import BootError, Guest, Run

REPO = root.REPO
TESTS = REPO / "tests" / "vm"
TIMES = root.CACHE / "times.json"

#: Seconds that a file takes on two idle cores, until this machine has times of its own: the longest go first.
TYPICAL = {
    "test_disks": 130.0,
    "test_tcmu": 90.0,
    "test_conformance": 70.0,
    "test_portal": 60.0,
    "test_docs": 55.0,
    "test_zero_bench": 45.0,
    "test_differential": 35.0,
    "test_plugin": 35.0,
    "test_multipath": 35.0,
    "test_torture": 35.0,
    "test_sg3": 30.0,
    "test_takeover": 30.0,
    "test_stack": 15.0,
}

#: Exit status where there is none of the command's: it gave up, or the guest died.
GAVE_UP = 124

#: pytest's exit status where it ran no test of a file: the selection left none, or there is none.
NO_TESTS = 5

_lock = threading.Lock()
#: Guests that were begun, and that no other one is to begin; both under _lock.
_guests: list[Guest] = []
_stopped = threading.Event()


def say(text: str) -> None:
    """Report progress."""
    with _lock:
        print(f"vm: {text}", file=sys.stderr, flush=True)


@dataclass
class Job:
    """What one guest runs, whether systemd boots it, and how it ended: a status; counts are pytest's."""

    name: str
    command: str
    systemd: bool = False
    status: int = GAVE_UP
    seconds: float = 0
    counts: dict[str, int] = field(default_factory=dict)

    def count(self, junit: Path) -> None:
        """Take the numbers of cases from pytest's report."""
        if not junit.exists():
            return
        worst: dict[tuple[str | None, str | None], str] = {}
        for case in ET.parse(junit).getroot().iter("testcase"):
            # A case that failed and whose teardown failed, too, is reported twice.
            key = case.get("classname"), case.get("name")
            if case.find("failure") is not None or case.find("error") is not None:
                worst[key] = "failed"
            else:
                worst.setdefault(key, "skipped" if case.find("skipped") is not None else "passed")
        self.counts = {k: list(worst.values()).count(k) for k in ("passed", "failed", "skipped")}

    def judge(self, output: Path) -> None:
        """Take a file in which pytest found no test at all for one that failed: nothing shows what it was for."""
        if self.status == NO_TESTS and not re.search(rb"\b\d+ deselected\b", output.read_bytes()):
            say(f"{self.name}: there is no test in it")
            self.status = GAVE_UP


def pytest_command(arguments: list[str]) -> str:
    """Return the command line of pytest in the guest."""
    return "python3 -m pytest --junitxml=/mnt/run/results/junit.xml " + shlex.join(arguments)


def jobs(args: argparse.Namespace, rest: list[str], engine: Engine) -> list[Job]:
    """Return the guests to run, the longest of last time first."""
    if args.shell or args.command:
        return [Job("guest", "shell" if args.shell else args.command)]
    chosen = [a for a in rest if a.startswith("tests/")]
    others = [a for a in rest if not a.startswith("tests/")]
    if not chosen:
        chosen = sorted(str(p.relative_to(REPO)) for p in TESTS.glob("test_*.py"))
    if engine.parallel == 1:
        name = Path(chosen[0].partition("::")[0]).stem if len(chosen) == 1 else "guest"
        return [Job(name, pytest_command([*chosen, *others]), any(boots(c) for c in chosen))]
    files: dict[str, list[str]] = {}
    for c in chosen:
        files.setdefault(Path(c.partition("::")[0]).stem, []).append(c)
    for name in emptied(chosen, others) if len(files) > 1 else []:
        say(f"{name}: the selection leaves nothing of it")
        del files[name]
    times = TYPICAL | known_times()
    made = [Job(name, pytest_command([*of, *others]), any(boots(c) for c in of)) for name, of in files.items()]
    return sorted(made, key=lambda j: (-times.get(j.name, 1e9), j.name))


def boots(test: str) -> bool:
    """Tell whether a test is about a machine that systemd boots."""
    return test.startswith("tests/vm/boot")


def emptied(chosen: list[str], others: list[str]) -> list[str]:
    """Return the files of which a selection leaves nothing: a guest for these would boot in vain.

    What cannot be told here is not among them, and that is all where the environment of the tests is missing.
    """
    python = REPO / ".cache" / "venv" / "bin" / "python"
    if not python.exists():
        return []
    argv = [python, root.HERE / "collect.py", *chosen, *others]
    told = subprocess.run(argv, cwd=REPO, env={**os.environ, "GUEST_ENGINE": "uml"}, stdout=subprocess.PIPE, text=True)
    counts = json.loads(told.stdout) if told.returncode == 0 else {}
    return [name for name, (left, out) in counts.items() if left == 0 < out]


def known_times() -> dict[str, float]:
    """Return how long each file took when all of it last ran here; a file that never did is missing."""
    try:
        return json.loads(TIMES.read_text())
    except (OSError, ValueError):
        return {}


def run_job(job: Job, run: Run, engine: Engine, args: argparse.Namespace, alone: bool) -> None:
    """Run one guest to its end, twice if it did not come up; fill in the job's outcome."""
    prefix = "" if alone else f"{job.name.removeprefix('test_'):<12} "

    def show(seconds: float, line: str) -> None:
        with _lock:
            print(f"{prefix}{seconds:6.1f} {line}", flush=True)

    start = time.monotonic()
    environment = dict(pair.partition("=")[::2] for pair in args.env)
    if args.systemd or job.systemd:
        environment["GUEST_INIT"] = "systemd"
    for name in (job.name, job.name + "-again"):
        guest = Guest(run, name, engine, Size(args.memory, args.cpus))
        guest.prepare(job.command, args.limit, environment)
        with _lock:
            if _stopped.is_set():
                return
            _guests.append(guest)
        try:
            job.status = guest.shell() if args.shell else guest.run(args.limit, show)
        except BootError as e:
            say(f"{job.name}: {e}")
            continue
        except GuestError as e:
            say(f"{job.name}: {e}")
        break
    job.seconds = time.monotonic() - start
    job.count(guest.results / "junit.xml")
    if not args.command:
        job.judge(guest.results / "output.log")


def stop_guests() -> None:
    """End all guests; no other one begins."""
    with _lock:
        _stopped.set()
        guests = list(_guests)
    for g in guests:
        g.kill()


def summary(done: list[Job], run: Run, started: float, engine: str) -> int:
    """Print how each guest ended and the sums; return the exit status."""
    everything = {"passed": 0, "failed": 0, "skipped": 0}
    for job in done:
        for k in job.counts:
            everything[k] += job.counts[k]
        ended = "ok" if job.status == 0 else "no tests" if job.status == NO_TESTS else f"FAILED ({job.status})"
        counts = ", ".join(f"{n} {k}" for k, n in job.counts.items() if n)
        say(f"{job.name:<20} {job.seconds:6.1f} s  {ended:<12} {counts}")
    where = run.dir.relative_to(REPO)
    say(f"{time.monotonic() - started:.1f} s with {engine}; logs in {where}")
    bad = [j for j in done if j.status not in (0, NO_TESTS)]
    if any(everything.values()):
        everything["failed"] = max(everything["failed"], len(bad))  # a guest that died counted nothing
        print(", ".join(f"{n} {k}" for k, n in everything.items()), flush=True)
    if bad:
        return bad[0].status
    return NO_TESTS if all(j.status == NO_TESTS for j in done) else 0


def once(args: argparse.Namespace, rest: list[str]) -> int:
    """Run all guests and return the exit status."""
    started = time.monotonic()
    engine: Engine = Uml() if args.engine == "uml" else Qemu(args.kernel)
    todo = jobs(args, rest, engine)
    run = Run(args.file)
    parallel = min(args.jobs or min(engine.parallel, (os.cpu_count() or 1) + 1), len(todo))
    try:
        with ThreadPoolExecutor(parallel) as pool:
            try:
                list(pool.map(lambda j: run_job(j, run, engine, args, alone=len(todo) == 1), todo))
            except BaseException:  # a signal; the pool waits for the guests
                stop_guests()
                raise
    finally:
        run.close()
    if args.shell:
        return todo[0].status
    whole = not any("::" in a or a in ("-k",) for a in rest)
    if whole and engine.name == "uml" and not args.command:
        times = known_times() | {j.name: round(j.seconds, 1) for j in todo if j.status == 0}
        TIMES.write_text(json.dumps(times, indent=1))
    return summary(todo, run, started, engine.name)


def leave(*_: object) -> None:
    """Exit for SIGTERM, and let no other cut that short: make sends one after that to the whole group."""
    signal.signal(signal.SIGTERM, lambda *_: None)
    sys.exit(GAVE_UP)


def main() -> int:
    """Parse the command line and run the guests."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=["uml", "qemu"], default="uml", help="default: %(default)s")
    parser.add_argument("--kernel", default="6.1", choices=image.KERNELS, help="QEMU's kernel (default: %(default)s)")
    parser.add_argument("--systemd", action="store_true", help="boot as Debian does; so does what is in tests/vm/boot")
    parser.add_argument("--limit", type=float, default=600, metavar="S", help="stop a guest after S s (%(default)s)")
    parser.add_argument("--memory", type=int, default=2048, metavar="MIB", help="default: %(default)s")
    parser.add_argument("--cpus", type=int, default=2, metavar="N", help="QEMU's processors (%(default)s)")
    parser.add_argument(
        "--jobs", type=int, metavar="N", help="guests side by side (default: a processor more, at most 3)"
    )
    parser.add_argument("--env", action="append", default=[], metavar="NAME=VALUE", help="a variable for the command")
    parser.add_argument("--file", action="append", default=[], metavar="PATH", help="copied to files/ in the guest")
    parser.add_argument("--shell", action="store_true", help="a console instead of a command")
    parser.add_argument("--command", metavar="COMMAND", help="a shell command instead of tests")
    args, rest = parser.parse_known_args()
    signal.signal(signal.SIGTERM, leave)
    try:
        return once(args, rest)
    except (GuestError, image.ImageError) as e:
        say(str(e))
        return GAVE_UP
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
