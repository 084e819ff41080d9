#!/usr/bin/env python3
"""Measure an array in a Ceph pool beside `rados bench`: one cluster of three OSDs in memory, in turns, depth 32.

Three are compared, which take turns within each round, and of which another one begins each round:

    bench    rados bench: bare objects, of the size of its operations
    store    the store without the array: an mdisk, and commits of 4 KiB to the replicated log
    hosts    the daemon with a replicated log, by iSCSI

Prints medians, ranges and ratios to `rados bench` of the same round, and the same as a line of JSON.

    scripts/rados_bench.py --rounds 5 --seconds 4
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests"))
from cluster import BINARY, Ceph  # noqa: E402
from harness import CACHE, Config, Daemon, Mdisk, MiB, Pool, Volume, run, tool  # noqa: E402

#: Rows: what each of the three calls it. The second of the store writes without the log.
ROWS = {
    "256 KiB writes": ("write-256k", "seqwrite-256k-qd32"),
    "4 KiB writes": ("log-4k", "randwrite-4k-qd32"),
    "256 KiB reads": ("read-256k", "seqread-256k-qd32"),
    "4 KiB reads": ("read-4k", "randread-4k-qd32"),
}
TARGETS = {"256 KiB writes": 0.7, "4 KiB writes": 1.5, "256 KiB reads": 0.8, "4 KiB reads": 0.8}

Rates = dict[str, float]


def options() -> argparse.Namespace:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--rounds", type=int, default=6)
    p.add_argument("--seconds", type=int, default=3, help="of a row (3)")
    p.add_argument("--store", choices=["memstore", "bluestore"], default="memstore", help="of the OSDs")
    p.add_argument("--cache", type=int, default=32, help="the array's write cache, in MiB (32)")
    p.add_argument("--size", type=int, default=256, help="of the LUN, in MiB (256)")
    p.add_argument(
        "--only", choices=["bench", "store", "hosts"], action="append", help="measure this alone (repeatable)"
    )
    return p.parse_args()


class Bench:
    """rados bench."""

    def __init__(self, ceph: Ceph, opt: argparse.Namespace) -> None:
        about = ceph.pool
        self.seconds = opt.seconds
        self.argv = ["rados", "--conf", about["conf"], "--id", about["user"], "--keyring", about["keyring"]]
        self.argv += ["-p", about["pool"], "-N", "bench"]

    def rates(self) -> Rates:
        out = {}
        for size, name in ((256 << 10, "256 KiB"), (4096, "4 KiB")):
            for kind, args in (("writes", ["write", "-b", size, "--no-cleanup"]), ("reads", ["rand"])):
                text = run([*self.argv, "bench", self.seconds, *args, "-t", 32], timeout=300).stdout
                out[f"{name} {kind}"] = float(re.search(r"^Average IOPS:\s+([\d.]+)", text, re.M)[1])
            run([*self.argv, "cleanup"], timeout=300)
        return out


class Store:
    """The store, by its own test."""

    def __init__(self, ceph: Ceph, opt: argparse.Namespace) -> None:
        self.seconds = opt.seconds
        self.env = {**os.environ, "ARRAYSIM_CEPH_CONF": ceph.about["conf"]}
        self.test = CACHE / "rados-rates.test"
        package = "./internal/store/rados"
        build = ["go", "test", "-c", "-trimpath", "-tags", "rados", "-o", self.test, package]
        subprocess.run([str(a) for a in build], cwd=REPO, check=True, env={**os.environ, "CGO_ENABLED": "0"})

    def rates(self) -> Rates:
        rows = ["fill", *(store for store, _ in ROWS.values())]
        argv = [self.test, "-test.run", "TestRates", "-rates", f"rates {self.seconds} {' '.join(rows)}"]
        done = subprocess.run(
            [str(a) for a in argv], cwd=REPO / "internal/store/rados", env=self.env, capture_output=True, text=True
        )
        if done.returncode:
            raise SystemExit(f"rados_bench: {done.stdout}{done.stderr}")
        found = {m[1]: float(m[2]) for m in re.finditer(r"^rate (\S+) ([\d.]+)$", done.stdout, re.M)}
        return {row: found[store] for row, (store, _) in ROWS.items()}


class Hosts:
    """A daemon, and a host that writes to it by iSCSI."""

    def __init__(self, ceph: Ceph, opt: argparse.Namespace) -> None:
        self.opt = opt
        os.environ["ARRAYSIM_BIN"], os.environ["ARRAYSIM_CEPH_CONF"] = str(BINARY), ceph.about["conf"]
        size = opt.size * MiB
        config = Config(
            [Pool("p0", mdisks=[Mdisk("m0", 4 * size)])], [Volume("v0", 0, size=size)], cache=opt.cache * MiB
        )
        self.daemon = Daemon(config, "rados-bench")
        self.daemon.start()
        self.row("fill")

    def row(self, name: str) -> float:
        """Measure a row; one that writes carries at least twice the write cache."""
        end = time.monotonic() + 120
        while self.daemon.metrics().sum("cache_dirty_bytes") > 0 and time.monotonic() < end:
            time.sleep(0.05)
        least = 2 * self.opt.cache * MiB if "write-256k" in name else 0
        args = ["--row", name, "--seconds", self.opt.seconds, "--bytes", least]
        return json.loads(run([tool("bench"), "--url", self.daemon.url(0), *args], timeout=300).stdout)["iops"]

    def rates(self) -> Rates:
        return {row: self.row(name) for row, (_, name) in ROWS.items()}

    def close(self) -> None:
        self.daemon.stop()
        self.daemon.cleanup()


def show(results: dict[str, list[Rates]], loads: list[float], opt: argparse.Namespace) -> None:
    """Print what was measured."""
    print(
        f"{opt.rounds} rounds of {opt.seconds} s a row, depth 32, three OSDs ({opt.store}), three copies, "
        f"write cache {opt.cache} MiB; load average {min(loads):.0f} to {max(loads):.0f}"
    )
    table = []
    for row in ROWS:
        line: dict[str, object] = {"row": row}
        text = f"{row:15}"
        for name, rounds in results.items():
            values = [r[row] for r in rounds]
            line[name] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
            text += f"  {name} {statistics.median(values):6.0f}/s ({min(values):.0f}-{max(values):.0f})"
            if name != "bench" and "bench" in results:
                ratios = [r[row] / b[row] for r, b in zip(rounds, results["bench"], strict=True)]
                line[name] |= {"ratio": statistics.median(ratios), "ratios": [min(ratios), max(ratios)]}
                text += f" = {statistics.median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})"
        print(f"{text}  target {TARGETS[row]}")
        table.append(line)
    print(json.dumps({"rounds": opt.rounds, "seconds": opt.seconds, "load": loads, "rows": table}))


def main() -> None:
    opt = options()
    with Ceph(3, "--memory", 6144, "--store", opt.store) as ceph:
        makers = {"bench": Bench, "store": Store, "hosts": Hosts}
        subjects = {name: make(ceph, opt) for name, make in makers.items() if name in (opt.only or makers)}
        try:
            results: dict[str, list[Rates]] = {name: [] for name in subjects}
            loads = []
            for n in range(opt.rounds):
                names = list(subjects)
                for name in names[n % len(names) :] + names[: n % len(names)]:
                    results[name].append(subjects[name].rates())
                    loads.append(os.getloadavg()[0])
                    rates = ", ".join(f"{row} {rate:.0f}" for row, rate in results[name][-1].items())
                    print(f"round {n + 1}: {name:5} {rates}; load {loads[-1]:.0f}", file=sys.stderr, flush=True)
        finally:
            if "hosts" in subjects:
                subjects["hosts"].close()
    show(results, loads, opt)


if __name__ == "__main__":
    main()
