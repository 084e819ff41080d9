"""Hosts that write to a node, try again as a host does, and remember what was acknowledged."""

from __future__ import annotations

import threading
import time

from harness import Daemon
from initiator import Answer, Session, SessionLost

#: NOT READY in transition, ABORTED COMMAND of a broken link, states of port groups have changed, another process.
TRANSITION, INTERRUPTED, CHANGED, RESTARTED = 0x02040A, 0x0B0800, 0x062A06, 0x062904


class Writer(threading.Thread):
    """Writes numbers to blocks, tries again as a host does, and remembers what was acknowledged."""

    #: What a host tries again: the path, and all that may have changed while nobody could say so.
    AGAIN = (TRANSITION, INTERRUPTED, CHANGED, RESTARTED, 0x062900, 0x062907, 0x063F0E, 0x062A09, 0x062A01, 0x062A03)

    def __init__(self, d: Daemon, isid: int, blocks: range) -> None:
        super().__init__()
        self.d, self.isid, self.blocks = d, isid, blocks
        self.acknowledged: dict[int, int] = {}
        self.codes: dict[int, int] = {}
        self.writes = self.sessions = 0
        self.over = threading.Event()
        self.fault: BaseException | None = None

    def run(self) -> None:
        try:
            while not self.over.is_set():
                self._session()
        except BaseException as e:
            self.fault = e

    def _session(self) -> None:
        """Write by one session until it is lost; what was not acknowledged then is written again by the next one."""
        try:
            with Session(self.d, isid=self.isid, stays=False) as s:
                self.sessions += 1
                while not self.over.is_set():
                    self._write(s, self.writes + 1)
                    self.writes += 1
        except SessionLost:
            time.sleep(0.1)

    def _write(self, s: Session, number: int) -> None:
        at = self.blocks[number * 7 % len(self.blocks)]
        cdb = b"\x2a\x00" + at.to_bytes(4, "big") + b"\x00\x00\x01\x00"
        while True:
            a = s.send(0, cdb, number.to_bytes(8, "big") * 64)
            if a.status == 0:
                self.acknowledged[at] = number
                return
            assert a.status in (2, 8, 0x28), f"status {a.status:02x}"
            if a.status == 2:
                assert a.code in self.AGAIN, f"{a.code:06x}"
                self.codes[a.code] = self.codes.get(a.code, 0) + 1
            time.sleep(0.01)


def finish(writers: list[Writer], timeout: float = 60) -> None:
    """End the writers, and raise what one of them met."""
    for w in writers:
        w.over.set()
    for w in writers:
        w.join(timeout)
        assert not w.is_alive(), "a command does not end"
        if w.fault:
            raise w.fault


def check(writers: list[Writer], d: Daemon) -> int:
    """Compare what was acknowledged with what a node reads; return the number of blocks."""
    checked = 0
    with Session(d, isid=99) as s:
        s.ready(0)
        for w in writers:
            for at, number in w.acknowledged.items():
                data = s.good(0, b"\x28\x00" + at.to_bytes(4, "big") + b"\x00\x00\x01\x00", room=512)
                assert data == number.to_bytes(8, "big") * 64, (
                    f"block {at} holds {data[:8].hex()}, acknowledged {number}"
                )
                checked += 1
    return checked


class Host(Writer):
    """Writes pieces and reads them, verified, and notes how commands end and how long they take."""

    def __init__(self, d: Daemon, isid: int, first: int, pieces: int, sectors: int = 32) -> None:
        """Write to so many pieces of so many sectors each, from a sector on."""
        super().__init__(d, isid, range(first, first + pieces * sectors, sectors))
        self.sectors = sectors
        self.possible: dict[int, set[int]] = {}  # of a piece whose last write has not ended well
        self.failed: dict[int, int] = {}  # sense codes of commands that a host does not try again
        self.failures = (0x072707,)  # which may occur
        self.reads = 0
        self.wrong: list[str] = []
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget how commands ended so far, and how long they took."""
        self.codes = {}
        self.slowest = self.gap = 0.0  # the longest command, and the longest time between two that ended well, in s
        self.good = time.monotonic()

    def contents(self, number: int) -> bytes:
        """Return a piece; 0: nothing was written there."""
        return number.to_bytes(8, "big") * (64 * self.sectors)

    def cdb(self, operation: int, at: int) -> bytes:
        return bytes([operation, 0]) + at.to_bytes(8, "big") + self.sectors.to_bytes(4, "big") + bytes(2)

    def _write(self, s: Session, number: int) -> None:
        at = self.blocks[number * 7 % len(self.blocks)]
        self.possible.setdefault(at, {self.acknowledged.get(at, 0)}).add(number)
        a = self._send(s, self.cdb(0x8A, at), self.contents(number))
        if a is not None and a.status == 0:
            self.acknowledged[at] = number
            del self.possible[at]
        if number % 2 == 0:
            self.look(s, self.blocks[number * 11 % len(self.blocks)])

    def look(self, s: Session, at: int) -> None:
        """Read a piece, and compare it with all that may be there."""
        a = self._send(s, self.cdb(0x88, at), room=self.sectors * 512)
        if a is None or a.status != 0:
            return
        self.reads += 1
        may = self.possible.get(at, {self.acknowledged.get(at, 0)})
        if a.data not in [self.contents(n) for n in may]:
            self.wrong.append(f"sector {at}: {a.data[:8].hex()}.., it may be one of {sorted(may)}")

    def _send(self, s: Session, cdb: bytes, out: bytes = b"", room: int = 0) -> Answer | None:
        """Carry out a command, and again what a host tries again; None: it has not ended well when the test is over."""
        while True:
            began = time.monotonic()
            a = s.send(0, cdb, out, room)
            ended = time.monotonic()
            self.slowest = max(self.slowest, ended - began)
            if a.status == 0:
                self.gap, self.good = max(self.gap, ended - self.good), ended
                return a
            code = a.code if a.status == 2 else a.status
            if a.status == 2 and code not in self.AGAIN:
                assert code in self.failures, f"{cdb[:10].hex()}: {code:06x}"
                self.failed[code] = self.failed.get(code, 0) + 1
                time.sleep(0.05)
                return a
            self.codes[code] = self.codes.get(code, 0) + 1
            if self.over.is_set():
                return None
            time.sleep(0.05)


def verify(hosts: list[Host], d: Daemon) -> int:
    """Read all that hosts have written, when they do not write any more; return the number of pieces."""
    with Session(d, isid=98) as s:
        s.ready(0)
        for h in hosts:
            h.over.clear()
            h.failures = ()
            for at in {**h.acknowledged, **h.possible}:
                h.look(s, at)
    wrong = [w for h in hosts for w in h.wrong]
    assert not wrong, f"{len(wrong)} reads are wrong, as: {wrong[:5]}"
    return sum(len(h.acknowledged) for h in hosts)
