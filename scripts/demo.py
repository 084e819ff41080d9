#!/usr/bin/env python3
"""Show on a real disk image what an array does below what its hosts see.

A Debian root file system is written to LUN 0, cloned to LUN 1 by EXTENDED COPY
and to LUN 2 by host reads and writes; LUN 3, which held a copy too, is zeroed
whole by WRITE SAME. Then everything is read back and compared, and a table shows
each step in both layers. That is done in a pool that copies by reference. A
second array moves the bytes of a copy, to a back-end disk of limited bandwidth:
a time table shows the clone filling the write cache while its LUN looks idle.
While `make run` runs, that second array is this one, so that its page shows it.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from arrays import Delta, convert, sha256  # noqa: E402
from harness import REPO, Config, Daemon, Mdisk, MiB, Pool, Volume, binary, run  # noqa: E402

BLOCKS_A_COMMAND = 32768  # 16 MiB a copy segment


@dataclass
class Step:
    """One line of the table: bytes by layer; origins of the lower one apart."""

    name: str
    seconds: float
    wire: int
    described: int
    cache: dict[str, int] = field(default_factory=dict)
    backend: dict[str, int] = field(default_factory=dict)


@dataclass
class Sample:
    """One line of the time table."""

    t: float
    host_rate: float  # bytes/s that hosts wrote to LUN 1
    dirty: float
    used: float
    limit: float


def settle(array: Daemon, timeout: float = 120, **labels: str) -> None:
    """Wait until everything is destaged, so that the back end's bytes are complete."""
    deadline = time.monotonic() + timeout
    while array.metrics().sum("cache_dirty_bytes", **labels) > 0:
        if time.monotonic() > deadline:
            raise AssertionError("the write cache does not drain")
        time.sleep(0.05)


def grown(d: Delta, name: str, **labels: str) -> dict[str, int]:
    """Return the growth of a family by origin, without what did not grow."""
    assert d.end is not None
    now, before = d.end.by("origin", name, **labels), d.start.by("origin", name, **labels)
    out = {k: int(v - before.get(k, 0)) for k, v in now.items()}
    return {k: v for k, v in out.items() if v}


def measure(array: Daemon, name: str, action: Callable[[], Any]) -> Step:
    """Carry out a step and take both layers' counters around it."""
    settle(array)
    d = Delta(array)
    start = time.monotonic()
    action()
    seconds = time.monotonic() - start
    settle(array)
    d.stop()
    return Step(
        name,
        seconds,
        d.sum("host_transferred_bytes_total"),
        # A copy is described on both of its units; count what it writes.
        d.sum("host_described_bytes_total") - d.sum("host_described_bytes_total", op="xcopy_src"),
        grown(d, "cache_admitted_bytes_total"),
        grown(d, "backend_bytes_total", direction="write"),
    )


def xcopy(array: Daemon, source: int, target: int, blocks: int) -> list[str]:
    """Return the operands of sg_xcopy for a whole image."""
    where = [f"if=/dev/sg{source}", f"of=/dev/sg{target}", "bs=512", f"count={blocks}"]
    return ["sg_xcopy", *where, f"bpt={BLOCKS_A_COMMAND}"]


def check_image(array: Daemon, lun: int, want: str, work: Path) -> None:
    """Read a LUN back: the same bytes, and a clean file system."""
    back = work / f"lun{lun}"
    run(["qemu-img", "convert", "-f", "raw", "-O", "raw", array.url(lun), back], timeout=300)
    assert sha256(back) == want, f"LUN {lun} differs from the image"
    run(["e2fsck", "-fn", back])
    back.unlink()


def check_zeros(array: Daemon, lun: int, work: Path) -> None:
    """Read a LUN back: nothing but zeros."""
    back = work / f"lun{lun}"
    run(["qemu-img", "convert", "-f", "raw", "-O", "raw", "-S", "0", array.url(lun), back], timeout=300)
    with back.open("rb") as f:
        while chunk := f.read(MiB):
            assert not any(chunk), f"LUN {lun} is not zero"
    back.unlink()


def by_reference(image: Path, work: Path) -> list[Step]:
    """Run the main job in a pool that copies by reference; verify all of it."""
    size = image.stat().st_size
    blocks = size // 512
    names = ["original", "clone", "copied", "zeroed"]
    config = Config(volumes=[Volume(n, i, size=size) for i, n in enumerate(names)], cache=64 * MiB)
    want = sha256(image)
    with Daemon(config, "demo") as array:
        convert(image, array.url(3))
        steps = [
            measure(array, "image -> LUN 0, host writes", lambda: convert(image, array.url(0))),
            measure(array, "LUN 0 -> LUN 1, EXTENDED COPY", lambda: array.sg(*xcopy(array, 0, 1, blocks), timeout=300)),
            measure(array, "LUN 0 -> LUN 2, host copy", lambda: convert(array.url(0), array.url(2))),
            measure(
                array,
                "LUN 3 zeroed, WRITE SAME",
                lambda: array.sg("sg_write_same", "--16", "--lba=0", f"--num={blocks}", "/dev/sg3"),
            ),
        ]
        for lun in (0, 1, 2):
            check_image(array, lun, want, work)
        check_zeros(array, 3, work)
        array.cli("check")
    return steps


def undercover(image: Path, work: Path, bandwidth: int = 16 * MiB, every: float = 0.5) -> list[Sample]:
    """Clone into a pool with a slow disk that moves the bytes; sample meanwhile.

    The source lies in a pool of its own: on the slow disk, reading it would take
    turns with destaging, and the copy would never outrun the destager.
    """
    size = image.stat().st_size
    config = Config(
        pools=[
            Pool("fast", copy="data"),
            Pool("slow", copy="data", mdisks=[Mdisk("slow-m0", bandwidth=bandwidth)]),
        ],
        volumes=[Volume("original", 0, pool="fast", size=size), Volume("clone", 1, pool="slow", size=size)],
        cache=64 * MiB,
    )
    with Daemon(config, "demo") as array:
        samples = watch_clone(array, image, work, Clone((0, 1), "clone", "slow"), every)
        array.cli("check")
    return samples


@dataclass
class Clone:
    """A copy by offload between two LUNs; volume and pool are the target's."""

    luns: tuple[int, int]
    volume: str
    pool: str


def watch_clone(array: Daemon, image: Path, work: Path, clone: Clone, every: float) -> list[Sample]:
    """Write the image to the first LUN, copy it to the second, and sample both layers meanwhile."""
    source, target = clone.luns
    convert(image, array.url(source))
    settle(array, pool=clone.pool)
    samples: list[Sample] = []
    start = last = array.metrics()
    job = background(array, source, target, image.stat().st_size // 512)
    try:
        while job.poll() is None:
            time.sleep(every)
            now = array.metrics()
            sent = now.sum("host_transferred_bytes_total", volume=clone.volume, direction="write")
            before = last.sum("host_transferred_bytes_total", volume=clone.volume, direction="write")
            samples.append(
                Sample(
                    now.time - start.time,
                    (sent - before) / (now.time - last.time),
                    now.sum("cache_dirty_bytes", volume=clone.volume),
                    now.sum("cache_partition_used_bytes", pool=clone.pool),
                    now.sum("cache_partition_limit_bytes", pool=clone.pool),
                )
            )
            last = now
    finally:
        if job.poll() is None:
            job.kill()
        job.wait()
    assert job.returncode == 0, f"sg_xcopy ended with {job.returncode}"
    check_image(array, target, sha256(image), work)
    return samples


class Running(Daemon):
    """The array of `make run`, with pools and volumes of the demonstration's own while the block runs."""

    def __init__(self, status: dict[str, Any]) -> None:
        super().__init__(name="demo")
        self.data = REPO / "data"
        self.target = status["target"]
        self.port = int(status["portal"].rsplit(":", 1)[1])
        self.metrics_port = int(status["page"].rstrip("/").rsplit(":", 1)[1])
        self.page = status["page"]

    @classmethod
    def find(cls) -> Running | None:
        """Return the array that runs on ./data, if one does and lets everybody in from here."""
        r = run([binary(), "status", "--json", "--data", REPO / "data"], expect=None)
        status = json.loads(r.stdout) if r.returncode == 0 else {}
        if not status.get("page") or not status.get("portal", "").startswith(("127.0.0.1:", "0.0.0.0:", "[::]:")):
            return None
        array = cls(status)
        if run(["iscsi-ls", "-s", array.portal()], expect=None).returncode != 0:
            array.cleanup()
            return None
        return array

    def prepare(self, size: int) -> Clone:
        """Make a fast pool with a source and a slow one with a target."""
        self.remove()
        taken = {e["lun"] for e in self.cli_json("export", "list")}
        luns = [n for n in range(100, 200) if n not in taken][:2]
        for name, lun, limit in (("demo-original", luns[0], []), ("demo-clone", luns[1], ["--bandwidth", "16MiB"])):
            pool = name.replace("original", "fast").replace("clone", "slow")
            self.cli("pool", "create", pool, "--size", 2 * size + 64 * MiB, "--mdisks", 1, "--copy-data", *limit)
            self.cli("volume", "create", name, "--pool", pool, "--size", size, "--lun", lun)
        return Clone((luns[0], luns[1]), "demo-clone", "demo-slow")

    def remove(self) -> None:
        """Delete what prepare made, now or in an earlier run that was interrupted."""
        for v in self.cli_json("volume", "list"):
            if v["name"] in ("demo-original", "demo-clone"):
                self.cli("volume", "delete", v["name"], "--force")
        for p in self.cli_json("pool", "list"):
            deadline = time.monotonic() + 60
            while p["name"] in ("demo-fast", "demo-slow"):
                # What the volumes held becomes free step by step.
                r = self.cli("pool", "delete", p["name"], expect=None)
                if r.returncode == 0:
                    break
                if time.monotonic() > deadline:
                    raise AssertionError(str(r))
                time.sleep(0.1)

    def __enter__(self) -> Running:
        return self

    def __exit__(self, *exc: object) -> None:
        try:
            self.remove()
        finally:
            self.cleanup()


def background(array: Daemon, source: int, target: int, blocks: int) -> subprocess.Popen[bytes]:
    """Start the clone and return its process."""
    from harness import tool

    argv = xcopy(array, source, target, blocks)
    env = {
        "LD_PRELOAD": str(tool("sgshim.so")),
        "ARRAYSIM_TIMEOUT": "300",
        "ARRAYSIM_SG": ";".join(f"/dev/sg{n}={array.url(n)}" for n in (source, target)),
    }
    command = ["env", *(f"{k}={v}" for k, v in env.items()), *argv]
    return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def mib(n: float) -> str:
    """Format bytes for a person."""
    return f"{n / MiB:.1f}" if n >= MiB / 20 or n == 0 else f"{n / MiB:.3f}"


def origins(d: dict[str, int]) -> str:
    """Format bytes by origin."""
    return ", ".join(f"{k} {mib(v)}" for k, v in sorted(d.items())) or "0"


def show_steps(steps: list[Step]) -> None:
    """Print the table of steps, in MiB."""
    head = f"{'step':32} {'on the wire':>12} {'described':>10}"
    print(f"{head}  {'cache, by origin':20} {'back end, by origin':20} {'s':>6}")
    for s in steps:
        print(
            f"{s.name:32} {mib(s.wire):>12} {mib(s.described):>10}  "
            f"{origins(s.cache):20} {origins(s.backend):20} {s.seconds:6.2f}"
        )


def show_samples(samples: list[Sample]) -> None:
    """Print the time table."""
    print(f"{'t s':>6} {'host MB/s to LUN 1':>19} {'dirty MB of LUN 1':>18} {'partition used / cap MB':>24}")
    for s in samples:
        used = f"{s.used / 1e6:.1f} / {s.limit / 1e6:.1f}"
        print(f"{s.t:6.1f} {s.host_rate / 1e6:19.2f} {s.dirty / 1e6:18.1f} {used:>24}")


def main() -> None:
    """Run both parts and print their tables."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--image", type=Path, help="a raw image to use in place of a Debian root file system")
    opt = p.parse_args()
    if opt.image is None:
        made = subprocess.run([REPO / "scripts" / "rootfs.sh"], stdout=subprocess.PIPE, check=True, text=True)
        opt.image = Path(made.stdout.split()[-1])
    work = REPO / ".cache" / "demo"
    work.mkdir(parents=True, exist_ok=True)
    size = opt.image.stat().st_size
    print(f"Image: {opt.image.name}, {size / MiB:.0f} MiB, ext4. All figures in MiB.\n")
    print("A pool that copies by reference:")
    show_steps(by_reference(opt.image, work))
    print("\nRead back: LUN 0, 1 and 2 equal the image byte for byte, e2fsck finds them clean; LUN 3 is zeros.\n")
    print("A pool that moves the bytes of a copy, to a disk that writes 16 MiB/s, while LUN 0 is cloned to LUN 1:")
    if running := Running.find():
        print(f"(on the array that runs: watch it at {running.page})")
        with running:
            samples = watch_clone(running, opt.image, work, running.prepare(size), 0.5)
    else:
        samples = undercover(opt.image, work)
    show_samples(samples)
    peak = max(s.used / s.limit for s in samples)
    print(f"\nHosts wrote nothing to LUN 1, and its clone took {peak:.0%} of its pool's share of the write cache.")


if __name__ == "__main__":
    main()
