// The pages of objects: volumes, one volume, pools, hosts.

import type { ComponentChildren } from "preact";
import type { Export, Policy, Volume } from "./api";
import { call, get } from "./api";
import { Bar } from "./bar";
import { Chart, Ranges } from "./chart";
import { HOSTS, READ } from "./colours";
import { EventList } from "./events";
import { count, fullSize, millis, rate, size } from "./format";
import { forms, type Form } from "./forms";
import { latencies, layers, UNWATCHED, type PageProps } from "./overview";
import { RANGES } from "./range";
import type { VolumeRates } from "./rates";
import { store } from "./store";
import { Table, volumeLink } from "./table";

const clip = (v: number) => (v > 0 && v < 50e3 ? 50e3 : v);

/** A LUN, with its I/O group where that is not the first: each has a target, and LUNs of its own. */
function lunOf(e: Export): string {
  const group = /\.iogroup(\d+)$/.exec(e.target ?? "");
  return group ? `${e.lun} (I/O group ${group[1]})` : `${e.lun}`;
}

export function Volumes({ open }: PageProps) {
  const object = (v: VolumeRates): Volume | undefined => store.volumes.get(v.name);
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
        rows={[...store.rates.volumes.values()]}
        keyOf={(v) => v.name}
        sort="Volume"
        columns={[
          { name: "Volume", value: (v) => v.name, cell: (v) => volumeLink(v.name) },
          { name: "Undercover MB/s", number: true, title: "Written below the host layer", value: (v) => v.undercover, cell: (v) => <span class={v.undercover > 0 ? "strong" : ""}>{rate(v.undercover)}</span> },
          { name: "Pool", wide: true, value: (v) => v.pool },
          { name: "LUN", wide: true, value: (v) => object(v)?.exports.map(lunOf).join(",") ?? "" },
          { name: "Mapped", number: true, wide: true, title: "Of its size", value: (v) => object(v)?.mapped ?? 0, cell: (v) => <Bar part={object(v)?.mapped ?? 0} whole={object(v)?.size ?? 0} label={`mapped of volume ${v.name}`} short /> },
          { name: "Read MB/s", number: true, wide: true, value: (v) => v.hostRead, cell: (v) => rate(v.hostRead) },
          { name: "Write MB/s", number: true, value: (v) => v.hostWrite, cell: (v) => rate(v.hostWrite) },
          { name: "Described MB/s", number: true, wide: true, title: "What offload commands describe", value: (v) => v.described, cell: (v) => rate(clip(v.described)) },
          { name: "Commands/s", number: true, wide: true, value: (v) => v.commands, cell: (v) => count(v.commands) },
          { name: "Latency ms", number: true, value: (v) => v.latency, cell: (v) => millis(v.latency) },
          { name: "Cache held", number: true, wide: true, value: (v) => v.dirty, cell: (v) => size(v.dirty) },
        ]}
        empty="There are no volumes. Create one: New volume…, or arraysim volume create NAME --pool POOL --size 1GiB."
      />
    </>
  );
}

export function VolumePage({ name, open }: PageProps & { name: string }) {
  const view = store.view;
  const v = store.volumes.get(name);
  if (!v) return <p class="empty">{store.status ? `There is no volume ${name}. Choose one of those in Volumes (key 2).` : "…"}</p>;
  const of = (figure: string) => view?.series("volume", name, figure) ?? [];
  const now = store.rates.volumes.get(name);
  const pools = store.pools.map((p) => p.name);
  const fact = (what: string, value: ComponentChildren) => (
    <div key={what}>
      <dt>{what}</dt>
      <dd>{value}</dd>
    </div>
  );
  return (
    <>
      <p class="actions">
        <button type="button" onClick={() => open(forms.clone(name, pools, v.pool))}>Clone…</button>
        <button type="button" onClick={() => void get<Volume>(`/volumes/${encodeURIComponent(name)}`).catch(() => v).then((now) => open(forms.resize(now)))}>Resize…</button>
        <button type="button" onClick={() => open(forms.exportVolume(name))}>Export…</button>
        {v.exports.map((e) => (
          <button type="button" key={e.lun} onClick={() => open(forms.endExport(name, e.lun))}>Remove LUN {lunOf(e)}…</button>
        ))}
        <button type="button" onClick={() => open(forms.zero(name))}>Zero…</button>
        <button type="button" onClick={() => open(forms.deleteVolume(name))}>Delete…</button>
      </p>
      <dl class="facts">
        {fact("Pool", v.pool)}
        {fact("Size", fullSize(v.size))}
        {fact("Kind", `${v.thin ? "thin" : "thick"}, ${v.block_size}-byte blocks${v.write_protect ? ", write protected" : ""}`)}
        {fact("Mapped", <Bar part={v.mapped} whole={v.size} label="mapped of its size" />)}
        {fact("Zero", size(v.zero))}
        {fact("Unmapped", size(v.unmapped))}
        {fact("LUN", v.exports.map((e) => `${lunOf(e)}${e.initiators?.length ? ` (${e.initiators.join(", ")})` : ""}`).join(", ") || (v.kernel_device ?? "not exported"))}
        {fact("NAA", v.naa)}
        {fact("Cache held", <Bar part={now?.dirty ?? v.dirty} whole={store.rates.pools.get(v.pool)?.limit ?? 0} label="cache held of its pool's cap" warn />)}
      </dl>
      <Ranges ranges={RANGES} />
      <div class="grid">
        <Chart id="chart-layers" title="Upper and lower writes" unit="MB/s" view={view} lines={layers(view, "volume", name)} show={rate} least={1e6} note="The striped area is what the cache took and no host sent." empty={UNWATCHED} />
        <Chart id="chart-latency" title="Latency of reads and writes" unit="ms" view={view} lines={latencies(view, name)} show={millis} least={1e6} note="Each p99 is that of the worst second of its step." empty="No host read or wrote this volume in this range. Start a reader, such as dd or fio, or choose a longer range." />
        <Chart id="chart-held" title="Write cache held" unit="" view={view} lines={[{ label: name, values: of("cache_dirty_bytes"), fill: true, ...store.look("volume", name) }]} show={size} least={1 << 20} empty={UNWATCHED} />
        <Chart id="chart-host" title="Host traffic" unit="MB/s" view={view} lines={[{ label: "read", values: of("host_read_bytes"), colour: READ, dash: [8, 3] }, { label: "written", values: of("host_written_bytes"), colour: HOSTS, dash: [] }]} show={rate} least={1e6} empty={UNWATCHED} />
      </div>
      <section>
        <h2>Events of this volume</h2>
        <EventList list={store.events.filter((e) => e.volume === name).slice(0, 20)} empty="None since the daemon started. Clone the volume or change it, and what happens is listed here." />
      </section>
    </>
  );
}

export function Pools({ open }: PageProps) {
  const disks = store.pools.flatMap((p) => p.mdisks.map((m) => ({ pool: p, m })));
  const track = (name: string) => store.rates.pools.get(name);
  return (
    <>
      <p class="actions">
        <button type="button" onClick={() => open(forms.createPool())}>New pool…</button>
        <button type="button" onClick={() => void call<Policy>("GET", "/policy").then((p) => open(policyForm(p)))}>Policy and budget…</button>
      </p>
      {store.status?.mirrored === false && <p role="alert">The write cache has lost its mirror: writes go through to the back end.</p>}
      <Table
        id="pools"
        label="pools"
        rows={store.pools}
        keyOf={(p) => p.name}
        sort="Pool"
        empty="There are no pools. Create one: New pool…"
        columns={[
          { name: "Pool", value: (p) => p.name },
          { name: "Copies", wide: true, value: (p) => (p.copy_data ? "data" : "reference") },
          { name: "Writes", wide: true, value: (p) => p.write_mode },
          { name: "Allocated", number: true, value: (p) => p.allocated, cell: (p) => <Bar part={p.allocated} whole={p.capacity} label={`allocated of pool ${p.name}`} warn /> },
          { name: "Write cache", number: true, value: (p) => track(p.name)?.fill ?? 0, cell: (p) => <Bar part={track(p.name)?.used ?? 0} whole={p.cache_limit} label={`write cache of pool ${p.name}`} warn /> },
          { name: "Copies in flight", number: true, wide: true, value: (p) => track(p.name)?.inflight ?? 0, cell: (p) => size(track(p.name)?.inflight ?? 0) },
          { name: "Back end write MB/s", number: true, wide: true, value: (p) => track(p.name)?.backendWrite ?? 0, cell: (p) => rate(track(p.name)?.backendWrite ?? 0) },
          { name: "Volumes", number: true, wide: true, value: (p) => p.volumes },
          {
            name: "Change",
            wide: true,
            value: () => "",
            cell: (p) => (
              <button type="button" aria-label={`Delete pool ${p.name}`} onClick={() => open(forms.deletePool(p.name))}>Delete…</button>
            ),
          },
        ]}
      />
      <section id="faults" class="faults">
        <h2>Faults</h2>
        <p class="note">Faults harm the array on purpose. Each lasts until you end it or the daemon restarts.</p>
        <p class="actions">
          <button type="button" onClick={() => open(forms.mirror(store.status?.mirrored ?? true))}>
            {store.status?.mirrored === false ? "Restore the cache mirror…" : "Fail the cache mirror…"}
          </button>
          {store.pools.map((p) => (
            <button key={p.name} type="button" onClick={() => open(forms.writeMode(p.name, p.write_mode))}>Write mode of {p.name}…</button>
          ))}
        </p>
        <Table
          id="mdisks"
          label="mdisks"
          rows={disks}
          keyOf={(d) => `${d.pool.name}.${d.m.name}`}
          sort="Mdisk"
          empty="There are no mdisks. Create a pool, which brings its own: New pool…"
          columns={[
            { name: "Mdisk", value: (d) => `${d.pool.name}.${d.m.name}` },
            { name: "State", value: (d) => (d.m.offline ? "offline" : "online"), cell: (d) => (d.m.offline ? <strong class="strong">offline</strong> : "online") },
            { name: "Size", number: true, wide: true, value: (d) => d.m.size, cell: (d) => size(d.m.size) },
            { name: "Bandwidth", number: true, wide: true, value: (d) => d.m.bandwidth, cell: (d) => (d.m.bandwidth ? `${size(d.m.bandwidth)}/s` : "no limit") },
            { name: "IOPS", number: true, wide: true, value: (d) => d.m.iops, cell: (d) => d.m.iops || "no limit" },
            { name: "Failures", number: true, wide: true, value: (d) => d.m.failures },
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
      </section>
    </>
  );
}

function policyForm(p: Policy): Form {
  return {
    title: "Policy of the write cache",
    text: "The budget limits how much of a partition offloads may hold, so that hosts always find room. 0 means no limit.",
    verb: "Set",
    fields: [
      { name: "budget_percent", label: "Offload budget, % of a partition", type: "number", value: p.budget_percent },
      { name: "budget_host_percent", label: "Offload budget of one host, %", type: "number", value: p.budget_host_percent },
      { name: "budget_pressure", label: "Destage faster while an offload waits for its budget", type: "check", value: p.budget_pressure },
      { name: "admission", label: "Admission", type: "choice", choices: ["fifo", "fair", "through"], value: p.admission },
      { name: "destage_order", label: "Destage order", type: "choice", choices: ["round-robin", "lru"], value: p.destage_order },
      { name: "copy_pieces", label: "Pieces of 256 KiB in flight per copy", type: "number", value: p.copy_pieces },
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
        rows={store.rates.hosts}
        keyOf={(h) => h.host}
        sort="Commands/s"
        empty="No host has sent a command. Log in with an initiator, for example: iscsi-ls -s iscsi://ADDRESS, with the portal's address from above."
        columns={[
          { name: "Host", value: (h) => h.host },
          { name: "Address", wide: true, value: (h) => [...new Set(sessions.get(h.host)?.map((s) => s.address.replace(/:\d+$/, "")) ?? ["not logged in"])].join(", ") },
          { name: "Sessions", number: true, wide: true, value: (h) => sessions.get(h.host)?.length ?? 0 },
          { name: "Commands/s", number: true, value: (h) => h.commands, cell: (h) => count(h.commands) },
          { name: "Reads/s", number: true, wide: true, value: (h) => h.reads, cell: (h) => count(h.reads) },
          { name: "Writes/s", number: true, wide: true, value: (h) => h.writes, cell: (h) => count(h.writes) },
          { name: "Offloads/s", number: true, value: (h) => h.offloads, cell: (h) => count(h.offloads) },
          { name: "Commands", number: true, wide: true, value: (h) => h.total, cell: (h) => count(h.total) },
          { name: "Not GOOD", number: true, wide: true, value: (h) => h.failed, cell: (h) => count(h.failed) },
        ]}
      />
    </>
  );
}
