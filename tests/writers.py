"""Hosts that write to a node, try again as a host does, and remember what was acknowledged."""

from __future__ import annotations

import threading
import time

from harness import Daemon
from initiator import Session, SessionLost

#: NOT READY in transition, ABORTED COMMAND of a broken link, states of port groups have changed, another process.
TRANSITION, INTERRUPTED, CHANGED, RESTARTED = 0x02040A, 0x0B0800, 0x062A06, 0x062904


class Writer(threading.Thread):
    """Writes numbers to blocks, tries again as a host does, and remembers what was acknowledged."""

    #: What a host tries again.
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
