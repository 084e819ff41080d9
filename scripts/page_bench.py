#!/usr/bin/env python3
"""Measure the page with 1,000 volumes and about 200 offloads a second: frames, script, memory.

Needs the virtual environment of the tests: .cache/venv/bin/python scripts/page_bench.py [--seconds N]
"""

from __future__ import annotations

import argparse
import sys
import threading
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))
from harness import Config, Daemon, MiB, Pool, Volume  # noqa: E402
from playwright.sync_api import Page, sync_playwright  # noqa: E402

VOLUMES = 1000
CLIENTS = 4
LUNS = 256  # the tools address no more of them

#: Counts the time between frames, and the main thread's tasks of more than 50 ms.
OBSERVE = """
window.frames_ = []; window.tasks_ = [];
new PerformanceObserver(l => l.getEntries().forEach(e => tasks_.push(e.duration))).observe({entryTypes: ['longtask']});
let last = performance.now();
(function frame(now) { frames_.push(now - last); last = now; requestAnimationFrame(frame); })(last);
"""


def heap(page: Page) -> float:
    """Return the script's live memory in MiB."""
    cdp = page.context.new_cdp_session(page)
    cdp.send("Performance.enable")
    cdp.send("HeapProfiler.collectGarbage")
    metrics = {m["name"]: m["value"] for m in cdp.send("Performance.getMetrics")["metrics"]}
    cdp.detach()
    return metrics["JSHeapUsedSize"] / MiB


def watch(page: Page, base: str, where: str, seconds: float) -> None:
    """Stay on a page and print how its frames were."""
    page.goto(f"{base}#/{where}")
    page.evaluate("frames_.length = tasks_.length = 0")
    page.wait_for_timeout(seconds * 1000)
    frames = sorted(page.evaluate("frames_"))
    tasks = page.evaluate("tasks_")
    p99 = frames[len(frames) * 99 // 100]
    print(
        f"{where:10} {len(frames):6} frames  median {frames[len(frames) // 2]:5.1f} ms  99 % {p99:5.1f} ms"
        f"  longest {frames[-1]:6.1f} ms  longest task {max(tasks, default=0):5.1f} ms  heap {heap(page):5.1f} MiB"
    )


def main() -> None:
    """Run the array, the offloads and the browser."""
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--seconds", type=float, default=600, help="time to watch, in all")
    opt = p.parse_args()
    volumes = [Volume(f"vol{n:04}", n, size=16 * MiB) for n in range(VOLUMES)]
    config = Config(pools=[Pool("p0")], volumes=volumes, store="memory")
    with Daemon(config, "page-bench") as array, sync_playwright() as pw:
        over = threading.Event()

        def offloads(n: int) -> None:
            lun = n
            while not over.is_set():
                began = time.monotonic()
                # 50 copies of 16 blocks: one command each.
                copy = [f"if=/dev/sg{lun}", f"of=/dev/sg{(lun + 1) % LUNS}", "bs=512", "count=800", "bpt=16"]
                array.sg("sg_xcopy", *copy)
                lun = (lun + CLIENTS) % LUNS
                over.wait(max(0, 1 - (time.monotonic() - began)))

        threads = [threading.Thread(target=offloads, args=(n,)) for n in range(CLIENTS)]
        for t in threads:
            t.start()
        browser = pw.chromium.launch(
            executable_path="/usr/bin/chromium-headless-shell", args=["--headless", "--no-sandbox", "--disable-gpu"]
        )
        try:
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.add_init_script(OBSERVE)
            base = f"http://127.0.0.1:{array.metrics_port}/"
            page.goto(base)
            page.wait_for_selector("#partitions li")
            before = array.metrics().sum("offload_operations_total")
            began = time.monotonic()
            for where in ("overview", "volumes", "overview", "volumes"):
                watch(page, base, where, opt.seconds / 4)
            rate = (array.metrics().sum("offload_operations_total") - before) / (time.monotonic() - began)
            print(f"{VOLUMES} volumes, {rate:.0f} offloads a second")
        finally:
            over.set()
            for t in threads:
                t.join()
            browser.close()
        began = time.monotonic()
        with urllib.request.urlopen(f"{base}api/v1/counters", timeout=10) as r:
            size = len(r.read())
        print(f"one reading of the counters: {1000 * (time.monotonic() - began):.1f} ms, {size} bytes")


if __name__ == "__main__":
    main()
