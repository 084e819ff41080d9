"""Traces against a LUN: replay sends what the trace says, and nothing without leave."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from harness import REPO, Config, Daemon, MiB, Volume, binary, run

TRACES = REPO / "testdata" / "traces"
REQUESTS = 200


def replay(*args: object, expect: int | None = 0) -> dict:
    r = run([binary(), "replay", *args, "--json"], expect=expect)
    return json.loads(r.stdout)


@pytest.mark.parametrize("chap", [None, ("bob", "a secret of 16 bytes")])
def test_lun(new_array: Callable[[Config], Daemon], chap: tuple[str, str] | None) -> None:
    array = new_array(
        Config(volumes=[Volume("v", 0, size=256 * MiB), Volume("n", 300, size=256 * MiB, block_size=4096)], chap=chap)
    )
    for lun, block in ((0, 512), (300, 4096)):
        url = array.url(lun)
        if chap:
            secret = array.dir / f"secret{lun}"
            secret.write_text(chap[1] + "\n")
            secret.chmod(0o600)
            url = url.replace("//", f"//{chap[0]}@") + f"?secret_file={secret}"
        name = {0: "v", 300: "n"}[lun]
        r = run([binary(), "replay", TRACES / "sample.vscsi.zst", "--target", url], expect=1)
        assert "allow it with --yes" in r.stderr
        assert array.metrics().sum("host_transferred_bytes_total", volume=name, direction="write") == 0, (
            "it wrote without leave"
        )

        got = replay(TRACES / "sample.vscsi.zst", "--target", url, "--read-only", "--depth", 4)
        reads = next(k for k in got["latencies"] if k["kind"] == "read")
        assert reads["count"] + got["skipped_writes"] == REQUESTS
        assert "secret" not in json.dumps(got)

        got = replay(TRACES / "sample.vscsi.zst", "--target", url, "--yes", "--depth", 1)
        kinds = {k["kind"]: k for k in got["latencies"]}
        assert kinds["read"]["count"] + kinds["write"]["count"] == REQUESTS
        assert got["target_bytes"] == 256 * MiB and got["failed_requests"] == 0
        assert 0 < kinds["write"]["percentiles_us"]["50"] <= kinds["write"]["max_us"]
        assert (
            array.metrics().sum("host_transferred_bytes_total", volume=name, direction="write")
            == kinds["write"]["bytes"]
        )
        if block == 512:
            check_contents(array.url(lun, chap), array.dir / "replay.img")


def test_secrets_of_a_login(new_array: Callable[[Config], Daemon], monkeypatch: pytest.MonkeyPatch) -> None:
    """A LUN with CHAP is logged in to with the environment of libiscsi's tools, and with a secret in the address."""
    user, secret = "bob", "a secret of 16 bytes"
    array = new_array(Config(volumes=[Volume("v", 0, size=256 * MiB)], chap=(user, secret)))
    trace = [binary(), "replay", TRACES / "sample.vscsi.zst", "--read-only", "--target"]
    r = run([*trace, array.url()], expect=1)
    assert "login status 0201" in r.stderr
    r = run([*trace, array.url(0, (user, secret))])
    assert "warning: the list of processes shows the secret" in r.stderr
    assert secret not in r.stdout + r.stderr
    monkeypatch.setenv("LIBISCSI_CHAP_USERNAME", user)
    monkeypatch.setenv("LIBISCSI_CHAP_PASSWORD", secret)
    r = run([*trace, array.url()])
    assert r.stderr == ""
    monkeypatch.setenv("LIBISCSI_CHAP_PASSWORD", "another secret of bytes")
    r = run([*trace, array.url()], expect=1)
    assert "another" not in r.stdout + r.stderr


def check_contents(url: str, path: Path) -> None:
    """Each sector that the trace writes says where it is; the others are zeros."""
    written = set()
    for record in struct.iter_unpack("<IIIHHQQ", (TRACES / "sample.vscsi").read_bytes()):
        _, length, _, cmd, _, lbn, _ = record
        if cmd == 0x2A:
            written.update(range(lbn, lbn + length // 512))
    image = run(["qemu-img", "dd", "-f", "raw", "-O", "raw", "bs=1M", f"if={url}", f"of={path}"])
    data = path.read_bytes()
    path.unlink()
    assert len(data) == 256 * MiB, image
    for sector in range(len(data) // 512):
        place = struct.unpack_from("<Q", data, sector * 512)[0]
        assert place == (sector * 512 if sector in written else 0), sector


def test_own_timing(new_array: Callable[[Config], Daemon]) -> None:
    array = new_array(Config())
    got = replay(TRACES / "sample.csv.gz", "--target", array.url(0), "--read-only", "--speed", 10)
    assert got["seconds"] >= got["nanoseconds"] / 1e9 / 10
