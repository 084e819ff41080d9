"""qemu-img: a real image in and out, and a clone by XCOPY."""

from __future__ import annotations

from pathlib import Path

import pytest
from arrays import NEARLY_NOTHING, Delta, convert, sha256
from harness import Config, Daemon, MiB, Pool, Volume, run

pytestmark = pytest.mark.slow  # the image takes half a minute to make


@pytest.fixture(scope="module")
def image_array(rootfs: Path):  # type: ignore[no-untyped-def]
    size = rootfs.stat().st_size
    volumes = [Volume(f"v{n}", n, size=size) for n in range(3)] + [Volume("far", 3, pool="p1", size=size)]
    with Daemon(Config(pools=[Pool("p0"), Pool("p1")], volumes=volumes, cache=32 * MiB), "qemu") as d:
        convert(rootfs, d.url(0))
        yield d


def test_in_and_out(image_array: Daemon, rootfs: Path, tmp_path: Path) -> None:
    back = tmp_path / "back"
    run(["qemu-img", "convert", "-f", "raw", "-O", "raw", image_array.url(0), back], timeout=300)
    assert sha256(back) == sha256(rootfs)


@pytest.mark.parametrize("lun", [1, 3], ids=["same-pool", "other-pool"])
def test_clone_by_xcopy(image_array: Daemon, rootfs: Path, tmp_path: Path, lun: int) -> None:
    d = Delta(image_array)
    convert(image_array.url(0), image_array.url(lun), offload=True)
    d.stop()
    size = rootfs.stat().st_size
    volume = {1: "v1", 3: "far"}[lun]
    assert d.sum("host_commands_total", volume=volume, op="xcopy_dst") > 0, "qemu-img fell back to reads and writes"
    assert d.wire("v0") + d.wire(volume) <= 4 * NEARLY_NOTHING + size // 1000
    moved = d.sum("undercover_write_bytes_total", volume=volume)
    assert moved == 0 if lun == 1 else 0 < moved <= size
    run(["qemu-img", "compare", "-f", "raw", "-F", "raw", rootfs, image_array.url(lun)], timeout=300)
    assert run(["qemu-img", "map", "-f", "raw", "--output=json", image_array.url(lun)]).stdout


def test_host_copy_goes_over_the_wire(image_array: Daemon, rootfs: Path) -> None:
    d = Delta(image_array)
    convert(image_array.url(0), image_array.url(2))
    d.stop()
    assert d.wire("v2", "write") > 32 * MiB
    assert d.sum("undercover_write_bytes_total", volume="v2") == 0
    run(["qemu-img", "compare", "-f", "raw", "-F", "raw", rootfs, image_array.url(2)], timeout=300)


def test_bench_with_patterns(image_array: Daemon) -> None:
    """qemu-io writes patterns and verifies them, aligned and not."""
    commands = ["write -P 0x5a 1000k 3m", "read -P 0x5a 1000k 3m", "write -z 1M 512k", "read -P 0 1M 512k", "flush"]
    commands += ["write -P 0x11 512 512", "read -P 0x11 512 512", "discard 2M 64k", "read -P 0x5a 3M 256k"]
    args = [x for c in commands for x in ("-c", c)]
    out = run(["qemu-io", "-f", "raw", *args, image_array.url(2)]).text
    assert "failed" not in out.lower(), out
