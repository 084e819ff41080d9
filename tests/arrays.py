"""The arrays that tests run against, and how to read and write their LUNs."""

from __future__ import annotations

import hashlib
import random
import time
from pathlib import Path

from harness import Config, Daemon, KiB, MiB, Pool, Server, TiB, Volume, run
from scrape import Metrics

#: LUNs of the standard array.
THIN, PEER, OTHER_POOL, NATIVE_4K, PROTECTED, REMOVABLE, HUGE, PEER_4K, THICK = range(9)

STANDARD = Config(
    pools=[Pool("p0"), Pool("p1")],
    volumes=[
        Volume("thin", THIN),
        Volume("peer", PEER),
        Volume("other", OTHER_POOL, pool="p1"),
        Volume("native", NATIVE_4K, block_size=4096),
        Volume("protected", PROTECTED, write_protect=True),
        Volume("removable", REMOVABLE, removable=True),
        Volume("huge", HUGE, size=TiB),
        Volume("native2", PEER_4K, block_size=4096),
        Volume("thick", THICK, thin=False, size=64 * MiB),
    ],
    set_groups=["iqn.2026-01.io.arraysim:sgshim"],
)

BLOCK_SIZE = {NATIVE_4K: 4096, PEER_4K: 4096}


def block_size(lun: int) -> int:
    """Return the logical block size of a LUN of the standard array."""
    return BLOCK_SIZE.get(lun, 512)


def noise(size: int, seed: int) -> bytes:
    """Return reproducible bytes that do not compress."""
    return random.Random(seed).randbytes(size)


def write(server: Server, lun: int, lba: int, data: bytes, tmp: Path) -> None:
    """Write data to a LUN by WRITE commands."""
    bs = block_size(lun)
    assert len(data) % bs == 0
    f = tmp / "in"
    f.write_bytes(data)
    server.sg("sg_dd", f"if={f}", f"of=/dev/sg{lun}", f"bs={bs}", f"seek={lba}", f"count={len(data) // bs}")


def read(server: Server, lun: int, lba: int, blocks: int, tmp: Path) -> bytes:
    """Read blocks of a LUN by READ commands."""
    bs = block_size(lun)
    f = tmp / "out"
    f.unlink(missing_ok=True)
    server.sg("sg_dd", f"if=/dev/sg{lun}", f"of={f}", f"bs={bs}", f"skip={lba}", f"count={blocks}")
    data = f.read_bytes()
    assert len(data) == blocks * bs
    return data


#: How much is compared at once: to touch memory for the first time is dear where the system is a guest.
WINDOW = MiB


def same(have: bytes | memoryview, *want: bytes | memoryview | int) -> None:
    """Assert equality of large contents; say where they differ instead of printing them.

    Several wanted pieces follow each other; a number is so many zeros.
    """
    sizes = [w if isinstance(w, int) else len(w) for w in want]
    assert len(have) == sum(sizes), f"{len(have)} bytes, expected {sum(sizes)}"
    have, start = memoryview(have), 0
    differ: list[tuple[int, bytes, bytes]] = []
    for piece, size in zip(want, sizes, strict=True):
        for at in range(0, size, WINDOW):
            n = min(WINDOW, size - at)
            a = bytes(have[start + at : start + at + n])
            b = bytes(n) if isinstance(piece, int) else bytes(piece[at : at + n])
            if a != b:
                sectors = ((start + at + i, a[i : i + 512], b[i : i + 512]) for i in range(0, n, 512))
                differ += [s for s in sectors if s[1] != s[2]]
        start += size
    if differ:
        at, a, b = differ[0]
        raise AssertionError(
            f"{len(differ)} sectors differ, the first at {at // 512}: {a[:16].hex()}.., expected {b[:16].hex()}.."
        )


def sha256(path: Path) -> str:
    """Return the digest of a file."""
    with path.open("rb") as f:
        return hashlib.file_digest(f, "sha256").hexdigest()


def convert(source: str | Path, target: str | Path, *, offload: bool = False, timeout: float = 300) -> None:
    """Copy a raw image by qemu-img; offload asks for copy offloading."""
    flags = ["-C"] if offload else ["-W", "-m", "8"]
    run(["qemu-img", "convert", "-f", "raw", "-O", "raw", "-n", *flags, source, target], timeout=timeout)


def destaged(daemon: Daemon, timeout: float = 60) -> None:
    """Wait until nothing in the write cache is dirty: what is left destages when hosts write no more."""
    end = time.monotonic() + timeout
    while dirty := daemon.metrics().sum("cache_dirty_bytes"):
        assert time.monotonic() < end, f"{dirty:.0f} bytes are still dirty"
        time.sleep(0.05)


class Delta:
    """What happened to the counters of an array since the object was made."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.start = daemon.metrics()
        self.end: Metrics | None = None

    def stop(self) -> Delta:
        """Take the end of the interval; without it, it is the first question."""
        self.end = self.daemon.metrics()
        return self

    def sum(self, name: str, **labels: str) -> int:
        """Return by how many the sum of the samples with these labels grew."""
        if self.end is None:
            self.stop()
        assert self.end is not None
        return int(self.end.sum(name, **labels) - self.start.sum(name, **labels))

    def wire(self, volume: str, direction: str | None = None) -> int:
        """Return the bytes that moved between hosts and a volume."""
        labels = {"volume": volume} | ({"direction": direction} if direction else {})
        return self.sum("host_transferred_bytes_total", **labels)

    def lower(self) -> int:
        """Return the bytes that were admitted to the cache, all pools and origins."""
        return self.sum("cache_admitted_bytes_total")


#: Host traffic of commands that only describe data: CDB lists and inquiries.
NEARLY_NOTHING = 64 * KiB
