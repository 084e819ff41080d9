"""Hosts with caches that fall silent or die, below disks of the kernel's iSCSI initiator.

In reality each host, each peer and the array are a machine; here each is a process. A
machine that dies is one that is killed, and one that is cut off or hangs is one that is
stopped: it refuses nothing, answers nothing, and may come back.
"""

from __future__ import annotations

import errno
import json
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
from caches import Cache, held
from doors import settle
from guest import Given, Initiator
from harness import Config, Daemon, MiB, Volume
from load import Load, on_disk
from verified import SECTOR, Ledger, Writers

SEED = int(os.environ.get("ARRAYSIM_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 32)

LUN, FLASH = 16 * MiB, 8 * MiB
#: What is written of a LUN: little, so that much is written over while it is dirty.
WRITTEN = 1 * MiB // SECTOR

#: A host that is gone is given up soon, and what waits for it ends with an error, of which the kernel speaks.
HASTY = {"session.timeo.replacement_timeout": "1"}
GONE = r"\bconnection\d+:|\bsession\d+:|\bsd \d+:\d+:\d+:\d+:|\bI/O error, dev sd"


def machine(name: str, luns: int, size: int) -> Daemon:
    """Return an array with so many LUNs: the one below the caches, or one that lends its memory to a host as flash."""
    return Daemon(Config(volumes=[Volume(f"v{i}", i, size=size) for i in range(luns)], cache=16 * MiB), name)


class Host:
    """A host: its cache, the kernel's session with that, its disk, and what writes to the disk."""

    def __init__(self, initiator: Initiator, cache: Cache) -> None:
        self.initiator, self.cache = initiator, cache
        self.stack = ExitStack()
        self.stack.callback(self.bury)

    def start(self) -> Host:
        """Start the cache and make a disk of it."""
        self.cache.start()
        portal = f"127.0.0.1:{self.cache.port}"
        session = self.stack.enter_context(self.initiator.session(portal, self.cache.target, 1, HASTY))
        disks = session.disks()
        settle(disks)
        self.disk = disks[0]
        return self

    def bury(self) -> None:
        """End what is left of the process."""
        if self.cache.alive():
            self.cache.kill()
        self.cache.cleanup()

    def end(self) -> None:
        """End the session and then the process."""
        self.stack.close()


@contextmanager
def ended(hosts: list[Host]) -> Iterator[None]:
    """End all hosts that are left, the newest first."""
    try:
        yield
    finally:
        with ExitStack() as stack:
            for h in hosts:
                stack.callback(h.end)


class Row:
    """A LUN and the hosts that have it one after the other. The first has a flash of its own; each other one is the
    machine that lent its flash to the one before, and is lent some by the next."""

    def __init__(self, lun: int, initiator: Initiator, array: Daemon, lenders: list[Daemon]) -> None:
        self.lun, self.initiator, self.array, self.lenders = lun, initiator, array, lenders
        self.rng = random.Random(f"{SEED} {lun}")
        self.ledger = Ledger(WRITTEN, SEED + lun)
        self.hosts: list[Host] = []
        self.dirty = self.writes = self.late = self.unanswered = 0
        self.outages: list[float] = []

    def lent(self, number: int) -> str:
        """Return the URL of the flash that a host's neighbour lends."""
        return self.lenders[number % len(self.lenders)].url(self.lun)

    def host(self) -> Host:
        """Return the next host, which takes over from the present one if there is one."""
        n = len(self.hosts)
        names = ["--initiator", f"iqn.2026-01.test:host{n}", "--target", f"iqn.2026-01.test:lun{self.lun}host{n}"]
        options: list[Any] = [*names, "--peer", f"p={self.lent(n)}", "--key", n + 1]
        options += ["--peer-timeout", "60s"]  # no lender falls silent here; a guest may have no processor
        options += ["--take-over", n] if n else ["--flash-size", FLASH]
        cache = Cache(self.array, "write_back+1", *options, lun=self.lun, name=f"host{n}")
        cache.target = names[-1]
        if n:
            cache.flash = self.lent(n - 1)
        self.hosts.append(Host(self.initiator, cache))
        return self.hosts[-1].start()

    def load(self, host: Host) -> Writers:
        """Have a host write as soon as there are two copies of what it writes."""
        host.cache.await_peers(1)
        return Writers(host.disk.sd, self.ledger, self.rng.randrange(1 << 32))

    def take_over(self, old: Host, writers: Writers, dead: bool) -> tuple[Host, Writers]:
        """Let a host die or fall silent while it writes; another one takes over, and loses nothing."""
        writers.await_writes(self.rng.randint(10, 60))
        # Where the array is held, what the host has is dirty, and writes are under way; the first time it is.
        with held(self.array) if self.rng.random() < 0.7 or not self.outages else ExitStack():
            time.sleep(self.rng.uniform(0.05, 0.3))
            assert old.cache.proc is not None
            old.cache.proc.send_signal(signal.SIGKILL if dead else signal.SIGSTOP)
            began = time.monotonic()
            writers.detach()
        new = self.host()
        self.outages.append(time.monotonic() - began)
        found = new.cache.report()["recovery"]
        assert found["Damaged"] == 0
        self.dirty += found["DirtySectors"]
        self.writes += writers.acknowledged
        self.ledger.settle(new.disk.sd)
        taken = list(self.ledger.sure)
        again = self.load(new)
        again.await_writes(10)
        again.pause()
        before = len(writers.late)
        if not dead:
            assert old.cache.proc is not None
            old.cache.proc.send_signal(signal.SIGCONT)
        writers.finish()
        if not dead:
            self.fenced(old, writers, taken)
            self.late += len(writers.late) - before
        self.unanswered += len(writers.errors)
        old.end()
        return new, again

    def fenced(self, old: Host, writers: Writers, taken: list[int]) -> None:
        """Check a host that was fenced while it was stopped: it acknowledged nothing that its taker has not."""
        for w in writers.late:
            # All copies were there before the fence, and the taker has them: only the answer is late.
            assert taken[w.first : w.first + w.count] == [w.version] * w.count, f"{w} is lost (seed {SEED})"
        # What comes now is refused. Were it not, its data would be found where it does not belong.
        intruder = Writers(old.disk.sd, Ledger(WRITTEN, ~SEED), SEED, threads=2)
        intruder.finish()
        assert intruder.acknowledged == 0, f"a fenced host acknowledged {intruder.acknowledged} writes (seed {SEED})"
        assert {e.errno for e in intruder.errors} <= {errno.EIO, errno.EBADE, errno.EREMOTEIO}, intruder.errors

    def run(self, times: int) -> None:
        """Start the first host, take over so many times, and bring everything below."""
        with ended(self.hosts):
            host = self.host()
            writers = self.load(host)
            for n in range(times):
                host, writers = self.take_over(host, writers, dead=(self.lun + n) % 2 == 1)
            writers.finish()
            self.writes += writers.acknowledged
            assert not writers.errors
            self.ledger.settle(host.disk.sd)
            host.cache.ask("quiesce")
            assert host.cache.report()["state"]["DirtySectors"] == 0
            host.stack.pop_all().close()


@pytest.mark.kernel_says(GONE)
@pytest.mark.parametrize(
    ("rows", "times"), [pytest.param(1, 2, id="2"), pytest.param(10, 5, id="50", marks=pytest.mark.slow)]
)
def test_hosts_that_die_or_fall_silent_are_taken_over(initiator: Initiator, rows: int, times: int) -> None:
    """Their neighbours have all that they had acknowledged; what was fenced and comes back acknowledges nothing."""
    print(f"seed {SEED}: repeat with --env ARRAYSIM_SEED={SEED}")
    with (
        machine("below", rows, LUN) as array,
        machine("lender0", rows, FLASH) as one,
        machine("lender1", rows, FLASH) as two,
    ):
        done = []
        for n in range(rows):
            row = Row(n, initiator, array, [one, two])
            row.run(times)
            done.append(row)
            outages = " ".join(f"{s:.1f}" for s in row.outages)
            print(f"{times} take-overs, each in {outages} s; {row.writes} writes were acknowledged, {row.late} late,")
            print(f"and {row.unanswered} had an error; {row.dirty} sectors were dirty", flush=True)
        # What the array has, past all caches.
        with initiator.session(f"127.0.0.1:{array.port}", array.target, rows) as session:
            disks = session.disks()
            settle(disks)
            for row, disk in zip(done, disks, strict=True):
                row.ledger.settle(disk.sd)
    longest = max(s for row in done for s in row.outages)
    writes, dirty, lost = (sum(getattr(row, k) for row in done) for k in ("writes", "dirty", "unanswered"))
    print(f"{rows * times} take-overs, every second of a host that died, the others of one that fell silent: at most")
    print(f"{longest:.1f} s until the next one serves, {writes} writes acknowledged, {lost} not, {dirty} sectors dirty")
    assert dirty > 0, "nothing was dirty when a host went"
    assert lost > 0, "nothing was under way when a host went"


@pytest.mark.parametrize("timeout", [5, pytest.param(10, marks=pytest.mark.slow)])
def test_a_silent_peer_costs_its_time_and_no_more(initiator: Initiator, timeout: int) -> None:
    """A peer falls silent below fio, which verifies: one wait, within its bound, and no error; the peer is left out."""
    writes = 400
    print(f"seed {SEED}: repeat with --env ARRAYSIM_SEED={SEED}")
    with machine("below", 1, LUN) as array, machine("lender", 1, FLASH) as peer:
        options = ["--flash-size", FLASH, "--peer", f"p={peer.url()}", "--peer-timeout", f"{timeout}s"]
        with Cache(array, "write_back+1", *options) as cache:
            cache.await_hasty_peer()
            with initiator.session(f"127.0.0.1:{cache.port}", cache.target, 1) as session:
                disks = session.disks()
                settle(disks)
                args = ["--rw=randwrite", "--bs=4k", f"--size={LUN // 2}", f"--number_ios={writes}", "--rate_iops=200"]
                args += ["--verify=crc32c", "--verify_fatal=1", f"--randseed={SEED}", "--output-format=json"]
                load = Load("silent", *on_disk(disks[0].sd, *args, depth=8))
                while cache.report()["views"]["LocalFlash"]["Write"]["IOs"] < 20:
                    assert load.proc.poll() is None, load.finish()
                    time.sleep(0.05)
                given, began = Given(), time.monotonic()
                given.start()
                with held(peer):
                    out = load.finish()
                given.over.set()
                # What the machine below did not give to this guest is no wait for the peer.
                away = max(0.0, time.monotonic() - began - given.seconds - Given.TICK)
                job = json.loads(out[out.index("{") :])["jobs"][0]
                longest = job["write"]["clat_ns"]["max"] / 1e9
                state = cache.report()["state"]
                bound = 1.05 * timeout
                print(
                    f"the longest of {writes} writes took {longest:.2f} s; {bound:.2f} s and a write below are allowed"
                )
                assert job["error"] == 0 and job["write"]["total_ios"] == job["read"]["total_ios"] == writes
                assert longest > timeout / 5, "the silence was not noticed"
                # A second wait would end at twice the time; until shortly before that a busy machine may add to one.
                assert longest <= bound + 0.8 * timeout + away
                assert state["Peers"] is None and state["LostPeers"] == ["p"]
                # It is back, and has missed something: it stays out until the cache starts again.
                time.sleep(1)
                state = cache.report()["state"]
                assert state["Peers"] is None and state["LostPeers"] == ["p"]
            cache.stop()
            cache.start()
            cache.await_hasty_peer()
            assert cache.report()["effective_policy"] == "write_back"
