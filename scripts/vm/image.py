#!/usr/bin/env python3
"""Makes the virtual machine's image: a Debian root file system and Debian kernels.

    scripts/vm/image.py [--force]

Prints the folder of the image under .cache/vm, which has for every kernel in
KERNELS vmlinuz-<name> and initrd-<name>, and root.ext4. The folder's name is a
hash of the files that the image depends on: a second call needs no network and
returns at once, a call after a change of the package list builds again.

Needs root, mmdebstrap, mke2fs and depmod. Packages come from the machine's own
apt sources.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
REPO = HERE.parents[1]
CACHE = REPO / ".cache" / "vm"

#: Kernels by name: the meta package, and whether the image is useless without it.
KERNELS = {"6.1": ("linux-image-amd64", True), "6.12": ("linux-image-6.12-amd64", False)}

#: Modules that stay in the image: folders and files under lib/modules/*/kernel.
#: The rest (380 MB of drivers of real hardware) is left out.
KEEP = """
arch/x86/crypto crypto lib fs/9p fs/configfs fs/ext4 fs/jbd2 fs/fuse fs/mbcache fs/xfs fs/exportfs fs/nls net/9p
fs/netfs fs/fscache drivers/target drivers/uio drivers/virtio drivers/md drivers/block/virtio_blk drivers/block/loop
drivers/block/null_blk drivers/block/brd drivers/block/nbd drivers/char/virtio_console drivers/char/hw_random
drivers/net/virtio_net drivers/net/net_failover net/core net/packet drivers/scsi/device_handler drivers/scsi/sd_mod
drivers/scsi/sg drivers/scsi/scsi_ drivers/scsi/scsi_mod drivers/scsi/sr_mod drivers/scsi/ses drivers/scsi/iscsi
drivers/scsi/libiscsi drivers/scsi/virtio_scsi drivers/cdrom drivers/dax drivers/nvdimm
""".split()
DROP = ("kernel/drivers/target/iscsi/cxgbit", "kernel/drivers/target/sbp", "kernel/drivers/target/tcm_fc")

#: What the initial RAM disk must load to reach the disk and the shared folder.
EARLY = ["virtio_pci", "virtio_blk", "crc32c_generic", "ext4", "9pnet_virtio", "9p", "virtio_console"]

#: Documentation and translations, which nobody reads in the guest.
EXCLUDE = ["/usr/share/man/*", "/usr/share/doc/*", "/usr/share/locale/*", "/usr/share/info/*", "/usr/share/lintian/*"]


#: How often packages are fetched and installed before there is no image.
ATTEMPTS = 3

#: The initiator asks its targets for a sign of life; on a busy host the answer may take long.
PATIENCE = {"noop_out_interval": 30, "noop_out_timeout": 120, "login_timeout": 60}


class ImageError(Exception):
    """Why there is no image, and what to do about it."""


def say(text: str) -> None:
    """Report progress."""
    print(f"vm image: {text}", file=sys.stderr, flush=True)


def packages() -> list[str]:
    """Return the packages of packages.txt."""
    lines = (HERE / "packages.txt").read_text().splitlines()
    return [line.strip() for line in lines if line.strip() and not line.startswith("#")]


def key() -> str:
    """Return the hash of everything that the image is made from."""
    h = hashlib.sha256()
    for name in ("packages.txt", "image.py", "initramfs.sh"):
        h.update((HERE / name).read_bytes())
    return h.hexdigest()[:16]


def ensure(force: bool = False) -> Path:
    """Return the folder of the image, made first if it is missing or out of date."""
    CACHE.mkdir(parents=True, exist_ok=True)
    image = CACHE / f"image-{key()}"
    with (CACHE / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if image.exists() and not force:
            return image
        start = time.monotonic()
        for attempt in range(1, ATTEMPTS + 1):
            work = Path(tempfile.mkdtemp(prefix="build-", dir=CACHE))
            try:
                build(work)
                for old in CACHE.glob("image-*"):
                    shutil.rmtree(old)
                work.rename(image)
                break
            except subprocess.CalledProcessError as e:
                # Most likely the network's doing.
                said = f"{e.cmd[0]} failed with {e.returncode} (see above)"
                if attempt == ATTEMPTS:
                    raise ImageError(f"{said}, {ATTEMPTS} times") from None
                say(f"{said}; trying again")
            finally:
                shutil.rmtree(work, ignore_errors=True)
        say(f"made in {time.monotonic() - start:.0f} s: {image}")
    return image


def build(work: Path) -> None:
    """Make all files of the image in work."""
    if os.geteuid() != 0:
        raise ImageError("needs root to make files of other owners: run it as root (once; the image is kept)")
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for command, package in {"mmdebstrap": "mmdebstrap", "mke2fs": "e2fsprogs", "depmod": "kmod"}.items():
        if shutil.which(command) is None:
            raise ImageError(f"{command} is missing: apt-get install {package}")
    root, debs = work / "root", work / "debs"
    debs.mkdir()
    say(f"installing {len(packages())} packages and what they need (150 MB to fetch; a minute or two)")
    debootstrap(root, debs)
    for name, (package, needed) in KERNELS.items():
        found = sorted(debs.glob(f"{package}/*.deb"))
        if found:
            say(f"kernel {name}: {found[0].name.split('_')[0].removeprefix('linux-image-')}")
            kernel(work, root, name, found[0])
        elif needed:
            raise ImageError(f"no package {package} in the apt sources: run apt-get update")
        else:
            say(f"kernel {name}: no package {package} in the apt sources, left out")
    shutil.rmtree(debs)
    settle(root)
    say("making the file system")
    subprocess.run(
        ["mke2fs", "-q", "-t", "ext4", "-b", "4096", "-m", "0", "-O", "^metadata_csum"]
        + ["-E", "lazy_itable_init=1,lazy_journal_init=1,root_owner=0:0", "-d", root, work / "root.ext4", "8G"],
        check=True,
    )
    shutil.rmtree(root)


def debootstrap(root: Path, debs: Path) -> None:
    """Unpack the packages into root and fetch the kernels' packages into debs."""
    etc = Path("/etc/apt")
    candidates = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    sources = [f for f in candidates if f.suffix in (".list", ".sources") and f.is_file() and "debian" in f.read_text()]
    if not sources:
        raise ImageError("no Debian source in /etc/apt: cannot tell where packages come from")
    release = dict(line.split("=", 1) for line in Path("/etc/os-release").read_text().splitlines() if "=" in line)
    # What this machine needs to reach its sources (proxies, certificates) holds for them too.
    dump = subprocess.run(["apt-config", "dump"], capture_output=True, text=True, check=True).stdout
    conf = debs / "apt.conf"
    network = ("Acquire::http::", "Acquire::https::", "Acquire::ForceIPv")
    lines = [line for line in dump.splitlines() if line.startswith(network)]
    conf.write_text("\n".join([*lines, 'Acquire::Retries "5";', ""]))
    # Kernels are unpacked, not installed: that would make an initial RAM disk of Debian's for each.
    fetch = debs / "fetch.sh"
    lines = ["#!/bin/sh", 'export APT_CONFIG="$MMDEBSTRAP_APT_CONFIG"']
    first_image = "sed -n 's/.*Depends: \\(linux-image-[^ ]*\\)/\\1/p' | head -1"
    for package, _ in KERNELS.values():
        lines += [f"mkdir {debs}/{package} && cd {debs}/{package}"]
        lines += [f"i=$(apt-cache depends {package} 2>/dev/null | {first_image})"]
        lines += ['[ -z "$i" ] || apt-get -qq download "$i"']
    fetch.write_text("\n".join([*lines, "exit 0", ""]))
    fetch.chmod(0o755)
    subprocess.run(
        ["mmdebstrap", "--quiet", "--variant=minbase", "--mode=root", "--format=directory"]
        + [f"--include={','.join(packages())}", f"--aptopt={conf}", f"--customize-hook={fetch}"]
        + [f"--dpkgopt=path-exclude={p}" for p in EXCLUDE]
        + [release["VERSION_CODENAME"], str(root), *map(str, sources)],
        check=True,
        stdout=sys.stderr,
    )


def kernel(work: Path, root: Path, name: str, deb: Path) -> None:
    """Put a kernel beside the root file system, its modules into it, and make its initial RAM disk."""
    tree = work / f"kernel-{name}"
    subprocess.run(["dpkg-deb", "-x", deb, tree], check=True)
    shutil.copy(next((tree / "boot").glob("vmlinuz-*")), work / f"vmlinuz-{name}")
    source = next(tree.glob("**/lib/modules/*"))
    release = source.name
    subprocess.run(["depmod", "-b", tree, release], check=True)
    needs = dependencies(source)
    kept = [p for p in needs if p.startswith(tuple(f"kernel/{k}" for k in KEEP)) and not p.startswith(DROP)]
    target = root / "usr/lib/modules" / release
    for path in {p for k in kept for p in [k, *needs[k]]}:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source / path, target / path)
    for listing in ("modules.builtin", "modules.order", "modules.builtin.modinfo"):
        shutil.copy(source / listing, target)
    subprocess.run(["depmod", "-b", root, release], check=True)
    (work / f"initrd-{name}").write_bytes(initramfs(root, release))
    shutil.rmtree(tree)


def dependencies(modules: Path) -> dict[str, list[str]]:
    """Return all modules with those that they need, as paths, from depmod's listing."""
    lines = (modules / "modules.dep").read_text().splitlines()
    return {path: needs.split() for path, _, needs in (line.partition(":") for line in lines)}


def initramfs(root: Path, release: str) -> bytes:
    """Return an initial RAM disk with initramfs.sh and the EARLY modules."""
    modules = root / "usr/lib/modules" / release
    needs = dependencies(modules)
    paths = {Path(p).name.split(".")[0].replace("-", "_"): p for p in needs}
    order: list[str] = []
    for path in (paths[m] for m in EARLY if m in paths):  # else it is built in
        order += [p for p in [*reversed(needs[path]), path] if p not in order]
    files = {
        "init": (0o100755, (HERE / "initramfs.sh").read_bytes()),
        "bin/busybox": (0o100755, (root / "bin/busybox").read_bytes()),
        "modules/order": (0o100644, "\n".join(Path(p).name for p in order).encode()),
    }
    for p in order:
        files[f"modules/{Path(p).name}"] = (0o100644, (modules / p).read_bytes())
    return gzip.compress(cpio(files), 1)


def cpio(files: dict[str, tuple[int, bytes]]) -> bytes:
    """Return a newc archive (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst)."""
    out = bytearray()

    def add(name: str, mode: int, data: bytes, inode: int) -> None:
        fields = [inode, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0]
        out.extend(b"070701" + b"".join(b"%08X" % f for f in fields) + name.encode() + b"\0")
        out.extend(bytes(-len(out) % 4))
        out.extend(data)
        out.extend(bytes(-len(out) % 4))

    folders = sorted({str(parent) for name in files for parent in Path(name).parents if str(parent) != "."})
    for inode, folder in enumerate([*folders, "dev"], 1):
        add(folder, 0o040755, b"", inode)
    for inode, (name, (mode, data)) in enumerate(files.items(), 100):
        add(name, mode, data, inode)
    add("TRAILER!!!", 0, b"", 0)
    return bytes(out)


def settle(root: Path) -> None:
    """Give the root file system what a boot without an init system does not."""
    for unneeded in ("var/cache/apt", "var/lib/apt/lists", "boot"):
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
    # Compiled once here and not at every start in the emulated processor.
    subprocess.run(["chroot", root, "python3", "-m", "compileall", "-q", "/usr/lib/python3/dist-packages"], check=True)
    subprocess.run(["chroot", root, "python3", "-m", "compileall", "-q", "/usr/lib/python3.11"], check=False)


if __name__ == "__main__":
    try:
        print(ensure("--force" in sys.argv[1:]))
    except ImageError as e:
        sys.exit(f"vm image: {e}")
