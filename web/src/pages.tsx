// The pages: overview, volumes, one volume, pools, hosts, events.

import type { Event, Policy, Volume } from "./api";
import { call, get } from "./api";
import { Chart, UNDERCOVER, type Line } from "./chart";
import { count, fullSize, millis, percent, rate, size } from "./format";
import { forms, type Form } from "./forms";
import type { Series, VolumeTrack } from "./history";
import { store } from "./store";
import { Table } from "./table";

export interface PageProps {
  open: (f: Form) => void;
}

const volumeLink = (name: string) => <a href={`#/volume/${encodeURIComponent(name)}`}>{name}</a>;
const clip = (v: number) => (v > 0 && v < 50e3 ? 50e3 : v);

function layers(lines: { upper: Series; lower: Series; undercover: Series }): Line[] {
  // The lower layer without offloads: what lies between it and all of it came under cover.
  const lower = lines.lower.list();
  const hosts = lower.map((v, i) => (v === null ? null : Math.max(0, v - lines.undercover.at(i))));
  return [
    { label: "hosts wrote", values: lines.upper.list(), fill: true },
    { label: "cache took from hosts", values: hosts, colour: "#009e73" },
    { label: "cache took in all (striped: undercover)", values: lower, colour: UNDERCOVER, between: true },
  ];
}

/** Who is written below the host layer now, the worst first. */
function Culprits() {
  const list = [...store.history.volumes.values()]
    .filter((v) => v.now.undercover > 0)
    .sort((a, b) => b.now.undercover - a.now.undercover)
    .slice(0, 8);
  return (
    <section id="culprits" class={list.length > 0 ? "alarm" : ""} aria-live="polite">
      <h2>Written below the host layer, now</h2>
      {list.length === 0 ? (
        <p class="empty">Nothing: what the cache takes, hosts have sent.</p>
      ) : (
        <div class="scroll">
        <table>
          <thead>
            <tr>
              <th scope="col">Volume</th>
              <th scope="col">Pool</th>
              <th scope="col" class="n">Undercover, MB/s</th>
              <th scope="col" class="n">Hosts, MB/s</th>
              <th scope="col" class="n">Cache held</th>
              <th scope="col" class="n">Of the cap</th>
            </tr>
          </thead>
          <tbody>
            {list.map((v) => (
              <tr key={v.name}>
                <td>{volumeLink(v.name)}</td>
                <td>{v.pool}</td>
                <td class="n strong">{rate(v.now.undercover)}</td>
                <td class="n">{rate(v.now.hostWrite)}</td>
                <td class="n">{size(v.now.dirty)}</td>
                <td class="n">{percent(v.now.dirty, store.history.pools.get(v.pool)?.now.limit ?? 0)}</td>
              </tr>
            ))}
          </tbody>
        </table>
        </div>
      )}
    </section>
  );
}

function Partitions() {
  return (
    <section id="partitions">
      <h2>Partitions of the write cache ({size(store.history.cacheSize)})</h2>
      <ul class="bars">
        {[...store.history.pools.values()].map((p) => (
          <li key={p.name}>
            <span>{p.name}</span>
            <meter min={0} max={100} high={80} optimum={0} value={p.now.fill} aria-label={`partition of pool ${p.name}`} />
            <span class="n">
              {size(p.now.used)} of {size(p.now.limit)} ({percent(p.now.used, p.now.limit)})
              {p.now.waiting > 0 && <strong> {size(p.now.waiting)} wait</strong>}
              {p.now.pinned > 0 && <strong> {size(p.now.pinned)} pinned</strong>}
            </span>
          </li>
        ))}
      </ul>
    </section>
  );
}

export function Events({ list }: { list: Event[] }) {
  return (
    <ol class="events">
      {list.map((e) => (
        <li key={e.number} class={e.kind}>
          <time dateTime={e.time}>{new Date(e.time).toLocaleTimeString()}</time> <b>{e.kind}</b> {e.text}
        </li>
      ))}
      {list.length === 0 && <li class="empty">Nothing yet.</li>}
    </ol>
  );
}

/** What copies and zeroes now, command by command. */
function Running() {
  return (
    <section>
      <h2>Offloads in flight</h2>
      {store.offloads.length === 0 ? (
        <p id="running" class="empty">
          None now.
        </p>
      ) : (
        <Table
          id="running"
          label="offloads in flight"
          search={false}
          rows={store.offloads.map((o, i) => ({ ...o, key: String(i) }))}
          keyOf={(o) => o.key}
          sort="For ms"
          columns={[
            { name: "Volume", value: (o) => o.volume, cell: (o) => volumeLink(o.volume) },
            { name: "Host", value: (o) => o.initiator },
            { name: "Primitive", value: (o) => o.primitive },
            { name: "Done", number: true, title: "Whole segments, ranges or pieces that are written", value: (o) => o.done_bytes, cell: (o) => size(o.done_bytes) },
            { name: "Total", number: true, value: (o) => o.total_bytes, cell: (o) => size(o.total_bytes) },
            { name: "For ms", number: true, title: "Time since the command arrived", value: (o) => o.age_ns, cell: (o) => millis(o.age_ns) },
          ]}
        />
      )}
    </section>
  );
}

export function Overview() {
  const h = store.history;
  const pools = [...h.pools.values()];
  const top = h.top(5);
  return (
    <>
      <div class="grid">
        <Culprits />
        <Partitions />
      </div>
      <div class="grid">
        <Chart id="chart-layers" title="Upper and lower writes" unit="MB/s" time={h.time} lines={layers(h.total.series)} show={rate} least={1e6} note="The striped area is what the cache took and no host sent." />
        <Chart id="chart-fill" title="Fullness of the partitions" unit="%" time={h.time} max={105} lines={pools.map((p) => ({ label: p.name, values: p.series.fill.list() }))} show={(v) => v.toFixed(0)} note="100 % is the pool's cap." />
        <Chart id="chart-held" title="Write cache held, by volume" unit="" time={h.time} lines={top.map((v) => ({ label: v.name, values: v.series.dirty.list() }))} show={size} least={1 << 20} note="The volumes that hold most of it." />
        <Chart id="chart-host" title="Written by hosts, same volumes" unit="MB/s" time={h.time} lines={top.map((v) => ({ label: v.name, values: v.series.hostWrite.list() }))} show={rate} least={1e6} note="Who holds cache without writing here is written by an offload." />
        <Chart id="chart-offloads" title="Offloads in flight, by destination" unit="" time={h.time} lines={pools.map((p) => ({ label: p.name, values: p.series.inflight.list() }))} show={size} least={1 << 20} note={`Data copies under way; ${count(h.total.now.offloads)} offloads a second end.`} />
        <Chart id="chart-backend" title="Back end writes, by pool" unit="MB/s" time={h.time} lines={pools.map((p) => ({ label: p.name, values: p.series.backendWrite.list() }))} show={rate} least={1e6} />
      </div>
      <Running />
      <section>
        <h2>Events</h2>
        <Events list={store.events.slice(0, 8)} />
      </section>
    </>
  );
}

export function Volumes({ open }: PageProps) {
  const object = (v: VolumeTrack): Volume | undefined => store.volumes.get(v.name);
  return (
    <>
      <p class="actions">
        <button type="button" onClick={() => open(forms.createVolume(store.pools.map((p) => p.name)))}>
          New volume…
        </button>
      </p>
      <Table
        id="volumes"
        label="volumes"
        rows={[...store.history.volumes.values()]}
        keyOf={(v) => v.name}
        sort="Volume"
        columns={[
          { name: "Volume", value: (v) => v.name, cell: (v) => volumeLink(v.name) },
          { name: "Pool", value: (v) => v.pool },
          { name: "LUN", value: (v) => object(v)?.exports.map((e) => e.lun).join(",") ?? "" },
          { name: "Size", number: true, value: (v) => object(v)?.size ?? 0, cell: (v) => size(object(v)?.size ?? 0) },
          { name: "Read MB/s", number: true, value: (v) => v.now.hostRead, cell: (v) => rate(v.now.hostRead) },
          { name: "Write MB/s", number: true, value: (v) => v.now.hostWrite, cell: (v) => rate(v.now.hostWrite) },
          { name: "Undercover MB/s", number: true, title: "Written below the host layer", value: (v) => v.now.undercover, cell: (v) => <span class={v.now.undercover > 0 ? "strong" : ""}>{rate(v.now.undercover)}</span> },
          { name: "Described MB/s", number: true, title: "What offload commands describe", value: (v) => v.now.described, cell: (v) => rate(clip(v.now.described)) },
          { name: "Commands/s", number: true, value: (v) => v.now.commands, cell: (v) => count(v.now.commands) },
          { name: "Latency ms", number: true, value: (v) => v.now.latency, cell: (v) => millis(v.now.latency) },
          { name: "Cache held", number: true, value: (v) => v.now.dirty, cell: (v) => size(v.now.dirty) },
        ]}
      />
    </>
  );
}

export function VolumePage({ name, open }: PageProps & { name: string }) {
  const h = store.history;
  const t = h.volumes.get(name);
  const v = store.volumes.get(name);
  if (!t || !v) return <p class="empty">There is no volume {name}{h.time.length === 0 ? " yet" : ""}.</p>;
  const pools = store.pools.map((p) => p.name);
  const fact = (what: string, value: string) => (
    <div key={what}>
      <dt>{what}</dt>
      <dd>{value}</dd>
    </div>
  );
  return (
    <>
      <h2>Volume {name}</h2>
      <p class="actions">
        <button type="button" onClick={() => open(forms.clone(name, pools, v.pool))}>Clone…</button>
        <button type="button" onClick={() => void get<Volume>(`/volumes/${encodeURIComponent(name)}`).catch(() => v).then((now) => open(forms.resize(now)))}>Resize…</button>
        <button type="button" onClick={() => open(forms.exportVolume(name))}>Export…</button>
        {v.exports.map((e) => (
          <button type="button" key={e.lun} onClick={() => open(forms.endExport(name, e.lun))}>End LUN {e.lun}…</button>
        ))}
        <button type="button" onClick={() => open(forms.zero(name))}>Zero…</button>
        <button type="button" onClick={() => open(forms.deleteVolume(name))}>Delete…</button>
      </p>
      <dl class="facts">
        {fact("Pool", v.pool)}
        {fact("Size", fullSize(v.size))}
        {fact("Kind", `${v.thin ? "thin" : "thick"}, blocks of ${v.block_size}${v.write_protect ? ", write protected" : ""}`)}
        {fact("Mapped", size(v.mapped))}
        {fact("Zero", size(v.zero))}
        {fact("Unmapped", size(v.unmapped))}
        {fact("LUN", v.exports.map((e) => `${e.lun}${e.initiators?.length ? ` (${e.initiators.join(", ")})` : ""}`).join(", ") || (v.kernel_device ?? "not exported"))}
        {fact("NAA", v.naa)}
        {fact("In progress", String(t.queue))}
        {fact("Cache held", `${size(t.now.dirty)}, ${percent(t.now.dirty, h.pools.get(v.pool)?.now.limit ?? 0)} of its pool's cap`)}
      </dl>
      <div class="grid">
        <Chart id="chart-layers" title="Upper and lower writes" unit="MB/s" time={h.time} lines={layers({ upper: t.series.hostWrite, lower: t.series.admitted, undercover: t.series.undercover })} show={rate} least={1e6} note="The striped area is what the cache took and no host sent." />
        <Chart id="chart-held" title="Write cache held" unit="" time={h.time} lines={[{ label: name, values: t.series.dirty.list(), fill: true }]} show={size} least={1 << 20} />
        <Chart id="chart-host" title="Host traffic" unit="MB/s" time={h.time} lines={[{ label: "read", values: t.series.hostRead.list() }, { label: "written", values: t.series.hostWrite.list() }]} show={rate} least={1e6} />
        <Chart id="chart-latency" title="Mean latency of commands" unit="ms" time={h.time} lines={[{ label: "latency", values: t.series.latency.list() }]} show={millis} least={1e6} />
      </div>
      <section>
        <h2>Events</h2>
        <Events list={store.events.filter((e) => e.volume === name).slice(0, 20)} />
      </section>
    </>
  );
}

export function Pools({ open }: PageProps) {
  const disks = store.pools.flatMap((p) => p.mdisks.map((m) => ({ pool: p, m })));
  const track = (name: string) => store.history.pools.get(name)?.now;
  return (
    <>
      <p class="actions">
        <button type="button" onClick={() => open(forms.createPool())}>New pool…</button>
        <button type="button" onClick={() => open(forms.mirror(store.status?.mirrored ?? true))}>
          {store.status?.mirrored === false ? "Restore the cache's mirror…" : "Lose the cache's mirror…"}
        </button>
        <button type="button" onClick={() => void call<Policy>("GET", "/policy").then((p) => open(policyForm(p)))}>Policy and budget…</button>
      </p>
      {store.status?.mirrored === false && <p role="alert">The write cache has lost its mirror: writes go through to the back end.</p>}
      <Table
        id="pools"
        label="pools"
        rows={store.pools}
        keyOf={(p) => p.name}
        sort="Pool"
        columns={[
          { name: "Pool", value: (p) => p.name },
          { name: "Copies", value: (p) => (p.copy_data ? "data" : "reference") },
          { name: "Writes", value: (p) => p.write_mode },
          { name: "Capacity", number: true, value: (p) => p.capacity, cell: (p) => size(p.capacity) },
          { name: "Allocated", number: true, value: (p) => p.allocated, cell: (p) => size(p.allocated) },
          { name: "Cache used", number: true, value: (p) => track(p.name)?.used ?? 0, cell: (p) => size(track(p.name)?.used ?? 0) },
          { name: "Cap", number: true, value: (p) => p.cache_limit, cell: (p) => size(p.cache_limit) },
          { name: "Used/cap", number: true, value: (p) => track(p.name)?.fill ?? 0, cell: (p) => percent(track(p.name)?.used ?? 0, p.cache_limit) },
          { name: "Copies in flight", number: true, value: (p) => track(p.name)?.inflight ?? 0, cell: (p) => size(track(p.name)?.inflight ?? 0) },
          { name: "Back end write MB/s", number: true, value: (p) => track(p.name)?.backendWrite ?? 0, cell: (p) => rate(track(p.name)?.backendWrite ?? 0) },
          { name: "Volumes", number: true, value: (p) => p.volumes },
          {
            name: "Change",
            value: () => "",
            cell: (p) => (
              <span class="actions">
                <button type="button" onClick={() => open(forms.writeMode(p.name, p.write_mode))}>Write mode…</button>
                <button type="button" onClick={() => open(forms.deletePool(p.name))}>Delete…</button>
              </span>
            ),
          },
        ]}
      />
      <h2>Mdisks</h2>
      <Table
        id="mdisks"
        label="mdisks"
        rows={disks}
        keyOf={(d) => `${d.pool.name}.${d.m.name}`}
        sort="Mdisk"
        columns={[
          { name: "Mdisk", value: (d) => `${d.pool.name}.${d.m.name}` },
          { name: "State", value: (d) => (d.m.offline ? "offline" : "online"), cell: (d) => (d.m.offline ? <strong class="strong">offline</strong> : "online") },
          { name: "Size", number: true, value: (d) => d.m.size, cell: (d) => size(d.m.size) },
          { name: "Bandwidth", number: true, value: (d) => d.m.bandwidth, cell: (d) => (d.m.bandwidth ? `${size(d.m.bandwidth)}/s` : "no limit") },
          { name: "IOPS", number: true, value: (d) => d.m.iops, cell: (d) => d.m.iops || "no limit" },
          { name: "Failures", number: true, value: (d) => d.m.failures },
          {
            name: "Fault",
            value: () => "",
            cell: (d) => (
              <span class="actions">
                <button type="button" onClick={() => open(forms.mdiskOffline(d.pool.name, d.m.name, !d.m.offline))}>{d.m.offline ? "Bring back…" : "Take offline…"}</button>
                <button type="button" onClick={() => open(forms.mdiskLimits(d.pool.name, d.m.name, d.m.bandwidth, d.m.iops))}>Slow down…</button>
              </span>
            ),
          },
        ]}
      />
    </>
  );
}

function policyForm(p: Policy): Form {
  return {
    title: "Policy of the write cache",
    text: "The budget bounds what offloads may hold of a partition, so that hosts always find room. 0 is no bound.",
    verb: "Set",
    fields: [
      { name: "budget_percent", label: "Offload budget, % of a partition", type: "number", value: p.budget_percent },
      { name: "budget_host_percent", label: "Offload budget of one host, %", type: "number", value: p.budget_host_percent },
      { name: "budget_pressure", label: "Destage faster while an offload waits for its budget", type: "check", value: p.budget_pressure },
      { name: "admission", label: "Admission", type: "choice", choices: ["fifo", "fair", "through"], value: p.admission },
      { name: "destage_order", label: "Order of destage", type: "choice", choices: ["round-robin", "lru"], value: p.destage_order },
      { name: "copy_pieces", label: "Pieces of 256 KiB a copy has under way", type: "number", value: p.copy_pieces },
    ],
    send: (v) => call("PATCH", "/policy", v),
  };
}

export function Hosts() {
  const sessions = new Map<string, typeof store.sessions>();
  for (const s of store.sessions) sessions.set(s.initiator, [...(sessions.get(s.initiator) ?? []), s]);
  return (
    <>
      <Table
        id="hosts"
        label="hosts"
        rows={store.history.hosts}
        keyOf={(h) => h.host}
        sort="Commands/s"
        columns={[
          { name: "Host", value: (h) => h.host },
          { name: "Address", value: (h) => sessions.get(h.host)?.map((s) => s.address).join(", ") ?? "not logged in" },
          { name: "Sessions", number: true, value: (h) => sessions.get(h.host)?.length ?? 0 },
          { name: "Commands/s", number: true, value: (h) => h.commands, cell: (h) => count(h.commands) },
          { name: "Reads/s", number: true, value: (h) => h.reads, cell: (h) => count(h.reads) },
          { name: "Writes/s", number: true, value: (h) => h.writes, cell: (h) => count(h.writes) },
          { name: "Offloads/s", number: true, value: (h) => h.offloads, cell: (h) => count(h.offloads) },
          { name: "Commands", number: true, value: (h) => h.total, cell: (h) => count(h.total) },
          { name: "Not GOOD", number: true, value: (h) => h.failed, cell: (h) => count(h.failed) },
        ]}
      />
    </>
  );
}
