// What the page knows, and the loop that asks the daemon for it.

import { get, type Counters, type Event, type Offload, type Pool, type Session, type Status, type Volume } from "./api";
import { History } from "./history";

const INTERVAL = 1000; // ms between two readings
const SLOW = 5; // readings between two listings of objects
const EVENTS = 300; // kept

type Listener = () => void;

export class Store {
  history = new History();
  status: Status | undefined;
  volumes = new Map<string, Volume>();
  pools: Pool[] = [];
  sessions: Session[] = [];
  offloads: Offload[] = []; // in flight
  events: Event[] = []; // newest first
  error = "";
  paused = false;
  private round = 0;
  private stale = true;
  private busy = false;
  private timer = 0;
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

  /** Lists the objects anew at once: somebody changed them. */
  refresh(): Promise<void> {
    this.stale = true;
    return this.poll();
  }

  private async poll(): Promise<void> {
    if (this.busy || (this.paused && !this.stale)) return;
    this.busy = true;
    try {
      const since = this.events[0]?.number ?? 0;
      const [counters, events, offloads] = await Promise.all([get<Counters>("/counters"), get<Event[]>(`/events?since=${since}`), get<Offload[]>("/offloads")]);
      if (!this.paused) {
        this.history.add(counters);
        this.offloads = offloads;
      }
      if (events.length > 0) {
        this.events = [...events.reverse(), ...this.events].slice(0, EVENTS);
        this.stale ||= events.some((e) => e.kind === "change");
      }
      if (this.stale || this.round++ % SLOW === 0) await this.list();
      this.error = "";
    } catch (e) {
      this.error = e instanceof Error ? e.message : String(e);
      this.events = this.events.length > 0 && e instanceof TypeError ? [] : this.events; // its numbers begin anew
    } finally {
      this.busy = false;
    }
    this.changed();
  }

  private async list(): Promise<void> {
    this.stale = false;
    const [status, volumes, pools, sessions] = await Promise.all([
      get<Status>("/status"),
      get<Volume[]>("/volumes"),
      get<Pool[]>("/pools"),
      get<Session[]>("/sessions"),
    ]);
    this.status = status;
    this.volumes = new Map(volumes.map((v) => [v.name, v]));
    this.pools = pools;
    this.sessions = sessions;
  }
}

export const store = new Store();
