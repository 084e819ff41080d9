#!/usr/bin/env python3
"""Makes the guest's root: a folder with Debian's packages, which both engines start from.

    scripts/vm/root.py [--force]

Prints the folder, under .cache/vm. Its name is a hash of what it depends on: a
second call needs no network and returns at once, a call after a change of the
package list builds again. User Mode Linux mounts the folder itself, read-only
below a writable layer in memory, and any number of guests share it; image.py
makes QEMU's disk of it.

Needs root and mmdebstrap. Packages come from the machine's own apt sources.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
CACHE = REPO / ".cache" / "vm"

#: Documentation and translations, which nobody reads in the guest.
EXCLUDE = ["/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/lintian/*"]

#: How often packages are fetched and installed before the build gives up.
ATTEMPTS = 3

#: The initiator asks its targets for a sign of life; on a busy host the answer may take long.
PATIENCE = {"noop_out_interval": 30, "noop_out_timeout": 120, "login_timeout": 60}


class ImageError(Exception):
    """Why there is no root or image, and what to do about it."""


def say(text: str) -> None:
    """Report progress."""
    print(f"vm image: {text}", file=sys.stderr, flush=True)


def packages() -> list[str]:
    """Return the packages of packages.txt."""
    lines = (HERE / "packages.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def key(*names: str) -> str:
    """Return a hash of these files of this folder."""
    h = hashlib.sha256()
    for name in names:
        h.update((HERE / name).read_bytes())
    return h.hexdigest()[:16]


def need(commands: dict[str, str]) -> None:
    """Raise ImageError unless this is root and has these commands, by the package that has each."""
    if os.geteuid() != 0:
        raise ImageError("needs root to make files of other owners: run it as root (once; the result is kept)")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for command, package in commands.items():
        if shutil.which(command) is None:
            raise ImageError(f"{command} is missing: apt-get install {package}")


def cached(kind: str, hashed: str, build: Callable[[Path], None], force: bool) -> Path:
    """Return the folder kind-hashed under CACHE; build makes it first where it is missing.

    Folders of other hashes go away. One process builds at a time; the others wait for it.
    """
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / f"{kind}-{hashed}"
    with (CACHE / f"{kind}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if folder.exists() and not force:
            return folder
        start = time.monotonic()
        for attempt in range(1, ATTEMPTS + 1):
            work = Path(tempfile.mkdtemp(prefix="build-", dir=CACHE))
            work.chmod(0o755)
            try:
                build(work)
                for old in CACHE.glob(f"{kind}-*"):
                    shutil.rmtree(old)
                work.rename(folder)
                break
            except subprocess.CalledProcessError as e:
                # Most likely the network's doing.
                said = f"{e.cmd[0]} failed with {e.returncode} (see above)"
                if attempt == ATTEMPTS:
                    raise ImageError(f"{said}, {ATTEMPTS} times") from None
                say(f"{said}; trying again")
            finally:
                shutil.rmtree(work, ignore_errors=True)
        say(f"{kind} made in {time.monotonic() - start:.0f} s: {folder.relative_to(REPO)}")
    return folder


def ensure(force: bool = False) -> Path:
    """Return the root folder, built first if it is missing or out of date."""
    return cached("root", key("packages.txt", "root.py", "uml-init.sh"), build, force)


def build(work: Path) -> None:
    """Make all files of the root in work."""
    need({"mmdebstrap": "mmdebstrap"})
    say(f"installing {len(packages())} packages and what they need (150 MB to fetch; a minute or two)")
    debootstrap(work)
    settle(work)


def network_settings() -> list[str]:
    """Return what this machine's apt needs to reach its sources (proxies, certificates), as lines of an apt.conf."""
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    network = ("Acquire::http::", "Acquire::https::", "Acquire::ForceIPv")
    return [*(line for line in dump.splitlines() if line.startswith(network)), 'Acquire::Retries "5";']


def debootstrap(root: Path) -> None:
    """Unpack and configure the packages into root, over what any Debian has, which scripts/rootfs.sh makes."""
    subprocess.run([REPO / "scripts" / "rootfs.sh"], check=True, stdout=sys.stderr)
    etc = Path("/etc/apt")
    candidates = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    sources = [f for f in candidates if f.suffix in (".list", ".sources") and f.is_file() and "debian" in f.read_text()]
    if not sources:
        raise ImageError("no Debian source in /etc/apt: cannot tell where packages come from")
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    with tempfile.NamedTemporaryFile("w", suffix=".conf") as conf:
        conf.write("\n".join([*network_settings(), ""]))
        conf.flush()
        install = f'apt-get -qq -y -o DPkg::Chroot-Directory="$1" install {" ".join(packages())} >/dev/null'
        subprocess.run(
            ["mmdebstrap", "--quiet", "--variant=custom", "--mode=root", "--format=directory"]
            + [f"""--setup-hook=tar -C "$1" --xattrs -xpf {shlex.quote(str(REPO / ".cache" / "rootfs.tar"))}"""]
            + [f'--customize-hook=APT_CONFIG="$MMDEBSTRAP_APT_CONFIG" {install}', f"--aptopt={conf.name}"]
            + [f"--dpkgopt=path-exclude={p}" for p in EXCLUDE]
            + [release["VERSION_CODENAME"], str(root), *map(str, sources)],
            check=True,
            stdout=sys.stderr,
        )


def settle(root: Path) -> None:
    """Give the root what a boot without an init system does not."""
    # What the packages of any Debian have of EXCLUDE is among these.
    for unneeded in ("var/cache/apt", "var/lib/apt/lists", "boot", *(p.strip("/*") for p in EXCLUDE)):
        shutil.rmtree(root / unneeded, ignore_errors=True)
    (root / "etc/hostname").write_text("guest\n")
    (root / "etc/hosts").write_text("127.0.0.1 localhost guest\n")
    (root / "etc/machine-id").write_text("5a1ab00000004000800000000000005a\n")
    (root / "etc/iscsi/initiatorname.iscsi").write_text("InitiatorName=iqn.2026-01.io.arraysim:guest\n")
    (root / "etc/target").mkdir(exist_ok=True)
    iscsid = root / "etc/iscsi/iscsid.conf"
    text = iscsid.read_text()
    for name, seconds in PATIENCE.items():
        text, found = re.subn(rf"(?m)^(node\S*\.{name}) = \d+$", rf"\1 = {seconds}", text)
        if not found:
            raise ImageError(f"{iscsid} has no {name}")
    iscsid.write_text(text)
    # User Mode Linux looks for its modules where any kernel does.
    modules = root / "usr/lib/modules"
    modules.mkdir(exist_ok=True)
    for release in (root / "usr/lib/uml/modules").iterdir():
        (modules / release.name).symlink_to(f"../uml/modules/{release.name}")
    init = root / "usr/local/sbin/guest-init"
    shutil.copy(HERE / "uml-init.sh", init)
    init.chmod(0o755)
    # Compiled once here and not at every start in the emulated processor.
    subprocess.run(["chroot", root, "python3", "-m", "compileall", "-q", "/usr/lib/python3/dist-packages"], check=True)
    subprocess.run(["chroot", root, "python3", "-m", "compileall", "-q", "/usr/lib/python3.11"], check=False)


if __name__ == "__main__":
    try:
        print(ensure("--force" in sys.argv[1:]))
    except ImageError as e:
        sys.exit(f"vm image: {e}")
