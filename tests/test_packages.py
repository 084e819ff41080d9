"""The Debian package and the OCI image: what they contain, and that they work where nothing else of arraysim is.

What is marked as a proof makes both and takes a minute; `make package-test` runs it. A clean Debian root is
scripts/rootfs.sh's, unpacked; bubblewrap runs commands in it, so that no mount and no process is left behind.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import shlex
import shutil
import signal
import tarfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import deb
import image
import manual
import pytest
from arrays import noise, read, same, write
from harness import REPO, Daemon, MiB, binary, run

NOBODY = 65534
UNPRIVILEGED = ["setpriv", "--clear-groups", "--no-new-privs", "--bounding-set=-all", "--inh-caps=-all"]


def test_every_command_has_a_page() -> None:
    """The manual has a page for each command, with each flag that its help shows, and nothing that roff would obey."""
    pages = manual.pages(binary(), "0.0.0", 0)
    assert len(pages) > 50
    for c in manual.commands(binary()):
        page = pages[f"{c.name}.1"]
        for flag in re.findall(r"(?m)^\s+(?:-\w, )?(--[\w-]+)", c.sections.get("Flags", "")):
            assert f"\\fB{manual.roff(flag)}\\fR" in page, f"{c.name} {flag}"
        known = r"\.(TH|SH|TP|PP|nf|fi)\b"
        assert [line for line in page.splitlines() if line[:1] in ".'" and not re.match(known, line)] == []
    assert manual.roff(".so x\n'it's-") == "\\&.so x\n\\(aqit\\(aqs\\-"


def test_versions_are_in_order() -> None:
    """What leads to a release comes before it in Debian's order, too."""
    order = ["v0.1.9", "v0.2.0-dev+0123456789ab.modified", "v0.2.0-rc.1", "v0.2.0", "v0.2.1-dev"]
    for a, b in zip(order, order[1:], strict=False):
        run(["dpkg", "--compare-versions", deb.debian_version(a), "lt", deb.debian_version(b)])


def test_maintainer_scripts_are_shell() -> None:
    """dash, which runs them, finds no fault with their syntax, and they stop at the first error."""
    for script in ("postinst", "prerm", "postrm"):
        run(["sh", "-n", deb.DEBIAN / script])
        assert "\nset -e\n" in (deb.DEBIAN / script).read_text()


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An image of a program of a few bytes, which image.py makes in no time."""
    (tmp_path / "program").write_bytes(b"program")
    made = {"version": "v1.2.3", "commit": "0" * 40, "platform": "linux/amd64"}
    monkeypatch.setattr(image.common, "BINARY", tmp_path / "program")
    monkeypatch.setattr(image.common, "build", lambda: made)
    monkeypatch.setattr(image.common, "copyright_text", lambda: "copyright")
    monkeypatch.setattr(image.common, "epoch", lambda: 1_700_000_000)


def test_image_replaces_an_image_only(small: None, tmp_path: Path) -> None:
    """What image.py finds where the image goes is replaced if it is an image of its own, and else not touched."""
    out = tmp_path / "out" / "image"
    for tag in ("1", "1", "2"):
        image.replace(out, lambda new, tag=tag: image.image(new, tag))  # type: ignore[misc]
        index = json.loads((out / "index.json").read_text())
        assert [m["annotations"]["org.opencontainers.image.ref.name"] for m in index["manifests"]] == [tag]
        for blob in (out / "blobs" / "sha256").iterdir():
            assert hashlib.sha256(blob.read_bytes()).hexdigest() == blob.name
        assert list(out.parent.iterdir()) == [out]

    def refused(folder: Path) -> None:
        def content() -> dict[str, bytes]:
            return {str(f): f.read_bytes() for f in sorted(tmp_path.rglob("*")) if f.is_file()}

        before = content()
        with pytest.raises(SystemExit, match="choose another with --output"):
            image.replace(folder, lambda new: image.image(new, "x"))
        assert content() == before

    (out / "precious").write_text("")
    refused(out)
    (out / "precious").unlink()
    manifest = next(b for b in (out / "blobs" / "sha256").iterdir() if b.read_bytes().startswith(b'{"annotations"'))
    theirs = manifest.read_bytes().replace(b'image.title":"arraysim"', b'image.title":"other"')
    assert theirs != manifest.read_bytes()
    manifest.write_bytes(theirs)
    refused(out)  # somebody else's image
    (tmp_path / "file").write_text("file")
    refused(tmp_path / "file")
    (tmp_path / "link").symlink_to(out)
    refused(tmp_path / "link")
    refused(tmp_path)


def test_image_does_not_replace_the_current_folder(
    small: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "image"
    image.replace(out, lambda new: image.image(new, "1"))
    before = sorted(tmp_path.rglob("*"))
    inside = out / "blobs"
    monkeypatch.chdir(inside)
    for name in (".", "..", "../../image", "sha256/..", out):
        with pytest.raises(SystemExit, match="is the current folder"):
            image.replace(Path(name), lambda new: image.image(new, "2"))
    assert sorted(tmp_path.rglob("*")) == before and inside.samefile(Path.cwd())
    image.replace(Path("../../other"), lambda new: image.image(new, "3"))
    assert image.ours(tmp_path / "other")


def test_image_that_fails_leaves_the_former_one(small: None, tmp_path: Path) -> None:
    out = tmp_path / "image"
    image.replace(out, lambda new: image.image(new, "1"))

    def fails(new: Path) -> None:
        image.image(new, "2")
        raise RuntimeError("no space")

    with pytest.raises(RuntimeError):
        image.replace(out, fails)
    assert image.ours(out) and 'ref.name": "1"' in (out / "index.json").read_text()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["image", "program"]


def test_image_is_the_same_each_time(small: None, tmp_path: Path) -> None:
    """The same source makes the same image, and it holds what it should, with the owners that it should have."""
    for name in ("a", "b"):
        image.replace(tmp_path / name, lambda new: image.image(new, "1"))
    assert (tmp_path / "a" / "index.json").read_bytes() == (tmp_path / "b" / "index.json").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(image.layer(image.contents(), 0))) as tar:
        found = {m.name: m for m in tar.getmembers()}
    assert (found["usr/bin/arraysim"].mode, found["usr/bin/arraysim"].uid) == (0o755, 0)
    data = found[image.DATA.lstrip("/")]
    assert data.isdir() and (data.mode, data.uid, data.gid) == (0o700, image.USER, image.USER)
    for m in found.values():
        parent = str(Path(m.name).parent)
        assert parent == "." or found[parent].isdir(), m.name


def inside(root: Path, *command: Any, user: int | None = None, ro: bool = False) -> list[str]:
    """Return a command line that runs a command with root as its file system, as root or as a user without rights."""
    mounts = ["--ro-bind" if ro else "--bind", root, "/", "--proc", "/proc", "--dev", "/dev"]
    if user is not None:
        # As the user already outside, so that files have the owners that they seem to have.
        first = [*UNPRIVILEGED, f"--reuid={user}", f"--regid={user}"]
        box = ["bwrap", "--unshare-all", "--share-net", "--uid", user, "--gid", user]
        data = root / image.DATA.lstrip("/")
        mounts += ["--bind", data, image.DATA] if ro else []
    else:
        first, box = [], ["bwrap", "--cap-add", "ALL"]
        mounts += ["--tmpfs", "/run"]
    path = ["--clearenv", "--setenv", "PATH", "/usr/sbin:/usr/bin:/sbin:/bin", "--setenv", "LC_ALL", "C.UTF-8"]
    return [str(a) for a in [*first, *box, *mounts, *path, "--die-with-parent", "--chdir", "/", "--", *command]]


def child(pid: int) -> int | None:
    """Return a process that this one has started."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            if int(stat.read_text().rpartition(")")[2].split()[1]) == pid:
                return int(stat.parent.name)
        except OSError:  # it has ended
            continue
    return None


class Boxed(Daemon):
    """A daemon in a root of its own, run as a user without rights."""

    def __init__(self, name: str, root: Path, argv: Sequence[str], user: int, ro: bool = False) -> None:
        super().__init__(name=name)
        self.root, self.argv, self.user, self.ro = root, argv, user, ro

    def command(self) -> list[Any]:
        """Return how to start it."""
        return inside(self.root, *self.argv, user=self.user, ro=self.ro)

    def signal(self, sig: int, timeout: float = 30) -> int:
        """Signal the daemon itself, and not what put it into its root."""
        assert self.proc is not None
        if not self.alive():
            return self.proc.returncode
        pid = self.proc.pid
        while below := child(pid):
            pid = below
        os.kill(pid, sig)
        return self.proc.wait(timeout)

    def kill(self) -> None:
        """End it as a crash would."""
        assert self.proc is not None
        self.proc.kill()
        self.proc.wait()


def serves(d: Daemon, tmp_path: Path) -> None:
    """A LUN is shown to libiscsi's tools, and what is written to it is read again."""
    assert "Lun:0" in run(["iscsi-ls", "-s", d.portal()]).stdout.replace(" ", "")
    assert "ARRAYSIM" in run(["iscsi-inq", d.url(0)]).stdout
    assert "Total size" in run(["iscsi-readcapacity16", d.url(0)]).stdout
    data = noise(1 * MiB, seed=1)
    write(d, 0, 100, data, tmp_path)
    same(read(d, 0, 100, 2048, tmp_path), data)


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package, as make makes it."""
    out = tmp_path_factory.mktemp("deb")
    return Path(run([REPO / "scripts/release/deb.py", "--output", out], timeout=900).stdout.strip())


@pytest.fixture
def clean_root(rootfs: Path, tmp_path: Path) -> Iterator[Path]:
    """A Debian root file system with nothing of ours."""
    root = tmp_path / "root"
    root.mkdir()
    tmp_path.chmod(0o755)
    for folder in tmp_path.parents:
        if folder != Path("/") and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)  # pytest's own, which it makes private
    run(["debugfs", "-R", f"rdump / {root}", rootfs], timeout=600)
    root.chmod(0o755)
    yield root
    shutil.rmtree(root)


def listing(root: Path) -> dict[str, str]:
    """Return what is in a root: path -> kind, or contents for files of the package's making."""
    out = {}
    for f in root.rglob("*"):
        name = str(f.relative_to(root))
        # dpkg's own books and log are no trace of a package, and a compiled unit cache none of ours.
        if not re.match(r"(var/lib/dpkg/(?!info/)|var/log/|var/cache/|run/|proc/|dev/|tmp/)", name + "/"):
            out[name] = "link" if f.is_symlink() else "folder" if f.is_dir() else "file"
    return out


@pytest.mark.proof
def test_lintian_is_content(package: Path) -> None:
    """lintian finds nothing, hints and pedantry included, but for what the package overrides with a reason."""
    # Go keeps its strings end to end, in which lintian sees misspelt words.
    silent = ["--suppress-tags", "spelling-error-in-binary"]
    r = run(["lintian", "--allow-root", "--display-info", "--pedantic", *silent, package], timeout=900)
    assert not re.search(r"(?m)^[EWIP]: ", r.text), r


@pytest.mark.proof
def test_the_package_is_reproducible(package: Path, tmp_path: Path) -> None:
    """Made again, by another time zone, language and file mode mask, it is the same byte for byte."""
    script = f"umask 077; exec {REPO}/scripts/release/deb.py --output {tmp_path}"
    env = {"TZ": "Asia/Kolkata", "LC_ALL": "C", "TMPDIR": str(tmp_path)}
    again = Path(run(["bash", "-c", script], env=env, timeout=900).stdout.strip())
    digest = [hashlib.sha256(p.read_bytes()).hexdigest() for p in (package, again)]
    assert digest[0] == digest[1] and package.name == again.name


@pytest.mark.proof
@pytest.mark.skipif(not (REPO / ".git").exists(), reason="an archive has no tags")
def test_a_tag_makes_one_package(tmp_path: Path) -> None:
    """A tag's package and image are the same whoever makes them, and an archive of it is the same version."""
    first, second, archive = (tmp_path / name for name in ("first", "second", "archive"))
    git = ["git", "-c", "user.name=tester", "-c", "user.email=tester@example.org", "-C", first]
    run(["git", "clone", "--quiet", f"file://{REPO}", first], timeout=300)
    run([*git, "commit", "--quiet", "--allow-empty", "--message", "release"])
    run([*git, "tag", "--annotate", "--message", "v9.9.9", "v9.9.9"])
    run(["git", "clone", "--quiet", "--depth", "1", "--branch", "v9.9.9", f"file://{first}", second], timeout=300)
    (second / "notes").write_text("a file that git does not know")
    archive.mkdir()
    run(["bash", "-c", f"git -C {first} archive v9.9.9 | tar -x -C {archive}"], timeout=300)

    def made(tree: Path, target: str, **env: str) -> dict[str, str]:
        run(["make", "-C", tree, *target.split()], env=env, timeout=1800)
        assert json.loads(run([tree / "bin/arraysim", "version", "--json"]).stdout)["version"] == "v9.9.9"
        files = [f for f in (tree / "bin").rglob("*") if f.is_file()]
        return {str(f.relative_to(tree)): hashlib.sha256(f.read_bytes()).hexdigest() for f in files}

    ours = made(first, "deb image", GOFLAGS="-buildvcs=false")
    assert any(name.startswith("bin/arraysim_9.9.9-1_") for name in ours)
    assert made(second, "deb image", GOFLAGS="-buildvcs=true", TZ="Asia/Kolkata") == ours
    made(archive, "build")


def test_a_package_is_of_a_commit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A binary that does not know what it was built from, as where git refuses to read the folder, is not packaged."""
    program = tmp_path / "program"
    program.write_text("""#!/bin/sh\necho '{"version": "v0.2.0-dev", "commit": "unknown"}'\n""")
    program.chmod(0o755)
    monkeypatch.setattr(image.common, "BINARY", program)
    with pytest.raises(SystemExit, match="does not know its commit"):
        image.common.build()


def exec_start(root: Path, unit: str) -> list[str]:
    """Return what systemd would execute: the unit's command with the variables of its environment file."""
    text = (root / "lib/systemd/system" / unit).read_text()
    (line,) = re.findall(r"(?m)^ExecStart=(.*)$", text)
    (file,) = re.findall(r"(?m)^EnvironmentFile=-?(.*)$", text)
    assigned = re.findall(r'(?m)^(\w+)="(.*)"$', (root / file.lstrip("/")).read_text())
    for name, value in assigned:
        line = line.replace(f"${name}", value)
    return shlex.split(line)


@pytest.mark.proof
def test_install_serve_purge(package: Path, clean_root: Path, tmp_path: Path) -> None:
    """In a clean Debian root: installed, enabled, serves as a user without rights, and leaves nothing when purged."""
    root, before = clean_root, listing(clean_root)
    shutil.copy(package, root / "tmp" / "arraysim.deb")
    run(inside(root, "dpkg", "-i", "/tmp/arraysim.deb"), timeout=300)
    assert (root / "etc/systemd/system/multi-user.target.wants/arraysim.service").is_symlink()
    assert not list((root / "etc/systemd/system").rglob("arraysim-tcmu*"))
    assert "arraysim v" in run(inside(root, "arraysim", "version", user=NOBODY)).stdout
    # What systemd thinks of the units in their place; other packages' units are not there.
    units = sorted(p.name for p in (root / "lib/systemd/system").glob("arraysim*"))
    assert units == ["arraysim-metrics.socket", "arraysim-portal.socket", "arraysim-tcmu.service", "arraysim.service"]
    r = run(["systemd-analyze", f"--root={root}", "--man=no", "verify", *units], expect=None)
    said = re.sub(r"(?m)^.*Unit (?!arraysim)\S+ not found\.$", "", r.text)
    assert not re.search(r"arraysim.*(Unknown|Failed|Invalid|ignoring|not executable)", said), r

    # The folder that systemd makes for DynamicUser= and StateDirectory=.
    private = root / "var/lib/private/arraysim-portal"
    private.mkdir(parents=True, mode=0o700)
    os.chown(private, NOBODY, NOBODY)
    (root / "var/lib/private").chmod(0o755)  # systemd has a mount of its own in place of this
    (root / "var/lib/arraysim-portal").symlink_to("private/arraysim-portal")
    d = Boxed("package", root, [], NOBODY)
    options = root / "etc/default/arraysim"
    own = f"--listen 127.0.0.1:{d.port} --metrics 127.0.0.1:{d.metrics_port}"
    options.write_text(options.read_text().replace('ARRAYSIM_OPTIONS=""', f'ARRAYSIM_OPTIONS="{own}"'))
    d.argv = exec_start(root, "arraysim.service")
    assert d.argv[:2] == ["/usr/bin/arraysim", "serve"] and "--listen" in d.argv
    with d:
        serves(d, tmp_path)
    again = Boxed("package", root, d.argv, NOBODY)
    again.port = d.port
    with again:  # the data is there; TEST UNIT READY would hear of the restart first
        data = noise(1 * MiB, seed=1)
        assert read(again, 0, 100, 2048, tmp_path) == data

    run(inside(root, "dpkg", "--remove", "arraysim"), timeout=300)
    assert private.joinpath("array.json").exists() and options.exists(), "removed is not purged"
    run(inside(root, "dpkg", "--purge", "arraysim"), timeout=300)
    (root / "var/lib/private").rmdir()  # systemd's
    after = listing(root)
    changed = {k: (before.get(k), after.get(k)) for k in before.keys() | after.keys() if before.get(k) != after.get(k)}
    assert changed == {}


def unpack(layout: Path, root: Path) -> dict[str, Any]:
    """Check an OCI layout, unpack its layers into root, and return the image's configuration."""
    assert json.loads((layout / "oci-layout").read_text()) == {"imageLayoutVersion": "1.0.0"}
    index = json.loads((layout / "index.json").read_text())
    (entry,) = index["manifests"]

    def blob(descriptor: dict[str, Any]) -> bytes:
        kind, _, digest = descriptor["digest"].partition(":")
        data = (layout / "blobs" / kind / digest).read_bytes()
        assert (hashlib.sha256(data).hexdigest(), len(data)) == (digest, descriptor["size"])
        return data

    manifest = json.loads(blob(entry))
    config = json.loads(blob(manifest["config"]))
    assert len(manifest["layers"]) == len(config["rootfs"]["diff_ids"])
    for descriptor, diff in zip(manifest["layers"], config["rootfs"]["diff_ids"], strict=True):
        tar = gzip.decompress(blob(descriptor))
        assert "sha256:" + hashlib.sha256(tar).hexdigest() == diff
        with tarfile.open(fileobj=io.BytesIO(tar)) as t:
            t.extractall(root, filter="fully_trusted")
    return config


@pytest.mark.proof
def test_the_image_runs(tmp_path: Path) -> None:
    """The image's own command, from its unpacked root, read-only but for its data: a LUN is read, the check answers."""
    layouts = [tmp_path / "one", tmp_path / "two"]
    for layout in layouts:
        run([REPO / "scripts/release/image.py", "--output", layout, "--tag", "test"], timeout=900)
    one, two = ({str(f.relative_to(o)): f.read_bytes() for f in o.rglob("*") if f.is_file()} for o in layouts)
    assert one == two, "made again, it is another one"
    root = tmp_path / "root"
    root.mkdir()
    for folder in [tmp_path, *tmp_path.parents]:
        if folder != Path("/") and not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    config = unpack(layouts[0], root)
    c = config["config"]
    for mount in ("proc", "dev"):  # the runtime makes them
        (root / mount).mkdir()
    user, _, group = c["User"].partition(":")
    assert int(user) == int(group) > 0
    argv = [*c["Entrypoint"], *c["Cmd"]]
    d = Boxed("image", root, argv, int(user), ro=True)
    for port, ours in ((image.PORTAL, d.port), (image.METRICS, d.metrics_port)):
        assert f"{port}/tcp" in c["ExposedPorts"]
        argv[argv.index(f"0.0.0.0:{port}")] = f"127.0.0.1:{ours}"
    kind, *check = c["Healthcheck"]["Test"]
    assert kind == "CMD"
    health = inside(root, *check, user=int(user), ro=True)
    run(health, expect=1)
    with d:
        serves(d, tmp_path)
        run(health)
        assert d.metrics().sum("build_info") == 1
        d.signal(signal.SIGTERM, 60)
        run(health, expect=1)
    assert (root / "var/lib/arraysim/array.json").exists()
