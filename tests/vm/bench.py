#!/usr/bin/env python3
"""The array behind TCMU against tcmu-runner and the kernel's own file backstore, in one guest, in turn.

    make vm-bench                                                          # all of it, with all defaults
    make vm-bench BENCH_ARGS="--rounds 1 --seconds 1 --rows rr32,w256"     # some of it
    make vm-bench BENCH_ARGS="--peers arraysim,fileio --fabrics loop"

Figures of a guest on a shared machine: ratios mean something, which is why the peers take turns, in another order in
each round. A peer keeps its bytes in the guest's memory (tmpfs) and has one LUN; all work on a part of it that was
written before. Costs are those of the serving process, divided by the I/Os that fio completed; its system calls are
of a second, short run of the row under strace.

A row that fails or does not end in its time is recorded so, and the bench goes on with the next one and a new server.
Prints progress, then tables of medians and ratios; bench.md has the tables, bench.json every single figure.
The exit status is 1 when a row of arraysim's failed.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from bench_peers import FABRICS, PEERS, SIZE, STORE, WORKING_SET, Peer, Stuck, bounded, exported  # noqa: E402
from bench_process import Counters, traced  # noqa: E402
from bench_tables import tables  # noqa: E402
from guest import RESULTS, Disk, Initiator  # noqa: E402
from harness import MiB, ToolError, run  # noqa: E402

#: Seconds after which arraysim begins to move what it was sent to the back end, and at most for doing so.
SETTLE, REST = 2, 20

#: Runs of an offload's tool of which the median counts.
REPEATS = 3


@dataclass(frozen=True)
class Row:
    """A row of the table: fio's arguments, or an offload when there are none."""

    key: str
    name: str
    unit: str
    fio: tuple[str, ...] = ()

    @property
    def reads(self) -> bool:
        """True if fio reads."""
        return "read" in self.fio[0]


def fio_row(key: str, name: str, unit: str, rw: str, bs: str, depth: int) -> Row:
    """Return a row of fio's."""
    return Row(key, name, unit, (f"--rw={rw}", f"--bs={bs}", f"--iodepth={depth}"))


#: The order is that of a turn: what leaves dirty pages in a write cache comes after the reads.
ROWS = [
    fio_row("rr1", "4 KiB random read, depth 1", "IOPS", "randread", "4k", 1),
    fio_row("rr32", "4 KiB random read, depth 32", "IOPS", "randread", "4k", 32),
    fio_row("r256", "256 KiB read, depth 8", "MiB/s", "read", "256k", 8),
    fio_row("rw1", "4 KiB random write, depth 1", "IOPS", "randwrite", "4k", 1),
    fio_row("rw32", "4 KiB random write, depth 32", "IOPS", "randwrite", "4k", 32),
    fio_row("w256", "256 KiB write, depth 8", "MiB/s", "write", "256k", 8),
    Row("ws", f"WRITE SAME, {WORKING_SET // MiB} MiB", "MiB/s"),
    Row("xcopy", f"XCOPY, {WORKING_SET // MiB} MiB", "MiB/s"),
]

Record = dict[str, Any]


def say(text: str) -> None:
    """Report progress."""
    print(text, flush=True)


class Progress:
    """How far the run is, and what is left by what a row took so far."""

    def __init__(self, total: int) -> None:
        self.total, self.done = total, 0
        self.start = time.monotonic()

    def step(self, text: str) -> None:
        """Count one row and report it."""
        self.done += 1
        spent = time.monotonic() - self.start
        left = spent / self.done * (self.total - self.done)
        say(f"[{self.done}/{self.total}, {minutes(spent)}, {minutes(left)} to go] {text}")


def minutes(seconds: float) -> str:
    """Return seconds as minutes and seconds."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


class Bench:
    """One run: its options and what it found."""

    def __init__(self, opt: argparse.Namespace) -> None:
        self.opt = opt
        self.peers = chosen("peers", opt.peers, {p.name: p for p in PEERS})
        self.fabrics = chosen("fabrics", opt.fabrics, {f: f for f in FABRICS})
        self.rows = chosen("rows", opt.rows, {r.key: r for r in ROWS})
        self.records: list[Record] = []
        # A first guess: what a turn and a row need besides, and that two of three peers are traced.
        traced_too = 0 if opt.no_strace else (opt.strace_seconds + 6) * 2 / 3
        a_turn = 35 + len(self.rows) * (opt.seconds + 3 + traced_too)
        turns = opt.rounds * len(self.fabrics) * len(self.peers)
        self.progress = Progress(turns * len(self.rows))
        say(f"{turns} turns of {len(self.rows)} rows, about {minutes(turns * a_turn)}")

    def run(self) -> None:
        """Run all turns."""
        for turn in range(self.opt.rounds):
            shift = turn % len(self.peers)
            for peer in self.peers[shift:] + self.peers[:shift]:
                for fabric in self.fabrics:
                    self.turn(turn, peer, fabric)

    def turn(self, turn: int, peer: Peer, fabric: str) -> None:
        """Run all rows of one peer over one fabric, with another server after each failure."""
        left = list(self.rows)
        while left:
            row = None
            record: Record = {"round": turn, "peer": peer.name, "fabric": fabric}
            try:
                with exported(peer, fabric) as disk:
                    self.fill(peer, disk, record)
                    while left:
                        row = left.pop(0)
                        record = {"round": turn, "peer": peer.name, "fabric": fabric, "row": row.key, "unit": row.unit}
                        self.measure(row, peer, disk, record)
                        self.keep(record)
                        row = None
            except Exception as e:  # whatever it is, the other rows and peers are still wanted
                if not isinstance(e, Stuck | ToolError):
                    traceback.print_exc()
                row = row or (left.pop(0) if left else None)
                if row is None:
                    say(f"  {peer.name}, {fabric}: {e}, after the last row")
                    continue
                record |= {"row": row.key, "unit": row.unit, "failed": str(e)}
                self.keep(record)

    def fill(self, peer: Peer, disk: Disk, record: Record) -> None:
        """Write the part that the rows work on, and let it settle.

        More often than once: what a server touches for the first time costs it a fault, which is dear in User Mode
        Linux (0.25 ms), and a long-lived one has that behind it.
        """
        start = time.monotonic()
        try:
            for _ in range(self.opt.fills):
                bounded([*fio(disk), "--rw=write", "--bs=256k", "--iodepth=4"], 120, peer.served)
        except Stuck as e:
            raise Stuck(f"before the row, filling: {e}") from None
        rest(peer, disk)
        say(f"  {peer.name}, {record['fabric']}: filled in {time.monotonic() - start:.0f} s")

    def keep(self, record: Record) -> None:
        """Store and report a row's figures."""
        self.records.append(record)
        document = {"options": vars(self.opt), "kernel": os.uname().release, "records": self.records}
        (RESULTS / "bench.json").write_text(json.dumps(document, indent=1))
        head = f"round {record['round'] + 1} {record['peer']}, {record['fabric']}, {record['row']}: "
        figure = f"{record['figure']:.0f} {record['unit']}" if "figure" in record else "no figure"
        failed = f"; {record['failed']}" if "failed" in record else ""
        costs = "".join(f", {k} {v:.2f}" for k, v in record.get("cost", {}).items())
        self.progress.step(head + figure + costs + failed)

    def measure(self, row: Row, peer: Peer, disk: Disk, record: Record) -> None:
        """Fill in a row's figures; Stuck if it fails or does not end, with what was measured till then."""
        if not row.fio:
            rest(peer, disk)  # what the write rows left in a cache is no part of an offload's time
            offload = OFFLOADS[row.key]
            record["figures"] = [
                offload(disk, lambda argv: bounded(argv, self.opt.limit, peer.served)) for _ in range(REPEATS)
            ]
            record["figure"] = statistics.median(record["figures"])
            return
        pid = peer.pid
        before = Counters(pid) if pid else None
        side = self.fio(row, peer, disk, self.opt.seconds)
        ios = side["total_ios"]
        record["figure"] = side["iops"] if row.unit == "IOPS" else side["bw_bytes"] / MiB
        record |= {"ios": ios, "mean_us": side["clat_ns"]["mean"] / 1000}
        record["p99_us"] = side["clat_ns"].get("percentile", {}).get("99.000000", 0) / 1000
        if not pid or not before:
            return
        record["cost"] = {k: v / ios for k, v in Counters(pid).since(before).items()}
        if self.opt.no_strace:
            return
        try:
            rest(peer, disk)  # what the row left to do is not called for by the few I/Os of a traced run
            with traced(pid) as calls:
                traced_ios = self.fio(row, peer, disk, self.opt.strace_seconds)["total_ios"]
        except Stuck as e:
            raise Stuck(f"under strace: {e}") from None
        # Elsewhere the clock is read without the kernel; in User Mode Linux it is a call like any other.
        clock = calls.get("clock_gettime", 0) + calls.get("gettimeofday", 0)
        record["cost"]["system calls"] = (sum(calls.values()) - clock) / traced_ios
        record["cost"]["clock reads"] = clock / traced_ios
        record["system calls"] = {k: v / traced_ios for k, v in sorted(calls.items(), key=lambda kv: -kv[1])}
        record["traced_ios"] = traced_ios

    def fio(self, row: Row, peer: Peer, disk: Disk, seconds: float) -> Record:
        """Run fio and return its report of the side that the row is about."""
        argv = [*fio(disk), *row.fio, "--time_based", f"--runtime={seconds}"]
        text = bounded(argv, seconds + self.opt.limit, peer.served)
        side = json.loads(text[text.index("{") :])["jobs"][0]["read" if row.reads else "write"]
        if not side["total_ios"]:
            raise Stuck("not one I/O completed")
        return side


def fio(disk: Disk) -> list[str]:
    """Return the start of a command line of fio's."""
    common = ["fio", "--name=b", f"--filename={disk.sd}", "--direct=1", "--ioengine=libaio", f"--size={WORKING_SET}"]
    return [*common, "--thread", "--output-format=json", "--randrepeat=1"]


def rest(peer: Peer, disk: Disk) -> None:
    """Let a write cache move what it has to its back end: until the server does next to nothing, or for REST."""
    bounded(["sg_sync", disk.sg], 120, peer.served)
    time.sleep(SETTLE)
    deadline = time.monotonic() + REST
    before = None
    while peer.pid and time.monotonic() < deadline:
        now = Counters(peer.pid)
        if before and now.processor - before.processor < 0.05 * 1e6:
            return
        before = now
        time.sleep(1)


def write_same(disk: Disk, command: Command) -> float:
    """Return the MiB/s of zeroing by WRITE SAME."""
    program = (
        "import fcntl, os, struct, sys, time\n"
        "fd = os.open(sys.argv[1], os.O_RDWR | os.O_DIRECT)\n"
        "start = time.perf_counter()\n"
        "fcntl.ioctl(fd, 0x127F, struct.pack('QQ', int(sys.argv[2]), int(sys.argv[3])))  # BLKZEROOUT\n"
        "print(time.perf_counter() - start)\n"
    )
    argv = [sys.executable, "-c", program, disk.sd, str(SIZE // 2), str(WORKING_SET)]
    return WORKING_SET / MiB / float(command(argv))


def xcopy(disk: Disk, command: Command) -> float:
    """Return the MiB/s of copying inside the LUN, in segments of 16 MiB without a list identifier: what all can."""
    argv = ["sg_xcopy", f"if={disk.sg}", f"of={disk.sg}", "bs=512", f"seek={SIZE // 2 // 512}", "bpt=32768"]
    argv += ["id_usage=disable", f"count={WORKING_SET // 512}", "time=1"]
    said = command(["sh", "-c", 'exec "$@" 2>&1', "sh", *argv])
    found = re.search(r"time to transfer data[^:]*: ([\d.]+) secs", said)
    if not found:
        raise Stuck(f"sg_xcopy did not say how long it took: {said[:200]}")
    return WORKING_SET / MiB / float(found[1])


#: Runs a command in bounded time and returns its output.
Command = Callable[[list[str]], str]

OFFLOADS: dict[str, Callable[[Disk, Command], float]] = {"ws": write_same, "xcopy": xcopy}


def chosen(what: str, names: str, known: dict[str, Any]) -> list[Any]:
    """Return the values of names separated by commas, all if there are none."""
    wanted = [n for n in names.split(",") if n]
    if unknown := [n for n in wanted if n not in known]:
        sys.exit(f"--{what}: no {', '.join(unknown)}; there are {', '.join(known)}")
    return [v for n, v in known.items() if not wanted or n in wanted]


def options() -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--rounds", type=int, default=5, help="default: %(default)s")
    p.add_argument("--seconds", type=float, default=4, help="of a row of fio's (%(default)g)")
    p.add_argument("--fills", type=int, default=3, help="times that the LUN is written before its rows (%(default)s)")
    p.add_argument("--limit", type=float, default=30, help="seconds more after which it did not end (%(default)g)")
    p.add_argument("--strace-seconds", type=float, default=3, help="of a row under strace (%(default)g)")
    p.add_argument("--no-strace", action="store_true", help="do not count system calls")
    p.add_argument("--peers", default="", help=", ".join(p.name for p in PEERS))
    p.add_argument("--fabrics", default="", help=", ".join(FABRICS))
    p.add_argument("--rows", default="", help="; ".join(f"{r.key}: {r.name}" for r in ROWS))
    return p.parse_args()


def main() -> int:
    """Run all turns and print the tables."""
    bench = Bench(options())
    STORE.mkdir(exist_ok=True)
    for module in ("target_core_user", "target_core_file", "iscsi_target_mod", "tcm_loop"):
        run(["modprobe", module])
    with Initiator():
        bench.run()
        text = tables(bench.records, [p.name for p in PEERS], {r.key: r.name for r in ROWS})
        (RESULTS / "bench.md").write_text(text)
        say("\n" + text)
    return 1 if any("failed" in r and r["peer"] == "arraysim" for r in bench.records) else 0


if __name__ == "__main__":
    sys.exit(main())
