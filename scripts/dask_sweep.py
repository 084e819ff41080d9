#!/usr/bin/env python3
"""Runs a sweep on the workers of a Dask cluster.

    scripts/dask_sweep.py --scheduler tcp://host:8786 plan.yaml rows --merge all.parquet

The plan is divided into shards, and each shard is one task: `arraysim sim --sweep PLAN --rows ROWS --shard I/N`
in a process of its own on some worker. The workers see the plan, the scenario and the folder ROWS under the same
paths, as on a shared file system, and have the same arraysim. A shard whose worker dies is started again on
another one, and goes on behind the rows that are in the folder. It needs the package `distributed`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from distributed import Client, as_completed

BINARY = Path(__file__).resolve().parents[1] / "bin" / "arraysim"


def run_shard(command: list[str], index: int, shards: int) -> str:
    """Run a shard on a worker; return its last line."""
    out = subprocess.run([*command, "--shard", f"{index}/{shards}"], capture_output=True, text=True)
    if out.returncode != 0:
        raise RuntimeError(out.stderr.strip() or f"shard {index} of {shards} ended with {out.returncode}")
    return out.stdout.strip()


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("rows", type=Path, help="folder of the rows, which all workers share")
    parser.add_argument("--scheduler", required=True, metavar="ADDRESS", help="such as tcp://host:8786")
    parser.add_argument("--shards", type=int, help="parts of the work (default: 8 a worker thread)")
    parser.add_argument("--merge", type=Path, help="put the rows together into this file in the end")
    parser.add_argument("--arraysim", type=Path, default=BINARY, help=f"the program on the workers (default: {BINARY})")
    parser.add_argument("--retries", type=int, default=2, help="of a shard that fails (default: 2)")
    args = parser.parse_args()
    command = [str(args.arraysim), "sim", "--sweep", str(args.plan.resolve()), "--rows", str(args.rows.resolve())]
    with Client(args.scheduler) as client:
        threads = sum(client.nthreads().values())
        if not threads:
            parser.error(f"the scheduler {args.scheduler} has no workers; start some by: dask worker {args.scheduler}")
        shards = args.shards or 8 * threads
        # A thread of a worker is one processor: a shard takes no more.
        tasks = [
            client.submit(run_shard, [*command, "--jobs", "1"], i, shards, pure=False, retries=args.retries)
            for i in range(shards)
        ]
        for done, task in enumerate(as_completed(tasks), 1):
            if task.status == "error":
                print(f"dask_sweep: {task.exception()}", file=sys.stderr)
                return 1
            print(f"{done} of {shards} shards: {task.result()}", flush=True)
    if args.merge:
        return subprocess.run([*command, "--merge", os.fspath(args.merge)]).returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
