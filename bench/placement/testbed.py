#!/usr/bin/env python3
"""Steps that `gradwire plan --cluster` foretells beside measured ones: two hosts of one core each, which are namespaces of this
machine (bench/lab).

    bench/placement/testbed.py GRADWIRE --done FILE [--profile FILE] [--rates 100mbit,1gbit,10gbit] [--models mlp,cnn,gpt]
                               [--meshes none,qsgd,topk,powersgd,tp,pp] [--seconds 3] [--repeats 3]

A cell is a model, a rate and a mesh: two replicas with one of four compressors, two ranks that share tensors, or two stages.
`gradwire profile` measures one core beforehand (--profile: a file that is there is taken); nothing is fitted to the cells, and a
link's bandwidth is its rate, of which 1448 bytes in 1538 are payload (Ethernet, IP and TCP frame the rest). A cell is trained
--repeats times, for --seconds each, rank 0 on the first core and rank 1 on the second; the median of its steps' mean counts.
What is measured is appended to FILE, and not measured again while it is there: a run that was stopped goes on. Ends with the
table, and with the goals: of cells of replicas 90 % within 15 %; of pairs of one model and rate that are foretold more than 20 %
apart 95 % in that order. Wants a machine of its own. Exits with 77 where there is no lab.
"""
import argparse
import itertools
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

LAB = pathlib.Path(__file__).resolve().parents[1] / "lab"
SKIPPED = 77
PAYLOAD = 1448 / 1538
STEP = re.compile(r"([\d.]+) (us|µs|ms|s) per step")
UNITS = {"us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0}
CLOSE, CLOSE_SHARE = 0.15, 0.9
APART, ORDERED_SHARE = 0.2, 0.95

# Of each model: the flags that describe it to plan, those that describe it to train, and samples of a step. The data sets come
# with gradwire; the text of the grammar has 25 characters.
MODELS = {
    "mlp": (["--model", "mlp", "--image", "1x8x8", "--hidden", "512,256"], ["--model", "mlp", "--data", "digits", "--hidden", "512,256"], 64),
    "cnn": (["--model", "cnn", "--image", "1x8x8"], ["--model", "cnn", "--data", "digits"], 64),
    "gpt": (["--layers", "2", "--width", "64", "--heads", "4", "--sequence", "64", "--vocabulary", "25"],
            ["--model", "gpt", "--data", "grammar", "--layers", "2", "--width", "64", "--heads", "4", "--context", "64"], 16),
}
# Of each mesh: --parallel, micro-batches, and the compressor of gradients.
MESHES = {
    "none": ("dp=2", 1, "none"),
    "qsgd": ("dp=2", 1, "qsgd:bits=4"),
    "topk": ("dp=2", 1, "topk:ratio=0.01"),
    "powersgd": ("dp=2", 1, "powersgd:rank=4"),
    "tp": ("tp=2", 1, "none"),
    "pp": ("pp=2/1f1b", 4, "none"),
}
OPTIMIZER = ["--optimizer", "sgd"]
# What is measured beforehand: the layers of the three models, at sizes around those of a step.
PROFILE = ["--hidden", "512,256", "--layers", "2", "--width", "64", "--heads", "4", "--context", "64", "--rows", "4,8,16,32,64",
           "--elements", "4096,16384,65536,262144"]


def bytes_per_second(rate):
    return float(rate[:-4]) * {"m": 1e6, "g": 1e9}[rate[-4]] / 8 * PAYLOAD


def cluster_text(profile, rate):
    return f"""name = "two hosts of one core"
[device.core]
memory = "4G"
profile = "{profile}"
[link.wire]
profile = "{profile}"
transport = "tcp"
bandwidth = {bytes_per_second(rate)!r}
[[node]]
name = "host"
count = 2
devices = 1
device = "core"
link = "wire"
uplink = "wire"
"""


def call(words, seconds, **more):
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, **more)
    if done.returncode == SKIPPED:
        print(done.stderr.strip(), file=sys.stderr)
        sys.exit(SKIPPED)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, words))}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout + done.stderr


def foretell(gradwire, profile, model, rate, meshes, folder):
    """Seconds of a step of each mesh, by the search's own rows."""
    cluster = pathlib.Path(folder) / "cluster.toml"
    cluster.write_text(cluster_text(profile, rate))
    compressors = ";".join(dict.fromkeys(MESHES[mesh][2] for mesh in meshes))
    text = subprocess.run([gradwire, "plan", "--cluster", str(cluster), "--batch", str(MODELS[model][2]), *MODELS[model][0], *OPTIMIZER,
                           "--precision", "fp32", "--compressors", compressors, "--rows", "1000", "--json"],
                          capture_output=True, text=True, timeout=120)
    if text.returncode:
        raise SystemExit(f"plan of {model}: {text.stderr.strip()[-500:]}")
    rows = [row for row in map(json.loads, text.stdout.splitlines()) if row["kind"] == "mesh" and row["zero"] == 0 and row["recompute"] == "none"]
    found = {}
    for mesh in meshes:
        parallel, accumulate, compressor = MESHES[mesh]
        axes = dict(item.split("=") for item in parallel.split("/")[0].split(","))
        schedule = parallel.split("/")[1] if "/" in parallel else ""
        for row in rows:
            if (all(row[axis] == int(axes.get(axis, 1)) for axis in ("dp", "tp", "pp")) and row["schedule"] == schedule
                    and row["accumulate"] == accumulate and row["compressor"] == compressor):
                found[mesh] = row["seconds"]
    return found


def train(gradwire, model, rate, mesh, steps, folder):
    """Seconds of a step: the mean of all but the warm-up, as train says it."""
    parallel, accumulate, compressor = MESHES[mesh]
    if model == "cnn" and parallel.startswith("tp="):
        parallel += "/hybrid"
    words = [gradwire, "train", *MODELS[model][1], "--batch", str(MODELS[model][2]), "--steps", str(steps), "--parallel", parallel,
             "--accumulate", str(accumulate), "--compressor", compressor, "--transport", "tcp", "--eval-every", "0", *OPTIMIZER]
    inner = 'exec taskset -c "$GRADWIRE_RANK" "$@"'
    told = call([str(LAB), "2", rate, "--timeout", "110", "--", "sh", "-c", inner, "sh", *words], 120, cwd=folder)
    match = STEP.search(told)
    if not match:
        raise SystemExit(f"{model}, {rate}, {mesh}: no time of a step in: {told[-500:]}")
    return float(match[1]) * UNITS[match[2]]


def measure(gradwire, model, rate, mesh, seconds, repeats, folder):
    once = train(gradwire, model, rate, mesh, 20, folder)
    steps = int(min(max(seconds / once, 20), 5000))
    return statistics.median(train(gradwire, model, rate, mesh, steps, folder) for _ in range(repeats)), steps


def order(cells):
    """Pairs of one model and rate that are foretold apart, and how many of them are measured in that order."""
    pairs = right = 0
    for one, other in itertools.combinations(cells, 2):
        if (one["model"], one["rate"]) == (other["model"], other["rate"]) and max(one["foretold"], other["foretold"]) > (1 + APART) * min(one["foretold"], other["foretold"]):
            pairs += 1
            right += (one["foretold"] < other["foretold"]) == (one["measured"] < other["measured"])
    return pairs, right


def print_table(cells):
    print(f"{'model':>6} {'rate':>8} {'mesh':>9} {'foretold ms':>12} {'measured ms':>12} {'measured/foretold':>18}")
    for cell in cells:
        ratio = cell["measured"] / cell["foretold"]
        star = " *" if abs(ratio - 1) > CLOSE else ""
        print(f"{cell['model']:>6} {cell['rate']:>8} {cell['mesh']:>9} {cell['foretold'] * 1e3:>12.3f} {cell['measured'] * 1e3:>12.3f} {ratio:>18.3f}{star}")
    replicas = [cell for cell in cells if MESHES[cell["mesh"]][0].startswith("dp=")]
    close = sum(abs(cell["measured"] / cell["foretold"] - 1) <= CLOSE for cell in replicas)
    pairs, right = order(cells)
    print(f"# replicas: {close} of {len(replicas)} cells within {CLOSE:.0%} (goal: {CLOSE_SHARE:.0%} of them)")
    print(f"# order: {right} of {pairs} pairs foretold more than {APART:.0%} apart (goal: {ORDERED_SHARE:.0%} of them)")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradwire")
    parser.add_argument("--done", required=True, type=pathlib.Path)
    parser.add_argument("--profile", type=pathlib.Path, default=pathlib.Path("profile.json"))
    parser.add_argument("--rates", default="100mbit,1gbit,10gbit")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--meshes", default=",".join(MESHES))
    parser.add_argument("--seconds", type=float, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    words = parser.parse_args()
    gradwire = str(pathlib.Path(words.gradwire).resolve())
    profile = words.profile.resolve()
    if not profile.is_file():
        print(f"testbed: measuring one core: {profile}", file=sys.stderr, flush=True)
        call([gradwire, "profile", str(profile), *PROFILE], 600)
    known = {}
    if words.done.is_file():
        for line in words.done.read_text().splitlines():
            row = json.loads(line)
            known[row["model"], row["rate"], row["mesh"]] = row
    models, rates, meshes = words.models.split(","), words.rates.split(","), words.meshes.split(",")
    total, cells, start, fresh = len(models) * len(rates) * len(meshes), [], time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        for model in models:
            for rate in rates:
                foretold = foretell(gradwire, profile, model, rate, meshes, folder)
                for mesh in meshes:
                    if mesh not in foretold:
                        print(f"# {model}, {rate}, {mesh}: not foretold", flush=True)
                        continue
                    row = known.get((model, rate, mesh))
                    if not row:
                        measured, steps = measure(gradwire, model, rate, mesh, words.seconds, words.repeats, folder)
                        row = {"model": model, "rate": rate, "mesh": mesh, "measured": measured, "steps": steps}
                        with words.done.open("a") as out:
                            out.write(json.dumps(row) + "\n")
                        fresh += 1
                        left = (total - len(cells) - 1) * (time.monotonic() - start) / fresh
                        print(f"testbed: {len(cells) + 1} of {total}  {model} {rate} {mesh}  {row['measured'] * 1e3:.3f} ms "
                              f"(foretold {foretold[mesh] * 1e3:.3f})  ETA {int(left // 60)}:{int(left % 60):02}", file=sys.stderr, flush=True)
                    cells.append({**row, "foretold": foretold[mesh]})
    print_table(cells)


if __name__ == "__main__":
    main()
