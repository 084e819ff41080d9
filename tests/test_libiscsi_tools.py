"""libiscsi's own small tools: discovery, INQUIRY, READ CAPACITY, logins that must fail."""

from __future__ import annotations

from collections.abc import Callable

from arrays import NATIVE_4K, STANDARD, THIN
from harness import TARGET, Config, Daemon, Volume, run

Start = Callable[[Config], Daemon]


def test_ls_shows_every_lun(array: Daemon) -> None:
    out = run(["iscsi-ls", "-s", array.portal()]).stdout
    assert f"Target:{TARGET} Portal:127.0.0.1:{array.port}" in out
    luns = [line for line in out.splitlines() if line.startswith("Lun:")]
    assert [int(line.split()[0].removeprefix("Lun:")) for line in luns] == [v.lun for v in STANDARD.volumes]
    assert all("DIRECT_ACCESS" in line for line in luns)


def test_inquiry(array: Daemon) -> None:
    standard = run(["iscsi-inq", array.url(THIN)]).stdout
    assert "DIRECT_ACCESS" in standard
    pages = run(["iscsi-inq", "-e", "1", "-c", "0", array.url(THIN)]).stdout
    for name in ("UNIT_SERIAL_NUMBER", "DEVICE_IDENTIFICATION", "BLOCK_LIMITS", "LOGICAL_BLOCK_PROVISIONING"):
        assert name in pages


def test_readcapacity(array: Daemon) -> None:
    out = run(["iscsi-readcapacity16", array.url(THIN)]).stdout
    assert "RETURNED LOGICAL BLOCK ADDRESS:524287" in out
    assert "LOGICAL BLOCK LENGTH IN BYTES:512" in out
    assert "LOGICAL BLOCKS PER PHYSICAL BLOCK EXPONENT:3" in out
    assert "LBPME:1 LBPRZ:1" in out
    assert run(["iscsi-readcapacity16", "-s", array.url(THIN)]).stdout.strip() == str(256 << 20)
    assert "LOGICAL BLOCK LENGTH IN BYTES:4096" in run(["iscsi-readcapacity16", array.url(NATIVE_4K)]).stdout


def test_chap(new_array: Start) -> None:
    good = ("alice", "correct-horse-battery")
    array = new_array(Config(chap=good))
    assert run(["iscsi-readcapacity16", "-s", array.url(0, good)]).stdout.strip() == str(256 << 20)
    for bad in (None, ("alice", "wrong-horse-battery"), ("bob", good[1])):
        r = run(["iscsi-readcapacity16", "-s", array.url(0, bad)], expect=None)
        assert r.returncode not in (0, None), r
        assert str(256 << 20) not in r.stdout, r
    # A refused login must not harm the next one.
    run(["iscsi-readcapacity16", "-s", array.url(0, good)])


def test_unknown_target_and_lun(array: Daemon) -> None:
    for url in (array.url(0).replace(TARGET, TARGET + ".other"), array.url(77)):
        r = run(["iscsi-readcapacity16", url], expect=None)
        assert r.returncode not in (0, None), r


def test_masking_by_initiator(new_array: Start) -> None:
    one, two = "iqn.2026-01.io.example:one", "iqn.2026-01.io.example:two"
    array = new_array(
        Config(
            volumes=[
                Volume("a", 0, initiators=[one]),
                Volume("b", 1, initiators=[two]),
                Volume("c", 2, initiators=[one]),
            ]
        )
    )

    def luns(initiator: str) -> list[int]:
        out = run(["iscsi-ls", "-s", "-i", initiator, array.portal()], expect=None).stdout
        return [int(line.split()[0].removeprefix("Lun:")) for line in out.splitlines() if line.startswith("Lun:")]

    assert luns(one) == [0, 2]
    assert luns(two) == [1]
    assert luns("iqn.2026-01.io.example:three") == []


def test_allow_list(new_array: Start) -> None:
    friend = "iqn.2026-01.io.example:friend"
    array = new_array(Config(allow=[friend]))
    run(["iscsi-readcapacity16", "-i", friend, array.url(0)])
    r = run(["iscsi-readcapacity16", "-i", friend + "x", array.url(0)], expect=None)
    assert r.returncode not in (0, None), r
