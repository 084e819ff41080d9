// A table that is searched and sorted.

import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";

export interface Column<T> {
  name: string;
  title?: string;
  value: (row: T) => string | number;
  cell?: (row: T) => ComponentChildren;
  number?: boolean;
  /** Left out where the screen is narrow. */
  wide?: boolean;
  /** What may take more than a line. */
  long?: boolean;
}

interface Props<T> {
  id: string;
  label: string;
  rows: T[];
  columns: Column<T>[];
  keyOf: (row: T) => string;
  /** The column sorted by first; numbers begin with the largest. */
  sort: string;
  /** Numbers, too, begin with the smallest. */
  ascending?: boolean;
  search?: boolean;
  /** What to try when there are no rows. */
  empty: string;
}

export const volumeLink = (name: string) => <a href={`#/volume/${encodeURIComponent(name)}`}>{name}</a>;

const shape = (c: { number?: boolean; wide?: boolean; long?: boolean }) => `${c.number ? "n" : ""}${c.wide ? " wide" : ""}${c.long ? " long" : ""}`.trim();

const PAGE = 100;

export function Table<T>(p: Props<T>) {
  const [sort, setSort] = useState({ name: p.sort, down: !p.ascending && (p.columns.find((c) => c.name === p.sort)?.number ?? false) });
  const [text, setText] = useState("");
  const [limit, setLimit] = useState(PAGE);
  const by = p.columns.find((c) => c.name === sort.name) ?? p.columns[0];
  if (!by) return null;

  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const rows = p.rows.filter((r) => {
    if (words.length === 0) return true;
    const all = p.columns.filter((c) => !c.number).map((c) => String(c.value(r))).join(" ").toLowerCase();
    return words.every((w) => all.includes(w));
  });
  const key = new Map(rows.map((r) => [r, by.value(r)]));
  rows.sort((a, b) => {
    const x = key.get(a) ?? 0;
    const y = key.get(b) ?? 0;
    const d = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y), "en", { numeric: true });
    return (sort.down ? -d : d) || p.keyOf(a).localeCompare(p.keyOf(b), "en", { numeric: true });
  });

  return (
    <section class="table" id={p.id}>
      {p.search !== false && (
        <p class="search">
          <input type="search" aria-label={`Search ${p.label}`} placeholder="Search ( / )" value={text} onInput={(e) => setText(e.currentTarget.value)} />
          <output>
            {rows.length} of {p.rows.length}
          </output>
        </p>
      )}
      <div class="scroll" tabIndex={0} role="region" aria-label={`Table of ${p.label}`}>
        <table>
          <caption class="hidden">{p.label}</caption>
          <thead>
            <tr>
              {p.columns.map((c) => (
                <th key={c.name} scope="col" class={shape(c)} aria-sort={c === by ? (sort.down ? "descending" : "ascending") : "none"}>
                  <button type="button" title={c.title} onClick={() => setSort({ name: c.name, down: c === by ? !sort.down : !!c.number })}>
                    {c.name}
                    <span aria-hidden="true">{c === by ? (sort.down ? " ▾" : " ▴") : ""}</span>
                  </button>
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.slice(0, limit).map((r) => (
              <tr key={p.keyOf(r)}>
                {p.columns.map((c) => (
                  <td key={c.name} class={shape(c)}>
                    {c.cell ? c.cell(r) : c.value(r)}
                  </td>
                ))}
              </tr>
            ))}
          </tbody>
        </table>
      </div>
      {rows.length > limit && (
        <button type="button" onClick={() => setLimit(limit + 10 * PAGE)}>
          Show {Math.min(rows.length - limit, 10 * PAGE)} more
        </button>
      )}
      {rows.length === 0 && <p class="empty">{p.rows.length > 0 ? "Nothing matches the search. Clear it to see all rows." : p.empty}</p>}
    </section>
  );
}
