#!/usr/bin/env python3
"""Compare arraysim with tgtd, or with another build of itself: one client, the same rows, in alternation.

arraysim runs with its store on tmpfs and a write cache much smaller than what
the write rows write; tgtd with a file on tmpfs (backing store rdwr). Each round
fills both LUNs with random data and then runs every row on both, changing who
goes first. Before a row starts, the write cache is empty.

Prints a table of medians with ranges, and the same as one line of JSON;
progress goes to stderr.

    scripts/bench.py --against before/bin/arraysim --rounds 7
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from harness import Config, Daemon, GiB, Mdisk, MiB, Pool, Server, Tgtd, Volume, run, tool  # noqa: E402

READS = ["randread-4k-qd32", "randread-4k-qd1", "seqread-256k-qd8"]
WRITES = ["randwrite-4k-qd32", "randwrite-4k-qd1", "seqwrite-256k-qd8"]
#: WRITE SAME by libiscsi's own system calls, and by one for many commands.
SAMES = ["writesame-1m-qd32", "writesame-1m-qd32-batched"]
ROWS = [READS[0], WRITES[0], READS[1], WRITES[1], READS[2], WRITES[2], *SAMES]
#: Rows whose figure is a bandwidth; the others are read in commands a second.
BANDWIDTH = {"seqread-256k-qd8", "seqwrite-256k-qd8"}

#: What is compared: how one of each is made, to be started.
Makers = dict[str, Callable[[], Server]]


def options() -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=6, help="an even number, so that each goes first as often (default 6)")
    p.add_argument("--seconds", type=float, default=3, help="of one row on one target (default 3)")
    p.add_argument("--size", type=int, default=1024, help="of the LUN, in MiB (default 1024)")
    p.add_argument("--cache", type=int, default=32, help="arraysim's write cache, in MiB (default 32)")
    p.add_argument("--row", action="append", choices=ROWS, help="only this row (repeatable)")
    p.add_argument("--against", type=Path, metavar="BINARY", help="another build of arraysim, in tgtd's place")
    p.add_argument("--only", choices=["arraysim", "tgtd"], help="measure one target alone")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json", type=Path, help="write the JSON to this file too")
    return p.parse_args()


class Build(Daemon):
    """A daemon of another build."""

    def __init__(self, config: Config, name: str, build: Path) -> None:
        """Prepare it; build is its binary."""
        super().__init__(config, name)
        self.build = build

    def command(self) -> list[str | Path]:
        """Return how to start it."""
        return [self.build.absolute(), *super().command()[1:]]


def say(text: str) -> None:
    """Report progress."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", file=sys.stderr, flush=True)


def settle(server: Server, timeout: float = 60) -> None:
    """Wait until arraysim has destaged everything; tgtd has no cache."""
    deadline = time.monotonic() + timeout
    while isinstance(server, Daemon) and server.metrics().sum("cache_dirty_bytes") > 0:
        if time.monotonic() > deadline:
            raise SystemExit("bench: the write cache does not drain")
        time.sleep(0.05)


def measure(server: Server, row: str, opt: argparse.Namespace, seed: int) -> dict[str, float]:
    """Run one row on one target."""
    # The write rows carry at least four times the write cache.
    least = 4 * opt.cache * MiB if row in WRITES else 0
    settle(server)
    before = server.cpu_seconds()
    args = ["--row", row, "--seconds", opt.seconds, "--bytes", least, "--seed", seed]
    out = run([tool("bench"), "--url", server.url(0), *args], timeout=300)
    result = json.loads(out.stdout)
    result["cpu"] = 100 * (server.cpu_seconds() - before) / result["seconds"]
    return result


def rounds(
    makers: dict[str, Callable[[], Server]], rows: list[str], opt: argparse.Namespace
) -> dict[str, dict[str, list[dict]]]:
    """Run everything; return results[row][server]."""
    results: dict[str, dict[str, list[dict]]] = {r: {s: [] for s in makers} for r in rows}
    for n in range(opt.rounds):
        names = list(makers) if n % 2 == 0 else list(makers)[::-1]
        with ExitStack() as stack:
            servers = {name: stack.enter_context(makers[name]()) for name in names}
            for name in names:
                fill = measure(servers[name], "fill", opt, opt.seed + n)
                say(f"round {n + 1}/{opt.rounds}: filled {name} at {fill['mib_s']:.0f} MiB/s")
            for row in rows:
                for name in names:
                    r = measure(servers[name], row, opt, opt.seed + n)
                    results[row][name].append(r)
                    say(
                        f"  {row:25} {name:9} {r['iops']:9.0f} /s {r['mib_s']:8.0f} MiB/s  "
                        f"p50 {r['p50_us']:.0f} us  p99 {r['p99_us']:.0f} us  CPU {r['cpu']:.0f} %"
                    )
    return results


def summary(results: dict[str, dict[str, list[dict]]]) -> list[dict]:
    """Make medians, ranges and ratios of what was measured."""
    table = []
    for row, by_server in results.items():
        key = "mib_s" if row in BANDWIDTH else "iops"
        line: dict = {"row": row, "unit": "MiB/s" if row in BANDWIDTH else "/s"}
        for name, runs in by_server.items():
            values = [r[key] for r in runs]
            line[name] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
            for extra in ("p50_us", "p99_us", "cpu"):
                line[name][extra] = statistics.median(r[extra] for r in runs)
        if len(by_server) == 2:
            pairs = zip(*by_server.values(), strict=True)
            ratios = [ours[key] / other[key] for ours, other in pairs]
            line["ratio"] = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
        table.append(line)
    return table


def show(table: list[dict], names: list[str]) -> None:
    """Print the table for a person."""
    head = f"{'row':25} {'':5}"
    for n in names:
        head += f" {n + ' median (range)':>28} {'p50 us':>8} {'p99 us':>8} {'CPU %':>6}"
    print(head + ("   ratio (range)" if len(names) == 2 else ""))
    for line in table:
        text = f"{line['row']:25} {line['unit']:5}"
        for n in names:
            s = line[n]
            span = f"{s['median']:.0f} ({s['min']:.0f}-{s['max']:.0f})"
            text += f" {span:>28} {s['p50_us']:8.0f} {s['p99_us']:8.0f} {s['cpu']:6.0f}"
        if r := line.get("ratio"):
            text += f"  {r['median']:5.2f}x ({r['min']:.2f}-{r['max']:.2f})"
        print(text)


def main() -> None:
    """Measure and report."""
    opt = options()
    rows = opt.row or ROWS
    size = opt.size * MiB
    config = Config(
        pools=[Pool("p0", mdisks=[Mdisk("m0", size=max(4 * size, 4 * GiB))])],
        volumes=[Volume("v0", 0, size=size)],
        cache=opt.cache * MiB,
    )
    makers: Makers = {}
    if opt.only != "tgtd":
        makers["arraysim"] = lambda: Daemon(config, "bench")
    if opt.only != "arraysim":
        if opt.against:
            makers["before"] = lambda: Build(config, "before", opt.against)
        else:
            makers["tgtd"] = lambda: Tgtd([size])
    results = rounds(makers, rows, opt)
    table = summary(results)
    print(f"{opt.rounds} rounds of {opt.seconds:g} s a row, LUN {opt.size} MiB, write cache {opt.cache} MiB")
    show(table, list(makers))
    text = json.dumps({"rounds": opt.rounds, "seconds": opt.seconds, "cache_mib": opt.cache, "rows": table})
    print(text)
    if opt.json:
        opt.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
