"""Two portals are two target ports: what multipathing rests on (SPC-4 5.15)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import Config, Daemon, Volume, free_port
from initiator import NAME, Session

OPTIMIZED, NON_OPTIMIZED, STANDBY, UNAVAILABLE = range(4)
READ = bytes.fromhex("28000000000000000100")


@dataclass
class TwoPortals(Config):
    second: int = 0

    def document(self, data: Path, portal: int, metrics: int) -> dict[str, Any]:
        doc = super().document(data, portal, metrics)
        doc["portal"]["further"] = [f"127.0.0.1:{self.second}"]
        return doc


Paths = tuple[Session, Session]


@pytest.fixture
def paths(new_array: Callable[[Config], Daemon]) -> Iterator[Paths]:
    """One initiator port that is logged in to both target ports."""
    config = TwoPortals(volumes=[Volume("v", 0)], second=free_port(), set_groups=[NAME])
    array = new_array(config)
    with Session(array) as a, Session(array, port=config.second) as b:
        yield a.ready(0), b.ready(0)


def groups(s: Session) -> dict[int, tuple[int, list[int]]]:
    """REPORT TARGET PORT GROUPS: group -> state and ports."""
    d = s.good(0, bytes.fromhex("a30a00000000000001000000"), room=256)[4:]
    out = {}
    while d:
        n = d[7]
        ports = [int.from_bytes(d[10 + 4 * i : 12 + 4 * i], "big") for i in range(n)]
        out[int.from_bytes(d[2:4], "big")] = (d[0] & 0x0F, ports)
        d = d[8 + 4 * n :]
    return out


def change(s: Session, **states: int) -> tuple[bytes, bytes]:
    """SET TARGET PORT GROUPS: CDB and parameter list; g1=STANDBY and so on."""
    body = bytes(4) + b"".join(bytes([state, 0, 0, int(group[1:])]) for group, state in states.items())
    return bytes([0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, len(body), 0, 0]), body


def test_groups(paths: Paths) -> None:
    for n, s in enumerate(paths, 1):
        assert groups(s) == {1: (OPTIMIZED, [1]), 2: (OPTIMIZED, [2])}
        page = s.good(0, bytes.fromhex("120183010000"), room=256)
        assert bytes([0x51, 0x94, 0, 4, 0, 0, 0, n]) in page, "the relative target port"
        assert bytes([0x51, 0x95, 0, 4, 0, 0, 0, n]) in page, "the target port group"


@pytest.mark.parametrize(("state", "code"), [(STANDBY, 0x02040B), (UNAVAILABLE, 0x02040C)])
def test_failover(paths: Paths, state: int, code: int) -> None:
    a, b = paths
    cdb, body = change(b, g1=state, g2=OPTIMIZED)
    b.good(0, cdb, body)
    a.fails(0, READ, 0x062A06, room=512)  # the other path hears of it
    a.fails(0, READ, code, room=512)
    assert groups(a)[1][0] == state, "it can still be asked"
    assert len(b.good(0, READ, room=512)) == 512
    cdb, body = change(b, g2=state)
    b.fails(0, cdb, 0x052600, body)  # not the last one
    cdb, body = change(b, g1=NON_OPTIMIZED)
    b.good(0, cdb, body)
    a.fails(0, READ, 0x062A06, room=512)
    assert len(a.good(0, READ, room=512)) == 512


def test_registrations_are_by_port(paths: Paths) -> None:
    a, b = paths
    out = bytes.fromhex("5f000000000000001800")
    register = bytes(15) + b"\x0a" + bytes(8)
    a.good(0, out, register)
    reserve = bytes.fromhex("5f010300000000001800")
    a.good(0, reserve, bytes(7) + b"\x0a" + bytes(16))
    assert b.send(0, READ, room=512).status == 0x18, "the same initiator by another port is another nexus"
    b.good(0, out, register)
    a.good(0, bytes.fromhex("5f020300000000001800"), bytes(7) + b"\x0a" + bytes(16))
    a.good(0, bytes.fromhex("5f030000000000001800"), bytes(7) + b"\x0a" + bytes(16))
    b.send(0, bytes(6))
    # ALL_TG_PT registers by both at once.
    a.good(0, out, register[:20] + b"\x04" + bytes(3))
    assert len(b.good(0, bytes.fromhex("5e000000000000010000"), room=256)) == 8 + 2 * 8
    b.good(0, reserve, bytes(7) + b"\x0a" + bytes(16))
