"""The live page in a real Chromium: what a person sees while offloads run, and what he changes there.

Nothing here waits for a time to pass: every wait is for something that the page shows. Viewer.shot looks at
a state on a desk and on a phone, in light and dark; test_page_states.py has the states that are rarer.
"""

from __future__ import annotations

import json
import os
import re
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from arrays import destaged, noise, write
from harness import Config, Daemon, Mdisk, MiB, Pool, Volume
from nodes import eventually
from viewing import SIZE, THEMES, Colour, Storm, Viewer, expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Route

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


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    with Daemon(CONFIG, "page") as d:
        write(d, 0, 0, noise(SIZE, seed=1), tmp_path_factory.mktemp("page"))
        destaged(d)
        yield d


@pytest.fixture
def viewer(browser: Browser, daemon: Daemon, axe: str) -> Iterator[Viewer]:
    v = Viewer(browser, daemon, axe)
    yield v
    v.context.close()
    assert v.errors == []


def test_loads_small_and_by_itself(viewer: Viewer) -> None:
    page = viewer.go("overview")
    expect(page).to_have_title("Overview · arraysim")
    expect(page.locator("#partitions li")).to_have_count(2)
    expect(page.locator("#sources")).to_contain_text("To see an offload")
    expect(page.locator("#findings")).to_contain_text("None.")
    viewer.shot("empty")
    expect(page.locator("#chart-layers canvas")).to_be_visible()
    for f in ("app.js", "app.css"):
        with urllib.request.urlopen(viewer.base + f, timeout=60) as r:
            assert len(r.read()) < 300_000, f
            assert "default-src 'self'" in r.headers["Content-Security-Policy"]


def test_storm_shows_its_culprit(viewer: Viewer, daemon: Daemon) -> None:
    page = viewer.go("overview")
    expect(page.locator("#partitions li")).to_have_count(2)
    with Storm(daemon):
        row = page.locator("#sources tbody tr")
        expect(row).to_have_count(1)
        expect(row.locator("td").nth(0)).to_have_text("clone")
        expect(row.locator("td").nth(3)).to_have_text(re.compile("^(0|<0.1)$"))  # hosts send copy lists only
        expect(page.locator("#sources")).to_have_class("alarm")
        # The partition of its pool, and no other, fills up to its cap.
        full = "() => document.querySelector('meter[aria-label$=slow]')?.value > 90"
        page.wait_for_function(full)
        assert page.locator("meter[aria-label$=fast]").evaluate("m => m.value") < 50
        expect(page.locator(".events")).to_contain_text("volume clone is written by offloads (xcopy)")
        expect(page.locator(".events")).to_contain_text("the write cache of pool slow is full")
        # The copies under way, one by one.
        running = page.locator("#running tbody tr").first
        expect(running).to_contain_text("clone")
        expect(running).to_contain_text("xcopy")
        # The charts move, from nothing at all: their words are what their last points are.
        expect(page.locator("#chart-layers [role=img]")).to_have_attribute(
            "aria-label", re.compile(r"hosts wrote (0|<0\.1) MB.*striped: undercover\) [1-9]")
        )
        # Whom it makes wait, with mean and p99, and the totals beside.
        victim = page.locator("#victims tbody tr", has_text="idle")
        expect(victim.locator("td").nth(3)).to_have_text(re.compile("[1-9]"))
        expect(page.locator("#chart-latency [role=img]")).to_have_attribute(
            "aria-label", re.compile(r"idle [<\d.,]+ ms.*mean of all volumes [<\d.,]+ ms")
        )
        expect(page.locator("#tile-latency")).to_contain_text(
            re.compile(r"slowest: (idle|original|clone); mean of all")
        )
        expect(page.locator("#tile-undercover b")).to_have_text(re.compile("[1-9]"))
        expect(page.locator("#chart-held .legend")).to_contain_text(re.compile(r"clone [\d.]+ MiB"))
        finding = page.locator("#findings .findings li")
        expect(finding).to_contain_text("Being written now")
        expect(finding).to_contain_text("to volume clone in pool slow by xcopy")
        if os.environ.get("ARRAYSIM_SCREENSHOTS"):
            page.wait_for_timeout(20_000)  # a picture with something in it
        # Paused while there is a copy under way, so that it is in all of the pictures. Between two copies nothing is
        # written for a moment, and the first second of the next one may have none of it.
        page.wait_for_function(
            """() => {
                const pause = document.querySelector("button[title='key p']");
                const busy = document.querySelector("#running tbody tr") && document.querySelector("#sources.alarm");
                if (busy && !window.paused) pause.click(window.paused = true);
                return pause.ariaPressed === "true";
            }"""
        )
        expect(running).to_be_visible()
        expect(page.locator("#sources")).to_have_class("alarm")
        viewer.shot("busy")
        expect(running).to_be_visible()
        page.get_by_role("button", name="Resume").click()
        page.get_by_label("Colours").select_option("dark")
        expect(page.locator("html[data-theme=dark]")).to_have_count(1)
        page.get_by_label("Colours").select_option("light")
        row.get_by_role("link", name="clone").click()
        expect(page.get_by_role("heading", name="Volume clone")).to_be_visible()
        expect(page.locator("#chart-held canvas")).to_be_visible()
        viewer.shot("volume")
        viewer.go("hosts")
        expect(page.locator("#hosts tbody tr").first).to_contain_text("iqn.")
        viewer.shot("hosts")
        viewer.go("overview")
    expect(page.locator("#sources")).to_contain_text("To see an offload")
    expect(page.locator(".events")).to_contain_text("to volume clone in")
    expect(finding).not_to_contain_text("Being written now")
    # The daemon is younger than an hour: both sums are the same, to the byte.
    page.wait_for_function(
        """() => {
            const text = document.querySelector("#findings").innerText;
            const sums = text.match(/(?<=^(Since the start|Last hour).*: ).*/gm);
            return sums?.length === 2 && sums[0] === sums[1];
        }"""
    )
    viewer.shot("after")
    # A reload takes nothing away: the finding, the charts and the totals are the daemon's.
    page.reload()
    expect(finding).to_contain_text("below the host layer to volume clone")
    expect(page.locator("#findings .totals")).to_contain_text(re.compile(r"Last hour: [\d.]+ [MG]iB undercover"))
    assert charted(page, daemon) > 0
    viewer.shot("reload")
    page.get_by_role("button", name="1 hour").click()
    expect(page.get_by_role("button", name="1 hour")).to_have_attribute("aria-pressed", "true")
    expect(page.locator("#chart-layers .legend")).to_contain_text("MB/s")
    viewer.shot("hour")


def charted(page: Page, daemon: Daemon) -> float:
    """Return the highest undercover rate that the history has for the page."""
    with urllib.request.urlopen(f"http://127.0.0.1:{daemon.metrics_port}/api/v1/history", timeout=60) as r:
        total = next(o for o in json.load(r)["objects"] if o["kind"] == "total")
    return max(v or 0 for v in total["series"]["undercover_bytes"])


def test_a_step_that_has_just_begun(viewer: Viewer, daemon: Daemon) -> None:
    """Where the newest step has no sample yet, the legend has the values of the one before."""

    def begun(route: Route) -> None:
        response = route.fetch()
        history = response.json()
        for o in history["objects"]:
            for values in o["series"].values():
                values[-1] = None
        route.fulfill(response=response, json=history)

    page = viewer.go("overview")
    page.route("**/api/v1/history?**", begun)
    page.get_by_role("button", name="1 hour").click()
    expect(page.locator("#chart-layers .legend")).to_contain_text("last 15 s")
    expect(page.locator("#chart-layers .legend")).to_contain_text("MB/s")


def test_zoom(viewer: Viewer) -> None:
    page = viewer.go("overview")
    # Before the history is there, the chart has no lines; with its lines it is drawn anew.
    expect(page.locator("#chart-layers")).to_contain_text("hosts wrote")
    over = page.locator("#chart-layers .u-over")
    over.scroll_into_view_if_needed()
    box = over.bounding_box()
    assert box
    page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.8, box["y"] + 50, steps=4)
    with page.expect_request(re.compile("/history.*to_ms")) as asked:
        page.mouse.up()
    seconds = int(re.findall(r"seconds=(\d+)", asked.value.url)[0])
    assert 80 <= seconds <= 100, seconds  # three tenths of five minutes
    expect(page.get_by_role("group", name="Range of the charts")).to_contain_text(" to ")
    expect(page.get_by_role("button", name="5 min")).to_have_attribute("aria-pressed", "false")
    viewer.shot("zoomed")
    with page.expect_request(re.compile("/history.*seconds=(1[6-9][0-9]|20[0-9])&")):
        page.get_by_role("button", name="Zoom out").click()
    page.get_by_role("button", name="5 min").click()
    expect(page.get_by_role("button", name="5 min")).to_have_attribute("aria-pressed", "true")


@pytest.mark.slow
def test_finding_stays_until_dismissed(viewer: Viewer, new_array: Callable[[Config], Daemon], tmp_path: Path) -> None:
    """A restart keeps the finding and the history; dismissing takes the token, and is an event."""
    d = new_array(CONFIG)
    viewer.use(d)
    viewer.allowed = ["401", "Failed to load", "ERR_"]  # the daemon is down for a while
    write(d, 0, 0, noise(SIZE, seed=1), tmp_path)
    page = viewer.go("overview")
    expect(page.locator("#partitions li")).to_have_count(2)
    d.sg("sg_xcopy", "if=/dev/sg0", "of=/dev/sg1", "bs=512", f"count={SIZE // 512}", "bpt=16384", timeout=120)
    finding = page.locator("#findings .findings li")
    expect(finding).to_contain_text("volume clone")
    d.stop()
    expect(page.get_by_role("alert")).to_contain_text("does not answer")
    expect(page.get_by_role("alert")).to_contain_text("The data shown is from 20")
    expect(page.locator("#tile-undercover b")).to_have_text("–")
    expect(page.locator("#sources")).to_contain_text("Unknown")
    viewer.shot("down")
    d.start()
    expect(page.get_by_role("alert")).to_have_count(0)
    expect(finding).to_contain_text("below the host layer to volume clone in pool slow by xcopy")
    assert charted(page, d) > 1e6
    viewer.shot("restarted")
    page.get_by_role("button", name="Dismiss the finding of volume clone").click()
    viewer.unlock()
    viewer.submit("Dismiss")
    expect(finding).to_have_count(0)
    page.reload()
    expect(page.locator("#findings")).to_contain_text("None.")
    expect(page.locator(".events")).to_contain_text("administration finding 1 dismissed")


def test_phone(viewer: Viewer) -> None:
    """UNDERCOVER is in view at once, and nothing is wider than the screen."""
    page = viewer.page
    page.set_viewport_size({"width": 390, "height": 844})
    for name, what in (("overview", "#tile-undercover"), ("volumes", "#volumes"), ("volume/clone", "#chart-held")):
        viewer.go(name)
        expect(page.locator(what)).to_be_visible()
        page.wait_for_function("document.documentElement.scrollWidth <= 390")
        if name != "volume/clone":
            head = page.get_by_role("columnheader", name="Undercover MB/s")
            box = (page.locator(what) if name == "overview" else head).bounding_box()
            assert box and box["y"] + min(box["height"], 60) <= 844 and box["x"] + box["width"] <= 390, (name, box)
    # The tables show what matters without being moved.
    for name in ("volumes", "pools", "hosts"):
        viewer.go(name)
        expect(page.locator(f"#{name} tbody tr").first).to_be_visible()
        for wide in page.locator(".scroll").evaluate_all("l => l.map(e => e.scrollWidth - e.clientWidth)"):
            assert wide <= 0, (name, wide)


def test_nothing_keeps_people_out(viewer: Viewer) -> None:
    page = viewer.go("overview")
    for name, title in (
        ("overview", "Overview"),
        ("volumes", "Volumes"),
        ("volume/clone", "Volume clone"),
        ("pools", "Pools"),
        ("hosts", "Hosts"),
        ("events", "Events"),
        ("nowhere", "No such page"),
    ):
        viewer.go(name)
        expect(page).to_have_title(f"{title} · arraysim")
        expect(page.get_by_role("heading", level=1)).to_have_text(title)
        expect(page.locator(".status")).to_contain_text("iscsi")
        viewer.shot(name.replace("/", "-"))
    viewer.go("volumes")
    page.get_by_role("button", name="New volume…").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_role("textbox", name="Token")).to_be_focused()
    viewer.shot("token-empty")
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_events_by_kind_and_words(viewer: Viewer, daemon: Daemon) -> None:
    daemon.cli("volume", "create", "told", "--pool", "fast", "--size", "1MiB")
    daemon.cli("volume", "delete", "told")
    daemon.cli("fault", "mdisk", "fast", "fast-m0", "--bandwidth", "0")
    page = viewer.go("events")
    rows = page.locator(".events li")
    expect(rows.first).to_have_text(re.compile(r"^20\d\d-\d\d-\d\d \d\d:\d\d:\d\d fault mdisk fast\.fast-m0 limited: "))
    page.get_by_role("button", name="Administration").click()
    expect(rows.first).to_contain_text("administration volume told deleted")
    expect(page.locator(".events")).not_to_contain_text("mdisk")
    page.keyboard.press("/")
    page.keyboard.type("told created")
    expect(rows).to_have_text([re.compile("volume told created: 1 MiB in pool fast$")])
    page.keyboard.type(" nonsense")
    expect(rows).to_contain_text(["No event matches"])


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
    expect(page.get_by_role("button", name="Resume")).to_be_visible()
    for n, what in ((3, "#pools"), (4, "#hosts"), (5, ".events")):
        page.keyboard.press(str(n))
        expect(page.locator(what)).to_be_visible()


def test_quick_search_keeps_the_focus(viewer: Viewer) -> None:
    """Who asks for a page and at once for its search types there: the heading takes no focus later."""
    page = viewer.go("overview")
    expect(page.locator("#partitions li")).to_have_count(2)
    focused = page.evaluate("""() => new Promise((done) => {
        new MutationObserver((_, watch) => {
            const search = document.querySelector("input[type=search]");
            if (!search) return;
            watch.disconnect();
            search.focus();
            setTimeout(() => done(document.activeElement.type ?? document.activeElement.tagName), 500);
        }).observe(document.body, { childList: true, subtree: true });
        location.hash = "#/volumes";
    })""")
    assert focused == "search"
    page.evaluate("location.hash = '#/pools'")
    expect(page.get_by_role("heading", name="Pools", level=1)).to_be_focused()


def test_administration(viewer: Viewer, daemon: Daemon) -> None:
    viewer.allowed = ["401", "400", "409"]  # refusals, which the page shows in words
    page = viewer.go("volumes")
    expect(page.locator("#volumes tbody tr")).to_have_count(3)
    page.get_by_role("button", name="New volume…").click()
    # A wrong token is refused where it is asked for, before anything is filled in.
    page.get_by_role("textbox", name="Token").fill("guess")
    page.get_by_role("button", name="Unlock").click()
    alert = page.get_by_role("dialog").get_by_role("alert")
    expect(alert).to_contain_text("the token is wrong")
    expect(page.get_by_role("textbox", name="Name")).to_have_count(0)
    viewer.shot("token")
    viewer.unlock()
    page.get_by_role("textbox", name="Name").fill("made")
    page.get_by_role("textbox", name="Size").fill("lots")
    page.get_by_role("button", name="Create").click()
    expect(alert).to_contain_text("is not a valid size")
    # The token is another by now: what was filled in stays.
    page.evaluate("sessionStorage.setItem('arraysim.token', 'of another day')")
    page.get_by_role("textbox", name="Size").fill("64MiB")
    page.get_by_role("textbox", name="LUN").fill("7")
    page.get_by_role("button", name="Create").click()
    expect(alert).to_contain_text("arraysim token")
    assert [v["name"] for v in daemon.cli_json("volume", "list")] == ["original", "clone", "idle"]
    viewer.unlock()
    for name, text in (("Name", "made"), ("Size", "64MiB"), ("LUN", "7")):
        expect(page.get_by_role("textbox", name=name)).to_have_value(text)
    viewer.shot("dialog")
    # With a LUN that is taken nothing is made.
    page.get_by_role("textbox", name="LUN").fill("1")
    page.get_by_role("button", name="Create").click()
    expect(alert).to_contain_text("LUN 1 is volume")
    assert len(daemon.cli_json("volume", "list")) == 3
    page.get_by_role("textbox", name="LUN").fill("7")
    viewer.submit("Create")
    page.get_by_role("link", name="made", exact=True).click()

    page.get_by_role("button", name="Resize…").click()
    page.get_by_role("textbox", name="Size").fill("32MiB")
    page.get_by_role("button", name="Resize", exact=True).click()
    expect(page.get_by_role("dialog")).to_contain_text("the last 32MiB (33,554,432 bytes)")
    viewer.submit("Discard 32MiB")
    expect(page.locator(".facts")).to_contain_text("32 MiB")

    page.get_by_role("button", name="Zero…").click()
    viewer.submit("Zero")
    assert daemon.cli_json("volume", "show", "made")["zero"] == 32 * MiB

    page.get_by_role("button", name="Clone…").click()
    viewer.submit("Clone")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    viewer.submit("Delete anyway")
    viewer.go("volume/made-copy")
    page.get_by_role("button", name="Delete…").click()
    page.get_by_role("button", name="Delete", exact=True).click()
    expect(page.get_by_text("There is no volume made-copy")).to_be_visible()
    audit = (daemon.data / "audit.log").read_text()
    assert '"path":"/api/v1/volumes/made/clone"' in audit and viewer.token not in audit


def test_sizes_in_dialogs_are_exact(viewer: Viewer, daemon: Daemon) -> None:
    """What a dialog begins with changes nothing when it is sent back, whatever size the volume has."""
    sizes = (8236 * MiB, 1500 * MiB, 5 * MiB + 512, 3 << 40)
    viewer.allowed = ["409"]
    for i, size in enumerate(sizes):
        name = f"exact{i}"
        daemon.cli("volume", "create", name, "--pool", "fast", "--size", size)
        page = viewer.go(f"volume/{name}")
        if i == 0:
            page.evaluate(f"sessionStorage.setItem('arraysim.token', '{viewer.token}')")
            page.reload()
        page.get_by_role("button", name="Resize…").click()
        expect(page.get_by_role("textbox", name="Size")).to_have_value(
            {0: "8236MiB", 1: "1500MiB", 2: str(size), 3: "3TiB"}[i]
        )
        page.get_by_role("button", name="Resize", exact=True).click()
        expect(page.get_by_role("dialog").get_by_role("alert")).to_contain_text("has that size already")
        assert daemon.cli_json("volume", "show", name)["size"] == size
        if i == 0:
            viewer.shot("resize")
            # One step down is a question of its own, and says what it costs.
            page.get_by_role("textbox", name="Size").fill("8G")
            page.get_by_role("button", name="Resize", exact=True).click()
            dialog = page.get_by_role("dialog")
            expect(dialog).to_contain_text("From 8236MiB to 8GiB: the last 44MiB (46,137,344 bytes)")
            viewer.shot("shrink")
            # Somebody is quicker: nothing is cut off what he made.
            daemon.cli("volume", "resize", name, "9GiB")
            dialog.get_by_role("button", name="Discard 44MiB").click()
            expect(dialog.get_by_role("alert")).to_contain_text("its size is 9GiB now")
            assert daemon.cli_json("volume", "show", name)["size"] == 9 << 30
            dialog.get_by_role("button", name="Cancel").click()
            # The grammar is that of the command line.
            page.get_by_role("button", name="Resize…").click()
            page.get_by_role("textbox", name="Size").fill("10.24 GB")
            viewer.submit("Resize")
            assert daemon.cli_json("volume", "show", name)["size"] == 10_240_000_000
        else:
            page.get_by_role("button", name="Cancel").click()
        daemon.cli("volume", "delete", name, "--force")


#: What the page draws without an object.
ROLES = ("undercover", "hosts", "read", "cached", "neutral")
LEGENDS = """ids => Object.fromEntries(ids.map(id => [id, Object.fromEntries(
    [...document.querySelectorAll(`#${id} .legend li:not(.when)`)].map(li => [
        li.childNodes[1].data.trim(),
        getComputedStyle(li.querySelector("line")).stroke + li.querySelector("line").getAttribute("stroke-dasharray"),
    ]))]))"""


def legends(page: Page, *charts: str) -> dict[str, dict[str, str]]:
    """Return how charts draw what, as their legends show it: a colour and dashes."""
    for chart in charts:
        expect(page.locator(f"#{chart} .legend")).to_be_visible()
    return page.evaluate(LEGENDS, list(charts))


def test_a_colour_belongs_to_an_object(viewer: Viewer, new_array: Callable[[Config], Daemon], tmp_path: Path) -> None:
    """Pools and volumes that come and go recolour no other, a reload and a deletion change nothing, and no object has
    the colour of a role. All colours stand out from the page and from each other, also without red or green.
    """
    pools = [Pool("a"), Pool("b"), Pool("c")]
    d = new_array(Config(pools=pools, volumes=[Volume(f"v{i}", i, pool="b", size=16 * MiB) for i in range(4)]))
    viewer.use(d)
    for lun in range(4):
        write(d, lun, 0, noise(MiB, seed=lun), tmp_path)
    charts = ("chart-fill", "chart-backend", "chart-held", "chart-host", "chart-undercover", "chart-latency")
    page = viewer.go("overview")
    for name in ("v0", "v1", "v2", "v3"):
        expect(page.locator("#chart-held .legend")).to_contain_text(name)
    expect(page.locator("#chart-latency .legend")).to_contain_text("mean of all volumes")
    looks: dict[str, str] = {}

    def check() -> None:
        """Every object looks as it did, in every chart."""
        for chart, lines in legends(page, *charts).items():
            for name, look in lines.items():
                assert looks.setdefault(name, look) == look, (chart, name)
        of_pools = [v for k, v in looks.items() if len(k) == 1]
        of_volumes = [v for k, v in looks.items() if len(k) == 2]
        assert len(set(of_pools)) == len(of_pools) and len(set(of_volumes)) == len(of_volumes), looks

    check()
    assert len(looks) >= 7 and len({looks[n] for n in looks if len(n) <= 2}) == 7, "three pools and four volumes"
    d.cli("pool", "delete", "a")
    d.cli("pool", "create", "d", "--size", "1GiB")
    d.cli("volume", "delete", "v1", "--force")
    d.cli("volume", "create", "v9", "--pool", "c", "--size", "16MiB", "--lun", "1")
    write(d, 1, 0, noise(MiB, seed=9), tmp_path)
    expect(page.locator("#chart-fill .legend")).to_contain_text("d")
    expect(page.locator("#chart-held .legend")).to_contain_text("v9")
    check()
    page.reload()
    expect(page.locator("#chart-held .legend")).to_contain_text("v1")
    check()
    viewer.allowed = ["Failed to load", "ERR_"]
    d.stop()
    assert d.config
    d.config.pools, d.config.volumes = pools[1:], []  # nothing that went comes again
    d.start()
    page.reload()
    expect(page.locator("#chart-held .legend")).to_contain_text("v1")
    check()
    for name, chart, label in (("v2", "chart-held", "v2"), ("v2", "chart-latency", "p99")):
        viewer.go(f"volume/{name}")
        # The page before has a legend with these letters in it, too. A legend may be drawn again at any moment, so what
        # is compared is what was found.
        found: dict[str, str] = {}

        def shown(chart: str = chart, label: str = label, found: dict[str, str] = found) -> bool:
            found.update(legends(page, chart)[chart])
            return label in found

        eventually(f"{label} in {chart}", shown)
        assert found[label].split("rgb")[1] == looks[name].split("rgb")[1], chart

    for theme in THEMES:
        viewer.theme(theme)
        card, known = Colour.named(page, "card"), Colour.all(page)
        objects = {n: c for n, c in known.items() if n.startswith("object-")}
        assert len(objects) >= 7 and set(ROLES) < set(known)
        for name, colour in known.items():
            assert colour.contrast(card) >= 3, (theme, name)
            for other in known:
                if other < name:
                    least = (0.15, 0.07) if {name, other} <= set(objects) else (0.1, 0.04)
                    assert colour.distance(known[other]) >= least[0], (theme, name, other)
                    for kind in ("protan", "deutan"):
                        assert colour.distance(known[other], kind) >= least[1], (theme, name, other, kind)


@pytest.mark.parametrize("at", ["volume/%ZZ", "volume/none", "nowhere", "%E0%A4%A", "token=%ZZ"])
def test_no_address_gives_a_blank_page(viewer: Viewer, at: str) -> None:
    page = viewer.page
    page.goto(f"{viewer.base}#{at}" if at.startswith("token") else f"{viewer.base}#/{at}")
    expect(page.get_by_role("navigation")).to_be_visible()
    expect(page.locator("main")).to_have_text(re.compile("There is no|Written below"))


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

    page.get_by_role("button", name="Fail the cache mirror…").click()
    viewer.submit("Fail the mirror")
    expect(page.get_by_role("alert")).to_contain_text("lost its mirror")
    page.get_by_role("button", name="Restore the cache mirror…").click()
    viewer.submit("Restore the mirror")
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

    def counted() -> dict[str, float]:
        cdp.send("HeapProfiler.collectGarbage")
        return {m["name"]: m["value"] for m in cdp.send("Performance.getMetrics")["metrics"]}

    def round_trip() -> dict[str, float]:
        for at, what in (("volumes", "#volumes"), ("volume/idle", "#chart-held"), ("overview", "#chart-layers")):
            viewer.go(at)
            expect(page.locator(what)).to_be_visible()
        # With its lines a chart is drawn anew; what was before is garbage, which is counted until it is collected.
        expect(page.locator("#chart-layers")).to_contain_text("hosts wrote")
        return counted()

    round_trip()
    first = last = round_trip()
    for _ in range(10):
        round_trip()

    def as_before() -> bool:
        nonlocal last
        last = counted()
        return last["JSEventListeners"] <= first["JSEventListeners"] + 10 and last["Nodes"] <= first["Nodes"] + 200

    # What is drawn anew at this moment is there twice; what leaks stays.
    try:
        eventually("all of it is gone", as_before)
    except AssertionError as e:
        names = ("JSEventListeners", "Nodes")
        raise AssertionError(f"{e}: {[last[n] for n in names]}, at first {[first[n] for n in names]}") from None
