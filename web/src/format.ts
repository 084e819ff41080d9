// Numbers for people.

const UNITS = ["B", "KiB", "MiB", "GiB", "TiB", "PiB"];

/** A size in binary units, three digits or so; with .0 it is a rounded one. What lacks a millionth is a sum of rates. */
export function size(n: number): string {
  let i = 0;
  while (n >= 1024 && i < UNITS.length - 1) {
    n /= 1024;
    i++;
  }
  return `${i === 0 || n >= 100 || Math.abs(n - Math.round(n)) < n / 1e6 ? Math.round(n) : n.toFixed(1)} ${UNITS[i]}`;
}

/** A rate in MB/s, the unit in which storage people think. */
export function rate(n: number): string {
  const mb = n / 1e6;
  return mb === 0 ? "0" : mb < 0.1 ? "<0.1" : mb >= 100 ? mb.toFixed(0) : mb.toFixed(1);
}

export const count = (n: number) => (n > 0 && n < 10 ? n.toFixed(1).replace(/\.0$/, "") : Math.round(n).toLocaleString("en"));

/** Milliseconds of a time in nanoseconds, with so many digits that a time is not 0. */
export function millis(ns: number | null): string {
  if (ns === null || ns === 0) return "–";
  const ms = ns / 1e6;
  return ms >= 1000 ? Math.round(ms).toLocaleString("en") : ms >= 1 ? ms.toFixed(1) : ms >= 0.01 ? ms.toFixed(2) : ms >= 0.001 ? ms.toFixed(3) : "<0.001";
}

/** A share; what is a little of it is not none, and what lacks a little is not all. */
export function percent(part: number, whole: number): string {
  if (whole <= 0) return "–";
  const n = Math.round((100 * part) / whole);
  return n === 0 && part > 0 ? "<1 %" : n === 100 && part < whole ? ">99 %" : `${n} %`;
}

/** Units of sizes, in small letters: the grammar of docs/sizes.md. */
const BYTES = new Map<string, bigint>([["", 1n], ["b", 1n]]);
[..."kmgtp"].forEach((k, i) => {
  const two = 1024n ** BigInt(i + 1);
  for (const unit of [k, `${k}i`, `${k}ib`]) BYTES.set(unit, two);
  BYTES.set(`${k}b`, 1000n ** BigInt(i + 1));
});

/** Reads 512MiB, 1.5G (of 1024), 100MB (of 1000) or plain bytes; NaN when it is none, or not whole bytes. */
export function parseSize(text: string): number {
  const m = /^(\d+(?:\.\d+)?)\s*([a-z]*)$/i.exec(text.trim());
  const unit = BYTES.get((m?.[2] ?? "?").toLowerCase());
  const digits = m?.[1] ?? "";
  if (unit === undefined || digits.length > 40) return NaN;
  const [whole = "", part = ""] = digits.split(".");
  const n = BigInt(whole + part) * unit;
  const tens = 10n ** BigInt(part.length);
  return n % tens === 0n && n / tens <= BigInt(Number.MAX_SAFE_INTEGER) ? Number(n / tens) : NaN;
}

/** A size to the byte, as parseSize reads it. Dialogs show this: a rounded one, sent back, would change something. */
export function exactSize(n: number): string {
  let i = 0;
  while (n !== 0 && n % 1024 === 0 && i < UNITS.length - 1) {
    n /= 1024;
    i++;
  }
  return i === 0 ? String(n) : `${n}${UNITS[i]}`;
}

/** A size in three digits or so, and to the byte where that is another. */
export function fullSize(n: number): string {
  return parseSize(size(n)) === n ? size(n) : `${size(n)} (${exactSize(n)}${n % 1024 === 0 ? "" : " B"})`;
}

export const sum = (s: Record<string, number>) => Object.values(s).reduce((a, b) => a + b, 0);

const pad = (n: number) => String(n).padStart(2, "0");

/** A date and a time of day, as this machine's clock has it: 2026-11-23 07:02:11. */
export function stamp(at: string | number): string {
  const d = new Date(at);
  return `${d.getFullYear()}-${pad(d.getMonth() + 1)}-${pad(d.getDate())} ${pad(d.getHours())}:${pad(d.getMinutes())}:${pad(d.getSeconds())}`;
}

/** A length of time in its largest units. */
export function span(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min${s % 60 ? ` ${s % 60} s` : ""}`;
  if (s < 86400) return `${Math.floor(s / 3600)} h ${Math.floor((s % 3600) / 60)} min`;
  return `${Math.floor(s / 86400)} d ${Math.floor((s % 86400) / 3600)} h`;
}
