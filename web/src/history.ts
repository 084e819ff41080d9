// Readings of the counters become rates, and the last minutes of them series.

import type { Counters, PoolCounters, VolumeCounters } from "./api";
import { sum } from "./format";

/** How many readings are kept: five minutes of them. */
export const LENGTH = 300;

/** The last readings of one figure, in memory of a fixed size: thousands of these are kept. NaN was not read. */
export class Series {
  private readonly buf = new Float32Array(LENGTH).fill(NaN);

  /** The first length readings are missing. */
  constructor(public length: number) {}

  push(v: number): void {
    if (this.length === LENGTH) this.buf.copyWithin(0, 1);
    else this.length++;
    this.buf[this.length - 1] = v;
  }

  /** Reading i, oldest first; 0 for a missing one. */
  at(i: number): number {
    return this.buf[i] || 0;
  }

  /** All of it as charts take it: null for what is missing. */
  list(): (number | null)[] {
    return Array.from(this.buf.subarray(0, this.length), (v) => (Number.isNaN(v) ? null : v));
  }
}

const VOLUME_KEYS = ["hostRead", "hostWrite", "described", "undercover", "admitted", "commands", "offloads", "latency", "dirty"] as const;
const POOL_KEYS = ["used", "limit", "fill", "waiting", "inflight", "backendRead", "backendWrite", "pinned"] as const;
const TOTAL_KEYS = ["upper", "lower", "undercover", "offloads"] as const;

type Values<K extends string> = Record<K, number>;

/** One thing that is watched: its values now, and its series, aligned with History.time. */
class Track<K extends string> {
  now: Values<K>;
  series: Record<K, Series>;

  constructor(
    readonly name: string,
    readonly keys: readonly K[],
    length: number,
  ) {
    this.now = Object.fromEntries(keys.map((k) => [k, 0])) as Values<K>;
    this.series = Object.fromEntries(keys.map((k) => [k, new Series(length)])) as Record<K, Series>;
  }

  push(v: Values<K>): void {
    this.now = v;
    for (const k of this.keys) this.series[k].push(v[k]);
  }
}

export class VolumeTrack extends Track<(typeof VOLUME_KEYS)[number]> {
  pool = "";
  queue = 0;
}

export class PoolTrack extends Track<(typeof POOL_KEYS)[number]> {
  origins: Record<string, Series> = {};
}

export interface HostRates {
  host: string;
  commands: number;
  reads: number;
  writes: number;
  offloads: number;
  failed: number;
  total: number;
}

/** Operations that make the array write or map without data on the wire. */
const OFFLOADS = ["write_same", "unmap", "xcopy", "xcopy_src", "odx", "populate_token", "write_using_token"];

export class History {
  time: number[] = []; // seconds since 1970
  volumes = new Map<string, VolumeTrack>();
  pools = new Map<string, PoolTrack>();
  total = new Track("total", TOTAL_KEYS, 0);
  hosts: HostRates[] = [];
  cacheSize = 0;
  private last: Counters | undefined;

  add(c: Counters): void {
    const last = this.last;
    this.last = c;
    this.cacheSize = c.cache_size;
    const seconds = last ? (c.time_ns - last.time_ns) / 1e9 : 0;
    if (!last || seconds <= 0) return; // the first reading, or the daemon started anew
    this.time.push(Date.now() / 1000);
    if (this.time.length > LENGTH) this.time.shift();

    const total = { upper: 0, lower: 0, undercover: 0, offloads: 0 };
    const before = new Map(last.volumes.map((v) => [v.volume, v]));
    const seen = new Set<string>();
    for (const v of c.volumes) {
      seen.add(v.volume);
      const old = before.get(v.volume);
      // One that was made meanwhile began with nothing, even if it has the name of another.
      const now = volumeRates(old?.id === v.id ? old : { ...v, ...NOTHING }, v, seconds);
      let t = this.volumes.get(v.volume);
      if (!t) {
        t = new VolumeTrack(v.volume, VOLUME_KEYS, this.time.length - 1);
        this.volumes.set(v.volume, t);
      }
      t.pool = v.pool;
      t.queue = v.host_queue_depth;
      t.push(now);
      total.upper += now.hostWrite;
      total.lower += now.admitted;
      total.undercover += now.undercover;
      total.offloads += now.offloads;
    }
    for (const name of this.volumes.keys()) if (!seen.has(name)) this.volumes.delete(name);
    this.total.push(total);
    this.addPools(last, c, seconds);
    this.addHosts(last, c, seconds);
  }

  private addPools(last: Counters, c: Counters, seconds: number): void {
    const before = new Map(last.pools.map((p) => [p.pool, p]));
    const seen = new Set<string>();
    for (const p of c.pools) {
      seen.add(p.pool);
      const old = before.get(p.pool) ?? p;
      let t = this.pools.get(p.pool);
      if (!t) {
        t = new PoolTrack(p.pool, POOL_KEYS, this.time.length - 1);
        this.pools.set(p.pool, t);
      }
      t.push(poolRates(old, p, seconds));
      for (const o of Object.keys(p.backend_written_by_origin)) {
        const s = (t.origins[o] ??= new Series(this.time.length - 1));
        s.push(growth(old.backend_written_by_origin[o] ?? 0, p.backend_written_by_origin[o] ?? 0, seconds));
      }
    }
    for (const name of this.pools.keys()) if (!seen.has(name)) this.pools.delete(name);
  }

  private addHosts(last: Counters, c: Counters, seconds: number): void {
    const before = new Map(last.hosts.map((h) => [h.host, h]));
    this.hosts = c.hosts.map((h) => {
      const old = before.get(h.host)?.commands ?? {};
      const by = (...ops: string[]) => ops.reduce((n, o) => n + growth(old[o] ?? 0, h.commands[o] ?? 0, seconds), 0);
      return {
        host: h.host,
        commands: growth(sum(old), sum(h.commands), seconds),
        reads: by("read"),
        writes: by("write"),
        offloads: by(...OFFLOADS),
        failed: h.failed,
        total: sum(h.commands),
      };
    });
  }

  /** The n volumes that held most of the write cache of late, or were written most. */
  top(n: number): VolumeTrack[] {
    const weight = new Map<VolumeTrack, number>();
    for (const v of this.volumes.values()) {
      let w = 0;
      for (let i = Math.max(0, this.time.length - 60); i < this.time.length; i++) {
        w += v.series.dirty.at(i) + v.series.hostWrite.at(i) + v.series.undercover.at(i);
      }
      if (w > 0) weight.set(v, w);
    }
    return [...weight.entries()]
      .sort((a, b) => b[1] - a[1] || a[0].name.localeCompare(b[0].name))
      .slice(0, n)
      .map(([v]) => v);
  }
}

const NOTHING = {
  host_commands: 0,
  host_read_bytes: 0,
  host_written_bytes: 0,
  host_described_bytes: {},
  cache_admitted_bytes: {},
  undercover_write_bytes: 0,
  offload_operations: {},
  host_timed_commands: 0,
  host_busy_ns: 0,
};

/** Counters that shrink belong to a daemon that was given another data folder. */
const growth = (old: number, now: number, seconds: number) => Math.max(0, now - old) / seconds;

function volumeRates(old: VolumeCounters, v: VolumeCounters, seconds: number) {
  const timed = v.host_timed_commands - old.host_timed_commands;
  return {
    hostRead: growth(old.host_read_bytes, v.host_read_bytes, seconds),
    hostWrite: growth(old.host_written_bytes, v.host_written_bytes, seconds),
    described: growth(sum(old.host_described_bytes), sum(v.host_described_bytes), seconds),
    undercover: growth(old.undercover_write_bytes, v.undercover_write_bytes, seconds),
    admitted: growth(sum(old.cache_admitted_bytes), sum(v.cache_admitted_bytes), seconds),
    commands: growth(old.host_commands, v.host_commands, seconds),
    offloads: growth(sum(old.offload_operations), sum(v.offload_operations), seconds),
    latency: timed > 0 ? (v.host_busy_ns - old.host_busy_ns) / timed : 0,
    dirty: v.cache_dirty_bytes,
  };
}

function poolRates(old: PoolCounters, p: PoolCounters, seconds: number) {
  return {
    used: p.cache_used_bytes,
    limit: p.cache_limit_bytes,
    fill: p.cache_limit_bytes > 0 ? (100 * p.cache_used_bytes) / p.cache_limit_bytes : 0,
    waiting: p.cache_waiting_bytes,
    inflight: sum(p.offload_inflight_bytes),
    backendRead: growth(old.backend_read_bytes, p.backend_read_bytes, seconds),
    backendWrite: growth(old.backend_written_bytes, p.backend_written_bytes, seconds),
    pinned: p.cache_pinned_bytes,
  };
}
