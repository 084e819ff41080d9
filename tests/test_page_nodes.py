"""The live page where several nodes show one array: who has it, who forwards, what became of them, on each node."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from harness import Daemon, Mdisk, MiB, Pool, ToolError, Volume, free_port
from initiator import Session
from nodes import Node, eventually, linked
from test_move import move
from test_rados import NodeInPool, RadosDaemon, cluster, forwards  # noqa: F401
from viewing import Viewer, expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator


@pytest.fixture
def viewer(browser: Browser, axe: str) -> Iterator[list[Viewer]]:
    """Return a list for the pages of a test, which end with it."""
    open_: list[Viewer] = []
    yield open_
    for v in open_:
        v.context.close()
        assert v.errors == []


def look(open_: list[Viewer], browser: Browser, axe: str, d: Daemon) -> Viewer:
    """Open a page of a node. One that has no array says so once."""
    v = Viewer(browser, d, axe)
    v.allowed = ["503 (Service Unavailable)"]
    open_.append(v)
    return v


def row(v: Viewer, name: str) -> Locator:
    """Return a node's row."""
    return v.page.locator("#nodes tbody tr").filter(has=v.page.locator("td:first-child", has_text=name))


def test_nodes_of_a_folder(browser: Browser, axe: str, viewer: list[Viewer]) -> None:
    """The owner of a folder dies and starts again: both nodes' pages say so, also by keys alone."""
    link = free_port()
    with (
        Daemon(Node(volumes=[Volume("v", 0)], number=1, link=link), "page-owner") as owner,
        Daemon(Node(number=2, link=link, forward=True), "page-other") as other,
    ):
        eventually("the link", lambda: linked(other))
        a, b = (look(viewer, browser, axe, d) for d in (owner, other))
        a.go("overview")
        expect(a.page.locator("#partitions li")).to_have_count(1)
        a.page.keyboard.press("6")
        expect(a.page).to_have_title("Nodes · arraysim")
        expect(row(a, "a")).to_contain_text("owner")
        expect(row(a, "b")).to_contain_text("forwarding")
        expect(row(a, "b")).to_contain_text("127.0.0.1:")
        expect(row(a, "b")).to_contain_text("257")
        expect(a.page.locator("#takeovers")).to_contain_text("node 1 a has the array")
        expect(a.page.locator("#takeovers")).to_contain_text("node 2 b is linked")
        with Session(other) as s:
            s.ready(0)
            expect(row(a, "b").locator("td").nth(6)).to_have_text("1")
        a.shot("nodes")
        # The other node has the page, too, and says where the array is.
        b.go("overview")
        # Until the page has heard that, it has the sections of an array, which are empty as well.
        expect(b.page.locator("main .empty", has_text="it forwards to node 1 a")).to_contain_text("key 6")
        b.shot("nodes-elsewhere")
        b.page.keyboard.press("6")
        expect(row(b, "a")).to_contain_text("owner")
        expect(row(b, "b")).to_contain_text("forwarding")
        a.allowed.append("ERR_")  # refused, reset, or without an answer: who dies leaves requests behind
        owner.kill()
        expect(row(b, "a")).to_contain_text("away")
        expect(row(b, "a")).to_contain_text("broken")
        b.shot("nodes-away")
        owner.start()
        expect(row(b, "a")).to_contain_text("owner")
        expect(row(a, "b")).to_contain_text("forwarding")
        # Events come once a second: one that has not been told as linked is not told as gone. The page may still show
        # what the owner said before its death.
        eventually("the link's event", lambda: any("node 2 b is linked" in e["text"] for e in owner.events()))
        b.allowed.append("ERR_")
        other.stop()
        expect(row(a, "b")).to_contain_text("away")
        expect(a.page.locator("#takeovers")).to_contain_text("node 2 b is no longer linked")
        a.page.get_by_role("link", name="events").click()
        a.page.get_by_role("button", name="Nodes").click()
        expect(a.page.locator(".events li").first).to_contain_text("node 2 b is no longer linked")
        other.start()


@pytest.mark.proof
def test_nodes_of_a_pool(
    browser: Browser,
    axe: str,
    viewer: list[Viewer],
    cluster: dict[str, str],  # noqa: F811
) -> None:
    """An array moves, and is taken over: each node's page says who has it, since when and in which epoch."""
    nodes = []
    for number in (1, 2, 3):
        config = NodeInPool(
            [Pool("p0", mdisks=[Mdisk("m0", 256 * MiB)])], [Volume("v0", 0, size=64 * MiB)], cache=16 * MiB,
            rados={**cluster, "namespace": "page", "standby": True}, number=number, link=free_port(),
        )  # fmt: skip
        nodes.append(RadosDaemon(config, f"rados-page-{number}"))
    a, b, c = nodes
    try:
        a.start()
        for d in (b, c):
            d.stand_by()
            forwards(d)
        pages = [look(viewer, browser, axe, d) for d in nodes]
        for v in pages:
            v.allowed.append("ERR_")
            v.go("nodes")
            expect(row(v, "a")).to_contain_text("owner")
            expect(v.page.locator("#ownership")).to_contain_text(re.compile(r"Owner\s*node 1 a"))
            expect(v.page.locator("#ownership")).to_contain_text(re.compile(r"Epoch\s*1"))
        expect(pages[0].page.locator("#ownership")).to_contain_text("serving")
        expect(pages[1].page.locator("#ownership")).to_contain_text("standing by")
        expect(row(pages[0], "b")).to_contain_text("yes")
        move(a, "b")
        for v in pages:
            expect(row(v, "b")).to_contain_text("owner")
            expect(v.page.locator("#ownership")).to_contain_text(re.compile(r"Epoch\s*2"))
        expect(pages[1].page.locator("#ownership")).to_contain_text("serving")
        expect(pages[0].page.locator("#ownership")).to_contain_text("standing by")
        told = pages[1].page.locator("#takeovers")
        expect(told).to_contain_text("node 2 b has the array, in epoch 2; node 1 a had it before, and gave it back")
        pages[0].shot("nodes-moved-away")
        pages[1].shot("nodes-moved-here")
        b.kill()
        eventually("a standby has the array", lambda: any(d.state().get("state") == "serving" for d in (a, c)))
        k = 0 if a.state().get("state") == "serving" else 2
        expect(pages[k].page.locator("#ownership")).to_contain_text(re.compile(r"Epoch\s*3"))
        expect(pages[k].page.locator("#takeovers")).to_contain_text("node 2 b did not give it back, and was fenced")
        expect(row(pages[k], "b")).to_contain_text("away")
        pages[k].shot("nodes-taken-over")
    except (AssertionError, ToolError) as e:
        raise AssertionError("\n".join([str(e), *(d.log_tail(20) for d in nodes)])) from None
    finally:
        for d in nodes:
            if d.alive():
                d.kill()
            d.cleanup()
