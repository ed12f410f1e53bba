#!/usr/bin/env python3
"""Ranks find out which of them share a node, and several ranks on several nodes sum by two levels.

usage: nodes_test.py PATH/TO/gradwire
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

GRADWIRE = os.path.abspath(sys.argv.pop(1))
LIMIT = 100  # seconds; nothing here takes a tenth of it

# Between nodes a millisecond and 100 Mbit/s, inside one a microsecond and 10 GB/s: what is to be taken does not depend on
# what would be measured.
LINKS = ["--alpha", "1e-3", "--beta", "80e-9", "--alpha-intra", "1e-6", "--beta-intra", "0.1e-9"]


def rows_of(ranks, node_of_rank, *words):
    """The result rows of a job of `gradwire run` whose ranks call their nodes by an expression of $GRADWIRE_RANK."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "XDG_CACHE_HOME": folder}
        out = pathlib.Path(folder) / "rows.jsonl"
        script = f'export GRADWIRE_NODE={node_of_rank}; exec "$@"' if node_of_rank else 'exec "$@"'
        bench = [GRADWIRE, "bench", "all_reduce", "--transport", "tcp", "--seconds", "0.05", "--json", str(out), *words]
        done = subprocess.run([GRADWIRE, "run", "-n", str(ranks), "--plain", "--", "sh", "-c", script, "sh", *bench],
                              capture_output=True, text=True, timeout=LIMIT, env=environment)
        if done.returncode != 0:
            raise AssertionError(f"exited {done.returncode}:\n{done.stdout}{done.stderr}")
        return [json.loads(line) for line in out.read_text().splitlines()]


class Nodes(unittest.TestCase):
    def expect(self, rows, nodes, algorithms):
        self.assertTrue(rows)
        for row in rows:
            self.assertEqual((row["nodes"], row["wrong"]), (nodes, 0), row)
            self.assertIn(row["algorithm"], algorithms, row)

    def test_ranks_of_one_host_are_on_one_node(self):
        self.expect(rows_of(3, None, "--min", "4K", "--max", "4K", "--algorithm", "ring"), 1, ["ring"])

    def test_auto_takes_two_levels_where_several_ranks_are_on_several_nodes(self):
        rows = rows_of(4, "$((GRADWIRE_RANK / 2))", "--min", "64K", "--max", "1M", "--factor", "16", *LINKS)
        self.expect(rows, 2, ["two_level", "blueconnect"])

    def test_two_levels_are_right_on_unequal_and_on_interleaved_nodes(self):
        for ranks, node_of_rank in ((5, "$((GRADWIRE_RANK / 3))"), (5, "$((GRADWIRE_RANK % 2))"), (4, "n$((GRADWIRE_RANK % 2))")):
            for algorithm in ("two_level", "blueconnect"):
                rows = rows_of(ranks, node_of_rank, "--min", "40", "--max", "400K", "--factor", "100", "--algorithm", algorithm)
                self.expect(rows, 2, [algorithm])


if __name__ == "__main__":
    unittest.main(verbosity=2)
