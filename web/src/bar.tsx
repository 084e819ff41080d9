// How much of something is used: a bar with its figures.

import type { ComponentChildren } from "preact";
import { percent, size } from "./format";

interface Props {
  part: number;
  whole: number;
  label: string;
  /** Much of it is worth a warning. */
  warn?: boolean;
  /** Leaves the percentage to the bar. */
  short?: boolean;
  children?: ComponentChildren;
}

export function Bar({ part, whole, label, warn, short, children }: Props) {
  return (
    <span class="bar">
      <meter min={0} max={100} high={warn ? 80 : undefined} optimum={warn ? 0 : undefined} value={whole > 0 ? (100 * part) / whole : 0} aria-label={label} />
      <span class="n">
        {size(part)} of {size(whole)}
        {short ? "" : ` (${percent(part, whole).replace(" ", "\u00a0")})`}
        {children}
      </span>
    </span>
  );
}
