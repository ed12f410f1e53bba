#!/usr/bin/env python3
"""What staleness costs, and what a flush does: loss against samples and against virtual time under 1F1B, Chimera, PipeDream without and with
vertical sync, and PipeDream-2BW, on four stages.

    bench/pipelines/staleness_study.py GRADWIRE --data-dir DIR --out DIR [--seeds 3] [--results FILE] [--figure FILE]
    bench/pipelines/staleness_study.py GRADWIRE --out DIR --sample      a few steps of small models on made-up data

Trains each model under each schedule and seed, ranks as threads of one process; a run whose metrics are in --out is not repeated, so the
same command goes on after an interruption. Losses are real, times are not: `gradwire sim pipeline` says how long a step takes on ranks of
50 GFLOP/s over links of 1 and 10 Gbit/s with 50 us of latency. A step is 32 samples under every schedule. Each schedule has the learning
rate of three under which its training loss ends lowest with the first seed. Writes a table and a picture.
"""
import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys
import tempfile

RANKS = 4
BATCH = 32
MICRO_BATCHES = 8  # of a step, where one has several
FLOPS = 50e9
ALPHA = 50e-6
RATES = (1, 10)  # Gbit/s
TICK = 1e-10  # of the simulation, in seconds
WINDOW = 20  # steps that a curve is the mean of
TARGET = 0.75  # of the steps of 1F1B, whose loss there is what the others are to reach

# Name, schedule, micro-batches of a step.
SCHEDULES = (
    ("1F1B", "1f1b", MICRO_BATCHES),
    ("Chimera", "chimera", MICRO_BATCHES),
    ("PipeDream", "pipedream", 1),
    ("PipeDream, vertical sync", "pipedream[vertical_sync=on]", 1),
    ("PipeDream-2BW", "2bw", MICRO_BATCHES),
)
COLOURS = ("#0969da", "#8250df", "#cf222e", "#bf8700", "#1a7f37")
DASHES = ("", "6 4", "", "", "")  # Chimera's curve lies on that of 1F1B where both add the same gradients


def gpt_flops(width, layers, context, vocabulary):
    """Of a sample's forward: 12 width^2 multiply-adds a token and block, attention's products, and the head."""
    return context * (layers * (24 * width**2 + 4 * context * width) + 2 * width * vocabulary)


def resnet8_flops(width, side, channels):
    """The stem, and three blocks of two 3 x 3 convolutions, of which the second and the third halve the side and double the channels."""
    stem = channels * width
    return 18 * side**2 * (stem + 2 * width**2 + (2 + 4) * width**2 / 4 + (8 + 16) * width**2 / 16)


# Flags, steps, forward FLOP of a sample, bytes of a sample's activations between stages (the widest), parameters.
MODELS = {
    "ResNet-8 on CIFAR-10": {
        "flags": ["--model", "resnet8", "--width", "8", "--data", "cifar10-subset", "--momentum", "0.9"], "rates": (0.1, 0.05, 0.02),
        "steps": 240, "flops": resnet8_flops(8, 32, 3), "bytes": 4 * 8 * 32 * 32},
    "GPT on tiny Shakespeare": {
        "flags": ["--model", "gpt", "--width", "64", "--layers", "4", "--heads", "4", "--data", "tinyshakespeare", "--tokens", "characters",
                  "--context", "32", "--dropout", "0", "--eval", "400", "--lr-schedule", "warmup:30", "--optimizer", "adamw:beta1=0.9,beta2=0.99"], "rates": (0.006, 0.003, 0.001),
        "steps": 240, "flops": gpt_flops(64, 4, 32, 65), "bytes": 4 * 64 * 32},
}
SAMPLE = {
    "MLP on digits": {"flags": ["--model", "mlp", "--hidden", "16,16,16", "--data", "digits"], "rates": (0.05,), "steps": 24,
                      "flops": 2 * (64 * 16 + 2 * 16**2 + 160), "bytes": 64},
    "GPT on a grammar": {"flags": ["--model", "gpt", "--width", "8", "--layers", "2", "--heads", "2", "--data", "grammar", "--context", "8",
                                   "--optimizer", "adamw"], "rates": (0.01,), "steps": 24, "flops": gpt_flops(8, 2, 8, 32), "bytes": 256},
}


HEADING = f"""Training under five pipeline schedules on {RANKS} stages, {BATCH} samples a step, ranks as threads. Losses are real and the mean of all
seeds; milliseconds and seconds are simulated: ranks of 50 GFLOP/s, links of 50 us latency. `samples` and `s`: until the training loss, as the
mean of {WINDOW} steps, is what 1F1B's is after {TARGET:.0%} of its steps. Each schedule has the best of three learning rates.

    bench/pipelines/staleness_study.py build/apps/gradwire --data-dir DIR --out out --results bench/results/staleness.txt \\
        --figure docs/figures/staleness.svg
"""


def file_of(folder, model, schedule, lr, seed):
    words = f"{model} {schedule} {lr}".lower()
    return folder / ("".join(c if c.isalnum() else "_" for c in words) + f"-{seed}.jsonl")


def finished(path, steps):
    """The steps' losses and the totals of a run, or None where it is not whole."""
    if not path.exists():
        return None
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    if len(rows) != steps + 1 or "test_loss" not in rows[-1]:
        return None
    return [row["loss"] for row in rows[:-1]], rows[-1]


def train(gradwire, folder, model, what, schedule, micro_batches, lr, seed, more):
    path = file_of(folder, model, schedule, lr, seed)
    known = finished(path, what["steps"])
    if known:
        return known
    part = path.with_suffix(".part")
    part.unlink(missing_ok=True)
    words = [gradwire, "train", "--parallel", f"dp=1,pp={RANKS}/{schedule}", "--accumulate", str(micro_batches), "--batch", str(BATCH),
             "--steps", str(what["steps"]), "--seed", str(seed), "--lr", str(lr), "--metrics", str(part), *what["flags"], *more]
    done = subprocess.run(words, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        sys.exit(f"{' '.join(words)}: status {done.returncode}\n{done.stderr}")
    part.rename(path)
    print(f"{model}, {schedule}, rate {lr}, seed {seed}", flush=True)
    return finished(path, what["steps"])


def simulate(gradwire, what, schedule, micro_batches, rate, steps):
    """Seconds of so many steps on links of `rate` Gbit/s, and the parameters' average between the copies under Chimera."""
    samples = BATCH // micro_batches
    forward = round(what["flops"] * samples / RANKS / FLOPS / TICK)
    flags = {"ranks": RANKS, "micro-batches": micro_batches, "steps": steps, "forward": forward, "backward-input": forward,
             "backward-weight": forward, "message-bytes": what["bytes"] * samples, "alpha": round(ALPHA / TICK),
             "beta": round(8e-9 / rate / TICK), "links": "tagged"}
    with tempfile.TemporaryDirectory() as scratch:
        rows = pathlib.Path(scratch) / "rows.jsonl"
        words = [gradwire, "sim", "pipeline", "--schedules", schedule, "--json", str(rows)]
        subprocess.run([*words, *(f"--{name}={value}" for name, value in flags.items())], check=True, capture_output=True, timeout=300)
        row = json.loads(rows.read_text().splitlines()[-1])
    return row["makespan"] * TICK / (row["ticks_per_tick"] if "ticks_per_tick" in row else 1)


def step_seconds(gradwire, what, schedule, micro_batches, rate, parameters):
    """Of one step among as many as the run has."""
    streams = schedule.startswith(("pipedream", "2bw"))
    steps = what["steps"] if streams else 1
    seconds = simulate(gradwire, what, schedule, micro_batches, rate, steps) / steps
    if schedule.startswith("chimera"):  # behind the step: a rank's two stages, halved among two, twice
        seconds += 2 * ALPHA + 4 * 2 * parameters / RANKS * 8e-9 / rate
    return seconds


def smooth(losses):
    return [statistics.fmean(losses[max(0, i + 1 - WINDOW):i + 1]) for i in range(len(losses))]


def end_of(losses):
    """The last steps' mean; one that is no number comes behind all others."""
    end = smooth(losses)[-1]
    return end if math.isfinite(end) else math.inf


def reaches(curve, target):
    """Steps until a smoothed curve is at the target; None: never."""
    return next((i + 1 for i, loss in enumerate(curve) if i + 1 >= WINDOW and loss <= target), None)


def outcomes(gradwire, folder, models, seeds, more):
    """By model and schedule: curve, spread, test losses, seconds of a step by rate."""
    found = {}
    for model, what in models.items():
        for name, schedule, micro_batches in SCHEDULES:
            tried = {lr: train(gradwire, folder, model, what, schedule, micro_batches, lr, seeds[0], more) for lr in what["rates"]}
            best = min(tried, key=lambda lr: end_of(tried[lr][0]))
            runs = [train(gradwire, folder, model, what, schedule, micro_batches, best, seed, more) for seed in seeds]
            parameters = runs[0][1]["parameters"]
            found[model, name] = {
                "rate": best, "tried": {lr: end_of(losses) for lr, (losses, _) in tried.items()},
                "curve": smooth([statistics.fmean(step) for step in zip(*(losses for losses, _ in runs))]),
                "test": [totals["test_loss"] for _, totals in runs],
                "accuracy": [totals["accuracy"] for _, totals in runs],
                "seconds": {rate: step_seconds(gradwire, what, schedule, micro_batches, rate, parameters) for rate in RATES}}
    return found


def table(models, found):
    lines = []
    for model in models:
        baseline = found[model, SCHEDULES[0][0]]["curve"]
        target = baseline[int(TARGET * len(baseline)) - 1]
        lines += ["", f"{model}; loss {target:.3f}, which 1F1B has after {TARGET:.0%} of its steps, is reached after", "",
                  f"{'schedule':26}{'rate':>6}{'test loss':>18}{'accuracy':>10}{'samples':>9}" + "".join(
                      f"{f'{rate} Gbit/s: ms a step':>24}{'s':>8}" for rate in RATES)]
        for name, _, _ in SCHEDULES:
            one = found[model, name]
            spread = statistics.stdev(one["test"]) if len(one["test"]) > 1 else 0
            steps = reaches(one["curve"], target)
            line = f"{name:26}{one['rate']:>6}{statistics.fmean(one['test']):9.4f} +- {spread:5.4f}{statistics.fmean(one['accuracy']):10.4f}"
            line += f"{steps * BATCH if steps else '-':>9}"
            for rate in RATES:
                seconds = one["seconds"][rate]
                line += f"{seconds * 1e3:24.2f}{f'{steps * seconds:.2f}' if steps else '-':>8}"
            lines.append(line)
        lines += ["", "training loss at the end, first seed, by rate: " + "; ".join(
            f"{name} " + ", ".join(f"{lr}: {loss:.3f}" for lr, loss in found[model, name]["tried"].items()) for name, _, _ in SCHEDULES)]
    return "\n".join(lines) + "\n"


def round_step(span, most):
    """The least of 1, 2, 2.5 or 5 times a power of ten that cuts `span` into at most so many parts."""
    power = 10 ** math.floor(math.log10(span / most))
    return next(times * power for times in (1, 2, 2.5, 5, 10) if times * power * most >= span * (1 - 1e-9))


def dashed(dashes):
    return f' stroke-dasharray="{dashes}"' if dashes else ""


class Panel:
    """A plot in the picture: curves over x, losses upwards, the mean of so many steps."""

    def __init__(self, left, top, width, height, most_x, losses):
        self.left, self.top, self.width, self.height = left, top, width, height
        self.most_x = most_x
        self.step = round_step(losses[1] - losses[0], 5)
        self.losses = math.floor(losses[0] / self.step) * self.step, math.ceil(losses[1] / self.step) * self.step
        self.parts = []

    def at(self, x, loss):
        low, high = self.losses
        return self.left + x / self.most_x * self.width, self.top + (high - loss) / (high - low) * self.height

    def text(self, x, y, words, anchor="middle", size=11, weight="normal"):
        self.parts.append(f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}" font-weight="{weight}" '
                          f'fill="#1f2328">{words}</text>')

    def axes(self, title, under):
        self.text(self.left + self.width / 2, self.top - 10, title, size=12, weight="600")
        low, high = self.losses
        for tick in range(round((high - low) / self.step) + 1):
            loss = low + tick * self.step
            _, y = self.at(0, loss)
            self.parts.append(f'<line x1="{self.left}" y1="{y:.1f}" x2="{self.left + self.width}" y2="{y:.1f}" stroke="#d1d9e0"/>')
            self.text(self.left - 5, y + 4, f"{loss:.4g}", anchor="end", size=10)
        step = round_step(self.most_x, 5)
        for tick in range(int(self.most_x / step * (1 + 1e-9)) + 1):
            x, _ = self.at(tick * step, low)
            foot = self.top + self.height
            self.parts.append(f'<line x1="{x:.1f}" y1="{foot}" x2="{x:.1f}" y2="{foot + 4}" stroke="#59636e"/>')
            self.text(x, foot + 15, f"{tick * step:,.0f}" if step >= 1 else f"{tick * step:.3g}", size=10)
        self.text(self.left + self.width / 2, self.top + self.height + 31, under)
        x, y = self.left - 36, self.top + self.height / 2
        self.parts.append(f'<text x="{x}" y="{y}" text-anchor="middle" font-size="11" fill="#1f2328" '
                          f'transform="rotate(-90 {x} {y})">training loss, mean of {WINDOW} steps</text>')

    def curve(self, points, colour, dashes):
        shown = [self.at(x, loss) for x, loss in points if x <= self.most_x]
        path = " ".join(f"{x:.1f},{max(self.top, y):.1f}" for x, y in shown)
        self.parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"{dashed(dashes)}/>')


def picture(models, found):
    parts = []
    for row, model in enumerate(models):
        curves = {name: found[model, name] for name, _, _ in SCHEDULES}
        shown = [loss for one in curves.values() for loss in one["curve"][WINDOW // 2:]]
        losses = (min(shown), max(shown))
        steps = models[model]["steps"]
        views = [("by samples", "samples", BATCH * steps, lambda one: BATCH)]
        for rate in RATES:  # until the fastest has come to its end, and a half more
            most = 1.5 * steps * min(one["seconds"][rate] for one in curves.values())
            views.append((f"{rate} Gbit/s", "simulated seconds", most, lambda one, rate=rate: one["seconds"][rate]))
        for column, (by, under, most, pace) in enumerate(views):
            panel = Panel(60 + 335 * column, 40 + 290 * row, 260, 200, most, losses)
            panel.axes(f"{model}, {by}", under)
            for (name, _, _), colour, dashes in zip(SCHEDULES, COLOURS, DASHES):
                one = curves[name]
                panel.curve([((i + 1) * pace(one), loss) for i, loss in enumerate(one["curve"]) if i >= WINDOW // 2], colour, dashes)
            parts += panel.parts
    height = 40 + 290 * len(models) + 20
    for index, ((name, _, _), colour, dashes) in enumerate(zip(SCHEDULES, COLOURS, DASHES)):
        x = 60 + 195 * index
        parts.append(f'<line x1="{x}" y1="{height - 18}" x2="{x + 24}" y2="{height - 18}" stroke="{colour}" stroke-width="3"{dashed(dashes)}/>')
        parts.append(f'<text x="{x + 30}" y="{height - 14}" font-size="12" fill="#1f2328">{name}</text>')
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 1040 {height}" width="1040" height="{height}" role="img" '
                      "font-family=\"'Segoe UI', 'Noto Sans', Helvetica, Arial, sans-serif\">",
                      "<title>Training loss against samples and against simulated time under five pipeline schedules</title>",
                      f'<rect width="1040" height="{height}" fill="#ffffff"/>', *parts, "</svg>"]) + "\n"


def main():
    words = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    words.add_argument("gradwire")
    words.add_argument("--data-dir")
    words.add_argument("--out", required=True, type=pathlib.Path)
    words.add_argument("--seeds", type=int, default=3)
    words.add_argument("--sample", action="store_true")
    words.add_argument("--results", type=pathlib.Path)
    words.add_argument("--figure", type=pathlib.Path)
    asked = words.parse_args()
    asked.out.mkdir(parents=True, exist_ok=True)
    models = SAMPLE if asked.sample else MODELS
    more = ["--data-dir", asked.data_dir] if asked.data_dir else []
    found = outcomes(asked.gradwire, asked.out, models, range(1, asked.seeds + 1), more)
    text = table(models, found)
    print(text)
    (asked.results or asked.out / "table.txt").write_text(HEADING + text)
    (asked.figure or asked.out / "curves.svg").write_text(picture(models, found))


if __name__ == "__main__":
    main()
