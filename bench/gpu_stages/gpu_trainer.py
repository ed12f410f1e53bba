"""Training on a device beside the host, for bench/gpu: the first losses of both, and what a step takes on the device."""
import json
import pathlib
import statistics
import tempfile

from timed_rows import say

PROGRAM = "apps/gradwire"  # in the build folder, and its target
RANKS = 2  # threads, which share a GPU where there is but one
STEPS = 30
UNTIMED = 5
COMPARED = 3  # steps of the host
APART = 1e-3  # of a loss: products are added up in other orders
RUN_SECONDS = 60
LEAST_SECONDS = 5
MODELS = {
    "mlp": "--model mlp --hidden 2048,2048 --data digits",
    "cnn": "--model cnn --data digits",
    "resnet8": "--model resnet8 --data digits",
    "gpt": "--model gpt --data grammar --width 128 --layers 4 --batch 16",
}
COMPRESSORS = ("none", "qsgd:bits=4,ef=ef14", "topk:ratio=0.01,ef=ef14", "powersgd:rank=4,ef=ef14")


def run_trainer(run):
    run.stage = "the trainer"
    row = {"bench": "trainer"}
    if run.no_device:
        run.rows.add_left_out(run.stage, row, f"there is no GPU: {run.no_device}")
        return
    if not run.make(PROGRAM):
        return
    for model in MODELS:
        for compressor in COMPRESSORS:
            run.attempt(f"training {model} with {compressor}", measure, run, model, compressor)


def measure(run, model, compressor):
    what = run.stage = f"training {model} with {compressor}"
    row = {"bench": "trainer", "model": model, "compressor": compressor, "ranks": RANKS}
    if run.earlier.has(row):
        return
    limit = min(RUN_SECONDS, run.clock.left())
    if limit < LEAST_SECONDS:
        run.rows.add_left_out(what, row, run.time_is_over())
        return
    say(what)
    steps = {}
    for device, count in (("cuda", STEPS), ("cpu", COMPARED)):
        steps[device], outcome = train(run, device, model, compressor, count, min(limit, run.clock.left()))
        if outcome.timed_out and limit < RUN_SECONDS:
            run.rows.add_left_out(what, row, f"{outcome.why()}, of --seconds {run.clock.seconds:g}")
            return
        if outcome.status != 0 or len(steps[device]) != count:
            run.rows.add_failed(what, row, f"on {device}: {outcome.why()} ({len(steps[device])} of {count} steps)")
            return
    row.update({"steps": STEPS, "seconds": statistics.median(step["step_seconds"] for step in steps["cuda"][UNTIMED:]),
                "host_seconds": statistics.median(step["step_seconds"] for step in steps["cpu"]),
                "losses": [step["loss"] for step in steps["cuda"][:COMPARED]]})
    row["losses_apart"] = max(abs(seen["loss"] - wanted["loss"]) / abs(wanted["loss"]) for seen, wanted in zip(steps["cuda"], steps["cpu"]))
    if row["losses_apart"] <= APART:
        run.rows.add(row)
    else:
        host = [step["loss"] for step in steps["cpu"]]
        run.rows.add_failed(what, row, f"losses differ from the host's {host} by up to {row['losses_apart']:.3g} (expected at most {APART:g})")


def train(run, device, model, compressor, steps, limit):
    """(the metrics of each step, the Outcome)"""
    with tempfile.TemporaryDirectory() as folder:
        metrics = pathlib.Path(folder) / "metrics.jsonl"
        command = [str(run.build.folder / PROGRAM), "train", *MODELS[model].split(), "--compressor", compressor, "--inproc", str(RANKS),
                   "--device", device, "--steps", str(steps), "--check-every", "5", "--quiet", "--metrics", str(metrics)]
        outcome = run.commands.run(command, limit, env=run.build.env)
        lines = metrics.read_text().splitlines() if metrics.exists() else []
        return [row for row in map(json.loads, lines) if "step" in row and "total" not in row], outcome
