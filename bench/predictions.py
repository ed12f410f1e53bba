#!/usr/bin/env python3
"""The simulator's times beside measured ones, on hosts that are namespaces of this machine (bench/lab).

    bench/predictions.py GRADWIRE [--rates 100mbit,1gbit] [--ranks 2,4] [--algorithms ring,recursive_doubling]
                         [--sizes 4K,64K,256K,1M,4M] [--seconds 0.4]

Each size is timed by `gradwire bench` and foretold by `gradwire sim` twice: with the links as the ranks measure them
(gradwire bench --measure), and with the same but for beta, which is then the link's rate, of which 1448 bytes in 1538 are
payload (Ethernet, IP and TCP frame the rest). The goal: within 10 % from 256 KB up, within 30 % below. From the ring's
times alpha and beta are fitted back, with the fit's R^2. Prints a table; exits with 77 where there is no lab.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

LAB = pathlib.Path(__file__).resolve().parent / "lab"
LINKS = re.compile(r"alpha (\S+) us, beta (\S+) ns/B, gamma (\S+) ns/B, gap ([^;]+);")
LARGE = 256 << 10


def bytes_of(text):
    return int(text.rstrip("KM")) << {"K": 10, "M": 20}.get(text[-1], 0)


def measure(gradwire, ranks, rate, algorithm, size, seconds, folder, links):
    """Microseconds of the median and of the best, and the links."""
    rows = pathlib.Path(folder) / "rows.jsonl"
    rows.unlink(missing_ok=True)
    flags = [f"--{name}={value!r}" for name, value in links.items()] if links else ["--measure"]
    done = subprocess.run([str(LAB), str(ranks), rate, "--timeout", "100", "--", gradwire, "bench", "all_reduce", "--transport", "tcp", "--no-check",
                           "--algorithm", algorithm, "--min", str(size), "--max", str(size), "--seconds", str(seconds), "--explain", *flags,
                           "--json", str(rows)], capture_output=True, text=True, timeout=120)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        sys.exit(done.returncode)
    row = json.loads(rows.read_text().splitlines()[-1])
    alpha, beta, gamma, gap = map(float, LINKS.search(done.stdout).groups())
    return row["time_us_p50"], row["time_us_min"], {"alpha": alpha * 1e-6, "beta": beta * 1e-9, "gamma": gamma * 1e-9, "gap": gap}


def beta_of(rate):
    """Seconds for a byte of payload on a link of 100mbit, 1gbit, ..."""
    return 8 / (float(rate[:-4]) * {"m": 1e6, "g": 1e9}[rate[-4]]) * 1538 / 1448


def simulate(gradwire, ranks, size, algorithm, links, folder):
    rows = pathlib.Path(folder) / "sim.jsonl"
    rows.unlink(missing_ok=True)
    subprocess.run([gradwire, "sim", "all_reduce", "--quiet", "--ranks", str(ranks), "--bytes", str(size), "--json", str(rows),
                    *(f"--{name}={value!r}" for name, value in links.items())], check=True, capture_output=True, timeout=120)
    found = [row for row in map(json.loads, rows.read_text().splitlines()) if row.get("algorithm") == algorithm]
    return found[0]["seconds"] * 1e6


def fit(points):
    """Least squares of time = start + slope * bytes, each point counting by its own time; R^2 of the times."""
    weigh = [(1 / time ** 2, size, time) for size, time in points]
    w, wx, wy = (sum(k * value for k, value in zip((p[0] for p in weigh), column))
                 for column in ([1] * len(weigh), [p[1] for p in weigh], [p[2] for p in weigh]))
    wxx, wxy = sum(k * x * x for k, x, _ in weigh), sum(k * x * y for k, x, y in weigh)
    slope = (w * wxy - wx * wy) / (w * wxx - wx * wx)
    start = (wy - slope * wx) / w
    mean = sum(y for _, _, y in weigh) / len(weigh)
    return start, slope, 1 - sum((y - start - slope * x) ** 2 for _, x, y in weigh) / sum((y - mean) ** 2 for _, _, y in weigh)


def print_fit(ranks, rate, points):
    """What alpha and beta the ring's times say by its formula 2 (p - 1) alpha + 2 (p - 1) / p N beta (Thakur, Rabenseifner and Gropp, IJHPCA 2005)."""
    start, slope, good = fit(points)
    beta = slope / (2 * (ranks - 1) / ranks)
    print(f"# {rate}, {ranks} ranks: of the ring's times alpha {start / (2 * (ranks - 1)):.4g} us, beta {beta * 1e3:.4g} ns/B "
          f"(by rate {beta_of(rate) * 1e9:.4g}), R^2 {good:.4f}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gradwire")
    parser.add_argument("--rates", default="100mbit,1gbit")
    parser.add_argument("--ranks", default="2,4")
    parser.add_argument("--algorithms", default="ring,recursive_doubling")
    parser.add_argument("--sizes", default="4K,64K,256K,1M,4M")
    parser.add_argument("--seconds", type=float, default=0.4)
    words = parser.parse_args()
    gradwire = str(pathlib.Path(words.gradwire).resolve())
    outside, points = [0, 0], 0
    print(f"{'rate':>8} {'ranks':>5} {'algorithm':>20} {'bytes':>9} {'median us':>10} {'best us':>10}   simulated us (median / it), links measured; by rate")
    with tempfile.TemporaryDirectory() as folder:
        for rate in words.rates.split(","):
            for ranks in map(int, words.ranks.split(",")):
                links = None
                for algorithm in words.algorithms.split(","):
                    times = []
                    for size in map(bytes_of, words.sizes.split(",")):
                        median, best, links = measure(gradwire, ranks, rate, algorithm, size, words.seconds, folder, links)
                        line, points = f"{rate:>8} {ranks:>5} {algorithm:>20} {size:>9} {median:>10.1f} {best:>10.1f}", points + 1
                        for way, given in enumerate((links, {**links, "beta": beta_of(rate)})):
                            simulated = simulate(gradwire, ranks, size, algorithm, given, folder)
                            kept = abs(median / simulated - 1) <= (0.1 if size >= LARGE else 0.3)
                            outside[way] += not kept
                            line += f" {simulated:>11.1f} ({median / simulated:.3f}){' ' if kept else '*'}"
                        print(line, flush=True)
                        times.append((size, median))
                    if algorithm == "ring" and len(times) > 2:
                        print_fit(ranks, rate, times)
                print(f"# {rate}, {ranks} ranks: alpha {links['alpha'] * 1e6:.4g} us, beta {links['beta'] * 1e9:.4g} ns/B (by rate "
                      f"{beta_of(rate) * 1e9:.4g}), gamma {links['gamma'] * 1e9:.4g} ns/B, gap {links['gap']:g}", flush=True)
    print(f"# {points} points; outside 10 % from 256 KB up and 30 % below (*): {outside[0]} with measured links, {outside[1]} by rate")


if __name__ == "__main__":
    main()
