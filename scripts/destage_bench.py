#!/usr/bin/env python3
"""Compare random writes that go on beyond the write cache with what the disk under it does for fio.

4 KiB random writes at depth 32 to a LUN that was filled before, for much longer than the write cache
takes, in alternation with fio's durable writes (--sync=dsync) of the same size and depth to a file of
the same size in the same file system, and perhaps with another build of arraysim. The data folder has
to be on a disk: on tmpfs nothing is ever flushed.

Prints a table of medians with ranges, ratios to fio's round by round, and the same as one line of
JSON; progress goes to stderr.

    scripts/destage_bench.py --data /var/tmp --against before/bin/arraysim --rounds 5
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import tempfile
from pathlib import Path

from bench import Build, say, settle
from harness import Config, Daemon, GiB, Mdisk, MiB, Pool, Volume, run, tool

ROW = "randwrite-4k-qd32"


def options() -> argparse.Namespace:
    """Parse the command line."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="on the disk to be measured")
    p.add_argument("--rounds", type=int, default=5)
    p.add_argument("--seconds", type=float, default=10, help="of one measurement (default 10)")
    p.add_argument("--size", type=int, default=1024, help="of the LUN, in MiB (default 1024)")
    p.add_argument("--span", type=int, help="of it, in MiB, what is filled and written to (default: all)")
    p.add_argument("--sparse", action="store_true", help="fill nothing first; fio gets a file of 1 GiB at most")
    p.add_argument("--cache", type=int, default=64, help="arraysim's write cache, in MiB (default 64)")
    p.add_argument("--against", type=Path, metavar="BINARY", help="another build of arraysim, too")
    p.add_argument("--fio", default="fio", metavar="PROGRAM")
    p.add_argument("--engine", default="io_uring", choices=["io_uring", "libaio"], help="fio's")
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--json", type=Path, help="write the JSON to this file too")
    return p.parse_args()


def by_fio(opt: argparse.Namespace, folder: Path) -> dict[str, float]:
    """Let fio write to a file that has all its blocks."""
    span = opt.span or opt.size
    size = f"--size={min(span, 1024) if opt.sparse else span}m"
    common = [opt.fio, "--name=dsync", f"--filename={folder / 'file'}", size, "--output-format=json"]
    if not (folder / "file").exists():
        run([*common, "--rw=write", "--bs=1m", "--ioengine=psync", "--end_fsync=1"], timeout=600)
    args = ["--rw=randwrite", "--bs=4k", "--iodepth=32", f"--ioengine={opt.engine}", "--direct=1", "--sync=dsync"]
    out = run([*common, *args, "--time_based", f"--runtime={opt.seconds}"], timeout=600).stdout
    job = json.loads(out[out.index("{") :])["jobs"][0]
    # The time of fio's own threads; what the kernel's do for it is not in it.
    cpu = job["job_runtime"] / 1000 * (job["usr_cpu"] + job["sys_cpu"]) / 100
    lat = job["write"]["clat_ns"]["percentile"]
    return {
        "iops": job["write"]["iops"],
        "p50_us": lat["50.000000"] / 1000,
        "p99_us": lat["99.000000"] / 1000,
        "cpu_us": 1e6 * cpu / job["write"]["total_ios"],
    }


def by_array(daemon: Daemon, opt: argparse.Namespace, seed: int) -> dict[str, float]:
    """Fill the LUN, unless it shall be sparse, then write at random places of it."""
    client = [tool("bench"), "--url", daemon.url(0), "--span", (opt.span or opt.size) * MiB, "--seed", seed]
    if not opt.sparse:
        run([*client, "--row", "fill"], timeout=3600)
    settle(daemon, 600)
    before = daemon.cpu_seconds()
    args = ["--row", ROW, "--seconds", opt.seconds, "--bytes", 4 * opt.cache * MiB]
    result = json.loads(run([*client, *args], timeout=600).stdout)
    result["cpu_us"] = 1e6 * (daemon.cpu_seconds() - before) / result["ops"]
    return {k: result[k] for k in ("iops", "p50_us", "p99_us", "cpu_us")}


def show(names: list[str], results: dict[str, list[dict[str, float]]], opt: argparse.Namespace) -> None:
    """Print medians, ranges and ratios."""
    table = []
    for name in names:
        line: dict = {"name": name}
        for key in ("iops", "p50_us", "p99_us", "cpu_us"):
            values = [r[key] for r in results[name]]
            line[key] = {"median": statistics.median(values), "min": min(values), "max": max(values)}
        ratios = [r["iops"] / f["iops"] for r, f in zip(results[name], results["fio"], strict=True)]
        line["to_fio"] = {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}
        table.append(line)
    span = opt.span or opt.size
    print(f"{opt.rounds} rounds of {opt.seconds:g} s, {span} MiB, write cache {opt.cache} MiB, fio by {opt.engine}")
    for line in table:
        i, q = line["iops"], line["to_fio"]
        print(
            f"{line['name']:9} {i['median']:8.0f} /s ({i['min']:.0f}-{i['max']:.0f})  "
            f"p50 {line['p50_us']['median']:.0f} us  p99 {line['p99_us']['median']:.0f} us  "
            f"{line['cpu_us']['median']:.1f} us of processor  {q['median']:5.2f} of fio ({q['min']:.2f}-{q['max']:.2f})"
        )
    text = json.dumps({"rounds": opt.rounds, "cache_mib": opt.cache, "size_mib": opt.span or opt.size, "rows": table})
    print(text)
    if opt.json:
        opt.json.write_text(text + "\n")


def main() -> None:
    """Measure and report."""
    opt = options()
    os.environ["ARRAYSIM_SHM"] = str(opt.data.resolve())
    size = opt.size * MiB
    config = Config(
        pools=[Pool("p0", mdisks=[Mdisk("m0", size=max(size + size // 4, 4 * GiB))])],
        volumes=[Volume("v0", 0, size=size)],
        cache=opt.cache * MiB,
    )
    if shutil.which(opt.fio) is None:
        raise SystemExit(f"destage_bench: {opt.fio} is not installed; name it with --fio")
    names = ["arraysim", *(["before"] if opt.against else []), "fio"]
    results: dict[str, list[dict[str, float]]] = {n: [] for n in names}
    with tempfile.TemporaryDirectory(dir=opt.data, prefix="destage-bench-") as folder:
        for n in range(opt.rounds):
            for name in names if n % 2 == 0 else names[::-1]:
                if name == "fio":
                    r = by_fio(opt, Path(folder))
                else:
                    made = Build(config, name, opt.against) if name == "before" else Daemon(config, "destage")
                    with made as daemon:
                        r = by_array(daemon, opt, opt.seed + n)
                results[name].append(r)
                say(
                    f"round {n + 1}/{opt.rounds} {name:9} {r['iops']:8.0f} /s  p50 {r['p50_us']:.0f} us  "
                    f"p99 {r['p99_us']:.0f} us  {r['cpu_us']:.1f} us of processor"
                )
    show(names, results, opt)


if __name__ == "__main__":
    main()
