// Draws a report's charts with Chart.js out of `report` (see page.cc). Colours follow the reader's scheme, or the button's.
"use strict";
const darkScheme = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (document.documentElement.dataset.scheme || (darkScheme.matches ? "dark" : "light")) === "dark";
const lightColours = ["#0b62b0", "#c8500a", "#00805c", "#a1368f", "#8f6a00", "#0a7f94", "#d4386c", "#6b5a4a"];
const darkColours = ["#5aa9f0", "#ff9350", "#3fcf9f", "#e07fd0", "#e0b84a", "#4fc9de", "#ff7fa5", "#c3ae98"];
const dashes = [[], [7, 4], [2, 3], [10, 3, 2, 3]];
const shapes = ["circle", "triangle", "rect", "rectRot", "star", "crossRot"];
const fewRows = 8;
const css = name => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A row looks the same in every setting. Baselines are drawn in ink, fp32's heavier than bf16's.
const names = [];
for (const setting of report.settings) for (const row of setting.rows) if (!row.base && !row.bf16 && !names.includes(row.name)) names.push(row.name);
function look(row) {
  if (row.base) return { colour: css("--first"), dash: [], width: 3, shape: "circle" };
  if (row.bf16) return { colour: css("--second"), dash: [], width: 3, shape: "rect" };
  const i = names.indexOf(row.name), colours = isDark() ? darkColours : lightColours, n = colours.length;
  // Dashes and shapes differ, too, for readers who do not tell the colours apart.
  return { colour: colours[i % n], dash: dashes[(i + Math.floor(i / n)) % dashes.length], width: 2, shape: shapes[i % shapes.length] };
}

const round = x => +x.toPrecision(3);
// Of a logarithmic axis: 1, 2 and 5 times powers of ten, fewer where there are many decades. Its ends (5.43) have none.
function logTick(value, index, ticks) {
  const decades = Math.log10(ticks[ticks.length - 1].value / ticks[0].value), lead = value / 10 ** Math.floor(Math.log10(value) + 1e-9);
  const is = digit => Math.abs(lead - digit) < 1e-6;
  return is(1) || (decades < 3 && (is(2) || is(5))) ? round(value).toLocaleString("en") : null;
}
function axis(type, text, more = {}) {
  const ticks = type === "logarithmic" ? { callback: logTick, maxRotation: 0, autoSkip: false, includeBounds: false } : { maxRotation: 0, includeBounds: false };
  return { type, title: { display: true, text, color: css("--ink") }, grid: { color: css("--grid"), borderColor: css("--line") }, ticks: { ...ticks, color: css("--dim") }, ...more };
}

let charts = [];
function chart(figure, config) {
  const canvas = figure.querySelector("canvas");
  config.options = { animation: false, responsive: true, maintainAspectRatio: false, parsing: false, ...config.options };
  charts.push(new Chart(canvas, config));
  charts[charts.length - 1].setting = figure.dataset.setting;
}

// Lines with the seeds' range as a band. Points are [step, MB, seconds, mean, least, most].
function lines(figure, setting, key, column, xAxis, yAxis, unit) {
  const datasets = [];
  for (const row of setting.rows) {
    const { colour, dash, width } = look(row), points = (row[key] || []).filter(p => xAxis.type !== "logarithmic" || p[column] > 0);
    const at = y => points.map(p => ({ x: p[column], y: p[y] }));
    const line = { row: row.name, pointRadius: points.length < 2 ? 3 : 0, pointHitRadius: 6, borderColor: colour, backgroundColor: colour, hidden: !row.shown };
    datasets.push({ ...line, label: row.name, data: at(3), borderDash: dash, borderWidth: width });
    if (row.runs > 1) {
      datasets.push({ ...line, band: true, data: at(5), borderWidth: 0, pointRadius: 0, pointHitRadius: 0, fill: "+1", backgroundColor: colour + "2b" });
      datasets.push({ ...line, band: true, data: at(4), borderWidth: 0, pointRadius: 0, pointHitRadius: 0 });
    }
  }
  chart(figure, { type: "line", data: { datasets }, options: {
    normalized: true, interaction: { mode: "nearest", intersect: false }, scales: { x: xAxis, y: yAxis },
    plugins: { legend: { display: false }, tooltip: { filter: item => !item.dataset.band, callbacks: {
      title: () => "", label: item => `${item.dataset.label}: ${round(item.parsed.y)}${unit} at ${round(item.parsed.x)}` } } } } });
}

// Names beside points, moved down or up until they touch none that stands already; the front's first.
const pointLabels = { id: "pointLabels", afterDatasetsDraw(chart) {
  const c = chart.ctx, placed = [], area = chart.chartArea;
  c.save();
  c.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  const all = chart.data.datasets.map((set, i) => ({ set, meta: chart.getDatasetMeta(i) })).filter(one => one.set.named && !one.meta.hidden && one.meta.data.length);
  for (const { meta } of all) placed.push({ x: meta.data[0].x - 6, y: meta.data[0].y - 6, w: 12, h: 12 });
  for (const { set, meta } of all.sort((a, b) => b.set.front - a.set.front)) {
    const { x, y } = meta.data[0], w = c.measureText(set.label).width + 4, h = 15;
    const sides = x + 10 + w < area.right ? [x + 9, x - 9 - w] : [x - 9 - w, x + 9];
    const spot = [0, -10, 10, -20, 20, -32, 32].flatMap(dy => sides.map(left => ({ x: left, y: y + dy - h / 2, w, h })))
      .find(s => s.x > area.left && s.x + w < area.right + 4 && s.y > area.top - 6 && s.y + h < area.bottom && !placed.some(p => s.x < p.x + p.w && p.x < s.x + s.w && s.y < p.y + p.h && p.y < s.y + s.h));
    if (!spot) continue;
    placed.push(spot);
    c.textBaseline = "middle";
    c.lineWidth = 4;
    c.lineJoin = "round";
    c.strokeStyle = css("--paper");
    c.strokeText(set.label, spot.x + 2, spot.y + h / 2);
    c.fillStyle = set.borderColor;
    c.fillText(set.label, spot.x + 2, spot.y + h / 2);
  }
  c.restore();
} };

// The range over the seeds as a vertical bar.
const rangeBars = { id: "rangeBars", beforeDatasetsDraw(chart) {
  const c = chart.ctx, y = chart.scales.y, { left, top, width, height } = chart.chartArea;
  c.save();
  c.beginPath();
  c.rect(left, top, width, height);
  c.clip();
  chart.data.datasets.forEach((set, i) => {
    const meta = chart.getDatasetMeta(i);
    if (!set.range || meta.hidden || !meta.data.length) return;
    c.strokeStyle = set.borderColor;
    c.lineWidth = 1.5;
    c.beginPath();
    c.moveTo(meta.data[0].x, y.getPixelForValue(set.range[0]));
    c.lineTo(meta.data[0].x, y.getPixelForValue(set.range[1]));
    c.stroke();
  });
  c.restore();
} };

// Where a row cannot be told from the baseline: what the test set alone leaves open.
const noiseBand = { id: "noiseBand", beforeDraw(chart, args, options) {
  if (!options.band) return;
  const c = chart.ctx, { left, right, top, bottom } = chart.chartArea, at = value => Math.min(bottom, Math.max(top, chart.scales.y.getPixelForValue(value)));
  c.save();
  c.fillStyle = css("--soft");
  c.fillRect(left, at(options.band[1]), right - left, at(options.band[0]) - at(options.band[1]));
  c.restore();
} };

// Accuracy against bytes; rows that no other row beats are joined by steps.
function pareto(figure, setting) {
  const rows = setting.rows.filter(r => r.mb_step > 0 && r.acc && r.diverged === 0), datasets = [];
  const best = Math.max(...rows.map(r => r.acc[0])), front = rows.filter(r => r.front).sort((a, b) => a.mb_step - b.mb_step);
  for (const row of rows) {
    const { colour, shape } = look(row);
    datasets.push({ row: null, label: row.name, front: row.front, named: true, range: row.runs > 1 ? [row.acc[1], row.acc[2]] : null, data: [{ x: row.mb_step, y: row.acc[0] }], showLine: false,
      pointStyle: shape, pointRadius: row.base || row.bf16 ? 6 : 5, borderColor: colour, backgroundColor: row.front ? colour : "transparent", borderWidth: 2 });
  }
  datasets.push({ row: null, label: "front", data: front.map(r => ({ x: r.mb_step, y: r.acc[0] })), stepped: "before", borderColor: css("--second"), borderWidth: 1.5, borderDash: [4, 4], pointRadius: 0, pointHitRadius: 0 });
  // Rows far below would press the others flat; what lies below is said in the caption.
  const band = setting.noise ? [setting.noise[0] - setting.noise[1], setting.noise[0] + setting.noise[1]] : null;
  if (band) figure.querySelector(".noise").textContent = ` Shaded: what ${setting.noise[2].toLocaleString("en")} test samples cannot tell from the baseline (± ${round(setting.noise[1])} points).`;
  const floor = Math.min(...rows.map(r => r.acc[1]).filter(a => a > best - 20), ...(band ? [band[0]] : [])), lost = rows.filter(r => r.acc[0] < best - 20).map(r => r.name);
  const span = Math.max(best - floor, 1);
  figure.querySelector(".below").textContent = lost.length ? `Below the picture: ${lost.join(", ")}. ` : "";
  chart(figure, { type: "line", data: { datasets }, plugins: [noiseBand, rangeBars, pointLabels], options: {
    interaction: { mode: "nearest", intersect: true }, layout: { padding: { right: 8 } },
    scales: { x: axis("logarithmic", "MB sent per rank and step (logarithmic)", { min: Math.min(...rows.map(r => r.mb_step)) / 1.6, max: Math.max(...rows.map(r => r.mb_step)) * 1.6 }),
      y: axis("linear", "test accuracy, %", { min: Math.max(0, floor - 0.08 * span), max: Math.min(100, Math.max(...rows.map(r => r.acc[2]), ...(band ? [band[1]] : [])) + 0.08 * span) }) },
    plugins: { noiseBand: { band }, legend: { display: false }, tooltip: { filter: item => item.dataset.named, callbacks: { title: () => "", label: item => `${item.dataset.label}: ${round(item.parsed.y)} % with ${round(item.parsed.x)} MB a step` } } } } });
}

// The seeds' range of a whole step, at the end of its bar.
const stepRange = { id: "stepRange", afterDatasetsDraw(chart, args, options) {
  const c = chart.ctx, x = chart.scales.x;
  c.save();
  c.strokeStyle = c.fillStyle = css("--ink");
  c.lineWidth = 1.5;
  c.font = "12px system-ui, 'DejaVu Sans', sans-serif";
  c.textBaseline = "middle";
  options.rows.forEach((row, i) => {
    const y = chart.getDatasetMeta(0).data[i].y, [least, most] = row.time.slice(4), total = row.time[0] + row.time[1] + row.time[2] + row.time[3];
    if (row.runs > 1) {
      c.beginPath();
      c.moveTo(x.getPixelForValue(least), y);
      c.lineTo(x.getPixelForValue(most), y);
      for (const end of [least, most]) { c.moveTo(x.getPixelForValue(end), y - 4); c.lineTo(x.getPixelForValue(end), y + 4); }
      c.stroke();
    }
    c.fillText(`${total.toFixed(2)} ms`, x.getPixelForValue(Math.max(most, total)) + 7, y);
  });
  c.restore();
} };

// Exposed communication: the parts of a step, a bar for each row.
function stepTime(figure, setting) {
  const rows = setting.rows.filter(r => r.runs && r.time[4] !== null && r.time[5] > 0);
  const parts = [["computing", "--compute"], ["computing, communication hidden behind it", "--hidden"], ["exposed communication", "--exposed"], ["the rest", "--other"]];
  const datasets = parts.map(([label, colour], i) => ({ label, data: rows.map(r => r.time[i]), backgroundColor: css(colour), borderColor: css("--paper"), borderWidth: 1, stack: "step", barPercentage: 0.75 }));
  figure.querySelector(".chart").style.height = `${Math.max(14, 5 + 2.2 * rows.length)}rem`;
  chart(figure, { type: "bar", data: { labels: rows.map(r => r.name), datasets }, plugins: [stepRange], options: {
    parsing: true, indexAxis: "y", interaction: { mode: "index", axis: "y", intersect: false }, layout: { padding: { right: 12 } },
    scales: { x: axis("linear", "milliseconds of a step", { stacked: true, min: 0, max: 1.18 * Math.max(...rows.map(r => Math.max(r.time[5], r.time[0] + r.time[1] + r.time[2] + r.time[3]))) }),
      y: { stacked: true, grid: { display: false, borderColor: css("--line") }, ticks: { color: css("--ink"), autoSkip: false } } },
    plugins: { stepRange: { rows }, legend: { position: "top", align: "start", labels: { color: css("--ink"), boxWidth: 14 } },
      tooltip: { callbacks: { label: item => `${item.dataset.label}: ${round(item.parsed.x)} ms` } } } } });
}

function bandwidth(figure) {
  const datasets = report.bandwidth.map(row => {
    const { colour, dash, width, shape } = look(row);
    return { label: row.name, data: row.points.map(p => ({ x: p[0], y: p[1] })), borderColor: colour, backgroundColor: colour, borderDash: dash, borderWidth: width, pointStyle: shape, pointRadius: 4, row: null, named: true, front: false };
  });
  chart(figure, { type: "line", data: { datasets }, options: {
    interaction: { mode: "nearest", intersect: false }, scales: { x: axis("logarithmic", "link, Mbit/s each way (logarithmic)"), y: axis("logarithmic", "seconds to the target accuracy (logarithmic)") },
    plugins: { legend: { position: "bottom", labels: { color: css("--ink"), usePointStyle: true } }, tooltip: { callbacks: { title: () => "", label: item => `${item.dataset.label}: ${round(item.parsed.y)} s at ${item.parsed.x} Mbit/s` } } } } });
}

// A diverging row would press all others flat: the axis ends above where training starts.
function lossAxis(setting) {
  const starts = setting.rows.filter(r => r.loss.length).map(r => r.loss[0][3]).sort((a, b) => a - b);
  const ends = setting.rows.flatMap(r => r.loss.map(p => p[4])).filter(loss => loss > 0);
  return axis("logarithmic", "training loss (logarithmic)", { min: 0.8 * Math.min(...ends, 1), max: 1.3 * (starts[Math.floor(starts.length / 2)] || 1) });
}

function sample(row) {
  const { colour, dash, width } = look(row);
  return `<svg width="26" height="10" aria-hidden="true"><line x1="0" y1="5" x2="26" y2="5" stroke="${colour}" stroke-width="${width}" stroke-dasharray="${dash.join(" ")}"/></svg>`;
}

function refresh(setting, index) {
  for (const box of document.querySelectorAll(`.legend[data-setting="${index}"]`)) legend(box, setting, index);
  for (const one of charts.filter(c => c.setting === String(index))) {
    one.data.datasets.forEach((set, i) => { if (set.row) one.setDatasetVisibility(i, setting.rows.find(r => r.name === set.row).shown); });
    one.update();
  }
}

function legend(box, setting, index) {
  box.textContent = "";
  for (const row of setting.rows) {
    const button = document.createElement("button");
    button.innerHTML = sample(row);
    button.append(row.name + (row.diverged ? (row.diverged === row.runs ? " (diverged)" : ` (${row.diverged} of ${row.runs} diverged)`) : ""));
    button.title = row.spec;
    button.classList.toggle("off", !row.shown);
    button.setAttribute("aria-pressed", row.shown);
    button.onclick = () => { row.shown = !row.shown; refresh(setting, index); };
    box.append(button);
  }
  if (setting.rows.length <= fewRows) return;
  const all = document.createElement("button"), some = setting.rows.some(r => !r.shown);
  all.className = "all";
  all.textContent = some ? "show all" : "baselines only";
  all.onclick = () => { for (const row of setting.rows) row.shown = some || row.base; refresh(setting, index); };
  box.append(all);
}

function draw() {
  for (const one of charts) one.destroy();
  charts = [];
  Chart.defaults.font.family = "system-ui, 'DejaVu Sans', sans-serif";
  report.settings.forEach((setting, index) => {
    const find = id => document.getElementById(`${id}-${index}`);
    if (find("pareto")) pareto(find("pareto"), setting);
    if (find("time")) stepTime(find("time"), setting);
    const x = [["steps", 0, axis("linear", "steps")], ["bytes", 1, axis("logarithmic", "MB sent per rank (logarithmic)")], ["time", 2, axis("linear", "seconds of training")]];
    for (const [id, column, xAxis] of x) {
      if (find("loss-" + id)) lines(find("loss-" + id), setting, "loss", column, xAxis, lossAxis(setting), "");
      if (find("testloss-" + id)) lines(find("testloss-" + id), setting, "test_loss", column, xAxis, axis("linear", "test loss, nats"), "");
      if (find("accuracy-" + id)) lines(find("accuracy-" + id), setting, "accuracy", column, xAxis, axis("linear", "test accuracy, %"), " %");
    }
    refresh(setting, index);
  });
  if (document.getElementById("bandwidth")) bandwidth(document.getElementById("bandwidth"));
}

// At first: all of few rows, else baselines and the front.
for (const setting of report.settings) {
  let left = fewRows;
  const first = [...setting.rows].sort((a, b) => (b.base + b.bf16 + b.front) - (a.base + a.bf16 + a.front));
  for (const row of first) row.shown = setting.rows.length <= fewRows || ((row.base || row.bf16 || row.front) && left-- > 0);
}

// report.html#only=loss-0 shows one group of charts, for pictures.
const only = /^#only=([\w-]+)/.exec(location.hash);
const part = only && document.querySelector(`[data-part="${only[1]}"]`);
if (part) {
  for (const child of [...document.body.children]) if (child.tagName !== "SCRIPT") child.remove();
  document.body.classList.add("only");
  document.body.prepend(part);
}

// The scheme: the reader's at first; what the button was set to is kept where the browser allows it.
const root = document.documentElement, button = document.querySelector(".scheme");
function wear(scheme) {
  if (scheme) root.dataset.scheme = scheme; else delete root.dataset.scheme;
  if (button) button.textContent = isDark() ? "Light scheme" : "Dark scheme";
  draw();
}
function kept() {
  try { return localStorage.getItem("gradwire-scheme"); } catch (error) { return null; }
}
const asked = /[#&]scheme=(light|dark)/.exec(location.hash);
let scheme = asked ? asked[1] : kept();
if (button) {
  button.hidden = false;
  button.onclick = () => {
    scheme = isDark() ? "light" : "dark";
    try { localStorage.setItem("gradwire-scheme", scheme); } catch (error) { /* not kept */ }
    wear(scheme);
  };
}
wear(scheme);
darkScheme.addEventListener("change", () => wear(scheme));
// Paper is white.
addEventListener("beforeprint", () => { wear("light"); charts.forEach(c => c.resize()); });
addEventListener("afterprint", () => wear(scheme));
// Of what is drawn: the document is never lower than its window.
document.documentElement.dataset.height = Math.ceil(document.body.getBoundingClientRect().bottom + scrollY + parseFloat(getComputedStyle(document.body).marginBottom));
