// Charts on canvas: T_x as a line, what was expected as a band, what is above it in another colour.

import { number, severity, POINTS } from "./model.js";

const dark = matchMedia("(prefers-color-scheme: dark)");
let palette = null;
dark.addEventListener("change", () => { palette = null; });

function colours() {
  if (palette) return palette;
  const style = getComputedStyle(document.documentElement);
  const of = (name) => style.getPropertyValue(name).trim();
  palette = {
    line: of("--accent"), band: of("--band"), warm: of("--warm"), grid: of("--line"),
    soft: of("--soft"), good: of("--good"), ink: of("--ink"), font: getComputedStyle(document.body).fontFamily,
  };
  return palette;
}

function prepare(canvas) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const { clientWidth: width, clientHeight: height } = canvas;
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
  }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  pen.lineJoin = "round";
  pen.lineCap = "round";
  return { pen, width, height };
}

/** The top of the axis: a round number that holds the band and all but the wildest peaks. */
function top(points) {
  const times = points.map((p) => p.tx).filter((v) => v !== null).sort((a, b) => a - b);
  const expected = Math.max(0, ...points.map((p) => p.expected ?? 0));
  const most = Math.max(1.35 * expected, 1.12 * (times[Math.floor(0.985 * times.length)] ?? 0), 1);
  const unit = 10 ** Math.floor(Math.log10(most));
  return [1, 1.5, 2, 3, 4, 5, 7.5, 10].map((k) => k * unit).find((value) => value >= most);
}

function trace(pen, points, x, y, of) {
  pen.beginPath();
  let drawing = false;
  points.forEach((point, i) => {
    const value = of(point);
    if (value === null) { drawing = false; return; }
    if (drawing) pen.lineTo(x(i), y(value));
    else pen.moveTo(x(i), y(value));
    drawing = true;
  });
}

function curve(pen, points, x, y, bottom, width) {
  const c = colours();
  // The band from nothing to what was expected at most.
  pen.fillStyle = c.band;
  let from = null;
  for (let i = 0; i <= points.length; i += 1) {
    const there = i < points.length && points[i].expected !== null;
    if (there && from === null) from = i;
    if (!there && from !== null) {
      pen.beginPath();
      pen.moveTo(x(from), bottom);
      for (let j = from; j < i; j += 1) pen.lineTo(x(j), y(points[j].expected));
      pen.lineTo(x(i - 1), bottom);
      pen.fill();
      from = null;
    }
  }
  pen.lineWidth = width;
  pen.strokeStyle = c.line;
  trace(pen, points, x, y, (p) => p.tx);
  pen.stroke();
  // The pieces above it.
  pen.strokeStyle = c.warm;
  pen.beginPath();
  for (let i = 1; i < points.length; i += 1) {
    const [a, b] = [points[i - 1], points[i]];
    if (a.tx === null || b.tx === null || b.expected === null || b.tx <= b.expected) continue;
    pen.moveTo(x(i - 1), y(a.tx));
    pen.lineTo(x(i), y(b.tx));
  }
  pen.stroke();
}

/** A small chart of one backend, no axes. */
export function spark(canvas, points) {
  const { pen, width, height } = prepare(canvas);
  if (!width || !points.length) return;
  const most = top(points);
  const x = (i) => ((POINTS - points.length + i) / (POINTS - 1)) * (width - 6) + 2;
  const y = (value) => height - 2 - Math.min(value / most, 1) * (height - 5);
  curve(pen, points, x, y, height - 1, 1.5);
  const last = points.at(-1);
  if (last.tx !== null) {
    pen.fillStyle = last.expected !== null && last.tx > last.expected ? colours().warm : colours().line;
    pen.beginPath();
    pen.arc(x(points.length - 1), y(last.tx), 2.4, 0, 2 * Math.PI);
    pen.fill();
  }
}

/** The large chart of one backend: T_x above, its weight below, with axes. */
export function detail(canvas, points, percentile) {
  const { pen, width, height } = prepare(canvas);
  if (!width || !points.length) return;
  const c = colours();
  const [left, split] = [44, height - 62];
  const x = (i) => left + ((POINTS - points.length + i) / (POINTS - 1)) * (width - left - 8);
  const most = top(points);
  const y = (value) => split - Math.min(value / most, 1) * (split - 16);
  pen.font = `11px ${c.font}`;
  pen.lineWidth = 1;
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const part of [0, 0.5, 1]) {
    pen.strokeStyle = c.grid;
    pen.beginPath();
    pen.moveTo(left, y(part * most));
    pen.lineTo(width, y(part * most));
    pen.stroke();
    pen.fillStyle = c.soft;
    pen.fillText(`${+(part * most).toPrecision(3)}`, left - 8, y(part * most));
  }
  curve(pen, points, x, y, split, 1.75);
  pen.textAlign = "left";
  pen.fillStyle = c.soft;
  pen.fillText(`T${percentile}, ms`, left + 4, 7);
  const heaviest = Math.max(1, ...points.map((p) => p.weight ?? 0));
  const w = (value) => height - 18 - (value / heaviest) * 26;
  pen.strokeStyle = c.ink;
  pen.lineWidth = 1.5;
  pen.beginPath();
  points.forEach((point, i) => {
    if (i) pen.lineTo(x(i), w(points[i - 1].weight));
    pen[i ? "lineTo" : "moveTo"](x(i), w(point.weight));
  });
  pen.stroke();
  pen.textAlign = "right";
  pen.fillText(`${points.at(-1).weight}`, left - 8, w(points.at(-1).weight));
  pen.textAlign = "left";
  pen.fillText("weight", left + 4, height - 6);
  pen.textAlign = "right";
  const span = Math.round(points.at(-1).at - points[0].at);
  pen.fillText(span >= 100 ? `last ${Math.round(span / 60)} min` : `last ${span} s`, width - 4, height - 6);
}

/** Every backend at once: a cell each, in the order of the balancer, by T_x over what is expected. */
export function field(canvas, rows) {
  const gap = 2;
  const columns = Math.max(1, Math.floor(canvas.clientWidth / (canvas.clientWidth < 500 ? 11.5 : 14)));
  const size = canvas.clientWidth / columns;
  canvas.style.height = `${Math.ceil(rows.length / columns) * size}px`;
  const { pen } = prepare(canvas);
  const c = colours();
  rows.forEach((row, i) => {
    const rank = severity(row);
    const [tx, expected] = [number(row.t_x_ms), number(row.expected_t_x_ms)];
    const full = tx !== null && expected ? Math.min(tx / expected, 1) : 0;
    pen.globalAlpha = rank === "slow" ? 1 : 0.16 + 0.5 * full;
    pen.fillStyle = { slow: c.warm, down: c.grid, learning: c.grid }[rank] ?? c.line;
    pen.beginPath();
    pen.roundRect((i % columns) * size, Math.floor(i / columns) * size, size - gap, size - gap, 2.5);
    pen.fill();
  });
  pen.globalAlpha = 1;
}
