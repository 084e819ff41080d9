// Two readings of the counters become rates: what tables show as now. What charts show is the daemon's history.

import type { Counters, PoolCounters, VolumeCounters } from "./api";
import { sum } from "./format";

export interface VolumeRates {
  name: string;
  id: number;
  pool: string;
  hostRead: number;
  hostWrite: number;
  described: number;
  undercover: number;
  commands: number;
  offloads: number;
  latency: number;
  dirty: number;
}

export interface PoolRates {
  name: string;
  used: number;
  limit: number;
  fill: number;
  waiting: number;
  inflight: number;
  backendWrite: number;
  pinned: number;
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

export class Rates {
  /** Whether there were two readings. */
  known = false;
  volumes = new Map<string, VolumeRates>();
  pools = new Map<string, PoolRates>();
  hosts: HostRates[] = [];
  cacheSize = 0;
  private last: Counters | undefined;

  add(c: Counters): void {
    const last = this.last;
    this.last = c;
    this.cacheSize = c.cache_size;
    const seconds = last ? (c.time_ns - last.time_ns) / 1e9 : 0;
    if (!last || seconds <= 0) return; // the first reading, or the daemon restarted
    this.known = true;
    const before = new Map(last.volumes.map((v) => [v.volume, v]));
    this.volumes = new Map(
      c.volumes.map((v) => {
        const old = before.get(v.volume);
        // A volume that somebody created meanwhile began with nothing, even if it has the name of another.
        return [v.volume, volumeRates(old?.id === v.id ? old : { ...v, ...NOTHING }, v, seconds)];
      }),
    );
    const pools = new Map(last.pools.map((p) => [p.pool, p]));
    this.pools = new Map(c.pools.map((p) => [p.pool, poolRates(pools.get(p.pool) ?? p, p, seconds)]));
    this.addHosts(last, c, seconds);
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

  /** The sum over all volumes. */
  total(key: "hostWrite" | "undercover" | "offloads"): number {
    let n = 0;
    for (const v of this.volumes.values()) n += v[key];
    return n;
  }
}

const NOTHING = {
  host_commands: 0,
  host_read_bytes: 0,
  host_written_bytes: 0,
  host_described_bytes: {},
  undercover_write_bytes: 0,
  offload_operations: {},
  host_timed_commands: 0,
  host_busy_ns: 0,
};

/** Counters that shrink belong to a daemon that was given another data folder. */
const growth = (old: number, now: number, seconds: number) => Math.max(0, now - old) / seconds;

function volumeRates(old: VolumeCounters, v: VolumeCounters, seconds: number): VolumeRates {
  const timed = v.host_timed_commands - old.host_timed_commands;
  return {
    name: v.volume,
    id: v.id,
    pool: v.pool,
    hostRead: growth(old.host_read_bytes, v.host_read_bytes, seconds),
    hostWrite: growth(old.host_written_bytes, v.host_written_bytes, seconds),
    described: growth(sum(old.host_described_bytes), sum(v.host_described_bytes), seconds),
    undercover: growth(old.undercover_write_bytes, v.undercover_write_bytes, seconds),
    commands: growth(old.host_commands, v.host_commands, seconds),
    offloads: growth(sum(old.offload_operations), sum(v.offload_operations), seconds),
    latency: timed > 0 ? (v.host_busy_ns - old.host_busy_ns) / timed : 0,
    dirty: v.cache_dirty_bytes,
  };
}

function poolRates(old: PoolCounters, p: PoolCounters, seconds: number): PoolRates {
  return {
    name: p.pool,
    used: p.cache_used_bytes,
    limit: p.cache_limit_bytes,
    fill: p.cache_limit_bytes > 0 ? (100 * p.cache_used_bytes) / p.cache_limit_bytes : 0,
    waiting: p.cache_waiting_bytes,
    inflight: sum(p.offload_inflight_bytes),
    backendWrite: growth(old.backend_written_bytes, p.backend_written_bytes, seconds),
    pinned: p.cache_pinned_bytes,
  };
}
