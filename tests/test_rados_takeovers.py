"""Take-overs of a daemon on a Ceph cluster of three OSDs, under verified writes and offloads.

Three daemons: one has the array, and two stand by, so that two take over at once each time. The first take-overs are
one of each of the ways of WAYS, the rarest first, and all others by a seed. ARRAYSIM_TAKE_OVERS says how many,
ARRAYSIM_SEED repeats a run.

The client is that of the kill tests: it knows of each sector what it may hold, and reads all of it back behind each
take-over. The control leaves one part of the fencing out, and has to lose data, or the rest shows nothing.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from cluster import Ceph
from harness import Mdisk, MiB, Pool, ToolError, Volume
from test_kill import Torture
from test_rados import Address, InPool, RadosDaemon, next_owner

pytestmark = pytest.mark.proof

TAKE_OVERS = int(os.environ.get("ARRAYSIM_TAKE_OVERS", "10"))

#: How an owner ends, and how often each is chosen.
WAYS = {
    "killed": 4,  # kill -9; standbys of its machine see it dead
    "killed, and the taker too": 1,  # while it takes over, or right behind that
    "killed, and an OSD": 2,
    "stopped": 2,  # its lease runs out; it goes on when another one serves, with all that it was about to send
    "stopped, and an OSD killed": 1,
    "stopped, deaf": 2,  # and the OSD that would tell it of its end does not answer when it goes on
    "stopped, blocklist gone": 1,  # its entry has expired; a further start puts it back before it goes on
}

#: Two pools, so that copies are made by reference and by moving, and a cache that is smaller than what is written.
POOLS = [Pool("p0", mdisks=[Mdisk("m0", 256 * MiB)]), Pool("p1", mdisks=[Mdisk("m1", 256 * MiB)])]
VOLUMES = [
    Volume("a", 0, size=12 * MiB),
    Volume("b", 1, size=12 * MiB, thin=False),
    Volume("c", 2, size=12 * MiB, pool="p1"),
    Volume("d", 3, size=8 * MiB, block_size=4096),
]


@pytest.fixture(scope="module")
def ceph() -> Iterator[Ceph]:
    """A cluster of three OSDs."""
    with Ceph(3, "--memory", 2048) as c:
        yield c


class Nodes:
    """Daemons of one array, of which one has it, and a client that writes to it wherever it is."""

    def __init__(self, ceph: Ceph, namespace: str, count: int, seed: int) -> None:
        self.ceph, self.namespace, self.rng = ceph, namespace, random.Random(seed)
        config = InPool(POOLS, VOLUMES, cache=16 * MiB, rados={**ceph.pool, "namespace": namespace, "standby": True})
        self.all = [RadosDaemon(config, f"{namespace}-{n}") for n in range(count)]
        self.owner, *self.others = self.all
        self.address = Address(self.owner.port)
        self.torture: Torture | None = None
        self.took: dict[str, list[float]] = {}

    def start(self, seed: int) -> None:
        self.owner.start()
        for d in self.others:
            d.stand_by()
        port, self.owner.port = self.owner.port, self.address.port
        self.torture = Torture(self.owner, seed)
        self.owner.port = port

    def verified(self) -> dict[str, Any]:
        """Wait until the client has read everything back from who has the array now."""
        return self.torture.expect("verified", 180)

    def await_next(self, what: str, began: float, before: list[int]) -> RadosDaemon:
        """Wait until another one serves, note how long that took, and have the client go there."""
        taker = next_owner(self.others, before, 120)
        self.took.setdefault(what, []).append(time.monotonic() - began)
        self.others.remove(taker)
        last, self.owner = self.owner, taker
        self.address.move(taker.port)
        return last

    def end(self, silent: bool) -> tuple[float, list[int]]:
        """Kill or stop the owner."""
        before = [d.served() for d in self.others]
        self.owner.proc.send_signal(signal.SIGSTOP if silent else signal.SIGKILL)
        if not silent:
            self.owner.proc.wait()
        return time.monotonic(), before

    def wake(self, zombie: RadosDaemon) -> None:
        """Have an owner go on that was stopped: it finds that it was replaced, and ends."""
        zombie.proc.send_signal(signal.SIGCONT)
        assert zombie.proc.wait(60) != 0, "an owner that was fenced ended as if all were well"
        assert "has a new owner" in zombie.log_tail(), zombie.log_tail()

    def again(self, d: RadosDaemon) -> None:
        """Start one again that has ended: it stands by."""
        d.stand_by()
        self.others.append(d)

    def check(self) -> None:
        """One serves, and the others do not."""
        assert self.owner.state()["state"] == "serving", self.owner.state()
        states = [d.state().get("state") for d in self.others]
        assert set(states) <= {"standing by", "opening"}, states
        self.owner.cli("check")

    def finish(self) -> dict[str, Any]:
        """End the client, which verifies everything once more, and the daemons."""
        self.torture.proc.send_signal(signal.SIGTERM)
        event = self.torture.expect("done", 180)
        assert self.torture.proc.wait(180) == 0, self.torture.trouble()
        self.owner.cli("check")
        for d in (*self.others, self.owner):
            d.stop()
        return event

    def close(self) -> None:
        if self.torture:
            self.torture.stop()
        self.address.close()
        for d in self.all:
            if d.alive():
                d.proc.send_signal(signal.SIGCONT)
                d.kill()
            d.cleanup()

    def logs(self) -> str:
        return "\n".join(f"--- {d.name}\n{d.log_tail(20)}" for d in self.all)

    def take_over(self, way: str) -> None:
        """Replace the owner in one of the ways, and have the client verify everything meanwhile."""
        osd = self.rng.choice(self.ceph.all_osds()) if "OSD" in way else ""
        if osd and self.rng.random() < 0.5:
            self.ceph.kill(osd)
        began, before = self.end("stopped" in way)
        if osd and self.ceph_runs(osd):
            self.ceph.kill(osd)
        if "taker" in way:
            time.sleep(self.rng.uniform(0, 2))
            victim = self.rng.choice(self.others)
            victim.kill()
            served = dict(zip(self.others, before, strict=True))
            self.others.remove(victim)
            last = self.await_next(way, began, [served[d] for d in self.others])
            self.verified()
            self.again(victim)
        else:
            last = self.await_next(way, began, before)
            self.verified()
        if "stopped" in way:
            self.rouse(way, last)
        self.again(last)
        if osd:
            self.ceph.start(osd)
            self.ceph.clean()
        self.check()

    def ceph_runs(self, osd: str) -> bool:
        """Tell whether an OSD was not killed yet."""
        try:
            with open(f"/proc/{self.ceph.about['pids'][osd]}/stat") as f:
                return f.read().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def rouse(self, way: str, zombie: RadosDaemon) -> None:
        """Have an owner go on that was stopped."""
        time.sleep(self.rng.uniform(0.5, 3))  # hosts overwrite what it was about to write
        if "blocklist gone" in way:
            self.ceph.ask("osd blocklist clear")
            killed = self.owner
            began, before = self.end(silent=False)
            self.await_next("killed", began, before)
            self.verified()
            self.again(killed)
        if "deaf" in way:
            with self.ceph.stopped(self.ceph.home(self.namespace, "array")):
                zombie.proc.send_signal(signal.SIGCONT)
                time.sleep(2.5)
        self.wake(zombie)


def seeded() -> int:
    return int(os.environ.get("ARRAYSIM_SEED") or random.SystemRandom().randrange(1 << 32))


def report(took: dict[str, list[float]]) -> str:
    """Say for each way, and for all, how long it took until another one served."""

    def line(name: str, values: list[float]) -> str:
        values = sorted(values)
        return (
            f"  {name}: {len(values)}, {values[len(values) // 2]:.1f} s in the middle, {values[-1]:.1f} s at the most"
        )

    lines = [line(way, values) for way, values in sorted(took.items())]
    for begin in ("killed", "stopped"):
        if values := [v for way, times in took.items() if way.startswith(begin) for v in times]:
            lines.append(line(f"all {begin}", values))
    return "\n".join(lines)


def test_take_overs(ceph: Ceph) -> None:
    """Nothing acknowledged is lost, in whatever way owners end."""
    seed = seeded()
    print(f"\n{TAKE_OVERS} take-overs, seed {seed}; repeat with ARRAYSIM_TAKE_OVERS={TAKE_OVERS} ARRAYSIM_SEED={seed}")
    nodes = Nodes(ceph, "takers", 3, seed)
    done, first = 0, sorted(WAYS, key=WAYS.get)
    try:
        nodes.start(seed)
        nodes.verified()
        while done < TAKE_OVERS:
            way = first.pop(0) if first else nodes.rng.choices(list(WAYS), list(WAYS.values()))[0]
            time.sleep(nodes.rng.uniform(0.2, 1.5))
            nodes.take_over(way)
            done = sum(len(v) for v in nodes.took.values())
            print(f"  {done}: {way}, {nodes.took[way][-1]:.1f} s; load {os.getloadavg()[0]:.0f}", flush=True)
            nodes.address.cut()
            nodes.verified()
        event = nodes.finish()
    except AssertionError as e:
        raise AssertionError(f"{e}\nbehind {done} take-overs, seed {seed}\n{nodes.logs()}") from None
    finally:
        nodes.close()
    print(f"{report(nodes.took)}\n  {done} take-overs: {event}")
    assert event["wrong"] == 0 and event["unsure"] > 0
    for kind in ("write", "write_fua", "caw", "zero", "unmap", "xcopy", "sync", "read"):
        assert event[kind] > 0, f"no {kind} was acknowledged"


def test_without_the_blocklist_data_are_lost(ceph: Ceph) -> None:
    """The control: an owner that was stopped, and whom nobody has refused, writes over what others have written."""
    seed, tries, done, found = seeded(), 15, 0, ""
    print(f"\nseed {seed}")
    nodes = Nodes(ceph, "control", 2, seed)
    try:
        nodes.start(seed)
        nodes.verified()
        while done < tries:
            done += 1
            time.sleep(nodes.rng.uniform(0.5, 2))
            zombie = nodes.await_next("stopped", *nodes.end(silent=True))
            nodes.verified()
            time.sleep(4)
            ceph.ask("osd blocklist clear")
            with ceph.stopped(ceph.home("control", "array")):
                zombie.proc.send_signal(signal.SIGCONT)
                time.sleep(2.5)
            zombie.proc.wait(60)
            try:
                nodes.address.cut()
                nodes.verified()
            except ToolError as e:
                found = str(e)
                break
            nodes.again(zombie)
        logs = nodes.logs()
    finally:
        nodes.close()
    assert nodes.torture.wrong, f"{done} take-overs without a blocklist have lost nothing\n{found}\n{logs}"
    lost = nodes.torture.wrong
    print(f"  take-over {done} without a blocklist has lost data, as it was to: {len(lost)} sectors, as\n  {lost[0]}")
