// A range of time that charts show, and what the daemon's history has of it.

import type { HistoryObject, HistoryRange } from "./api";

/** A figure over time; null is unknown. */
export type Values = (number | null)[];

/** The ranges to choose from, in seconds. */
export const RANGES: [label: string, seconds: number][] = [
  ["5 min", 300],
  ["1 hour", 3600],
  ["6 hours", 6 * 3600],
  ["1 day", 86400],
  ["1 week", 7 * 86400],
];

export interface Range {
  seconds: number;
  /** Its end in seconds since 1970; 0 follows the present. */
  to: number;
}

const POINTS = 300;
/** So many of the slowest volumes of a range, and of its end, whatever they did. */
const SLOWEST = 6;

export class View {
  /** Ends of the steps, in seconds since 1970. */
  readonly times: number[];
  readonly step: number;
  readonly from: number;
  readonly to: number;
  private readonly objects = new Map<string, HistoryObject>();

  constructor(
    readonly range: Range,
    readonly volume: string,
    h: HistoryRange,
  ) {
    this.times = h.times_ms.map((t) => t / 1000);
    this.step = h.step_ms / 1000;
    this.to = range.to || (this.times[this.times.length - 1] ?? Date.now() / 1000);
    this.from = this.to - range.seconds;
    for (const o of h.objects) this.objects.set(`${o.kind} ${o.name ?? ""}`, o);
  }

  /** How many steps are of the last five seconds. One that has just begun may have no sample yet: the one before counts. */
  get recent(): number {
    return Math.max(2, Math.ceil(5 / this.step));
  }

  series(kind: HistoryObject["kind"], name: string, figure: string): Values {
    return this.objects.get(`${kind} ${name}`)?.series[figure] ?? this.times.map(() => null);
  }

  /** The number of the newest object of a name, if the history has it. */
  id(kind: HistoryObject["kind"], name: string): number | undefined {
    return this.objects.get(`${kind} ${name}`)?.id;
  }

  /** Names of a kind, in the order of what they did; the slowest volumes come behind the most active ones. */
  names(kind: HistoryObject["kind"]): string[] {
    return [...this.objects.values()].filter((o) => o.kind === kind).map((o) => o.name ?? "");
  }

  /** Whether it shows what a range asks for, and is fresh enough. */
  serves(range: Range, volume: string, now: number): boolean {
    if (range.seconds !== this.range.seconds || range.to !== this.range.to || volume !== this.volume) return false;
    return range.to > 0 || now - this.to < Math.max(0.9, Math.min(this.step, 60));
  }
}

/** The question for a range; volume "" is the whole array. */
export function ask(range: Range, volume: string): string {
  const q = new URLSearchParams({ seconds: String(Math.ceil(range.seconds)), points: String(POINTS), slowest: String(SLOWEST) });
  if (range.to > 0) q.set("to_ms", String(Math.ceil(range.to * 1000)));
  if (volume) q.set("volume", volume);
  return `/history?${q}`;
}

/** The last known value of the last so many steps. */
export function latest(v: Values, steps: number): number | null {
  for (let i = v.length - 1; i >= Math.max(0, v.length - steps); i--) {
    const x = v[i];
    if (x !== null && x !== undefined) return x;
  }
  return null;
}

/** The highest known value. */
export function highest(v: Values): number | null {
  let top: number | null = null;
  for (const x of v) if (x !== null && (top === null || x > top)) top = x;
  return top;
}

/** a - b where both are known, never below 0. */
export const minus = (a: Values, b: Values): Values => a.map((x, i) => (x === null || b[i] === null || b[i] === undefined ? null : Math.max(0, x - b[i])));
