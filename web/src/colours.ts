// A colour belongs to an object: the same volume has it in every chart, every range and every browser.

export const UNDERCOVER = "#d55e00";
export const HOSTS = "#0072b2";
export const CACHED = "#009e73";

/** Okabe and Ito's colours without the one that means undercover, which all kinds of colour vision tell apart. */
const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c6d31", "#7f7f7f"];
/** Dashes tell them apart once more. */
const DASHES = [[], [8, 3], [2, 3], [8, 3, 2, 3], [14, 4]];

export interface Look {
  colour: string;
  dash: number[];
}

/** The look of number n: colours first, dashes when they are used up. */
export function look(n: number): Look {
  const at = Math.abs(n);
  return { colour: COLOURS[at % COLOURS.length] ?? HOSTS, dash: DASHES[Math.floor(at / COLOURS.length) % DASHES.length] ?? [] };
}

/** A number for a name that has none: an object that is gone. */
export function hash(name: string): number {
  let h = 0;
  for (const c of name) h = (h * 31 + (c.codePointAt(0) ?? 0)) >>> 0;
  return h % (COLOURS.length * DASHES.length);
}
