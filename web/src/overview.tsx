// The overview: who is written below the host layer, who waits for it, and what that does to the cache.

import { call, type Finding, type Totals } from "./api";
import { Bar } from "./bar";
import { Chart, Ranges, type Line } from "./chart";
import { CACHED, HOSTS, NEUTRAL, UNDERCOVER } from "./colours";
import { EventList, NOTHING_YET } from "./events";
import { count, millis, percent, rate, size, span, stamp } from "./format";
import type { Form } from "./forms";
import { highest, latest, minus, RANGES, type Values, type View } from "./range";
import { store } from "./store";
import { Table, volumeLink } from "./table";

export interface PageProps {
  open: (f: Form) => void;
}

export const UNWATCHED = "There is no data for this range: the daemon was not running, or nothing was written. Choose a later range, or write to a LUN.";

const solid = { dash: [] as number[] };

/** The layers of a volume, or of all of them. */
export function layers(view: View | undefined, kind: "total" | "volume", name: string): Line[] {
  if (!view?.names(kind).includes(name)) return [];
  const of = (figure: string): Values => view.series(kind, name, figure);
  return [
    { label: "hosts wrote", values: of("host_written_bytes"), fill: true, colour: HOSTS, ...solid },
    { label: "cache took from hosts", values: minus(of("admitted_bytes"), of("undercover_bytes")), colour: CACHED, dash: [8, 3] },
    { label: "cache took in all (striped: undercover)", values: of("admitted_bytes"), colour: UNDERCOVER, between: true, ...solid },
  ];
}

/** The mean and the p99 of a volume's reads and writes; empty where nothing was read or written. */
export function latencies(view: View | undefined, name: string): Line[] {
  if (!view) return [];
  const p99 = view.series("volume", name, "latency_p99_ns");
  if (highest(p99) === null) return [];
  return [
    { label: "p99", values: p99, ...store.look("volume", name) },
    { label: "mean", values: view.series("volume", name, "latency_ns"), colour: NEUTRAL, dash: [8, 3] },
  ];
}

interface Latency {
  name: string;
  mean: number | null;
  p99: number | null;
  /** The highest p99 of the range. */
  worst: number;
  values: Values;
}

/** Volumes that hosts read or wrote in the range, the slowest of now first. */
function slowest(view: View | undefined): Latency[] {
  if (!view) return [];
  return view
    .names("volume")
    .flatMap((name) => {
      const values = view.series("volume", name, "latency_p99_ns");
      const worst = highest(values);
      const mean = latest(view.series("volume", name, "latency_ns"), view.recent);
      return worst === null ? [] : [{ name, mean, p99: latest(values, view.recent), worst, values }];
    })
    .sort((a, b) => (b.p99 ?? 0) - (a.p99 ?? 0) || b.worst - a.worst);
}

/** The p99 of the slowest volumes of the range, the slowest of now among them, and the mean of all volumes beside. */
function waiting(view: View | undefined): Line[] {
  const all = slowest(view);
  if (!view || all.length === 0) return [];
  const shown = new Set([...all].sort((a, b) => b.worst - a.worst).slice(0, 4));
  if (all[0]) shown.add(all[0]);
  return [
    ...[...shown].map((v) => ({ label: v.name, values: v.values, ...store.look("volume", v.name) })),
    { label: "mean of all volumes", values: view.series("total", "", "latency_ns"), colour: NEUTRAL, dash: [8, 3] },
  ];
}

function Tile({ id, name, value, unit, note, alarm }: { id: string; name: string; value: string; unit: string; note: string; alarm?: boolean }) {
  return (
    <div id={id} class={alarm ? "tile alarm" : "tile"}>
      <dt>{name}</dt>
      <dd>
        <b class={alarm ? "strong" : ""}>{value}</b> {unit}
        <small>{note}</small>
      </dd>
    </div>
  );
}

/** The four figures that one looks at first; UNDERCOVER is the first of them on every screen. */
function Tiles() {
  const r = store.rates;
  const view = store.view;
  const live = view && view.range.to === 0 && store.error === "";
  const mean = live ? latest(view.series("total", "", "latency_ns"), view.recent) : null;
  const slow = live ? slowest(view).find((v) => v.p99 !== null) : undefined;
  const undercover = r.total("undercover");
  const used = [...r.pools.values()].reduce((n, p) => n + p.used, 0);
  const unknown = !r.known || store.error !== "";
  const sent = r.total("hostWrite");
  return (
    <dl class="tiles">
      <Tile id="tile-undercover" name="UNDERCOVER now" value={unknown ? "–" : rate(undercover)} unit="MB/s" note="written below the host layer" alarm={undercover > 0 && !unknown} />
      <Tile id="tile-hosts" name="Hosts write" value={unknown ? "–" : rate(sent)} unit="MB/s" note="sent over the wire" />
      <Tile id="tile-latency" name="Latency, p99" value={millis(slow?.p99 ?? null)} unit="ms" note={unknown ? "of reads and writes" : slow ? `slowest: ${slow.name}; mean of all ${millis(mean)} ms` : "no reads or writes now"} />
      <Tile id="tile-cache" name="Write cache" value={unknown ? "–" : percent(used, r.cacheSize)} unit="" note={unknown ? "" : `${size(used)} of ${size(r.cacheSize)}`} />
    </dl>
  );
}

/** Who is written below the host layer now, the worst first. */
function Culprits() {
  const down = store.error !== "";
  const list = [...store.rates.volumes.values()]
    .filter((v) => v.undercover > 0 && !down)
    .sort((a, b) => b.undercover - a.undercover)
    .slice(0, 8);
  return (
    <section id="sources" class={list.length > 0 ? "alarm" : ""} aria-live="polite">
      <h2>Written below the host layer, now</h2>
      {list.length === 0 ? (
        <p class="empty">
          {down
            ? "Unknown while the daemon does not answer."
            : "None: hosts sent all that the cache took. To see an offload, open a volume in a pool that copies data, and clone it."}
        </p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Volumes written below the host layer">
          <table>
            <thead>
              <tr>
                <th scope="col">Volume</th>
                <th scope="col" class="wide">Pool</th>
                <th scope="col" class="n">Undercover MB/s</th>
                <th scope="col" class="n">Hosts MB/s</th>
                <th scope="col" class="n">Held</th>
                <th scope="col" class="n wide">Of cap</th>
              </tr>
            </thead>
            <tbody>
              {list.map((v) => (
                <tr key={v.name}>
                  <td>{volumeLink(v.name)}</td>
                  <td class="wide">{v.pool}</td>
                  <td class="n strong">{rate(v.undercover)}</td>
                  <td class="n">{rate(v.hostWrite)}</td>
                  <td class="n">{size(v.dirty)}</td>
                  <td class="n wide">{percent(v.dirty, store.rates.pools.get(v.pool)?.limit ?? 0)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

/** Volumes that hosts read and write, the slowest first: whom an offload makes wait. */
function Victims() {
  const rows = slowest(store.view).slice(0, 6);
  return (
    <section id="victims">
      <h2>Who waits: latency of hosts' reads and writes</h2>
      {rows.length === 0 ? (
        <p class="empty">No host read or wrote in this range. Start a reader on a LUN, such as dd or fio, and clone beside it.</p>
      ) : (
        <div class="scroll" tabIndex={0} role="region" aria-label="Latency by volume">
          <table>
            <thead>
              <tr>
                <th scope="col">Volume</th>
                <th scope="col" class="n">Mean, ms</th>
                <th scope="col" class="n">p99, ms</th>
                <th scope="col" class="n wide">Worst p99, ms</th>
              </tr>
            </thead>
            <tbody>
              {rows.map((v) => (
                <tr key={v.name}>
                  <td>{volumeLink(v.name)}</td>
                  <td class="n">{millis(v.mean)}</td>
                  <td class="n">{millis(v.p99)}</td>
                  <td class="n wide">{millis(v.worst)}</td>
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      )}
    </section>
  );
}

const dismissal = (f: Finding): Form => ({
  title: `Dismiss finding ${f.id}`,
  text: `Offloads wrote ${size(f.undercover_bytes)} to volume ${f.volume}. The finding disappears for everybody. Its events and the history stay.`,
  verb: "Dismiss",
  send: () => call("DELETE", `/findings/${f.id}`),
});

/** Who waited meanwhile, as far as the daemon knows it: unknown is not nobody. */
function victims(f: Finding) {
  const rest = f.unknown_volumes > 0 ? `; ${f.unknown_volumes} could not be compared.` : ".";
  if (f.victims.length === 0) {
    if (f.compared_volumes === 0) return "It is not known whether other volumes of the pool waited: none could be compared with the time before.";
    if (f.compared_volumes === 1) return `One other volume of the pool was compared with the time before and had not become slower${rest}`;
    return `${f.compared_volumes} other volumes of the pool were compared with the time before, and none had become slower${rest}`;
  }
  return (
    <>
      Meanwhile {f.victims.length === 1 ? "another volume" : "other volumes"} of the pool waited longer:{" "}
      {f.victims.slice(0, 3).map((v, i) => (
        <span key={v.volume}>
          {i > 0 ? "; " : ""}
          {volumeLink(v.volume)} {millis(v.mean_ns)} ms per read or write, {millis(v.mean_before_ns)} ms before (p99 up to {millis(v.p99_ns)} ms)
        </span>
      ))}
      {f.victims.length > 3 ? `; and ${f.victims.length - 3} more` : ""}
      {rest}
    </>
  );
}

function Finding({ f, open }: PageProps & { f: Finding }) {
  const seconds = (Date.parse(f.last) - Date.parse(f.began)) / 1000;
  return (
    <li class={f.active ? "active" : ""}>
      <p>
        <b class="strong">{f.active && store.error === "" ? "Being written now: " : ""}{size(f.undercover_bytes)} below the host layer</b> to volume {volumeLink(f.volume)} in pool {f.pool} by{" "}
        {f.origins.join(", ") || "an offload"}. Hosts wrote {size(f.host_written_bytes)} to it meanwhile. It held up to {size(f.peak_cache_dirty_bytes)} of the write cache.
      </p>
      <p>{victims(f)}</p>
      <p class="note">
        <time dateTime={f.began}>{stamp(f.began)}</time>
        {seconds >= 1 ? ` for ${span(seconds)}` : ""}
        {f.episodes > 1 ? `, ${f.episodes} times` : ""}
      </p>
      <button type="button" aria-label={`Dismiss the finding of volume ${f.volume}`} onClick={() => open(dismissal(f))}>
        Dismiss…
      </button>
    </li>
  );
}

/** What stays until somebody dismisses it. */
function Findings({ open }: PageProps) {
  const all = store.findings;
  const totals = (what: string, t: Totals) => (
    <li>
      {what}: <b class={t.undercover_bytes > 0 ? "strong" : ""}>{size(t.undercover_bytes)}</b> undercover, {size(t.host_written_bytes)} by hosts, {count(t.offloads)} offloads
    </li>
  );
  return (
    <section id="findings" class={all && all.findings.length > 0 ? "alarm" : ""}>
      <h2>Findings{all && all.findings.length > 0 ? ` (${all.findings.length})` : ""}</h2>
      {all && (
        <>
          <ul class="totals">
            {totals(`Since the start, ${span(all.since_start.seconds)} ago`, all.since_start)}
            {totals("Last hour", all.last_hour)}
          </ul>
          {all.findings.length === 0 && <p class="empty">None. A volume that offloads write below the host layer stays here until you dismiss it. To see one, clone a volume in a pool that copies data.</p>}
          <ul class="findings">
            {all.findings.slice(0, 5).map((f) => (
              <Finding key={f.id} f={f} open={open} />
            ))}
          </ul>
          {all.findings.length > 5 && <p class="note">{all.findings.length - 5} older findings appear when you dismiss these.</p>}
        </>
      )}
    </section>
  );
}

function Partitions() {
  return (
    <section id="partitions">
      <h2>Partitions of the write cache ({size(store.rates.cacheSize)})</h2>
      <ul class="bars">
        {[...store.rates.pools.values()].map((p) => (
          <li key={p.name}>
            <span>{p.name}</span>
            <Bar part={p.used} whole={p.limit} label={`partition of pool ${p.name}`} warn>
              {p.waiting > 0 && <strong> {size(p.waiting)} waiting</strong>}
              {p.pinned > 0 && <strong> {size(p.pinned)} pinned</strong>}
            </Bar>
          </li>
        ))}
      </ul>
      {store.rates.known && store.rates.pools.size === 0 && <p class="empty">There are no pools. Create one: open Pools (key 3), and choose New pool…</p>}
    </section>
  );
}

/** What copies and zeroes now, command by command. */
function Running() {
  return (
    <section>
      <h2>Offloads in flight</h2>
      {store.offloads.length === 0 ? (
        <p id="running" class="empty">
          {store.error ? "Unknown while the daemon does not answer." : "None now. To see one, clone a volume in a pool that copies data; a clone by reference is over too soon to be listed."}
        </p>
      ) : (
        <Table
          id="running"
          label="offloads in flight"
          search={false}
          rows={store.offloads.map((o, i) => ({ ...o, key: String(i) }))}
          keyOf={(o) => o.key}
          sort="Age ms"
          empty="None now."
          columns={[
            { name: "Volume", value: (o) => o.volume, cell: (o) => volumeLink(o.volume) },
            { name: "Host", wide: true, long: true, value: (o) => o.initiator },
            { name: "Primitive", value: (o) => o.primitive },
            { name: "Done", number: true, title: "Segments, ranges and pieces that are written in full", value: (o) => o.done_bytes, cell: (o) => size(o.done_bytes) },
            { name: "Total", number: true, wide: true, value: (o) => o.total_bytes, cell: (o) => size(o.total_bytes) },
            { name: "Age ms", number: true, title: "Time since the command arrived", value: (o) => o.age_ns, cell: (o) => millis(o.age_ns) },
          ]}
        />
      )}
    </section>
  );
}

const NO_VOLUMES = "No volume was read or written in this range. Write to a LUN, or choose a longer range.";
const NO_POOLS = "There was no pool in this range. Create one (Pools, key 3), or choose a later range.";

export function Overview({ open }: PageProps) {
  const view = store.view;
  const pools = view?.names("pool") ?? [];
  const top = (view?.names("volume") ?? []).slice(0, 5);
  const pool = (figure: string): Line[] => pools.map((p) => ({ label: p, values: view?.series("pool", p, figure) ?? [], ...store.look("pool", p) }));
  const volume = (figure: string): Line[] => top.map((v) => ({ label: v, values: view?.series("volume", v, figure) ?? [], ...store.look("volume", v) }));
  const fill = pools.map((p) => {
    const limit = view?.series("pool", p, "cache_limit_bytes") ?? [];
    const used = view?.series("pool", p, "cache_used_bytes") ?? [];
    const values = used.map((v, i) => (v === null || !limit[i] ? null : (100 * v) / (limit[i] ?? 1)));
    return { label: p, values, ...store.look("pool", p) };
  });
  return (
    <>
      <Tiles />
      <Findings open={open} />
      <div class="grid">
        <Culprits />
        <Victims />
      </div>
      <Ranges ranges={RANGES} />
      <div class="grid">
        <Chart id="chart-layers" title="Upper and lower writes" unit="MB/s" view={view} lines={layers(view, "total", "")} show={rate} least={1e6} note="The striped area is what the cache took and no host sent." empty={UNWATCHED} />
        <Chart id="chart-latency" title="Latency of reads and writes: p99 of the slowest volumes" unit="ms" view={view} lines={waiting(view)} show={millis} least={1e6} note="Each p99 is that of the worst second of its step." empty="No host read or wrote in this range. Start a reader on a LUN, such as dd or fio." />
        <Chart id="chart-fill" title="Fullness of the partitions" unit="%" view={view} max={105} lines={fill} show={(v) => v.toFixed(0)} note="100 % is the pool's cap." empty={NO_POOLS} />
        <Chart id="chart-held" title="Write cache held, by volume" unit="" view={view} lines={volume("cache_dirty_bytes")} show={size} least={1 << 20} note="The most active volumes of the range." empty={NO_VOLUMES} />
        <Chart id="chart-host" title="Written by hosts, same volumes" unit="MB/s" view={view} lines={volume("host_written_bytes")} show={rate} least={1e6} note="A volume that holds cache without being written here is written by an offload." empty={NO_VOLUMES} />
        <Chart id="chart-undercover" title="Undercover, same volumes" unit="MB/s" view={view} lines={volume("undercover_bytes")} show={rate} least={1e6} note="What offloads wrote below the host layer." empty={NO_VOLUMES} />
        <Chart id="chart-offloads" title="Offloads in flight, by destination" unit="" view={view} lines={pool("offload_inflight_bytes")} show={size} least={1 << 20} note="Data copies under way." empty={NO_POOLS} />
        <Chart id="chart-backend" title="Back end writes, by pool" unit="MB/s" view={view} lines={pool("backend_written_bytes")} show={rate} least={1e6} note="What destaging and copies write to mdisks." empty={NO_POOLS} />
      </div>
      <div class="grid">
        <Partitions />
        <Running />
      </div>
      <section>
        <h2>Latest events</h2>
        <EventList list={store.events.slice(0, 8)} empty={NOTHING_YET} />
      </section>
    </>
  );
}
