"""sg3_utils: EXTENDED COPY within and across units and pools, RECEIVE COPY RESULTS."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from arrays import (
    NATIVE_4K,
    NEARLY_NOTHING,
    OTHER_POOL,
    PEER,
    PEER_4K,
    THICK,
    THIN,
    Delta,
    block_size,
    noise,
    read,
    same,
    write,
)
from harness import Daemon

VOLUME = {THIN: "thin", PEER: "peer", OTHER_POOL: "other", NATIVE_4K: "native", PEER_4K: "native2", THICK: "thick"}

#: name -> source, its LBA, destination, its LBA, blocks, further operands of sg_xcopy
COPIES = {
    "same-unit": (THIN, 1000, THIN, 90001, 5000, []),
    "two-units": (THIN, 1001, PEER, 2003, 5000, []),
    "two-pools": (THIN, 1001, OTHER_POOL, 2003, 5000, []),
    "to-thick": (THIN, 64, THICK, 7, 5000, []),
    "4kn": (NATIVE_4K, 100, PEER_4K, 333, 1000, []),
    "many-commands": (THIN, 0, PEER, 0, 4096, ["bpt=16"]),
    "one-command": (THIN, 0, PEER, 0, 32768, ["bpt=32768"]),
    "on-source": (THIN, 8, PEER, 16, 100, ["--on_src"]),
    "on-destination": (THIN, 8, PEER, 16, 100, ["--on_dst"]),
    "hold": (THIN, 8, PEER, 16, 100, ["id_usage=hold", "list_id=9"]),
    "discard": (THIN, 8, PEER, 16, 100, ["id_usage=discard", "list_id=10"]),
    "no-list-id": (THIN, 8, PEER, 16, 100, ["id_usage=disable", "list_id=0"]),
    "dc": (THIN, 8, PEER, 16, 100, ["dc=1"]),
    "priority": (THIN, 8, PEER, 16, 100, ["prio=7"]),
}


@pytest.mark.parametrize("case", COPIES)
def test_copy(array: Daemon, case: str, tmp_path: Path) -> None:
    src, skip, dst, seek, count, args = COPIES[case]
    bs = block_size(src)
    data = noise(count * bs, seed=len(case))
    border = noise(8 * bs, seed=1)
    write(array, src, skip, data, tmp_path)
    write(array, dst, seek + count, border, tmp_path)
    d = Delta(array)
    files = [f"if=/dev/sg{src}", f"of=/dev/sg{dst}", f"bs={bs}", f"skip={skip}", f"seek={seek}", f"count={count}"]
    array.sg("sg_xcopy", *files, *args)
    d.stop()
    same(read(array, dst, seek, count, tmp_path), data)
    same(read(array, src, skip, count, tmp_path), data)
    same(read(array, dst, seek + count, 8, tmp_path), border)
    assert d.wire(VOLUME[src]) + d.wire(VOLUME[dst]) <= NEARLY_NOTHING + 40 * (count // 16)
    assert d.sum("host_described_bytes_total", volume=VOLUME[dst], op="xcopy_dst") == count * bs
    moved = d.sum("undercover_write_bytes_total", volume=VOLUME[dst], origin="xcopy")
    if case == "two-pools":
        assert moved == count * bs, "bytes of another pool must be moved, through the cache"
    elif dst != THICK:
        assert moved == 0, "inside a pool a copy is a map edit"
        assert d.lower() == 0


@pytest.mark.parametrize("args", [[], ["--on_src"], ["bpt=16"]], ids=["on-destination", "on-source", "many-commands"])
@pytest.mark.parametrize("back", [False, True], ids=["there", "back"])
def test_copy_between_io_groups(new_array, args: list[str], back: bool, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """A copy from a LUN of one I/O group's target to one of another's."""
    from harness import Config, Pool, Volume

    pools = [Pool("p0", io_group=0), Pool("p1", io_group=1)]
    array = new_array(Config(io_groups=2, pools=pools, volumes=[Volume("near", 0), Volume("far", 0, pool="p1")]))
    urls = {"/dev/sg9": f"{array.portal()}/{array.target}.iogroup1/0"}
    count = 3000
    data, border = noise(count * 512, seed=3), noise(8 * 512, seed=4)
    src, dst, volume = ("/dev/sg9", "/dev/sg0", "near") if back else ("/dev/sg0", "/dev/sg9", "far")

    def move(*files: str) -> None:
        array.sg("sg_dd", *files, "bs=512", urls=urls)

    (tmp_path / "data").write_bytes(data)
    (tmp_path / "border").write_bytes(border)
    move(f"if={tmp_path / 'data'}", f"of={src}", "seek=101", f"count={count}")
    move(f"if={tmp_path / 'border'}", f"of={dst}", f"seek={777 + count}", "count=8")
    d = Delta(array)
    array.sg("sg_xcopy", f"if={src}", f"of={dst}", "bs=512", "skip=101", "seek=777", f"count={count}", *args, urls=urls)
    d.stop()
    move(f"if={dst}", f"of={tmp_path / 'copy'}", "skip=777", f"count={count + 8}")
    same((tmp_path / "copy").read_bytes(), data, border)
    assert d.sum("undercover_write_bytes_total", volume=volume, origin="xcopy") == count * 512
    assert d.sum("host_described_bytes_total", volume=volume, op="xcopy_dst") == count * 512


def test_copy_is_a_point_in_time(array: Daemon, tmp_path: Path) -> None:
    """What is written to either side afterwards stays on that side."""
    data, later = noise(512 * 2048, seed=5), noise(512 * 100, seed=6)
    write(array, THIN, 50000, data, tmp_path)
    array.sg("sg_xcopy", "if=/dev/sg0", "of=/dev/sg1", "bs=512", "skip=50000", "seek=50000", "count=2048")
    write(array, THIN, 50010, later, tmp_path)
    same(read(array, PEER, 50000, 2048, tmp_path), data)
    array.sg("sg_write_same", "--16", "--lba=51000", "--num=1000", "/dev/sg1")
    want = data[: 10 * 512] + later + data[110 * 512 :]
    same(read(array, THIN, 50000, 2048, tmp_path), want)


@pytest.mark.parametrize("shift", [1, 7, 8, 127, 128, 1000])
@pytest.mark.parametrize("up", [True, False], ids=["up", "down"])
def test_overlap_reads_the_source_first(array: Daemon, shift: int, up: bool, tmp_path: Path) -> None:
    n = 2048
    data = noise((n + shift) * 512, seed=shift)
    write(array, THIN, 70000, data, tmp_path)
    skip, seek = (70000, 70000 + shift) if up else (70000 + shift, 70000)
    array.sg(
        "sg_xcopy", "if=/dev/sg0", "of=/dev/sg0", "bs=512", f"skip={skip}", f"seek={seek}", f"count={n}", f"bpt={n}"
    )
    moved = data[: n * 512] if up else data[shift * 512 :]
    same(read(array, THIN, seek, n, tmp_path), moved)


def test_zeros_and_holes_are_copied(array: Daemon, tmp_path: Path) -> None:
    data = noise(512 * 64, seed=8)
    array.sg("sg_unmap", "--force", "--lba=120000", "--num=4096", "/dev/sg0")
    write(array, THIN, 121000, data, tmp_path)
    array.sg("sg_write_same", "--16", "--lba=122000", "--num=100", "/dev/sg0")
    write(array, PEER, 120000, noise(512 * 4096, seed=9), tmp_path)
    array.sg("sg_xcopy", "if=/dev/sg0", "of=/dev/sg1", "bs=512", "skip=120000", "seek=120000", "count=4096", "bpt=4096")
    want = bytes(1000 * 512) + data + bytes((4096 - 1064) * 512)
    same(read(array, PEER, 120000, 4096, tmp_path), want)


def test_operating_parameters(array: Daemon) -> None:
    out = array.sg("sg_copy_results", "--params", "/dev/sg0").stdout
    assert re.search(r"Maximum target descriptor count: *[1-9]", out, re.I), out
    length = re.search(r"Maximum segment length: *(\d+)", out, re.I)
    assert length and int(length[1]) >= 16 << 20, out
    for descriptor in ("Segment descriptor 0x02", "Segment descriptor 0x0a", "Target descriptor 0xe4"):
        assert descriptor in out, out


def test_status_of_an_unknown_list(array: Daemon) -> None:
    r = array.sg("sg_copy_results", "--status", "--list_id=77", "/dev/sg0", expect=None)
    assert r.returncode == 5, r


def test_masked_source_cannot_be_copied(new_array, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """A copy descriptor that names a unit outside the nexus' LUN map must not resolve."""
    from harness import Config, Volume

    mine, theirs = "iqn.2026-01.io.example:mine", "iqn.2026-01.io.example:theirs"
    array = new_array(Config(volumes=[Volume("a", 0, initiators=[mine]), Volume("b", 1, initiators=[theirs])]))

    def name_of(lun: int, initiator: str) -> bytes:
        page = array.sg("sg_vpd", "--page=0x83", "--raw", f"/dev/sg{lun}", initiator=initiator).raw
        at = page.index(b"\x01\x03\x00\x10") + 4
        return page[at : at + 16]

    visible, masked = name_of(0, mine), name_of(1, theirs)

    def cscd(naa: bytes) -> bytes:
        return bytes([0xE4, 0, 0, 0, 1, 3, 0, 16]) + naa + bytes(5) + (512).to_bytes(3, "big")

    def request(source: bytes) -> bytes:
        segment = bytes.fromhex("0200 0018 0000 0001 0000 0008") + bytes(8) + (64).to_bytes(8, "big")
        header = bytes([0, 0x18, 0, 64, 0, 0, 0, 0]) + (28).to_bytes(4, "big") + bytes(4)
        return header + cscd(source) + cscd(visible) + segment

    f = tmp_path / "list"
    for source, code in ((visible, 0), (masked, None)):
        f.write_bytes(request(source))
        size = len(f.read_bytes())
        cdb = f"83 00 00 00 00 00 00 00 00 00 00 00 00 {size:02x} 00 00".split()
        r = array.sg("sg_raw", f"--send={size}", f"--infile={f}", "/dev/sg0", *cdb, initiator=mine, expect=None)
        assert (r.returncode == 0) == (code == 0), r
        if code is None:
            assert "Copy Aborted" in r.text, r
