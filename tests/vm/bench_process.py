"""What serving a command costs a process, by the kernel's counters and by strace."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench_peers import STEP, Stuck
from guest import RESULTS, wait

#: The counters, in the order of the table. Processor time is in microseconds, user and system together.
COUNTERS = ["voluntary", "involuntary", "minor faults", "major faults", "processor"]

#: Microseconds of a tick, the unit of the kernel's processor times.
TICK = 1_000_000 // os.sysconf("SC_CLK_TCK")


class Counters:
    """A process's counters at one moment."""

    def __init__(self, pid: int) -> None:
        # Of the process as a whole, threads that ended included.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        self.minor, self.major = int(fields[7]), int(fields[9])
        self.processor = (int(fields[11]) + int(fields[12])) * TICK
        #: By thread: voluntary and involuntary switches, which the process as a whole does not have.
        self.switches: dict[str, tuple[int, int]] = {}
        for task in Path(f"/proc/{pid}/task").iterdir():
            try:
                found = re.findall(r"ctxt_switches:\s+(\d+)", (task / "status").read_text())
            except (FileNotFoundError, ProcessLookupError):  # a thread that ends
                continue
            self.switches[task.name] = (int(found[0]), int(found[1]))

    def since(self, before: Counters) -> dict[str, int]:
        """Return what was counted since then; the last switches of threads that ended meanwhile are missing."""
        switches = [0, 0]
        for thread, now in self.switches.items():
            then = before.switches.get(thread, (0, 0))
            for i in range(2):
                switches[i] += now[i] - then[i]
        faults = [self.minor - before.minor, self.major - before.major]
        return dict(zip(COUNTERS, [*switches, *faults, self.processor - before.processor], strict=True))


@contextmanager
def traced(pid: int) -> Iterator[dict[str, int]]:
    """Count a process's system calls for the duration; the dictionary has them by name afterwards.

    Tracing stops the process twice at each call, so that what runs meanwhile is slow and other figures of it are void.
    """
    counts: dict[str, int] = {}
    out, log = RESULTS / "strace.out", RESULTS / "strace.log"
    with log.open("wb") as err:
        argv = ["strace", "-c", "-U", "calls,name", "-f", "-p", str(pid), "-o", str(out)]
        tracer = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=err, stderr=err)
    try:
        wait("strace", lambda: "attached" in log.read_text() or tracer.poll() is not None, said=log)
        yield counts
        tracer.send_signal(signal.SIGINT)
        try:
            tracer.wait(STEP)
        except subprocess.TimeoutExpired:
            raise Stuck(f"strace did not end in {STEP} s") from None
        counts.update(summary(out.read_text()))
        if not counts:
            raise Stuck(f"strace counted nothing: {log.read_text()[-300:]}")
    finally:
        if tracer.poll() is None:
            tracer.kill()
            tracer.wait()


def summary(text: str) -> dict[str, int]:
    """Return the calls by name of strace's table."""
    rows = re.findall(r"(?m)^\s*(\d+)\s+(\w+)\s*$", text)
    return {name: int(calls) for calls, name in rows if name != "total"}
