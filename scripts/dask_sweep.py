#!/usr/bin/env python3
"""Runs a sweep on the workers of a Dask cluster.

    scripts/dask_sweep.py --scheduler tcp://host:8786 plan.yaml rows --merge all.parquet

The plan is divided into shards, and each shard is one task: `arraysim sim --sweep PLAN --rows ROWS --shard I/N`
in a process of its own on some worker, which ends with the worker. The workers see the plan, the scenario and the
folder ROWS under the same paths, as on a shared file system, and have the same arraysim. A shard whose worker dies is
started again on another one, and goes on behind the rows that are in the folder. A run that fails has a row with its
error; the others go on and are merged, and the script ends with status 1. It needs the package `distributed`.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

BINARY = Path(__file__).resolve().parents[1] / "bin" / "arraysim"

# A process of its own, so that nothing runs between fork and exec in a worker, which has threads. The signal goes
# with the process over execve; a parent that was gone before is another one now. It is SIGKILL, since arraysim ends its
# runs first on SIGTERM; files of rows appear whole or not at all.
END_WITH_PARENT = """
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() != int(sys.argv[1]):
    sys.exit("the worker is gone")
try:
    os.execvp(sys.argv[2], sys.argv[2:])
except OSError as e:
    sys.exit(f"{sys.argv[2]}: {e.strerror}")
"""


RUNS_FAILED = 3  # the exit status of arraysim if all rows are written and some are of runs that failed


def run_shard(command: list[str], index: int, shards: int) -> dict[str, int]:
    """Run a shard on a worker; return how far it went. Runs that failed have their rows, and are no error."""
    wrapped = [sys.executable, "-c", END_WITH_PARENT, str(os.getpid()), *command, "--shard", f"{index}/{shards}"]
    out = subprocess.run(wrapped, capture_output=True, text=True)
    if out.returncode in (0, RUNS_FAILED):
        try:
            done = json.loads(out.stdout)
            if done["before"] + done["ran"] == done["shard"]:
                return done
        except (ValueError, KeyError, TypeError):
            pass
    raise RuntimeError(out.stderr.strip() or f"shard {index} of {shards} ended with {out.returncode}")


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan", type=Path)
    parser.add_argument("rows", type=Path, help="folder of the rows, which all workers share")
    parser.add_argument("--scheduler", required=True, metavar="ADDRESS", help="such as tcp://host:8786")
    parser.add_argument("--shards", type=int, help="parts of the work (default: 8 a worker thread)")
    parser.add_argument("--merge", type=Path, help="put the rows together into this file in the end")
    parser.add_argument("--arraysim", type=Path, default=BINARY, help=f"the program on the workers (default: {BINARY})")
    parser.add_argument("--retries", type=int, default=2, help="of a shard that breaks off (default: 2)")
    args = parser.parse_args()
    from distributed import Client, as_completed  # a second of a processor, which a shard alone has no use for

    command = [str(args.arraysim), "sim", "--sweep", str(args.plan.resolve()), "--rows", str(args.rows.resolve())]
    with Client(args.scheduler) as client:
        threads = sum(client.nthreads().values())
        if not threads:
            parser.error(f"the scheduler {args.scheduler} has no workers; start some by: dask worker {args.scheduler}")
        shards = args.shards or 8 * threads
        # A thread of a worker is one processor: a shard takes no more.
        tasks = [
            client.submit(run_shard, [*command, "--jobs", "1", "--json"], i, shards, pure=False, retries=args.retries)
            for i in range(shards)
        ]
        failed = broken = 0
        for done, task in enumerate(as_completed(tasks), 1):
            if task.status == "finished":
                result = task.result()
                failed += result["failed"]
                text = "{before} rows were there, {ran} runs ended now, {failed} of all have an error".format(**result)
            else:
                broken += 1
                text = f"broken off: {task.exception() if task.status == 'error' else task.status}"
            print(f"{done} of {shards} shards: {text}", flush=True)
    if broken:
        print(f"dask_sweep: {broken} shards broke off; the same command goes on behind their rows", file=sys.stderr)
        return 1
    merged = 0
    if args.merge:
        merged = subprocess.run([*command, "--merge", os.fspath(args.merge)]).returncode
    if failed:
        print(f"dask_sweep: {failed} runs ended with an error; their column error says why", file=sys.stderr)
    return merged or int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
