#!/usr/bin/env python3
"""All-reduce of fp32 sums (or another collective), gradwire beside Open MPI at its best settings and Gloo, in one run.

Round-robin: every round runs every contender once, so that all see the same noise. Printed are the best of the rounds'
medians, (in brackets) the median of them, and how gradwire's best compares with the best of the peers.

    bench/peers/pair_allreduce.py [--link shm|lo|100mbit|1gbit|10gbit|none] [--ranks 2] [--rounds 3] [--sizes 1M,16M,64M]

shm and lo: processes of this host. Rates: one rank on each host of bench/lab, which needs root; the share of the rate
that each rank's link carries is printed too.

send_recv and send_recv_one_way: 64 messages of one tag under way each way (or as many as come to 256 MiB), of 16 B to 64 MiB
unless --sizes says otherwise, in us for all of them together; one way beside ucx_perftest (tag_bw) and iperf3, too. Where one of
these is best, the ratio to MPI's best stands behind.
"""
import argparse
import contextlib
import json
import pathlib
import shutil
import statistics
import sys

import contenders

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from lab_network import Lab, LabError, bits_of  # noqa: E402

UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
OURS = "gw-"
OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "broadcast", "all_to_all", "send_recv", "send_recv_one_way"]
TOOLS = ("ucx_perftest", "iperf3")  # whose programs do nothing else
MESSAGE_SIZES = [16 << 2 * i for i in range(12)]


def bytes_of(text):
    return int(text[:-1]) * UNITS[text[-1]] if text[-1] in UNITS else int(text)


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=lambda text: pathlib.Path(text).resolve(), default=pathlib.Path("build").resolve())
    parser.add_argument("--link", default="shm")
    parser.add_argument("--operation", default="all_reduce", choices=OPERATIONS)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=3, help="at least 3 for a verdict")
    parser.add_argument("--sizes", type=lambda text: [bytes_of(size) for size in text.split(",")], 
                        help="default 1M,16M,64M, or of messages 16 to 64M")
    parser.add_argument("--seconds", type=float, default=1, help="timed at each size in each round")
    parser.add_argument("--gradwire", default="", help="more flags for gradwire bench; default off shm: --transport tcp")
    parser.add_argument("--algorithms", default="auto", help="of gradwire; each is a contender, the best of them counts")
    parser.add_argument("--buffers", help="of gradwire over shared memory: shared, private or both with a comma, each a contender")
    parser.add_argument("--peers", help="comma-separated names, of those that the first run prints")
    parser.add_argument("--json", type=pathlib.Path, help="file for the figures, one line a size")
    options = parser.parse_args()
    messages = options.operation.startswith("send_recv")
    options.sizes = options.sizes or (MESSAGE_SIZES if messages else [1 << 20, 16 << 20, 64 << 20])
    if messages and options.algorithms != "auto":
        parser.error(f"--algorithms {options.algorithms}: {options.operation} has none")
    return options


def all_contenders(options, place):
    words = options.gradwire.split() or ([] if options.link == "shm" else ["--transport", "tcp"])
    measured = (options.operation, options.sizes, options.seconds)
    messages = options.operation.startswith("send_recv")
    one_way = options.operation.endswith("_one_way")
    if messages:
        words += ["--messages", "0"] + (["--one-way"] if one_way else [])
    own_measured = (options.operation.removesuffix("_one_way"), options.sizes, options.seconds)
    found = {}
    for algorithm in options.algorithms.split(","):
        for buffers in options.buffers.split(",") if options.buffers else [None]:
            own = [*words, "--algorithm", algorithm] + (["--buffers", buffers] if buffers else [])
            name = OURS + (f"{algorithm}-{buffers}" if buffers else algorithm)
            found[name] = lambda w=own: contenders.gradwire(place, *own_measured, w)
    if shutil.which("mpirun") and (options.build / "bench/peers/mpi_collective").exists():
        for name, (arguments, environment) in contenders.mpi_settings(options.link, place.interface).items():
            found[name] = lambda a=arguments, e=environment: contenders.open_mpi(place, *measured, a, e)
    else:
        print(f"pair_allreduce: without Open MPI (wanted: mpirun, and {options.build}/bench/peers/mpi_collective, which a whole build makes "
              "where Debian's openmpi-bin and libopenmpi-dev are)", file=sys.stderr)
    if (options.build / "bench/peers/gloo_all_reduce").exists() and options.operation == "all_reduce" and options.link != "shm":
        found["gloo"] = lambda: contenders.gloo(place, options.sizes, options.seconds)
    if one_way and shutil.which("ucx_perftest"):
        found["ucx_perftest"] = lambda: contenders.ucx_perftest(place, options.sizes, options.seconds)
    if one_way and options.link != "shm" and shutil.which("iperf3"):
        found["iperf3"] = lambda: contenders.iperf3(place, options.sizes, options.seconds)
    wanted = options.peers.split(",") if options.peers is not None else list(found)
    return {name: run for name, run in found.items() if name.startswith(OURS) or name in wanted}


def measure(options, place):
    """(contender, bytes) -> medians, one a round"""
    running = all_contenders(options, place)
    times = {}
    for number in range(options.rounds):
        for name, run in running.items():
            for row in run():
                if row["wrong"] != 0:
                    raise contenders.Failed(f"{name} has {row['wrong']} wrong elements at {row['bytes']} bytes")
                times.setdefault((name, row["bytes"]), []).append(row["time_us_p50"])
        print(f"round {number + 1} of {options.rounds} done", file=sys.stderr)
    return list(running), times


def wire_share(options, size, micros):
    """Of a rank's link, in the busier direction, by a bandwidth-optimal algorithm's bytes; None without a rate."""
    if options.link in ("shm", "lo", "none"):
        return None
    one = (options.ranks - 1) / options.ranks
    factor = {"all_reduce": 2 * one, "broadcast": 1}.get(options.operation, one)
    return factor * size * 8 / (micros * 1e-6) / bits_of(options.link)


def report(options, names, times):
    lines = []
    print(f"{'bytes':>10} " + " ".join(f"{name:>22}" for name in names) + "   best peer / gradwire")
    for size in options.sizes:
        best = {name: min(times[name, size]) for name in names}
        median = {name: statistics.median(times[name, size]) for name in names}
        line = {"op": options.operation, "link": options.link, "bytes": size, "ranks": options.ranks,
                "rounds": options.rounds, "best_us": best, "median_us": median}
        text = f"{size:>10} " + " ".join(f"{best[name]:>10.1f} ({median[name]:>9.1f})" for name in names)
        peers = [name for name in names if not name.startswith(OURS)]
        own = [name for name in names if name.startswith(OURS)]
        ours = min(best[name] for name in own)
        if peers:
            winner = min(peers, key=best.get)
            line |= {"best_peer": winner, "ratio": best[winner] / ours}
            line["mpi_ratio"] = min((best[name] for name in peers if name not in TOOLS), default=0) / ours
            each = ", ".join(f"{best[winner] / best[name]:.2f}" for name in own) if options.buffers else f"{line['ratio']:.2f}"
            text += f"   {each} ({winner})" + (f", {line['mpi_ratio']:.2f} of MPI" if winner in TOOLS else "")
        share = wire_share(options, size, ours)
        if share is not None:
            line["wire_share"] = share
            text += f"; {share:.1%} of the link"
        print(text)
        lines.append(line)
    if options.json:
        options.json.write_text("".join(json.dumps(line) + "\n" for line in lines))


def main():
    options = parse()
    print(f"# {options.operation}, {options.ranks} ranks, {options.link}; us: best of {options.rounds} rounds' medians "
          "(median of them)")
    try:
        with contextlib.ExitStack() as stack:
            if options.link in ("shm", "lo"):
                place = contenders.Place(options.link, options.ranks, options.build)
            else:
                place = contenders.LabPlace(stack.enter_context(Lab(options.ranks, options.link)), options.build)
            report(options, *measure(options, place))
    except (LabError, contenders.Failed) as error:
        sys.exit(f"pair_allreduce: {error}")


if __name__ == "__main__":
    main()
