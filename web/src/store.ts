// What the page knows, and the loop that asks the daemon for it.

import { get, Refusal, type Counters, type Event, type Findings, type HistoryRange, type Offload, type Pool, type Session, type Status, type Volume } from "./api";
import { look, STRANGER, type Look } from "./colours";
import { ask, View, type Range } from "./range";
import { Rates } from "./rates";

const INTERVAL = 1000; // ms between two readings
const SLOW = 5; // readings between two listings of objects
const EVENTS = 500; // kept

type Listener = () => void;

export class Store {
  rates = new Rates();
  status: Status | undefined;
  volumes = new Map<string, Volume>();
  pools: Pool[] = [];
  sessions: Session[] = [];
  /** Commands a second that nodes have forwarded between the last two listings, by their numbers. */
  forwarded = new Map<number, number>();
  /** Why this node has no array to show; "": it has one. */
  elsewhere = "";
  offloads: Offload[] = []; // in flight
  events: Event[] = []; // newest first
  findings: Findings | undefined;
  range: Range = { seconds: 300, to: 0 };
  view: View | undefined;
  /** Whose charts are on the page: a volume's, "" of the whole array, null none. */
  charts: string | null = null;
  error = "";
  /** When the daemon answered last. */
  heard = 0;
  paused = false;
  private restarted = false;
  private round = 0;
  private stale = true;
  private busy = false;
  private again = false;
  private timer = 0;
  private noted = 0; // when the status was
  private listeners = new Set<Listener>();

  subscribe(fn: Listener): Listener {
    this.listeners.add(fn);
    return () => this.listeners.delete(fn);
  }

  changed(): void {
    for (const fn of this.listeners) fn();
  }

  start(): void {
    this.timer = window.setInterval(() => void this.poll(), INTERVAL);
    void this.poll();
  }

  stop(): void {
    window.clearInterval(this.timer);
  }

  pause(on: boolean): void {
    this.paused = on;
    this.changed();
  }

  /** Shows another range of time. */
  show(range: Range): void {
    this.range = range;
    this.changed();
    void this.refresh();
  }

  /** Says whose charts the page shows. */
  chart(of: string | null): void {
    if (this.charts === of) return;
    this.charts = of;
    if (of !== null && this.view?.volume !== of) this.view = undefined;
    if (of !== null) void this.refresh();
  }

  /** Lists the objects again at once: somebody changed them. */
  refresh(): Promise<void> {
    this.stale = true;
    return this.poll();
  }

  /** How an object is drawn, by its number; the history has those of objects that are gone. */
  look(kind: "volume" | "pool", name: string): Look {
    const object = kind === "volume" ? this.volumes.get(name) : this.pools.find((p) => p.name === name);
    const id = object?.id ?? this.view?.id(kind, name);
    return id === undefined ? STRANGER : look(kind, id);
  }

  private async poll(): Promise<void> {
    if (this.busy) {
      this.again ||= this.stale;
      return;
    }
    if (this.paused && !this.stale) return;
    this.busy = true;
    try {
      if (this.elsewhere !== "" && !(await this.hasArray())) return;
      const since = this.restarted ? 0 : (this.events[0]?.number ?? 0);
      const [counters, status, events, offloads, findings] = await Promise.all([
        get<Counters>("/counters"),
        get<Status>("/status"),
        get<Event[]>(`/events?since=${since}`),
        get<Offload[]>("/offloads"),
        get<Findings>("/findings"),
        this.draw(),
      ]);
      // A daemon that restarted counts its events from 1.
      const again = this.restarted;
      this.restarted = !again && this.findings !== undefined && findings.since_start.seconds < this.findings.since_start.seconds;
      this.findings = findings;
      if (!this.paused || !this.status) this.note(status); // of the same second as the tiles
      if (!this.paused) {
        this.rates.add(counters);
        this.offloads = offloads;
      }
      if (events.length > 0 || again) {
        this.events = [...events.reverse(), ...(again ? [] : this.events)].slice(0, EVENTS);
        this.stale ||= events.some((e) => e.kind === "change" || e.kind === "fault");
      }
      if (this.stale || this.round++ % SLOW === 0) await this.list();
      this.error = "";
      this.heard = Date.now();
    } catch (e) {
      if (e instanceof Refusal && e.status === 503) {
        this.elsewhere = e.message; // the next reading asks who has it
        this.restarted = true; // what it has had as the owner is of another time
      } else {
        this.error = e instanceof Error ? e.message : String(e);
        this.restarted ||= e instanceof TypeError;
      }
    } finally {
      this.busy = false;
      this.changed();
      if (this.again) {
        this.again = false;
        void this.poll();
      }
    }
  }

  /** Asks a node that had no array whether it has it by now, and what it knows of the others. */
  private async hasArray(): Promise<boolean> {
    const status = await get<Status>("/status");
    this.note(status);
    this.error = "";
    this.heard = Date.now();
    if (status.ownership?.state !== "serving") return false;
    this.elsewhere = "";
    this.stale = true;
    return true;
  }

  /** Reads the history of what the page shows. */
  private async draw(): Promise<void> {
    const of = this.charts;
    const range = this.range;
    if (of === null || this.view?.serves(range, of, Date.now() / 1000)) return;
    if (this.paused && this.view?.range === range && this.view.volume === of) return;
    const h = await get<HistoryRange>(ask(range, of));
    if (of === this.charts && range === this.range) this.view = new View(range, of, h);
  }

  private async list(): Promise<void> {
    this.stale = false;
    const [volumes, pools, sessions] = await Promise.all([
      get<Volume[]>("/volumes"),
      get<Pool[]>("/pools"),
      get<Session[]>("/sessions"),
    ]);
    this.volumes = new Map(volumes.map((v) => [v.name, v]));
    this.pools = pools;
    this.sessions = sessions;
  }

  /** Notes a status, and what nodes have forwarded since the one before. */
  private note(status: Status): void {
    const now = performance.now();
    const seconds = (now - this.noted) / 1000;
    const before = new Map(this.status?.nodes?.map((n) => [n.id, n.commands ?? 0]));
    this.forwarded = new Map();
    for (const n of status.nodes ?? []) {
      const was = before.get(n.id);
      if (was !== undefined && seconds > 0) this.forwarded.set(n.id, Math.max(0, (n.commands ?? 0) - was) / seconds);
    }
    this.status = status;
    this.noted = now;
  }
}

export const store = new Store();
