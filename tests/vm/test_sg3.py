"""Every program of sg3_utils on a disk of the array, through the kernel's sg driver, and ddpt's copies.

PROGRAMS has a row for each that sends commands which a disk may have; what the array has not is expected to be
refused as an unknown operation code, or service action. Both doors answer the same. NOT_FOR_DISKS has the rest. A
program that is in neither fails the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import doors
import pytest
from arrays import same
from doors import Door
from guest import Initiator
from harness import Daemon, MiB, run
from load import content, fill

# Exit codes of sg3_utils (sg3_utils(8), EXIT STATUS).
OK, ILLEGAL, NO_OPCODE, MISCOMPARE, CONFLICT = 0, 5, 9, 14, 24

#: program -> runs of it: arguments, exit code, what it says. {sg} and {sd} are "thin", {sg2} is "peer", {small} is
#: "thick", {block} and {blocks} are files of 512 and of 4096 bytes, {out} is a file to write to.
PROGRAMS: dict[str, list[tuple[str, int, str]]] = {
    "scsi_logging_level": [("--get", OK, "logging level")],
    "scsi_mandat": [("{sg}", OK, "bad errors: 0")],
    "scsi_readcap": [("{sg}", OK, "512")],
    "scsi_ready": [("{sg}", OK, "ready")],
    "scsi_start": [("{sg}", OK, "")],
    "scsi_stop": [
        ("{sg}", OK, ""),
    ],
    "scsi_temperature": [("{sg}", OK, "")],
    "sg_bg_ctl": [("{sg}", ILLEGAL, "")],
    "sg_compare_and_write": [
        ("--in={two} --lba=64 --num=1 --xferlen=1024 {sg}", OK, ""),
        ("--in={two} --lba=64 --num=1 --xferlen=1024 {sg}", MISCOMPARE, ""),
    ],
    "sg_copy_results": [("--params {sg}", OK, "Maximum segment length")],
    "sg_dd": [
        ("if={sg} of={out} bs=512 count=8", OK, "8\\+0 records in"),
        ("if={sg} of={sg2} bs=512 count=256 bpt=64", OK, "256\\+0 records out"),
    ],
    "sg_decode_sense": [("70 00 05 00 00 00 00 0a 00 00 00 00 24 00", OK, "Invalid field in cdb")],
    "sg_format": [("{sg}", OK, "512"), ("--format --quick --wait {small}", OK, "")],
    "sg_get_elem_status": [("{sg}", ILLEGAL, "")],
    "sg_get_lba_status": [("--lba=0 {sg}", OK, "mapped|deallocated")],
    "sg_ident": [("{sg}", OK, "")],
    "sg_inq": [("{sg}", OK, "ARRAYSIM"), ("--page=0xb0 {sg}", OK, "Block limits")],
    "sg_logs": [("--all {sg}", OK, "Logical block provisioning"), ("--page=0xd {sg}", OK, "[Tt]emperature")],
    "sg_luns": [("{sg}", OK, "0000000000000000")],
    "sg_map": [("-i", OK, "ARRAYSIM")],
    "sg_map26": [("{sd}", OK, "sg")],
    "sg_modes": [("--all {sg}", OK, "Caching"), ("--six --page=0xa {sg}", OK, "Control")],
    "sg_opcodes": [("{sg}", OK, "Write same\\(16\\)"), ("--tmf {sg}", OK, "Abort task")],
    "sg_persist": [
        ("--in --report-capabilities {sg}", OK, "Write Exclusive"),
        ("--out --register --param-sark=0x1 {sg}", OK, ""),
        ("--out --reserve --param-rk=0x1 --prout-type=3 {sg}", OK, ""),
        ("--out --reserve --param-rk=0x2 --prout-type=3 {sg}", CONFLICT, ""),
        ("--in --read-full-status {sg}", OK, "Key=0x1"),
        ("--out --clear --param-rk=0x1 {sg}", OK, ""),
    ],
    "sg_prevent": [("--prevent=0 {sg}", OK, "")],
    "sg_raw": [("--request=36 {sg} 12 00 00 00 24 00", OK, "ARRAYSIM"), ("{sg} c1 00 00 00 00 00", NO_OPCODE, "")],
    "sg_rbuf": [("{sg}", NO_OPCODE, "")],
    "sg_read": [("if={sg} bs=512 count=64 bpt=8", OK, "")],
    "sg_read_buffer": [("{sg}", NO_OPCODE, "")],
    "sg_read_long": [("--lba=0 {sg}", NO_OPCODE, "")],
    "sg_readcap": [("--16 {sg}", OK, "lbpme=1, lbprz=1")],
    "sg_reassign": [("--grown {sg}", OK, "grown defect list: 0"), ("--address=1 {sg}", NO_OPCODE, "")],
    "sg_referrals": [("{sg}", ILLEGAL, "")],
    "sg_rep_pip": [("{sg}", ILLEGAL, "")],
    "sg_requests": [("{sg}", OK, "")],
    "sg_reset": [("--device {sg}", OK, "")],
    "sg_rtpg": [("--decode {sg}", OK, "active/optimized")],
    "sg_sanitize": [("--block --quick --wait {small}", OK, ""), ("--crypto --quick --wait {small}", OK, "")],
    "sg_scan": [("-i", OK, "ARRAYSIM")],
    "sg_seek": [("--pre-fetch --10 --lba=0 --num-blocks=64 {sg}", OK, ""), ("--lba=0 {sg}", NO_OPCODE, "")],
    "sg_senddiag": [("--test {sg}", OK, "")],
    "sg_start": [("--start {sg}", OK, "")],
    "sg_stpg": [
        ("--state=an --tp=1 {sg}", OK, ""),
        ("--state=u --tp=1 {sg}", OK, "Illegal request"),  # not the last one; it exits with 0 all the same
        ("--state=ao --tp=1 {sg}", OK, ""),
    ],
    "sg_stream_ctl": [("--open {sg}", ILLEGAL, "")],
    "sg_sync": [("{sg}", OK, ""), ("--16 --lba=8 --count=8 {sg}", OK, "")],
    "sg_test_rwbuf": [("--size=1024 {sg}", NO_OPCODE, "")],
    "sg_timestamp": [("{sg}", OK, r"\d+")],
    "sg_turs": [("--num=8 {sg}", OK, "")],
    "sg_unmap": [("--force --lba=8 --num=64 {sg}", OK, "")],
    "sg_verify": [
        ("--lba=0 --count=128 {sg}", OK, ""),
        ("--lba=0 --count=8 --ebytchk=1 --in={blocks} --ndo=4096 {sg}", OK, ""),
        ("--lba=0 --count=8 --ebytchk=1 --in={zeros} --ndo=4096 {sg}", MISCOMPARE, ""),
    ],
    "sg_vpd": [
        ("{sg}", OK, "Block limits"),
        ("--page=tpc {sg}", OK, "Third party copy"),
        ("--page=lbpv {sg}", OK, "LBPU"),
    ],
    "sg_wr_mode": [("--page=0xa {sg}", OK, "[Mm]ode page")],
    "sg_write_buffer": [("--mode=data --in={block} --length=512 {sg}", NO_OPCODE, "")],
    "sg_write_long": [("--lba=0 --wr_uncor {sg}", NO_OPCODE, "")],
    "sg_write_same": [
        ("--10 --in={block} --lba=128 --num=8 {sg}", OK, ""),
        ("--16 --unmap --lba=128 --num=8 {sg}", OK, ""),
        ("--32 --ndob --lba=128 --num=8 {sg}", OK, ""),
        ("--16 --unmap --anchor --lba=128 --num=8 {sg}", OK, ""),
    ],
    "sg_write_verify": [("--lba=256 --num=8 --in={blocks} --bytchk=1 {sg}", OK, "")],
    "sg_write_x": [
        ("--normal --16 --in={blocks} --lba=512 --num=8 --bs=512 {sg}", OK, ""),
        ("--atomic=0 --16 --in={blocks} --lba=520 --num=8 --bs=512 {sg}", OK, ""),
        ("--same=0 --16 --in={block} --lba=528 --num=8 --bs=512 {sg}", OK, ""),
        ("--stream=1 --16 --in={blocks} --lba=536 --num=8 --bs=512 {sg}", NO_OPCODE, ""),
    ],
    "sg_xcopy": [("if={sg} of={sg2} bs=512 count=2048", OK, "2048 blocks, 1 command")],
    "sginfo": [("-a {sg}", OK, "ARRAYSIM")],
    "sgm_dd": [("if={sg} of={out} bs=512 count=8", OK, "8\\+0 records in")],
    "sgp_dd": [("if={sg} of={out} bs=512 count=64 bpt=8 thr=4", OK, "64\\+0 records in")],
}

#: What the others are for; commands of these kinds of device, or of one vendor, or none at all.
NOT_FOR_DISKS = {
    "rescan-scsi-bus.sh": "rescans busses, and takes disks away that do not answer",
    "scsi_satl": "ATA disks behind a translator",
    "sg_emc_trespass": "one vendor's",
    "sg_get_config": "CD and DVD",
    "sg_rdac": "one vendor's",
    "sg_read_attr": "tapes",
    "sg_read_block_limits": "tapes",
    "sg_rep_zones": "zoned disks",
    "sg_reset_wp": "zoned disks",
    "sg_rmsn": "media serial numbers of tapes",
    "sg_safte": "enclosures",
    "sg_sat_identify": "ATA disks",
    "sg_sat_phy_event": "ATA disks",
    "sg_sat_read_gplog": "ATA disks",
    "sg_sat_set_features": "ATA disks",
    "sg_ses": "enclosures",
    "sg_ses_microcode": "enclosures",
    "sg_zone": "zoned disks",
}


@pytest.fixture(scope="module")
def kernel_array(lio: None) -> Iterator[Daemon]:
    """The array of the kernel's door."""
    with doors.kernel_array() as d:
        yield d


@pytest.fixture(scope="module", params=["portal", pytest.param("tcmu-iscsi", marks=pytest.mark.slow)])
def door(request: pytest.FixtureRequest, initiator: Initiator) -> Iterator[Door]:
    """The array behind the portal, and behind the kernel's target."""
    if request.param == "portal":
        opened = doors.portal(initiator)
    else:
        opened = doors.kernel_iscsi(request.getfixturevalue("kernel_array"), initiator)
    with opened as d:
        yield d


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Files by their names in PROGRAMS."""
    folder = tmp_path_factory.mktemp("sg3")
    made = {"block": b"\x11" * 512, "blocks": bytes(range(256)) * 16, "zeros": bytes(4096)}
    made["two"] = bytes(512) + b"\x22" * 512
    for name, data in made.items():
        (folder / name).write_bytes(data)
    return {name: folder / name for name in [*made, "out"]}


def test_no_program_is_forgotten() -> None:
    listed = run(["dpkg", "-L", "sg3-utils"]).stdout.split()
    programs = {Path(p).name for p in listed if "/bin/" in p}
    assert len(programs) > 60
    assert programs == set(PROGRAMS) | set(NOT_FOR_DISKS)


@pytest.mark.kernel_says(r"\breset\b|Invalid|unsupported")
@pytest.mark.parametrize("program", PROGRAMS)
def test_program(door: Door, files: dict[str, Path], program: str) -> None:
    thin, peer = door["thin"], door["peer"]
    if program in ("sg_compare_and_write", "sg_verify"):
        blank = bytes(64 * 512)
        files["out"].write_bytes(files["blocks"].read_bytes() + blank)
        run(["dd", f"if={files['out']}", f"of={thin.sd}", "bs=36864", "count=1", "oflag=direct", "status=none"])
    doors.settle([thin, peer])  # programs before this one may have left unit attention conditions
    wrong = []
    for args, code, says in PROGRAMS[program]:
        argv = [a.format(sg=thin.sg, sd=thin.sd, sg2=peer.sg, small=door["thick"].sg, **files) for a in args.split()]
        r = run([program, *argv], expect=None)
        if r.returncode != code or not re.search(says, r.text):
            wrong.append(f"expected exit code {code} and {says!r}:\n{r}")
    assert not wrong, "\n".join(wrong)


# ddpt


def test_ddpt_xcopy(door: Door) -> None:
    data = fill(door["thin"].sd, 4 * MiB, 21)
    r = run(["ddpt", f"if={door['thin'].sg}", f"of={door['peer'].sg}", "bs=512", f"count={4 * MiB // 512}", "--xcopy"])
    assert "records" in r.text, r
    same(content(door["peer"].sd, 4 * MiB), data)


def test_ddptctl_odx(door: Door, tmp_path: Path) -> None:
    """POPULATE TOKEN and WRITE USING TOKEN. ddptctl 0.97 writes the ranges one byte early: LBA n arrives as 256 n."""
    thin, peer = door["thin"], door["peer"]
    data = fill(thin.sd, 1 * MiB, 22)
    fill(peer.sd, 1 * MiB, 23)
    token = tmp_path / "token"
    run(["ddptctl", "--pt=0,1", f"--rtf={token}", thin.sg])
    assert token.stat().st_size >= 512
    run(["ddptctl", "--wut=0,1", f"--rtf={token}", peer.sg])
    same(content(peer.sd, MiB)[: 256 * 512], data[: 256 * 512])
