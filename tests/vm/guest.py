"""What tests in the guest share: the kernel's log, targetcli, the kernel's iSCSI initiator, disks.

Knows the state of one machine, the guest: nothing here is for parallel use.
"""

from __future__ import annotations

import atexit
import os
import re
import select
import shlex
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

from harness import Result, ToolError, run

#: What is written here reaches the host.
RESULTS = Path("/mnt/run/results")

#: True where the tests of this folder can run.
HERE = RESULTS.is_dir()

#: The guest's initiator name, from /etc/iscsi/initiatorname.iscsi.
INITIATOR = "iqn.2026-01.io.arraysim:guest"

#: What LIO and the kernel's iSCSI initiator log when a LUN or the target is reset under load, whatever the backstore:
#: the initiator sends no more data of the writes that it gave up, or sends data that LIO no longer expects; LIO waits
#: for it and then drops the connection. Errors that reach the disk or a file system are other lines.
LIO_RESET = (
    r"Unable to recover from DataOut timeout|Unable to locate ITT|DataO[Uu][Tt]"
    r"|\bconnection\d+:\d+: |\bsession\d+: (?!session recovery timed out)|\bTMR\b|ABORT_TASK"
)

T = TypeVar("T")


class Given(threading.Thread):
    """The time that the machine below has given to this guest since the object was made, in seconds.

    A host that is busy, or stops the guest, takes the processor away for longer than any limit here, and the guest's
    clocks go on meanwhile. A tick of a second that comes late counts as LATE seconds at most, whatever the clocks say.
    """

    TICK, LATE = 1.0, 2.0

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.seconds = 0.0
        self.over = threading.Event()

    def run(self) -> None:
        """Tick until the end."""
        last = time.monotonic()
        while not self.over.wait(self.TICK):
            now = time.monotonic()
            self.seconds, last = self.seconds + min(now - last, self.LATE), now


def wait(what: str, look: Callable[[], T | None], timeout: float = 120, said: object = "") -> T:
    """Return look()'s first true value; ToolError, with what was said before, when there is none in ample time.

    The time is what this guest was given: see Given.
    """
    given = Given()
    given.start()
    try:
        while True:
            began = time.perf_counter()
            if found := look():
                return found
            if given.seconds > timeout:
                raise ToolError(f"no {what} after {timeout:g} s. {said}")
            # A look that starts a program would otherwise keep the guest's processor from what is waited for.
            time.sleep(min(max(0.05, 3 * (time.perf_counter() - began)), 1))
    finally:
        given.over.set()


class KernelLog:
    """What the kernel logged since the object was made."""

    #: What stands for lines that were overwritten before anybody read them: what they said is not known.
    LOST = "(lines lost)"

    #: Lines that no healthy run has: bugs, blocked tasks, lost connections, errors that reach a file system. And gaps.
    TROUBLE = re.compile(
        r"BUG:|WARNING:|Oops|Call Trace|blocked for more than|soft lockup|rcu.*stall|I/O error|lost async page write"
        r"|(EXT4-fs|XFS|JBD2).*(error|[Cc]orrupt|abort|shut ?down|failed)|[Ss]ense Key|conn error|timed? ?out"
        r"|hostbyte=(DID_(?!OK)|0x0*[1-9a-f])"  # names where the kernel has them, as Debian's, and else numbers
        r"|offlin|aborted|ABORT|recovery|recover|\breset\b|unsupported sa|Write same|[Ii]nvalid|[Ii]llegal|not found"
        r"|TARGET_CORE|\bUnable\b|\brefused|\b[Rr]eject|" + re.escape(LOST)
    )

    #: What looks like trouble and is none: a unit attention for a new nexus or after a reset that was asked for,
    #: as a logout removes a disk, two work queues of the initiator's kernel that 6.1 finds an odd pair, and the
    #: words of the ALUA handler, which stays once multipath-tools have loaded it, about each disk that it meets.
    NORMAL = [
        r"Power-on or device reset occurred$",
        r"WQ_MEM_RECLAIM iscsi_ctrl_\S+ .*is flushing !WQ_MEM_RECLAIM",
        r"alua: transition timeout set to \d+ seconds$",
    ]

    #: A warning begins and ends with these; what is said of one of its lines is said of all.
    CUT, END = "cut here ]---", "---[ end trace"

    def __init__(self) -> None:
        self.fd = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK)
        os.lseek(self.fd, 0, os.SEEK_END)
        self.lines: list[str] = []
        self.allowed = list(self.NORMAL)

    def allow(self, pattern: str) -> None:
        """Take lines that match for normal, too."""
        self.allowed.append(pattern)

    def read(self) -> list[str]:
        """Return all lines so far, without levels, "seconds: text"."""
        while True:
            try:
                record = os.read(self.fd, 8192).decode(errors="replace")
            except BlockingIOError:
                return self.lines
            except BrokenPipeError:  # overrun: old records were overwritten
                self.lines.append(self.LOST)
                continue
            head, _, text = record.partition(";")
            self.lines.append(f"{int(head.split(',')[2]) / 1e6:.3f}: {text.splitlines()[0]}")

    def trouble(self) -> list[str]:
        """Return the lines that no healthy run has and that are not allowed."""
        blocks: list[list[str]] = [[]]
        warning = False
        for line in self.read():
            if not warning or self.CUT in line:
                blocks.append([])
            warning = self.CUT in line or (warning and self.END not in line)
            blocks[-1].append(line)
        bad = []
        for block in blocks:
            if not any(re.search(p, line) for p in self.allowed for line in block):
                bad += [line for line in block if self.TROUBLE.search(line)]
        return bad

    def close(self) -> None:
        """Stop reading."""
        os.close(self.fd)


class Targetcli:
    """targetcli in a process that stays: see targetcli_server.py."""

    def __init__(self, env: Mapping[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="targetcli-"))
        for name in ("requests", "replies"):
            os.mkfifo(self.folder / name)
        self.pipes = {name: os.open(self.folder / name, os.O_RDWR) for name in ("requests", "replies")}
        self.proc = subprocess.Popen(
            [sys.executable, Path(__file__).with_name("targetcli_server.py"), self.folder],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            env=env,
        )
        atexit.register(self.proc.kill)

    def run(self, arguments: Sequence[str], stdin: bytes, timeout: float, expect: int | None) -> Result:
        """Do as harness.run does."""
        __tracebackhide__ = True
        files = [self.folder / name for name in ("stdin", "stdout", "stderr")]
        for file, data in zip(files, (stdin, b"", b""), strict=True):
            file.write_bytes(data)
        start = time.monotonic()
        fields = [*map(str, files), *arguments]
        os.write(self.pipes["requests"], b"".join(os.fsencode(f) + b"\0" for f in (str(len(fields)), *fields)))
        ready, _, _ = select.select([self.pipes["replies"]], [], [], timeout)
        code = int(os.read(self.pipes["replies"], 16)) if ready else None
        out, err = (f.read_bytes() for f in files[1:])
        r = Result(shlex.join(["targetcli", *arguments]), code, out, err, time.monotonic() - start)
        if code is None:  # the next call begins anew
            self.proc.kill()
            served.cache_clear()
        if expect is not None and code != expect:
            raise ToolError(f"expected exit code {expect}:\n{r}")
        return r


@cache
def served() -> Targetcli:
    """The targetcli of this guest's tests."""
    return Targetcli()


def targetcli(*commands: str, expect: int | None = 0) -> Result:
    """Run one command of targetcli, or several in one session as a person's script would."""
    __tracebackhide__ = True
    if len(commands) == 1:
        return served().run(commands[0].split(), b"", 120, expect)
    # Fed by a pipe, targetcli goes on after an error and exits with 0 all the same.
    r = served().run([], "\n".join([*commands, "exit", ""]).encode(), 300, expect)
    if expect == 0 and (
        bad := re.search(
            r"(?im)^.*(error|cannot|no such|unknown|unexpected|invalid|not valid|already exists|failed).*$", r.text
        )
    ):
        raise ToolError(f"targetcli said: {bad[0]}\n{r}")
    return r


def remove_target(wwn: str) -> None:
    """Remove a target, as targetcli's delete does, without the seconds that targetcli takes."""
    from rtslib_fb import RTSRoot

    for target in RTSRoot().targets:
        if target.wwn == wwn:
            target.delete()


def clear_targets() -> None:
    """Remove all of LIO's configuration, as targetcli's clearconfig does, without the seconds that targetcli takes."""
    from rtslib_fb import RTSRoot

    RTSRoot().clear_existing(confirm=True)


@dataclass(frozen=True)
class Disk:
    """A SCSI disk of the guest, by its address H:B:T:L."""

    address: str

    @property
    def sysfs(self) -> Path:
        """The device's folder in sysfs."""
        return Path("/sys/bus/scsi/devices") / self.address

    @property
    def lun(self) -> int:
        """The number of the logical unit."""
        return int(self.address.rsplit(":", 1)[1])

    def _node(self, kind: str) -> str | None:
        """Return what programs open, as soon as they can.

        The kernel shows a disk in sysfs before there is a file in /dev, for which it waits for another process of its
        own, and before the disk has a queue. The last thing of a block device is the link "bdi".
        """
        for p in self.sysfs.glob(f"{kind}/*"):
            if Path("/dev", p.name).exists() and (kind != "block" or (p / "bdi").exists()):
                return f"/dev/{p.name}"
        return None

    @property
    def sd(self) -> str:
        """The block device, /dev/sdX."""
        return wait(f"block device of {self.address}", lambda: self._node("block"))

    @property
    def sg(self) -> str:
        """The generic device, /dev/sgN."""
        return wait(f"sg device of {self.address}", lambda: self._node("scsi_generic"))

    @property
    def node(self) -> Path:
        """The block device's folder in sysfs."""
        return self.sysfs / "block" / Path(self.sd).name

    def block(self, name: str) -> str:
        """Return an attribute of the block device."""
        return (self.node / name).read_text().strip()

    def queue(self, name: str) -> str:
        """Return a limit of the block device's queue."""
        return self.block("queue/" + name)

    def scsi_disk(self, name: str) -> str:
        """Return an attribute of the sd driver."""
        return (self.sysfs / "scsi_disk" / self.address / name).read_text().strip()

    def be_patient(self) -> None:
        """Wait until the kernel has probed it; give commands longer than half a minute.

        A busy host may take the guest's processors away for long. The kernel looks for partitions behind the link
        "bdi", and logs each of these reads that fails because the disk has been removed meanwhile. It holds the
        device's lock for as long, and so a rescan waits for it.
        """
        _ = self.sd
        (self.sysfs / "rescan").write_text("1")
        (self.sysfs / "timeout").write_text("180")

    @property
    def size(self) -> int:
        """The size in bytes that the kernel believes in."""
        return 512 * int(self.block("size"))


class Initiator:
    """The kernel's iSCSI initiator and its daemon; a context manager."""

    def __init__(self) -> None:
        self.proc: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Initiator:
        run(["modprobe", "iscsi_tcp"])
        with (RESULTS / "iscsid.log").open("ab") as log:
            # A process group of its own: as it ends, iscsid signals all of its group.
            self.proc = subprocess.Popen(["iscsid", "-f", "-d", "1"], stdout=log, stderr=log, start_new_session=True)
        wait("iscsid", lambda: run(["iscsiadm", "-m", "session"], expect=None).returncode in (0, 21))
        return self

    def __exit__(self, *exc: object) -> None:
        assert self.proc is not None
        run(["iscsiadm", "-m", "node", "-u"], expect=None, timeout=180)
        self.proc.terminate()
        self.proc.wait(120)

    def discover(self, portal: str) -> list[tuple[str, str]]:
        """Return (portal with tag, target name) pairs that a discovery session finds."""
        r = run(["iscsiadm", "-m", "discovery", "-t", "sendtargets", "-o", "nonpersistent", "-p", portal])
        return [tuple(line.split()) for line in r.stdout.splitlines()]

    @contextmanager
    def session(
        self, portal: str, target: str, luns: int, settings: Mapping[str, str] | None = None
    ) -> Iterator[Session]:
        """Log in with these settings of the node's record ("node." left out); wait for that many disks."""
        node = ["iscsiadm", "-m", "node", "-T", target, "-p", portal]
        run([*node, "-o", "new"])
        try:
            for name, value in (settings or {}).items():
                run([*node, "-o", "update", "-n", "node." + name, "-v", value])
            run([*node, "-l"], timeout=120)
            session = Session(portal, target)
            try:
                session.await_disks(luns)
                yield session
            finally:
                run([*node, "-u"], timeout=180)
        finally:
            run([*node, "-o", "delete"])


class Session:
    """A session of the kernel's initiator with a portal "address:port"."""

    def __init__(self, portal: str, target: str) -> None:
        self.portal, self.target = portal, target
        port = portal.rsplit(":", 1)[1]
        for c in Path("/sys/class/iscsi_connection").iterdir():
            number = c.name.removeprefix("connection").split(":")[0]
            sysfs = Path(f"/sys/class/iscsi_session/session{number}")
            if (c / "persistent_port").read_text().strip() == port and (
                sysfs / "targetname"
            ).read_text().strip() == target:
                self.connection, self.sysfs = c, sysfs
                return
        raise ToolError(f"no session with {target} at {portal}")

    def negotiated(self, key: str) -> str:
        """Return a negotiated value by its name in sysfs, of the session or the connection."""
        for folder in (self.sysfs, self.connection):
            if (folder / key).exists():
                return (folder / key).read_text().strip()
        raise ToolError(f"{key} is neither in {self.sysfs} nor in {self.connection}")

    def disks(self) -> list[Disk]:
        """Return the session's disks in the order of their LUNs."""
        device = (self.sysfs / "device").resolve()
        found = {p.name for p in device.glob("target*/*") if re.fullmatch(r"\d+:\d+:\d+:\d+", p.name)}
        disks = [Disk(a) for a in found]
        return sorted((d for d in disks if d._node("block")), key=lambda d: d.lun)

    def await_disks(self, luns: int) -> None:
        """Wait until the session has that many disks, with both of their nodes."""
        try:
            wait(f"{luns} disks of {self.target}", lambda: len(self.disks()) == luns)
        except ToolError as e:
            told = [run(["lsscsi", "-g"], expect=None), run(["targetcli", "ls", "/iscsi"], expect=None)]
            told += [run(["sg_luns", d.sg], expect=None) for d in self.disks()[:1]]
            raise ToolError("\n".join(map(str, [e, *told]))) from None
        for disk in self.disks():
            disk.be_patient()
            _ = disk.sg

    def rescan(self) -> None:
        """Look for new LUNs and new sizes."""
        run(["iscsiadm", "-m", "session", "-R"], timeout=60)


@contextmanager
def tcmu_runner() -> Iterator[subprocess.Popen[bytes]]:
    """A tcmu-runner that owns its name on the bus; its handlers are those of the system."""
    with (RESULTS / "tcmu-runner.log").open("ab") as log:
        proc = subprocess.Popen(["tcmu-runner"], stdout=log, stderr=log)
    try:
        bus = ["dbus-send", "--system", "--print-reply", "--dest=org.freedesktop.DBus", "/org/freedesktop/DBus"]
        bus += ["org.freedesktop.DBus.GetNameOwner", "string:org.kernel.TCMUService1"]
        wait("tcmu-runner's name", lambda: run(bus, expect=None).returncode == 0)
        yield proc
        clear_targets()
        assert proc.poll() is None, "tcmu-runner has died"
    finally:
        proc.terminate()
        proc.wait(60)


@contextmanager
def mounted(device: str, folder: Path, *options: str) -> Iterator[Path]:
    """Mount a file system for the duration."""
    folder.mkdir(exist_ok=True)
    run(["mount", *options, device, folder])
    try:
        yield folder
    finally:
        run(["umount", folder], timeout=180)
