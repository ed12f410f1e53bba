#!/usr/bin/env python3
"""The Python package over the library in the build folder: ranks that are processes against plain NumPy, ranks that are threads,
specs, and what is said where something is missing."""
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest

try:
    import numpy as np
except ImportError:
    sys.exit(77)

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(SOURCE / "python"))
PATIENCE = 120
FULL = os.environ.get("GRADWIRE_TEST_FULL") is not None


def numbers(rank, count=100, dtype="f4"):
    """Whole numbers, so that sums are exact."""
    return ((np.arange(count) * 7 + rank * 13) % 11).astype(dtype)


def run_ranks(size, transport, by_arguments=False):
    """Starts this program as so many ranks, who learn it from the environment, or from arguments although the environment says something
    else; their outputs where one failed."""
    with tempfile.TemporaryDirectory() as folder:
        ranks = []
        for rank in range(size):
            command = [sys.executable, __file__, "--rank"]
            place = {"GRADWIRE_RANK": rank, "GRADWIRE_WORLD_SIZE": size, "GRADWIRE_RENDEZVOUS": f"file://{folder}"}
            if by_arguments:
                command += [str(word) for word in place.values()]
                place = {"RANK": 7, "WORLD_SIZE": 9, "LOCAL_RANK": 7}
            env = {**os.environ, **{name: str(value) for name, value in place.items()}, "GRADWIRE_TRANSPORT": transport}
            ranks.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        outputs = [rank.communicate(timeout=PATIENCE)[0] for rank in ranks]
        return "".join(out for rank, out in zip(ranks, outputs) if rank.returncode != 0)


def many_messages(gradwire, comm):
    """64 between ranks 0 and 1, both ways at once, of 1 element to 16 segments; received in reverse, from any rank and,
    where GRADWIRE_TEST_FULL is set, in order and shuffled."""
    if comm.rank > 1:
        return
    count, segment, tags = 64, 128 << 10, [0, 7, 1, 32767, 7]
    lengths = [1, 5, segment // 2, segment - 1, segment, 3 * segment + 7, 9 * segment, 16 * segment]

    def message(rank, k):
        return np.arange(lengths[k % 8], dtype="u4") + np.uint32((rank * count + k) * 2654435761 % (1 << 32))

    full = ((range(count), 1 - comm.rank), ([(11 + 37 * j) % count for j in range(count)], 1 - comm.rank))
    for order, peer in ((range(count - 1, -1, -1), 1 - comm.rank), (range(count), gradwire.ANY_SOURCE), *(full if FULL else ())):
        works = [comm.send(message(comm.rank, k).view("i4"), 1 - comm.rank, tags[k % 5], wait=False) for k in range(count)]
        left = list(range(count))
        for slot in order:
            tag = tags[slot % 5]
            k = next(k for k in left if tags[k % 5] == tag)  # the next with that tag
            left.remove(k)
            seen = comm.recv(np.zeros(lengths[k % 8], "i4"), peer, tag)
            np.testing.assert_array_equal(seen.view("u4"), message(1 - comm.rank, k), err_msg=f"message {k} with tag {tag}")
        for work in works:
            work.wait()


def every_operation(gradwire, comm):
    rank, size = comm.rank, comm.size
    all_ranks = np.stack([numbers(r) for r in range(size)])
    total = comm.all_reduce(numbers(rank))
    np.testing.assert_array_equal(total, all_ranks.sum(0))
    np.testing.assert_array_equal(comm.all_reduce(numbers(rank), "max"), all_ranks.max(0))
    own = numbers(rank, dtype="i8")
    assert comm.all_reduce(own, out=own) is own
    np.testing.assert_array_equal(own, all_ranks.sum(0))
    np.testing.assert_array_equal(comm.all_reduce(numbers(rank, dtype="u1"), "bit_xor"),
                                  np.bitwise_xor.reduce(all_ranks.astype("u1")))
    root = comm.reduce(numbers(rank), root=1)
    assert (root is None) == (rank != 1)
    rows = np.stack([numbers(rank * 5 + r) for r in range(size)])
    np.testing.assert_array_equal(comm.reduce_scatter(rows), sum(numbers(r * 5 + rank) for r in range(size)))
    np.testing.assert_array_equal(comm.all_gather(numbers(rank)), all_ranks)
    np.testing.assert_array_equal(comm.all_gather_v(np.full(rank + 1, rank, "i4"), range(1, size + 1)),
                                  np.concatenate([np.full(r + 1, r) for r in range(size)]))
    gathered = comm.gather(numbers(rank), root=0)
    if rank == 0:
        np.testing.assert_array_equal(gathered, all_ranks)
    np.testing.assert_array_equal(comm.scatter(all_ranks if rank == 0 else None, np.empty(100, "f4")), numbers(rank))
    np.testing.assert_array_equal(comm.all_to_all(rows), np.stack([numbers(r * 5 + rank) for r in range(size)]))
    np.testing.assert_array_equal(comm.broadcast(numbers(rank), root=size - 1), numbers(size - 1))
    scanned = comm.exclusive_scan(numbers(rank))
    np.testing.assert_array_equal(scanned, sum((numbers(r) for r in range(rank)), np.zeros(100, "f4")))
    right, left = (rank + 1) % size, (rank - 1) % size
    sent = comm.send(numbers(rank), right, tag=3, wait=False)
    heard = comm.recv(np.empty(100, "f4"), tag=3, wait=False)
    np.testing.assert_array_equal(heard.wait(60), numbers(left))
    assert heard.source == left and heard.done()
    sent.wait(60)
    assert comm.probe(left, tag=4, timeout=0.01) is None
    half = comm.split(rank % 2)
    assert half.all_reduce(np.ones(1, "f4"))[0] == half.size
    comm.barrier()
    assert comm.stats()["job_messages_sent"] > 0 and "rank" in repr(comm)


def aggregators(gradwire, comm):
    shapes = {"weight": (30, 40), "bias": (7,), "scale": (2, 3, 4, 5, 6)}
    def gradients(step):
        return {name: numbers(comm.rank + step, int(np.prod(shape))).reshape(shape) for name, shape in shapes.items()}
    mean = {name: sum(numbers(r, int(np.prod(shape))) for r in range(comm.size)).reshape(shape) / comm.size
            for name, shape in shapes.items()}
    exact = gradwire.Aggregator(comm, gradients(0))
    for name, averaged in exact.average(gradients(0)).items():
        np.testing.assert_allclose(averaged, mean[name], rtol=1e-6)
    sparse = gradwire.Aggregator(comm, gradients(0), "topk:ratio=0.1,ef=ef14")
    again = gradwire.Aggregator(comm, gradients(0), "topk:ratio=0.1,ef=ef14")
    for step in range(3):
        sparse.average(gradients(step))
    state = sparse.state_dict()
    assert state["weight.error"].shape == (30, 40) and np.any(state["weight.error"])
    again.load_state_dict(state)
    one, other = sparse.average(gradients(3)), again.average(gradients(3))
    assert all(np.array_equal(one[name], other[name]) for name in shapes)
    stats = sparse.stats()
    assert stats["steps"] == 3 or stats["steps"] == 4
    assert 0 < stats["payload_bytes"] < stats["gradient_bytes"]
    try:
        exact.average({"weight": gradients(0)["weight"]})
        raise AssertionError("a step of one array was taken")
    except gradwire.InvalidArgument as error:
        assert "'bias'" in str(error)
    # Nine tenths as pairs are more than all elements: known once a step has sent them.
    crowded = gradwire.Aggregator(comm, gradients(0), "topk:ratio=0.9")
    before = crowded.warnings()
    for step in range(2):
        crowded.average(gradients(step))
        crowded.flush()
        assert [line for line in crowded.warnings() if "uncompressed" in line] == crowded.warnings()[len(before) :] != []
    assert len(crowded.warnings()) == len(before) + 1, crowded.warnings()
    assert gradwire.Aggregator(comm, gradients(0), "dgc", momentum=0).warnings() == []
    assert any("momentum" in line for line in gradwire.Aggregator(comm, gradients(0), "dgc").warnings())
    try:
        gradwire.Aggregator(comm, gradients(0), "dgc", momentum=0.9)
        raise AssertionError("dgc was taken beside a momentum of 0.9")
    except gradwire.InvalidArgument as error:
        assert "dgc" in str(error) and "0.9" in str(error)


def rank_main(arguments):
    import gradwire
    given = {"rank": int(arguments[0]), "size": int(arguments[1]), "rendezvous": arguments[2]} if arguments else {}
    with gradwire.init(timeout=60, **given) as comm:
        every_operation(gradwire, comm)
        many_messages(gradwire, comm)
        aggregators(gradwire, comm)


class Package(unittest.TestCase):
    def test_ranks_that_are_processes(self):
        for transport in ("tcp", "auto"):
            self.assertEqual(run_ranks(3, transport), "", transport)

    def test_ranks_that_are_given_as_arguments(self):
        self.assertEqual(run_ranks(2, "tcp", by_arguments=True), "")

    def test_ranks_that_are_threads(self):
        import gradwire
        comms = gradwire.threads(2)
        totals = [None, None]
        def play(rank):
            totals[rank] = comms[rank].all_reduce(numbers(rank))
        players = [threading.Thread(target=play, args=(rank,)) for rank in range(2)]
        for player in players:
            player.start()
        for player in players:
            player.join(PATIENCE)
        np.testing.assert_array_equal(totals[0], numbers(0) + numbers(1))
        np.testing.assert_array_equal(totals[0], totals[1])

    def test_messages_between_threads(self):
        import gradwire
        comms, ended = gradwire.threads(2), [False, False]
        def play(rank):
            many_messages(gradwire, comms[rank])
            ended[rank] = True
        players = [threading.Thread(target=play, args=(rank,)) for rank in range(2)]
        for player in players:
            player.start()
        for player in players:
            player.join(PATIENCE)
        self.assertEqual(ended, [True, True])

    def test_specs(self):
        import gradwire
        info = gradwire.inspect("topk:ratio=0.01,ef=ef14", (100, 100))
        self.assertTrue(info.sparse and info.error_feedback and info.path == "gather")
        self.assertEqual(info.dense_bytes, 40000)
        self.assertEqual(gradwire.inspect("none", (10,)).ratio, 1)
        self.assertIn("topk", [method.name for method in gradwire.methods()])
        with self.assertRaisesRegex(gradwire.InvalidArgument, "zip"):
            gradwire.inspect("zip")

    def test_arguments_are_refused(self):
        import gradwire
        comm = gradwire.threads(1)[0]
        with self.assertRaisesRegex(gradwire.InvalidArgument, "complex128"):
            comm.all_reduce(np.ones(2, complex))
        with self.assertRaisesRegex(gradwire.InvalidArgument, "no reduction 'median'"):
            comm.all_reduce(np.ones(2), "median")
        with self.assertRaisesRegex(gradwire.InvalidArgument, "3 elements of float64"):
            comm.all_reduce(np.ones(2), out=np.ones(3))
        with self.assertRaisesRegex(gradwire.InvalidArgument, "read-only"):
            frozen = np.ones(2)
            frozen.flags.writeable = False
            comm.broadcast(frozen)
        with self.assertRaisesRegex(gradwire.InvalidArgument, "rank 2 of 2 ranks"):
            gradwire.init(rank=2, size=2, rendezvous="file:///nowhere")
        with self.assertRaisesRegex(gradwire.InvalidArgument, "rank 1 and size None"):
            gradwire.init(rank=1)
        comm.close()
        with self.assertRaisesRegex(gradwire.InvalidArgument, "comm is NULL"):
            comm.barrier()

    def run_alone(self, program, **env):
        return subprocess.run([sys.executable, "-c", program], env={**os.environ, "PYTHONPATH": str(SOURCE / "python"), **env},
                              capture_output=True, text=True, timeout=PATIENCE)

    def test_without_ucx_the_package_works_and_init_names_what_is_missing(self):
        if os.environ.get("GRADWIRE_TEST_UCX") != "1":
            self.skipTest("a build without UCX")
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "libucp.so.0").write_text("no library")
            run = self.run_alone("import gradwire; print(gradwire.inspect('qsgd:bits=4').path); gradwire.init(transport='ucx')",
                                 LD_LIBRARY_PATH=folder)
        self.assertEqual(run.stdout, "sra\n")
        self.assertIn("gradwire.errors.Unsupported", run.stderr)
        self.assertIn("libucx0", run.stderr)
        self.assertIn(f"{folder}/libucp.so.0", run.stderr)

    def test_a_job_of_which_one_rank_lacks_ucx_goes_over_tcp(self):
        if os.environ.get("GRADWIRE_TEST_UCX") != "1":
            self.skipTest("a build without UCX")
        with tempfile.TemporaryDirectory() as folder:
            (pathlib.Path(folder) / "libucp.so.0").write_text("no library")
            (pathlib.Path(folder) / "store").mkdir()
            ranks = []
            for rank in range(2):
                program = (f"import gradwire, numpy; comm = gradwire.init(rank={rank}, size=2, rendezvous='file://{folder}/store'); "
                           "print(comm.all_reduce(numpy.arange(3.0)).tolist(), comm)")
                env = {**os.environ, "PYTHONPATH": str(SOURCE / "python"), "GRADWIRE_TRANSPORT": "auto"}
                if rank == 1:
                    env["LD_LIBRARY_PATH"] = folder
                ranks.append(subprocess.Popen([sys.executable, "-c", program], env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                              text=True))
            for rank in ranks:
                said = rank.communicate(timeout=PATIENCE)[0]
                self.assertEqual(rank.returncode, 0, said)
                self.assertIn("[0.0, 2.0, 4.0]", said)
                self.assertIn("tcp", said)
                self.assertNotIn("ucx", said)

    def test_without_the_library_the_import_says_where_it_looked(self):
        run = self.run_alone("import gradwire", GRADWIRE_LIBRARY="/nowhere/libgradwire.so")
        self.assertIn("/nowhere/libgradwire.so", run.stderr)
        self.assertIn("GRADWIRE_LIBRARY", run.stderr)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank_main(sys.argv[2:])
    else:
        unittest.main(verbosity=2)
