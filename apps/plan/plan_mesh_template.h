// The page of a search for a mesh; @@marks@@ are filled in by plan_mesh_page.cc.
#pragma once

namespace gradwire {

inline constexpr char kPlanMeshPage[] = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>@@title@@</title>
<style>
  body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1b1f24; background: #fff; margin: 2rem auto; max-width: 74rem; padding: 0 1rem; }
  h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
  .small { color: #57606a; font-size: .87rem; } pre { font-size: .74rem; overflow-x: auto; background: #f6f7f9; padding: .8rem; }
  table { border-collapse: collapse; font-size: .87rem; font-variant-numeric: tabular-nums; }
  th, td { padding: .3rem .8rem; text-align: right; border-bottom: 1px solid #e3e6ea; } th { text-align: left; font-weight: 500; } td { white-space: nowrap; } .flags { overflow-wrap: anywhere; }
  .wide { overflow-x: auto; } .wide th, .wide td { padding: .3rem .45rem; } .wide tr:nth-child(2) { background: #f6f7f9; }
  .chart { height: 22rem; position: relative; } canvas.line { width: 100%; display: block; }
  .key span { display: inline-block; width: .8rem; height: .8rem; margin: 0 .3rem 0 .9rem; vertical-align: -1px; }
</style></head><body>
<h1>@@title@@</h1>
<div class="small">@@setup@@</div>
<p class="small flags">As flags of gradwire train: <code>@@flags@@</code></p>
<h2>A step: @@step@@</h2>
<table>@@phases@@</table>
<p class="small">compute: layers and optimizer of the rank that has most; bubble: waiting that no exchange causes; then exchanges that nothing hides: sums among ranks that share tensors, messages between stages, gradients and parameters among replicas. @@sent@@</p>
<h2>Beside it</h2>
<div class="wide"><table><tr><th>mesh</th><td>longer</td><td>step</td><td>compute</td><td>bubble</td><td>tensors</td><td>messages</td><td>data</td><td>memory</td></tr>
@@near@@</table></div>
<p class="small">@@nearnote@@</p>
<h2>Timeline of one replica</h2>
<div class="small key" id="key"></div>
<canvas class="line" id="timeline"></canvas>
<h2>Memory of the ranks of its pipeline</h2>
<div class="chart"><canvas id="memory"></canvas></div>
<p class="small"><span id="room"></span> Held as gradwire train --memory counts it; communication is at most so much of compressors whose payloads vary in length; under ZeRO 2 and 3 gradients on their way come on top, and count for whether it fits.</p>
<h2>Time and memory of the rows</h2>
<div class="chart"><canvas id="points"></canvas></div>
<h2>All rows</h2>
<pre>@@table@@</pre>
<script>@@chartjs@@</script>
<script>
const data = @@data@@;
const colours = ["#1f4e99", "#d1495b", "#2a9d5c", "#8e5bb5", "#e08e1b", "#0f8b9d", "#7a5c3e", "#c2448f", "#6b7a00", "#444c56", "#9aa3ad", "#b8c0c8"];
const seconds = s => s >= 1 ? +s.toPrecision(4) + " s" : s >= 1e-3 ? +(s * 1e3).toPrecision(4) + " ms" : +(s * 1e6).toPrecision(4) + " µs";
const bytes = b => b < 1024 ? Math.round(b) + " B" : b >= 2 ** 30 ? +(b / 2 ** 30).toPrecision(3) + " GiB" : b >= 2 ** 20 ? +(b / 2 ** 20).toPrecision(3) + " MiB" : +(b / 1024).toPrecision(3) + " KiB";
const share = (b, of) => +(100 * b / of).toPrecision(3) + " %";
// Ticks of powers of two, at most seven of them.
const byteAxis = most => { const step = 2 ** Math.ceil(Math.log2(Math.max(most, 1) / 6)); return { beginAtZero: true, max: Math.ceil(most / step) * step, ticks: { stepSize: step, callback: bytes } }; };
const kinds = ["forward", "backward", "backward, inputs", "backward, weights", "message", "reduction", "gathering of parameters", "compression, messages", "optimizer"];
const shades = ["#5b8fd9", "#2a9d5c", "#55b98a", "#9bd0b2", "#c9a227", "#d1495b", "#8e5bb5", "#0f8b9d", "#7a5c3e"];
const shown = [...new Set(data.timeline.spans.map(s => s[1]))].sort();
document.getElementById("key").innerHTML = shown.map(k => `<span style="background:${shades[k]}"></span>${kinds[k]}`).join("");
function draw() {
  const canvas = document.getElementById("timeline"), ranks = data.timeline.ranks, scale = window.devicePixelRatio || 1;
  const full = ranks > 16 ? 10 : 18, thin = ranks > 16 ? 3 : 6, gap = 4, step = full + 2 * thin + gap, left = 58, bottom = 22;
  const width = canvas.clientWidth, height = ranks * step + bottom;
  canvas.style.height = height + "px"; canvas.width = width * scale; canvas.height = height * scale;
  const c = canvas.getContext("2d"), x = t => left + (width - left - 8) * t / data.timeline.seconds;
  c.scale(scale, scale); c.font = "11px system-ui, sans-serif"; c.textBaseline = "middle";
  for (let r = 0; r < ranks; r++) {
    c.fillStyle = "#f3f4f6"; c.fillRect(left, r * step, width - left - 8, full + 2 * thin);
    if (ranks <= 32 || r % 4 === 0) { c.fillStyle = "#57606a"; c.fillText("rank " + r, 4, r * step + full / 2 + 2); }
  }
  for (const [lane, kind, begin, end, micro] of data.timeline.spans) {
    const part = lane % 3, y = Math.floor(lane / 3) * step + (part === 0 ? 0 : part === 1 ? full : full + thin), h = part === 0 ? full : kind === 6 ? thin / 2 : thin;
    const w = Math.max(x(end) - x(begin) - .4, .4);
    c.fillStyle = shades[kind]; c.fillRect(x(begin), y, w, h - .5);
    if (part === 0 && micro >= 0 && w > 16 && full > 12) { c.fillStyle = "#fff"; c.fillText(micro, x(begin) + 3, y + h / 2); }
  }
  c.fillStyle = "#57606a";
  for (let i = 0; i <= 4; i++) { const t = data.timeline.seconds * i / 4, text = seconds(t); c.fillText(text, Math.min(x(t), width - 8 - c.measureText(text).width), height - 9); }
}
draw(); window.addEventListener("resize", draw);
const totals = data.memory.classes[0].bytes.map((_, r) => data.memory.classes.reduce((sum, one) => sum + one.bytes[r], 0));
const most = Math.max(...totals), device = data.memory.room;
// Bars that the device's line would press flat have a scale of their own.
const lined = device <= 4 * most;
document.getElementById("room").textContent = `Device: ${bytes(device)}${lined ? " (the dashed line)" : ", beyond the scale"}; rank ${totals.indexOf(most)}, the fullest, has ${bytes(most)}, ${share(most, device)} of it.`;
const room = { id: "room", afterDatasetsDraw(chart) {
  if (!lined) return;
  const y = chart.scales.y.getPixelForValue(device), { left, right } = chart.chartArea, c = chart.ctx, text = "device: " + bytes(device);
  c.save(); c.strokeStyle = "#1b1f24"; c.setLineDash([6, 4]); c.beginPath(); c.moveTo(left, y); c.lineTo(right, y); c.stroke();
  c.font = "12px system-ui, sans-serif"; const width = c.measureText(text).width;
  c.fillStyle = "#fff"; c.fillRect(right - width - 12, y - 20, width + 8, 16);
  c.fillStyle = "#1b1f24"; c.fillText(text, right - width - 8, y - 8); c.restore();
} };
new Chart(document.getElementById("memory"), { type: "bar", plugins: [room],
  data: { labels: totals.map((b, r) => totals.length > 12 ? "rank " + r : ["rank " + r, bytes(b) + ", " + share(b, device)]), datasets: data.memory.classes.map((one, i) => ({ label: one.name, data: one.bytes, maxBarThickness: 120, backgroundColor: colours[i % colours.length] })) },
  options: { animation: false, maintainAspectRatio: false, scales: { x: { stacked: true, grid: { display: false } }, y: { stacked: true, ...byteAxis(lined ? Math.max(device * 1.1, most) : most) } },
    plugins: { legend: { position: "bottom" }, tooltip: { callbacks: { label: item => item.dataset.label + ": " + bytes(item.parsed.y) } } } } });
const others = data.points.filter(p => p.name !== data.chosen), chosen = data.points.filter(p => p.name === data.chosen);
new Chart(document.getElementById("points"), { type: "scatter",
  data: { datasets: [{ label: "this mesh", data: chosen, backgroundColor: "#d1495b", pointRadius: 7 }, { label: "other rows", data: others, backgroundColor: "#1f4e99", pointRadius: 4 }] },
  options: { animation: false, maintainAspectRatio: false, scales: { x: { title: { display: true, text: "time of a step" }, ticks: { callback: seconds } }, y: { ...byteAxis(Math.max(...data.points.map(p => p.y))), title: { display: true, text: "memory of the fullest rank" } } },
    plugins: { legend: { position: "bottom" }, tooltip: { callbacks: { label: item => item.raw.name + ": " + seconds(item.raw.x) + ", " + bytes(item.raw.y) } } } } });
</script></body></html>
)page";

}  // namespace gradwire
