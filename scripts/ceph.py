#!/usr/bin/env python3
"""A throw-away Ceph cluster on loopback: a monitor and some OSDs from Debian's packages, no systemd, no manager.

    scripts/ceph.py up [FOLDER]            start one and leave it running; print how to reach it as JSON
    scripts/ceph.py down [FOLDER]          stop it and remove the folder
    scripts/ceph.py run -- COMMAND...      start one, run a command with ARRAYSIM_CEPH_CONF set, stop it
    scripts/ceph.py hold                   start one, print the JSON, do what standard input says, stop it at its end
    scripts/ceph.py missing                print what is not installed, one package a line

The daemons run in the foreground as children of this script, as nobody where it is run by root. Whatever ends the
script in `run` and `hold`, a SIGKILL included, ends them too; `up` leaves them running only when all are up. A store
in memory (memstore) is up within seconds and for tests; bluestore keeps its data in sparse files below the folder. An
OSD in memory that is killed has nothing when it is started again, and gets it from the others: `hold` waits for that.
It gets sixteen placement groups at a time: one by one, which is Ceph's default, takes three times as long. Objects in
memory are pages: a list of all writes to an object, which is the default, costs more with each of them.

A line of `hold` is a JSON list, and so is the answer, with the result or, behind a null, an error:

    ["start", "osd.1"]                     start a daemon again that has ended; the answer says how all are reached
    ["clean"]                              wait until every placement group has all of its copies
    ["ask", {"prefix": "osd stat"}]        ask the monitor as the administrator
    ["read", "NAMESPACE", "OBJECT"]        read the text of an object of the pool

The client `arraysim` may use the pool and blocklist other clients, nothing else.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import ctypes
import json
import os
import pwd
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(REPO / "tests"))
from harness import free_port  # noqa: E402

PACKAGES = {"ceph-mon": "ceph-mon", "ceph-osd": "ceph-osd", "monmaptool": "ceph-common"}
MANAGER = {"ceph-mgr": "ceph-mgr"}  # with --manager
SYSTEM_PYTHON = "/usr/bin/python3"  # the one that Debian's python3-rados, a part of ceph-common, is for
POOL, USER = "arraysim", "arraysim"
#: What would otherwise keep its last 10,000 lines in memory, for a third of an OSD's processor time.
QUIET = "osd ms monc memstore objecter auth crush throttle finisher timer heartbeatmap optracker perfcounter".split()
MARK = "arraysim-throw-away-cluster"  # a folder with this file is ours to remove
PR_SET_PDEATHSIG = 1
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

CONF = """[global]
fsid = {fsid}
mon_host = [v2:127.0.0.1:{port}]
mon_initial_members = a
auth_cluster_required = cephx
auth_service_required = cephx
auth_client_required = cephx
auth_allow_insecure_global_id_reclaim = false
keyring = {dir}/$name.keyring
run_dir = {dir}/run
log_to_stderr = false
err_to_stderr = true
admin_socket = {dir}/run/$name.asok
admin_socket_mode = 0600
log_file = {dir}/log/$name.log
{quiet}
crash_dir = {dir}/log
public_addr = 127.0.0.1
cluster_addr = 127.0.0.1
ms_bind_ipv6 = false
ms_bind_msgr1 = false
osd_heartbeat_interval = 1
osd_heartbeat_grace = {grace}
osd_pool_default_size = {size}
osd_pool_default_min_size = {min_size}
osd_pool_default_pg_autoscale_mode = off
osd_crush_chooseleaf_type = 0
mon_allow_pool_size_one = true
mon_allow_pool_delete = true
mon_warn_on_pool_no_redundancy = false
mon_max_pg_per_osd = 1000
mon_data_avail_warn = 1
mon_data_avail_crit = 0
mon_osd_min_down_reporters = 1
mon_osd_adjust_heartbeat_grace = false
mon_osd_reporter_subtree_level = osd
paxos_propose_interval = 0.2
[client]
admin_socket =
log_file =
[mon]
mon_data = {dir}/mon.a
mgr_initial_modules =
[mgr]
mgr_data = {dir}/mgr.x
[osd]
osd_data = {dir}/osd.$id
osd_objectstore = {store}
memstore_device_bytes = {memory}
bluestore_block_size = 10737418240
bluestore_block_db_create = false
bluestore_block_wal_create = false
bluestore_fsck_on_mount = false
osd_memory_target = 939524096
osd_memory_cache_min = 67108864
osd_memory_base = 268435456
osd_op_num_shards = 2
osd_op_num_threads_per_shard = 1
osd_max_pg_log_entries = 1000
osd_pg_log_dups_tracked = 1000
memstore_page_set = true
osd_max_backfills = 16
osd_recovery_max_active = 16
osd_class_load_list = *
osd_class_default_list = *
"""


def missing(manager: bool = False) -> list[str]:
    """Return the packages that a cluster needs and that are not there."""
    wanted = {**PACKAGES, **(MANAGER if manager else {})}
    absent = {package for program, package in wanted.items() if shutil.which(program) is None}
    probe = [SYSTEM_PYTHON, "-c", "import rados"]
    if not os.path.exists(SYSTEM_PYTHON) or subprocess.run(probe, capture_output=True).returncode != 0:
        absent.add("python3-rados")
    return sorted(absent)


def key() -> str:
    """Return a new cephx key: type 1, the time it was made, the length, 16 random bytes."""
    return base64.b64encode(struct.pack("<HIIH", 1, int(time.time()), 0, 16) + os.urandom(16)).decode()


def started(pid: int) -> str:
    """Return when a process started, in ticks, by which a number that was given again is told; "" if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    fields = stat[stat.rindex(")") + 2 :].split()
    return "" if fields[0] == "Z" else fields[19]


class Cluster:
    """A cluster in a folder. What it started is in run/NAME.pid: the number of the process and when it started."""

    def __init__(self, folder: Path, args: argparse.Namespace) -> None:
        self.dir, self.osds, self.store = folder, args.osds, args.store
        self.size, self.memory = args.size or min(3, args.osds), args.memory << 20
        self.grace, self.manager, self.groups = args.grace, args.manager, args.groups
        self.leave = args.what == "up"  # the daemons outlive this process
        self.children: list[subprocess.Popen[bytes]] = []
        self.commands: dict[str, tuple[str, ...]] = {}
        self.command: subprocess.Popen[bytes] | None = None  # of `run`
        self.port = free_port()  # nobody's until the monitor listens, and outside of the range that OSDs choose from
        self.user = pwd.getpwnam("nobody") if os.getuid() == 0 else None

    def up(self) -> None:
        """Start all of it; on an error nothing is left running."""
        for sub in ("run", "log", "mon.a", "mgr.x", *(f"osd.{i}" for i in range(self.osds))):
            (self.dir / sub).mkdir(parents=True, exist_ok=True)
        (self.dir / MARK).touch()
        self.dir.chmod(0o700)
        fsid = str(uuid.uuid4())
        text = CONF.format(
            fsid=fsid,
            port=self.port,
            dir=self.dir,
            size=self.size,
            min_size=max(1, self.size - 1),
            store=self.store,
            memory=self.memory,
            grace=self.grace,
            quiet="\n".join(f"debug_{name} = 0/0" for name in QUIET),
        )
        self.conf().write_text(text)
        self.make_keys()
        self.own()
        monmap, address = self.dir / "monmap", f"[v2:127.0.0.1:{self.port}]"
        self.tool("monmaptool", "--create", "--addv", "a", address, "--fsid", fsid, str(monmap))
        self.tool("ceph-mon", "--mkfs", "-i", "a", "--monmap", str(monmap), "--keyring", str(self.dir / "mon.keyring"))
        self.daemon("mon.a", "ceph-mon", "-i", "a")
        if self.manager:
            self.daemon("mgr.x", "ceph-mgr", "-i", "x")
        uuids = [str(uuid.uuid4()) for _ in range(self.osds)]
        makes = [self.spawn("ceph-osd", "-i", str(i), "--mkfs", "--osd-uuid", u) for i, u in enumerate(uuids)]
        with self.monitor() as ask:
            for i, u in enumerate(uuids):
                ask("osd new", uuid=u, id=i)
            for proc in makes:
                if proc.wait(timeout=120) != 0:
                    raise SystemExit(f"ceph: an OSD could not be made; see {self.dir}/log")
            for i in range(self.osds):
                self.daemon(f"osd.{i}", "ceph-osd", "-i", str(i))
            wait(lambda: ask("osd stat")["num_up_osds"] == self.osds, "the OSDs did not come up")
            ask("osd pool create", pool=POOL, pg_num=self.groups, pgp_num=self.groups)
            ask("osd pool application enable", pool=POOL, app="arraysim")
        self.probe()

    def conf(self) -> Path:
        return self.dir / "ceph.conf"

    def make_keys(self) -> None:
        """Write the keyrings, which only their owner can read."""
        os.umask(0o077)
        everything = "".join(
            self.keyring(name, caps)
            for name, caps in [
                ("mon.", {"mon": "allow *"}),
                ("client.admin", {"mon": "allow *", "osd": "allow *"}),
                ("mgr.x", {"mon": "allow profile mgr", "osd": "allow *"}),
                (f"client.{USER}", {"mon": "profile rbd", "osd": f"allow rwx pool={POOL}"}),
                *(
                    (f"osd.{i}", {"mon": "allow profile osd", "mgr": "allow profile osd", "osd": "allow *"})
                    for i in range(self.osds)
                ),
            ]
        )
        (self.dir / "mon.keyring").write_text(everything)
        shutil.copy(self.dir / "mon.keyring", self.dir / "mon.a.keyring")

    def keyring(self, name: str, caps: dict[str, str]) -> str:
        text = f"[{name}]\n\tkey = {key()}\n" + "".join(f'\tcaps {k} = "{v}"\n' for k, v in caps.items())
        (self.dir / f"{name}.keyring").write_text(text)
        return text

    def own(self) -> None:
        """Give the folder to who runs the daemons."""
        if self.user:
            for path in [self.dir, *self.dir.rglob("*")]:
                os.chown(path, self.user.pw_uid, self.user.pw_gid)

    def spawn(self, *command: str) -> subprocess.Popen[bytes]:
        """Start a program without privileges; it ends with this process unless it is to outlive it."""
        parent, leave = os.getpid(), self.leave

        def tie() -> None:
            if not leave:
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != parent:
                    os._exit(1)

        env = {"PATH": os.environ.get("PATH", "/usr/sbin:/usr/bin:/sbin:/bin"), "CEPH_CONF": str(self.conf())}
        who = {"user": self.user.pw_uid, "group": self.user.pw_gid, "extra_groups": []} if self.user else {}
        with (self.dir / "log" / "output").open("ab") as log:
            proc = subprocess.Popen(
                command,
                cwd=self.dir,
                env=env,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=tie,
                **who,
            )
        self.children.append(proc)
        return proc

    def tool(self, *command: str) -> None:
        if self.spawn(*command).wait(timeout=60) != 0:
            raise SystemExit(f"ceph: {command[0]} failed; see {self.dir}/log/output")

    def daemon(self, name: str, *command: str) -> None:
        self.commands[name] = command
        proc = self.spawn(*command, "-f")
        (self.dir / "run" / f"{name}.pid").write_text(f"{proc.pid} {started(proc.pid)}\n")

    @contextlib.contextmanager
    def client(self) -> Iterator[object]:
        """Connect as the administrator."""
        import rados

        c = rados.Rados(conffile=str(self.conf()), name="client.admin")
        try:
            c.connect(timeout=30)
            yield c
        finally:
            c.shutdown()

    @contextlib.contextmanager
    def monitor(self) -> Iterator[object]:
        """Yield a function that asks the monitor, without the 0.3 to 1.4 s that a start of the ceph tool takes."""
        with self.client() as c:

            def ask(prefix: str, **args: object) -> object:
                code, out, text = c.mon_command(json.dumps({"prefix": prefix, "format": "json", **args}), b"")
                if code:
                    raise SystemExit(f"ceph: {prefix}: {code} {text}")
                return json.loads(out) if out.strip() else None

            yield ask

    def probe(self) -> None:
        """Wait until every placement group takes writes."""
        with self.client() as c:
            io = c.open_ioctx(POOL)
            names = [f"probe.{i}" for i in range(64)]
            for op in [io.aio_write_full(n, b"x") for n in names] + [io.aio_remove(n) for n in names]:
                op.wait_for_complete()
            io.close()

    def again(self, name: str) -> None:
        """Start a daemon again that has ended."""
        if name not in self.commands:
            raise SystemExit(f"ceph: there is no {name}")
        pid, since = (self.dir / "run" / f"{name}.pid").read_text().split()
        wait(lambda: started(int(pid)) != since, f"{name} does not end", 5)
        self.daemon(name, *self.commands[name])

    def clean(self, seconds: float = 180) -> None:
        """Wait until every placement group has all of its copies. There may be no manager to ask: the groups are."""
        with self.client() as c:
            left = [f"{c.pool_lookup(POOL)}.{i:x}" for i in range(self.groups)]

            def done() -> bool:
                while left:
                    code, out, _ = c.pg_command(
                        left[-1], json.dumps({"prefix": "query", "pgid": left[-1]}), b"", timeout=5
                    )
                    if code or json.loads(out)["state"] != "active+clean":
                        return False
                    left.pop()
                return True

            wait(done, "the cluster is not clean", seconds)

    def read(self, namespace: str, name: str) -> str:
        """Read an object of the pool."""
        with self.client() as c:
            io = c.open_ioctx(POOL)
            io.set_namespace(namespace)
            try:
                return io.read(name, 4 << 20).decode()
            finally:
                io.close()

    def obey(self, line: str) -> object:
        """Do what a line of `hold` says."""
        what, *args = json.loads(line)
        if what == "start":
            self.again(*args)
            return self.about()
        if what == "clean":
            return self.clean(*args)
        if what == "ask":
            with self.monitor() as ask:
                return ask(**args[0])
        if what == "read":
            return self.read(*args)
        raise SystemExit(f"ceph: hold cannot {what}")

    def hold(self) -> None:
        """Do what the lines of standard input say, until it ends."""
        for line in sys.stdin:
            try:
                answer = [self.obey(line)]
            except (Exception, SystemExit) as e:
                answer = [None, f"{type(e).__name__}: {e}"]
            print(json.dumps(answer), flush=True)

    def follow(self, command: list[str]) -> int:
        """Run a command to its end, and return its status."""
        self.command = subprocess.Popen(command, env={**os.environ, "ARRAYSIM_CEPH_CONF": str(self.conf())})
        return self.command.wait()

    def stop(self) -> None:
        """End the command and the daemons, and remove the folder."""
        if self.command and self.command.poll() is None:
            self.command.terminate()
            try:
                self.command.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self.command.kill()
        for child in self.children:
            if child.poll() is None:
                child.kill()
                child.wait()
        shutil.rmtree(self.dir, ignore_errors=True)

    def end_by(self, number: int, _: object) -> None:
        """End by a signal. An exception would not do: the bindings of librados lose it."""
        for n in SIGNALS:
            signal.signal(n, signal.SIG_IGN)
        self.stop()
        os._exit(128 + number)

    def about(self) -> dict[str, object]:
        """Say how to reach it."""
        pids = {p.stem: int(p.read_text().split()[0]) for p in sorted((self.dir / "run").glob("*.pid"))}
        ring = str(self.dir / f"client.{USER}.keyring")
        return {"conf": str(self.conf()), "keyring": ring, "pool": POOL, "user": USER, "pids": pids}


def down(folder: Path) -> None:
    """Kill what runs in a folder and remove it."""
    if not (folder / MARK).exists():
        raise SystemExit(f"ceph: {folder} is no cluster of this script")
    running = []
    for file in (folder / "run").glob("*.pid"):
        pid, since = file.read_text().split()
        if started(int(pid)) == since:
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)
            running.append((int(pid), since))
    wait(lambda: all(reaped(pid) or started(pid) != since for pid, since in running), "daemons that were killed remain")
    shutil.rmtree(folder, ignore_errors=True)


def reaped(pid: int) -> bool:
    """Collect a child that has ended."""
    with contextlib.suppress(ChildProcessError):
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    return False


def wait(done: object, what: str, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise SystemExit(f"ceph: {what} within {seconds:.0f} s")
        time.sleep(0.05)


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["up", "down", "run", "hold", "missing"])
    parser.add_argument("folder", nargs="?", type=Path, help="default: .cache/ceph; of run and hold, a temporary one")
    parser.add_argument("--osds", type=int, default=1)
    parser.add_argument("--size", type=int, help="copies of each object (default: 3, or the number of OSDs)")
    parser.add_argument("--store", choices=["memstore", "bluestore"], default="memstore")
    parser.add_argument(
        "--grace", type=int, default=6, help="seconds without a heartbeat that an OSD is down after (6)"
    )
    parser.add_argument("--manager", action="store_true", help="start one as well: without it no quota takes effect")
    parser.add_argument("--groups", type=int, default=32, help="placement groups (32)")
    parser.add_argument("--memory", type=int, default=4096, metavar="MIB", help="that a memstore may have (4096)")
    at = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    args = parser.parse_args(sys.argv[1:at])
    args.command = sys.argv[at + 1 :]
    if (args.what == "run") != bool(args.command):
        parser.error("run, and nothing else, takes a command behind --")
    return args


def main() -> int:
    args = options()
    if args.what == "missing":
        print("".join(f"{package}\n" for package in missing(args.manager)), end="")
        return 0
    if args.what == "down":
        down((args.folder or REPO / ".cache" / "ceph").resolve())
        return 0
    if absent := missing(args.manager):
        raise SystemExit(f"ceph: not installed: {', '.join(absent)}; run scripts/setup.sh")
    if args.folder or args.what == "up":
        folder = (args.folder or REPO / ".cache" / "ceph").resolve()
        if folder.exists() and any(folder.iterdir()):
            raise SystemExit(f"ceph: {folder} is not empty; if a cluster is there:  scripts/ceph.py down {folder}")
    else:
        folder = Path(tempfile.mkdtemp(prefix="arraysim-ceph-"))
    cluster = Cluster(folder, args)
    for number in SIGNALS:  # also where a shell has them ignored
        signal.signal(number, cluster.end_by)
    stays = False
    try:
        cluster.up()
        print(json.dumps(cluster.about()), flush=True, file=sys.stderr if args.what == "run" else sys.stdout)
        stays = cluster.leave
        if args.what == "run":
            return cluster.follow(args.command)
        if args.what == "hold":
            cluster.hold()
        return 0
    except BaseException:
        if (output := folder / "log" / "output").exists():
            sys.stderr.write("".join(output.read_text(errors="replace").splitlines(keepends=True)[-20:]))
        raise
    finally:
        if not stays:
            cluster.stop()


if __name__ == "__main__":
    if "rados" not in sys.modules and os.path.realpath(sys.executable) != os.path.realpath(SYSTEM_PYTHON):
        try:
            import rados  # noqa: F401
        except ImportError:
            if os.path.exists(SYSTEM_PYTHON):
                os.execv(SYSTEM_PYTHON, [SYSTEM_PYTHON, *sys.argv])
    sys.exit(main())
