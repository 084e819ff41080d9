"""Take-overs of daemons on a Ceph cluster of three OSDs, under verified writes and offloads.

Some arrays at a time, for most of a take-over is waiting for a lease. Each has three daemons: one has the array, and
two stand by, so that two take over at once each time. The first take-overs are one of each of the ways of WAYS, the
rarest first, and all others by a seed. ARRAYSIM_TAKE_OVERS says how many, ARRAYSIM_ARRAYS of how many arrays, and
ARRAYSIM_SEED repeats a run.

The client of each is that of the kill tests: it knows of each sector what it may hold, and reads all of it back behind
each take-over, and once more when a former owner that was stopped has gone on. The control leaves one part of the
fencing out, and has to lose data, or the rest shows nothing.
"""

from __future__ import annotations

import json
import os
import random
import signal
import threading
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
ARRAYS = int(os.environ.get("ARRAYSIM_ARRAYS", "3"))

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
    with Ceph(3, "--memory", 3072, "--groups", 8) as c:
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

    def cut(self) -> None:
        """Have the client log in again, and so read everything back."""
        self.torture.forget()  # that it has done so before says nothing
        self.address.cut()

    def await_next(self, what: str, began: float, before: list[int]) -> RadosDaemon:
        """Wait until another one serves, note how long that took, and have the client go there."""
        taker = next_owner(self.others, before, 120)
        self.took.setdefault(what, []).append(time.monotonic() - began)
        self.others.remove(taker)
        last, self.owner = self.owner, taker
        self.torture.forget()
        self.address.move(taker.port)
        return last

    def end(self, silent: bool) -> tuple[float, list[int]]:
        """Kill or stop the owner, and return when that was and how often each of the others has served."""
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
        """Start one again that has ended; check waits until it stands by."""
        d.spawn(d.command())
        self.others.append(d)

    def check(self) -> dict[str, Any]:
        """One serves, and the others stand by, while the client reads everything back once more; return its report."""
        self.cut()
        self.owner.cli("check")
        event = self.verified()
        for d in self.others:
            d.await_standby()
        assert self.owner.ownership()["state"] == "serving", self.owner.ownership()
        return event

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
        return "\n".join(f"--- {d.name}\n{d.log_tail(200)}" for d in self.all)

    def run(self, count: int, first: list[str], over: threading.Event) -> None:
        """Have so many take-overs, some ways first. One that kills an OSD waits, and others go first, for an OSD that
        another one has killed."""
        later: list[str] = []
        while not over.is_set():
            last = self.done() + len(later) >= count
            if later and self.ceph.may_lose_one(wait=last):
                way = later.pop(0)
            elif last:
                return
            else:
                way = first.pop(0) if first else self.rng.choices(list(WAYS), list(WAYS.values()))[0]
                if "OSD" in way:
                    later.append(way)
                    continue
            time.sleep(self.rng.uniform(0.2, 1.5))
            began = time.monotonic()
            self.take_over(way)
            event = self.check()
            print(
                f"  {self.namespace} {self.done()}: {way}, {self.took[way][-1]:.1f} s, with all else "
                f"{time.monotonic() - began:.1f} s; {event['ops']} commands; load {os.getloadavg()[0]:.0f}",
                flush=True,
            )

    def done(self) -> int:
        return sum(len(v) for v in self.took.values())

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
            self.again(victim)
        else:
            last = self.await_next(way, began, before)
        self.verified()
        if "stopped" in way:
            self.rouse(way, last)
        self.again(last)
        if osd:
            self.ceph.refill(osd)

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
            self.unlist(zombie)
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

    def unlist(self, zombie: RadosDaemon) -> None:
        """Take a former owner off the cluster's blocklist, as if its time there were over."""
        head = json.loads(self.ceph.read(self.namespace, "array"))
        addresses = [f["address"] for f in head["fenced"] if f.get("owner", {}).get("pid") == zombie.proc.pid]
        self.ceph.ask("osd blocklist", blocklistop="rm", addr=addresses[-1])


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


def everywhere(ceph: Ceph, arrays: list[Nodes], seed: int) -> list[dict[str, Any]]:
    """Have the take-overs of all arrays at once, and return what each client says at its end."""
    over, events, faults = threading.Event(), [], []
    first = sorted(WAYS, key=WAYS.get)

    def run(n: int, nodes: Nodes) -> None:
        try:
            nodes.start(seed + n)
            nodes.verified()
            share = TAKE_OVERS // len(arrays) + (n < TAKE_OVERS % len(arrays))
            nodes.run(share, first[n :: len(arrays)], over)
            events.append(nodes.finish())
        except BaseException as e:
            faults.append(f"{nodes.namespace}, behind {nodes.done()} take-overs: {type(e).__name__}: {e}")
            faults.append(nodes.logs())
            over.set()

    threads = [threading.Thread(target=run, args=args) for args in enumerate(arrays)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not faults, "\n".join([f"seed {seed}", *faults])
    ceph.may_lose_one(wait=True)  # an OSD may still be at it
    ceph.one_osd.release()
    return events


def test_take_overs(ceph: Ceph) -> None:
    """Nothing acknowledged is lost, in whatever way owners end."""
    seed, began = seeded(), time.monotonic()
    print(
        f"\n{TAKE_OVERS} take-overs of {ARRAYS} arrays, seed {seed}; repeat with ARRAYSIM_TAKE_OVERS={TAKE_OVERS} "
        f"ARRAYSIM_ARRAYS={ARRAYS} ARRAYSIM_SEED={seed}"
    )
    arrays = [Nodes(ceph, f"takers{n}", 3, seed + n) for n in range(ARRAYS)]
    try:
        events = everywhere(ceph, arrays, seed)
    finally:
        for nodes in arrays:
            nodes.close()
    took: dict[str, list[float]] = {}
    for nodes in arrays:
        for way, times in nodes.took.items():
            took.setdefault(way, []).extend(times)
    done = sum(nodes.done() for nodes in arrays)
    event = {k: sum(e[k] for e in events) for k in events[0] if k != "event"}
    each = (time.monotonic() - began) / done
    print(f"{report(took)}\n  {done} take-overs of {ARRAYS} arrays, one every {each:.1f} s: {event}")
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
                nodes.cut()
                nodes.verified()
            except ToolError as e:
                found = str(e)
                break
            zombie.stand_by()
            nodes.others.append(zombie)
        logs = nodes.logs()
    finally:
        nodes.close()
    assert nodes.torture.wrong, f"{done} take-overs without a blocklist have lost nothing\n{found}\n{logs}"
    lost = nodes.torture.wrong
    print(f"  take-over {done} without a blocklist has lost data, as it was to: {len(lost)} sectors, as\n  {lost[0]}")
