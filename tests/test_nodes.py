"""Two nodes that show one array: hosts of either reach the same units, and outlive the owner's death."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import libiscsi
import pytest
from arrays import convert, noise, same
from harness import TARGET, Daemon, MiB, ToolError, Volume, free_port, run
from initiator import NAME, Session
from nodes import SECRET, Node, eventually, linked
from writers import CHANGED, INTERRUPTED, RESTARTED, TRANSITION, Writer, check, finish

OPTIMIZED, NON_OPTIMIZED, UNAVAILABLE, TRANSITIONING = 0, 1, 3, 15
READ = bytes.fromhex("28000000000000000100")
T = TypeVar("T")


@dataclass
class Nodes:
    """The owner, and a node that forwards to it."""

    owner: Daemon
    other: Daemon


VOLUMES = [Volume("v", 0), Volume("w", 1), Volume("mine", 2, initiators=[NAME])]


@pytest.fixture
def nodes() -> Iterator[Nodes]:
    link = free_port()
    with (
        Daemon(Node(volumes=VOLUMES, number=1, link=link, set_groups=[NAME]), "owner") as owner,
        Daemon(Node(number=2, link=link, forward=True), "other") as other,
    ):
        eventually("the link", lambda: linked(other))
        yield Nodes(owner, other)


#: of what goes by the other node: what fails for another reason than a busy machine fails each time.
TRIES = 3


def tried(tool: Callable[[], T]) -> T:
    """Have a tool do something by one of the nodes, and return what it returns.

    A command that is a second on its way, as on a busy machine, hears BUSY, which tools take for a failure: they are
    not the kernel, which sends it again.
    """
    for _ in range(TRIES - 1):
        with contextlib.suppress(ToolError):
            return tool()
    return tool()


def asked(*argv: str) -> str:
    """Return what a tool prints."""
    return tried(lambda: run(argv)).stdout


def fetch(url: str, to: Path) -> None:
    """Read a whole LUN into a file."""
    to.unlink(missing_ok=True)
    to.touch()
    os.truncate(to, VOLUMES[0].size)
    tried(lambda: convert(url, to))


def groups(s: Session) -> dict[int, int]:
    """REPORT TARGET PORT GROUPS: group -> state."""
    d = s.good(0, bytes.fromhex("a30a00000000000001000000"), room=256)[4:]
    out = {}
    while d:
        out[int.from_bytes(d[2:4], "big")] = d[0] & 0x0F
        d = d[8 + 4 * d[7] :]
    return out


def test_one_array_on_two_paths(nodes: Nodes, tmp_path: Path) -> None:
    """Tools see one unit on both paths, with groups that say which path is the better one."""
    for d in (nodes.owner, nodes.other):
        assert asked("iscsi-readcapacity16", "-s", d.url(0)).strip() == str(256 * MiB)
        listed = asked("iscsi-ls", "-s", d.portal())
        assert re.findall(r"^Lun:(\d+)", listed, re.M) == ["0", "1"], "LUN masking is the owner's"
    names = [asked("iscsi-inq", "-e", "1", "-c", "128", d.url(0)) for d in (nodes.owner, nodes.other)]
    assert names[0] == names[1] and "Serial" in names[0]
    ids = [tried(lambda d=d: d.sg("sg_vpd", "-p", "di", "-q", "/dev/sg0")).stdout for d in (nodes.owner, nodes.other)]
    naa = [re.search(r"\b0x6[0-9a-f]{31}\b", text) for text in ids]
    assert naa[0] and naa[1] and naa[0][0] == naa[1][0]
    for d, port in ((nodes.owner, "0x1"), (nodes.other, "0x101")):
        assert f"Relative target port: {port}\n" in tried(lambda d=d: d.sg("sg_vpd", "-p", "di", "/dev/sg0")).stdout
        report = tried(lambda d=d: d.sg("sg_rtpg", "--decode", "/dev/sg0")).stdout
        assert re.findall(r"target port group id : (0x\w+)", report) == ["0x1", "0x101"], report
        assert re.findall(r"target port group asymmetric access state : 0x(\d+)", report) == ["00", "01"], report
    with Session(nodes.other) as s:
        assert len(s.ready(2).good(2, READ, room=512)) == 512, "the host that may see LUN 2"

    image, back = tmp_path / "image", tmp_path / "back"
    image.write_bytes(noise(64 * MiB, 7))
    tried(lambda: convert(image, nodes.other.url(0)))
    for d in (nodes.owner, nodes.other):
        fetch(d.url(0), back)
        same(back.read_bytes()[: 64 * MiB], image.read_bytes())

    status = nodes.owner.cli_json("status")["nodes"]
    assert [(n["id"], n["state"], n["ports"]) for n in status] == [(1, "owner", [1]), (2, "forwarding", [257])]
    status = nodes.other.cli_json("status")["nodes"]
    assert [(n["id"], n["state"]) for n in status] == [(1, "owner"), (2, "forwarding")]
    m = nodes.other.metrics()
    assert m.sum("link_bytes_total", direction="write") >= 64 * MiB
    assert m.sum("link_bytes_total", direction="read") >= 64 * MiB
    refused = nodes.other.cli("volume", "list", expect=None)
    assert refused.returncode != 0 and "it forwards to node 1 a" in refused.text


def test_offload_on_the_forwarding_path(nodes: Nodes, tmp_path: Path) -> None:
    """An offloaded copy that a host asks for by the other node is carried out, and counted, by the owner."""
    data = noise(8 * MiB, 8)
    image, back = tmp_path / "image", tmp_path / "back"
    image.write_bytes(data)
    tried(lambda: convert(image, nodes.other.url(0)))
    tried(lambda: nodes.other.sg("sg_xcopy", "if=/dev/sg0", "of=/dev/sg1", "bs=512", f"count={len(data) // 512}"))
    fetch(nodes.owner.url(1), back)
    same(back.read_bytes()[: len(data)], data)
    m = nodes.owner.metrics()
    assert m.sum("offload_bytes_total") >= len(data)


#: Cases of libiscsi's suite for the forwarding path: those of each kind of command, and all of several paths.
CASES = re.compile(
    r"(Read16|Write16|WriteSame16|CompareAndWrite|Inquiry|ReadCapacity16|Reserve6|ProutReserve|PrinReadKeys|TestUnitReady|Unmap|"
    r"ExtendedCopy|ReportSupportedOpcodes|iSCSITMF|iSCSIDataSnDiscontinuity|MultipathIO)\."
)


@pytest.mark.slow
def test_libiscsi_suite(nodes: Nodes) -> None:
    """What passes at the owner passes by the other node; cases of several paths get one session at each.

    A case skips itself where the unit refuses a command: one that is skipped has to be skipped by the owner, too.
    """
    run(["iscsi-test-cu", "-l"])
    names = [n for n in libiscsi.names() if CASES.match(n)]
    assert len(names) > 60
    failed = {}
    for name in names:
        urls = [nodes.other.url(0)] if not name.startswith("MultipathIO") else [nodes.owner.url(0), nodes.other.url(0)]
        for _ in range(TRIES):  # no case expects BUSY, either
            r = run(
                ["iscsi-test-cu", "--dataloss", "--allow-sanitize", f"--test=ALL.{name}", *urls],
                timeout=120,
                expect=None,
            )
            if (end := libiscsi.outcome(r)) == "passed":
                break
        else:
            there = libiscsi.outcome(libiscsi.case(name, nodes.owner.url(0), 120))
            if there != end:
                failed[name] = f"{end} by the other node, {there} at the owner\n{r}"
    assert not failed, "\n".join(failed.values())


def test_owner_dies_and_comes_back(nodes: Nodes) -> None:
    """kill -9 of the owner: hosts of the other node hear of a transition, then of a change, and keep their session."""
    with Session(nodes.other) as s:
        s.ready(0)
        before = groups(s)
        assert before == {1: OPTIMIZED, 257: NON_OPTIMIZED}
        standard = s.good(0, bytes.fromhex("120000006000"), room=96)
        nodes.owner.kill()
        eventually("the end of the link", lambda: not linked(nodes.other))
        s.fails(0, READ, TRANSITION, room=512)
        s.fails(0, bytes(6), TRANSITION)
        assert s.good(0, bytes.fromhex("120000006000"), room=96) == standard
        assert groups(s) == {1: TRANSITIONING, 257: TRANSITIONING}
        nodes.owner.start()
        eventually("the link", lambda: linked(nodes.other))
        s.fails(0, READ, RESTARTED, room=512)
        s.fails(0, READ, CHANGED, room=512)
        assert len(s.good(0, READ, room=512)) == 512
        assert groups(s) == before
    m = nodes.other.metrics()
    # A node that had no processor for longer than a link is patient connects once more.
    assert m.sum("link_connects_total") >= 2
    assert m.sum("link_transition_answers_total") >= 3


def test_reservation_outlives_the_owner(nodes: Nodes) -> None:
    """A registration by the other node's port with APTPL is found again, and its holder still writes alone."""
    with Session(nodes.other) as s, Session(nodes.owner, initiator=NAME + "2") as rival:
        s.ready(0)
        rival.ready(0)
        s.good(
            0,
            bytes.fromhex("5f000000000000001800"),
            bytes(8) + (5).to_bytes(8, "big") + bytes([0, 0, 0, 0, 1, 0, 0, 0]),
        )
        s.good(0, bytes.fromhex("5f010300000000001800"), (5).to_bytes(8, "big") + bytes(16))
        assert rival.send(0, READ, room=512).status == 0x18
    nodes.owner.kill()
    nodes.owner.start()
    eventually("the link", lambda: linked(nodes.other))
    with Session(nodes.other) as s, Session(nodes.owner, initiator=NAME + "2") as rival:
        rival.ready(0)
        assert rival.send(0, READ, room=512).status == 0x18, "a conflict"
        s.ready(0)
        assert len(s.good(0, READ, room=512)) == 512
        full = s.good(0, bytes.fromhex("5e030000000000010000"), room=256)
        assert int.from_bytes(full[8 + 18 : 8 + 20], "big") == 257, "the port by which it is registered"


@pytest.mark.slow
def test_verified_writes_over_deaths_of_the_owner(nodes: Nodes) -> None:
    """Nothing acknowledged is lost, and no error reaches a host that tries again, over five kills of the owner."""
    writers = [Writer(nodes.other, n, range(n * 1000, n * 1000 + 200)) for n in range(1, 5)]
    for w in writers:
        w.start()

    def go_on() -> None:
        """Wait until each has written some blocks more, however long a busy machine takes for it."""
        before = [w.writes for w in writers]
        eventually(
            "hosts write", lambda: all(w.fault or w.writes >= n + 20 for w, n in zip(writers, before, strict=True))
        )

    def seen() -> set[int]:
        return {code for w in writers for code in w.codes}

    kills = 0
    # Whether a write is under way when the owner dies is chance, for which a few further kills are enough.
    while kills < 5 or (not {INTERRUPTED, CHANGED} <= seen() and kills < 20):
        go_on()
        nodes.owner.kill()
        time.sleep(0.2)
        nodes.owner.start()
        eventually("the link", lambda: linked(nodes.other))
        kills += 1
    go_on()
    finish(writers)
    assert [w.sessions for w in writers] == [1] * 4, "a session was lost"
    assert {INTERRUPTED, CHANGED} <= seen(), seen()
    assert check(writers, nodes.owner) > 100


def test_a_node_without_an_owner(nodes: Nodes) -> None:
    """It stops in good order, and starts; hosts get in when there is an owner."""
    with Session(nodes.other) as s:
        s.ready(0)
        nodes.owner.kill()
        eventually("the end of the link", lambda: not linked(nodes.other))
        s.fails(0, READ, TRANSITION, room=512)
    nodes.other.stop()
    nodes.other.start()
    assert [n["state"] for n in nodes.other.cli_json("status")["nodes"]] == ["forwarding"]
    with pytest.raises(ToolError):
        run(["iscsi-readcapacity16", nodes.other.url(0)], timeout=3)
    nodes.owner.start()
    eventually("the link", lambda: linked(nodes.other))
    assert asked("iscsi-readcapacity16", "-s", nodes.other.url(0)).strip() == str(256 * MiB)


def test_chap_is_asked_by_each_node() -> None:
    """Hosts prove themselves where they log in."""
    link, good = free_port(), ("alice", "correct-horse-battery")
    with (
        Daemon(Node(number=1, link=link, chap=good), "owner") as owner,
        Daemon(Node(number=2, link=link, forward=True, chap=good), "other") as other,
    ):
        eventually("the link", lambda: linked(other))
        for d in (owner, other):
            assert asked("iscsi-readcapacity16", "-s", d.url(0, good)).strip() == str(256 * MiB)
            for bad in (None, ("alice", "wrong-horse-battery")):
                r = run(["iscsi-readcapacity16", "-s", d.url(0, bad)], expect=None)
                assert r.returncode not in (0, None) and str(256 * MiB) not in r.stdout, r


def test_who_is_no_node(nodes: Nodes) -> None:
    """Another secret makes no link, and no host is let in; a number that is taken is refused."""
    for number, secret, says in (
        (3, "another secret that is long", "a different secret"),
        (2, SECRET, "linked by another process"),
    ):
        config = Node(number=number, link=nodes.owner.config.link, forward=True)  # type: ignore[union-attr]
        stranger = Daemon(config, "stranger")
        try:
            stranger.command()
            (stranger.dir / "link.secret").write_text(secret + "\n")
            argv = stranger.command()
            (stranger.dir / "link.secret").write_text(secret + "\n")
            stranger.spawn(argv)
            # It looks for the owner before its own doors are open.
            eventually("its start", lambda s=stranger: re.search(r"^ready\b", s.log_tail(), re.M) is not None)
            eventually("a word about it", lambda s=stranger, t=says: t in s.log_tail())
            assert stranger.metrics().sum("link_up") == 0
            with pytest.raises(ToolError):
                run(["iscsi-readcapacity16", stranger.url(0)], timeout=3)
            assert secret not in stranger.log_tail()
        finally:
            stranger.kill()
            stranger.cleanup()
    assert linked(nodes.other)
    doc = json.loads((nodes.other.dir / "config.yaml").read_text())
    assert doc["portal"]["target"] == TARGET
