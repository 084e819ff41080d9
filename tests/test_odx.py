"""Offloaded data transfer (ODX) and EXTENDED COPY(LID4), by parameter lists made here.

ddpt and ddptctl 0.97 write the range descriptors of both token commands one byte too early (over the
last byte of their length), so that what they call LBA n and m blocks arrives as LBA
256 n and 256 m blocks. Taken so, ddptctl is a check from outside of everything but that.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from arrays import NATIVE_4K, NEARLY_NOTHING, OTHER_POOL, PEER, THIN, Delta, noise, read, same, write
from harness import Config, Daemon, Volume
from initiator import Session
from nodes import eventually

ZERO_TOKEN = bytes.fromhex("ffff00010000 01f8") + bytes(504)
POPULATE, WRITE, ABORT = 0x10, 0x11, 0x1C
NAMES = {THIN: "thin", PEER: "peer", OTHER_POOL: "other"}


@pytest.fixture
def host(array: Daemon) -> Iterator[Session]:
    with Session(array) as s:
        yield s.ready(THIN, PEER, OTHER_POOL, NATIVE_4K)


def out(sa: int, list_id: int, data: bytes) -> bytes:
    return struct.pack(">BB4xIIH", 0x83, sa, list_id, len(data), 0)


def receive(sa: int, list_id: int) -> bytes:
    return struct.pack(">BBI4xIH", 0x84, sa, list_id, 4096, 0)


def ranges(*extents: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">QII", lba, n, 0) for lba, n in extents)


def populate_list(*extents: tuple[int, int], flags: int = 0, timeout: int = 0, rod: int = 0) -> bytes:
    d = ranges(*extents)
    return struct.pack(">HBxIIHH", 14 + len(d), flags, timeout, rod, 0, len(d)) + d


def write_list(token: bytes, *extents: tuple[int, int], flags: int = 0, offset: int = 0) -> bytes:
    d = ranges(*extents)
    return struct.pack(">HB5xQ", 534 + len(d), flags, offset) + token + struct.pack(">6xH", len(d)) + d


def populate(host: Session, lun: int, *extents: tuple[int, int], list_id: int = 1) -> bytes:
    """Make a token of extents and return it."""
    data = populate_list(*extents)
    host.good(lun, out(POPULATE, list_id, data), data)
    info = host.good(lun, receive(7, list_id), room=4096)
    assert info[4:6] == bytes([POPULATE, 1])
    assert int.from_bytes(info[16:24], "big") == sum(n for _, n in extents)
    at = 32 + info[13]
    assert int.from_bytes(info[at : at + 4], "big") == 514
    return info[at + 6 : at + 518]


def place(host: Session, lun: int, token: bytes, *extents: tuple[int, int], offset: int = 0, list_id: int = 2) -> bytes:
    data = write_list(token, *extents, offset=offset)
    host.good(lun, out(WRITE, list_id, data), data)
    return host.good(lun, receive(7, list_id), room=4096)


def ended(host: Session, lun: int, cdb: bytes) -> bytes:
    """Ask how a copy in the background does until it is not under way any more; return the answer."""
    answer = b""

    def over() -> bool:
        nonlocal answer
        answer = host.good(lun, cdb, room=4096)
        return answer[5] != 0x12

    eventually("the end of the copy", over)
    return answer


@pytest.mark.parametrize("dst", [THIN, PEER, OTHER_POOL])
def test_token_copy(array: Daemon, host: Session, dst: int, tmp_path: Path) -> None:
    data = noise(6000 * 512, seed=dst)
    write(array, THIN, 1000, data, tmp_path)
    d = Delta(array)
    token = populate(host, THIN, (1000, 4000), (5000, 2000))
    info = place(host, dst, token, (90001, 6000))
    d.stop()
    assert info[5] == 1 and int.from_bytes(info[16:24], "big") == 6000
    same(read(array, dst, 90001, 6000, tmp_path), data)
    assert d.wire(NAMES[THIN]) + (d.wire(NAMES[dst]) if dst != THIN else 0) <= NEARLY_NOTHING
    assert d.sum("host_described_bytes_total", volume="thin", op="odx_src") == len(data)
    assert d.sum("host_described_bytes_total", volume=NAMES[dst], op="odx_dst") == len(data)
    moved = d.sum("undercover_write_bytes_total", volume=NAMES[dst], origin="odx")
    assert moved == (len(data) if dst == OTHER_POOL else 0), "inside a pool a copy is a map edit"


def test_token_is_a_point_in_time(array: Daemon, host: Session, tmp_path: Path) -> None:
    data = noise(2048 * 512, seed=1)
    write(array, THIN, 50000, data, tmp_path)
    token = populate(host, THIN, (50000, 2048))
    write(array, THIN, 50100, noise(300 * 512, seed=2), tmp_path)
    array.sg("sg_unmap", "--force", "--lba=51000", "--num=500", "/dev/sg0")
    place(host, PEER, token, (50000, 2048))
    same(read(array, PEER, 50000, 2048, tmp_path), data)
    place(host, THIN, token, (50000, 2048))
    same(read(array, THIN, 50000, 2048, tmp_path), data)


def test_offset_and_partial_use(array: Daemon, host: Session, tmp_path: Path) -> None:
    data = noise(64 * 512, seed=3)
    write(array, THIN, 7, data, tmp_path)
    token = populate(host, THIN, (7, 64))
    assert place(host, PEER, token, (300, 10), offset=20)[5] == 3
    same(read(array, PEER, 300, 10, tmp_path), data[20 * 512 : 30 * 512])
    info = place(host, PEER, token, (400, 100), offset=60)
    assert info[5] == 4 and int.from_bytes(info[16:24], "big") == 4
    same(read(array, PEER, 400, 4, tmp_path), data[60 * 512 :])


def test_zero_token(array: Daemon, host: Session, tmp_path: Path) -> None:
    write(array, THIN, 600, noise(512 * 512, seed=4), tmp_path)
    d = Delta(array)
    place(host, THIN, ZERO_TOKEN, (650, 100), (800, 200))
    assert d.stop().lower() == 0
    assert read(array, THIN, 650, 100, tmp_path) == bytes(100 * 512)
    assert read(array, THIN, 800, 200, tmp_path) == bytes(200 * 512)
    assert read(array, THIN, 750, 50, tmp_path) != bytes(50 * 512)


def test_background(array: Daemon, host: Session, tmp_path: Path) -> None:
    data = noise(64 * 512, seed=5)
    write(array, THIN, 0, data, tmp_path)
    token = populate(host, THIN, (0, 64))
    body = write_list(token, (77, 64), flags=1)
    host.good(PEER, out(WRITE, 9, body), body)
    assert ended(host, PEER, receive(7, 9))[5] == 1
    same(read(array, PEER, 77, 64, tmp_path), data)


def test_tokens_are_refused(host: Session) -> None:
    token = populate(host, THIN, (0, 8))
    forged = token[:190] + bytes([token[190] ^ 1]) + token[191:]
    for lun, bad, code in ((THIN, forged, 0x052304), (NATIVE_4K, token, 0x052300), (THIN, bytes(512), 0x05230A)):
        body = write_list(bad, (0, 1))
        host.fails(lun, out(WRITE, 5, body), code, body)
    body = write_list(token, (0, 1), flags=2)
    host.good(THIN, out(WRITE, 5, body), body)  # and deletes it
    host.fails(THIN, out(WRITE, 5, body), 0x052309, body)
    host.fails(THIN, receive(7, 99), 0x052400, room=64)


def test_masked_token(new_array) -> None:  # type: ignore[no-untyped-def]
    """Whoever gets hold of a token of a unit that he cannot see gets nothing by it."""
    mine, theirs = "iqn.2026-01.io.example:mine", "iqn.2026-01.io.example:theirs"
    volumes = [Volume("a", 0, initiators=[mine]), Volume("b", 1, initiators=[theirs]), Volume("both", 2)]
    array = new_array(Config(volumes=volumes))
    with Session(array, mine) as a, Session(array, theirs) as b:
        token = populate(a.ready(0, 2), 0, (0, 8))
        body = write_list(token, (0, 8))
        b.ready(1, 2).fails(2, out(WRITE, 5, body), 0x052304, body)
        assert len(b.good(2, struct.pack(">BB8xIH", 0x84, 8, 4096, 0), room=4096)) == 8
        a.good(2, out(WRITE, 5, body), body)


def test_no_token_survives_a_restart(new_array) -> None:  # type: ignore[no-untyped-def]
    array = new_array(Config(volumes=[Volume("a", 0)]))
    with Session(array) as s:
        token = populate(s.ready(0), 0, (0, 8))
    array.stop()
    array.start()
    array.cli("check")
    with Session(array) as s:
        body = write_list(token, (0, 8))
        s.ready(0).fails(0, out(WRITE, 5, body), 0x052304, body)


def test_ddptctl(array: Daemon, tmp_path: Path) -> None:
    """Its units are 256 blocks; see above."""
    data = noise(512 * 512, seed=6)
    write(array, THIN, 1024, data, tmp_path)
    token = tmp_path / "token"
    made = array.sg("ddptctl", "--pt=4,2", f"--rtf={token}", "/dev/sg0").text
    assert "transfer count of 512" in made
    assert len(token.read_bytes()) == 512
    used = array.sg("ddptctl", "--wut=12,2", f"--rtf={token}", "/dev/sg1").text
    assert "transfer count of 512" in used
    same(read(array, PEER, 12 * 256, 512, tmp_path), data)
    info = array.sg("ddptctl", "--info", "/dev/sg0").text
    for words in (
        "Maximum Range Descriptors: 128",
        "Populate token",
        "point in time copy - default",
        "Report all ROD tokens",
    ):
        assert words in info, info
    listed = array.sg("ddptctl", "--all_toks", "/dev/sg1").text
    assert re.search(r"ROD type: point in time copy - default", listed, re.I), listed


def test_ddpt_extended_copy(array: Daemon, tmp_path: Path) -> None:
    data = noise(1000 * 512, seed=7)
    write(array, THIN, 30, data, tmp_path)
    array.sg("ddpt", "--xcopy", "if=/dev/sg0", "of=/dev/sg1", "bs=512", "skip=30", "seek=5", "count=1000")
    same(read(array, PEER, 5, 1000, tmp_path), data)


def test_extended_copy_lid4(array: Daemon, host: Session, tmp_path: Path) -> None:
    """Two segments of the unit to itself (CSCD descriptor ID FFFFh), in the background."""
    data = noise(40 * 512, seed=8)
    write(array, THIN, 200, data, tmp_path)
    segment = [
        struct.pack(">BBHHHHHQQ", 2, 0, 24, 0xFFFF, 0xFFFF, 0, n, a, b) for n, a, b in ((30, 200, 900), (10, 230, 930))
    ]
    head = struct.pack(">BBH11xBB3xI18xHHH", 1, 0x20, 32, 2, 0xFF, 0xABCD, 0, 56, 0)
    body = head + b"".join(segment)
    host.good(THIN, struct.pack(">BB8xIH", 0x83, 1, len(body), 0), body)
    answer = ended(host, THIN, receive(5, 0xABCD))
    assert answer[4:6] == bytes([1, 1]) and answer[24:26] == bytes([0, 2])
    same(read(array, THIN, 900, 40, tmp_path), data)
    host.fails(THIN, struct.pack(">BBI10x", 0x83, ABORT, 0xABCD), 0x052400)
