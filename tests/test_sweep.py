"""Sweeps on several workers: nothing is lost and nothing is there twice, whoever dies meanwhile."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import REPO, binary, free_port, run
from later import Later

duckdb = Later("duckdb")

PLANS = REPO / "testdata" / "sweeps"


def plan(folder: Path, points: int) -> Path:
    """Write the plan of 20 times so many runs."""
    shutil.copy(PLANS / "tiny.yaml", folder)
    text, found = re.subn(r"points: \d+", f"points: {points}", (PLANS / "plan.yaml").read_text())
    assert found == 1
    path = folder / "plan.yaml"
    path.write_text(text)
    return path


@contextmanager
def process(*args: object) -> Iterator[subprocess.Popen[bytes]]:
    """A process in a group of its own, killed in the end with all that it has started."""
    p = subprocess.Popen(
        [str(a) for a in args], start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield p
    finally:
        try:
            os.killpg(p.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        p.wait()


def parts(folder: Path) -> list[Path]:
    """Return the files of rows that the folder has."""
    return list(folder.glob("rows-*.parquet"))


def rows(files: list[Path]) -> int:
    """Return how many rows the files have."""
    if not files:
        return 0
    return duckdb.sql(f"select count(*) from read_parquet({[str(f) for f in files]})").fetchall()[0][0]


@dataclass
class Crew:
    """A scheduler of Dask, by its address, and its workers that live, of a thread each."""

    address: str
    workers: list[subprocess.Popen[bytes]]


@pytest.fixture(scope="module")
def crew(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crew]:
    """Four workers: each of the processes imports Dask for as long as it runs the sweeps of these tests."""
    port, folder = free_port(), tmp_path_factory.mktemp("crew")
    address = f"tcp://127.0.0.1:{port}"
    with ExitStack() as stack:
        start = lambda name, *args: stack.enter_context(  # noqa: E731
            process(sys.executable, "-m", f"distributed.cli.{name}", *args)
        )
        start("dask_scheduler", "--host", "127.0.0.1", "--port", port, "--no-dashboard", "--no-show")
        workers = [
            start("dask_worker", address, "--host", "127.0.0.1", "--nthreads", "1", "--no-nanny", "--no-dashboard",
                  "--death-timeout", "60", "--local-directory", folder / f"worker{i}")
            for i in range(4)
        ]  # fmt: skip
        wait_for_workers(address, len(workers))
        yield Crew(address, workers)


@pytest.mark.slow
@pytest.mark.parametrize("points", [8, pytest.param(500, marks=pytest.mark.proof)], ids=["160 runs", "10,000 runs"])
def test_a_worker_dies(tmp_path: Path, crew: Crew, points: int) -> None:
    """A scheduler and four workers; one of them is killed when a part of the rows is there."""
    file, all_rows, total = plan(tmp_path, points), tmp_path / "rows", 20 * points
    with process(sys.executable, REPO / "scripts" / "dask_sweep.py", file, all_rows, "--scheduler", crew.address,
                 "--shards", 20, "--arraysim", binary(), "--merge", tmp_path / "all.parquet") as sweep:  # fmt: skip
        for _ in range(60000):  # no question to duckdb, whose first one imports it: the sweep would end meanwhile
            if parts(all_rows) or sweep.poll() is not None:
                break
            time.sleep(0.01)
        there = parts(all_rows)
        os.kill(crew.workers.pop().pid, signal.SIGKILL)  # and not what it has started
        before = rows(there)
        assert 0 < before < total, f"{before} rows were there when the worker was killed"
        assert sweep.wait(3600) == 0
    check(tmp_path, file, all_rows, total)


@pytest.mark.slow
def test_a_run_fails(tmp_path: Path, crew: Crew) -> None:
    """The other runs go on and are merged with the error of the one; a shard that breaks off is no result."""
    file, all_rows, merged = plan(tmp_path, 1), tmp_path / "rows", tmp_path / "all.parquet"
    text = file.read_text()
    assert "jobs.load.outstanding: [1, 8]" in text
    file.write_text(text.replace("[1, 8]", "[1, many]"))
    command = [sys.executable, REPO / "scripts" / "dask_sweep.py", file, all_rows, "--shards", 4, "--merge", merged]
    out = run([*command, "--scheduler", crew.address, "--arraysim", binary()], expect=1, timeout=600)
    assert "10 runs ended with an error" in out.stderr
    missing = run([*command, "--scheduler", crew.address, "--arraysim", tmp_path / "none"], expect=1, timeout=600)
    count = f"select count(*), count(error), count(\"job.load.iops\") from '{merged}'"
    assert duckdb.sql(count).fetchall() == [(20, 10, 10)]
    assert "none: No such file or directory" in missing.stdout
    assert "4 shards broke off" in missing.stderr


def test_a_shard_ends_with_its_worker(tmp_path: Path) -> None:
    """What a worker has started does not go on when the worker is killed."""
    note = tmp_path / "pid"
    # It ignores SIGTERM, as arraysim does while it ends its runs.
    shard = ["sh", "-c", f"trap '' TERM; echo $$ >{note}.new; mv {note}.new {note}; exec sleep 600"]
    code = f"import dask_sweep; dask_sweep.run_shard({shard!r}, 0, 1)"
    env = {**os.environ, "PYTHONPATH": str(REPO / "scripts")}
    with subprocess.Popen([sys.executable, "-c", code], env=env) as worker:
        deadline = time.monotonic() + 120
        while not note.exists():
            assert time.monotonic() < deadline, "the shard does not begin"
            time.sleep(0.05)
        pid = int(note.read_text())
        worker.kill()
    try:
        deadline = time.monotonic() + 60
        while running(pid):
            assert time.monotonic() < deadline, f"process {pid} goes on"
            time.sleep(0.05)
    finally:
        if running(pid):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("status, fine", [(0, True), (3, True), (1, False), (2, False)])
def test_the_status_of_a_shard(status: int, fine: bool) -> None:
    """What a shard prints counts if it ended well, or with the status for runs that failed."""
    shard = ["sh", "-c", f'echo \'{{"shard": 2, "before": 0, "ran": 2, "failed": 1}}\'; echo wrong >&2; exit {status}']
    out = run_shard(shard)
    assert (out.returncode == 0) == fine
    assert fine or "RuntimeError: wrong" in out.stderr


def test_rows_that_cannot_be_written(tmp_path: Path) -> None:
    """A shard whose rows cannot be written breaks off."""
    command = [str(binary()), "sim", "--sweep", str(plan(tmp_path, 1)), "--rows", "/proc", "--jobs", "1", "--json"]
    out = run_shard(command)
    assert out.returncode == 1
    assert "RuntimeError: arraysim: rows: open /proc/" in out.stderr


def run_shard(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Run a shard as a worker does, in a process of its own."""
    code = f"import dask_sweep; dask_sweep.run_shard({command!r}, 0, 1)"
    env = {**os.environ, "PYTHONPATH": str(REPO / "scripts")}
    return subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=600)


def running(pid: int) -> bool:
    """Tell whether a process runs; one that nobody waits for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def wait_for_workers(address: str, n: int) -> None:
    """Wait until a scheduler has so many workers."""
    wait = f"with Client({address!r}, timeout=120) as c: c.wait_for_workers({n}, timeout=120)"
    code = f"from distributed import Client\n{wait}"
    run([sys.executable, "-c", code], timeout=300)


def check(folder: Path, file: Path, all_rows: Path, total: int) -> None:
    """Nothing is lost, nothing is there twice, and a single process that runs all gives the same bytes."""
    got = folder / "all.parquet"
    db = duckdb.sql(f"select count(*), count(distinct hash), count(distinct run), min(run), max(run) from '{got}'")
    assert db.fetchall() == [(total, total, total, 0, total - 1)]
    bad = f"""select count(*) from '{got}' where error is not null or "job.load.iops" is null or "job.load.iops" <= 0"""
    assert duckdb.sql(bad).fetchall() == [(0,)]
    # The figures make sense: eight requests in flight do more than one.
    # So they do over all seeds and points: the 95 % intervals of the means are far apart.
    more = f"""select "jobs.load.outstanding" as n, count(*), avg("job.load.iops"),
        1.96 * stddev("job.load.iops") / sqrt(count(*)) from '{got}' group by n order by n"""
    (_, ones, one, half), (_, eights, eight, other) = duckdb.sql(more).fetchall()
    assert ones == eights == total / 2
    assert eight - other > 2 * (one + half)
    alone = folder / "alone"
    command = [binary(), "sim", "--sweep", file, "--rows", alone]
    run([*command, "--quiet"], timeout=3600)
    run([*command, "--merge", folder / "alone.parquet"], timeout=600)
    assert (folder / "alone.parquet").read_bytes() == got.read_bytes()
    # Both folders together: every row is there twice, and counts once.
    out = run([*command, "--rows", all_rows, "--merge", folder / "both.parquet", "--json"], timeout=600)
    assert json.loads(out.stdout)["equal"] >= total
    assert (folder / "both.parquet").read_bytes() == got.read_bytes()


@pytest.mark.slow
def test_a_killed_run_leaves_whole_rows(tmp_path: Path) -> None:
    """A process that is killed at any moment leaves files that can be read, and the next one goes on."""
    file, all_rows = plan(tmp_path, 20), tmp_path / "rows"
    command = [str(binary()), "sim", "--sweep", str(file), "--rows", str(all_rows), "--quiet"]
    seen = 0
    for n in range(3):
        with process(*command) as p:
            for _ in range(3000):
                if rows(parts(all_rows)) > seen or p.poll() is not None:
                    break
                time.sleep(0.02 * (n + 1))
        assert rows(parts(all_rows)) >= seen, "rows were lost"
        seen = rows(parts(all_rows))
    out = run([*command, "--json"], timeout=600)
    said = json.loads(out.stdout)
    assert said["before"] == seen and said["before"] + said["ran"] == 400
    run([*command[:-1], "--merge", str(tmp_path / "all.parquet")])
    assert rows(parts(all_rows)) == 400


@pytest.mark.slow
def test_slurm_array(tmp_path: Path) -> None:
    """The tasks of the array, in some order, run the whole plan."""
    file, all_rows = plan(tmp_path, 1), tmp_path / "rows"
    script = REPO / "docs" / "slurm-sweep.sh"
    options = dict(re.findall(r"^#SBATCH --([\w-]+)(?:=(\S+))?$", script.read_text(), re.M))
    first, last = map(int, options["array"].split("-"))
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "arraysim").symlink_to(binary())
    for i in reversed(range(first, last + 1)):
        env = {"PATH": f"{tools}:{os.environ['PATH']}", "SLURM_ARRAY_TASK_ID": str(i), "SLURM_CPUS_PER_TASK": "1"}
        run(["bash", script, file, all_rows], env=env)
    run([binary(), "sim", "--sweep", file, "--rows", all_rows, "--merge", tmp_path / "all.csv"])
    assert len((tmp_path / "all.csv").read_text().splitlines()) == 21
