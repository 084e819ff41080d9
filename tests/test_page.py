"""The live page in a real Chromium: what a person sees while offloads run, and what he changes there.

Nothing here waits for a time to pass: every wait is for something that the page shows.
ARRAYSIM_SCREENSHOTS=dir keeps pictures of every page.
"""

from __future__ import annotations

import os
import re
import threading
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from arrays import noise, write
from harness import Config, Daemon, Mdisk, MiB, Pool, ToolError, Volume
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

CHROMIUM = "/usr/bin/chromium"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
SIZE = 32 * MiB
CONFIG = Config(
    pools=[Pool("fast", copy="data"), Pool("slow", copy="data", mdisks=[Mdisk("m0", bandwidth=8 * MiB)])],
    volumes=[
        Volume("original", 0, pool="fast", size=SIZE),
        Volume("clone", 1, pool="slow", size=SIZE),
        Volume("idle", 2, pool="slow", size=SIZE),
    ],
    cache=16 * MiB,
    store="memory",
)

expect.set_options(timeout=30_000)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(CONFIG, "page") as d:
        write(d, 0, 0, noise(SIZE, seed=1), tmp_path_factory.mktemp("page"))
        yield d


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as p:
        b = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield b
        b.close()


class Viewer:
    """A page of its own that fails the test on any error and any request that leaves the daemon."""

    def __init__(self, browser: Browser, daemon: Daemon) -> None:
        self.base = f"http://127.0.0.1:{daemon.metrics_port}/"
        self.token = (daemon.data / "admin.token").read_text().strip()
        self.context = browser.new_context(viewport={"width": 1280, "height": 900})
        self.page: Page = self.context.new_page()
        self.allowed: list[str] = []
        self.errors: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("request", lambda r: r.url.startswith((self.base, "data:")) or self.errors.append(r.url))

    def _said(self, m: ConsoleMessage) -> None:
        if m.type in ("error", "warning") and not any(a in m.text for a in self.allowed):
            self.errors.append(m.text)

    def go(self, page: str) -> Page:
        self.page.goto(f"{self.base}#/{page}")
        return self.page

    def shot(self, name: str) -> None:
        if folder := os.environ.get("ARRAYSIM_SCREENSHOTS"):
            self.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)

    def unlock(self) -> None:
        """Give the token when the dialog asks for it."""
        self.page.get_by_role("textbox", name="Token").fill(self.token)
        self.page.get_by_role("button", name="Unlock").click()

    def submit(self, verb: str) -> None:
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_role("button", name=verb).click()
        expect(dialog).to_have_count(0)


@pytest.fixture
def viewer(browser: Browser, daemon: Daemon) -> Iterator[Viewer]:
    v = Viewer(browser, daemon)
    yield v
    v.context.close()
    assert v.errors == []


class Storm:
    """Clones LUN 0 to LUN 1 by EXTENDED COPY, again and again, until the block ends."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.over = threading.Event()
        self.failure: ToolError | None = None
        self.thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        blocks = SIZE // 512
        try:
            while not self.over.is_set():
                self.daemon.sg(
                    "sg_xcopy", "if=/dev/sg0", "of=/dev/sg1", "bs=512", f"count={blocks}", "bpt=16384", timeout=120
                )
        except ToolError as e:
            self.failure = e

    def __enter__(self) -> Storm:
        self.thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.over.set()
        self.thread.join()
        if self.failure and exc[0] is None:
            raise self.failure


def test_loads_small_and_by_itself(viewer: Viewer) -> None:
    page = viewer.go("overview")
    expect(page).to_have_title("arraysim")
    expect(page.locator("#partitions li")).to_have_count(2)
    expect(page.locator("#culprits")).to_contain_text("Nothing")
    expect(page.locator("#chart-layers canvas")).to_be_visible()
    for f in ("app.js", "app.css"):
        with urllib.request.urlopen(viewer.base + f, timeout=10) as r:
            assert len(r.read()) < 300_000, f
            assert "default-src 'self'" in r.headers["Content-Security-Policy"]


def test_storm_shows_its_culprit(viewer: Viewer, daemon: Daemon) -> None:
    page = viewer.go("overview")
    expect(page.locator("#partitions li")).to_have_count(2)
    with Storm(daemon):
        row = page.locator("#culprits tbody tr")
        expect(row).to_have_count(1)
        expect(row.locator("td").nth(0)).to_have_text("clone")
        expect(row.locator("td").nth(3)).to_have_text(re.compile("^(0|<0.1)$"))  # hosts send copy lists only
        expect(page.locator("#culprits")).to_have_class("alarm")
        # The partition of its pool, and no other, fills up to its cap.
        full = "() => document.querySelector('meter[aria-label$=slow]')?.value > 90"
        page.wait_for_function(full, timeout=30_000)
        assert page.locator("meter[aria-label$=fast]").evaluate("m => m.value") < 50
        expect(page.locator(".events")).to_contain_text("volume clone is written by offloads (xcopy)")
        expect(page.locator(".events")).to_contain_text("the write cache of pool slow is full")
        # The copies under way, one by one.
        running = page.locator("#running tbody tr").first
        expect(running).to_contain_text("clone")
        expect(running).to_contain_text("xcopy")
        # The charts move: their words are what their last points are.
        layers = page.locator("#chart-layers [role=img]")
        before = layers.get_attribute("aria-label")
        expect(layers).not_to_have_attribute("aria-label", before or "")
        expect(layers).to_have_attribute(
            "aria-label", re.compile(r"hosts wrote (0|<0\.1) MB.*striped: undercover\) [1-9]")
        )
        if os.environ.get("ARRAYSIM_SCREENSHOTS"):
            page.wait_for_timeout(15_000)  # a picture with something in it
        viewer.shot("storm-light")
        page.get_by_label("Colours").select_option("dark")
        viewer.shot("storm-dark")
        row.get_by_role("link", name="clone").click()
        expect(page.get_by_role("heading", name="Volume clone")).to_be_visible()
        expect(page.locator("#chart-held canvas")).to_be_visible()
        viewer.shot("volume")
        viewer.go("hosts")
        expect(page.locator("#hosts tbody tr").first).to_contain_text("iqn.")
        viewer.shot("hosts")
        viewer.go("overview")
    expect(page.locator("#culprits")).to_contain_text("Nothing")
    expect(page.locator(".events")).to_contain_text("to volume clone in")


def test_keys_search_and_order(viewer: Viewer) -> None:
    page = viewer.go("overview")
    expect(page.locator("#partitions li")).to_have_count(2)
    page.keyboard.press("2")
    names = page.locator("#volumes tbody tr td:first-child")
    expect(names).to_have_text(["clone", "idle", "original"])
    page.keyboard.press("/")
    page.keyboard.type("slow idl")
    expect(names).to_have_text(["idle"])
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    expect(names).to_have_count(3)
    head = page.get_by_role("columnheader", name="Volume")
    head.get_by_role("button").focus()
    page.keyboard.press("Enter")
    expect(head).to_have_attribute("aria-sort", "descending")
    expect(names).to_have_text(["original", "idle", "clone"])
    viewer.shot("volumes")
    page.get_by_role("link", name="idle").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="Volume idle")).to_be_visible()
    page.keyboard.press("p")
    expect(page.get_by_role("button", name="Go on")).to_be_visible()
    for n, what in ((3, "#pools"), (4, "#hosts"), (5, ".events")):
        page.keyboard.press(str(n))
        expect(page.locator(what)).to_be_visible()


def test_administration(viewer: Viewer, daemon: Daemon) -> None:
    viewer.allowed = ["401", "400", "409"]  # refusals, which the page shows in words
    page = viewer.go("volumes")
    expect(page.locator("#volumes tbody tr")).to_have_count(3)
    page.get_by_role("button", name="New volume…").click()
    page.get_by_role("textbox", name="Token").fill("guess")
    page.get_by_role("button", name="Unlock").click()
    page.get_by_role("textbox", name="Name").fill("made")
    page.get_by_role("textbox", name="Size").fill("lots")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("is no size")
    page.get_by_role("textbox", name="Size").fill("64MiB")
    page.get_by_role("button", name="Create").click()
    expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("arraysim token")
    assert [v["name"] for v in daemon.cli_json("volume", "list")] == ["original", "clone", "idle"]
    viewer.unlock()
    page.get_by_role("textbox", name="Name").fill("made")
    page.get_by_role("textbox", name="Size").fill("64MiB")
    page.get_by_role("textbox", name="LUN").fill("7")
    viewer.shot("dialog")
    viewer.submit("Create")
    page.get_by_role("link", name="made", exact=True).click()

    page.get_by_role("button", name="Resize…").click()
    page.get_by_role("textbox", name="Size").fill("32MiB")
    page.get_by_role("button", name="Resize", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("would be lost")
    viewer.submit("Resize all the same")
    expect(page.locator(".facts")).to_contain_text("32 MiB")

    page.get_by_role("button", name="Zero…").click()
    viewer.submit("Zero")
    assert daemon.cli_json("volume", "show", "made")["zero"] == 32 * MiB

    page.get_by_role("button", name="Clone…").click()
    viewer.submit("Clone")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    viewer.submit("Delete all the same")
    viewer.go("volume/made-copy")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("There is no volume made-copy")).to_be_visible()
    audit = (daemon.data / "audit.log").read_text()
    assert '"path":"/api/v1/volumes/made/clone"' in audit and viewer.token not in audit


def test_faults_and_budget(viewer: Viewer, daemon: Daemon) -> None:
    page = viewer.go("pools")
    row = page.locator("#mdisks tbody tr", has_text="fast.")
    row.get_by_role("button", name="Take offline…").click()
    viewer.unlock()
    viewer.submit("Take offline")
    expect(row).to_contain_text("offline")
    assert daemon.sg("sg_dd", "if=/dev/sg0", "of=/dev/null", "bs=512", "count=1", expect=None).returncode != 0
    viewer.shot("fault")
    row.get_by_role("button", name="Bring back…").click()
    viewer.submit("Bring back")
    expect(row).to_contain_text("online")
    daemon.sg("sg_dd", "if=/dev/sg0", "of=/dev/null", "bs=512", "count=1")

    row.get_by_role("button", name="Slow down…").click()
    page.get_by_role("textbox", name="Bandwidth").fill("4MiB")
    viewer.submit("Set")
    expect(row).to_contain_text("4 MiB/s")

    page.get_by_role("button", name="Lose the cache's mirror…").click()
    viewer.submit("Lose it")
    expect(page.get_by_role("alert")).to_contain_text("lost its mirror")
    page.get_by_role("button", name="Restore the cache's mirror…").click()
    viewer.submit("Restore it")
    expect(page.get_by_role("alert")).to_have_count(0)

    page.get_by_role("button", name="Policy and budget…").click()
    page.get_by_role("textbox", name="Offload budget, % of a partition").fill("25")
    viewer.submit("Set")
    assert daemon.cli_json("policy", "show")["budget_percent"] == 25


def test_moving_about_leaks_nothing(viewer: Viewer) -> None:
    page = viewer.go("overview")
    expect(page.locator("#partitions li")).to_have_count(2)
    cdp = viewer.context.new_cdp_session(page)
    cdp.send("Performance.enable")

    def round_trip() -> dict[str, float]:
        for at, what in (("volumes", "#volumes"), ("volume/idle", "#chart-held"), ("overview", "#chart-layers")):
            viewer.go(at)
            expect(page.locator(what)).to_be_visible()
        cdp.send("HeapProfiler.collectGarbage")
        return {m["name"]: m["value"] for m in cdp.send("Performance.getMetrics")["metrics"]}

    round_trip()
    first = round_trip()
    for _ in range(10):
        last = round_trip()
    assert last["JSEventListeners"] <= first["JSEventListeners"] + 10
    assert last["Nodes"] <= first["Nodes"] + 200
