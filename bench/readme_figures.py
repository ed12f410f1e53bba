#!/usr/bin/env python3
"""The README's picture, and tables of results in README.md and docs/choosing.md, made from committed results: step times beside
PyTorch DDP, and accuracy.

    bench/readme_figures.py            writes docs/figures/speed_and_accuracy_{light,dark}.svg, and the tables into their pages
    bench/readme_figures.py --check    writes nothing; status 1 where a file differs from what would be written

Sources: bench/results/train_beside_torch.txt (2 hosts), docs/studies/fashion_mnist.csv and docs/studies/fashion_mnist_torch.md.
"""
import argparse
import csv
import io
import math
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TIMES = "bench/results/train_beside_torch.txt"
STUDY = "docs/studies/fashion_mnist.csv"
TORCH_STUDY = "docs/studies/fashion_mnist_torch.md"
FIGURE = "docs/figures/speed_and_accuracy_{}.svg"

SCHEMES = {
    "light": {"text": "#1f2328", "muted": "#59636e", "grid": "#d1d9e0", "peer": "#818b98", "own": "#0969da", "page": "#ffffff"},
    "dark": {"text": "#f0f6fc", "muted": "#9198a1", "grid": "#3d444d", "peer": "#7d8590", "own": "#4493f8", "page": "#0d1117"},
}
WIDTH, HEIGHT = 880, 372
TOP, PITCH, BAR = 66, 30, 13  # of the rows of bars
BAR_ROOM = 104  # pixels of the longest bar

# Label, way in the results, the same method through PyTorch's DDP and compress() where that was measured.
BARS = (
    ("DDP, fp32", "torch-ddp-4mb", None),
    ("DDP, fp16 hook", "torch-fp16-4mb", None),
    ("DDP, PowerSGD r4 hook", "torch-powersgd-4", None),
    ("8 bits + EF", "int8-sra", None),
    ("4 bits + EF", "int4-sra", "torch-gradwire-int4"),
    ("sign + EF", "signsgd-ef", None),
    ("top-k 1 % + EF", "topk-1%", "torch-gradwire-topk-1%"),
    ("PowerSGD r4 + EF", "powersgd-4", "torch-gradwire-powersgd-4"),
)
PEERS = 3  # the first rows of BARS
PANELS = (  # title, heading of the table, what its command has, left edge of the bars
    ("100 Mbit/s", "2 hosts, 100mbit", "--steps 4 --loss-steps 40", 166),
    ("1 Gbit/s", "2 hosts, 1gbit", "--loss-steps 0 --backend", 370),
)
FOUR_HOSTS = ("4 hosts, 100mbit", PANELS[0][2]), ("4 hosts, 1gbit", PANELS[1][2])

# Label, way at 100 Mbit/s, way at 1 Gbit/s in PyTorch, row of the study in PyTorch.
HEADLINES = (
    ("PyTorch DDP, fp32", "torch-ddp-4mb", "torch-ddp-4mb", None),
    ("PyTorch DDP, fp16 hook", "torch-fp16-4mb", "torch-fp16-4mb", None),
    ("PyTorch DDP, PowerSGD hook, rank 4", "torch-powersgd-4", "torch-powersgd-4", None),
    ("gradwire, `none`", "none", "torch-gradwire", "SGD momentum"),
    ("gradwire, `absmax:bits=4,ef=ef14`", "int4-sra", "torch-gradwire-int4", "int4"),
    ("gradwire, `powersgd:rank=4,ef=ef14`", "powersgd-4", "torch-gradwire-powersgd-4", "PowerSGD r4"),
    ("gradwire, `topk:ratio=0.01,ef=ef14`", "topk-1%", "torch-gradwire-topk-1%", "top-k 1 % + EF"),
    ("gradwire, `signsgd:ef=ef14`", "signsgd-ef", None, "EF-sign nm lr .2"),
)

# Of docs/choosing.md: label, ways (the fastest counts), at all links.
LINKS = (
    ("PyTorch DDP, fp32", ("torch-ddp", "torch-ddp-4mb")),
    ("PyTorch fp16 hook", ("torch-fp16", "torch-fp16-4mb")),
    ("PyTorch PowerSGD hook, rank 4", ("torch-powersgd-4",)),
    ("`none`", ("none",)),
    ("`cast:bf16`", ("bf16",)),
    ("`absmax:bits=8,ef=ef14`", ("int8-sra",)),
    ("`absmax:bits=4,ef=ef14`", ("int4-sra",)),
    ("`qsgd:bits=4`", ("qsgd4-sra",)),
    ("`signsgd:ef=ef14,combine=sra`", ("signsgd-ef-sra",)),
    ("`topk:ratio=0.01,ef=ef14`", ("topk-1%",)),
    ("`powersgd:rank=4,ef=ef14`", ("powersgd-4",)),
    ("`lossless`", ("lossless",)),
    ("`block_sparse` (gradient not sparse)", ("block-sparse",)),
)
# Of docs/choosing.md: label, row of the study.
ACCURACIES = (
    ("`powersgd:rank=4,ef=ef14`", "PowerSGD r4"),
    ("`qsgd:bits=8`", "int8"),
    ("`qsgd:bits=4`", "int4"),
    ("`qsgd:bits=2` with error feedback (`ef_scale=none`: needs `--allow-unsafe`)", "int2 + EF"),
    ("`natural`", "natural"),
    ("`atomo:budget=3`", "ATOMO, budget 3"),
    ("`signsgd:ef=ef14`, no momentum", "EF-sign nm lr .2"),
    ("`topk:ratio=0.01,ef=ef14`, no momentum", "top-k 1 % nm lr .2 + EF"),
    ("`powersgd:rank=2,ef=ef14`", "PowerSGD r2"),
    ("`dgc`, 0.1 % after a warm-up of the ratio (payload: average)", "DGC 0.1 % with warm-up"),
    ("`qsgd:bits=2`", "int2"),
    ("`dgc:ratio=0.001`", "DGC 0.1 %"),
    ("`signum`, rate 10⁻³", "Signum lr 1e-3"),
    ("`topk:ratio=0.01,ef=ef14`, momentum 0.9", "top-k 1 % + EF"),
    ("`terngrad` (clipped at 2.5)", "TernGrad, clip 2.5"),
    ("`topk:ratio=0.001,ef=ef14`", "top-k 0.1 % + EF"),
    ("`powersgd:rank=1,ef=ef14`", "PowerSGD r1"),
)

PLOT = {"left": 608, "right": 868, "top": 66, "bottom": 306}
PAYLOAD, ACCURACY = (700, 600_000), (78, 89.2)  # ranges of the axes
# Row of the study, the same without error feedback, label, where it stands: anchor, dx, dy.
POINTS = (
    ("SGD momentum", None, "fp32", "middle", 0, -9),
    ("int8", None, "8 bits", "middle", 4, 18),
    ("int4", None, "4 bits", "middle", 8, -9),
    ("int2", None, "2 bits", "start", 7, 9),
    ("PowerSGD r4", "PowerSGD r4 without EF", "PowerSGD r4", "middle", -10, -9),
    ("EF-sign nm lr .2", "scaled sign nm lr .2", "sign", "end", -8, 3),
    ("top-k 1 % + EF", "top-k 1 %", "top-k 1 %", "end", -7, 10),
    ("top-k 0.1 % + EF", "top-k 0.1 %", "top-k 0.1 %", "start", 8, 16),
    ("DGC 0.1 %", None, "DGC 0.1 %", "start", 8, -3),
    ("PowerSGD r1", "PowerSGD r1 without EF", "PowerSGD r1", "middle", 0, 84),
)


class DataError(Exception):
    pass


def tables(text):
    """(command, heading, {way: milliseconds}) of every table of the results, in the file's order."""
    command, heading, rows = "", "", {}
    for line in text.splitlines() + ["$ "]:
        if line.startswith("$ ") or re.match(r"\d+ hosts, \w+, \d+ round", line):
            if rows:
                yield command, heading, rows
            rows = {}
            command, heading = (line, heading) if line.startswith("$ ") else (command, line)
        found = re.match(r"\s+(\S+)\s+([\d.]+) \(\s*[\d.]+\)", line)
        if found and heading:
            rows[found[1]] = float(found[2])


def step_times(text, heading, words):
    """Of the one table with this heading whose command has these words; and each way's range over all tables of the heading."""
    same = [(command, rows) for command, of, rows in tables(text) if of.startswith(heading)]
    chosen = [rows for command, rows in same if words in command]
    if len(chosen) != 1:
        raise DataError(f"{TIMES}: got {len(chosen)} tables '{heading}' of a command with '{words}', expected 1")
    ranges = {}
    for _, rows in same:
        for way, value in rows.items():
            low, high = ranges.get(way, (value, value))
            ranges[way] = min(low, value), max(high, value)
    return chosen[0], ranges


def study(text):
    """{row: (payload bytes a step, accuracy in percent, its standard deviation over seeds)}"""
    return {row["name"]: (float(row["payload_bytes_per_step"]), float(row["accuracy_percent"]), float(row["accuracy_sd"]))
            for row in csv.DictReader(io.StringIO(text)) if row["runs"] != row["diverged"]}


class Drawing:
    def __init__(self, colours):
        self.colours = colours
        self.parts = []

    def text(self, x, y, words, anchor="start", colour="text", size=12, weight="normal"):
        words = words.replace("&", "&amp;").replace("<", "&lt;")
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
                          f'fill="{self.colours[colour]}">{words}</text>')

    def line(self, x1, y1, x2, y2, colour="grid", width=1.0, dash=""):
        dashes = f' stroke-dasharray="{dash}"' if dash else ""
        self.parts.append(f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{self.colours[colour]}" '
                          f'stroke-width="{width:g}"{dashes}/>')

    def bar(self, x, y, width, colour):
        self.parts.append(f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 1):.1f}" height="{BAR}" rx="1.5" '
                          f'fill="{self.colours[colour]}"/>')

    def diamond(self, x, y):
        self.parts.append(f'<path d="M{x:.1f} {y - 5:.1f}l5 5l-5 5l-5 -5z" fill="{self.colours["page"]}" '
                          f'stroke="{self.colours["text"]}" stroke-width="1.4"/>')

    def circle(self, x, y, colour, filled):
        fill = self.colours[colour] if filled else self.colours["page"]
        self.parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4.5" fill="{fill}" stroke="{self.colours[colour]}" stroke-width="1.6"/>')

    def svg(self, title):
        head = (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img" '
                f'font-family="-apple-system, \'Segoe UI\', \'Noto Sans\', Helvetica, Arial, sans-serif">')
        return "\n".join([head, f"<title>{title}</title>", *self.parts, "</svg>"]) + "\n"


def row_y(index):
    """Middle of a row of bars."""
    return TOP + 14 + PITCH * index + (12 if index >= PEERS else 0)


def draw_bars(drawing, text):
    drawing.text(8, 20, "Milliseconds a step, 2 hosts (× faster than DDP)", weight="600", size=14)
    for index, (label, _, _) in enumerate(BARS):
        drawing.text(157, row_y(index) + 4, label, anchor="end")
    drawing.text(8, TOP - 22, "PyTorch 2.13, Gloo", colour="muted", size=11)
    drawing.text(8, row_y(PEERS) - 17, "gradwire", colour="own", size=11, weight="600")
    for title, heading, words, left in PANELS:
        times, ranges = step_times(text, heading, words)
        dense = times[BARS[0][1]]
        scale = BAR_ROOM / max(ranges[way][1] for _, way, _ in BARS)
        drawing.text(left, TOP - 22, title, weight="600")
        drawing.line(left, TOP - 8, left, row_y(len(BARS) - 1) + 18)
        for index, (_, way, in_torch) in enumerate(BARS):
            y, value, (low, high) = row_y(index), times[way], ranges[way]
            drawing.bar(left, y - BAR / 2, value * scale, "peer" if index < PEERS else "own")
            if (high - low) * scale > 2:
                drawing.line(left + low * scale, y, left + high * scale, y, colour="text", width=1.4)
            end = max(value, high) * scale
            if in_torch in times:
                drawing.diamond(left + times[in_torch] * scale, y)
                end = max(end, times[in_torch] * scale + 5)
            drawing.text(left + end + 6, y + 4, f"{value:,.0f} ({dense / value:.1f}×)", size=11, colour="muted" if index == 0 else "text")


def plot_x(payload):
    low, high = (math.log(value) for value in PAYLOAD)
    return PLOT["left"] + (math.log(payload) - low) / (high - low) * (PLOT["right"] - PLOT["left"])


def plot_y(accuracy):
    return PLOT["bottom"] - (accuracy - ACCURACY[0]) / (ACCURACY[1] - ACCURACY[0]) * (PLOT["bottom"] - PLOT["top"])


def draw_axes(drawing):
    drawing.text(PLOT["left"] - 30, 20, "Accuracy against bytes sent", weight="600", size=14)
    drawing.text(PLOT["left"] - 30, TOP - 22, "test accuracy, %, by payload of a rank in a step", colour="muted", size=11)
    for percent in range(78, 90, 2):
        drawing.line(PLOT["left"], plot_y(percent), PLOT["right"], plot_y(percent))
        drawing.text(PLOT["left"] - 8, plot_y(percent) + 4, str(percent), anchor="end", colour="muted", size=11)
    for payload, label in ((1e3, "1 KB"), (1e4, "10 KB"), (1e5, "100 KB"), (437_544, "438 KB")):
        drawing.line(plot_x(payload), PLOT["bottom"], plot_x(payload), PLOT["bottom"] + 4)
        drawing.text(plot_x(payload), PLOT["bottom"] + 17, label, anchor="middle", colour="muted", size=11)


def draw_points(drawing, text):
    rows = study(text)
    draw_axes(drawing)
    dense = rows["SGD momentum"][1]
    drawing.line(PLOT["left"], plot_y(dense), PLOT["right"], plot_y(dense), colour="peer", dash="4 3")
    for name, without, label, anchor, dx, dy in POINTS:
        payload, accuracy, deviation = rows[name]
        x, y = plot_x(payload), plot_y(accuracy)
        if without:
            below = max(rows[without][1], ACCURACY[0])
            drawing.line(x, plot_y(below), x, y, colour="own")
            if below > ACCURACY[0]:
                drawing.circle(x, plot_y(below), "own", filled=False)
            else:
                drawing.text(x + 5, PLOT["bottom"] - 6, f"↓ {rows[without][1]:.1f}", size=11)
        drawing.line(x, plot_y(accuracy - deviation), x, plot_y(accuracy + deviation), colour="text", width=1.4)
        drawing.circle(x, y, "peer" if name == "SGD momentum" else "own", filled=True)
        drawing.text(x + dx, y + dy, label, anchor=anchor, size=11)


def draw_key(drawing):
    y = HEIGHT - 14
    drawing.diamond(14, y - 4)
    drawing.text(24, y, "the same through PyTorch DDP and compress()", colour="muted", size=11)
    drawing.line(296, y - 4, 318, y - 4, colour="text", width=1.4)
    drawing.text(324, y, "range of all committed runs", colour="muted", size=11)
    drawing.circle(PLOT["left"] - 24, y - 4, "own", filled=True)
    drawing.text(PLOT["left"] - 15, y, "with error feedback, or unbiased", colour="muted", size=11)
    drawing.circle(PLOT["left"] + 176, y - 4, "own", filled=False)
    drawing.text(PLOT["left"] + 185, y, "without", colour="muted", size=11)


def figure(scheme, times, accuracy):
    """The SVG's text, of the texts of the two sources."""
    drawing = Drawing(SCHEMES[scheme])
    draw_bars(drawing, times)
    draw_points(drawing, accuracy)
    draw_key(drawing)
    return drawing.svg("Step time per method beside PyTorch DDP at 100 Mbit/s and 1 Gbit/s, and test accuracy against bytes sent")


def headline(times, torch_study):
    """The README's rows: milliseconds and how many times as fast as DDP; accuracies, the compressed ones as differences."""
    slow, fast = (step_times(times, heading, words)[0] for _, heading, words, _ in PANELS)
    accuracies = {}
    for line in torch_study.splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) == 8:  # row, spec, rate, accuracy, difference, bytes, between bars
            accuracies[cells[1]] = f"{cells[4]} %" if cells[5] == "–" else cells[5].replace("-", "−")
    lines = ["| ms a step (× DDP's speed) | 100 Mbit/s | 1 Gbit/s, in PyTorch | accuracy |", "|---|---|---|---|"]
    for label, way, in_torch, row in HEADLINES:
        cells = [label]
        for rows, name in ((slow, way), (fast, in_torch)):
            cells.append(f"{rows[name]:,.0f} ({rows[HEADLINES[0][1]] / rows[name]:.2g}×)" if name else "–")
        cells.append(accuracies[row] if row else "–")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def factor(ratio):
    return f"{ratio:.0f}×" if ratio >= 20 else f"{ratio:.1f}×" if ratio >= 0.95 else f"{ratio:.2f}×"


def by_link(times):
    """Rows of every method: milliseconds, and how many times as fast as DDP."""
    two = [step_times(times, heading, words)[0] for _, heading, words, _ in PANELS]
    four = [step_times(times, heading, words)[0] for heading, words in FOUR_HOSTS]
    lines = ["| method | 100 Mbit/s, 2 hosts | 100 Mbit/s, 4 hosts | 1 Gbit/s, 2 hosts | 1 Gbit/s, 4 hosts |", "|---|---|---|---|---|"]
    for label, ways in LINKS:
        cells = [label]
        for rows in (two[0], four[0], two[1], four[1]):
            value = min((rows[way] for way in ways if way in rows), default=None)
            dense = min(rows[way] for way in LINKS[0][1])
            cells.append("–" if value is None else f"{value:,.0f} ({factor(dense / value)})")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def by_method(accuracy):
    """Rows of every method: difference to the uncompressed row in points, and the share of its payload."""
    rows = study(accuracy)
    dense = rows["SGD momentum"]
    lines = ["| method | points | payload |", "|---|---|---|"]
    for label, name in ACCURACIES:
        payload, percent, _ = rows[name]
        share = dense[0] / payload
        points = f"{percent - dense[1]:+.2f}".replace("-", "−")
        lines.append(f"| {label} | {points} | 1/{share:.{0 if share >= 9.5 else 1}f} |".replace(".0 |", " |"))
    return "\n".join(lines) + "\n"


def contents():
    """(path, text that it should have) of every file that this makes, or has a part in."""
    times, accuracy, torch_study = ((ROOT / name).read_text() for name in (TIMES, STUDY, TORCH_STUDY))
    for scheme in SCHEMES:
        yield FIGURE.format(scheme), figure(scheme, times, accuracy)
    pages = {"README.md": {"headline": headline(times, torch_study)},
             "docs/choosing.md": {"links": by_link(times), "methods": by_method(accuracy)}}
    for page, tables_of_it in pages.items():
        text = (ROOT / page).read_text()
        for name, rows in tables_of_it.items():
            first, last = f"<!-- table {name}: bench/readme_figures.py -->\n", "<!-- end of table -->"
            if text.count(first) != 1 or last not in text.split(first)[1]:
                raise DataError(f"{page}: got no table between '{first.strip()}' and '{last}', expected one")
            before, after = text.split(first)
            text = before + first + rows + after[after.index(last):]
        yield page, text


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 where a committed file differs")
    options = parser.parse_args()
    status = 0
    for name, wanted in contents():
        path = ROOT / name
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(wanted)
        elif not path.exists() or path.read_text() != wanted:
            print(f"{name}: not what bench/readme_figures.py makes of the committed results; run it", file=sys.stderr)
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main())
