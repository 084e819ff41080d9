"""kill -9 at random moments under verified writes and offloads.

The torture client models every sector; see scripts/torture/torture.c for the
contract. ARRAYSIM_KILLS sets the number of kills, ARRAYSIM_SEED repeats a run.
"""

from __future__ import annotations

import json
import os
import queue
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness import Config, Daemon, GiB, Mdisk, MiB, Pool, ToolError, Volume, run, tool

KILLS = int(os.environ.get("ARRAYSIM_KILLS", "30"))

#: Two pools, so that copies are made by reference and by moving; a 4K unit; a cache
#: that is always too small, so that destaging, checkpoints and copies are under way.
TORTURED = Config(
    pools=[Pool("p0", mdisks=[Mdisk("m0", GiB), Mdisk("m1", GiB)]), Pool("p1", mdisks=[Mdisk("m2", GiB)])],
    volumes=[
        Volume("a", 0, size=32 * MiB),
        Volume("b", 1, size=32 * MiB, thin=False),
        Volume("c", 2, size=32 * MiB, pool="p1"),
        Volume("d", 3, size=16 * MiB, block_size=4096),
    ],
    cache=16 * MiB,
)

#: The same with an I/O group for each pool, and so a target for each: copies between them go from array to array.
GROUPED = replace(
    TORTURED,
    io_groups=2,
    pools=[replace(p, io_group=n) for n, p in enumerate(TORTURED.pools)],
    volumes=[replace(v, lun=n) for n, v in zip((0, 1, 0, 2), TORTURED.volumes, strict=True)],
)


def copy(source: Path, target: Path) -> None:
    """Copy a directory; its files are sparse and must stay so."""
    run(["cp", "-a", "--sparse=always", source, target])


class Torture:
    """The client, and the lines that it prints."""

    def __init__(self, daemon: Daemon, seed: int, luns: int = 4, also: Sequence[str] = ()) -> None:
        """Torture the first LUNs of the daemon's first target, and those of other targets by their URLs."""
        argv = [tool("torture"), "--url", daemon.url(0), "--luns", luns, "--seed", seed]
        for url in also:
            argv += ["--url", url]
        self.err = daemon.dir / "torture.err"
        with self.err.open("w") as err:
            self.proc = subprocess.Popen([str(a) for a in argv], stdout=subprocess.PIPE, stderr=err, text=True)
        self.events: queue.Queue[dict[str, Any]] = queue.Queue()
        self.wrong: list[str] = []
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        assert self.proc.stdout is not None
        for line in self.proc.stdout:
            event = json.loads(line)
            if event["event"] == "wrong":
                self.wrong.append(line.strip())
            else:
                self.events.put(event)

    def expect(self, name: str, timeout: float = 120) -> dict[str, Any]:
        """Wait for an event; anything else, or the client's end, is a failure."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                event = self.events.get(timeout=0.1)
            except queue.Empty:
                if self.proc.poll() is not None:
                    self.reader.join()  # what it said last may not have been read yet
                    if self.events.empty():
                        raise ToolError(f"torture ended with {self.proc.returncode}\n{self.trouble()}") from None
                if time.monotonic() > deadline:
                    raise ToolError(f"no {name} within {timeout} s\n{self.trouble()}") from None
                continue
            if event["event"] == "verified" and name == "done" and not event["wrong"]:
                continue
            if event["wrong"] or event["event"] != name:
                raise ToolError(f"expected {name}: {event}\n{self.trouble()}")
            return event

    def forget(self) -> None:
        """Drop what was reported about a daemon that is dead by now."""
        time.sleep(0.05)
        while not self.events.empty():
            event = self.events.get()
            if event["wrong"]:
                raise ToolError(f"{event}\n{self.trouble()}")

    def trouble(self) -> str:
        """Return what the client complained about."""
        return "\n".join([*self.wrong, self.err.read_text()])

    def stop(self) -> None:
        """End the client, whatever it does. One that has ended by a signal before has crashed."""
        if self.proc.poll() is None:
            self.proc.kill()
        elif self.proc.returncode < 0:
            raise ToolError(f"torture ended with {self.proc.returncode}\n{self.trouble()}")
        self.proc.wait()


@pytest.mark.slow
@pytest.mark.parametrize("groups", [1, 2], ids=["one group", "two groups"])
def test_no_acknowledged_sector_is_lost(groups: int) -> None:
    seed = int(os.environ.get("ARRAYSIM_SEED") or random.SystemRandom().randrange(1 << 32))
    kills = KILLS // groups
    print(f"\n{kills} kills, seed {seed}; repeat with ARRAYSIM_KILLS={KILLS} ARRAYSIM_SEED={seed}")
    rng = random.Random(seed)
    event: dict[str, Any] = {}
    with Daemon(GROUPED if groups > 1 else TORTURED, "kill") as d:
        second = f"{d.portal()}/{d.target}.iogroup1/0"
        torture = Torture(d, seed, 3, [second]) if groups > 1 else Torture(d, seed)
        try:
            for n in range(kills):
                event = torture.expect("verified")
                d.cli("check")
                time.sleep(rng.uniform(0, 0.4))
                d.kill()
                if rng.random() < 0.15:
                    # Recovery itself may be cut short, and more than once.
                    die_at_start(d, rng.uniform(0, 0.15))
                    torture.forget()
                d.start()
                if n % 10 == 9:
                    print(f"  {n + 1} kills, {event['ops']} commands, {event['unsure']} sectors in flight")
            event = torture.expect("verified")
            d.cli("check")
            await_writes(d, 32 * MiB)  # by then the client has done all that it does, also seldom
            torture.proc.send_signal(signal.SIGTERM)
            event = torture.expect("done")
            assert torture.proc.wait(180) == 0, torture.trouble()
            d.cli("check")
        except AssertionError as e:
            keep = d.dir.with_name(d.dir.name + "-failed")
            copy(d.dir, keep)
            raise AssertionError(f"{e}\nseed {seed}; data directory kept in {keep}\n{d.log_tail(30)}") from None
        finally:
            torture.stop()
    print(f"  {event}")
    # A run in which nothing was in flight, or some kind never worked, proves little.
    assert event["unsure"] > 0
    for kind in ("write", "write_fua", "caw", "zero", "pattern", "unmap", "xcopy", "sync", "read"):
        assert event[kind] > 0, f"no {kind} was acknowledged"


def die_at_start(d: Daemon, after: float) -> None:
    """Start the daemon and kill it while it recovers (or soon afterwards)."""
    d.spawn(d.command())
    time.sleep(after)
    d.kill()


def await_writes(d: Daemon, size: int = 4 * MiB) -> None:
    """Wait until hosts have written so much more, however long a busy machine takes for it."""

    def written() -> float:
        return d.metrics().sum("host_transferred_bytes_total", direction="write")

    before, deadline = written(), time.monotonic() + 120
    while written() < before + size:
        assert time.monotonic() < deadline, "nothing is written"
        time.sleep(0.05)


def test_the_client_notices_lost_writes() -> None:
    """The judge is judged: an older copy of the data directory must be found out."""
    with Daemon(TORTURED, "lost") as d:
        torture = Torture(d, seed=1)
        try:
            torture.expect("verified")
            time.sleep(0.3)
            d.kill()
            old = d.dir / "old"
            copy(d.data, old)
            d.start()
            torture.expect("verified")
            await_writes(d)
            d.kill()
            shutil.rmtree(d.data)
            old.rename(d.data)
            d.start()
            torture.proc.wait(180)
            torture.reader.join(10)
            assert torture.proc.returncode == 1 and torture.wrong, torture.trouble()
        finally:
            torture.stop()
