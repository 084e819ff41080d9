"""States of the live page that are rare, each on an array of its own: on a desk and on a phone, in light and dark.

Viewer.shot looks at them with axe; ARRAYSIM_SCREENSHOTS=folder keeps the pictures.
"""

from __future__ import annotations

import json
import math
import re
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from arrays import noise, write
from harness import REPO, Config, Daemon, KiB, Mdisk, MiB, Pool, Volume
from viewing import DESK, PHONE, SIZE, Viewer, expect

if TYPE_CHECKING:
    from playwright.sync_api import Browser

pytestmark = pytest.mark.slow  # a browser and daemons of their own, for states that are rare

Opened = Callable[[Daemon], Viewer]


@pytest.fixture
def look(browser: Browser, axe: str) -> Iterator[Opened]:
    """Return a function that opens a page of a daemon."""
    open_: list[Viewer] = []

    def start(daemon: Daemon) -> Viewer:
        open_.append(Viewer(browser, daemon, axe))
        return open_[-1]

    yield start
    for v in open_:
        v.context.close()
        assert v.errors == []


NewArray = Callable[[Config], Daemon]


@pytest.mark.slow
def test_nothing_there(new_array: NewArray, look: Opened) -> None:
    """Every place that is empty says what to try."""
    d = new_array(Config(pools=[Pool("only")], volumes=[]))
    v = look(d)
    page = v.go("overview")
    expect(page.locator("#chart-held .empty")).to_contain_text("Write to a LUN")
    d.cli("pool", "delete", "only")
    expect(page.locator("#partitions")).to_contain_text("There are no pools. Create one")
    tries = re.compile(r"Create|Choose|choose|clone|Write|Start|Log in|Clear|listed here|write a section")
    for name in ("overview", "volumes", "pools", "hosts", "events", "nodes", "volume/none", "nowhere"):
        v.go(name)
        expect(page.locator(".status")).to_contain_text("iscsi")
        if name == "events":
            page.get_by_role("button", name="Faults").click()
        expect(page.locator(".empty").first).to_be_visible()
        expect(page.locator(".empty", has_text=re.compile("^…$"))).to_have_count(0)
        for text in page.locator("main .empty").all_inner_texts():
            assert tries.search(text), (name, text)
        v.shot("none-" + name.replace("/", "-"))
    # A time before the daemon began.
    v.go("overview")
    for _ in range(2):
        page.get_by_role("button", name="Earlier").click()
        page.get_by_role("button", name="Earlier").click()
    expect(page.locator("#chart-layers .empty")).to_contain_text("Choose a later range")
    for text in page.locator("figure .empty").all_inner_texts():
        assert tries.search(text), text
    v.shot("none-earlier")
    # A volume that nobody has touched, and a search that finds nothing.
    d.cli("pool", "create", "again", "--size", "1GiB")
    d.cli("volume", "create", "new", "--pool", "again", "--size", "16MiB")
    v.go("volume/new")
    page.get_by_role("button", name="5 min").click()
    expect(page.locator("#chart-latency .empty")).to_contain_text("Start a reader")
    for text in page.locator("main .empty").all_inner_texts():
        assert tries.search(text), text
    v.shot("none-volume-new")
    v.go("volumes")
    page.get_by_role("searchbox").fill("nonsense")
    expect(page.locator("#volumes .empty")).to_contain_text("Clear it")


@pytest.mark.slow
def test_slow_victim_beside_busy_volumes(new_array: NewArray, look: Opened, tmp_path: Path) -> None:
    """A volume that waits and moves next to nothing is in the tile, in the chart and in the table.

    The others have moved what it takes two minutes for, which is longer than this looks.
    """
    busy = [Volume(f"busy{i}", i, pool="fast", size=16 * MiB) for i in range(9)]
    d = new_array(
        Config(
            pools=[Pool("fast"), Pool("slow", mdisks=[Mdisk("m0", bandwidth=64 * KiB)])],
            volumes=[*busy, Volume("victim", 9, pool="slow", size=16 * MiB)],
            store="memory",
        )
    )
    d.cli("fault", "write-mode", "slow", "write_through")
    for i in range(9):
        write(d, i, 0, noise(8 * MiB, seed=i), tmp_path)
    v = look(d)
    page = v.go("overview")
    over = threading.Event()
    f = tmp_path / "small"
    f.write_bytes(noise(8 * KiB, seed=99))

    def wait() -> None:
        while not over.is_set():
            d.sg("sg_dd", f"if={f}", "of=/dev/sg9", "bs=512", "bpt=16", timeout=120)

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        expect(page.locator("#tile-latency")).to_contain_text("slowest: victim")
        expect(page.locator("#tile-latency b")).to_have_text(re.compile(r"\d{2}"))
        chart = page.locator("#chart-latency [role=img]")
        expect(chart).to_have_attribute(
            "aria-label", re.compile(r"victim (\d{2,}\.\d|[\d,]{4,}) ms.*mean of all volumes [\d.,]+ ms")
        )
        expect(page.locator("#victims tbody tr").first).to_contain_text("victim")
        # The most active volumes are those that did most.
        expect(page.locator("#chart-host .legend")).not_to_contain_text("victim")
        v.shot("victim")
    finally:
        over.set()
        thread.join()


def finding(number: int, volume: str, **more: object) -> dict[str, object]:
    """Return a finding as the daemon keeps it."""
    return {
        "id": number,
        "kind": "undercover",
        "volume": volume,
        "volume_id": number,
        "pool": "slow",
        "origins": ["xcopy"],
        "began": "2026-11-23T07:00:00Z",
        "last": "2026-11-23T07:02:00Z",
        "episodes": 2,
        "undercover_bytes": 900 * MiB,
        "host_written_bytes": 0,
        "peak_cache_dirty_bytes": 10 * MiB,
        **more,
    }


def test_findings_name_their_victims(new_array: NewArray, look: Opened) -> None:
    """Who waited stands in the finding; what is not known is not nobody."""
    d = new_array(Config())
    d.stop()
    names = ("db", "mail", "web", "log")
    victims = [
        {"volume": n, "volume_id": i, "mean_before_ns": 400_000, "mean_ns": (90 - i) * 10**6, "p99_ns": 200 * 10**6}
        for i, n in enumerate(names)
    ]
    kept = [
        finding(1, "old"),  # of a version that did not know
        finding(2, "unknown", compared_volumes=0, unknown_volumes=3),
        finding(3, "harmless", compared_volumes=1, unknown_volumes=2),
        finding(4, "one", victims=victims[:1], compared_volumes=4, unknown_volumes=1),
        finding(5, "many", victims=victims, compared_volumes=9, unknown_volumes=0),
    ]
    (d.data / "findings.json").write_text(json.dumps({"last_id": 5, "findings": kept}))
    d.start()
    v = look(d)
    page = v.go("overview")
    texts = page.locator("#findings .findings li")
    expect(texts).to_have_count(5)
    db = "db 90.0 ms per read or write, 0.40 ms before (p99 up to 200.0 ms)"
    for i, want in enumerate(
        (
            f"Meanwhile other volumes of the pool waited longer: {db}; mail 89.0 ms per read or write, 0.40 ms before "
            "(p99 up to 200.0 ms); web 88.0 ms per read or write, 0.40 ms before (p99 up to 200.0 ms); and 1 more.",
            f"Meanwhile another volume of the pool waited longer: {db}; 1 could not be compared.",
            "One other volume of the pool was compared with the time before and had not become slower; "
            "2 could not be compared.",
            "It is not known whether other volumes of the pool waited",
            "It is not known whether other volumes of the pool waited",
        )
    ):
        expect(texts.nth(i)).to_contain_text(want)
    v.shot("findings")


def test_what_is_dirty_is_as_new_as_the_tiles(new_array: NewArray, look: Opened) -> None:
    """The header and the tile of the write cache say the same: both are asked for each time."""
    v = look(new_array(Config()))
    asked: list[str] = []
    v.page.on("request", lambda r: asked.append(r.url.rpartition("/")[2]))
    page = v.go("overview")
    expect(page.locator(".status")).to_contain_text("dirty")
    while asked.count("counters") < 6:
        page.wait_for_timeout(200)
    assert asked.count("status") >= asked.count("counters") - 1


def test_a_box_stands_beside_its_words(new_array: NewArray, look: Opened) -> None:
    """On a phone, too, where controls are taller than a line."""
    d = new_array(Config(volumes=[]))
    v = look(d)
    v.page.set_viewport_size(PHONE)
    page = v.go("volumes")
    page.evaluate(f"sessionStorage.setItem('arraysim.token', '{v.token}')")
    page.reload()
    page.get_by_role("button", name="New volume…").click()
    label = page.get_by_role("dialog").locator("label.check")
    # Both at once: the dialog may grow between two questions.
    box, words = label.evaluate("l => [l.querySelector('input'), l].map(e => e.getBoundingClientRect().toJSON())")
    assert abs(box["y"] + box["height"] / 2 - words["y"] - words["height"] / 2) <= 2, (box, words)
    assert box["height"] == box["width"], "a tall box is drawn at its top"


def test_what_fails_is_on_every_page(look: Opened) -> None:
    """Both copies of the metadata are in one folder, so that one is not used: pages say so until that is mended."""
    d = Daemon(Config(volumes=[Volume("v0", 0, size=64 * MiB)]), "page-health")
    (d.data / "meta").mkdir(parents=True, mode=0o700)
    (d.data / "meta.copy").symlink_to("meta")
    with d:
        v = look(d)
        for name in ("overview", "volumes", "events", "volume/v0"):
            page = v.go(name)
            expect(page.locator("#health li")).to_have_count(1)
            expect(page.locator("#health")).to_contain_text("a copy of the checkpoints is not used")
        v.shot("health")
        v.allowed = ["Failed to load", "ERR_"]  # the daemon is down for a while
        d.stop()
        (d.data / "meta.copy").unlink()
        d.start()
        expect(page.locator("#health")).to_have_count(0)


def test_faults_and_dialogs(new_array: NewArray, look: Opened) -> None:
    """A lost mirror, and the dialogs that ask before they harm."""
    d = new_array(Config(volumes=[Volume("v0", 0, size=64 * MiB)]))
    v = look(d)
    page = v.go("pools")
    page.evaluate(f"sessionStorage.setItem('arraysim.token', '{v.token}')")
    page.reload()
    page.get_by_role("button", name="Fail the cache mirror…").click()
    expect(page.get_by_role("dialog")).to_contain_text("A fault:")
    v.shot("danger")
    v.submit("Fail the mirror")
    expect(page.get_by_role("alert")).to_contain_text("lost its mirror")
    v.shot("mirror-lost")
    v.go("overview")
    expect(page.locator(".events")).to_contain_text("lost its mirror")
    v.shot("mirror-lost-overview")
    v.go("volume/v0")
    page.get_by_role("button", name="Export…").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_role("textbox", name="LUN").fill("1.5")
    dialog.get_by_role("button", name="Export").click()
    expect(dialog.get_by_role("alert")).to_have_text("LUN: “1.5” is not a whole number")
    v.shot("dialog-refused")
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Zero…").click()
    expect(dialog).to_contain_text("All data on the volume is lost.")
    v.shot("danger-zero")


@pytest.mark.slow
def test_phone_while_the_daemon_is_down(new_array: NewArray, look: Opened) -> None:
    """On a phone, too, the page says that what it shows is old; a page that never heard the daemon says so."""
    d = new_array(Config(volumes=[Volume("v0", 0, size=64 * MiB)]))
    v = look(d)
    v.allowed = ["Failed to load", "ERR_"]
    v.page.set_viewport_size(PHONE)
    page = v.go("volume/v0")
    expect(page.locator(".facts")).to_be_visible()
    d.stop()
    alert = page.get_by_role("alert")
    expect(alert).to_contain_text("does not answer")
    expect(alert).to_contain_text("To start the daemon: arraysim serve")
    box = alert.bounding_box()
    assert box and box["y"] + box["height"] <= PHONE["height"] and box["width"] <= PHONE["width"]
    v.shot("down-volume")
    for name in ("volumes", "pools", "hosts", "events"):
        v.go(name)
        expect(alert).to_be_visible()
        v.shot("down-" + name)
    d.start()
    expect(alert).to_have_count(0)
    page.set_viewport_size(DESK)


def test_sizes_are_read_as_the_command_line_reads_them(new_array: NewArray, look: Opened, web: Path) -> None:
    """The page's grammar is that of internal/size: the same table, up to the largest whole number that it has."""
    built = subprocess.run(
        ["node_modules/.bin/esbuild", "src/format.ts", "--bundle", "--format=iife", "--global-name=format"],
        cwd=web,
        capture_output=True,
        text=True,
        check=True,
    )
    table = json.loads((REPO / "internal" / "size" / "testdata" / "sizes.json").read_text())
    v = look(new_array(Config(volumes=[])))
    texts = [*table["sizes"], *table["refused"]]
    read = v.go("volumes").evaluate(
        f"texts => {{ {built.stdout}; return texts.map(t => format.parseSize(t)); }}", texts
    )
    for text, got in zip(texts, read, strict=True):
        want = int(table["sizes"].get(text, -1))
        if 0 <= want < 1 << 53:
            assert got == want, text
        else:
            assert math.isnan(got), (text, got)


def test_no_translated_english() -> None:
    """Phrases that the page had, and that no native reader would write."""
    refused = "|".join(
        (
            r"is no whole",
            r'"Go on"|, please|Cut off|"[^"{}]*; empty: ',
            r"by now;|what lies on|what is dirty|a second\"",
        )
    )
    for f in sorted((REPO / "web" / "src").glob("*.ts*")):
        text = "\n".join(line for line in f.read_text().splitlines() if not line.strip().startswith(("//", "/*", "*")))
        assert re.findall(refused, text) == [], f.name


@pytest.mark.slow
def test_a_victim_is_named_while_it_waits(new_array: NewArray, tmp_path: Path) -> None:
    """The daemon compares a reader before and during an offload into its pool, and names it with both latencies."""
    d = new_array(
        Config(
            pools=[Pool("fast"), Pool("slow", copy="data", mdisks=[Mdisk("m0", bandwidth=8 * MiB)])],
            volumes=[Volume(n, i, pool="slow" if i else "fast", size=SIZE) for i, n in enumerate(("from", "to", "db"))],
            cache=16 * MiB,
            store="memory",
        )
    )
    write(d, 0, 0, noise(SIZE, seed=1), tmp_path)
    write(d, 2, 0, noise(4 * MiB, seed=2), tmp_path)
    over = threading.Event()

    def read() -> None:
        while not over.is_set():
            d.sg("sg_dd", "if=/dev/sg2", "of=/dev/null", "bs=512", "bpt=8", "count=1024", timeout=120)

    def ask(path: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{d.metrics_port}/api/v1/{path}", timeout=60) as r:
            return json.load(r)

    def seconds() -> int:
        """For how long db has been read."""
        return sum(v is not None for o in ask("history?volume=db")["objects"] for v in o["series"]["latency_ns"])

    thread = threading.Thread(target=read)
    thread.start()
    try:
        deadline = time.monotonic() + 120
        while seconds() < 25:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        for _ in range(4):
            d.sg("sg_xcopy", "if=/dev/sg0", "of=/dev/sg1", "bs=512", f"count={SIZE // 512}", "bpt=16384", timeout=120)
        (found,) = ask("findings")["findings"]
    finally:
        over.set()
        thread.join()
    assert found["volume"] == "to" and found["compared_volumes"] == 1 and found["unknown_volumes"] == 0, found
    (victim,) = found["victims"]
    assert victim["volume"] == "db" and victim["mean_ns"] >= 2 * victim["mean_before_ns"] > 0, victim
