#!/usr/bin/env python3
"""Two builds of gradwire by turns: no operation's speed at any size is to fall behind that of the build of before.

    bench/peers/build_turns.py --before BUILD --now BUILD --log FILE [--rounds 9] [--again 25] [--seconds 0.2]
        [--operations all_reduce,broadcast,all_to_all,send_recv] [--transports ucx,tcp] [--ranks 2,4]
        [--min 1K] [--max 64M] [--factor 4]

Every round runs both builds once for each operation, transport and number of ranks, on this host, the other one first each time;
a run takes all sizes from --min to --max.
A row's ratio of a round is the speed of now by that of before (medians). Printed is the geometric mean of its rounds with the 95 %
interval (Student's t, of the logarithms). A row whose interval lies wholly below 0.97 is measured once more, alone, with more
rounds, and counts if that fails too; both are printed, and the exit status is 1.

FILE holds one line for each row and round. A run that is ended goes on from there; delete it to begin anew.
"""
import argparse
import itertools
import json
import math
import pathlib
import statistics
import sys
import time

import contenders
from pair_allreduce import bytes_of

FLOOR = 0.97
# Two-sided 95 % quantiles of Student's t, by degrees of freedom.
QUANTILES = [12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
             2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042]


def parse(arguments):
    def words(text):
        return text.split(",")

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--before", type=pathlib.Path, required=True)
    parser.add_argument("--now", type=pathlib.Path, required=True)
    parser.add_argument("--log", type=pathlib.Path, required=True)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--again", type=int, default=25, help="rounds of a row that has failed")
    parser.add_argument("--seconds", type=float, default=0.2, help="timed at each size in each round")
    parser.add_argument("--operations", type=words, default=words("all_reduce,broadcast,all_to_all,send_recv"))
    parser.add_argument("--transports", type=words, default=words("ucx,tcp"))
    parser.add_argument("--ranks", type=lambda text: [int(one) for one in text.split(",")], default=[2, 4])
    parser.add_argument("--min", type=bytes_of, default="1K")
    parser.add_argument("--max", type=bytes_of, default="64M")
    parser.add_argument("--factor", type=int, default=4, help="from one size to the next")
    options = parser.parse_args(arguments)
    if options.rounds < 2 or options.again < 2:
        parser.error(f"--rounds {options.rounds} --again {options.again} (2 or more wanted: an interval needs them)")
    if not 0 < options.min <= options.max or options.factor < 2:
        parser.error(f"--min {options.min} --max {options.max} --factor {options.factor} (0 < min <= max, factor >= 2 wanted)")
    return options


def sizes_of(options):
    sizes = [options.min]
    while sizes[-1] * options.factor <= options.max:
        sizes.append(sizes[-1] * options.factor)
    return sizes


def interval(ratios):
    """(low, geometric mean, high)"""
    logs = [math.log(ratio) for ratio in ratios]
    middle = statistics.fmean(logs)
    freedom = len(logs) - 1
    quantile = QUANTILES[freedom - 1] if freedom <= len(QUANTILES) else 1.96
    half = quantile * statistics.stdev(logs) / math.sqrt(len(logs))
    return math.exp(middle - half), math.exp(middle), math.exp(middle + half)


def fails(ratios):
    return interval(ratios)[2] < FLOOR


class Log:
    """(operation, transport, ranks, bytes, again) -> {round: speed of now by that of before}"""

    def __init__(self, path, settings):
        self.path = path
        self.rows = {}
        lines = path.read_text().splitlines() if path.exists() else []
        if not lines:
            path.write_text(json.dumps(settings) + "\n")
            return
        if json.loads(lines[0]) != settings:
            sys.exit(f"build_turns: {path} is of other settings (got {lines[0]}, expected {json.dumps(settings)}): "
                     "delete it, or name another file")
        for line in lines[1:]:
            try:
                self.keep(json.loads(line))
            except ValueError:  # the last line of a run that was ended: it is measured again
                break
        path.write_text(lines[0] + "\n" + "".join(json.dumps(row) + "\n" for row in self.all_rows()))

    def keep(self, row):
        key = (row["operation"], row["transport"], row["ranks"], row["bytes"], row["again"])
        self.rows.setdefault(key, {})[row["round"]] = (row["before_us"], row["now_us"])

    def all_rows(self):
        for (operation, transport, ranks, size, again), rounds in self.rows.items():
            for number, (before, now) in rounds.items():
                yield {"operation": operation, "transport": transport, "ranks": ranks, "bytes": size, "again": again,
                       "round": number, "before_us": before, "now_us": now}

    def add(self, row):
        self.keep(row)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")

    def has(self, key, number):
        return number in self.rows.get(key, {})

    def ratios(self, key):
        return [before / now for before, now in self.rows[key].values()]


def run(options, build, group, sizes):
    """Size -> its median, in microseconds. Both builds choose algorithms by the links that the first run has measured and kept."""
    operation, transport, ranks = group
    rows = contenders.gradwire_range(contenders.Place("lo", ranks, build), operation, sizes[0], sizes[-1], options.seconds,
                                     ["--transport", transport, "--factor", str(options.factor)])
    times = {}
    for row in rows:
        if row["wrong"] != 0:
            raise contenders.Failed(f"{build} has {row['wrong']} wrong elements in {operation} of {row['bytes']} bytes")
        times[row["bytes"]] = row["time_us_p50"]
    if sorted(times) != sizes:
        raise contenders.Failed(f"{build} has rows of {sorted(times)} bytes in {operation} ({sizes} wanted)")
    return times


def measure(options, log, groups, sizes, again, rounds):
    """Every group, (operation, transport, ranks), at every size so often."""
    started = time.monotonic()
    for number in range(rounds):
        builds = [options.before, options.now]
        if number % 2:
            builds.reverse()
        for group in groups:
            if all(log.has((*group, size, again), number) for size in sizes):
                continue
            times = {build: run(options, build, group, sizes) for build in builds}
            for size in sizes:
                log.add({**dict(zip(("operation", "transport", "ranks"), group)), "bytes": size, "again": again, "round": number,
                         "before_us": times[options.before][size], "now_us": times[options.now][size]})
        left = (time.monotonic() - started) / (number + 1) * (rounds - number - 1)
        print(f"round {number + 1} of {rounds} done, about {left / 60:.0f} min left", file=sys.stderr, flush=True)


def text_of(log, key):
    operation, transport, ranks, size, again = key
    low, middle, high = interval(log.ratios(key))
    verdict = "behind" if fails(log.ratios(key)) else "ok"
    return (f"{operation:<12} {transport:<4} {ranks} ranks {size:>9} B  {middle:.3f} ({low:.3f} to {high:.3f}), "
            f"{len(log.ratios(key))} rounds{', again' if again else ''}: {verdict}")


def main(arguments):
    options = parse(arguments)
    settings = {"before": str(options.before.resolve()), "now": str(options.now.resolve()), "seconds": options.seconds}
    log = Log(options.log, settings)
    groups = list(itertools.product(options.operations, options.transports, options.ranks))
    sizes = sizes_of(options)
    keys = [(*group, size, False) for group in groups for size in sizes]
    measure(options, log, groups, sizes, False, options.rounds)
    behind = 0
    print(f"speed of {options.now} by that of {options.before}:")
    for key in keys:
        print(text_of(log, key))
    for key in [key for key in keys if fails(log.ratios(key))]:
        again = (*key[:-1], True)
        measure(options, log, [key[:3]], [key[3]], True, options.again)
        print(text_of(log, key))
        print(text_of(log, again))
        behind += fails(log.ratios(again))
    print(f"{behind} of {len(keys)} rows are behind")
    return 1 if behind else 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except contenders.Failed as error:
        sys.exit(f"build_turns: {error}")
