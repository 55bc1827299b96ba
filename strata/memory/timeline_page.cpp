#include "strata/memory/timeline_page.h"

namespace strata::memory {

const char* const kTimelinePage = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{title}} – memory – Strata</title>
<style>
:root {
  --page: #f5f6f8; --panel: #ffffff; --line: #e4e7ec; --grid: #eceff3; --text: #1a2230; --soft: #667085; --faint: #98a2b3;
  --parameter: #2563eb; --gradient: #ea7317; --optimizer: #7c3aed; --activation: #0f9d6c; --data: #8a94a6; --workspace: #e11d62;
}
:root[data-theme=dark] {
  --page: #0c1118; --panel: #141b25; --line: #232d3b; --grid: #1e2733; --text: #e6ebf2; --soft: #94a1b5; --faint: #667489;
  --parameter: #5b8def; --gradient: #ff9a4a; --optimizer: #a78bfa; --activation: #2fbf8f; --data: #7c889c; --workspace: #f0608f;
}
* { box-sizing: border-box; }
body {
  margin: 0; background: var(--page); color: var(--text);
  font: 14px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", "DejaVu Sans", Arial, sans-serif;
}
main { max-width: 1240px; margin: 0 auto; padding: 28px 24px 40px; }
header { display: flex; flex-wrap: wrap; align-items: center; gap: 12px 20px; margin-bottom: 20px; }
header h1 { font-size: 24px; line-height: 1.2; margin: 0; letter-spacing: -.01em; overflow-wrap: anywhere; }
header p { margin: 2px 0 0; color: var(--soft); }
header .tools { margin-left: auto; display: flex; gap: 10px; }
button {
  font: inherit; color: var(--text); background: var(--panel); border: 1px solid var(--line); border-radius: 8px;
  padding: 5px 12px; cursor: pointer;
}
button:hover { border-color: var(--faint); }
.panel { background: var(--panel); border: 1px solid var(--line); border-radius: 12px; padding: 16px 18px; margin-bottom: 14px; }
.keys { display: grid; grid-template-columns: repeat(auto-fit, minmax(135px, 1fr)); gap: 6px 18px; margin-bottom: 12px; }
.key .name { color: var(--soft); font-size: 12.5px; display: flex; align-items: center; gap: 7px; }
.key i { width: 10px; height: 10px; border-radius: 3px; flex: none; }
.key b { font-size: 18px; font-weight: 650; letter-spacing: -.01em; font-variant-numeric: tabular-nums; }
.when { color: var(--soft); margin: 0 0 10px; font-variant-numeric: tabular-nums; }
svg { display: block; width: 100%; touch-action: pan-y; cursor: crosshair; user-select: none; }
svg text { fill: var(--faint); font-size: 11.5px; font-variant-numeric: tabular-nums; }
svg .gridline { stroke: var(--grid); }
svg .mark { stroke: var(--faint); stroke-dasharray: 2 4; }
svg .at { stroke: var(--text); }
svg .over { stroke: var(--soft); stroke-dasharray: 3 3; }
svg .peak { stroke: var(--soft); stroke-dasharray: 5 4; }
svg .zoom { fill: var(--parameter); opacity: .15; }
.hint { color: var(--faint); font-size: 12.5px; margin: 8px 0 0; }
h2 { font-size: 14px; font-weight: 650; margin: 0 0 8px; display: flex; align-items: center; justify-content: space-between; gap: 12px; }
h2 button { font-weight: 400; font-size: 13px; padding: 3px 10px; }
table { border-collapse: collapse; width: 100%; font-size: 13px; }
tr + tr > * { border-top: 1px solid var(--grid); }
th { font-weight: 400; color: var(--soft); text-align: left; padding: 4px 14px 4px 0; }
td { padding: 4px 14px 4px 0; font-variant-numeric: tabular-nums; overflow-wrap: anywhere; }
.number { text-align: right; white-space: nowrap; }
.share { width: 26%; padding-right: 0; }
.share i { display: block; height: 10px; border-radius: 3px; min-width: 1px; }
td .dot { display: inline-block; width: 9px; height: 9px; border-radius: 3px; margin-right: 7px; }
footer { color: var(--faint); font-size: 12.5px; text-align: center; padding-top: 8px; }
</style>
</head>
<body>
<main>
<header>
  <div><h1>{{title}}</h1><p id="subtitle"></p></div>
  <div class="tools">
    <button id="peak" type="button">Go to the peak</button>
    <button id="axis" type="button"></button>
    <button id="whole" type="button">Whole range</button>
    <button id="theme" type="button">Dark</button>
  </div>
</header>
<section class="panel">
  <p class="when" id="when"></p>
  <div class="keys" id="keys"></div>
  <div id="plot"></div>
  <p class="hint">Click a moment to see who holds memory then. Drag to zoom in.<span id="graph" hidden> From “CUDA graph” on,
  steps replay what was captured, in the memory that the capture took: they do not show.</span></p>
</section>
<section class="panel"><h2><span id="held"></span><button id="group" type="button"></button></h2><div id="table"></div></section>
<footer id="foot">Strata. Tensors only: what the driver, the libraries and the program itself need is not in it.</footer>
</main>
<noscript><p style="text-align:center">The page needs JavaScript.</p></noscript>
<script id="data" type="application/json">{{data}}</script>
<script>
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const $ = id => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg", root = document.documentElement;
const events = data.events, tags = data.tags, n = events.length;
// Bottom to top: what stays first.
const order = ["parameter", "optimizer", "gradient", "data", "activation", "workspace"].map(t => tags.indexOf(t));
const plural = {parameter: "parameters", gradient: "gradients", activation: "activations"};
const label = t => plural[tags[t]] || tags[t];
const color = t => `var(--${tags[t]})`;

// Bytes by tag and in all after each event.
const level = tags.map(() => new Float64Array(n)), total = new Float64Array(n), time = new Float64Array(n);
let peak = 0;
{
  const held = new Map(), now = tags.map(() => 0);
  let sum = 0;
  events.forEach(([us, block, bytes, tag], i) => {
    const was = held.get(block);
    if (was) { now[was[1]] -= was[0]; sum -= was[0]; held.delete(block); }
    if (bytes > 0) { now[tag] += bytes; sum += bytes; held.set(block, [bytes, tag]); }
    now.forEach((v, t) => level[t][i] = v);
    total[i] = sum;
    time[i] = us * data.tick;
    if (sum > total[peak]) peak = i;
  });
}

function size(b) {
  for (const [unit, name] of [[2 ** 40, "TiB"], [2 ** 30, "GiB"], [2 ** 20, "MiB"], [1024, "KiB"]])
    if (b >= unit) return (b / unit).toFixed(b / unit < 10 ? 2 : b / unit < 100 ? 1 : 0) + " " + name;
  return b + " B";
}
function seconds(s) {
  return s === 0 ? "0" : s < 1e-3 ? (s * 1e6).toFixed(0) + " µs" : s < 1 ? (s * 1e3).toFixed(1) + " ms" : s.toFixed(3) + " s";
}
function node(name, attributes, parent, text) {
  const e = document.createElementNS(SVG, name);
  for (const k in attributes) e.setAttribute(k, attributes[k]);
  if (text !== undefined) e.textContent = text;
  if (parent) parent.appendChild(e);
  return e;
}
function element(name, parent, text, classes) {
  const e = document.createElement(name);
  if (text !== undefined) e.textContent = text;
  if (classes) e.className = classes;
  parent.appendChild(e);
  return e;
}

let byTime = n > 0 && time[n - 1] > 0, byModule = true, view = null, at = peak, over = -1, geometry = null;
const X = i => byTime ? time[i] : i;
const end = () => byTime ? Math.max(time[n - 1], 1e-6) : Math.max(n - 1, 1);
// The last event that is not after x.
function eventAt(x) {
  let lo = 0, hi = n - 1;
  if (X(0) > x) return 0;
  while (hi > lo) { const mid = (lo + hi + 1) >> 1; if (X(mid) <= x) lo = mid; else hi = mid - 1; }
  return lo;
}
const markX = ticks => byTime ? ticks * data.tick : eventIndexAtTime(ticks * data.tick);
function eventIndexAtTime(t) {
  let lo = 0, hi = n;
  while (hi > lo) { const mid = (lo + hi) >> 1; if (time[mid] < t) lo = mid + 1; else hi = mid; }
  return lo;
}

function ticks(lo, hi, count) {
  const raw = (hi - lo) / count, power = Math.pow(10, Math.floor(Math.log10(raw)));
  const step = [1, 2, 2.5, 5, 10].map(m => m * power).find(s => s >= raw * 0.999);
  const out = [];
  for (let i = Math.ceil(lo / step - 1e-9); i * step <= hi + step * 1e-9; i++) out.push(i * step);
  return out;
}

function draw() {
  const host = $("plot");
  host.textContent = "";
  const width = Math.max(host.clientWidth, 200), height = 380, left = 66, right = 6, top = 18, bottom = 26;
  const svg = node("svg", {viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": "Memory over time"}, host);
  const [x0, x1] = view || [0, end()];
  const inner = width - left - right, first = eventAt(x0), last = eventAt(x1);
  let most = 1;
  for (let i = first; i <= last; i++) most = Math.max(most, total[i]);
  const top_bytes = most * 1.06;
  const px = x => left + (x - x0) / (x1 - x0) * inner, py = b => top + (1 - b / top_bytes) * (height - top - bottom);

  // Ticks at round numbers of the unit that fits.
  const unit = [2 ** 40, 2 ** 30, 2 ** 20, 1024, 1].find(u => most >= u);
  for (const t of ticks(0, top_bytes / unit, 5)) {
    node("line", {class: "gridline", x1: left, x2: width - right, y1: py(t * unit), y2: py(t * unit)}, svg);
    node("text", {x: left - 8, y: py(t * unit) + 4, "text-anchor": "end"}, svg,
         t === 0 ? "0" : +t.toPrecision(3) + " " + {[2 ** 40]: "TiB", [2 ** 30]: "GiB", [2 ** 20]: "MiB", 1024: "KiB", 1: "B"}[unit]);
  }
  for (const t of ticks(x0, x1, width > 700 ? 9 : 4))
    node("text", {x: px(t), y: height - 6, "text-anchor": px(t) > width - 40 ? "end" : "middle"}, svg,
         byTime ? seconds(t) : Math.round(t).toLocaleString("en"));

  // For each column of pixels the moment of its highest total: a peak is never lost to the resolution.
  const columns = [];
  let i = first;
  for (let c = 0; c <= inner; c++) {
    const until = x0 + (c + 1) / inner * (x1 - x0);
    let best = i;
    while (i < last && X(i + 1) <= until) { i++; if (total[i] >= total[best]) best = i; }
    columns.push(best);
    // The next column starts from where this one ended.
  }
  const base = new Float64Array(columns.length);
  for (const t of order) {
    let up = "", down = "";
    columns.forEach((e, c) => {
      up += `${c ? "L" : "M"}${left + c} ${py(base[c] + level[t][e]).toFixed(1)}`;
      down = `L${left + c} ${py(base[c]).toFixed(1)}` + down;
    });
    columns.forEach((e, c) => base[c] += level[t][e]);
    node("path", {d: up + down + "Z", style: `fill:${color(t)}`}, svg);
  }
  let free = -Infinity;
  for (const [us, text] of data.marks) {
    const x = px(markX(us));
    if (x < left || x > width - right) continue;
    node("line", {class: "mark", x1: x, x2: x, y1: top, y2: height - bottom}, svg);
    if (x < free) continue;
    const written = node("text", {x: x + 4, y: 11}, svg, text);
    const length = written.getComputedTextLength();
    if (x + 4 + length > width) { written.setAttribute("x", x - 4); written.setAttribute("text-anchor", "end"); }
    free = x + 12 + length;
  }
  if (total[peak] <= top_bytes)
    node("line", {class: "peak", x1: left, x2: width - right, y1: py(total[peak]), y2: py(total[peak])}, svg);
  const line = kind => node("line", {class: kind, y1: top, y2: height - bottom, visibility: "hidden"}, svg);
  geometry = {svg, width, left, inner, x0, x1, px, at: line("at"), over: line("over"),
              zoom: node("rect", {class: "zoom", y: top, height: height - top - bottom, visibility: "hidden"}, svg)};
  place();
}

function place() {
  const show = (line, i) => {
    const x = i < 0 ? -1 : geometry.px(X(i));
    const inside = x >= geometry.left - 0.5 && x <= geometry.left + geometry.inner + 0.5;
    line.setAttribute("visibility", inside ? "visible" : "hidden");
    line.setAttribute("x1", x);
    line.setAttribute("x2", x);
  };
  show(geometry.at, at);
  show(geometry.over, over);
  const i = over >= 0 ? over : at;
  let where = "";
  for (const [us, text] of data.marks) if (us * data.tick <= time[i]) where = text;
  $("when").textContent = `${seconds(time[i])} after the start${where ? ", " + where : ""}, event ${(i + 1).toLocaleString("en")} of ` +
    `${n.toLocaleString("en")}${i === peak ? ": the peak" : ""}`;
  const keys = $("keys");
  keys.textContent = "";
  const add = (name, bytes, fill) => {
    const key = element("div", keys, undefined, "key"), line = element("div", key, undefined, "name");
    if (fill) element("i", line).style.background = fill;
    line.append(name);
    element("b", key, size(bytes));
  };
  add("in use", total[i]);
  for (const t of [...order].reverse()) add(label(t), level[t][i], color(t));
}

function table() {
  const held = new Map();
  for (let i = 0; i <= at; i++) {
    const [, block, bytes, tag, holder] = events[i];
    if (bytes > 0) held.set(block, [bytes, tag, holder]); else held.delete(block);
  }
  const groups = new Map();
  for (const [bytes, tag, holder] of held.values()) {
    const name = byModule ? data.holders[holder] : data.holders[holder].split(" in ")[0];
    const key = name + " " + tag, g = groups.get(key) || {tag, name, bytes: 0, blocks: 0};
    g.bytes += bytes;
    g.blocks++;
    groups.set(key, g);
  }
  const rows = [...groups.values()].sort((a, b) => b.bytes - a.bytes), shown = rows.slice(0, 25);
  $("held").textContent = `Held ${at === peak ? "at the peak" : seconds(time[at]) + " after the start"}: ` +
    `${size(total[at])} in ${held.size.toLocaleString("en")} blocks`;
  $("group").textContent = byModule ? "By op and module" : "By op";
  const host = $("table");
  host.textContent = "";
  const t = element("table", host), head = element("tr", t);
  element("th", head, "made by");
  element("th", head, "kind");
  element("th", head, "blocks", "number");
  element("th", head, "bytes", "number");
  element("th", head, "", "share");
  for (const g of shown) {
    const row = element("tr", t);
    element("td", row, g.name || "outside ops");
    const kind = element("td", row);
    element("span", kind, undefined, "dot").style.background = color(g.tag);
    kind.append(label(g.tag));
    element("td", row, g.blocks.toLocaleString("en"), "number");
    element("td", row, size(g.bytes), "number");
    const bar = element("i", element("td", row, undefined, "share"));
    bar.style.width = `${100 * g.bytes / shown[0].bytes}%`;
    bar.style.background = color(g.tag);
  }
  if (rows.length > shown.length) {
    const rest = rows.slice(shown.length).reduce((s, g) => [s[0] + g.blocks, s[1] + g.bytes], [0, 0]);
    const row = element("tr", t);
    element("td", row, `${rows.length - shown.length} more`);
    element("td", row);
    element("td", row, rest[0].toLocaleString("en"), "number");
    element("td", row, size(rest[1]), "number");
  }
}

function go(i) { at = i; over = -1; place(); table(); }
function position(event) {
  const box = geometry.svg.getBoundingClientRect();
  const x = (event.clientX - box.left) * geometry.width / box.width;
  return Math.min(Math.max(x, geometry.left), geometry.left + geometry.inner);
}
const toX = p => geometry.x0 + (p - geometry.left) / geometry.inner * (geometry.x1 - geometry.x0);

$("graph").hidden = !data.marks.some(([, text]) => text === "CUDA graph");
if (data.forecast) $("foot").textContent = "Strata. A forecast from a dry run: each call takes the least time that memory and " +
  "arithmetic allow. Tensors that the step's calls see only: no workspace, no data made ready, no holes between blocks.";
$("subtitle").textContent = `${data.forecast ? "A step's memory, forecast for" : "Memory of"} ${data.device}: at most ${size(total[peak] || 0)}` +
  (data.whole ? "" : ". The record was full before the end; what came after it is not shown");
if (n === 0) {
  $("when").textContent = "Nothing was recorded.";
  $("held").textContent = "No blocks";
  return;
}
let pressed = null;
$("plot").addEventListener("pointerdown", e => { if (e.button === 0) pressed = position(e); });
addEventListener("pointermove", e => {
  const inside = $("plot").contains(e.target);
  if (pressed === null && !inside) { if (over >= 0) { over = -1; place(); } return; }
  const p = position(e);
  over = eventAt(toX(p));
  place();
  if (pressed !== null) {
    geometry.zoom.setAttribute("x", Math.min(p, pressed));
    geometry.zoom.setAttribute("width", Math.abs(p - pressed));
    geometry.zoom.setAttribute("visibility", "visible");
  }
});
addEventListener("pointerup", e => {
  if (pressed === null) return;
  const p = position(e), from = toX(Math.min(p, pressed)), to = toX(Math.max(p, pressed));
  const dragged = Math.abs(p - pressed) > 5;
  pressed = null;
  if (dragged) { view = [from, to]; over = -1; draw(); } else go(eventAt(toX(p)));
});
$("peak").onclick = () => {
  const x = X(peak);
  if (view && (x < view[0] || x > view[1])) { view = null; draw(); }
  go(peak);
};
const named = () => $("axis").textContent = byTime ? "Axis: time" : "Axis: events";
$("axis").onclick = () => { byTime = !byTime; view = null; named(); draw(); };
$("group").onclick = () => { byModule = !byModule; table(); };
$("whole").onclick = () => { view = null; draw(); };
function theme(dark) {
  root.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = dark ? "Light" : "Dark";
}
theme(matchMedia("(prefers-color-scheme: dark)").matches);
$("theme").onclick = () => theme(root.dataset.theme !== "dark");
let waiting = 0;
addEventListener("resize", () => { cancelAnimationFrame(waiting); waiting = requestAnimationFrame(draw); });
named();
draw();
table();
})();
</script>
</body>
</html>
)html";

}  // namespace strata::memory
