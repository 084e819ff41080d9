#!/usr/bin/env python3
"""Measure every row that has a target, and print it beside its target.

Ratios are those of two measurements in turns, and the median of the rounds; what is a rate counts
seconds of processor, since the machine may have other work. Others also change the speed of a
processor. So the rates of the simulator and of the host cache are given in laps of a fixed loop,
too, which runs in turns with them: 1,000 laps are a second of a processor that nobody disturbs
(internal/testkit/pace.go). Rows in the kernel's stack are those of `make vm-bench`. The disk has to
be one: --disk names a folder on it.

Prints a table, and the same as one line of JSON; progress goes to stderr.

    scripts/targets.py --disk /var/tmp --rounds 5
    scripts/targets.py --row 'portal: *'
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import re
import resource
import statistics
import subprocess
import sys
import tempfile
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import destage_bench
from bench import READS, SAMES, WRITES, rounds, say, settle, summary
from harness import REPO, Config, Daemon, GiB, Mdisk, MiB, Pool, Server, Tgtd, Volume, run, tool

#: What a measurement gives: a figure for each row, by name.
Figures = dict[str, list[float]]


def portal(opt: Namespace) -> Figures:
    """Compare the portal with tgtd, both on tmpfs."""
    names = dict(
        zip(READS + WRITES, ["4 KiB read, QD32", "4 KiB read, QD1", "256 KiB read", *WRITE_NAMES], strict=True)
    )
    size = 1024 * MiB
    config = Config(
        pools=[Pool("p0", mdisks=[Mdisk("m0", size=4 * GiB)])], volumes=[Volume("v0", 0, size=size)], cache=32 * MiB
    )
    bench = Namespace(rounds=opt.rounds, seconds=opt.seconds, cache=32, seed=opt.seed)
    makers: dict[str, Callable[[], Server]] = {
        "arraysim": lambda: Daemon(config, "targets"),
        "tgtd": lambda: Tgtd([size]),
    }
    results = rounds(makers, [*names, *SAMES], bench)
    figures: Figures = {}
    for line in summary(results):
        ours, tgtd = results[line["row"]]["arraysim"], results[line["row"]]["tgtd"]
        if name := names.get(line["row"]):
            pairs = list(zip(ours, tgtd, strict=True))
            figures[f"portal: {name}, of tgtd"] = [a["iops"] / b["iops"] for a, b in pairs]
            # A client that is full bounds the rate, but not what the servers' commands cost.
            cost = [b["cpu"] / b["iops"] / (a["cpu"] / a["iops"]) for a, b in pairs if a["cpu"] > 0]
            figures[f"portal: {name}, by processor time"] = cost
            continue
        name = "portal: WRITE SAME of 1 MiB a second"
        if line["row"] == SAMES[0]:
            figures[name] = [a["iops"] for a in ours]
            continue
        figures[f"{name}, batched client"] = [a["iops"] for a in ours]
        # Others may have the processors: what the server would do with one of its own.
        if cost := [100 * a["iops"] / a["cpu"] for a in ours if a["cpu"] > 0]:
            figures[f"{name.replace('a second', 'a CPU second')}, batched client"] = cost
    return figures


WRITE_NAMES = ["4 KiB write, QD32", "4 KiB write, QD1", "256 KiB write"]


@contextmanager
def tests(package: str) -> Iterator[Callable[[str, str], str]]:
    """Compile a package's tests; yields a function that runs benchmarks and returns what they print."""
    with tempfile.TemporaryDirectory(prefix="arraysim-targets-") as folder:
        binary = Path(folder) / "test"
        subprocess.run(["go", "test", "-c", "-vet=off", "-o", binary, package], cwd=REPO, check=True)
        yield lambda which, times: subprocess.run(
            [binary, "-test.run=NONE", f"-test.bench={which}", f"-test.benchtime={times}"],
            cwd=REPO / package,
            check=True,
            capture_output=True,
            text=True,
        ).stdout


def metric(text: str, name: str, unit: str) -> float:
    """Return what a benchmark has printed in a unit."""
    found = re.search(rf"^Benchmark\S*{re.escape(name)}(?:-\d+)?\s.*?([\d.]+) {re.escape(unit)}(?:\s|$)", text, re.M)
    if not found:
        raise SystemExit(f"targets: no {unit} of {name} in:\n{text}")
    return float(found[1])


def parallel(opt: Namespace) -> Figures:
    """Compare two goroutines that submit to an array, or to a pool in an I/O group each, with one, in this process."""
    figures: Figures = {}
    with tests("./internal/array") as bench:
        for row, groups, times in (("read4k", 2, "400000x"), ("write4k", 2, "400000x"), ("write256k", 1, "20000x")):
            name = f"in process: {row.replace('4k', ' 4 KiB').replace('256k', ' 256 KiB')}, "
            name += "two pools" if groups == 2 else "one pool"
            for n in range(opt.rounds):
                out = bench(f"Parallel/{row}/", times)
                one = metric(out, f"{row}/groups=1/pools=1/goroutines=1", "ns/op")
                two = metric(out, f"{row}/groups={groups}/pools=1/goroutines=2", "ns/op")
                figures.setdefault(name, []).append(one / two)
                say(f"round {n + 1}/{opt.rounds} {name}: {one:.0f} and {two:.0f} ns")
    return figures


def simulator(opt: Namespace) -> Figures:
    """Count simulated host I/Os, and references of a host cache, a second of processor and in 1,000 laps."""
    figures: Figures = {}
    with tests("./internal/sim") as sim, tests("./internal/hostcache") as cache:
        for n in range(opt.rounds):
            out = sim("HostIO/4KiB-random-(write|read)$", "1000000x")
            refs = cache("Access/(hits|misses)/lru$", "5000000x")
            say(f"round {n + 1}/{opt.rounds} simulator, LRU")
            for op in ("write", "read"):
                rate = metric(out, f"4KiB-random-{op}", "IO/cpu-s") / 1e6
                figures.setdefault(f"simulator: million 4 KiB {op}s a CPU second", []).append(rate)
                rate = metric(out, f"4KiB-random-{op}", "IO/lap") / 1e3
                figures.setdefault(f"simulator: million 4 KiB {op}s, 1,000 laps", []).append(rate)
            for load in ("hits", "misses"):
                rate = metric(refs, f"{load}/lru", "Mref/s")
                figures.setdefault(f"LRU: million references a CPU second, {load}", []).append(rate)
                rate = metric(refs, f"{load}/lru", "kref/lap")
                figures.setdefault(f"LRU: million references, 1,000 laps, {load}", []).append(rate)
    return figures


def forget(folder: Path) -> None:
    """Have the page cache forget the files of a folder."""
    os.sync()
    for path in folder.rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            try:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(fd)


def misses(opt: Namespace) -> Figures:
    """Compare reads that the page cache lacks with fio's of the same file, past that cache and through it."""
    os.environ["ARRAYSIM_SHM"] = str(opt.disk.resolve())
    size = opt.size * MiB
    config = Config(
        pools=[Pool("p0", mdisks=[Mdisk("m0", size=size + size // 4)])],
        volumes=[Volume("v0", 0, size=size)],
        cache=64 * MiB,
    )
    figures: Figures = {}
    with Daemon(config, "misses") as daemon:
        client = [tool("bench"), "--url", daemon.url(0), "--span", size]
        run([*client, "--row", "fill"], timeout=3600)
        settle(daemon, 600)
        data = max((f for f in daemon.dir.rglob("*") if f.is_file()), key=lambda f: f.stat().st_blocks)
        fio = ["fio", "--name=reads", f"--filename={data}", f"--size={size}", "--readonly", "--rw=randread", "--bs=4k"]
        fio += ["--iodepth=32", "--ioengine=io_uring", "--fadvise_hint=0", "--time_based", f"--runtime={opt.seconds}"]
        who = ["arraysim", "fio", "fio, cached"]
        for n in range(opt.rounds):
            rate, cost = {}, {}
            for name in who if n % 2 == 0 else who[::-1]:
                forget(daemon.dir)
                used = daemon.cpu_seconds() + children()
                if name == "arraysim":
                    args = ["--row", READS[0], "--seconds", opt.seconds, "--seed", opt.seed + n]
                    result = json.loads(run([*client, *args], timeout=600).stdout)
                    ops = result["ops"]
                else:
                    out = run([*fio, f"--direct={int(name == 'fio')}", "--output-format=json"], timeout=600).stdout
                    result = json.loads(out[out.index("{") :])["jobs"][0]["read"]
                    ops = result["total_ios"]
                rate[name] = result["iops"]
                cost[name] = 1e6 * (daemon.cpu_seconds() + children() - used) / ops
            say(
                f"round {n + 1}/{opt.rounds} misses: "
                + "; ".join(f"{w} {rate[w]:.0f} /s, {cost[w]:.1f} us" for w in who)
            )
            for row, value in (
                ("4 KiB read misses, of fio", rate["arraysim"] / rate["fio"]),
                ("4 KiB read misses, of fio in the page cache", rate["arraysim"] / rate["fio, cached"]),
                ("fio in the page cache, of fio", rate["fio, cached"] / rate["fio"]),
                ("processor time of a miss and its client, us", cost["arraysim"]),
            ):
                figures.setdefault(f"disk: {row}", []).append(value)
    return figures


def children() -> float:
    """Return the processor time of this process's children that have ended, in seconds."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def beyond(opt: Namespace) -> Figures:
    """Compare random writes beyond the write cache with fio's durable ones."""
    os.environ["ARRAYSIM_SHM"] = str(opt.disk.resolve())
    args = Namespace(
        size=1024, span=None, cache=64, seconds=opt.seconds, fio="fio", engine="io_uring", seed=opt.seed, against=None
    )
    config = Config(
        pools=[Pool("p0", mdisks=[Mdisk("m0", size=4 * GiB)])],
        volumes=[Volume("v0", 0, size=GiB)],
        cache=64 * MiB,
    )
    ratios = []
    with tempfile.TemporaryDirectory(dir=opt.disk, prefix="arraysim-targets-") as folder:
        for n in range(opt.rounds):
            figures = {}
            for who in ("arraysim", "fio") if n % 2 == 0 else ("fio", "arraysim"):
                if who == "fio":
                    figures[who] = destage_bench.by_fio(args, Path(folder))["iops"]
                else:
                    with Daemon(config, "beyond") as daemon:
                        figures[who] = destage_bench.by_array(daemon, args, opt.seed + n)["iops"]
            say(f"round {n + 1}/{opt.rounds} beyond: {figures['arraysim']:.0f} /s, fio {figures['fio']:.0f} /s")
            ratios.append(figures["arraysim"] / figures["fio"])
    return {"disk: 4 KiB writes beyond the cache, of fio's dsync": ratios}


def calls(opt: Namespace) -> Figures:
    """Count the system calls of the server for one command, from two lengths of a run under strace."""
    config = Config(volumes=[Volume("v0", 0, size=512 * MiB)], cache=1024 * MiB)
    figures: Figures = {}
    with Daemon(config, "calls") as daemon:
        client = [tool("bench"), "--url", daemon.url(0), "--span", 512 * MiB]
        run([*client, "--row", "fill"], timeout=600)
        settle(daemon)
        for row, name in ((READS[1], "read, QD1"), (READS[0], "read, QD32"), (WRITES[1], "write, QD1")):
            for _ in range(opt.rounds):
                counts = [traced(daemon, [*client, "--row", row, "--seconds", s]) for s in (0.5, 2)]
                (short, few), (long, many) = counts
                figures.setdefault(f"calls: {name}", []).append((long - short) / (many - few))
            say(f"calls: {name}: {statistics.median(figures[f'calls: {name}']):.2f}")
    return figures


def traced(daemon: Daemon, command: list[object]) -> tuple[int, int]:
    """Run a client while the server is traced; return system calls and commands."""
    assert daemon.proc is not None
    with tempfile.NamedTemporaryFile("r") as out:
        strace = subprocess.Popen(
            ["strace", "-c", "-f", "-p", str(daemon.proc.pid), "-o", out.name],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert strace.stderr is not None
        strace.stderr.readline()  # it is attached
        ops = json.loads(run(command, timeout=600).stdout)["ops"]
        strace.terminate()
        strace.wait()
        total = re.search(r"^100\.00\s+\S+\s+(?:\S+\s+)?(\d+)\s+(?:\d+\s+)?total$", out.read(), re.M)
        if not total:
            raise SystemExit("targets: strace has no total")
        return int(total[1]), ops


#: What is measured together, and the targets of its rows; system calls are to stay below theirs.
GROUPS: list[tuple[Callable[[Namespace], Figures], dict[str, float]]] = [
    (
        parallel,
        {
            "in process: read 4 KiB, two pools": 1.8,
            "in process: write 4 KiB, two pools": 1.8,
            "in process: write 256 KiB, one pool": 1.6,
        },
    ),
    (
        portal,
        {
            "portal: 4 KiB read, QD32, of tgtd": 4,
            "portal: 4 KiB write, QD32, of tgtd": 4,
            "portal: 4 KiB read, QD1, of tgtd": 1.5,
            "portal: 4 KiB write, QD1, of tgtd": 1.5,
            "portal: 256 KiB read, of tgtd": 4,
            "portal: 256 KiB write, of tgtd": 2.5,
            "portal: WRITE SAME of 1 MiB a second": 250_000,
            "portal: WRITE SAME of 1 MiB a second, batched client": 250_000,
        },
    ),
    (calls, {"calls: read, QD1": 4, "calls: read, QD32": 0.5, "calls: write, QD1": 4}),
    (misses, {"disk: 4 KiB read misses, of fio": 0.85}),
    (beyond, {"disk: 4 KiB writes beyond the cache, of fio's dsync": 0.6}),
    (
        simulator,
        {
            "simulator: million 4 KiB writes a CPU second": 1.0,
            "simulator: million 4 KiB reads a CPU second": 1.5,
            "simulator: million 4 KiB writes, 1,000 laps": 1.0,
            "simulator: million 4 KiB reads, 1,000 laps": 1.5,
            "LRU: million references a CPU second, hits": 24,
            "LRU: million references a CPU second, misses": 12,
            "LRU: million references, 1,000 laps, hits": 24,
            "LRU: million references, 1,000 laps, misses": 12,
        },
    ),
]


def options() -> Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument(
        "--disk", type=Path, default=Path("/var/tmp"), metavar="FOLDER", help="on a real disk (default /var/tmp)"
    )
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=3, help="of one measurement (default 3)")
    p.add_argument("--size", type=int, default=4096, help="of the LUN whose reads miss, in MiB (default 4096)")
    p.add_argument("--row", default="*", metavar="PATTERN", help="only rows whose names fit")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json", type=Path, help="write the JSON to this file too")
    return p.parse_args()


def main() -> None:
    """Measure and report."""
    opt = options()
    lines = []
    for measure, targets in GROUPS:
        if not fnmatch.filter(targets, opt.row):
            continue
        shm = os.environ.pop("ARRAYSIM_SHM", None)
        figures = measure(opt)
        os.environ.pop("ARRAYSIM_SHM", None)
        if shm is not None:
            os.environ["ARRAYSIM_SHM"] = shm
        for row, v in figures.items():
            if not fnmatch.fnmatch(row, opt.row):
                continue
            line = {"row": row, "median": statistics.median(v), "min": min(v), "max": max(v)}
            if (target := targets.get(row)) is not None:
                line["target"] = target
                line["met"] = line["median"] <= target if measure is calls else line["median"] >= target
            lines.append(line)
    if not lines:
        sys.exit(f"targets: no row fits {opt.row!r}; the names: " + "; ".join(r for _, t in GROUPS for r in t))
    print(f"{opt.rounds} rounds, {opt.seconds:g} s a measurement, {os.cpu_count()} processors")
    for x in lines:
        figure = (
            f"{x['median']:.3g} ({x['min']:.3g} to {x['max']:.3g})" if x["median"] < 1000 else f"{x['median']:,.0f}"
        )
        aim = f"target {x['target']:<8,g} {'met' if x['met'] else 'missed'}" if "target" in x else ""
        print(f"{x['row']:54} {figure:24} {aim}".rstrip())
    text = json.dumps({"rounds": opt.rounds, "rows": lines})
    print(text)
    if opt.json:
        opt.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
