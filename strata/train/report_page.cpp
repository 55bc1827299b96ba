#include "strata/train/report_page.h"

namespace strata {

const char* const kReportPage = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{title}} – Strata</title>
<style>
{{style}}</style>
</head>
<body>
<main>
<header>
  <svg class="mark" viewBox="0 0 40 40" aria-hidden="true">
    <g fill="var(--blue)"><path opacity=".35" d="M20 37 3 28.5l5-2.5 12 6 12-6 5 2.5z"/>
    <path opacity=".65" d="M20 28.5 3 20l5-2.5 12 6 12-6 5 2.5z"/><path d="M20 20 3 11.5 20 3l17 8.5z"/></g>
  </svg>
  <div><h1>{{title}}</h1><p>{{subtitle}}</p></div>
  <div class="tools">
    <label>Smoothing <input id="smooth" type="range" min="0" max="100" value="45"></label>
    {{tools}}
    <button id="scale" type="button">Log loss</button>
    <button id="theme" type="button">Dark</button>
  </div>
</header>
{{body}}
<footer>{{footer}}</footer>
</main>
<noscript><p style="text-align:center">The plots need JavaScript.</p></noscript>
<script id="data" type="application/json">{{data}}</script>
<script>
{{script}}</script>
</body>
</html>
)html";

const char* const kRunBody = R"html(<div class="cards">
{{cards}}</div>
<div class="grid">
  <section class="panel plot wide" id="loss"></section>
  <section class="panel plot" id="lr"></section>
  <section class="panel plot" id="rate"></section>
  <section class="panel plot" id="grad"></section>
  {{trace}}
  {{costs}}
  {{sample}}
  <div class="stack">
    <section class="panel"><h2>Model</h2>{{model}}</section>
    <section class="panel"><h2>Data</h2>{{dataset}}</section>
  </div>
  <section class="panel"><h2>Training</h2>{{train}}</section>
  <div class="stack">
    <section class="panel"><h2>Run</h2>{{run}}</section>
    <section class="panel"><h2>Machine</h2>{{machine}}</section>
  </div>
</div>)html";

const char* const kCompareBody = R"html(<div class="grid">
  <section class="panel wide scroll"><h2>Runs</h2>{{results}}</section>
  <section class="panel plot wide" id="loss"></section>
  <section class="panel plot" id="lr"></section>
  <section class="panel plot" id="rate"></section>
  <section class="panel plot" id="grad"></section>
  <section class="panel wide scroll"><h2>Settings that differ</h2>{{settings}}</section>
</div>)html";

const char* const kReportStyle = R"html(:root {
  --page: #f5f6f8; --panel: #ffffff; --line: #e4e7ec; --grid: #eceff3; --text: #1a2230; --soft: #667085; --faint: #98a2b3;
  --blue: #2563eb; --orange: #ea7317; --green: #0f9d6c; --violet: #7c3aed; --rose: #e11d62; --shadow: 0 1px 2px #1018280d;
  --teal: #0891b2; --olive: #7a8b00; --grey: #64748b;
}
:root[data-theme=dark] {
  --page: #0c1118; --panel: #141b25; --line: #232d3b; --grid: #1e2733; --text: #e6ebf2; --soft: #94a1b5; --faint: #667489;
  --blue: #6ea3ff; --orange: #ffa04f; --green: #3ed6a0; --violet: #b395ff; --rose: #ff6f9c; --shadow: none;
  --teal: #4fd1e8; --olive: #c5d64a; --grey: #9aa8bb;
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", Arial, sans-serif;
}
main { max-width: 1240px; margin: 0 auto; padding: 28px 24px 40px; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: 12px 20px; margin-bottom: 20px; }
header .mark { width: 40px; height: 40px; flex: none; }
header h1 { font-size: 24px; line-height: 1.2; margin: 0; letter-spacing: -.01em; overflow-wrap: anywhere; }
header p { margin: 2px 0 0; color: var(--soft); }
header .tools { margin-left: auto; display: flex; align-items: center; gap: 14px; color: var(--soft); }
header label { display: flex; align-items: center; gap: 8px; white-space: nowrap; }
input[type=range] { width: 110px; accent-color: var(--blue); }
button {
  font: inherit; color: var(--text); background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: 5px 12px; cursor: pointer;
}
button:hover { border-color: var(--faint); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(165px, 1fr)); gap: 14px; margin-bottom: 14px; }
.card, .panel { background: var(--panel); border: 1px solid var(--line); border-radius: 12px; box-shadow: var(--shadow); }
.card { padding: 14px 16px 12px; }
.card .label { color: var(--soft); font-size: 12.5px; }
.card .value { font-size: 25px; font-weight: 650; letter-spacing: -.02em; line-height: 1.3; font-variant-numeric: tabular-nums; }
.card .detail { color: var(--faint); font-size: 12px; }
.grid { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)); gap: 14px; margin-bottom: 14px; align-items: start; }
.panel { padding: 16px 18px; min-width: 0; }
.wide { grid-column: 1 / -1; }
h2 { font-size: 14px; font-weight: 650; margin: 0 0 8px; }
.plot h2 { display: flex; flex-wrap: wrap; align-items: baseline; gap: 0 16px; }
.plot .read { margin-left: auto; font-weight: 400; color: var(--soft); font-size: 12.5px; font-variant-numeric: tabular-nums; white-space: pre-wrap; }
.plot .key { font-weight: 400; color: var(--soft); font-size: 12.5px; display: inline-flex; align-items: center; gap: 6px; }
.plot .key i { width: 14px; height: 3px; border-radius: 2px; display: inline-block; }
svg.chart { display: block; width: 100%; overflow: visible; touch-action: pan-y; }
svg.chart text { fill: var(--faint); font-size: 11.5px; font-variant-numeric: tabular-nums; }
svg.chart .gridline { stroke: var(--grid); }
svg.chart .cross { stroke: var(--faint); stroke-dasharray: 3 3; }
svg.chart .raw { fill: none; stroke-width: 1; opacity: .28; }
svg.chart .dashed { stroke-dasharray: 6 4; }
svg.chart .curve { fill: none; stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
table.runs thead th { padding: 0 0 6px; }
table.runs thead th + th, table.runs td { text-align: right; padding-left: 18px; white-space: nowrap; }
table.runs tbody th { color: var(--text); }
table i { width: 14px; height: 3px; border-radius: 2px; display: inline-block; vertical-align: middle; margin-right: 8px; }
.scroll { overflow-x: auto; }
.costs h2 { display: flex; flex-wrap: wrap; align-items: center; gap: 6px 16px; }
.costs .read { font-weight: 400; color: var(--soft); font-size: 12.5px; font-variant-numeric: tabular-nums; }
.costs .by { margin-left: auto; display: flex; }
.costs .by button { border-radius: 0; padding: 3px 12px; font-size: 13px; font-weight: 400; margin-left: -1px; color: var(--soft); }
.costs .by button:first-child { border-radius: 8px 0 0 8px; }
.costs .by button:last-child { border-radius: 0 8px 8px 0; }
.costs .by button[aria-pressed=true] { color: var(--text); font-weight: 650; background: var(--grid); }
.costs thead th { padding: 0 0 6px 18px; text-align: right; }
.costs thead th:first-child { padding-left: 0; text-align: left; }
.costs td { padding-left: 18px; white-space: nowrap; }
.costs tbody th { color: var(--text); padding-right: 0; }
.costs .bar { width: 22%; min-width: 90px; }
.costs .bar i { display: block; width: 0; height: 10px; min-width: 1px; border-radius: 3px; margin: 0; background: var(--grid); position: relative; overflow: hidden; }
.costs .bar i b { position: absolute; inset: 0 auto 0 0; background: var(--blue); }
.costs tr.rest th, .costs tr.rest td, .costs tr.outside th, .costs tr.outside td { color: var(--soft); }
.costs tr.all > * { border-top: 1px solid var(--faint); font-weight: 650; }
.costs p { color: var(--faint); font-size: 12.5px; margin: 8px 0 0; }
.costs .more { border: none; background: none; padding: 0; color: var(--blue); }
.trace p { margin: 0 0 6px; color: var(--soft); font-size: 13px; }
.trace .keys { display: flex; flex-wrap: wrap; gap: 2px 14px; margin-bottom: 10px; font-size: 12.5px; }
.trace .keys i { width: 10px; height: 10px; border-radius: 2px; display: inline-block; margin-right: 6px; }
.trace .row { display: grid; grid-template-columns: 190px minmax(0, 1fr) 44px; align-items: center; gap: 0 10px; margin-bottom: 5px; }
.trace b { font-weight: 400; font-size: 13px; overflow: hidden; text-overflow: ellipsis; white-space: nowrap; }
.trace svg { display: block; width: 100%; height: 18px; background: var(--grid); border-radius: 3px; }
.trace em { font-style: normal; text-align: right; color: var(--soft); font-size: 12.5px; font-variant-numeric: tabular-nums; }
.trace .scale { position: relative; height: 18px; color: var(--faint); font-size: 11.5px; font-variant-numeric: tabular-nums; }
.trace .scale span { position: absolute; transform: translateX(-50%); white-space: nowrap; }
.trace .scale span:first-child { transform: none; }
.empty { color: var(--faint); padding: 40px 0; text-align: center; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
tr + tr > * { border-top: 1px solid var(--grid); }
th { font-weight: 400; color: var(--soft); text-align: left; padding: 4px 14px 4px 0; white-space: nowrap; vertical-align: top; }
td { padding: 4px 0; text-align: right; overflow-wrap: anywhere; font-variant-numeric: tabular-nums; }
td.set { font-weight: 650; }
pre {
  margin: 0; font: 13px/1.55 ui-monospace, "SF Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace;
  white-space: pre-wrap; overflow-wrap: anywhere; max-height: 460px; overflow: auto;
}
pre b { color: var(--blue); font-weight: inherit; }
.stack { display: grid; gap: 14px; min-width: 0; }
footer { color: var(--faint); font-size: 12.5px; text-align: center; padding-top: 8px; }
@media (max-width: 900px) { .grid { grid-template-columns: 1fr; } header .tools { margin-left: 0; } }
@media (max-width: 640px) { .trace .row { grid-template-columns: minmax(0, 1fr) 40px; } .trace b { grid-column: 1 / -1; } .trace b:empty { display: none; } }
@media print { header .tools { display: none; } .panel { break-inside: avoid; } }
)html";

const char* const kReportScript = R"html("use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const root = document.documentElement;
const SVG = "http://www.w3.org/2000/svg";
// One run's curves, or those of several (with the tokens and the time of each point) over each other.
const several = data.runs !== undefined, runs = several ? data.runs : [data];
const AXES = [
  {key: "x", name: "Steps", at: v => "step " + v.toLocaleString("en")},
  {key: "n", name: "Tokens", at: v => short(v) + " tokens"},
  {key: "t", name: "Time", at: v => short(v) + " s"},
];
let smoothing = 0.45, logLoss = false, axis = AXES[0];

function node(name, attributes, parent, text) {
  const n = document.createElementNS(SVG, name);
  for (const k in attributes) n.setAttribute(k, attributes[k]);
  if (text !== undefined) n.textContent = text;
  if (parent) parent.appendChild(n);
  return n;
}
function short(v) {
  if (v === 0) return "0";
  const a = Math.abs(v);
  if (a >= 1e9) return +(v / 1e9).toPrecision(3) + "G";
  if (a >= 1e6) return +(v / 1e6).toPrecision(3) + "M";
  if (a >= 1e4) return +(v / 1e3).toPrecision(3) + "k";
  if (a < 1e-3) return v.toExponential(1).replace(".0e", "e").replace("e-0", "e-");
  return String(+v.toPrecision(3));
}
function ticks(lo, hi, count) {
  const raw = (hi - lo) / count, power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= raw * 0.999);
  const out = [];
  for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9; i++) out.push(+(i * step).toPrecision(12));
  return out;
}
function logTicks(lo, hi) {
  for (const digits of [[1], [1, 2, 5], [1, 1.5, 2, 3, 4, 5, 6, 8]]) {
    const out = [];
    for (let p = Math.floor(Math.log10(lo)); p <= Math.ceil(Math.log10(hi)); p++)
      for (const d of digits) { const v = d * Math.pow(10, p); if (v >= lo * 0.999 && v <= hi * 1.001) out.push(+v.toPrecision(3)); }
    if (out.length >= 3) return out;
  }
  return ticks(lo, hi, 4).filter(v => v > 0);
}
// Mean of two exponential means, one taken forwards and one backwards, so that the curve does not lag behind its
// points; each is corrected for what is missing before its start.
function smooth(y, strength) {
  if (strength <= 0 || y.length < 3) return y;
  const window = 1 + strength * strength * y.length * 0.06, keep = 1 - 1 / window;
  const pass = values => {
    let sum = 0, weight = 0;
    return values.map(v => { sum = keep * sum + v; weight = keep * weight + 1; return sum / weight; });
  };
  const forward = pass(y), backward = pass(y.slice().reverse()).reverse();
  return y.map((_, i) => (forward[i] + backward[i]) / 2);
}
function nearest(xs, x) {
  let lo = 0, hi = xs.length - 1;
  while (hi - lo > 1) { const mid = (lo + hi) >> 1; if (xs[mid] < x) lo = mid; else hi = mid; }
  return Math.abs(xs[lo] - x) <= Math.abs(xs[hi] - x) ? lo : hi;
}

const COLORS = ["--blue", "--orange", "--green", "--violet", "--rose", "--teal", "--olive", "--grey"];
const curves = (field, alone, how) => runs.map((run, i) => ({
  name: several ? run.name : alone.name, data: run[field], color: several ? COLORS[i % COLORS.length] : alone.color, ...how}));
const plots = [
  {id: "loss", title: "Loss", height: 330, log: () => logLoss, format: v => v.toFixed(4),
   series: [...curves("loss", {name: "training", color: "--blue"}, {smooth: true, key: true}),
            ...curves("valid", {name: "validation", color: "--orange"}, {dots: true, dashed: several, key: !several, quiet: several})]},
  {id: "lr", title: "Learning rate", height: 190, zero: true, format: v => v.toExponential(2),
   series: curves("lr", {name: "", color: "--green"}, {})},
  {id: "rate", title: "Tokens per second", height: 190, zero: true, format: v => Math.round(v).toLocaleString("en"),
   series: curves("rate", {name: "", color: "--violet"}, {smooth: true})},
  {id: "grad", title: "Gradient norm", height: 190, zero: true, clip: true, format: v => v.toPrecision(4),
   series: curves("grad", {name: "", color: "--rose"}, {smooth: true})},
];

function draw(plot) {
  const host = document.getElementById(plot.id);
  const series = plot.series.filter(s => s.data.x.length);
  for (const s of series) s.x = s.data[axis.key];
  host.textContent = "";
  const head = document.createElement("h2");
  head.textContent = plot.title;
  for (const s of series) if (series.length > 1 && s.key) {
    const key = document.createElement("span"), swatch = document.createElement("i");
    key.className = "key";
    swatch.style.background = `var(${s.color})`;
    key.append(swatch, s.name);
    head.append(key);
  }
  const read = document.createElement("span");
  read.className = "read";
  head.append(read);
  host.append(head);
  if (!series.length) {
    const empty = document.createElement("div");
    empty.className = "empty";
    empty.textContent = "not measured";
    host.append(empty);
    return;
  }
  const box = getComputedStyle(host);
  const width = Math.max(host.clientWidth - parseFloat(box.paddingLeft) - parseFloat(box.paddingRight), 120);
  const height = plot.height, left = 46, right = 8, top = 8, bottom = 24;
  const svg = node("svg", {class: "chart", viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": plot.title}, host);

  let x0 = Infinity, x1 = -Infinity, values = [];
  for (const s of series) {
    s.line = s.smooth ? smooth(s.data.y, smoothing) : s.data.y;
    x0 = Math.min(x0, s.x[0]);
    x1 = Math.max(x1, s.x[s.x.length - 1]);
    values = values.concat(s.data.y);
  }
  if (x1 === x0) { x0 -= 1; x1 += 1; }
  const sorted = values.slice().sort((a, b) => a - b);
  let y0 = sorted[0], y1 = sorted[sorted.length - 1];
  // A few spikes must not flatten the rest.
  if (plot.clip) y1 = Math.min(y1, 2.5 * sorted[Math.floor(0.98 * (sorted.length - 1))] || y1);
  const log = plot.log && plot.log() && y0 > 0;
  if (plot.zero) y0 = Math.min(0, y0);
  if (y1 === y0) { const pad = Math.abs(y0) * 0.1 || 1; y0 -= plot.zero ? 0 : pad; y1 += pad; }
  if (log) { const pad = Math.pow(y1 / y0, 0.05); y0 /= pad; y1 *= pad; }
  else { const pad = 0.06 * (y1 - y0); y1 += pad; if (!plot.zero) y0 -= pad; }
  const X = x => left + (x - x0) / (x1 - x0) * (width - left - right);
  const F = log ? Math.log : v => v;
  const Y = y => top + (F(y1) - F(y)) / (F(y1) - F(y0)) * (height - top - bottom);

  for (const t of log ? logTicks(y0, y1) : ticks(y0, y1, height > 250 ? 6 : 4)) {
    node("line", {class: "gridline", x1: left, x2: width - right, y1: Y(t), y2: Y(t)}, svg);
    node("text", {x: left - 8, y: Y(t) + 4, "text-anchor": "end"}, svg, short(t));
  }
  for (const t of ticks(x0, x1, width > 700 ? 10 : 4))
    if (Number.isInteger(t) || axis.key === "t") node("text", {x: X(t), y: height - 4, "text-anchor": X(t) > width - 30 ? "end" : "middle"}, svg, short(t));

  const clip = "clip-" + plot.id;
  node("rect", {x: left, y: 0, width: width - left - right + 4, height: height - bottom + 1}, node("clipPath", {id: clip}, node("defs", {}, svg)));
  const inside = node("g", {"clip-path": `url(#${clip})`}, svg);
  const path = (xs, ys) => xs.map((x, i) => (i ? "L" : "M") + X(x).toFixed(1) + " " + Y(ys[i]).toFixed(1)).join("");
  for (const s of series) {
    const style = `stroke:var(${s.color})`;
    if (s.line !== s.data.y) node("path", {class: "raw", style, d: path(s.x, s.data.y)}, inside);
    node("path", {class: s.dashed ? "curve dashed" : "curve", style, d: path(s.x, s.line)}, inside);
    if (s.dots && s.x.length <= 60)
      s.x.forEach((x, i) => node("circle", {cx: X(x), cy: Y(s.data.y[i]), r: 3, style: `fill:var(${s.color})`}, inside));
  }

  const last = () => {
    read.textContent = several ? (plot.id === "loss" ? "validation dashed" : "") :
      series.map(s => (s.name ? s.name + " " : "") + plot.format(s.line[s.line.length - 1])).join("   ");
  };
  last();
  const cross = node("line", {class: "cross", y1: top, y2: height - bottom, visibility: "hidden"}, svg);
  const marks = series.map(s => node("circle", {r: 4, visibility: "hidden", style: `fill:var(${s.color});stroke:var(--panel);stroke-width:1.5`}, svg));
  const area = node("rect", {x: left, y: 0, width: width - left - right, height: height - bottom, fill: "transparent"}, svg);
  area.addEventListener("pointermove", event => {
    const rect = svg.getBoundingClientRect();
    const x = x0 + ((event.clientX - rect.left) * width / rect.width - left) / (width - left - right) * (x1 - x0);
    const longest = series.reduce((a, b) => b.x[b.x.length - 1] > a.x[a.x.length - 1] ? b : a);
    const at = longest.x[nearest(longest.x, x)];
    cross.setAttribute("x1", X(at));
    cross.setAttribute("x2", X(at));
    cross.setAttribute("visibility", "visible");
    const parts = [axis.at(at)];
    series.forEach((s, i) => {
      const k = nearest(s.x, at), v = s.line[k];
      const over = several && at > s.x[s.x.length - 1];  // a run that ended before
      marks[i].setAttribute("cx", X(s.x[k]));
      marks[i].setAttribute("cy", Math.max(Y(v), 0));
      marks[i].setAttribute("visibility", over ? "hidden" : "visible");
      if (!over && !s.quiet) parts.push((s.name ? s.name + " " : "") + plot.format(v));
    });
    read.textContent = parts.join("   ");
  });
  area.addEventListener("pointerleave", () => {
    cross.setAttribute("visibility", "hidden");
    for (const m of marks) m.setAttribute("visibility", "hidden");
    last();
  });
}
const drawAll = () => plots.forEach(draw);

// Where the time and bytes of one step go: rows of [op, module, phase, calls, FLOP, bytes, seconds, least seconds].
function costs(c) {
  const host = document.getElementById("costs"), BY = ["op", "module", "phase"], SHOWN = 12;
  const limited = c.rows.some(r => r[7] > 0);
  const clocked = c.rows.reduce((sum, r) => sum + r[6], c.outside);
  const digits = v => v === 0 ? "–" : v >= 1000 ? Math.round(v).toLocaleString("en") : v >= 0.01 ? String(+v.toPrecision(3)) : "< 0.01";
  const ms = s => digits(s * 1e3), percent = v => v >= 0.9995 || v === 0 ? Math.round(100 * v) + "%" : (100 * v).toPrecision(2) + "%";
  let by = 0, whole = false;
  const element = (name, parent, text, classes) => {
    const e = document.createElement(name);
    if (text !== undefined) e.textContent = text;
    if (classes) e.className = classes;
    parent.append(e);
    return e;
  };
  const sum = rows => rows.reduce((a, r) => a.map((v, k) => v + r[k + 3]), [0, 0, 0, 0, 0]);
  function table() {
    host.textContent = "";
    const head = element("h2", host, "Where the time and bytes go"), total = sum(c.rows);
    element("span", head, `one step, ${ms(clocked)} ms, ${digits(total[1] / 1e9)} GFLOP, ${digits(total[2] / 1e6)} MB` +
      (limited ? `, ${percent(total[4] / clocked)} of the limit` : ""), "read");
    const choose = element("div", head, undefined, "by");
    BY.forEach((name, i) => {
      const button = element("button", choose, "By " + name);
      button.type = "button";
      button.setAttribute("aria-pressed", i === by);
      button.onclick = () => { by = i; whole = false; table(); };
    });
    const groups = new Map();
    for (const r of c.rows) groups.set(r[by], [...(groups.get(r[by]) || []), r]);
    const rows = [...groups].map(([name, all]) => [name || "outside modules", ...sum(all)]).sort((a, b) => b[4] - a[4]);
    const shown = whole || rows.length <= SHOWN + 1 ? rows : rows.slice(0, SHOWN), most = rows[0][4] || 1;
    const t = element("table", element("div", host, undefined, "scroll")), titles = element("tr", element("thead", t));
    const body = element("tbody", t);
    const of = limited ? ["of limit"] : [], least = limited ? ["least ms"] : [];
    for (const title of [BY[by], "", "ms", "share", ...of, "calls", "GFLOP", "MB", "GFLOP/s", "GB/s", ...least]) element("th", titles, title);
    const line = (r, classes) => {
      const [name, calls, flops, bytes, seconds, least] = r, row = element("tr", body, undefined, classes);
      const cell = text => element("td", row, text);
      const label = element("th", row, name);
      const bar = element("td", row, undefined, "bar");
      if (classes !== "all") {
        const taken = element("i", bar), part = element("b", taken);
        taken.style.width = Math.min(100 * seconds / most, 100) + "%";
        taken.style.background = classes ? "var(--grid)" : "color-mix(in srgb, var(--blue) 35%, var(--panel))";
        part.style.width = limited && !classes ? Math.min(100 * least / seconds, 100) + "%" : classes ? "0" : "100%";
      }
      cell(ms(seconds));
      cell(percent(seconds / clocked));
      const worked = classes !== "outside";
      if (limited) cell(worked && seconds > 0 && least > 0 ? percent(least / seconds) : "");
      cell(worked ? calls.toLocaleString("en") : "");
      cell(worked ? digits(flops / 1e9) : "");
      cell(worked ? digits(bytes / 1e6) : "");
      cell(worked && seconds > 0 ? digits(flops / seconds / 1e9) : "");
      cell(worked && seconds > 0 ? digits(bytes / seconds / 1e9) : "");
      if (limited) cell(worked ? ms(least) : "");
      return label;
    };
    for (const r of shown) line(r, "");
    if (shown.length < rows.length || whole) {
      const rest = whole ? ["", 0, 0, 0, 0, 0] : ["", ...rows.slice(SHOWN).reduce((a, r) => a.map((v, k) => v + r[k + 1]), [0, 0, 0, 0, 0])];
      const label = whole ? element("th", element("tr", body, undefined, "rest")) : line(rest, "rest");
      const button = element("button", label, whole ? "Show fewer" : `Show ${rows.length - SHOWN} more`, "more");
      button.type = "button";
      button.onclick = () => { whole = !whole; table(); };
    }
    line(["between calls", 0, 0, 0, c.outside, 0], "outside");
    line(["all", total[0], total[1], total[2], clocked, total[4]], "all");
    element("p", host, `One step that ran call by call after the first, timed ${c.clock}. Bytes are the least that must move. ` + (limited ?
      "Least: what this machine's measured bandwidth and arithmetic allow, call by call; the solid part of a bar. Above 100%: a cache helped." :
      "To see how near each is to what the machine can do: strata report RUN, which measures it."));
  }
  table();
}
if (data.costs) costs(data.costs);

function theme(dark) {
  root.dataset.theme = dark ? "dark" : "light";
  document.getElementById("theme").textContent = dark ? "Light" : "Dark";
}
theme(matchMedia("(prefers-color-scheme: dark)").matches);
document.getElementById("theme").onclick = () => theme(root.dataset.theme !== "dark");
document.getElementById("smooth").oninput = event => { smoothing = event.target.value / 100; drawAll(); };
document.getElementById("scale").onclick = event => {
  logLoss = !logLoss;
  event.target.textContent = logLoss ? "Linear loss" : "Log loss";
  drawAll();
};
const chosen = document.getElementById("axis");
if (chosen) chosen.onclick = () => {
  axis = AXES[(AXES.indexOf(axis) + 1) % AXES.length];
  chosen.textContent = "Over: " + axis.name.toLowerCase();
  drawAll();
};
let waiting = 0;
addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(drawAll); });
drawAll();
})();
)html";

}  // namespace strata
