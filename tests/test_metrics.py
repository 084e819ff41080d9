"""What /metrics says, by the judgement of promtool."""

from __future__ import annotations

import urllib.request
from pathlib import Path

from arrays import THIN, noise, write
from harness import Daemon, run


def test_promtool_accepts_it(array: Daemon, tmp_path: Path) -> None:
    write(array, THIN, 0, noise(1 << 20, seed=1), tmp_path)
    array.sg("sg_write_same", "--16", "--lba=0", "--num=8", "/dev/sg0")
    text = array.metrics().text
    r = run(["promtool", "check", "metrics"], stdin=text.encode())
    assert not r.text.strip(), r


def test_openmetrics_on_request(array: Daemon) -> None:
    req = urllib.request.Request(
        f"http://127.0.0.1:{array.metrics_port}/metrics",
        headers={"Accept": "application/openmetrics-text; version=1.0.0"},
    )
    with urllib.request.urlopen(req, timeout=60) as r:
        assert "openmetrics" in r.headers["Content-Type"]
        assert r.read().decode().rstrip().endswith("# EOF")


def test_conservation(array: Daemon, tmp_path: Path) -> None:
    """admitted + recovered = dirty + destaged + overwritten + discarded, by volume and origin."""
    for n in range(8):
        write(array, THIN, n * 512, noise(1 << 19, seed=n), tmp_path)
    array.sg("sg_unmap", "--force", "--lba=100", "--num=1000", "/dev/sg0")
    m = array.metrics()
    parts = ["cache_dirty_bytes"]
    parts += [f"cache_{x}_bytes_total" for x in ("destaged", "overwritten", "discarded")]
    seen = 0
    for labels, admitted in m.find("cache_admitted_bytes_total"):
        key = {k: labels[k] for k in ("pool", "volume", "origin")}
        have = m.sum("cache_admitted_bytes_total", **key) + m.sum("cache_recovered_bytes_total", **key)
        assert have == sum(m.sum(p, **key) for p in parts), key
        seen += int(admitted > 0)
    assert seen
