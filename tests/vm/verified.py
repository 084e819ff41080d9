"""Writers that know what they wrote: which versions each sector of a LUN may have.

They go past the page cache: what the kernel acknowledges to them, the LUN has acknowledged.
"""

from __future__ import annotations

import os
import random
import struct
import threading
import time
from dataclasses import dataclass, field

from harness import ToolError
from load import content, memory

SECTOR = 512
#: What a sector says, again and again to its end: seed, its number, version.
SAYS = struct.Struct("<IIQ")
#: Sectors of the longest write.
LONGEST = 32


class Ledger:
    """What each sector may have: the version that is sure, or one that was tried since and has no answer."""

    def __init__(self, sectors: int, seed: int) -> None:
        self.seed = seed & 0xFFFFFFFF
        self.sure = [0] * sectors  # 0: never written, zeroes
        self.tried: list[list[int]] = [[] for _ in range(sectors)]
        self.version = 0
        self.lock = threading.RLock()

    def data(self, sector: int, version: int) -> bytes:
        """Return what a version of a sector is."""
        return SAYS.pack(self.seed, sector, version) * (SECTOR // SAYS.size) if version else bytes(SECTOR)

    def begin(self, first: int, count: int) -> int:
        """Note that a new version of some sectors is on its way; return it."""
        with self.lock:
            self.version += 1
            for s in range(first, first + count):
                self.tried[s].append(self.version)
            return self.version

    def end(self, first: int, count: int, version: int) -> None:
        """Note that it was acknowledged: what was there before must not come back."""
        with self.lock:
            for s in range(first, first + count):
                self.sure[s] = version
                self.tried[s] = [v for v in self.tried[s] if v > version]

    def settle(self, device: str) -> int:
        """Read everything: it must be sure or tried, and is sure from now on.

        Nobody else may write meanwhile. Return how many sectors have what had no answer.
        """
        found = content(device, len(self.sure) * SECTOR)
        came, wrong = 0, []
        for s, sure in enumerate(self.sure):
            got = bytes(found[s * SECTOR : (s + 1) * SECTOR])
            may = [sure, *self.tried[s]]
            version = next((v for v in may if got == self.data(s, v)), None)
            if version is None:
                wrong.append(f"sector {s} may have {may}, and has seed, sector, version {SAYS.unpack_from(got)}")
                continue
            came += version != sure
            self.sure[s], self.tried[s] = version, []
        assert not wrong, f"{len(wrong)} sectors are wrong (seed {self.seed}): " + "; ".join(wrong[:5])
        return came


@dataclass
class Late:
    """A write that was acknowledged when its writer no longer counted."""

    first: int
    count: int
    version: int


@dataclass
class Writers:
    """Threads that write to a device while they may, until they are stopped or a write fails."""

    device: str
    ledger: Ledger
    seed: int
    threads: int = 8
    acknowledged: int = 0
    late: list[Late] = field(default_factory=list)
    errors: list[OSError] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stopped = self.detached = False
        self.may = threading.Event()
        self.may.set()
        self.fd = os.open(self.device, os.O_WRONLY | os.O_DIRECT)
        self.running = [threading.Thread(target=self._write, args=(i,), daemon=True) for i in range(self.threads)]
        for t in self.running:
            t.start()

    def _write(self, number: int) -> None:
        """Write to the part of the LUN that is this thread's: two writes never meet."""
        rng = random.Random(f"{self.seed} {number}")
        part = len(self.ledger.sure) // self.threads
        buffer = memoryview(memory(LONGEST * SECTOR))
        while self.may.wait() and not self.stopped:
            count = rng.randint(1, LONGEST)
            first = number * part + rng.randrange(part - count)
            if not self._put(buffer, first, count):
                return

    def _put(self, buffer: memoryview, first: int, count: int) -> bool:
        version = self.ledger.begin(first, count)
        piece = buffer[: count * SECTOR]
        piece[:] = b"".join(self.ledger.data(s, version) for s in range(first, first + count))
        try:
            n = os.pwrite(self.fd, piece, first * SECTOR)
        except OSError as e:
            self.errors.append(e)
            return False
        assert n == len(piece), f"{n} of {len(piece)} bytes were written"
        with self.ledger.lock:
            late = self.detached
            if late:
                self.late.append(Late(first, count, version))
            else:
                self.acknowledged += 1
                self.ledger.end(first, count, version)
        return True

    def detach(self) -> None:
        """From now on nothing that is acknowledged here counts; it is kept apart."""
        with self.ledger.lock:
            self.detached = self.stopped = True

    def await_writes(self, more: int) -> None:
        """Have them write, and wait until so many more writes were acknowledged."""
        self.may.set()
        want = self.acknowledged + more
        deadline = time.monotonic() + 120
        while self.acknowledged < want:
            if self.errors or time.monotonic() > deadline:
                raise ToolError(f"{self.acknowledged} of {want} writes were acknowledged; errors: {self.errors}")
            time.sleep(0.01)

    def pause(self) -> None:
        """Have them begin nothing more until somebody waits for writes: in a guest each is dear."""
        self.may.clear()

    def finish(self, timeout: float = 120) -> None:
        """Wait for the end of what is under way, whatever it is."""
        self.stopped = True
        self.may.set()
        deadline = time.monotonic() + timeout
        for t in self.running:
            t.join(max(0.0, deadline - time.monotonic()))
        under_way = sum(t.is_alive() for t in self.running)
        if under_way:
            raise ToolError(f"{under_way} writes have not ended after {timeout:g} s")
        os.close(self.fd)
