"""The Debian package in a guest that systemd boots: installed, ready, sandboxed, watched, stopped, purged.

The guest is Debian as it comes, with tcmu-runner and open-iscsi running, and with nothing of arraysim but the package,
which `make package-boot-test` hands in. The cases share one installation and go in the order of this file.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import random
import re
import signal
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from guest import RESULTS, Disk, Initiator, clear_targets, targetcli, wait
from harness import REPO, TARGET, MiB, run

PORTAL, TCMU = "arraysim.service", "arraysim-tcmu.service"
SOCKETS = ["arraysim-portal.socket", "arraysim-metrics.socket"]
RESTORES = "rtslib-fb-targetctl.service"
ADDRESS = "127.0.0.1:3260"
NAA = "naa.5001405000000020"

#: A busy host takes the guest's one processor away for long; no case asks how fast something is.
AMPLE = 300

#: What systemd-analyze may find at most, in tenths: of ten, a service without any sandbox has 9.6.
EXPOSURE = {PORTAL: 15, TCMU: 65}

#: What machines write by themselves, or a package manager for itself.
OTHERS = re.compile(
    r"/var/(log|cache|tmp)/|/var/lib/(dpkg/(?!info/)|apt/|systemd/(timers|random-seed|catalog|rfkill|linger)"
    r"|misc/)|/etc/(machine-id|resolv\.conf|mtab)$|__pycache__"
)


#: What the machine's own programs keep of what the cases did: targetcli's saveconfig, the records of the initiator that
#: logged in, multipathd's of the disks that it saw, and systemd's folder for dynamic users' data.
BY_OTHERS = re.compile(
    r"/etc/(rtslib-fb-target|target)/|/etc/iscsi/(ifaces|nodes|send_targets)(/|$)|/etc/multipath/wwids$"
    r"|/var/(lib|cache)/private$"
)


def listing() -> dict[str, str]:
    """Return what lies in the folders that packages write to: a path with its kind, in /etc with its contents."""
    found = {}
    for top in ("/etc", "/usr", "/var", "/opt"):
        for folder, folders, files in os.walk(top):
            for name in (*folders, *files):
                path = Path(folder) / name
                if OTHERS.search(f"{path}/" if name in folders else str(path)):
                    continue
                kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "file"
                if kind == "file" and top == "/etc":
                    kind = hashlib.sha256(path.read_bytes()).hexdigest()
                found[str(path)] = kind
    return found


def apt(*arguments: object) -> None:
    """Run apt-get, which asks nothing; what it and the maintainer scripts say is kept."""
    env = {"DEBIAN_FRONTEND": "noninteractive"}
    r = run(["apt-get", "--yes", "--quiet", *arguments], env=env, timeout=AMPLE)
    with (RESULTS / "apt.log").open("a") as log:
        log.write(f"{r}\n")


def ctl(*arguments: str, expect: int | None = 0) -> str:
    """Run systemctl."""
    return run(["systemctl", "--no-pager", *arguments], timeout=2 * AMPLE, expect=expect).stdout.strip()


def show(unit: str, name: str) -> str:
    """Return a property of a unit."""
    return ctl("show", unit, "--value", "-p", name)


def process(unit: str) -> Path:
    """Return the folder in /proc of a service's main process."""
    return Path("/proc") / show(unit, "MainPID")


def variables(unit: str) -> dict[str, str]:
    """Return the environment of a service's main process."""
    pairs = (process(unit) / "environ").read_text().split("\0")
    return dict(p.partition("=")[::2] for p in pairs if p)


def state(unit: str) -> str:
    """Return the lines of a main process's status that a sandbox is about."""
    return (process(unit) / "status").read_text()


def seen(unit: str, *command: str, expect: int | None = 0) -> str:
    """Run a command as root with the file system that a service sees; return what it says."""
    return run(["nsenter", "-t", process(unit).name, "-m", *command], expect=expect, timeout=AMPLE).text


def serves() -> bool:
    """Tell whether a host gets an answer from the portal."""
    return "ARRAYSIM" in run(["iscsi-inq", f"iscsi://{ADDRESS}/{TARGET}/0"], expect=None, timeout=AMPLE).stdout


def refused(port: int) -> bool:
    """Tell whether nobody listens on a port."""
    with socket.socket() as s:
        return s.connect_ex(("127.0.0.1", port)) != 0


def ended_well(unit: str) -> bool:
    """Tell whether a service is down, by its own exit with status 0."""
    names = ("ActiveState", "Result", "ExecMainCode", "ExecMainStatus")
    return [show(unit, n) for n in names] == ["inactive", "success", "1", "0"]


def write(disk: Disk, data: bytes) -> None:
    """Write to the beginning of a disk, past the guest's cache."""
    with mmap.mmap(-1, len(data)) as buffer:
        buffer[:] = data
        fd = os.open(disk.sd, os.O_WRONLY | os.O_DIRECT)
        assert os.pwritev(fd, [buffer], 0) == len(data)
        os.close(fd)


def read(disk: Disk, size: int = MiB) -> bytes:
    """Read the beginning of a disk, past the guest's cache."""
    with mmap.mmap(-1, size) as buffer:
        fd = os.open(disk.sd, os.O_RDONLY | os.O_DIRECT)
        assert os.preadv(fd, [buffer], 0) == size
        os.close(fd)
        return buffer[:]


def noise(seed: int) -> bytes:
    """Return a MiB that is the same for the same seed."""
    return random.Random(seed).randbytes(MiB)


@contextmanager
def drop_in(text: str) -> Iterator[None]:
    """Change the portal's unit as an administrator does, for the duration."""
    file = Path("/run/systemd/system/arraysim.service.d/test.conf")
    file.parent.mkdir(parents=True)
    file.write_text(text)
    ctl("daemon-reload")
    try:
        yield
    finally:
        file.unlink()
        file.parent.rmdir()
        ctl("daemon-reload")


@pytest.fixture(scope="module")
def before() -> Iterator[dict[str, str]]:
    """What the machine has before the package is installed, which is as this returns."""
    packages = list((REPO / "files").glob("arraysim_*.deb"))
    assert len(packages) == 1, "there is no package to install: make package-boot-test makes one and hands it in"
    assert Path("/run/systemd/system").is_dir(), "systemd has not booted this guest: run.py does, for tests/vm/boot"
    ctl("start", "tcmu-runner.service")  # the boot of a busy machine may have given it up
    found = listing()
    apt("install", packages[0])
    yield found
    (RESULTS / "units.log").write_text(run(["journalctl", "--no-pager", "-u", "arraysim*"], timeout=AMPLE).stdout)


def test_installed_it_serves(before: dict[str, str]) -> None:
    """The package's portal runs and is enabled, and the TCMU service is not; commands find the array by its folder."""
    assert show(PORTAL, "ActiveState") == "active" and show(PORTAL, "UnitFileState") == "enabled"
    for unit in (TCMU, *SOCKETS):
        assert show(unit, "ActiveState") == "inactive" and show(unit, "UnitFileState") == "disabled"
    assert serves()
    assert show(PORTAL, "StatusText") == f"Serving iSCSI on {ADDRESS}"
    assert "vol0" in run(["arraysim", "volume", "list", "--data", "/var/lib/arraysim-portal"], timeout=AMPLE).stdout
    assert show("tcmu-runner.service", "ActiveState") == "active", "the portal is in nobody's way"


def test_active_means_ready(before: dict[str, str]) -> None:
    """A start ends with the daemon's word, and not before: without the word a daemon that serves is still starting."""
    ctl("stop", PORTAL)
    assert ended_well(PORTAL) and refused(3260) and refused(9400)
    silent = "ExecStart=/usr/bin/env -u NOTIFY_SOCKET /usr/bin/arraysim serve --data /var/lib/arraysim-portal"
    with drop_in(f"[Service]\nExecStart=\n{silent}\n"):
        ctl("start", "--no-block", PORTAL)
        wait("answer of the portal", serves, AMPLE)
        assert show(PORTAL, "ActiveState") == "activating"
        ctl("stop", PORTAL)
    ctl("start", PORTAL)
    assert (show(PORTAL, "ActiveState"), show(PORTAL, "SubState"), show(PORTAL, "Type")) == (
        "active",
        "running",
        "notify",
    )
    assert serves(), "the first host that comes after the start is served"


def test_the_sandbox_holds(before: dict[str, str]) -> None:
    """What the unit asks for is there: no root, no rights, no devices, nothing to write to but the data."""
    said = state(PORTAL)
    for line in (r"NoNewPrivs:\s1", r"Seccomp:\s2", *(rf"Cap{c}:\s0+" for c in ("Inh", "Prm", "Eff", "Bnd", "Amb"))):
        assert re.search(rf"(?m)^{line}$", said), f"{line}\n{said}"
    uid = int(re.findall(r"(?m)^Uid:\s(\d+)\t\1\t\1\t\1$", said)[0])
    assert 61184 <= uid <= 65519, "a dynamic user's"
    for space in ("mnt", "user", "uts"):
        ours, theirs = (os.readlink(p / "ns" / space) for p in (Path("/proc/1"), process(PORTAL)))
        assert ours != theirs, space
    # Only root and the service's own user exist in there.
    numbers = [line.split() for line in (process(PORTAL) / "uid_map").read_text().splitlines()]
    assert sorted(numbers) == sorted([["0", "0", "1"], [str(uid), str(uid), "1"]])

    devices = set(seen(PORTAL, "ls", "/dev").split())
    assert "null" in devices and not {d for d in devices if re.match(r"sd|sg|kmsg|mem|loop|uio|dm-", d)}
    for path in ("/usr/x", "/etc/x", "/var/lib/x", "/sys/kernel/x", "/proc/sys/kernel/hostname"):
        assert "Read-only file system" in seen(PORTAL, "touch", path, expect=1), path
    for hidden in ("/root", "/home"):
        assert seen(PORTAL, "ls", "-A", hidden) == "" and seen(PORTAL, "stat", "-c", "%a", hidden) == "0\n"
    assert seen(PORTAL, "ls", "-A", "/tmp") == ""
    data = Path("/var/lib/private/arraysim-portal")
    assert Path("/var/lib/arraysim-portal").resolve() == data
    assert data.stat().st_mode & 0o777 == 0o700 and data.stat().st_uid == uid
    assert {f.stat().st_mode & 0o077 for f in data.rglob("*")} == {0}


@pytest.mark.parametrize("unit", EXPOSURE)
def test_exposure(before: dict[str, str], unit: str) -> None:
    """systemd's own judgement of the unit as it is installed does not become worse."""
    run(["systemd-analyze", "--no-pager", "security", f"--threshold={EXPOSURE[unit]}", unit], timeout=AMPLE)


@pytest.mark.kernel_says(r"detected conn error|ping timeout of \d+ secs expired")
def test_watched_and_restarted(before: dict[str, str]) -> None:
    """A daemon that hangs is ended after the unit's half minute, one that dies is started again; hosts keep the LUN."""
    assert show(PORTAL, "WatchdogUSec") == "30s"
    main = process(PORTAL).name
    assert (variables(PORTAL)["WATCHDOG_USEC"], variables(PORTAL)["WATCHDOG_PID"]) == ("30000000", main)
    last = int(show(PORTAL, "WatchdogTimestampMonotonic"))
    wait("sign of life", lambda: int(show(PORTAL, "WatchdogTimestampMonotonic")) > last, AMPLE)
    # The host's initiator is the system's: its socket starts iscsid.
    with Initiator().session(ADDRESS, TARGET, 5) as session:
        disk, data = session.disks()[0], noise(1)
        write(disk, data)
        os.kill(int(main), signal.SIGSTOP)
        wait("restart by the watchdog", lambda: show(PORTAL, "NRestarts") == "1", AMPLE)
        wait("word of readiness", lambda: show(PORTAL, "ActiveState") == "active", AMPLE)
        assert "Watchdog timeout (limit 30s)!" in run(["journalctl", "-u", PORTAL], timeout=AMPLE).stdout
        assert read(disk) == data
        os.kill(int(process(PORTAL).name), signal.SIGKILL)
        wait("restart after a death", lambda: show(PORTAL, "NRestarts") == "2", AMPLE)
        wait("word of readiness", lambda: show(PORTAL, "ActiveState") == "active", AMPLE)
        assert read(disk) == data


def test_sockets_start_it(before: dict[str, str]) -> None:
    """With its sockets enabled, the service is down until a host comes, and a stop leaves no port open."""
    ctl("stop", PORTAL)
    assert ended_well(PORTAL)
    ctl("enable", "--now", *SOCKETS)
    assert show(PORTAL, "ActiveState") == "inactive" and not refused(3260)
    assert serves()
    wait("word of readiness", lambda: show(PORTAL, "ActiveState") == "active", AMPLE)
    ctl("stop", *SOCKETS, PORTAL)
    assert ended_well(PORTAL) and refused(3260) and refused(9400)


def loop_disk() -> Disk:
    """Return the one disk of tcm_loop."""

    def look() -> Disk | None:
        names = [p.name for p in Path("/sys/bus/scsi/devices").iterdir() if re.fullmatch(r"[\d:]+", p.name)]
        disks = [Disk(n) for n in names if "tcm_loop" in str((Path("/sys/bus/scsi/devices") / n).resolve())]
        return disks[0] if disks else None

    disk = wait("disk of tcm_loop", look, AMPLE)
    disk.be_patient()
    wait("ready unit", lambda: run(["sg_turs", disk.sg], expect=None, timeout=AMPLE).returncode == 0, AMPLE)
    return disk


def test_the_tcmu_service(before: dict[str, str]) -> None:
    """It takes tcmu-runner's place, beside the portal; its LUNs outlive a restart, and are restored once it runs."""
    ctl("enable", TCMU)
    ctl("start", PORTAL, TCMU)
    assert [show(u, "ActiveState") for u in (PORTAL, TCMU, "tcmu-runner.service")] == ["active", "active", "inactive"]
    assert show(TCMU, "StatusText") == "Serving TCMU" and show(TCMU, "Type") == "notify"
    assert show(TCMU, "WatchdogUSec") == "30s" and variables(TCMU)["WATCHDOG_USEC"] == "30000000"
    said = state(TCMU)
    assert re.search(r"(?m)^NoNewPrivs:\s1$", said) and re.search(r"(?m)^Seccomp:\s2$", said)
    for path in ("/usr/x", "/etc/x", "/var/lib/x"):
        assert "Read-only file system" in seen(TCMU, "touch", path, expect=1), path
    assert seen(TCMU, "ls", "-A", "/root") == ""

    targetcli(
        "/backstores/user:array create name=db1 size=67108864 cfgstring=gold/db1",
        f"/loopback create {NAA}",
        f"/loopback/{NAA}/luns create /backstores/user:array/db1 lun=0",
        "saveconfig",
    )
    data = noise(2)
    write(loop_disk(), data)
    ctl("restart", TCMU)
    assert read(loop_disk()) == data
    assert "the kernel keeps its devices" in run(["journalctl", "-u", TCMU], timeout=AMPLE).stdout

    # As a machine goes down and comes up: devices go before the daemon, and come back after it. tcmu-runner
    # is enabled, too, and does not come.
    ctl("stop", RESTORES, TCMU)
    assert ended_well(TCMU) and show(RESTORES, "Result") == "success"
    assert not list(Path("/sys/kernel/config/target/core").glob("user_*/db1"))
    ctl("start", "multi-user.target")
    wait("restored devices", lambda: show(RESTORES, "ActiveState") == "active", AMPLE)
    assert [show(u, "ActiveState") for u in (TCMU, "tcmu-runner.service")] == ["active", "inactive"]
    assert read(loop_disk()) == data
    clear_targets()
    targetcli("saveconfig", "exit")
    ctl("stop", TCMU)
    assert ended_well(TCMU) and show(PORTAL, "ActiveState") == "active"


def test_purged_nothing_is_left(before: dict[str, str]) -> None:
    """Purged while both services run, it takes all with it: processes, units, links, data, users."""
    ctl("stop", PORTAL)
    ctl("enable", "--now", *SOCKETS)
    ctl("start", PORTAL, TCMU)
    apt("purge", "arraysim")
    run(["pgrep", "-x", "arraysim"], expect=1)
    for listed in ("list-unit-files", "list-units"):
        assert "arraysim" not in ctl(listed, "--all", "arraysim*", expect=None)
    assert refused(3260) and refused(9400) and refused(9401)
    assert [p for p in Path("/run").rglob("*arraysim*") if "/payload/" not in str(p)] == []
    after = listing()
    changed = {k: (before.get(k), after.get(k)) for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
    assert {k for k in changed if not BY_OTHERS.match(k)} == set()
    assert "arraysim" not in run(["getent", "passwd"]).stdout
