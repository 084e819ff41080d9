#!/usr/bin/env python3
"""Makes a Debian package of bin/arraysim, by dpkg-deb alone, and prints its path.

    scripts/release/deb.py [--output FOLDER]

The same source makes the same package, byte for byte: all files have the time of the commit, or
SOURCE_DATE_EPOCH. Neither root nor fakeroot is needed. `make deb` builds the binary first.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import os
import shutil
import subprocess
import tempfile
from email.utils import formatdate
from pathlib import Path

import common
import manual

DEBIAN = common.HERE / "debian"
MAINTAINER = "The arraysim authors <arraysim@arraysim.dev>"
ARCHITECTURES = {"386": "i386", "arm": "armhf", "ppc64le": "ppc64el", "mips64le": "mips64el"}

CONTROL = """Package: arraysim
Version: {version}
Architecture: {architecture}
Maintainer: {maintainer}
Installed-Size: {kib}
Recommends: dbus, kmod
Suggests: libiscsi-bin, open-iscsi, qemu-block-extra, targetcli-fb
Section: admin
Priority: optional
Homepage: https://github.com/arraysim/arraysim
Description: {summary}
 arraysim serves volumes to real SCSI initiators, through its own iSCSI portal
 or as the TCMU service of the kernel's target. It behaves like a storage
 array, with offloads (WRITE SAME, UNMAP, EXTENDED COPY, ODX) and persistent
 reservations.
 .
 Its counters, page and findings show what arrays hide: the writes that
 offloads cause below the layer where hosts look.
"""

#: What lintian finds and is meant to be so.
OVERRIDES = """# A static binary runs in any container and on any release; its modules are in the copyright file.
arraysim: statically-linked-binary [usr/bin/arraysim]
# The symbol table is for perf and for profiles; there is no debugging data to strip.
arraysim: unstripped-binary-or-object [usr/bin/arraysim]
# The services follow systemd's conventions and have no script for another init.
arraysim: package-supports-alternative-init-but-no-init.d-script [lib/systemd/system/arraysim-tcmu.service]
arraysim: package-supports-alternative-init-but-no-init.d-script [lib/systemd/system/arraysim.service]
# The package comes from the project itself, which has no bug in Debian's tracker to close.
arraysim: initial-upload-closes-no-bugs [usr/share/doc/arraysim/changelog.Debian.gz:1]
"""


def debian_version(version: str) -> str:
    """Return a semantic version as Debian writes it: what leads to a release sorts before it."""
    return version.removeprefix("v").replace("-", "~", 1).replace("-", ".") + "-1"


class Tree:
    """The files of the package, in a folder that stands for the root."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def write(self, path: str, data: str | bytes, mode: int = 0o644) -> None:
        """Write a file and the folders above it."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data.encode() if isinstance(data, str) else data)
        file.chmod(mode)

    def zipped(self, path: str, text: str) -> None:
        """Write a file compressed, without a name and a time in it."""
        self.write(path + ".gz", gzip.compress(text.encode(), 9, mtime=0))

    def files(self) -> list[Path]:
        """Return all files but those of the package's own folder, in order."""
        every = sorted(f for f in self.root.rglob("*") if f.is_file())
        return [f for f in every if f.relative_to(self.root).parts[0] != "DEBIAN"]

    def kib(self) -> int:
        """Return what the files take, as Debian's tools count it."""
        every = [f for f in self.root.rglob("*") if "DEBIAN" not in f.relative_to(self.root).parts]
        return sum((f.stat().st_size + 1023) // 1024 if f.is_file() else 1 for f in every)

    def date(self, at: int) -> None:
        """Give all files and folders one time and the modes that they have in a package."""
        for f in [self.root, *self.root.rglob("*")]:
            if f.is_dir():
                f.chmod(0o755)
            os.utime(f, (at, at), follow_symlinks=False)


def units(tree: Tree) -> None:
    """Add the units for systemd, the bus's policy and the files with options."""
    for f in sorted((common.REPO / "scripts/systemd").iterdir()):
        tree.write(f"lib/systemd/system/{f.name}", f.read_text().replace("/usr/local/bin/", "/usr/bin/"))
    tree.write("usr/share/dbus-1/system.d/arraysim.conf", (common.REPO / "scripts/dbus/arraysim.conf").read_bytes())
    for name in ("arraysim", "arraysim-tcmu"):
        tree.write(f"etc/default/{name}", (DEBIAN / f"{name}.default").read_bytes())


def documents(tree: Tree, version: str, at: int) -> None:
    """Add manual pages, completions, the changelogs, and what the licences ask for."""
    for name, text in manual.pages(common.BINARY, version, at).items():
        tree.zipped(f"usr/share/man/man1/{name}", text)
    for path, text in manual.completions(common.BINARY).items():
        tree.write(path, text)
    doc = "usr/share/doc/arraysim"
    tree.write(f"{doc}/copyright", common.copyright_text())
    tree.write(f"{doc}/README.Debian", (DEBIAN / "README.Debian").read_bytes())
    tree.zipped(f"{doc}/changelog", (common.REPO / "CHANGELOG.md").read_text())
    entry = f"arraysim ({version}) unstable; urgency=medium\n\n  * See changelog.gz for what has changed.\n\n"
    tree.zipped(f"{doc}/changelog.Debian", f"{entry} -- {MAINTAINER}  {formatdate(at)}\n".replace("-0000", "+0000"))
    tree.write(f"{doc}/examples/array.yaml", manual.say(common.BINARY, "serve", "--print-config"))
    tree.write("usr/share/lintian/overrides/arraysim", OVERRIDES)


def package(root: Path, output: Path) -> Path:
    """Fill root and make the package of it."""
    made, at = common.build(), common.epoch()
    version = debian_version(made["version"])
    architecture = common.architecture(made["platform"], ARCHITECTURES)
    tree = Tree(root)
    tree.write("usr/bin/arraysim", common.BINARY.read_bytes(), 0o755)
    units(tree)
    documents(tree, version, at)
    sums = [f"{hashlib.md5(f.read_bytes()).hexdigest()}  {f.relative_to(root)}\n" for f in tree.files()]
    conffiles = [f"/{f.relative_to(root)}\n" for f in tree.files() if f.relative_to(root).parts[0] == "etc"]
    fields = {"version": version, "architecture": architecture, "maintainer": MAINTAINER, "summary": common.DESCRIPTION}
    tree.write("DEBIAN/control", CONTROL.format(kib=tree.kib(), **fields))
    tree.write("DEBIAN/md5sums", "".join(sums))
    tree.write("DEBIAN/conffiles", "".join(conffiles))
    for script in ("postinst", "prerm", "postrm"):
        tree.write(f"DEBIAN/{script}", (DEBIAN / script).read_bytes(), 0o755)
    tree.date(at)
    output.mkdir(parents=True, exist_ok=True)
    file = output / f"arraysim_{version}_{architecture}.deb"
    # One thread: the compressor's output depends on whether there are several.
    subprocess.run(
        ["dpkg-deb", "--build", "--root-owner-group", "-Zxz", "-z1", "--threads-max=1", root, file],
        env={**os.environ, "SOURCE_DATE_EPOCH": str(at)},
        stdout=subprocess.DEVNULL,
        check=True,
    )
    return file


def main() -> None:
    """Parse the command line and make the package."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=common.REPO / "bin", help="folder of the package (default: bin)")
    args = parser.parse_args()
    if shutil.which("dpkg-deb") is None:
        raise SystemExit("deb: there is no dpkg-deb: install dpkg")
    os.umask(0o022)
    with tempfile.TemporaryDirectory(prefix="arraysim-deb-") as folder:
        print(package(Path(folder) / "root", args.output))


if __name__ == "__main__":
    main()
