// Numbers for people.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** A size in binary units, three digits or so. */
export function size(n: number): string {
  let i = 0;
  while (n >= 1024 && i < UNITS.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 || n >= 100 || n === Math.round(n) ? Math.round(n) : n.toFixed(1)} ${UNITS[i]}`;
}

/** A rate in MB/s, the unit in which storage people think. */
export function rate(n: number): string {
  const mb = n / 1e6;
  return mb === 0 ? "0" : mb < 0.1 ? "<0.1" : mb >= 100 ? mb.toFixed(0) : mb.toFixed(1);
}

export const count = (n: number) => (n > 0 && n < 10 ? n.toFixed(1).replace(/\.0$/, "") : Math.round(n).toLocaleString("en"));

/** Milliseconds of a time in nanoseconds. */
export const millis = (ns: number) => (ns === 0 ? "–" : ns < 1e6 ? (ns / 1e6).toFixed(2) : (ns / 1e6).toFixed(1));

export const percent = (part: number, whole: number) => (whole > 0 ? `${Math.round((100 * part) / whole)} %` : "–");

/** Reads 512MiB, 10G, 1TiB or plain bytes; NaN when it is none. */
export function parseSize(text: string): number {
  const m = /^\s*(\d+(?:\.\d+)?)\s*([kmgtp]?)(?:i?b)?\s*$/i.exec(text);
  if (!m) return NaN;
  return Math.round(Number(m[1]) * 1024 ** " kmgtp".indexOf((m[2] || " ").toLowerCase()));
}

export const sum = (s: Record<string, number>) => Object.values(s).reduce((a, b) => a + b, 0);
