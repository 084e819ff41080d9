"""What an ordinary stop and start keeps: data, provisioning state, objects, counters."""

from __future__ import annotations

import signal
from pathlib import Path

from arrays import PEER, STANDARD, THIN, noise, read, same, write
from harness import Daemon, MiB, TiB


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    data, part = noise(3 * MiB, seed=1), noise(512 * 16, seed=2)
    with Daemon(STANDARD, "restart") as d:
        write(d, THIN, 100, data, tmp_path)
        d.sg("sg_xcopy", "if=/dev/sg0", "of=/dev/sg1", "bs=512", "skip=100", "seek=7", "count=6144", "bpt=6144")
        d.sg("sg_write_same", "--16", "--lba=200", "--num=1000", "/dev/sg0")
        write(d, THIN, 150, part, tmp_path)
        volumes = d.cli_json("volume", "list")
        before = d.metrics()
        d.stop()
        for crash in (False, True):
            d.start()
            want = data[: 50 * 512] + part + data[66 * 512 : 100 * 512] + bytes(1000 * 512) + data[1100 * 512 :]
            same(read(d, THIN, 100, 6144, tmp_path), want)
            same(read(d, PEER, 7, 6144, tmp_path), data)
            assert [v["name"] for v in d.cli_json("volume", "list")] == [v["name"] for v in volumes]
            after = d.metrics()
            for family in ("cache_admitted_bytes_total", "host_described_bytes_total", "host_transferred_bytes_total"):
                assert after.sum(family) >= before.sum(family) > 0, f"{family} went back"
            d.cli("check")
            (d.kill if crash else d.stop)()
        d.start()
        d.cli("check")
        same(read(d, PEER, 7, 6144, tmp_path), data)


def test_built_in_configuration(tmp_path: Path) -> None:
    """What `make run` starts: several LUNs, a thin one of 1 TiB, and the data of last time."""
    data = noise(1 * MiB, seed=4)
    with Daemon(name="built-in") as d:
        volumes = d.cli_json("volume", "list")
        assert len(d.cli_json("pool", "list")) == 2 and len(volumes) >= 4
        assert any(v["size"] == TiB for v in volumes)
        write(d, 0, 2048, data, tmp_path)
        d.cli("volume", "delete", volumes[1]["name"], "--force")
        d.stop()
        d.start()
        same(read(d, 0, 2048, 2048, tmp_path), data)
        assert len(d.cli_json("volume", "list")) == len(volumes) - 1, "a deleted volume must not come back"


def test_stop_is_quick_and_clean_under_load(tmp_path: Path) -> None:
    from test_kill import TORTURED, Torture

    with Daemon(TORTURED, "stop") as d:
        torture = Torture(d, seed=3)
        try:
            for _ in range(3):
                torture.expect("verified")
                d.stop()
                d.start()
            torture.expect("verified")
            torture.proc.send_signal(signal.SIGTERM)
            torture.expect("done")
            assert torture.proc.wait(180) == 0, torture.trouble()
        finally:
            torture.stop()
