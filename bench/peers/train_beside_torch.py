#!/usr/bin/env python3
"""A step of training and the time to a loss: gradwire train with every method beside PyTorch's DDP over Gloo, in one run.

    bench/peers/train_beside_torch.py [--labs 2x1gbit,4x1gbit,2x100mbit,4x100mbit] [--rounds 3] [--python VENV/bin/python]
                                      [--data-dir DIR] [--ways none,int4-sra,...] [--json FILE]

The MLP 784-2048-2048-2048-10 (10.02 million parameters), 32 samples a rank, plain SGD, on hosts of bench/lab (needs root). Both sides
start from the same parameters and see the same samples in the same order. Each round runs every contender once, in turn. Of a run the
first steps (2, torch 3) are not timed; printed are the best of the rounds' medians of rank 0's steps and (in brackets) the median of them.
"compute" is a rank alone on each host at the same time, nothing sent.

Time to a loss: the first step s after which the mean of the last 10 global batches' losses is at most --target, times a step's time.
s comes from a run of --loss-steps steps over links that are not shaped, once per number of hosts: the losses do not depend on the
link, and those of the timed runs are checked against it.

torch: of --python, else .cache/torch/bin/python, else python3; where it has none, or no PyTorch, its rows are missing, and a line says so.
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys
import tempfile

import contenders
import image_set
import train_ways

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "bench"))
from lab_network import Lab, LabError, bits_of  # noqa: E402

HIDDEN = (2048, 2048, 2048)
WIDTHS = (image_set.SIDE**2, *HIDDEN, image_set.CLASSES)
ELEMENTS = sum(inputs * outputs + outputs for inputs, outputs in zip(WIDTHS, WIDTHS[1:]))
PER_RANK = 32
WINDOW = 10  # steps whose losses are averaged
WARM = {False: 2, True: 3}  # steps before the timed ones; torch's PowerSGD begins with step 2
COMPUTE_GUESS = 0.05  # seconds of a step on a processor of its own


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(), default=pathlib.Path("build").resolve())
    parser.add_argument("--labs", type=lambda text: text.split(","), default="2x1gbit,4x1gbit,2x100mbit,4x100mbit")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=12, help="timed in a run, at most")
    parser.add_argument("--seconds", type=float, default=6, help="of a run, about; at least 3 steps are timed")
    parser.add_argument("--loss-steps", type=int, default=60, help="0: no times to a loss")
    parser.add_argument("--target", type=float, default=1.0, help="loss, in nats")
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--python", type=pathlib.Path, help="an interpreter with torch")
    parser.add_argument("--data-dir", type=pathlib.Path, help="of Fashion-MNIST; else GRADWIRE_DATA, else made images")
    parser.add_argument("--ways", type=lambda text: text.split(","), help="names, of those that a run prints; else all")
    parser.add_argument("--backend", action="store_true", help="also gradwire under PyTorch (compiles gradwire.torch)")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures, a line each")
    options = parser.parse_args()
    known = [way.name for way in train_ways.ALL]
    for name in options.ways or []:
        if name not in known:
            parser.error(f"--ways: '{name}' (one of {', '.join(known)} wanted)")
    if options.python and not options.python.exists():
        parser.error(f"--python: no {options.python} (an interpreter wanted)")
    return options


def torch_python(options):
    """(interpreter with torch or None, why not)"""
    cached = ROOT / ".cache/torch/bin/python"
    python = options.python or (cached if cached.exists() else shutil.which("python3"))
    done = subprocess.run([str(python), "-c", "import torch; print(torch.__version__)"], capture_output=True, text=True, timeout=120)
    if done.returncode == 0:
        return str(python), f"torch {done.stdout.strip()} ({python})"
    return None, f"without PyTorch: {python} has no module torch (--python, or a virtual environment .cache/torch wanted)"


class Bench:
    """What all cells share: the data, the ways, and how a run of each is started."""

    def __init__(self, options, folder, python):
        self.options, self.folder, self.python = options, folder, python
        wanted = options.ways or [way.name for way in train_ways.ALL]
        self.gradwire_ways = [way for way in train_ways.GRADWIRE if way.name in wanted]
        self.torch_ways = [way for way in train_ways.TORCH if way.name in wanted] if python else []
        self.backend_ways = [way for way in train_ways.BACKEND if way.name in wanted] if python and options.backend else []

    def words(self, ranks, steps, spec, lr):
        return [str(self.options.build / "apps/gradwire"), "train", "--model", "mlp", "--hidden", ",".join(map(str, HIDDEN)), "--data",
                "fashion-mnist", "--data-dir", str(self.folder), "--batch", str(PER_RANK * ranks), "--steps", str(steps), "--lr",
                str(self.options.lr * lr), "--momentum", "0", "--shuffle", "none", "--check-every", "0", "--compressor", spec,
                "--deadline", "120", "--quiet"]

    def save_start(self):
        subprocess.run([*self.words(1, 0, "none", 1), "--inproc", "1", "--save-params", str(self.folder / "start.safetensors")],
                       check=True, timeout=120)

    def gradwire(self, place, way, steps):
        out = self.folder / "rows.jsonl"
        words = self.words(place.ranks, steps, way.spec, way.lr)
        contenders.finish(place.start_gradwire(["env", "GRADWIRE_TRANSPORT=tcp", *words, "--metrics", str(out)]), way.name)
        rows = contenders.rows_of(out.read_text())
        return {"name": way.name, "seconds": [row["step_seconds"] for row in rows[:-1]], "losses": [row["loss"] for row in rows[:-1]],
                "bytes": rows[-2]["bytes_sent"], "exposed": statistics.median(row["exposed_seconds"] for row in rows[:-1])}

    def compute(self, place, steps):
        outs = [self.folder / f"alone-{host}.jsonl" for host in range(place.ranks)]
        contenders.finish([place.start(host, [*self.words(1, steps, "none", 1), "--inproc", "1", "--metrics", str(out)], {})
                           for host, out in enumerate(outs)], "compute")
        rows = contenders.rows_of(outs[0].read_text())
        return {"name": train_ways.COMPUTE, "seconds": [row["step_seconds"] for row in rows[:-1]]}

    def torch(self, place, backend, ways):
        """`ways`: of torch_train.py, with their steps."""
        job = self.folder / "job.json"
        job.write_text(json.dumps({"batch": PER_RANK * place.ranks, "widths": WIDTHS, "backend": backend, "ways": ways}))
        place.port += 2
        base = {"GLOO_SOCKET_IFNAME": place.interface, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT / "python"),
                "GRADWIRE_LIBRARY": str(self.options.build / "adapters/c/libgradwire.so"), "GRADWIRE_TRANSPORT": "tcp", "GRADWIRE_LOG": "error"}
        command = [self.python, "-W", "ignore", str(ROOT / "bench/peers/torch_train.py"), str(self.folder), str(job)]
        started = [place.start(rank, command, {**place.lab.rank_environment(rank, place.port, "00"), **base})
                   for rank in range(place.ranks)]
        return [row for row in contenders.rows_of(contenders.finish(started, f"torch over {backend}")) if "name" in row]

    def torch_job(self, ways, steps_of, alone):
        job = [{"name": way.name, "hook": way.spec, "rank": 4, "bucket_mb": way.bucket_mb, "lr": self.options.lr * way.lr,
                "steps": steps_of(way)} for way in ways]
        if alone:
            job.insert(0, {"name": train_ways.TORCH_COMPUTE, "hook": "compute", "lr": self.options.lr, "steps": alone})
        return job

    def round(self, place, steps_of, alone):
        """Every contender once; `alone`: steps of the computing alone, 0 for none."""
        if alone:
            yield self.compute(place, alone)
        for way in self.gradwire_ways:
            yield self.gradwire(place, way, steps_of(way))
        for backend, ways in (("gloo", self.torch_ways), ("gradwire", self.backend_ways)):
            if ways:
                yield from self.torch(place, backend, self.torch_job(ways, steps_of, alone if backend == "gloo" else 0))


def steps_for(options, link, ranks, way):
    """A run's steps: as many as its time allows by what its bytes take."""
    wire = 2 * (ranks - 1) / ranks * ELEMENTS * way.bits / (0.95 * bits_of(link)) if bits_of(link) else 0
    timed = int(options.seconds / (wire + COMPUTE_GUESS * ranks / 2))
    return WARM[way.torch] + max(3, min(options.steps, timed))


def first_below(losses, target):
    """Steps until the mean of the last WINDOW losses is at most `target`; None when it never is."""
    for step in range(WINDOW, len(losses) + 1):
        window = losses[step - WINDOW:step]
        if all(loss is not None for loss in window) and statistics.fmean(window) <= target:
            return step
    return None


def loss_curves(bench, hosts):
    """name -> losses, over links that are not shaped."""
    with Lab(hosts, "none") as lab:
        place = contenders.LabPlace(lab, bench.options.build)
        return {row["name"]: row["losses"] for row in bench.round(place, lambda way: bench.options.loss_steps, 0)}


def measure(bench, hosts, link, curves):
    """name -> its runs; a line for a run whose losses are not those of the curve."""
    runs, options = {}, bench.options
    with Lab(hosts, link) as lab:
        place = contenders.LabPlace(lab, options.build)
        for number in range(options.rounds):
            for row in bench.round(place, lambda way: steps_for(options, link, hosts, way), options.steps):
                runs.setdefault(row["name"], []).append(row)
                losses, curve = row.get("losses", []), curves.get(row["name"], [])
                if curve and losses != curve[:len(losses)]:
                    print(f"# {row['name']}: this run's losses are not those of the run over unshaped links", file=sys.stderr)
            print(f"{hosts}x{link}: round {number + 1} of {options.rounds} done", file=sys.stderr, flush=True)
    return runs


def figures(options, hosts, link, runs, curves):
    lines = []
    for name, rows in runs.items():
        medians = [statistics.median(row["seconds"][WARM[name.startswith("torch")]:]) for row in rows]
        line = {"hosts": hosts, "link": link, "name": name, "step_s": min(medians), "median_s": statistics.median(medians),
                "steps_timed": len(rows[0]["seconds"]) - WARM[name.startswith("torch")], "rounds": len(rows)}
        line |= {key: rows[-1][key] for key in ("bytes", "exposed") if key in rows[-1]}
        if name in curves:
            line["target_loss"], line["loss_after"] = options.target, curves[name][-1]
            line["steps_to_loss"] = first_below(curves[name], options.target)
            line["seconds_to_loss"] = line["steps_to_loss"] and line["steps_to_loss"] * line["step_s"]
        lines.append(line)
    return lines


def show(options, hosts, link, lines):
    seconds = {line["name"]: line["step_s"] for line in lines}
    dense = min((seconds[name] for name in train_ways.DENSE if name in seconds), default=None)
    print(f"\n{hosts} hosts, {link}, {lines[0]['rounds']} round(s)")
    print(f"{'way':>26} {'step ms':>18} {'above compute':>14} {'KB sent':>9} {'x dense DDP':>12} {'steps to loss':>14} {'s to loss':>10}")
    for line in lines:
        alone = seconds.get(train_ways.TORCH_COMPUTE if line["name"].startswith("torch") else train_ways.COMPUTE, float("nan"))
        sent = f"{line['bytes'] / 1e3:.0f}" if "bytes" in line else ""
        ratio = f"{dense / line['step_s']:.2f}" if dense else ""
        count = line.get("steps_to_loss")
        steps, time = ("", "") if "target_loss" not in line else (count or f"> {options.loss_steps}",
                                                                  f"{line['seconds_to_loss']:.2f}" if count else "")
        print(f"{line['name']:>26} {line['step_s'] * 1e3:>8.1f} ({line['median_s'] * 1e3:>7.1f}) {(line['step_s'] - alone) * 1e3:>14.1f} "
              f"{sent:>9} {ratio:>12} {steps:>14} {time:>10}")
    for text in train_ways.verdicts(link, hosts, seconds):
        print(text)
    sys.stdout.flush()


def run(options, folder):
    data = options.data_dir or (pathlib.Path(os.environ["GRADWIRE_DATA"]) if os.environ.get("GRADWIRE_DATA") else None)
    python, peers = torch_python(options)
    print(f"# MLP {'-'.join(map(str, WIDTHS))}, {ELEMENTS} parameters, {PER_RANK} samples a rank, SGD, rate {options.lr:g}; "
          f"{image_set.make_set(folder, data, 12800)}\n# {peers}\n# loss: mean of {WINDOW} global batches' before their updates, at most "
          f"{options.target:g}")
    bench = Bench(options, folder, python)
    bench.save_start()
    all_lines, curves = [], {}
    for cell in options.labs:
        hosts, link = int(cell.split("x")[0]), cell.split("x")[1]
        if options.loss_steps and hosts not in curves:
            curves[hosts] = loss_curves(bench, hosts)
        lines = figures(options, hosts, link, measure(bench, hosts, link, curves.get(hosts, {})), curves.get(hosts, {}))
        show(options, hosts, link, lines)
        all_lines += lines
        if options.json:
            options.json.write_text("".join(json.dumps(line) + "\n" for line in all_lines))


def main():
    options = parse()
    try:
        with tempfile.TemporaryDirectory() as folder:
            run(options, pathlib.Path(folder))
    except (LabError, contenders.Failed, subprocess.SubprocessError) as error:
        sys.exit(f"train_beside_torch: {error}")


if __name__ == "__main__":
    main()
