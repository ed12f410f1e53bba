#!/usr/bin/env python3
"""All-reduce of fp32 sums, gradwire beside Open MPI at its best settings, in one run.

Round-robin: every round runs every contender once, so that all see the same noise. Printed are the medians
over rounds of each run's median, and how gradwire's compares with the best of the peers.

    bench/peers/pair_allreduce.py [--build build] [--ranks 2] [--rounds 3] [--sizes 1M,16M,64M] [--seconds 1]
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

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}

# Without these two, pml/ucx refuses machines that have no Mellanox card.
ANY_UCX = ["--mca", "opal_common_ucx_tls", "any", "--mca", "opal_common_ucx_devices", "any"]


def mpi_settings():
    """name -> (mpirun arguments, environment)"""
    settings = {}
    for yields in (0, 1):
        idle = ["--mca", "mpi_yield_when_idle", str(yields)]
        name = "yield" if yields else "spin"
        settings[f"ob1-vader-{name}"] = (["--mca", "pml", "ob1", "--mca", "btl", "vader,self"] + idle, {})
        ucx = ["--mca", "pml", "ucx"] + ANY_UCX + idle
        settings[f"ucx-posix-{name}"] = (ucx, {"UCX_TLS": "posix,self"})
        settings[f"ucx-posix-cma-{name}"] = (ucx, {"UCX_TLS": "posix,cma,self"})
    return settings


def bytes_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def rows_of(command, environment):
    run = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=600)
    if run.returncode != 0:
        sys.exit(f"pair_allreduce: {' '.join(command)} exited {run.returncode}:\n{run.stdout}{run.stderr}")
    return [json.loads(line) for line in run.stdout.splitlines() if line.startswith("{")]


def run_mpi(options, name, arguments, environment):
    program = options.build / "bench/peers/mpi_allreduce"
    command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(options.ranks), *arguments, str(program),
               name, str(options.seconds), *[str(size) for size in options.sizes]]
    return rows_of(command, environment)


def run_gradwire(options):
    rows = []
    program = options.build / "apps/gradwire"
    for size in options.sizes:
        with tempfile.TemporaryDirectory() as folder:
            out = pathlib.Path(folder) / "rows.jsonl"
            rows_of([str(program), "bench", "all_reduce", "--ranks", str(options.ranks), "--min", str(size), "--max",
                     str(size), "--seconds", str(options.seconds), "--json", str(out), *options.gradwire.split()], {})
            rows += [json.loads(line) for line in out.read_text().splitlines()]
    return rows


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="at least 3 for a verdict")
    parser.add_argument("--sizes", type=lambda text: [bytes_of(size) for size in text.split(",")], default="1M,16M,64M")
    parser.add_argument("--seconds", type=float, default=1, help="timed at each size in each round")
    parser.add_argument("--gradwire", default="", help="more flags for gradwire bench all_reduce")
    parser.add_argument("--json", type=pathlib.Path, help="file for the medians, one line a size")
    return parser.parse_args()


def main():
    options = parse()
    if shutil.which("mpirun") is None:
        sys.exit("pair_allreduce: no mpirun (Debian: openmpi-bin libopenmpi-dev)")
    contenders = {"gradwire": lambda: run_gradwire(options)}
    for name, (arguments, environment) in mpi_settings().items():
        contenders[name] = lambda n=name, a=arguments, e=environment: run_mpi(options, n, a, e)
    times = {}
    for number in range(options.rounds):
        for name, run in contenders.items():
            for row in run():
                if row["wrong"] != 0:
                    sys.exit(f"pair_allreduce: {name} has {row['wrong']} wrong elements at {row['bytes']} bytes")
                times.setdefault((name, row["bytes"]), []).append(row["time_us_p50"])
        print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
    lines = []
    print(f"{'bytes':>10} " + " ".join(f"{name:>20}" for name in contenders) + "   best peer / gradwire")
    for size in options.sizes:
        medians = {name: statistics.median(times[name, size]) for name in contenders}
        best = min((name for name in contenders if name != "gradwire"), key=medians.get)
        ratio = medians[best] / medians["gradwire"]
        print(f"{size:>10} " + " ".join(f"{medians[name]:>17.1f} us" for name in contenders) + f"   {ratio:.2f} ({best})")
        lines.append({"bytes": size, "ranks": options.ranks, "rounds": options.rounds, "median_us": medians,
                      "best_peer": best, "ratio": ratio})
    if options.json:
        options.json.write_text("".join(json.dumps(line) + "\n" for line in lines))


if __name__ == "__main__":
    main()
