"""From a run of the firmware in virtual time to findings and pictures, by the command line."""

from __future__ import annotations

import json
import shutil
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from harness import REPO, GiB, binary, run

SCENARIO = REPO / "testdata" / "report" / "clone.yaml"


def simulate(out: Path, *args: str) -> Path:
    run([binary(), "sim", SCENARIO, "--out", out, "--record", "30s", "--quiet", *args], timeout=120)
    return out


@pytest.fixture(scope="module")
def incident(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The counters of a run in which a clone by XCOPY fills a cache partition."""
    return simulate(tmp_path_factory.mktemp("incident"))


def analyze(source: Path) -> dict[str, Any]:
    return json.loads(run([binary(), "analyze", source, "--json"]).stdout)


def judge(found: dict[str, Any], pool: str) -> None:
    (culprit,) = found["undercover"]
    assert (culprit["volume"], culprit["pool"]) == ("clone", pool)
    assert 0.9 * 8 * GiB <= culprit["bytes"] <= 1.01 * 8 * GiB
    assert culprit["confidence"] > 0.9
    (tower,) = found["towers"]
    assert (tower["cause"], tower["culprit"], tower["pool"]) == ("undercover", "clone", pool)
    assert tower["height_seconds"] > 20 * tower["base_seconds"]
    assert tower["volumes_hit"] == tower["volumes_active"] == 12
    assert tower["shares"]["without_offload"] > 0.9
    (holder,) = (h for h in found["holders"] if not h["explained_by_host"])
    assert holder["volume"] == "clone" and holder["share"] > 0.9


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


def test_text(incident: Path) -> None:
    text = run([binary(), "analyze", incident / "iostats"]).stdout
    for word in ("Undercover writes", "Response-time towers", "clone", "mdg1", "budget"):
        assert word in text


def test_report_is_one_page(incident: Path, tmp_path: Path) -> None:
    page, svg = tmp_path / "run.html", tmp_path / "svg"
    run([binary(), "report", incident / "counters.parquet", "--out", page, "--svg", svg])
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


def test_the_page_draws_in_a_browser(incident: Path, tmp_path: Path) -> None:
    """Chromium draws every chart of the page, in both themes, without a complaint."""
    from playwright.sync_api import sync_playwright

    page_file = tmp_path / "run.html"
    run([binary(), "report", incident / "counters.parquet", "--out", page_file])
    chromium = shutil.which("chromium")
    assert chromium, "chromium is not installed: run scripts/setup.sh"
    with sync_playwright() as p:
        browser = p.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        said: list[str] = []
        page.on("console", lambda m: said.append(m.text))
        page.on("pageerror", lambda e: said.append(str(e)))
        page.on("request", lambda r: said.append(r.url) if not r.url.startswith("file:") else None)
        page.goto(page_file.as_uri())
        charts = page.locator("[id^=chart-]")
        assert charts.count() >= 10
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
            for i in range(charts.count()):
                assert charts.nth(i).locator("svg path").count() > 3
            assert page.evaluate("document.documentElement.dataset.theme") == theme
        assert said == []
        browser.close()
