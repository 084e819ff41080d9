#!/usr/bin/env python3
"""Runs what `make test` consists of, part beside part, and prints what each took against its budget.

    scripts/test.py                 everything
    scripts/test.py quick           under 5 minutes: no race detector, no slow cases, no guest
    scripts/test.py --only go,vm    some parts, with what they need
    scripts/test.py FILE...         one file or folder: a test of the guest, a test of the tools, a Go package
    scripts/test.py --list          the parts, their budgets and their commands

A part starts when the parts that it needs have passed and a processor is free for it, the longest way to the
end first: by the budgets, so that what is short comes last, and the last part seldom runs alone. One that keeps time
to nobody but itself runs from the beginning at low priority, and has what the others leave of the processors. A
part's output is in .cache/test/NAME.log and is shown when the part ends: whole when it failed, its last lines when
it passed. One failure does not stop the others. What a part skipped did not pass: it is counted beside the part, and
listed below the table with the reason; a part of which nothing else is left counts as skipped. A budget is what a
part takes beside the others, on two cores that do nothing else, and a half more; a part beyond it is marked, and fails
nothing. Beside it stands the processor time that the part's processes took, which depends less on what else the
machine does.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]
LOGS = REPO / ".cache" / "test"
VENV = REPO / ".cache" / "venv" / "bin"
GO = os.environ.get("GO", "go")

#: Packages in which goroutines meet. The others are single-threaded, or share too little for ten times the time, or
#: cost more to compile and link under the detector than it can find in them: internal/lint holds them to that, and has
#: the reasons. `make prove` asks the race detector about all.
CONCURRENT = """./handlers/... ./tcmu/... ./internal/admin/... ./internal/block/... ./internal/buffers
 ./internal/cachedaemon ./internal/demo ./internal/history ./internal/iscsi/... ./internal/link ./internal/lun/...
 ./internal/metrics ./internal/metrics/exposition ./internal/replay ./internal/store/...
 ./internal/testkit/... ./internal/zerobench""".split()

#: What `make test-quick` leaves to `make test` beside what is marked slow or says so by testing.Short: a test of Go
#: that computes for a second on an idle core, or waits for two. Its package has others of the same code that take less.
LONG = """TestAdvanceInSteps TestAuditsOfTwoSpaces TestBadKinds TestCachedReads TestCommandThatWaits
 TestCommandsOfSeveralRecordsKeepTheLogWhole TestCompareLengths TestCopyBeneathCaches TestCopyOfAnotherTime
 TestDamagedImagesNeverPanic TestDeathInADescriptorOfAStart TestDeathsOfAStartThatFindsDamage TestDestagingIsOutrun
 TestDeviceOperations TestDiscardsAndDeaths TestEndsWhileHeld TestErasures TestEverFits TestEveryCopyIsRead
 TestEveryOperation TestEveryPoolIsAdmitted TestEverySourceTellsTheSame TestEverythingBeside TestFairAdmission
 TestFirstStartsAndPowerCuts TestFullStop TestGroupsStandAlone TestGuestMoves
 TestHistoryHasNumbers TestHostileInitiator TestHostsAreNotAccused TestHostsOfModelAreNotAccused TestLargeCheckpoints
 TestLookStaysAsItWas TestManyCommandsAtOnce TestManyCommandsOverBadPages TestManyCommandsUnderEveryPolicy
 TestManyDeathsInAFullPool TestMetaKills TestMissingCountersAreNoFindings TestNobodyHeardOfWhatIsLost
 TestNobodyIsForgotten TestNothingAboveTheFloorIsMissed TestNothingLandsAfterAFence TestNumberOfTwoBatches
 TestOrdersOfOneBlock TestPrecisionAndRecall TestPrecisionAndRecallOfModel
 TestRandomCopiesOverGroups TestRandomRequestsAreWithdrawn TestRegionFailures TestSilentHostWhileHeld
 TestStartWaitsForRoom TestTableIsWhatOneCacheGives TestTakeoverControls TestTakeoverFences
 TestThrottleHoldsAnyNumberOfWriters TestToldIsAsGoodAsCompared TestTornCommands TestTornStateThenPowerLoss""".split()

#: Tests that count allocations, of which the detector makes its own. Others do the same under it.
UNCOUNTED = ["TestNoAllocations"]

#: Tests of these that show less under the detector, which takes more memory and keeps less of it, or not there, where
#: no Parquet is linked: also without it.
UNRACED = """TestTableHasAllFamilies TestThousandLUNs""".split()

#: Tests of these that compute, most of them in virtual time on one goroutine, and take ten times as long under the
#: detector: they run without it. `make prove` asks it about them, too.
COMPUTES = """TestBounds TestCostOfHeld TestDiscardsAndDeaths TestFullStop TestHandOver TestLookStaysAsItWas
 TestManyDeathsInAFullPool TestMapKills TestMemoryRegion TestMetaKills TestMetadataAreBounded
 TestQueueOrder TestReadCacheIsLRU TestRegionFailures TestRegionOverDisk TestRegionSimulated TestRemote
 TestReserveIsEnough TestStartInAFullPool TestTableIsWhatOneCacheGives TestTagTable TestTakeoverControls
 TestTakeoverFences TestTakeovers TestToldIsAsGoodAsCompared TestVirtual""".split()

#: The raced packages that have one of all these.
BESIDES = """./internal/admin ./internal/block/blocktest ./internal/history ./internal/iscsi ./internal/replay
 ./internal/store ./internal/store/rados ./internal/store/storetest""".split()

#: What has to be the same wherever Go compiles, so that nothing is compiled twice: nothing for debuggers, which takes
#: a seventh of the compiler's time, and no C where the race detector does not need it.
FLAGS = {"GOFLAGS": "-trimpath -gcflags=all=-dwarf=false"}
PLAIN = {"CGO_ENABLED": "0"} | FLAGS

#: The race detector watches this project and what it uses of the standard library, whose locks and channels it knows
#: anyway. What others have written is compiled without it, and without inlining: the compiler takes a third less, and
#: what runs is faster. `make prove` asks it about all. Of several patterns that fit a package, the last one counts.
#: What the standard library has around our code, and not in its loops, is watched, and not inlined either. Nor is what
#: of our own answers few requests, or is linked and hardly runs: the compiler takes three fifths of the time for it.
AROUND = """crypto/tls crypto/x509 database/... debug/... encoding/json encoding/xml go/... html/... net/http/...
 text/... vendor/...""".split()
AROUND += [
    f"github.com/arraysim/arraysim/internal/{name}"
    for name in "admin cachedaemon demo hostcache/... sim zerobench".split()
]
#: No raced package has a test of what the tag leaves out, as Parquet: without it they would compile 54 packages more.
#: Names of hosts and users are looked up without C, as in the product.
RACE = ["-race", "-tags", "noparquet,netgo,osusergo", "-gcflags=all=-dwarf=false -race=false -l"]
RACE += [f"-gcflags={ours}=-dwarf=false" for ours in ("std", "github.com/arraysim/...")]
RACE += [f"-gcflags={some}=-dwarf=false -l" for some in AROUND]

#: Where there is C, Pebble imports a library in C that compresses, and nothing here has it compress anything. A module
#: in Go stands for it: the one in C takes eight seconds to compile.
STANDS_IN = "github.com/DataDog/zstd => ./scripts/race/zstd"
C_FLAGS = {"CGO_CFLAGS": "-O0"}

#: Python keeps what it has compiled, whatever the environment says: the tests start some hundred programs that import
#: the same modules, and would compile them each time.
BYTECODE = {"PYTHONDONTWRITEBYTECODE": ""}

#: Compilers that collect garbage seldom take two thirds of the time; the tests themselves run as they do elsewhere, but
#: for those of Go that compute without the race detector: it saves a tenth to a sixth of their time. The limit is soft.
#: Nobody reads a profile of their memory: without samples of it they take a fiftieth less.
COMPILE = {"GOGC": "400"}
UNSAMPLED = "GODEBUG=memprofilerate=0"
SELDOM = ["-exec", f"env GOMEMLIMIT=1536MiB {UNSAMPLED}"]
# The limit is ten times what the longest takes on two idle cores.
# The script says which tests were skipped; go test is silent about them.
TEST = ["scripts/gotest.py", GO, "test", "-exec", f"env -u GOGC {UNSAMPLED}", "-timeout", "1h"]

#: Beside the part lint, which vets everything, and for nobody who would use a debugger: a test is neither vetted
#: again, with and without the race detector, nor linked with its debugging data and symbols.
LEAN = [*TEST, "-vet=off", "-ldflags=-s"]

#: The tests with real tools wait for most of their time: three processes keep one processor busy. A file stays
#: in one of them, the files go in the order of collection, which tests/conftest.py makes.
TOOLS = [str(VENV / "pytest"), "tests", "-n", "3", "--dist", "loadfile", "--no-loadscope-reorder"]

#: Of `make test-quick` they are what takes longest, and a fourth process fills what the other parts leave.
QUICK_TOOLS = [*TOOLS, "-n", "4", "-m", "not slow"]


@dataclass
class Part:
    """One part: a command, what must have passed before it, processors that it keeps busy, its budget in seconds.

    A part that waits more than it computes, for timers and for disks, keeps less than one processor busy.
    """

    name: str
    command: Sequence[str]
    budget: int
    needs: tuple[str, ...] = ()
    cores: float = 1
    env: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None
    processor: float = 0
    status: int | None = None
    skipped: list[tuple[int, str]] = field(default_factory=list)  # how many, which and why
    empty: bool = False  # all of its tests were skipped

    def log(self) -> Path:
        """Where its output goes."""
        return LOGS / f"{self.name}.log"

    def ended(self) -> str:
        """How it ended, with how much of it was skipped."""
        if self.status != 0:
            return f"FAILED ({self.status})"
        n = sum(n for n, _ in self.skipped)
        return "skipped" if self.empty else "passed" + (f", {n} skipped" if n else "")


#: How pytest, here and in a guest, gotest.py and the scripts of lint say that something was skipped.
SKIPPED = re.compile(r"\bSKIPPED \[(\d+)\] (.+)")
#: The sums of pytest, and of gotest.py, where there is nothing but what was skipped.
NOTHING_ELSE = re.compile(r"^(=* ?\d+ skipped(, \d+ deselected)? in |0 passed, \d+ skipped$)", re.MULTILINE)


def skipped(text: str) -> tuple[list[tuple[int, str]], bool]:
    """Return what a part skipped, by its output, and whether that is all."""
    return [(int(n), why.strip()) for n, why in SKIPPED.findall(text)], NOTHING_ELSE.search(text) is not None


def fetch_modules() -> None:
    """Have Go's modules here before anything compiles; a download that breaks off is begun again, and Go does not."""
    for folder in (REPO, REPO / "scripts" / "lint"):
        for left in (2, 1, 0):
            if subprocess.run([GO, "mod", "download"], cwd=folder, check=left == 0).returncode == 0:
                break
            time.sleep(5)


def go_packages(concurrent: bool) -> list[str]:
    """Return the Go packages whose tests run with (True) or without the race detector."""
    every = subprocess.run([GO, "list", "./..."], cwd=REPO, capture_output=True, text=True, check=True).stdout.split()
    raced = subprocess.run([GO, "list", *CONCURRENT], cwd=REPO, capture_output=True, text=True, check=True).stdout
    return [p for p in every if (p in raced.split()) == concurrent]


def either(tests: list[str]) -> str:
    """Return the pattern of these tests."""
    return f"^({'|'.join(tests)})$"


def race_module() -> str:
    """Write a go.mod for the race detector, and return the flag that names it: without C libraries that nobody uses."""
    LOGS.mkdir(parents=True, exist_ok=True)
    module = LOGS / "race.mod"
    module.write_text((REPO / "go.mod").read_text() + f"\nreplace {STANDS_IN}\n")
    module.with_suffix(".sum").write_text((REPO / "go.sum").read_text())
    return f"-modfile={module}"


def full() -> list[Part]:
    """Return the parts of `make test`."""
    plain = [p for p in go_packages(concurrent=False) if not p.endswith("/sim")]
    return [
        Part("setup", ["scripts/setup.sh"], 90),
        Part("image", ["scripts/rootfs.sh"], 70, ("setup",), cores=0.5),
        Part("root", ["scripts/vm/root.py"], 120, ("image",)),
        Part("build", ["make", "--no-print-directory", "build"], 160),
        Part("plugin", ["make", "--no-print-directory", "plugin"], 60, ("setup", "build")),  # needs a C compiler
        Part("lint", ["scripts/lint.sh"], 400, ("setup", "build"), cores=0.5, env=PLAIN),
        # Compiles and links a good third of the packages anew, and takes several times as long in each. It waits for
        # more than half of its time, and so three packages run at a time: it takes the longest, and comes first.
        Part(
            "race",
            [*LEAN, *RACE, race_module(), "-p", "3", "-skip", either(UNCOUNTED + COMPUTES), *CONCURRENT],
            650,
            ("setup",),
            cores=0.75,
            env={"GOFLAGS": "-trimpath"} | C_FLAGS | COMPILE,
        ),
        # It could begin before setup has ended, and would hold up the race detector, which takes the longest.
        Part("go", [*LEAN, *SELDOM, *plain], 350, ("setup", "build"), env=PLAIN | COMPILE),
        Part(
            "unraced",
            [
                *LEAN,
                "-run",
                either(UNCOUNTED + UNRACED + COMPUTES),
                *BESIDES,
            ],
            100,
            ("build",),
            env=PLAIN | COMPILE,
        ),
        # It has no clock but its own, and one thread: as the last part it would leave a core idle.
        Part(
            "sim",
            ["nice", "-n", "1", *LEAN, *SELDOM, "./internal/sim"],
            650,
            ("build",),
            cores=0,
            env=PLAIN | COMPILE,
        ),
        Part("tools", TOOLS, 600, ("setup", "build", "image"), cores=0.75),
        Part("rados", ["make", "--no-print-directory", "rados-smoke"], 100, ("setup", "build"), cores=0.5),
        Part("vm", ["scripts/vm/run.py", "--limit", "3600", "-m", "not slow"], 620, ("plugin", "root")),
    ]


def quick() -> list[Part]:
    """Return the parts of `make test-quick`."""
    return [
        Part("setup", ["scripts/setup.sh"], 45),
        Part("build", ["make", "--no-print-directory", "build"], 60),
        # Packages that wait for timers leave a processor to others.
        Part(
            "go",
            [*LEAN, *SELDOM, "-short", "-skip", f"^({'|'.join(LONG)})$", "-p", "3", "./..."],
            120,
            ("build",),
            env=PLAIN | COMPILE,
        ),
        Part("tools", QUICK_TOOLS, 110, ("setup", "build")),
        Part("lint", ["scripts/lint.sh"], 60, ("setup", "build"), cores=0.5, env=PLAIN),
    ]


def some(files: list[str]) -> list[Part]:
    """Return the parts that test these files or folders."""
    guest = [f for f in files if f.startswith("tests/vm/")]
    tools = [f for f in files if f.startswith("tests/") and f not in guest]
    go = sorted({_package(f) for f in files if f not in guest + tools})
    # The plugin is a build of its own, and one file of the guest loads it.
    plugin = ["plugin"] if any("test_plugin" in f or not f.endswith(".py") for f in guest) else []
    parts = [Part("build", ["make", "--no-print-directory", "build", *plugin], 60)] if guest or tools else []
    if guest:
        parts.append(Part("vm", ["scripts/vm/run.py", *guest], 300, ("build",)))
    if tools:
        parts.append(Part("tools", [str(VENV / "pytest"), *tools], 300, ("build",)))
    if go:
        parts.append(Part("go", [*TEST, *go], 300, env=PLAIN | COMPILE))
    return parts


def _package(file: str) -> str:
    path = Path(file.removeprefix("./"))
    if not (REPO / path).exists():
        raise SystemExit(f"test: there is no {file}: name a test file, or the folder of a Go package")
    return f"./{path.parent if path.suffix == '.go' else path}"


#: Half a processor that there is not: a part that waits for most of its time runs beside those that keep all busy, and
#: what they leave when they wait is enough for it. In a place of its own it would hold up a part of minutes.
BESIDE = 0.5


class Runner:
    """Runs parts on a number of processors and shows how it goes."""

    def __init__(self, parts: list[Part], cores: int) -> None:
        self.parts, self.cores = parts, cores
        self.free: float = cores + BESIDE
        self.start = time.monotonic()
        self.changed = threading.Condition()
        self.running: dict[str, subprocess.Popen[bytes]] = {}

    def weight(self, part: Part) -> float:
        """The longest way from a part's start to the end, by the budgets."""
        behind = [self.weight(p) for p in self.parts if part.name in p.needs]
        return part.budget + max(behind, default=0)

    def ready(self) -> list[Part]:
        """Return the parts that could start now, the most urgent first."""
        passed = {p.name for p in self.parts if p.status == 0}
        new = [p for p in self.parts if p.status is None and p.name not in self.running]
        can = [p for p in new if set(p.needs) <= passed and min(p.cores, self.cores) <= self.free]
        return sorted(can, key=lambda p: -self.weight(p))

    def run(self) -> bool:
        """Run all parts; report whether all passed."""
        LOGS.mkdir(parents=True, exist_ok=True)
        with self.changed:
            while True:
                for part in self.ready():
                    cores = min(part.cores, self.cores)
                    if cores <= self.free:
                        self.free -= cores
                        self.begin(part, cores)
                if not self.running:
                    break
                self.changed.wait()
        return all(p.status == 0 for p in self.parts)

    def begin(self, part: Part, cores: float) -> None:
        """Start a part and a thread that waits for its end."""
        self.say(f"== {part.name}: {short(part.command)}")
        log = part.log().open("wb")
        proc = subprocess.Popen(
            part.command,
            cwd=REPO,
            env={**os.environ, **BYTECODE, **part.env},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        log.close()
        self.running[part.name] = proc
        threading.Thread(target=self.wait, args=(part, proc, cores, time.monotonic()), daemon=True).start()

    def wait(self, part: Part, proc: subprocess.Popen[bytes], cores: float, began: float) -> None:
        """Wait for a part's end, show it, and let others start."""
        _, ended, used = os.wait4(proc.pid, 0)
        status = proc.returncode = os.waitstatus_to_exitcode(ended)
        with self.changed:
            part.status, part.seconds = status, time.monotonic() - began
            part.processor = used.ru_utime + used.ru_stime
            del self.running[part.name]
            self.free += cores
            text = part.log().read_text(errors="replace")
            part.skipped, part.empty = skipped(text)
            lines = text.splitlines()
            # A part that failed is shown whole, within reason: its first words and its last.
            shown = lines[-6:] if status == 0 else lines if len(lines) < 400 else [*lines[:100], "...", *lines[-300:]]
            self.say(f"-- {part.name}: {part.ended()} after {part.seconds:.0f} s")
            print("\n".join(f"   {line}" for line in shown), flush=True)
            self.changed.notify()

    def say(self, text: str) -> None:
        """Print a line with the time since the start."""
        print(f"[{time.monotonic() - self.start:5.0f} s] {text}", flush=True)

    def stop(self) -> None:
        """End what runs."""
        for proc in self.running.values():
            os.killpg(proc.pid, signal.SIGTERM)

    def table(self) -> str:
        """Return what each part took against its budget."""
        lines = [f"{'part':<8} {'s':>5} {'budget':>7} {'cpu s':>6}"]
        for p in self.parts:
            if p.status is None:
                lines.append(f"{p.name:<8} {'':>5} {p.budget:>7} {'':>6}  not run")
                continue
            late = f"over its budget by {p.seconds - p.budget:.0f} s" if p.seconds > p.budget else ""
            lines.append(
                f"{p.name:<8} {p.seconds:>5.0f} {p.budget:>7} {p.processor:>6.0f}  {p.ended()} {late}".rstrip()
            )
        used = sum(p.processor for p in self.parts)
        return "\n".join([*lines, f"{'all':<8} {time.monotonic() - self.start:>5.0f} {'':>7} {used:>6.0f}"])

    def left_out(self) -> str:
        """Return how much was skipped, and what: a line for each part and reason."""
        all_ = [(p.name, n, why) for p in self.parts for n, why in p.skipped]
        if not all_:
            return "nothing skipped"
        lines = [f"   {name:<8} {n:>3}  {why}" for name, n, why in all_]
        return "\n".join([f"{sum(n for _, n, _ in all_)} skipped:", *lines])


def short(command: Sequence[str]) -> str:
    """Return a command as a line of the output."""
    text = shlex.join(command)
    return text if len(text) <= 100 else text[:97] + "..."


def main() -> int:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", metavar="quick | FILE", help="default: everything")
    parser.add_argument("--only", metavar="PARTS", help="these parts and what they need, with commas between them")
    parser.add_argument("--list", action="store_true", help="print the parts and run nothing")
    args = parser.parse_args()
    fetch_modules()
    parts = full() if not args.what else quick() if args.what == ["quick"] else some(args.what)
    if args.only:
        wanted: set[str] = set()
        queue = args.only.split(",")
        by_name = {p.name: p for p in parts}
        while queue:
            if (name := queue.pop()) not in by_name:
                parser.error(f"no part {name}; there are {', '.join(by_name)}")
            wanted.add(name)
            queue += by_name[name].needs
        parts = [p for p in parts if p.name in wanted]
    if args.list:
        for p in parts:
            print(f"{p.name:<8} {p.budget:>4} s  {' '.join(p.needs):<12}  {short(p.command)}")
        return 0
    runner = Runner(parts, os.cpu_count() or 1)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    passed = False
    try:
        passed = runner.run()
    except KeyboardInterrupt:
        return 130
    finally:
        runner.stop()
        print(f"\n{runner.table()}  {'passed' if passed else 'FAILED'}, {runner.left_out()}", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
