// The page of a simulation; @@marks@@ are filled in by sim_page.cc.
#pragma once

namespace gradwire {

inline constexpr char kSimPage[] = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>@@title@@</title>
<style>
  body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1b1f24; background: #fff; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; }
  h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
  .small { color: #57606a; font-size: .87rem; } code { background: #f3f4f6; padding: .1rem .35rem; border-radius: 4px; font-size: .85rem; overflow-wrap: anywhere; }
  table { border-collapse: collapse; font-size: .87rem; width: 100%; font-variant-numeric: tabular-nums; }
  th, td { padding: .35rem .6rem; text-align: right; border-bottom: 1px solid #e3e6ea; white-space: nowrap; }
  th:first-child { text-align: left; font-weight: 500; } thead th { color: #57606a; font-weight: 500; border-bottom: 2px solid #c9ced6; }
  .chosen { background: #eef6ee; } .chosen th::after { content: " (auto)"; color: #1a7f37; } .chart { height: 28rem; position: relative; } .scroll { overflow-x: auto; }
</style></head><body>
<h1>@@title@@</h1>
<div class="small">@@setup@@</div>
<h2>At this size</h2>
<div class="scroll"><table><thead><tr><th>algorithm</th><th>time</th><th>× bound</th><th>rounds</th><th>a rank sends</th><th>a node sends</th></tr></thead><tbody>
@@rows@@</tbody></table></div>
<p class="small">Simulated in exact virtual time from the schedules the communicators run. Bytes are of the rank, and of the node, that sends most.</p>
<h2>At every size</h2>
<div class="small">Simulated at powers of 4. The vertical line is the size above.</div>
<div class="chart"><canvas id="chart"></canvas></div>
<h2>Choice of auto</h2>
<p>Where the latencies of messages started together overlap (gap 0): @@overlapping@@.</p>
<p>Where they add up (gap 1): @@one_ported@@.</p>
<h2>Command</h2>
<p><code>@@command@@</code></p>
<script>@@chartjs@@</script>
<script>
const data = @@data@@;
const colours = ["#1f4e99", "#d1495b", "#2a9d5c", "#8e5bb5", "#e08e1b", "#0f8b9d", "#7a5c3e", "#c2448f", "#6b7a00", "#444c56"];
const datasets = data.curves.map((curve, i) => {
  const bound = curve.name === "bound", colour = bound ? "#9aa3ad" : colours[i % colours.length];
  return { label: curve.name, borderColor: colour, backgroundColor: colour, borderWidth: bound ? 3 : 2, borderDash: bound ? [2, 4] : i >= colours.length ? [7, 4] : [],
    pointRadius: 0, pointHitRadius: 6, data: curve.points.map(p => ({ x: p[0], y: p[1] })) };
});
const seconds = s => s >= 1 ? s + " s" : s >= 1e-3 ? +(s * 1e3).toPrecision(4) + " ms" : +(s * 1e6).toPrecision(4) + " µs";
const bytes = b => b >= 2 ** 30 ? b / 2 ** 30 + " GiB" : b >= 2 ** 20 ? b / 2 ** 20 + " MiB" : b >= 1024 ? b / 1024 + " KiB" : b + " B";
const here = { id: "here", afterDatasetsDraw(chart) {
  const x = chart.scales.x.getPixelForValue(data.bytes), { top, bottom } = chart.chartArea, c = chart.ctx;
  c.save(); c.strokeStyle = "#9aa3ad"; c.beginPath(); c.moveTo(x, top); c.lineTo(x, bottom); c.stroke(); c.restore();
} };
const sizes = data.curves[0].points.map(p => p[0]).filter((_, i) => i % 2 === 0);
new Chart(document.getElementById("chart"), { type: "line", data: { datasets }, plugins: [here], options: {
  animation: false, maintainAspectRatio: false, parsing: false, normalized: true, interaction: { mode: "nearest", intersect: false },
  scales: { x: { type: "logarithmic", title: { display: true, text: "size" }, afterBuildTicks: axis => { axis.ticks = sizes.map(value => ({ value })); }, ticks: { callback: bytes } },
    y: { type: "logarithmic", title: { display: true, text: "time" }, ticks: { callback: seconds } } },
  plugins: { legend: { position: "bottom" }, tooltip: { callbacks: { label: item => item.dataset.label + ": " + bytes(item.parsed.x) + ", " + seconds(item.parsed.y) } } } } });
</script></body></html>
)page";

}  // namespace gradwire
