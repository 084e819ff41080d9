"""The zeroing benchmark on a block device of the kernel: SG_IO to a LUN behind tcm_loop."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import doors
import pytest
from arrays import NEARLY_NOTHING, Delta
from guest import Disk
from harness import Daemon, MiB, Result, Volume, binary, run

SIZE = 32 * MiB
BLOCKS = SIZE // MiB
VOLUMES = [Volume("sectors", 0, size=64 * MiB), Volume("native", 1, block_size=4096, size=64 * MiB)]


@pytest.fixture(scope="module")
def array(lio: None) -> Iterator[tuple[Daemon, dict[str, Disk]]]:
    """An array with its disks."""
    with doors.KernelDaemon(name="zero-bench") as d:
        with doors.looped("naa.5001405000000020", [v.name for v in VOLUMES], *map(doors.backstore, VOLUMES)) as disks:
            yield d, {v.name: disk for v, disk in zip(VOLUMES, disks, strict=True)}


def bench(disk: Disk, *options: str, stdin: bytes = b"", expect: int | None = 0) -> Result:
    """Run the benchmark on a disk."""
    command = [binary(), "bench", "zero", "--size", "32M", "--target", disk.sd, *options]
    return run(command, timeout=300, stdin=stdin, expect=expect)


def holds(disk: Disk) -> set[int]:
    """Return the bytes that the disk's beginning consists of."""
    data = run(["dd", f"if={disk.sd}", "bs=1M", f"count={BLOCKS}", "iflag=direct", "status=none"]).raw
    return set(data)


@pytest.mark.parametrize(
    ("volume", "kind", "vaai"),
    [
        ("sectors", "eager", "on"),
        ("sectors", "eager", "off"),
        ("sectors", "lazy", "on"),
        ("sectors", "lazy", "off"),
        ("sectors", "thin", "on"),
        ("native", "eager", "on"),
        ("native", "thin", "off"),
    ],
)
def test_zero(array: tuple[Daemon, dict[str, Disk]], volume: str, kind: str, vaai: str) -> None:
    daemon, disks = array
    disk = disks[volume]
    block = next(v.block_size for v in VOLUMES if v.name == volume)
    run(["dd", "if=/dev/urandom", f"of={disk.sd}", "bs=1M", f"count={BLOCKS}", "oflag=direct", "status=none"])
    delta = Delta(daemon)
    r: dict[str, Any] = json.loads(bench(disk, "--disk", kind, "--vaai", vaai, "--json", "--yes").stdout)
    delta.stop()
    assert (r["disk"], r["vaai"], r["bytes"], r["where"]) == (kind, vaai, SIZE, str(disk.sd))
    assert r["seconds"] > 0 and r["gb_per_second"] > 0 and r["fallbacks"] == 0
    assert 0 < r["latency_mean_ms"] <= 1000 * r["seconds"] and r["latency_p99_ms"] > 0
    assert abs(r["gb_per_second"] * r["seconds"] * 1e9 - SIZE) < 0.01 * SIZE
    # A WRITE SAME carries one block, and guests write everything once.
    wire = (BLOCKS * block if vaai == "on" else SIZE) + (0 if kind == "eager" else SIZE)
    assert abs(r["wire_mb_per_second"] * r["seconds"] * 1e6 - wire) < 0.01 * wire
    assert wire <= delta.wire(volume, "write") <= wire + NEARLY_NOTHING
    described = SIZE if vaai == "on" else 0
    assert delta.sum("offload_bytes_total", primitive="write_same", path="metadata") == described
    if kind == "eager" and vaai == "on":
        assert delta.lower() == 0, "zeroing by WRITE SAME went through the cache"
    assert holds(disk) == {0}


def test_table(array: tuple[Daemon, dict[str, Disk]]) -> None:
    said = bench(array[1]["sectors"], "--disk", "eager", "--yes").stdout
    assert "eager disk of 32MiB, VAAI on" in said and "on the wire" in said and "WRITE SAME latency" in said


@pytest.mark.parametrize("answer", [b"", b"no\n", b"y\n"], ids=["nothing", "no", "y"])
def test_asks(array: tuple[Daemon, dict[str, Disk]], answer: bytes) -> None:
    daemon, disks = array
    disk = disks["sectors"]
    run(["dd", "if=/dev/urandom", f"of={disk.sd}", "bs=1M", f"count={BLOCKS}", "oflag=direct", "status=none"])
    delta = Delta(daemon)
    r = bench(disk, stdin=answer, expect=None)
    assert r.returncode != 0
    assert f"overwrites the first 32 MiB of {disk.sd}" in r.stderr and "nothing was written" in r.stderr
    assert delta.wire("sectors", "write") < NEARLY_NOTHING and delta.sum("offload_bytes_total") == 0
    assert len(holds(disk)) > 1, "it was overwritten"


def test_yes_is_an_answer(array: tuple[Daemon, dict[str, Disk]]) -> None:
    disk = array[1]["sectors"]
    bench(disk, stdin=b"yes\n")
    assert holds(disk) == {0}


def test_a_disk_in_use(array: tuple[Daemon, dict[str, Disk]]) -> None:
    disk = array[1]["sectors"]
    fd = os.open(disk.sd, os.O_RDWR | os.O_EXCL)
    try:
        r = bench(disk, "--yes", expect=None)
    finally:
        os.close(fd)
    assert r.returncode != 0 and "is in use" in r.stderr


def test_not_a_disk(tmp_path: Any) -> None:
    file = tmp_path / "file"
    file.write_bytes(bytes(SIZE))
    r = run([binary(), "bench", "zero", "--size", "1M", "--target", file, "--yes"], expect=None)
    assert r.returncode != 0 and "is not a device" in r.stderr
