"""What leaves the array for other tools: tables, iostats, Prometheus with rules and dashboards."""

from __future__ import annotations

import json
import re
import time
import urllib.parse
import urllib.request
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from arrays import noise
from harness import REPO, Config, Daemon, GiB, MiB, Pool, Server, ToolError, Volume, binary, run
from later import Later

if TYPE_CHECKING:
    import duckdb
    import pandas as pd
else:
    duckdb, pd = Later("duckdb"), Later("pandas")

MONITORING = REPO / "scripts" / "monitoring"

#: A pool that copies data, so that a clone shows below the host layer.
ARRAY = Config(
    pools=[Pool("gold"), Pool("silver", copy="data")],
    volumes=[
        Volume("master", 0, pool="silver", size=GiB),
        Volume("clone", 1, pool="silver", size=GiB),
        Volume("db", 2, pool="gold"),
    ],
)
CLONED = 64 * MiB

#: What enters the cache is there, or has left it in one of three ways.
SIGNS = {
    "admitted_bytes_total": 1,
    "recovered_bytes_total": 1,
    "dirty_bytes": -1,
    "destaged_bytes_total": -1,
    "overwritten_bytes_total": -1,
    "discarded_bytes_total": -1,
}


def work(array: Daemon, tmp: Path, seed: int = 1) -> None:
    """Write, zero and clone: something for every counter."""
    image = tmp / "image"
    image.write_bytes(noise(CLONED, seed))
    run(["qemu-img", "convert", "-f", "raw", "-O", "raw", "-n", image, array.url(0)])
    run(["qemu-img", "convert", "-C", "-f", "raw", "-O", "raw", "-n", array.url(0), array.url(1)])
    array.sg("sg_write_same", "--16", "--lba=0", "--num=2048", "/dev/sg2")
    array.sg("sg_unmap", "--force", "--lba=0", "--num=2048", "/dev/sg2")


@pytest.fixture(scope="module")
def export(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Daemon, Path]]:
    """An array that has worked, and its counters in each form."""
    out = tmp_path_factory.mktemp("export")
    with Daemon(ARRAY, "export") as array:
        work(array, out)
        for name, more in {
            "run.csv": [],
            "run.parquet": [],
            "esxtop.csv": ["--format", "esxtop"],
            "iostats": ["--format", "iostats", "--interval", "1s"],
        }.items():
            array.cli("counters", "export", "--count", 2, "--interval", "100ms", "--out", out / name, *more)
        yield array, out


def undercover(frame: pd.DataFrame) -> dict[str, float]:
    """The undercover bytes of each volume in the last snapshot of a table."""
    last = frame[frame.time == frame.time.max()]
    rows = last[last.family == "arraysim_undercover_write_bytes_total"]
    return {v: n for v, n in rows.groupby("volume").value.sum().items() if n}


def test_pandas_reads_both(export: tuple[Daemon, Path]) -> None:
    _, out = export
    frames = {
        "csv": pd.read_csv(out / "run.csv", parse_dates=["time"], keep_default_na=False),
        "parquet": pd.read_parquet(out / "run.parquet"),
    }
    for name, f in frames.items():
        assert f.time.nunique() == 2, name
        assert str(f.time.dt.tz) == "UTC", name
        assert f.value.dtype == "float64", name
        assert set(f.layer) >= {"host", "offload", "cache", "backend", "array"}, name
        assert undercover(f) == {"clone": CLONED}, name
    assert list(frames["csv"].columns[:3]) == ["time", "layer", "family"]
    assert set(frames["csv"].columns) == set(frames["parquet"].columns)


def test_duckdb_reads_both(export: tuple[Daemon, Path]) -> None:
    _, out = export
    for name in ("run.csv", "run.parquet"):
        rows = duckdb.sql(
            f"select volume, max(value) from '{out / name}' "
            "where family = 'arraysim_undercover_write_bytes_total' group by volume having max(value) > 0"
        ).fetchall()
        assert rows == [("clone", CLONED)], name
        # Conservation, by SQL over the exported table.
        families = "'arraysim_cache_" + "', 'arraysim_cache_".join(SIGNS) + "'"
        signs = " ".join(f"when 'arraysim_cache_{f}' then {sign} * value" for f, sign in SIGNS.items())
        bad = duckdb.sql(
            f"select pool, volume, origin from '{out / name}' where family in ({families}) "
            f"and time = (select max(time) from '{out / name}') "
            f"group by all having sum(case family {signs} end) <> 0"
        ).fetchall()
        assert bad == [], name


class Recording(Daemon):
    """A daemon that records its counters."""

    def command(self) -> list[Any]:
        return [*super().command(), "--record", self.dir / "record", "--record-interval", "1s"]


def test_serve_records(export: tuple[Daemon, Path], tmp_path: Path) -> None:
    """What serve records is the table of an export, complete when it stops, and iostats beside it."""
    with Recording(ARRAY, "record") as array:
        work(array, tmp_path)
        array.stop()
        files = sorted((array.dir / "record").iterdir())
        tables = [f for f in files if f.suffix == ".parquet"]
        assert tables and {f.name for f in files} == {"iostats", *(f.name for f in tables)}
        assert list((array.dir / "record" / "iostats").glob("Nv_stats_*"))
        frame = pd.concat(pd.read_parquet(f) for f in tables)
        assert list(frame.columns) == list(pd.read_parquet(export[1] / "run.parquet").columns)
        assert undercover(frame) == {"clone": CLONED}
        rows = duckdb.sql(
            f"select volume, max(value) from '{array.dir}/record/counters-*.parquet' "
            "where family = 'arraysim_undercover_write_bytes_total' group by volume having max(value) > 0"
        ).fetchall()
        assert rows == [("clone", CLONED)]


def test_replay_records(export: tuple[Daemon, Path], tmp_path: Path) -> None:
    """A replay in virtual time leaves the same table: the bytes that the trace writes are in it."""
    trace = REPO / "testdata" / "traces" / "sample.csv"
    out = tmp_path / "out"
    r = run([binary(), "replay", trace, "--profile", "svc", "--out", out, "--record", "10ms", "--json"])
    (written,) = [x["bytes"] for x in json.loads(r.stdout)["latencies"] if x["kind"] == "write"]
    frame = pd.read_parquet(out / "counters.parquet")
    assert list(frame.columns) == list(pd.read_parquet(export[1] / "run.parquet").columns)
    family, where = "arraysim_host_transferred_bytes_total", "direction = 'write'"
    table = f"'{out}/counters.parquet'"
    ((most,),) = duckdb.sql(f"select max(value) from {table} where family = '{family}' and {where}").fetchall()
    # The end lies between two readings: less than an interval of what was written is missing.
    assert 0.8 * written < most <= written
    assert most == frame[(frame.family == family) & (frame.direction == "write")].value.max()
    r = run([binary(), "replay", trace, "--profile", "svc", "--record", "1s"], expect=1)
    assert "--record is an interval, and needs --out" in r.stderr


def test_iostats_tell_the_clone(export: tuple[Daemon, Path]) -> None:
    """The volume statistics show no host writes to the clone, and that it was written below."""
    _, out = export
    files = sorted((out / "iostats").glob("Nv_stats_*"))
    assert len(files) == 2
    vols = {v.get("id"): v for v in ET.parse(files[-1]).getroot() if v.tag.endswith("}vdsk")}
    assert set(vols) == {"master", "clone", "db"}
    ns = {"s": vols["clone"].tag[1:].partition("}")[0]}
    lower = {n: int(v.find("s:cpy/s:ca", ns).get("ctws")) * 512 for n, v in vols.items()}  # type: ignore[union-attr]
    host = {n: int(v.get("wb", "0")) * 512 for n, v in vols.items()}
    assert lower["clone"] == CLONED and host["clone"] < MiB
    assert lower["master"] == CLONED and host["master"] >= CLONED


def test_esxtop(export: tuple[Daemon, Path]) -> None:
    _, out = export
    f = pd.read_csv(out / "esxtop.csv")
    assert f.columns[0] == "(PDH-CSV 4.0) (UTC)(0)" and len(f) == 1
    clones = [c for c in f.columns if c.endswith("(clone)\\CLONE_WR")]
    assert len(clones) == 1 and f[clones[0]][0] > 0


def queries() -> list[tuple[str, str]]:
    """Every query of every dashboard, its variables filled in."""
    found = []
    for path in sorted((MONITORING / "dashboards").glob("*.json")):
        board = json.loads(path.read_text())
        for panel in board["panels"]:
            for target in panel["targets"]:
                q = target["expr"].replace("$__rate_interval", "30s")
                found.append((f"{path.stem}: {panel['title']}", re.sub(r"\$(pool|volume)\b", ".*", q)))
    return found


class Prometheus(Server):
    """Debian's prometheus, scraping an array with our rules loaded."""

    def __init__(self, array: Daemon, native: bool = False) -> None:
        super().__init__("prometheus")
        self.native = native  # histograms, in place of the classic ones
        rules = self.dir / "rules.yaml"
        # The rules' minute is more than a test can wait for.
        text = (MONITORING / "rules.yaml").read_text().replace("[1m]", "[10s]")
        rules.write_text(text)
        (self.dir / "prometheus.yml").write_text(
            json.dumps(
                {
                    "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
                    "rule_files": [str(rules)],
                    "scrape_configs": [
                        {"job_name": "array", "static_configs": [{"targets": [f"127.0.0.1:{array.metrics_port}"]}]}
                    ],
                }
            )
        )

    def __enter__(self) -> Prometheus:
        argv = ["prometheus", f"--config.file={self.dir}/prometheus.yml", f"--storage.tsdb.path={self.dir}/tsdb"]
        argv += ["--enable-feature=native-histograms"] if self.native else []
        self.spawn([*argv, f"--web.listen-address=127.0.0.1:{self.port}"])
        return self

    def __exit__(self, *exc: object) -> None:
        if self.alive():
            self.kill()
        self.cleanup()

    def get(self, path: str, **params: str) -> Any:
        """Ask the API; None while it does not answer."""
        url = f"http://127.0.0.1:{self.port}/api/v1/{path}?{urllib.parse.urlencode(params)}"
        try:
            with urllib.request.urlopen(url, timeout=60) as r:
                return json.load(r)["data"]
        except OSError:
            return None

    def values(self, query: str) -> list[Any]:
        """The series that a query has now."""
        data = self.get("query", query=query)
        return data["result"] if data else []


def until(what: Any, timeout: float = 180) -> Any:
    """Wait for what to return something."""
    deadline = time.monotonic() + timeout
    while not (got := what()):
        assert time.monotonic() < deadline, f"{what} stayed {got!r} for {timeout} s"
        time.sleep(0.25)
    return got


@pytest.mark.slow
def test_prometheus_answers_every_dashboard(export: tuple[Daemon, Path], tmp_path: Path) -> None:
    """A real Prometheus scrapes a real run: each query of each dashboard and each recording rule has data."""
    array, out = export
    asked = queries()
    assert len(asked) >= 20
    with Prometheus(array) as prom:
        until(lambda: prom.values("arraysim_uptime_seconds"))
        work(array, tmp_path, seed=2)
        empty = dict(asked)
        names = re.findall(r"record: (\S+)", (MONITORING / "rules.yaml").read_text())
        # A wait for cache is a matter of load: one host on a fast machine may never wait.
        empty |= {n: n for n in names if "admission_wait" not in n}

        def remaining() -> bool:
            for key, query in list(empty.items()):
                if prom.values(query):
                    del empty[key]
            if empty:  # what goes by rates is there for some seconds only
                work(array, tmp_path, seed=2)
            return not empty

        try:
            until(remaining, 600)
        except AssertionError:
            pytest.fail(f"no data for: {empty}")
        rules = until(lambda: prom.get("rules"))
        failed = [x["name"] for g in rules["groups"] for x in g["rules"] if x.get("lastError")]
        assert failed == []

        # And analyze reads the same range, without the origin label.
        def analysis() -> dict[str, Any] | None:
            try:
                url = f"http://127.0.0.1:{prom.port}"
                r = array.cli("analyze", url, "--last", "1m", "--step", "1s", "--json", timeout=300)
            except ToolError as e:
                if "no two readings" in str(e):  # Prometheus has scraped once so far
                    return None
                raise
            return json.loads(r.stdout)

        found = until(analysis)
        assert {p["pool"] for p in found["pools"]} == {"gold", "silver"}


def test_promtool_accepts_the_rules() -> None:
    assert "SUCCESS" in run(["promtool", "check", "rules", MONITORING / "rules.yaml"]).text


@pytest.mark.slow
def test_native_histograms(export: tuple[Daemon, Path], tmp_path: Path) -> None:
    """A Prometheus with the feature takes the fine buckets: as many commands, and quantiles."""
    array, _ = export
    work(array, tmp_path, seed=3)
    name = 'arraysim_host_command_duration_seconds{op="write"}'
    want = array.metrics().sum("host_command_duration_seconds_count", op="write")
    assert want > 0
    with Prometheus(array, native=True) as prom:
        (count,) = until(lambda: prom.values(f"sum(histogram_count({name}))"))
        assert float(count["value"][1]) == want
        (median,) = until(lambda: prom.values(f"histogram_quantile(0.5, sum({name}))"))
        (total,) = until(lambda: prom.values(f"sum(histogram_sum({name}))"))
        # The median of non-negative numbers is at most twice their mean; a bucket is of a factor of 1.41.
        assert 0 < float(median["value"][1]) <= 2 * 1.5 * float(total["value"][1]) / want + 1e-5
