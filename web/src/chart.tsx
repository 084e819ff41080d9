// A time chart: uPlot in a figure, with a legend of current values and its latest values in words.

import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import uPlot from "uplot";
import { UNDERCOVER, type Look } from "./colours";
import { span, stamp } from "./format";
import { latest, type Values, type View } from "./range";
import { store } from "./store";

export interface Line extends Look {
  label: string;
  /** Oldest first, as many as the times; null is a gap. */
  values: Values;
  /** Fills down to the line before: the area between two layers. */
  between?: boolean;
  fill?: boolean;
}

interface Props {
  title: string;
  id: string;
  unit: string;
  view: View | undefined;
  lines: Line[];
  show: (n: number) => string;
  max?: number;
  /** The scale reaches up to here at least, so that next to nothing looks like it. */
  least?: number;
  note?: string;
  /** What to try when there is nothing to draw. */
  empty: string;
}

const HEIGHT = 190;
const WEEK = 7 * 86400;

/** Steps of an axis of sizes. */
const BINARY = Array.from({ length: 50 }, (_, i) => 2 ** i);

const resolved = new Map<string, string>();

/** A colour of the style sheet as a canvas takes it: light-dark() resolved. */
function css(name: string): string {
  let c = resolved.get(name);
  if (c === undefined) {
    const probe = document.createElement("i");
    probe.style.color = `var(${name})`;
    document.body.append(probe);
    c = getComputedStyle(probe).color;
    probe.remove();
    resolved.set(name, c);
  }
  return c;
}

/** The same, as transparent as that. */
function tint(name: string, alpha: number): string {
  return css(name).replace(/^rgba?\((\d+), (\d+), (\d+).*$/, `rgba($1, $2, $3, ${alpha})`);
}

/** Stripes, so that the area is seen without colour. */
function stripes(u: uPlot): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const c = tile.getContext("2d");
  if (!c) return tint(UNDERCOVER, 0.4);
  c.fillStyle = tint(UNDERCOVER, 0.33);
  c.fillRect(0, 0, 8, 8);
  c.strokeStyle = css(UNDERCOVER);
  c.lineWidth = 1.5;
  c.beginPath();
  for (const d of [-8, 0, 8]) {
    c.moveTo(d, 8);
    c.lineTo(d + 8, 0);
  }
  c.stroke();
  return u.ctx.createPattern(tile, "repeat") ?? tint(UNDERCOVER, 0.4);
}

const two = (n: number) => String(n).padStart(2, "0");

/** A moment on an axis, as exactly as its steps need. */
function moment(t: number, step: number): string {
  const d = new Date(t * 1000);
  const day = `${d.toLocaleString("en", { month: "short" })} ${d.getDate()}`;
  if (step >= 86400 || (step >= 3600 && d.getHours() === 0)) return day;
  return `${two(d.getHours())}:${two(d.getMinutes())}${step < 60 ? `:${two(d.getSeconds())}` : ""}`;
}

/** A tick of an axis, with the digits that its steps need: 0.25 is not 0.3. Rates are in bytes, times in nanoseconds. */
function tick(t: number, step: number, unit: string): string {
  const scale = unit === "%" ? 1 : 1e6;
  const part = step / scale;
  let digits = 0;
  while (digits < 4 && Math.abs(part * 10 ** digits - Math.round(part * 10 ** digits)) > 1e-6) digits++;
  return (t / scale).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits });
}

/** Values with no neighbours, or with few and close ones: nobody sees a line of some pixels, so these are drawn as dots. */
function alone(values: readonly (number | null | undefined)[], x: (i: number) => number): number[] {
  const known = (i: number) => values[i] !== null && values[i] !== undefined;
  const dots: number[] = [];
  for (let i = 0, from = 0; i < values.length; i++) {
    if (!known(i)) from = i + 1;
    else if (!known(i + 1) && x(i) - x(from) < DOT) dots.push(...Array.from({ length: i + 1 - from }, (_, n) => from + n));
  }
  return dots;
}

/** The width of a dot in pixels. */
const DOT = 5;

/** How far apart the labels of times are at least, in pixels: those with seconds are longer than the others. */
function apart(_u: uPlot, _axis: number, from: number, to: number, pixels: number): number {
  return (45 * (to - from)) / pixels > 30 ? 45 : 75;
}

interface Live {
  view: View | undefined;
  hover: (at: number | null) => void;
}

function options(p: Props, live: Live, width: number): uPlot.Options {
  const axis = { stroke: () => css("--text"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { stroke: () => css("--grid"), width: 1 } };
  return {
    width,
    height: HEIGHT,
    cursor: { sync: { key: "arraysim" }, y: false, drag: { x: true, y: false, setScale: false } },
    legend: { show: false },
    scales: {
      x: { time: true, range: () => [live.view?.from ?? 0, live.view?.to ?? 1] },
      y: { range: (_u, _lo, hi) => [0, p.max ?? Math.max(hi * 1.1, p.least ?? 1)] },
    },
    axes: [
      { ...axis, space: apart, values: (_u, ticks, _axis, _space, step) => ticks.map((t) => moment(t, step)) },
      { ...axis, label: p.unit, labelSize: 18, size: 64, incrs: p.unit === "" ? BINARY : undefined, values: (_u, ticks, _axis, _space, step) => ticks.map((t) => (t === 0 ? "0" : p.unit === "" ? p.show(t) : tick(t, step, p.unit))) },
    ] as uPlot.Axis[],
    series: [
      {},
      ...p.lines.map((l) => ({
        label: l.label,
        stroke: () => css(l.colour),
        dash: l.between || l.fill ? [] : l.dash,
        width: 2,
        fill: l.fill ? () => tint(l.colour, 0.2) : undefined,
        points: { show: false, size: DOT, fill: () => css(l.colour), filter: (u: uPlot, i: number) => alone([...(u.data[i] ?? [])], (at) => u.valToPos(u.data[0]?.[at] ?? 0, "x")) },
        spanGaps: false,
      })),
    ] as uPlot.Series[],
    bands: p.lines.flatMap((l, i) => (l.between ? [{ series: [i + 1, i] as [number, number], fill: stripes as never }] : [])),
    hooks: {
      setCursor: [(u) => live.hover(u.cursor.idx ?? null)],
      setSelect: [
        (u) => {
          if (u.select.width < 8) return;
          const from = u.posToVal(u.select.left, "x");
          const to = u.posToVal(u.select.left + u.select.width, "x");
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          store.show({ seconds: Math.max(10, to - from), to });
        },
      ],
    },
  };
}

export function Chart(p: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const live = useRef<Live>({ view: p.view, hover: () => undefined });
  const [hover, setHover] = useState<number | null>(null);
  const shape = JSON.stringify(p.lines.map((l) => [l.label, l.colour, l.dash]));
  live.current.view = p.view;
  live.current.hover = setHover;
  const times = p.view?.times ?? [];
  const recent = p.view?.recent ?? 1;
  const step = p.view?.step ?? 1;

  // In the same task as the legend: what is seen with the legend of new lines is the canvas of these lines.
  useLayoutEffect(() => {
    const at = box.current;
    if (!at) return;
    const width = () => Math.max(at.clientWidth, 240);
    const u = new uPlot(options(p, live.current, width()), [times, ...p.lines.map((l) => l.values)] as uPlot.AlignedData, at);
    plot.current = u;
    const resized = new ResizeObserver(() => u.setSize({ width: width(), height: HEIGHT }));
    resized.observe(at);
    const dark = window.matchMedia("(prefers-color-scheme: dark)");
    const redraw = () => {
      resolved.clear();
      u.redraw();
    };
    dark.addEventListener("change", redraw);
    document.addEventListener("theme", redraw);
    return () => {
      dark.removeEventListener("change", redraw);
      document.removeEventListener("theme", redraw);
      resized.disconnect();
      u.destroy();
      plot.current = null;
    };
  }, [shape]);

  useEffect(() => {
    plot.current?.setData([times, ...p.lines.map((l) => l.values)] as uPlot.AlignedData);
  }, [p.view, shape]);

  const value = (v: number | null | undefined) => (v === null || v === undefined ? "–" : `${p.show(v)} ${p.unit}`.trim());
  const words = p.lines.map((l) => `${l.label} ${value(latest(l.values, recent))}`).join(", ");
  const at = hover === null ? undefined : times[hover];
  return (
    <figure id={p.id} class="chart">
      <figcaption>
        <h2>{p.title}</h2>
        {p.note && <p class="note">{p.note}</p>}
      </figcaption>
      <div ref={box} role="img" aria-label={`${p.title}, now: ${words || "nothing yet"}`} hidden={p.lines.length === 0} />
      {p.lines.length === 0 ? (
        <p class="empty">{p.view ? p.empty : "…"}</p>
      ) : (
        <ul class="legend" aria-hidden="true">
          {p.lines.map((l) => (
            <li key={l.label}>
              <svg width="22" height="10">
                <line x1="0" y1="5" x2="22" y2="5" style={{ stroke: `var(${l.colour})` }} stroke-width="3" stroke-dasharray={l.between || l.fill ? "" : l.dash.join(" ")} />
              </svg>
              {l.label} <b>{value(hover === null ? latest(l.values, recent) : l.values[hover])}</b>
            </li>
          ))}
          <li class="when">{at === undefined ? (store.error ? "last known" : p.view?.range.to ? "at the end of the range" : step > 5 ? `last ${span(step)}` : "now") : moment(at, Math.min(p.view?.step ?? 1, 60))}</li>
        </ul>
      )}
    </figure>
  );
}

/** Chooses the range of all charts. */
export function Ranges({ ranges }: { ranges: [string, number][] }) {
  const r = store.range;
  const zoomed = r.to > 0;
  const now = Date.now() / 1000;
  const end = zoomed ? r.to : now;
  return (
    <div class="ranges" role="group" aria-label="Range of the charts">
      {ranges.map(([label, seconds]) => (
        <button key={label} type="button" aria-pressed={!zoomed && r.seconds === seconds} onClick={() => store.show({ seconds, to: 0 })}>
          {label}
        </button>
      ))}
      <span class="zoom">
        <button type="button" onClick={() => store.show({ seconds: r.seconds, to: end - r.seconds / 2 })}>
          Earlier
        </button>
        <button type="button" disabled={!zoomed} onClick={() => store.show(end + r.seconds / 2 >= now ? { seconds: r.seconds, to: 0 } : { seconds: r.seconds, to: end + r.seconds / 2 })}>
          Later
        </button>
        <button type="button" disabled={r.seconds <= 20} onClick={() => store.show({ seconds: r.seconds / 2, to: zoomed ? end - r.seconds / 4 : 0 })}>
          Zoom in
        </button>
        <button type="button" disabled={r.seconds >= WEEK} onClick={() => store.show({ seconds: Math.min(WEEK, r.seconds * 2), to: zoomed ? Math.min(now, end + r.seconds / 2) : 0 })}>
          Zoom out
        </button>
      </span>
      <span class="note">{zoomed ? `${stamp((end - r.seconds) * 1000)} to ${stamp(end * 1000)}` : "Drag across a chart to zoom."}</span>
    </div>
  );
}
