"""The live page in a Chromium, as the tests look at it: what a person sees, and what would keep him from it."""

from __future__ import annotations

import math
import os
import re
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import REPO, Daemon, MiB, ToolError
from later import Later

if TYPE_CHECKING:
    from playwright.sync_api import Browser, ConsoleMessage, Page

#: The Chromium that draws no windows: it takes two thirds of the processor time of a whole one without a screen, and
#: needs 48 Debian packages less.
CHROMIUM = "/usr/bin/chromium-headless-shell"
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-dev-shm-usage"]
WEB = REPO / "web"
SIZE = 32 * MiB
#: How long a browser may take for anything on a busy machine, in ms.
PATIENCE = 120_000
DESK, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}
THEMES = ("light", "dark")

_playwright = Later("playwright.sync_api")


def expect(actual: Any) -> Any:
    """Return playwright's expectations of a page or a part of it, which have two minutes to come true."""
    _playwright.expect.set_options(timeout=PATIENCE)
    return _playwright.expect(actual)


#: Runs axe without the rules that find nothing worse than "moderate", by what they say of themselves: a quarter of its
#: time, for what obstacles() leaves out.
AXE = """() => {
    const lesser = axe._audit.rules.filter((r) => r.impact === "minor" || r.impact === "moderate");
    const rules = Object.fromEntries(lesser.map((r) => [r.id, {enabled: false}]));
    return axe.run(document, {resultTypes: ["violations"], rules}).then((r) => r.violations);
}"""


def obstacles(page: Page, axe: str) -> list[str]:
    """Return what is serious or critical in what the page shows now."""
    if not page.evaluate("() => 'axe' in window"):
        page.evaluate(axe)  # as a debugger does: the page's policy allows no such script
    found = page.evaluate(AXE)
    return [
        f"{v['id']} ({v['impact']}): {v['help']}: {n['html'][:160]}"
        for v in found
        if v["impact"] in ("serious", "critical")
        for n in v["nodes"][:3]
    ]


class Viewer:
    """A page of its own that fails the test on any error and any request that leaves the daemon."""

    def __init__(self, browser: Browser, daemon: Daemon, axe: str) -> None:
        self.use(daemon)
        self.axe = axe
        self.context = browser.new_context(viewport=DESK)
        self.context.set_default_timeout(PATIENCE)
        self.page: Page = self.context.new_page()
        self.allowed: list[str] = []
        self.errors: list[str] = []
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda e: self.errors.append(str(e)))
        self.page.on("request", lambda r: r.url.startswith((self.base, "data:")) or self.errors.append(r.url))

    def use(self, daemon: Daemon) -> None:
        """Look at this daemon from now on."""
        self.base = f"http://127.0.0.1:{daemon.metrics_port}/"
        self.token = (daemon.data / "admin.token").read_text().strip()

    def _said(self, m: ConsoleMessage) -> None:
        if m.type in ("error", "warning") and not any(a in m.text for a in self.allowed):
            self.errors.append(m.text)

    def go(self, page: str) -> Page:
        """Open one of the pages."""
        self.page.goto(f"{self.base}#/{page}")
        return self.page

    def theme(self, name: str) -> None:
        """Change the colours; dialogs stay open."""
        self.page.evaluate(
            "t => { document.documentElement.dataset.theme = t; document.dispatchEvent(new CustomEvent('theme')); }",
            name,
        )

    def shot(self, name: str) -> None:
        """Look at a state of the page on a desk and on a phone, in light and dark.

        Nothing keeps people out, and nothing is wider than the screen or than its table. ARRAYSIM_SCREENSHOTS=folder
        keeps the pictures.
        """
        folder = os.environ.get("ARRAYSIM_SCREENSHOTS")
        before = self.page.viewport_size
        for prefix, size in (("", DESK), ("phone-", PHONE)):
            self.page.set_viewport_size(size)
            # Charts follow a moment later.
            self.page.wait_for_function("w => document.documentElement.scrollWidth <= w", arg=size["width"])
            hidden = self.page.evaluate(HIDDEN)
            assert hidden == [], (name, size, hidden)
            for theme in THEMES:
                self.theme(theme)
                assert obstacles(self.page, self.axe) == [], (name, size, theme)
                if folder:
                    self.page.screenshot(path=Path(folder) / f"{prefix}{name}-{theme}.png", full_page=True)
        self.page.set_viewport_size(before or DESK)
        self.theme("auto")

    def unlock(self) -> None:
        """Give the token when the dialog asks for it."""
        self.page.get_by_role("textbox", name="Token").fill(self.token)
        self.page.get_by_role("button", name="Unlock").click()

    def submit(self, verb: str) -> None:
        """Send the dialog and wait until it has gone."""
        dialog = self.page.get_by_role("dialog")
        dialog.get_by_role("button", name=verb).click()
        expect(dialog).to_have_count(0)


#: What has to be moved sideways before all of it can be seen: its name, its width and what is shown of that.
HIDDEN = """() => [...document.querySelectorAll("nav, .scroll")].filter(e => e.scrollWidth > e.clientWidth + 1)
    .map(e => [e.getAttribute("aria-label"), e.scrollWidth, e.clientWidth])"""

#: Linear RGB as people without one kind of cones see it (Machado, Oliveira and Fernandes, 2009).
CONES = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "deutan": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
}


@dataclass
class Colour:
    """A colour as linear RGB, each from 0 to 1."""

    rgb: tuple[float, ...]

    @classmethod
    def named(cls, page: Page, name: str) -> Colour:
        """Return what a custom property of the page's style sheet is in the theme of now."""
        text = page.evaluate(
            """name => {
                const probe = document.createElement("i");
                probe.style.color = `var(--${name})`;
                document.body.append(probe);
                const colour = getComputedStyle(probe).color;
                probe.remove();
                return colour;
            }""",
            name,
        )
        parts = [int(n) / 255 for n in re.findall(r"\d+", text)]
        return cls(tuple(c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts))

    @classmethod
    def all(cls, page: Page) -> dict[str, Colour]:
        """Return what lines may be drawn in: roles and objects."""
        names = page.evaluate(
            """() => [...document.styleSheets].flatMap((s) => [...s.cssRules])
                .filter((r) => r.selectorText === ":root").flatMap((r) => [...r.style])"""
        )
        drawn = [n[2:] for n in names if re.match("--(object-[0-9]+|undercover|hosts|read|cached|neutral)$", n)]
        return {n: cls.named(page, n) for n in drawn}

    def contrast(self, other: Colour) -> float:
        """Return the contrast of WCAG 2, which asks for 3 where a line has to be seen."""
        a, b = (0.2126 * c.rgb[0] + 0.7152 * c.rgb[1] + 0.0722 * c.rgb[2] + 0.05 for c in (self, other))
        return max(a, b) / min(a, b)

    def lab(self, cones: str) -> tuple[float, float, float]:
        """Return it in Oklab, in which equal distances look equal."""
        r, g, b = (min(1, max(0, sum(m * c for m, c in zip(row, self.rgb, strict=True)))) for row in CONES[cones])
        x = (0.41222147 * r + 0.53633254 * g + 0.05144599 * b) ** (1 / 3)
        y = (0.21190350 * r + 0.68069955 * g + 0.10739696 * b) ** (1 / 3)
        z = (0.08830246 * r + 0.28171884 * g + 0.62997870 * b) ** (1 / 3)
        return (
            0.21045426 * x + 0.79361779 * y - 0.00407205 * z,
            1.97799850 * x - 2.42859221 * y + 0.45059371 * z,
            0.02590404 * x + 0.78277177 * y - 0.80867577 * z,
        )

    def distance(self, other: Colour, cones: str = "all") -> float:
        """Return how far two colours are from each other; black and white have 1."""
        return math.dist(self.lab(cones), other.lab(cones))


class Storm:
    """Clones LUN 0 to LUN 1 by EXTENDED COPY, again and again, until the block ends; a host reads LUN 2 meanwhile."""

    def __init__(self, daemon: Daemon) -> None:
        self.daemon = daemon
        self.over = threading.Event()
        self.failure: ToolError | None = None
        self.threads = [threading.Thread(target=t) for t in (self._run, self._read)]

    def _run(self) -> None:
        blocks = SIZE // 512
        try:
            while not self.over.is_set():
                self.daemon.sg(
                    "sg_xcopy", "if=/dev/sg0", "of=/dev/sg1", "bs=512", f"count={blocks}", "bpt=16384", timeout=120
                )
        except ToolError as e:
            self.failure = e

    def _read(self) -> None:
        try:
            while not self.over.is_set():
                self.daemon.sg("sg_dd", "if=/dev/sg2", "of=/dev/null", "bs=512", "bpt=8", "count=2048", timeout=120)
        except ToolError as e:
            self.failure = e

    def __enter__(self) -> Storm:
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.over.set()
        for t in self.threads:
            t.join()
        if self.failure and exc[0] is None:
            raise self.failure
