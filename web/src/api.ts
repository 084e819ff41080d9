// The daemon's HTTP interface, as docs/openapi.json describes it. Sizes are in bytes.

export type Sums = Record<string, number>;

export interface VolumeCounters {
  volume: string;
  id: number;
  pool: string;
  host_commands: number;
  host_read_bytes: number;
  host_written_bytes: number;
  host_described_bytes: Sums;
  cache_admitted_bytes: Sums;
  cache_dirty_bytes: number;
  undercover_write_bytes: number;
  offload_operations: Sums;
  host_queue_depth: number;
  host_timed_commands: number;
  host_busy_ns: number;
}

export interface PoolCounters {
  pool: string;
  cache_used_bytes: number;
  cache_limit_bytes: number;
  cache_waiting_bytes: number;
  cache_pinned_bytes: number;
  backend_read_bytes: number;
  backend_written_bytes: number;
  backend_written_by_origin: Sums;
  offload_inflight_bytes: Sums;
  backend_queue_depth: number;
}

export interface HostCounters {
  host: string;
  commands: Sums;
  failed: number;
}

export interface Counters {
  time_ns: number;
  cache_size: number;
  volumes: VolumeCounters[];
  pools: PoolCounters[];
  hosts: HostCounters[];
}

export interface Export {
  volume: string;
  lun: number;
  target: string;
  initiators: string[] | null;
}

export interface Volume {
  name: string;
  id: number;
  pool: string;
  size: number;
  thin: boolean;
  block_size: number;
  write_protect: boolean;
  naa: string;
  exports: Export[];
  kernel_device?: string;
  mapped: number;
  zero: number;
  anchored: number;
  unmapped: number;
  dirty: number;
}

export interface Mdisk {
  name: string;
  size: number;
  bandwidth: number;
  iops: number;
  failures: number;
  offline: boolean;
}

export interface Pool {
  name: string;
  id: number;
  copy_data: boolean;
  capacity: number;
  allocated: number;
  reserved: number;
  cache_limit: number;
  cache_used: number;
  volumes: number;
  write_mode: string;
  mdisks: Mdisk[];
}

export interface Session {
  initiator: string;
  address: string;
  target?: string;
  commands: number;
  received_bytes: number;
  sent_bytes: number;
  since: string;
}

/** Who has an array in a Ceph pool. What is not known is left out. */
export interface Ownership {
  state: string;
  owner: string;
  epoch?: number;
  lease_age_s?: number;
  since?: string;
  trouble?: string;
  trouble_since?: string;
}

/** One of the nodes that show the same array, as far as the one that is asked knows. */
export interface NodeStatus {
  id: number;
  name: string;
  state: "owner" | "forwarding" | "away";
  ports: number[];
  stands_by?: boolean;
  address?: string;
  sessions?: number;
  commands?: number;
}

export interface Status {
  version: string;
  data: string;
  portal: string;
  target: string;
  dirty: number;
  mirrored: boolean;
  /** What fails now, a line each; the numbers in it change. */
  health?: string[];
  ownership?: Ownership;
  nodes?: NodeStatus[];
}

export interface Policy {
  admission: string;
  destage_order: string;
  destage_depth: number;
  copy_pieces: number;
  copy_bytes: number;
  copy_reads: number;
  budget_percent: number;
  budget_host_percent: number;
  budget_pressure: boolean;
}

export interface Event {
  number: number;
  time: string;
  kind: "change" | "fault" | "undercover" | "full" | "session" | "node";
  volume?: string;
  pool?: string;
  text: string;
}

/** A part of what the daemon keeps of the last week; null is unknown. */
export interface HistoryRange {
  step_ms: number;
  times_ms: number[];
  objects: HistoryObject[];
}

export interface HistoryObject {
  kind: "total" | "volume" | "pool";
  name?: string;
  /** The number of the newest object of this name; files of earlier versions do not have it. */
  id?: number;
  series: Record<string, (number | null)[]>;
}

/** An alarm that stays until it is dismissed. */
export interface Finding {
  id: number;
  volume: string;
  pool: string;
  origins: string[];
  began: string;
  last: string;
  active: boolean;
  episodes: number;
  undercover_bytes: number;
  host_written_bytes: number;
  peak_cache_dirty_bytes: number;
  victims: Victim[];
  compared_volumes: number;
  unknown_volumes: number;
}

/** A volume that waited while offloads wrote to another one of its pool. */
export interface Victim {
  volume: string;
  mean_before_ns: number;
  mean_ns: number;
  p99_ns: number;
}

export interface Totals {
  undercover_bytes: number;
  host_written_bytes: number;
  offloads: number;
  seconds: number;
}

export interface Findings {
  findings: Finding[];
  since_start: Totals;
  last_hour: Totals;
}

/** An offload command that has begun and not ended. */
export interface Offload {
  volume: string;
  initiator: string;
  primitive: string;
  done_bytes: number;
  total_bytes: number;
  age_ns: number;
  background?: boolean;
}

/** An answer that is an error: problem details of RFC 9457. */
export class Refusal extends Error {
  constructor(
    readonly status: number,
    detail: string,
    readonly force: boolean,
  ) {
    super(detail);
  }
}

const TOKEN = "arraysim.token";

/** The token lives as long as the tab. */
export const token = {
  get: () => sessionStorage.getItem(TOKEN) ?? "",
  set: (t: string) => (t ? sessionStorage.setItem(TOKEN, t) : sessionStorage.removeItem(TOKEN)),
};

export async function call<T>(method: string, path: string, body?: unknown): Promise<T> {
  const headers: Record<string, string> = {};
  if (token.get()) headers["Authorization"] = `Bearer ${token.get()}`;
  if (body !== undefined) headers["Content-Type"] = "application/json";
  const r = await fetch(`/api/v1${path}`, {
    method,
    headers,
    body: body === undefined ? null : JSON.stringify(body),
    cache: "no-store",
    signal: method === "GET" ? AbortSignal.timeout(10_000) : null,
  });
  if (r.ok) return (r.status === 204 ? undefined : await r.json()) as T;
  const p = (await r.json().catch(() => ({}))) as { detail?: string; force?: boolean };
  throw new Refusal(r.status, p.detail ?? `the daemon answers ${r.status}`, p.force ?? false);
}

export const get = <T>(path: string) => call<T>("GET", path);
