"""From a run of the firmware in virtual time to findings and pictures, by the command line."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import time
import xml.etree.ElementTree as ET
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from arrays import convert
from demo import settle
from harness import REPO, Daemon, GiB, MiB, binary, run

SCENARIO = REPO / "testdata" / "report" / "clone.yaml"


#: Findings run the firmware on models of what was seen: some seconds of a processor, which others may have.
PATIENCE = 300


def simulate(out: Path, *args: str) -> Path:
    run([binary(), "sim", SCENARIO, "--out", out, "--record", "30s", "--quiet", *args], timeout=PATIENCE)
    return out


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The counters of a run in which a clone by XCOPY fills a cache partition."""
    return simulate(tmp_path_factory.mktemp("incident"))


def analyze(source: Path) -> dict[str, Any]:
    return json.loads(run([binary(), "analyze", source, "--json"], timeout=PATIENCE).stdout)


def judge(found: dict[str, Any], pool: str) -> None:
    (culprit,) = found["undercover"]
    assert (culprit["volume"], culprit["pool"]) == ("clone", pool)
    assert 0.9 * 8 * GiB <= culprit["bytes"] <= 1.01 * 8 * GiB
    assert culprit["margin"] > 2
    (tower,) = found["towers"]
    assert (tower["cause"], tower["culprit"], tower["pool"]) == ("undercover", "clone", pool)
    assert tower["height_seconds"] > 20 * tower["base_seconds"]
    assert tower["volumes_hit"] == tower["volumes_active"] == 12
    assert tower["shares"]["without_offload"] > 0.9
    (holder,) = (h for h in found["holders"] if not h["explained_by_host"])
    assert holder["volume"] == "clone" and holder["share"] > 0.9


@pytest.mark.slow
def test_the_culprit_from_every_form(incident: Path, tmp_path: Path) -> None:
    """Our table, the statistics files, and these without the names of pools say the same."""
    judge(analyze(incident / "counters.parquet"), "mdg1")
    judge(analyze(incident / "iostats"), "mdg1")
    bare = tmp_path / "bare"
    bare.mkdir()
    for f in (incident / "iostats").glob("N*"):
        shutil.copy(f, bare)
    judge(analyze(bare), "mdg0")


def test_nobody_is_accused_without_the_clone(tmp_path: Path) -> None:
    found = analyze(simulate(tmp_path, "--set", "jobs.clone.off=true") / "iostats")
    assert found["undercover"] == [] and found["towers"] == []
    assert found["undercover_floor"]["bytes"] >= 64 * MiB, "nobody accused is not nothing written"


FORMS = ("csv", "parquet", "iostats")


def clone_while_counted(tmp: Path, size: int, *forms: str) -> dict[str, Path]:
    """Do what README.md says on the built-in array, and export counters once a second meanwhile, in each form.

    There are readings from before the clone and from after it, however long it takes: some 12 on an idle machine.
    """
    image, outs = tmp / "disk.img", {form: tmp / f"run.{form}" for form in forms}
    image.write_bytes(os.urandom(size))
    jobs: list[subprocess.Popen[bytes]] = []
    with Daemon() as array:
        convert(image, array.url(2))
        array.cli("volume", "create", "clone", "--pool", "silver", "--size", "16GiB", "--lun", "9")
        settle(array)  # what was written must leave the cache
        try:
            for form, out in outs.items():
                argv = ["counters", "export", "--interval", "1s", "--count", "0", "--out", out, "--data", array.data]
                if form == "iostats":
                    argv += ["--format", form]
                jobs.append(subprocess.Popen([str(a) for a in (binary(), *argv)]))
            # Made when the first reading is there; a file has its name only when the export has ended.
            while not all(out.exists() or list(tmp.glob(f"{out.name}.*.part")) for out in outs.values()):
                assert all(job.poll() is None for job in jobs), "an export has ended"
                time.sleep(0.05)
            time.sleep(3)
            convert(array.url(2), array.url(9), offload=True)
            time.sleep(6)
            for job in jobs:
                job.send_signal(signal.SIGINT)
            assert [job.wait(120) for job in jobs] == [0] * len(jobs)
        finally:
            for job in jobs:
                if job.poll() is None:
                    job.kill()
                    job.wait()
    return outs


#: The clone of README.md.
CLONED = 256 * MiB


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The counters of one such clone, in each form."""
    return clone_while_counted(tmp_path_factory.mktemp("counted"), CLONED, *FORMS)


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMS)
def test_a_clone_of_the_running_daemon_is_found(form: str, counted: dict[str, Path], tmp_path: Path) -> None:
    """README.md's own case: 256 MiB by XCOPY, in counters of some 12 seconds, once a second."""
    size, source = CLONED, counted[form]
    found = analyze(source)
    (culprit,) = found["undercover"]
    assert (culprit["volume"], culprit["pool"]) == ("clone", "silver")
    assert 0.95 * size <= culprit["bytes"] <= 1.01 * size
    text = run([binary(), "analyze", source], timeout=PATIENCE).stdout
    if form == "iostats":
        assert found["origin_label"] is None, "real arrays have no label"
    else:
        (label,) = found["origin_label"]
        assert (label["volume"], label["origin"], label["bytes"]) == ("clone", "xcopy", size)
        assert "origin label" in text
    assert "Undercover writes" in text and "none" not in text
    if form == "csv":
        columns_that_are_not_there(source, tmp_path)


def columns_that_are_not_there(source: Path, tmp: Path) -> None:
    """Without a family the finding that needs it is refused, and says what it lacks."""
    for family, finding in {
        "arraysim_host_transferred_bytes_total": "undercover writes",
        "arraysim_cache_dirty_bytes": "undercover writes",
        "arraysim_host_command_duration_seconds": "response-time towers",
        "arraysim_cache_partition_used": "how full the partition was",
    }.items():
        bare = tmp / "bare.csv"
        with source.open(newline="") as f, bare.open("w", newline="") as g:
            out = csv.writer(g)
            out.writerows(row for row in csv.reader(f) if not row[2].startswith(family))
        found = analyze(bare)
        refused = {r["finding"] for r in found["cannot_tell"]}
        assert finding in refused, (family, refused)
        if finding == "undercover writes":
            assert found["undercover"] == [] and found["undercover_floor"] is None
            assert (
                "Undercover writes: unknown from these counters."
                in run([binary(), "analyze", bare], timeout=PATIENCE).stdout
            )
        elif finding == "response-time towers":
            assert found["towers"] == []
            assert (
                "Response-time towers: these counters do not cover every pool"
                in run([binary(), "analyze", bare], timeout=PATIENCE).stdout
            )
        else:
            assert {p["mean_fullness"] for p in found["pools"]} == {None}


@pytest.mark.slow
def test_below_the_floor_nothing_is_said_to_be_none(tmp_path: Path) -> None:
    """A clone too small to be proved: the text says so, and what the origin label says."""
    source = clone_while_counted(tmp_path, 16 * MiB, "csv")["csv"]
    found = analyze(source)
    assert found["undercover"] == []
    with source.open(newline="") as f:
        times = {datetime.fromisoformat(row["time"]) for row in csv.DictReader(f)}
    seconds = (max(times) - min(times)).total_seconds()
    floor = found["undercover_floor"]
    assert floor["bytes"] >= 16 * MiB and abs(floor["seconds"] - seconds) <= 1 and seconds >= 3
    assert [(x["volume"], x["bytes"], x["proved"]) for x in found["origin_label"]] == [("clone", 16 * MiB, False)]
    text = run([binary(), "analyze", source], timeout=PATIENCE).stdout
    said = re.search(r"Below 67\.1 MB in ([\d.]+) s these counters prove nothing", text)
    assert said and abs(float(said[1]) - seconds) <= 1, text
    assert "No undercover writes" not in text and "origin label" in text


@pytest.mark.slow
def test_a_simulated_run_needs_no_recording(tmp_path: Path) -> None:
    """What sim --out leaves is enough for report and analyze."""
    out, page = tmp_path / "out", tmp_path / "run.html"
    run([binary(), "sim", SCENARIO, "--out", out, "--quiet"], timeout=PATIENCE)
    judge(analyze(out), "mdg1")
    run([binary(), "report", out, "--out", page], timeout=PATIENCE)
    html = page.read_text()
    for name in ("fullness", "load", "responses", "holders-1", "layers-1", "held", "heat"):
        assert f'id="chart-{name}"' in html
    (out / "volumes.csv").unlink()
    r = run([binary(), "report", out, "--out", page], expect=1)
    assert "there are no counters in this folder" in r.stderr and "Prometheus refuses" not in r.stderr


@pytest.mark.slow
def test_text(incident: Path) -> None:
    text = run([binary(), "analyze", incident / "iostats"], timeout=PATIENCE).stdout
    for word in ("Undercover writes", "Response-time towers", "clone", "mdg1", "budget"):
        assert word in text


@pytest.fixture(scope="module")
def pages(incident: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The report of that run, and a folder with its pictures."""
    page, svg = tmp_path_factory.mktemp("pages") / "run.html", tmp_path_factory.mktemp("svg") / "svg"
    run([binary(), "report", incident / "counters.parquet", "--out", page, "--svg", svg], timeout=PATIENCE)
    return page, svg


@pytest.mark.slow
def test_report_is_one_page(pages: tuple[Path, Path]) -> None:
    page, svg = pages
    html = page.read_text()
    assert "<script src" not in html and "<link" not in html
    names = {p.stem for p in svg.glob("*.svg")}
    assert names >= {
        "fullness",
        "load",
        "responses",
        "holders-1",
        "layers-1",
        "typical",
        "held",
        "heat",
        "backend",
        "offloads",
    }
    for name in names:
        assert f'id="chart-{name}"' in html
        assert ET.parse(svg / f"{name}.svg").getroot().tag.endswith("svg")


@pytest.mark.slow
def test_the_page_draws_in_a_browser(pages: tuple[Path, Path]) -> None:
    """Chromium draws every chart of the page, in both themes, without a complaint."""
    from playwright.sync_api import sync_playwright
    from viewing import CHROMIUM

    page_file, _ = pages
    assert Path(CHROMIUM).exists(), f"{CHROMIUM} is not installed: run scripts/setup.sh"
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"], timeout=180_000)
        page = browser.new_page()
        said: list[str] = []
        page.on("console", lambda m: said.append(m.text))
        page.on("pageerror", lambda e: said.append(str(e)))
        page.on("request", lambda r: said.append(r.url) if not r.url.startswith("file:") else None)
        page.goto(page_file.as_uri(), timeout=180_000)
        charts = page.locator("[id^=chart-]")
        assert charts.count() >= 10
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            page.wait_for_function("t => document.documentElement.dataset.theme === t", arg=theme, timeout=180_000)
            for i in range(charts.count()):
                assert charts.nth(i).locator("svg path").count() > 3
        assert said == []
        browser.close()
