// The report's page; @@marks@@ are filled in by report.cc.
#pragma once

namespace gradwire {

inline constexpr char kReportPage[] = R"page(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>@@title@@</title>
<style>
  body { font: 15px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1b1f24; background: #fff; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
  h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .6rem; }
  .setup, .small { color: #57606a; font-size: .87rem; } code { background: #f3f4f6; padding: .1rem .35rem; border-radius: 4px; font-size: .85rem; overflow-wrap: anywhere; }
  table { border-collapse: collapse; font-size: .87rem; width: 100%; font-variant-numeric: tabular-nums; }
  th, td { padding: .35rem .6rem; text-align: right; border-bottom: 1px solid #e3e6ea; white-space: nowrap; }
  th:first-child { text-align: left; font-weight: 500; white-space: normal; } thead th { color: #57606a; font-weight: 500; border-bottom: 2px solid #c9ced6; vertical-align: bottom; }
  .rules th:first-child { text-align: left; font-weight: 400; } .yes { color: #1a7f37; } .no { color: #cf222e; font-weight: 600; }
  .charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(30rem, 1fr)); gap: 1.5rem 2rem; } .chart { height: 22rem; position: relative; }
  .wide { grid-column: 1 / -1; } .scroll { overflow-x: auto; }
  #legend { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; margin: .4rem 0 1rem; font-size: .87rem; }
  #legend button { all: unset; cursor: pointer; } #legend button.off { opacity: .35; } #legend i { display: inline-block; width: 1.6rem; border-top: 3px; vertical-align: middle; margin-right: .4rem; }
</style></head><body>
<h1>@@title@@</h1>
<div class="setup">@@setup@@</div>
<h2>What each cost, and what it did to the model</h2>
<div class="scroll"><table><thead><tr><th>compressor</th><th>test accuracy, %</th><th>difference</th><th>sent per rank<br>and step</th><th>payload<br>per step</th><th>ratio<br>to fp32</th>
<th>ms per<br>step</th><th>compute</th><th>encode</th><th>wire</th><th>decode</th><th>exposed</th></tr></thead><tbody>
@@rows@@</tbody></table></div>
<p class="small">Sent: bytes that left rank 0 at the transport, everything included. Ratio: what a ring all-reduce of fp32 gradients sends, over what was sent. Encode, wire and decode run on a thread of their own beside the backward pass;
exposed is what the step waited for after its backward pass: the part of them that was not hidden, and the threads' waking. Ranks share the machine's cores, so milliseconds compare rows of this page only. Difference: to the baseline, paired by seed.</p>
@@rules@@<h2>Training loss</h2>
<div class="small">Mean over the global batch and the seeds, before each update. Click a name to hide or show it.</div>
<div id="legend"></div>
<div class="charts">
  <div class="wide"><b>against steps</b><div class="chart"><canvas id="steps"></canvas></div></div>
  <div><b>against megabytes sent per rank</b> <span class="small">(logarithmic)</span><div class="chart"><canvas id="bytes"></canvas></div></div>
  <div><b>against seconds</b><div class="chart"><canvas id="time"></canvas></div></div>
</div>
<h2>How to repeat it</h2>
<p><code>@@command@@</code></p>
<p class="small">@@environment@@</p>
<script>@@chartjs@@</script>
<script>
const study = @@data@@;
const colours = ["#1f4e99", "#d1495b", "#2a9d5c", "#8e5bb5", "#e08e1b", "#0f8b9d", "#7a5c3e", "#c2448f", "#6b7a00", "#444c56"];
const dashes = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
const colour = i => colours[i % colours.length], dash = i => dashes[Math.floor(i / colours.length) % dashes.length];
const charts = [];
// A diverging row would press all others flat: the axis ends above where training starts.
const starts = study.rows.filter(r => r.curve.length).map(r => r.curve[0][3]).sort((a, b) => a - b);
const highest = 1.5 * (starts[Math.floor(starts.length / 2)] || 1);
function draw(id, column, label, type) {
  const datasets = study.rows.map((row, i) => ({
    label: row.name, borderColor: colour(i), backgroundColor: colour(i), borderDash: dash(i), borderWidth: 2, pointRadius: 0, pointHitRadius: 6,
    data: row.curve.filter(p => type !== "logarithmic" || p[column] > 0).map(p => ({ x: p[column], y: p[3] })) }));
  charts.push(new Chart(document.getElementById(id), { type: "line", data: { datasets }, options: {
    animation: false, maintainAspectRatio: false, parsing: false, normalized: true, interaction: { mode: "nearest", intersect: false },
    scales: { x: { type, title: { display: true, text: label } }, y: { type: "logarithmic", max: highest, title: { display: true, text: "training loss (logarithmic)" } } },
    plugins: { legend: { display: false } } } }));
}
draw("steps", 0, "steps", "linear");
draw("bytes", 1, "MB sent per rank", "logarithmic");
draw("time", 2, "seconds", "linear");
study.rows.forEach((row, i) => {
  const button = document.createElement("button"), line = document.createElement("i");
  line.style.borderTop = (dash(i).length ? "3px dashed " : "3px solid ") + colour(i);
  button.append(line, row.name);
  button.onclick = () => { const off = button.classList.toggle("off"); charts.forEach(c => c.setDatasetVisibility(i, !off)); charts.forEach(c => c.update()); };
  document.getElementById("legend").append(button);
});
</script></body></html>
)page";

}  // namespace gradwire
