"""sg_persist between two initiators, each an I_T nexus that lasts over commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import Config, Daemon, Result, Volume

RESERVATION_CONFLICT = 24
A = {"initiator": "iqn.2026-01.io.example:a", "isid": "0x11"}
B = {"initiator": "iqn.2026-01.io.example:b", "isid": "0x22"}
KEY_A, KEY_B = "0xaaaa", "0xbbbb"


def out(array: Daemon, who: dict[str, str], *args: str, **kw: Any) -> Result:
    return array.sg("sg_persist", "--out", *args, "/dev/sg0", **who, **kw)


def keys(array: Daemon) -> list[str]:
    text = array.sg("sg_persist", "--in", "--read-keys", "/dev/sg0", **A).stdout
    return re.findall(r"^ +(0x[0-9a-f]+)$", text, re.M)


def holder(array: Daemon) -> str | None:
    text = array.sg("sg_persist", "--in", "--read-reservation", "/dev/sg0", **A).stdout
    m = re.search(r"Key=(0x[0-9a-f]+)", text)
    return m[1] if m else None


def write(array: Daemon, who: dict[str, str], **kw: Any) -> Result:
    return array.sg("sg_write_same", "--16", "--lba=0", "--num=8", "/dev/sg0", **who, **kw)


def read(array: Daemon, who: dict[str, str], **kw: Any) -> Result:
    cdb = "88 00 00 00 00 00 00 00 00 00 00 00 00 01 00 00".split()
    return array.sg("sg_raw", "--request=512", "/dev/sg0", *cdb, **who, **kw)


@pytest.fixture(autouse=True)
def registered(array: Daemon) -> Iterator[None]:
    """Both initiators are registered at the start; nothing is left at the end."""
    out(array, A, "--register-ignore", f"--param-sark={KEY_A}")
    out(array, B, "--register-ignore", f"--param-sark={KEY_B}")
    assert sorted(keys(array)) == [KEY_A, KEY_B]
    yield
    out(array, A, "--register-ignore", "--param-sark=0xaaaa")
    array.sg("sg_turs", "--num=3", "/dev/sg0", expect=None, **A)
    out(array, A, "--clear", "--param-rk=0xaaaa")
    assert keys(array) == []


def test_write_exclusive(array: Daemon) -> None:
    out(array, A, "--reserve", f"--param-rk={KEY_A}", "--prout-type=1")
    assert holder(array) == KEY_A
    write(array, A)
    write(array, B, expect=RESERVATION_CONFLICT)
    read(array, B)
    out(array, B, "--reserve", f"--param-rk={KEY_B}", "--prout-type=1", expect=RESERVATION_CONFLICT)
    out(array, A, "--release", f"--param-rk={KEY_A}", "--prout-type=1")
    assert holder(array) is None
    write(array, B)


def test_exclusive_access(array: Daemon) -> None:
    out(array, A, "--reserve", f"--param-rk={KEY_A}", "--prout-type=3")
    read(array, A)
    read(array, B, expect=RESERVATION_CONFLICT)
    write(array, B, expect=RESERVATION_CONFLICT)


def test_registrants_only(array: Daemon) -> None:
    out(array, A, "--reserve", f"--param-rk={KEY_A}", "--prout-type=5")
    write(array, B)
    stranger = {"initiator": "iqn.2026-01.io.example:c", "isid": "0x33"}
    write(array, stranger, expect=RESERVATION_CONFLICT)
    read(array, stranger)


def test_preempt(array: Daemon) -> None:
    out(array, A, "--reserve", f"--param-rk={KEY_A}", "--prout-type=1")
    out(array, B, "--preempt", f"--param-rk={KEY_B}", f"--param-sark={KEY_A}", "--prout-type=1")
    assert holder(array) == KEY_B
    assert keys(array) == [KEY_B]
    write(array, A, expect=RESERVATION_CONFLICT)


def test_wrong_key(array: Daemon) -> None:
    out(array, A, "--reserve", f"--param-rk={KEY_B}", "--prout-type=1", expect=RESERVATION_CONFLICT)
    assert holder(array) is None


def test_clear(array: Daemon) -> None:
    out(array, A, "--reserve", f"--param-rk={KEY_A}", "--prout-type=1")
    out(array, B, "--clear", f"--param-rk={KEY_B}")
    assert keys(array) == [] and holder(array) is None


def test_copy_respects_reservations(array: Daemon, tmp_path: Path) -> None:
    out(array, A, "--reserve", f"--param-rk={KEY_A}", "--prout-type=3")
    r = array.sg("sg_xcopy", "if=/dev/sg1", "of=/dev/sg0", "bs=512", "count=8", "--on_src", **B, expect=None)
    assert r.returncode not in (0, None), r


def full_status(array: Daemon) -> dict[str, str]:
    """Return the initiator port of each key."""
    text = array.sg("sg_persist", "--in", "--read-full-status", "/dev/sg0", **A).stdout
    return dict(re.findall(r"Key=(0x[0-9a-f]+)\n(?:.*\n)*?.*port id: (\S+)", text))


def test_register_and_move(array: Daemon) -> None:
    out(array, A, "--reserve", f"--param-rk={KEY_A}", "--prout-type=3")
    to = full_status(array)[KEY_B]
    move = ["--register-move", f"--param-rk={KEY_A}", "--param-sark=0xcccc", "--relative-target-port=1"]
    out(array, A, *move, f"--transport-id={to}")
    assert holder(array) == "0xcccc"
    assert sorted(keys(array)) == [KEY_A, "0xcccc"]
    write(array, A, expect=RESERVATION_CONFLICT)
    write(array, B)
    out(array, B, "--release", "--param-rk=0xcccc", "--prout-type=3")


def test_preempt_and_abort(array: Daemon) -> None:
    out(array, A, "--reserve", f"--param-rk={KEY_A}", "--prout-type=1")
    out(array, B, "--preempt-abort", f"--param-rk={KEY_B}", f"--param-sark={KEY_A}", "--prout-type=1")
    assert holder(array) == KEY_B and keys(array) == [KEY_B]


def test_all_registrants(array: Daemon) -> None:
    out(array, A, "--reserve", f"--param-rk={KEY_A}", "--prout-type=8")
    write(array, A)
    write(array, B)
    stranger = {"initiator": "iqn.2026-01.io.example:c", "isid": "0x33"}
    read(array, stranger, expect=RESERVATION_CONFLICT)
    out(array, B, "--release", f"--param-rk={KEY_B}", "--prout-type=8")
    read(array, stranger)


@pytest.mark.parametrize("crash", [False, True], ids=["stop", "kill"])
def test_reservation_survives_a_restart(new_array, crash: bool) -> None:  # type: ignore[no-untyped-def]
    """A cluster's fence: another process has registrations and reservation, whatever APTPL is."""
    array = new_array(Config(volumes=[Volume("v", 0), Volume("w", 1)]))
    for who, key in ((A, KEY_A), (B, KEY_B)):
        out(array, who, "--register-ignore", f"--param-sark={key}", "--param-aptpl")
    out(array, A, "--reserve", f"--param-rk={KEY_A}", "--prout-type=3")
    capabilities = array.sg("sg_persist", "--in", "--report-capabilities", "/dev/sg0", **A).stdout
    assert "Persist Through Power Loss Capable(PTPL_C): 1" in capabilities
    assert "Persist Through Power Loss Active(PTPL_A): 1" in capabilities
    (array.kill if crash else array.stop)()
    array.start()
    assert holder(array) == KEY_A
    write(array, B, expect=RESERVATION_CONFLICT)
    out(array, B, "--preempt", f"--param-rk={KEY_B}", f"--param-sark={KEY_A}", "--prout-type=3")
    (array.kill if crash else array.stop)()
    array.start()
    assert holder(array) == KEY_B and keys(array) == [KEY_B]
    write(array, A, expect=RESERVATION_CONFLICT)
    write(array, B)
    # Without APTPL they go with the power, and nothing has lost that.
    out(array, B, "--register", f"--param-rk={KEY_B}", "--param-sark=0xbb")
    (array.kill if crash else array.stop)()
    array.start()
    capabilities = array.sg("sg_persist", "--in", "--report-capabilities", "/dev/sg0", **A).stdout
    assert "Persist Through Power Loss Active(PTPL_A): 0" in capabilities
    assert holder(array) == "0xbb" and keys(array) == ["0xbb"]
    write(array, A, expect=RESERVATION_CONFLICT)
