"""Copies between two arrays: hosts name a unit of one, or a token of it, in a copy to a unit of the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from arrays import noise
from harness import Config, Daemon, MiB, Volume, free_port
from initiator import Session
from nodes import SECRET, eventually

HIDDEN = "iqn.2026-01.host:nobody"
NOT_REACHABLE = 0x0A0D02


@dataclass
class Peer(Config):
    """An array of two: the one with lend is copied from, by its link."""

    link: int = 0
    lend: bool = False

    def document(self, data: Path, portal: int, metrics: int) -> dict[str, Any]:
        doc = super().document(data, portal, metrics)
        for name in ("node", "peer"):
            f = data / f"{name}.secret"
            f.write_text(f"{SECRET}, {name}\n")
            f.chmod(0o600)
        peer = {"name": "other", "secret_file": str(data / "peer.secret")}
        if self.lend:
            doc["node"] = {
                "id": 1,
                "name": "a",
                "secret_file": str(data / "node.secret"),
                "listen": f"127.0.0.1:{self.link}",
            }
            peer["lend"] = True
        else:
            peer["nodes"] = [f"127.0.0.1:{self.link}"]
        doc["peers"] = [peer]
        return doc


@dataclass
class Arrays:
    """Copies go from the source to the destination."""

    source: Daemon
    destination: Daemon


@pytest.fixture
def arrays() -> Iterator[Arrays]:
    link = free_port()
    volumes = [Volume("v", 0), Volume("hidden", 1, initiators=[HIDDEN])]
    with (
        Daemon(Peer(volumes=volumes, link=link, lend=True), "source") as source,
        Daemon(Peer(volumes=[Volume("w", 0)], link=link), "destination") as destination,
    ):
        eventually("the link", lambda: destination.metrics().sum("peer_up", role="source") == 1)
        yield Arrays(source, destination)


def test_sg_xcopy(arrays: Arrays, tmp_path: Path) -> None:
    """sg_xcopy copies from one array to the other; the data goes over no host."""
    data = noise(8 * MiB, 1)
    blocks = len(data) // 512
    f = tmp_path / "data"
    f.write_bytes(data)
    arrays.source.sg("sg_dd", f"if={f}", "of=/dev/sg0", "bs=512", "bpt=128", f"count={blocks}")
    urls = {"/dev/sg0": arrays.source.url(0), "/dev/sg1": arrays.destination.url(0)}
    copy = ("sg_xcopy", "--on_dst", "if=/dev/sg0", "of=/dev/sg1", "bs=512", f"count={blocks}")
    arrays.destination.sg(*copy, urls=urls)
    out = tmp_path / "copy"
    arrays.destination.sg("sg_dd", "if=/dev/sg0", f"of={out}", "bs=512", "bpt=128", f"count={blocks}")
    assert out.read_bytes() == data
    m = arrays.destination.metrics()
    assert m.sum("offload_bytes_total", primitive="xcopy", path="copy", src_pool="(another array)") == len(data)
    assert m.sum("cache_admitted_bytes_total", origin="xcopy") == len(data)
    assert m.sum("cache_admitted_bytes_total", origin="host") == 0
    assert arrays.source.metrics().sum("cache_admitted_bytes_total", origin="xcopy") == 0
    status = arrays.destination.cli("status").text
    assert "other: copies from it, linked to a at 127.0.0.1:" in status
    assert "other: copies to it, linked to" in arrays.source.cli("status").text


def copy_list(source: bytes, destination: bytes, blocks: int) -> bytes:
    """The parameter list of an EXTENDED COPY of blocks from LBA 0 to LBA 0."""
    head = bytes([0, 3 << 3, 0, 64, 0, 0, 0, 0, 0, 0, 0, 28, 0, 0, 0, 0])
    cscds = b"".join(bytes([0xE4, 0, 0, 0, 1, 3, 0, 16]) + naa + bytes(8) for naa in (source, destination))
    return head + cscds + bytes([2, 0, 0, 24, 0, 0, 0, 1, 0, 0]) + blocks.to_bytes(2, "big") + bytes(16)


def test_masks(arrays: Arrays) -> None:
    """Who has no session at the source, or does not see the unit there, cannot name it; nobody can while it is dead."""

    def naa(s: Session, lun: int) -> bytes:
        page = s.good(lun, bytes([0x12, 1, 0x83, 0, 255, 0]), room=255)
        at = page.index(bytes([1, 3, 0, 16]))
        return page[at + 4 : at + 20]

    with Session(arrays.source, initiator=HIDDEN) as owner:
        hidden = naa(owner, 1)
    with Session(arrays.destination) as s:
        to = naa(s.ready(0), 0)

        def copy(source: bytes) -> int:
            lst = copy_list(source, to, 8)
            return s.send(0, bytes([0x83]) + bytes(9) + len(lst).to_bytes(4, "big") + bytes(2), out=lst).code

        with Session(arrays.source) as there:
            shown = naa(there.ready(0), 0)
            assert copy(shown) == 0
            assert copy(hidden) == NOT_REACHABLE
        eventually("the end of the session", lambda: copy(shown) == NOT_REACHABLE)
        with Session(arrays.source, stays=False) as there:
            there.ready(0)
            assert copy(shown) == 0
            arrays.source.kill()
            there.lost = True
        eventually("the end of the link", lambda: arrays.destination.metrics().sum("peer_up", role="source") == 0)
        assert copy(shown) == NOT_REACHABLE
        arrays.source.start()
        eventually("the next link", lambda: arrays.destination.metrics().sum("peer_up", role="source") == 1)
        with Session(arrays.source) as there:
            there.ready(0)
            assert copy(shown) == 0
