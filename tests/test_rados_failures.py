"""What hosts see of an array in a Ceph pool whose cluster fails in part: three OSDs, three copies, two needed to write.

Each case does one thing to the cluster under verified writes and reads, and says what a host has seen. None may be told
that a write has ended well which is lost, and all that hangs ends when the cluster answers again. docs/rados.md has the
table; a case prints its row's figures.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import pytest
from arrays import destaged
from cluster import Ceph
from harness import Mdisk, MiB, Pool, Volume
from initiator import BUSY, Session
from test_rados import InPool, RadosDaemon
from writers import Host, finish, verify

pytestmark = pytest.mark.proof

#: Hosts of a case, and the pieces that each writes to, of so many sectors: more than the write cache has.
HOSTS, PIECES, SECTORS = 6, 256, 32

#: Where in the volume nobody has written before.
UNTOUCHED = HOSTS * PIECES * SECTORS


@pytest.fixture(scope="module")
def ceph() -> Iterator[Ceph]:
    """A cluster of three OSDs, with a manager, without which no quota takes effect."""
    with Ceph(3, "--manager", "--memory", 2048) as c:
        yield c


@dataclass
class Case:
    """A daemon under the writes of hosts."""

    ceph: Ceph
    daemon: RadosDaemon
    hosts: list[Host] = field(default_factory=list)
    more: list[Host] = field(default_factory=list)  # that begin later, where nobody has written

    def all(self) -> list[Host]:
        return self.hosts + self.more

    def goes_on(self, what: str, hosts: list[Host] | None = None, within: float = 60) -> float:
        """Wait until each host has ended ten commands well, and return how many seconds the last one took for it."""
        watched = self.all() if hosts is None else hosts
        before, began = [h.writes for h in watched], time.monotonic()
        while not all(h.writes >= n + 10 for h, n in zip(watched, before, strict=True)):
            for h in watched:
                if h.fault:
                    raise h.fault
            assert self.daemon.alive(), self.daemon.log_tail()
            assert time.monotonic() - began < within, f"{what}: hosts do not go on\n{self.daemon.log_tail()}"
            time.sleep(0.05)
        return time.monotonic() - began

    def begin_anew(self) -> None:
        for h in self.hosts:
            h.begin_anew()

    def codes(self) -> dict[int, int]:
        """Return how often commands have ended with what, of those that a host tries again."""
        out: dict[int, int] = {}
        for h in self.all():
            for code, n in h.codes.items():
                out[code] = out.get(code, 0) + n
        return out

    def say(self, what: str, more: str = "") -> None:
        """Print what hosts have seen."""
        gap, slowest = max(h.gap for h in self.hosts), max(h.slowest for h in self.hosts)
        codes = ", ".join(f"{n} x {code:06x}" for code, n in sorted(self.codes().items())) or "none"
        writes, reads = sum(h.writes for h in self.all()), sum(h.reads for h in self.all())
        load = os.getloadavg()[0]
        print(
            f"\n  {what}: nothing for {gap:.1f} s at most, slowest command {slowest:.1f} s; to try again: {codes}; "
            f"{writes} writes, {reads} reads; load {load:.0f}{more}"
        )


def have_place(hosts: list[Host], d: RadosDaemon) -> None:
    """Write all that the hosts will write to, and wait until it is on the mdisk: they need no more room there."""
    number = 1
    with Session(d, isid=97, stays=False) as s:
        s.ready(0)
        for h in hosts:
            for at in range(h.blocks.start, h.blocks.stop, 2048):
                cdb = bytes([0x8A, 0]) + at.to_bytes(8, "big") + (2048).to_bytes(4, "big") + bytes(2)
                s.good(0, cdb, number.to_bytes(8, "big") * (64 * 2048))
            h.acknowledged = dict.fromkeys(h.blocks, number)
            h.writes = number
    destaged(d)


@contextlib.contextmanager
def case(ceph: Ceph, name: str, placed: bool = False) -> Iterator[Case]:
    """A daemon under writes; behind the case everything that was acknowledged is there, and is in another process.

    placed: the hosts write only to what has its place on the mdisk.
    """
    ceph.clean()
    pool = Pool("p0", mdisks=[Mdisk("m0", 512 * MiB)])
    volumes = [Volume("v0", 0, pool="p0", size=128 * MiB)]
    config = InPool([pool], volumes, cache=16 * MiB, rados={**ceph.pool, "namespace": name})
    d = RadosDaemon(config, f"failures-{name}")
    c = Case(ceph, d)
    try:
        d.start()
        c.hosts = [Host(d, 10 + n, n * PIECES * SECTORS, PIECES) for n in range(HOSTS)]
        if placed:
            have_place(c.hosts, d)
        for h in c.hosts:
            h.start()
        c.goes_on("at first")
        time.sleep(3)
        c.begin_anew()
        yield c
        c.goes_on("at last")
        finish(c.all())
        assert d.state()["epoch"] == 1 and d.state()["state"] == "serving"
        assert all(h.sessions == 1 for h in c.all()), "sessions were lost"
        verify(c.all(), d)
        destaged(d)
        d.cli("check")
        d.kill()
        d.start()
        assert verify(c.all(), d) > 100
        d.cli("check")
        d.stop()
    except AssertionError as e:
        raise AssertionError(f"{e}\n{d.log_tail(20)}") from None
    finally:
        for h in c.all():
            h.over.set()
        if d.alive():
            d.kill()
        d.cleanup()


def test_osd_killed(ceph: Ceph) -> None:
    """An OSD that dies costs hosts some seconds, and no error; one that comes back with nothing is filled again."""
    with case(ceph, "killed") as c:
        ceph.kill("osd.1")
        c.goes_on("behind the death of an OSD")
        time.sleep(5)
        c.say("an OSD is killed")
        assert set(c.codes()) <= {BUSY}, c.codes()
        assert max(h.gap for h in c.hosts) < 30
        c.begin_anew()
        ceph.start("osd.1")
        ceph.clean()
        c.say("it is filled again")


def test_osd_stopped(ceph: Ceph) -> None:
    """An OSD that stands still is left out by the others; hosts hear BUSY where the lease was on it."""
    with case(ceph, "stopped") as c:
        with ceph.stopped("osd.0"):
            time.sleep(0.5)
            c.goes_on("behind an OSD that stands still")
            time.sleep(5)
        c.say("an OSD stands still")
        assert set(c.codes()) <= {BUSY}, c.codes()
        assert max(h.gap for h in c.hosts) < 40


def test_osd_slow(ceph: Ceph) -> None:
    """An OSD that answers late is slow, and nothing else."""
    with case(ceph, "slow") as c:
        names = ("osd_debug_inject_dispatch_delay_probability", "osd_debug_inject_dispatch_delay_duration")
        before = sum(h.writes for h in c.hosts)
        time.sleep(5)
        quick = sum(h.writes for h in c.hosts) - before
        try:
            for name, value in zip(names, ("0.05", "0.3"), strict=True):
                ceph.daemon("osd.2", "config", "set", name, value)
            c.begin_anew()
            before = sum(h.writes for h in c.hosts)
            time.sleep(10)
            slow = sum(h.writes for h in c.hosts) - before
            c.say("a slow OSD", f"; {quick / 5:.0f} writes a second before, {slow / 10:.0f} then")
        finally:
            ceph.daemon("osd.2", "config", "set", names[0], "0")
        assert not c.codes(), c.codes()
        assert slow > 0


def fills(c: Case, what: str, fill: float = 180) -> None:
    """Have a host write to new extents until it hears that there is no room.

    Reads go on, and so do the others' writes to what has its place.
    """
    c.more = [Host(c.daemon, 50, UNTOUCHED, 800, sectors=256)]
    c.more[0].start()
    began = time.monotonic()
    while not c.more[0].failed:
        assert time.monotonic() - began < fill, f"{what}: nobody hears that there is no room\n{c.daemon.log_tail()}"
        for h in c.all():
            if h.fault:
                raise h.fault
        time.sleep(0.1)
    told, slowest = time.monotonic(), 0.0
    c.begin_anew()
    before = sum(h.writes for h in c.hosts)
    with Session(c.daemon, isid=97, stays=False) as s:
        s.ready(0)
        for h in c.hosts:
            begin = time.monotonic()
            s.good(0, h.cdb(0x88, next(iter(h.acknowledged))), room=SECTORS * 512)
            slowest = max(slowest, time.monotonic() - begin)
    c.goes_on(what, c.hosts)
    time.sleep(10)
    old, new = sum(sum(h.failed.values()) for h in c.hosts), sum(c.more[0].failed.values())
    rate = (sum(h.writes for h in c.hosts) - before) / (time.monotonic() - told)
    c.say(
        what,
        f"; 27/07 behind {told - began:.1f} s, {new} times for new extents and {old} for others, "
        f"which take {rate:.0f} writes a second; reads take {slowest:.1f} s",
    )
    assert slowest < 5
    assert old == 0, f"{what}: {old} writes to what has its place are refused"


def room_again(c: Case, what: str) -> None:
    """Wait until those who had no room write again."""
    for h in c.more:
        h.begin_anew()
    began = time.monotonic()
    writes = [h.writes - sum(h.failed.values()) for h in c.more]
    while not all(h.writes - sum(h.failed.values()) >= n + 10 for h, n in zip(c.more, writes, strict=True)):
        assert time.monotonic() - began < 90, f"{what}: there is room, and nobody finds it\n{c.daemon.log_tail()}"
        time.sleep(0.1)
    print(f"  written again {time.monotonic() - began:.1f} s behind the end of it")


def full_above(ceph: Ceph, ratio: float) -> None:
    """Have OSDs be full above a part of their room."""
    for prefix, part in (
        ("osd set-nearfull-ratio", 0.9),
        ("osd set-backfillfull-ratio", 0.95),
        ("osd set-full-ratio", 1.0),
    ):
        ceph.ask(prefix, ratio=ratio * part)


def test_full(ceph: Ceph) -> None:
    """OSDs are full: writes that need room end with 27/07, others and reads go on; with room everything goes on."""
    with case(ceph, "full", placed=True) as c:
        used = max(
            ceph.daemon(o, "perf", "dump", "osd", "stat_bytes_used")["osd"]["stat_bytes_used"] for o in ceph.all_osds()
        )
        try:
            # Behind the reserve, which the store gives up.
            full_above(ceph, (used - 40 * MiB) / (2048 * MiB))
            fills(c, "OSDs are full")
        finally:
            full_above(ceph, 0.95)
        room_again(c, "full OSDs")


def test_quota(ceph: Ceph) -> None:
    """A pool is at its quota: the same."""
    with case(ceph, "quota", placed=True) as c:
        pool = ceph.about["pool"]
        try:
            ceph.ask("osd pool set-quota", pool=pool, field="max_bytes", val=str(MiB))
            fills(c, "the pool is at its quota")
        finally:
            ceph.ask("osd pool set-quota", pool=pool, field="max_bytes", val="0")
        room_again(c, "quota")


def test_below_min_size(ceph: Ceph) -> None:
    """Two of three OSDs are away: writes wait, and behind seven seconds hosts hear BUSY, until one is back."""
    with case(ceph, "below") as c:
        with ceph.stopped("osd.1", "osd.2"):
            time.sleep(16)
            with Session(c.daemon, isid=97, stays=False) as s:  # who comes now hears the same, at once
                began = time.monotonic()
                a = s.send(0, bytes(6))
                assert a.status == BUSY and time.monotonic() - began < 2, a
            assert c.daemon.state()["state"] == "busy"
        c.goes_on("behind the return of two OSDs")
        c.say("below min_size for 16 s")
        assert set(c.codes()) <= {BUSY}, c.codes()
        assert BUSY in c.codes()


def test_monitor_stopped(ceph: Ceph) -> None:
    """A monitor that stands still is not noticed."""
    with case(ceph, "monitor") as c:
        with ceph.stopped("mon.a"):
            time.sleep(12)
            c.goes_on("without a monitor", within=10)
        c.say("the monitor stands still")
        assert not c.codes(), c.codes()


def test_osd_killed_without_a_monitor(ceph: Ceph) -> None:
    """Without a monitor nobody leaves a dead OSD out: what needs it waits until there is one, and hosts hear BUSY."""
    with case(ceph, "both") as c:
        with ceph.stopped("mon.a"):
            ceph.kill("osd.0")
            time.sleep(15)
        c.goes_on("behind the return of the monitor")
        c.say("an OSD is killed while the monitor stands still for 15 s")
        assert set(c.codes()) <= {BUSY}, c.codes()
        ceph.start("osd.0")
        ceph.clean()
