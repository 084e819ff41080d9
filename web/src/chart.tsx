// A time chart: uPlot in a figure that says its latest values in words too.

import { useEffect, useRef } from "preact/hooks";
import uPlot from "uplot";

/** Okabe and Ito's colours, which all kinds of colour vision tell apart; dashes tell them apart once more. */
export const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#8c6d31"];
export const UNDERCOVER = "#d55e00";
const DASHES = [[], [8, 3], [2, 3], [8, 3, 2, 3], [14, 4], [4, 2]];

export interface Line {
  label: string;
  /** Oldest first, as many as the times; null is a gap. */
  values: (number | null)[];
  colour?: string;
  /** Fills down to the line before: the area between two layers. */
  between?: boolean;
  fill?: boolean;
}

interface Props {
  title: string;
  id: string;
  unit: string;
  time: number[];
  lines: Line[];
  show: (n: number) => string;
  max?: number;
  /** The scale reaches up to here at least, so that next to nothing looks like it. */
  least?: number;
  note?: string;
}

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

/** Stripes, so that the area is seen without colour. */
function stripes(u: uPlot): CanvasPattern | string {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 8;
  const c = tile.getContext("2d");
  if (!c) return `${UNDERCOVER}66`;
  c.fillStyle = `${UNDERCOVER}55`;
  c.fillRect(0, 0, 8, 8);
  c.strokeStyle = UNDERCOVER;
  c.lineWidth = 1.5;
  c.beginPath();
  for (const d of [-8, 0, 8]) {
    c.moveTo(d, 8);
    c.lineTo(d + 8, 0);
  }
  c.stroke();
  return u.ctx.createPattern(tile, "repeat") ?? `${UNDERCOVER}66`;
}

function options(p: Props, width: number): uPlot.Options {
  const axis = { stroke: () => css("--text"), grid: { stroke: () => css("--grid"), width: 1 }, ticks: { stroke: () => css("--grid"), width: 1 } };
  return {
    width,
    height: 190,
    cursor: { sync: { key: "arraysim" }, y: false },
    legend: { live: true },
    scales: { x: { time: true }, y: { range: (_u, _lo, hi) => [0, p.max ?? Math.max(hi * 1.1, p.least ?? 1)] } },
    axes: [axis, { ...axis, label: p.unit, labelSize: 18, size: 64, incrs: p.unit === "" ? BINARY : undefined, values: (_u, ticks) => ticks.map((t) => (t === 0 ? "0" : p.show(t))) }] as uPlot.Axis[],
    series: [
      { value: (_u, t) => (t ? new Date(t * 1000).toLocaleTimeString() : "") },
      ...p.lines.map((l, i) => ({
        label: l.label,
        stroke: l.colour ?? COLOURS[i % COLOURS.length] ?? "",
        dash: l.between || l.fill ? [] : (DASHES[i % DASHES.length] ?? []),
        width: 2,
        fill: l.fill ? `${l.colour ?? COLOURS[i % COLOURS.length]}33` : undefined,
        points: { show: false },
        spanGaps: false,
        value: (_u: uPlot, v: number | null) => (v === null ? "–" : `${p.show(v)} ${p.unit}`),
      })),
    ] as uPlot.Series[],
    bands: p.lines.flatMap((l, i) => (l.between ? [{ series: [i + 1, i] as [number, number], fill: stripes as never }] : [])),
  };
}

export function Chart(p: Props) {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const shape = JSON.stringify(p.lines.map((l) => l.label));

  useEffect(() => {
    const at = box.current;
    if (!at) return;
    const data = () => [p.time, ...p.lines.map((l) => l.values)] as uPlot.AlignedData;
    const u = new uPlot(options(p, Math.max(at.clientWidth, 240)), data(), at);
    plot.current = u;
    const resized = new ResizeObserver(() => u.setSize({ width: Math.max(at.clientWidth, 240), height: 190 }));
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

  const last = p.time[p.time.length - 1];
  useEffect(() => {
    plot.current?.setData([p.time, ...p.lines.map((l) => l.values)] as uPlot.AlignedData);
  }, [last, shape]);

  const words = p.lines.map((l) => `${l.label} ${p.show(l.values[l.values.length - 1] ?? 0)} ${p.unit}`).join(", ");
  return (
    <figure id={p.id} class="chart">
      <figcaption>
        <h2>{p.title}</h2>
        {p.note && <p class="note">{p.note}</p>}
      </figcaption>
      <div ref={box} role="img" aria-label={`${p.title}, now: ${words || "nothing yet"}`} />
      {p.lines.length === 0 && <p class="empty">Nothing yet.</p>}
    </figure>
  );
}
