"""Fixtures: daemons that end with the test, and their logs in the report of a failure."""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from arrays import STANDARD
from harness import REPO, Config, Daemon

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_running: list[Daemon] = []


def _manage(config: Config, name: str) -> Iterator[Daemon]:
    with Daemon(config, name) as d:
        _running.append(d)
        try:
            yield d
        finally:
            _running.remove(d)


def _interrupt(*_: object) -> None:
    """Take the first SIGTERM as Ctrl-C; make sends another one after that to the whole group."""
    signal.signal(signal.SIGTERM, lambda *_: None)  # ignored, it would be in what is started from now on
    raise KeyboardInterrupt


def pytest_configure() -> None:
    """Have SIGTERM end daemons and clients, and remove their folders, as Ctrl-C does."""
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, _interrupt)


@pytest.fixture(scope="module")
def array(request: pytest.FixtureRequest) -> Iterator[Daemon]:
    """The standard array of arrays.py, shared by the tests of a module."""
    yield from _manage(STANDARD, request.module.__name__)


@pytest.fixture
def new_array(request: pytest.FixtureRequest) -> Iterator[Callable[[Config], Daemon]]:
    """A function that starts an array for this test alone."""
    open_: list[Iterator[Daemon]] = []

    def start(config: Config) -> Daemon:
        it = _manage(config, "test")
        daemon = next(it)
        open_.append(it)
        return daemon

    yield start
    for it in reversed(open_):
        next(it, None)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """A Chromium without a screen."""
    from playwright.sync_api import sync_playwright
    from viewing import CHROMIUM, FLAGS, PATIENCE

    with sync_playwright() as p:
        b = p.chromium.launch(executable_path=CHROMIUM, args=FLAGS, timeout=PATIENCE)
        yield b
        b.close()


@pytest.fixture(scope="session")
def web() -> Path:
    """The folder of the page's sources, with the packages that it is built and tested with."""
    done = subprocess.run([REPO / "scripts" / "web.sh", "deps"], capture_output=True)
    if done.returncode != 0:
        pytest.fail(f"scripts/setup.sh installs what the page is tested with, but: {done.stderr.decode()[-300:]}")
    return REPO / "web"


@pytest.fixture(scope="session")
def axe(web: Path) -> str:
    """The source of axe-core, which looks for what keeps people from using a page."""
    return (web / "node_modules" / "axe-core" / "axe.min.js").read_text()


#: Files that take long, the longest first: where processes share the files, none of these is to begin late.
LONGEST = [
    "test_report",
    "test_conformance",
    "test_page",
    "test_page_states",
    "test_sweep",
    "test_demo_command",
    "test_hostcache",
    "test_nodes",
    "test_examples",
    "test_kill",
    "test_demo",
    "test_misuse",
    "test_walk",
    "test_notebook",
    "test_export",
    "test_systemd",
    "test_readme",
    "test_xcopy",
    "test_top",
    "test_page_nodes",
]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what has to be asked for, and bring the long files to the front."""
    for marker in ("proof", "cluster"):
        if marker not in config.option.markexpr:
            left = [item for item in items if item.get_closest_marker(marker)]
            items[:] = [item for item in items if item not in left]
            config.hook.pytest_deselected(items=left)
    place = {name: n for n, name in enumerate(LONGEST)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONGEST)))


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo) -> Iterator[None]:
    """Attach the logs of the daemons to the report of a failure."""
    outcome = yield
    report = outcome.get_result()
    if report.failed:
        for d in _running:
            report.sections.append((f"arraysim log ({d.name})", d.log_tail(20)))


@pytest.fixture(scope="session")
def rootfs() -> Path:
    """A real Debian root file system, as an ext4 image."""
    from harness import run

    return Path(run([REPO / "scripts" / "rootfs.sh"], timeout=900).stdout.split()[-1])
