#!/usr/bin/env python3
"""Steps that `gradwire plan --cluster` foretells beside measured ones: two hosts of one core each, which are namespaces of this
machine (bench/lab).

    bench/placement/testbed.py GRADWIRE --done FILE [--profile FILE] [--rates 100mbit,1gbit,10gbit] [--models mlp,cnn,gpt]
                               [--meshes none,qsgd,topk,powersgd,tp,pp] [--seconds 3] [--repeats 3] [--tries 12] [--drift 0.06] [--table]
                               [--quick]

A cell is a model, a rate and a mesh: two replicas with one of four compressors, two ranks that share tensors, or two stages.
`gradwire profile` measures beforehand (--profile: a file that is there is taken): links and exchanges between two ranks, each on
a core of its own; layers, products, optimizers and compressors on one core while the other measures the same, since the cells
have both at work. Nothing is fitted to the cells, and a link's bandwidth is its rate, of which 1448 bytes in 1538 are payload
(Ethernet, IP and TCP frame the rest). A cell is trained --repeats times, for --seconds each, rank 0 on the first core and rank 1
on the second; the median of the runs' median steps counts.

The machine's speed drifts, by half and more where others share its processors. Beside the profile a rank alone trains each model on
each core, both at once and without exchanges, in micro-batches of each mesh's; the profile is taken again unless this was as fast
after it as before it. A rank alone trains just before and just after each run of a cell, too: a run counts where both were within
--drift (6 %) of what they were beside the profile, and is repeated where not, --tries times at most. A cell of which too few runs
count has all of them, and a mark.

What is measured is appended to FILE, and not measured again while it is there, but where too few runs counted: a run that was stopped
goes on. --table measures nothing: it foretells what FILE has anew. Ends with the table, and with the goals: of cells of replicas 90 %
within 15 %; of pairs of one model and rate that are foretold more than 20 % apart 95 % in that order. Wants a machine of its own.
Exits with 77 where there is no lab.
"""
import argparse
import itertools
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

LAB = pathlib.Path(__file__).resolve().parents[1] / "lab"
SKIPPED = 77
PAYLOAD = 1448 / 1538
WARM_UP = 5  # steps
CLOSE, CLOSE_SHARE = 0.15, 0.9
APART, ORDERED_SHARE = 0.2, 0.95
STEADY, PROFILES = 0.03, 6

# Of each model: the flags that describe it to plan, those that describe it to train, and samples of a step, of which one rank takes
# 6 to 20 ms. The data sets come with gradwire; the text of the grammar has 25 characters.
MODELS = {
    "mlp": (["--model", "mlp", "--image", "1x8x8", "--hidden", "512,256"], ["--model", "mlp", "--data", "digits", "--hidden", "512,256"], 512),
    "cnn": (["--model", "cnn", "--image", "1x8x8"], ["--model", "cnn", "--data", "digits"], 512),
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
PROFILE = ["--hidden", "512,256", "--layers", "2", "--width", "64", "--heads", "4", "--context", "64", "--rows", "4,8,16,128,256,512",
           "--elements", "1024,4096,16384,65536,262144"]
QUICK = ["--quick"]
# Of a profile: what one core does by itself.
OF_A_CORE = ["layers", "products", "optimizers", "codecs", "sums"]


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


def both_cores(words, seconds, folder):
    """Starts `words` on each of two cores at once, with {} replaced by the core's number; ends when both have."""
    running = []
    for core in range(2):
        command = ["taskset", "-c", str(core), *[str(word).replace("{}", str(core)) for word in words]]
        running.append(subprocess.Popen(command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True))
    try:
        for one in running:
            _, told = one.communicate(timeout=seconds)
            if one.returncode:
                raise SystemExit(f"{' '.join(one.args)}: {told.strip()[-500:]}")
    finally:
        for one in running:
            if one.poll() is None:
                one.kill()


def kinds_alone(models, meshes):
    """Steps of one rank alone that cells are compared with: of a model, samples and micro-batches."""
    return sorted({(model, *part_of(model, mesh)) for model in models for mesh in meshes})


def trained_alone(gradwire, kinds, seconds, folder):
    found = {}
    for kind in kinds:
        step = train_alone(gradwire, *kind, 20, folder)
        found[kind] = train_alone(gradwire, *kind, steps_in(seconds, step), folder)
    return found


def take_profile(gradwire, path, flags, kinds, profiles, folder):
    """Links and exchanges of a profile taken alone; what a core does by itself while the other does the same. Beside it, in a file of
    its own, what a rank alone takes."""
    for _ in range(profiles):
        before = trained_alone(gradwire, kinds, 0.4, folder)
        call([gradwire, "profile", str(path) + ".part", "--again", *flags], 600)
        both_cores([gradwire, "profile", "core{}.json", "--again", "--no-links", *flags], 600, folder)
        after = trained_alone(gradwire, kinds, 0.4, folder)
        drift = statistics.median(after[kind] / before[kind] for kind in kinds)
        if abs(drift - 1) <= STEADY:
            break
        print(f"testbed: behind the profile a rank alone took {drift:.2f} of what it took before: another one", file=sys.stderr, flush=True)
    whole = json.loads(pathlib.Path(str(path) + ".part").read_text())
    beside = json.loads((pathlib.Path(folder) / "core0.json").read_text())
    whole.update({key: beside[key] for key in OF_A_CORE})
    os.remove(str(path) + ".part")
    alone_file(path).write_text(json.dumps([[*kind, min(before[kind], after[kind])] for kind in kinds]))
    path.write_text(json.dumps(whole))


def alone_file(path):
    return path.with_name(path.name + ".alone")


def read_alone(path):
    return {(model, batch, accumulate): seconds for model, batch, accumulate, seconds in json.loads(alone_file(path).read_text())}


def planned(gradwire, cluster, model, batch, compressors, folder):
    """The search's rows of meshes that keep whole replicas and compute nothing again."""
    path = pathlib.Path(folder) / "cluster.toml"
    path.write_text(cluster)
    text = subprocess.run([gradwire, "plan", "--cluster", str(path), "--batch", str(batch), *MODELS[model][0], *OPTIMIZER,
                           "--precision", "fp32", "--compressors", compressors, "--zero", "0", "--recompute", "none", "--rows", "1000", "--json"],
                          capture_output=True, text=True, timeout=120)
    if text.returncode:
        raise SystemExit(f"plan of {model}: {text.stderr.strip()[-500:]}")
    return [row for row in map(json.loads, text.stdout.splitlines()) if row["kind"] == "mesh"]


def foretell(gradwire, profile, model, rate, meshes, folder):
    """Seconds of a step of each mesh, by the search's own rows."""
    compressors = ";".join(dict.fromkeys(MESHES[mesh][2] for mesh in meshes))
    rows = planned(gradwire, cluster_text(profile, rate), model, MODELS[model][2], compressors, folder)
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


def part_of(model, mesh):
    """Samples of a step of one rank alone, and in how many micro-batches, as long as those of a rank of the mesh."""
    parallel, accumulate, _ = MESHES[mesh]
    return MODELS[model][2] // (2 if parallel.startswith("dp=") else 1), accumulate


def median_step(*paths):
    """Seconds: of a step, once memory and connections are there; of several runs the longest of each. Every tenth also compares
    parameters."""
    runs = [[json.loads(line) for line in pathlib.Path(path).read_text().splitlines()] for path in paths]
    steps = [[row["step_seconds"] for row in run if "step" in row][WARM_UP:] for run in runs]
    return statistics.median(map(max, zip(*steps)))


def train_words(gradwire, model, batch, accumulate, steps, metrics):
    return [gradwire, "train", *MODELS[model][1], "--batch", str(batch), "--accumulate", str(accumulate), "--steps", str(steps),
            "--eval-every", "0", "--metrics", metrics, "--quiet", *OPTIMIZER]


def train(gradwire, model, rate, mesh, steps, folder):
    parallel, accumulate, compressor = MESHES[mesh]
    if model == "cnn" and parallel.startswith("tp="):
        parallel += "/hybrid"
    words = [*train_words(gradwire, model, MODELS[model][2], accumulate, steps, "cell.jsonl"), "--parallel", parallel,
             "--compressor", compressor, "--transport", "tcp"]
    inner = 'exec taskset -c "$GRADWIRE_RANK" "$@"'
    call([str(LAB), "2", rate, "--timeout", "110", "--", "sh", "-c", inner, "sh", *words], 120, cwd=folder)
    return median_step(pathlib.Path(folder) / "cell.jsonl")


def train_alone(gradwire, model, batch, accumulate, steps, folder):
    """Seconds of a step of one rank on each core, both at once: of the slower one."""
    both_cores(train_words(gradwire, model, batch, accumulate, steps, "alone{}.jsonl"), 120, folder)
    return median_step(*(pathlib.Path(folder) / f"alone{core}.jsonl" for core in range(2)))


def steps_in(seconds, step):
    return int(min(max(seconds / step, 20), 5000))


def measure(gradwire, model, rate, mesh, beside_profile, words, folder):
    """A cell, with a rank alone before and behind each of its runs."""
    kind = (model, *part_of(model, mesh))
    alone_steps = steps_in(words.seconds / 4, beside_profile[kind])
    steps = steps_in(words.seconds, train(gradwire, model, rate, mesh, 20, folder))

    def slowness():
        return train_alone(gradwire, *kind, alone_steps, folder) / beside_profile[kind]

    runs, counted, before = [], [], slowness()
    while len(counted) < words.repeats and len(runs) < words.tries:
        took = train(gradwire, model, rate, mesh, steps, folder)
        after = slowness()
        runs.append([took, before, after])
        if max(abs(before - 1), abs(after - 1)) <= words.drift:
            counted.append(took)
        before = after
    enough = len(counted) == words.repeats
    measured = statistics.median(counted if enough else [run[0] for run in runs])
    return {"model": model, "rate": rate, "mesh": mesh, "measured": measured, "steps": steps, "enough": enough, "runs": runs}


def order(cells):
    """Pairs of one model and rate that are foretold apart, and how many of them are measured in that order."""
    pairs = right = 0
    for one, other in itertools.combinations(cells, 2):
        both = one["foretold"], other["foretold"]
        if (one["model"], one["rate"]) == (other["model"], other["rate"]) and max(both) > (1 + APART) * min(both):
            pairs += 1
            right += (one["foretold"] < other["foretold"]) == (one["measured"] < other["measured"])
    return pairs, right


def print_table(cells):
    print(f"{'model':>6} {'rate':>8} {'mesh':>9} {'foretold ms':>12} {'measured ms':>12} {'measured/foretold':>18}  {'runs':>5}")
    for cell in cells:
        ratio = cell["measured"] / cell["foretold"]
        print(f"{cell['model']:>6} {cell['rate']:>8} {cell['mesh']:>9} {cell['foretold'] * 1e3:>12.3f} {cell['measured'] * 1e3:>12.3f} "
              f"{ratio:>18.3f}{'*' if abs(ratio - 1) > CLOSE else ' '} {len(cell['runs']):>5}{'' if cell['enough'] else '  unsteady'}")
    print("# runs: until enough counted; unsteady: too few did, and the median is of all")
    replicas = [cell for cell in cells if MESHES[cell["mesh"]][0].startswith("dp=")]
    close = sum(abs(cell["measured"] / cell["foretold"] - 1) <= CLOSE for cell in replicas)
    pairs, right = order(cells)
    print(f"# {close} of {len(replicas)} cells of replicas within {CLOSE:.0%} (goal: {CLOSE_SHARE:.0%} of them); {right} of {pairs} pairs "
          f"foretold more than {APART:.0%} apart in order (goal: {ORDERED_SHARE:.0%} of them)")


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
    parser.add_argument("--tries", type=int, default=12)
    parser.add_argument("--drift", type=float, default=0.06)
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--quick", action="store_true", help="a quick profile, to try the command")
    words = parser.parse_args()
    gradwire = str(pathlib.Path(words.gradwire).resolve())
    profile = words.profile.resolve()
    known = {}
    if words.done.is_file():
        for line in words.done.read_text().splitlines():
            row = json.loads(line)
            known[row["model"], row["rate"], row["mesh"]] = row
    kinds = kinds_alone(words.models.split(","), words.meshes.split(","))
    models, rates, meshes = words.models.split(","), words.rates.split(","), words.meshes.split(",")
    total, cells, start, fresh = len(models) * len(rates) * len(meshes), [], time.monotonic(), 0
    with tempfile.TemporaryDirectory() as folder:
        if not profile.is_file():
            print(f"testbed: measuring the machine: {profile}", file=sys.stderr, flush=True)
            take_profile(gradwire, profile, QUICK if words.quick else PROFILE, kinds, 1 if words.quick else PROFILES, folder)
        beside_profile = read_alone(profile)
        if missing := [kind for kind in kinds if kind not in beside_profile]:
            raise SystemExit(f"{alone_file(profile)} has no steps of {missing[0]} alone (expected a profile that was taken for these cells)")
        for model in models:
            for rate in rates:
                foretold = foretell(gradwire, profile, model, rate, meshes, folder)
                for mesh in meshes:
                    if mesh not in foretold:
                        print(f"# {model}, {rate}, {mesh}: not foretold", flush=True)
                        continue
                    row = known.get((model, rate, mesh))
                    if not row and words.table:
                        continue
                    fresh_one = not row or (not row["enough"] and not words.table)
                    if fresh_one:
                        row = measure(gradwire, model, rate, mesh, beside_profile, words, folder)
                        with words.done.open("a") as out:
                            out.write(json.dumps(row) + "\n")
                    cells.append({**row, "foretold": foretold[mesh]})
                    if fresh_one:
                        fresh += 1
                        left = (total - len(cells)) * (time.monotonic() - start) / fresh
                        print(f"testbed: {len(cells)} of {total}  {model} {rate} {mesh}  {row['measured'] * 1e3:.3f} ms "
                              f"(foretold {foretold[mesh] * 1e3:.3f}), {len(row['runs'])} runs  "
                              f"ETA {int(left // 60)}:{int(left % 60):02}", file=sys.stderr, flush=True)
    print_table(cells)


if __name__ == "__main__":
    main()
