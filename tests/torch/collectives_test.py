#!/usr/bin/env python3
"""Every operation of the process-group backend on 2 and 3 ranks, against values that are computed without it."""

import datetime
import functools
import unittest

import torch
import torch.distributed as dist

import emulated
import gradwire.torch
import ranks

TYPES = [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8]
SHAPE = (3, 5)


def values(rank, dtype, shape=SHAPE):
    """Small whole numbers, exact in every type, different on each rank."""
    count = 1
    for n in shape:
        count *= n
    return ((torch.arange(count) * 7 + rank * 3) % 5).to(dtype).view(shape)


def same(seen, wanted, what):
    assert seen.dtype == wanted.dtype and seen.shape == wanted.shape, f"{what}: {seen.dtype} {seen.shape}"
    assert torch.equal(seen, wanted), f"{what}: {seen} seen, {wanted} wanted"


def reductions(rank, size):
    folds = {dist.ReduceOp.SUM: torch.add, dist.ReduceOp.PRODUCT: torch.mul, dist.ReduceOp.MIN: torch.minimum, dist.ReduceOp.MAX: torch.maximum}
    bits = {dist.ReduceOp.BAND: torch.bitwise_and, dist.ReduceOp.BOR: torch.bitwise_or, dist.ReduceOp.BXOR: torch.bitwise_xor}
    if emulated.here() != "cpu":
        bits = {}  # refused on devices
    for dtype in TYPES:
        for op, fold in {**folds, **({} if dtype.is_floating_point else bits)}.items():
            wanted = functools.reduce(fold, [values(r, dtype) for r in range(size)])
            tensor = values(rank, dtype)
            dist.all_reduce(tensor, op=op)
            same(tensor, wanted, f"all_reduce {dtype} {op}")
            for root in range(size):
                tensor = values(rank, dtype)
                dist.reduce(tensor, root, op=op)
                if rank == root:
                    same(tensor, wanted, f"reduce {dtype} {op}")
    truth = torch.tensor([True, rank == 0, False])
    dist.all_reduce(truth)
    same(truth, torch.tensor([True, True, False]), "all_reduce of truth values")
    mean = torch.full((4,), float(rank))
    dist.all_reduce(mean, op=dist.ReduceOp.AVG)
    assert torch.allclose(mean, torch.full((4,), (size - 1) / 2)), mean
    scaled = torch.ones(3)
    dist.all_reduce(scaled, op=dist._make_nccl_premul_sum(0.5))
    same(scaled, torch.full((3,), 0.5 * size), "all_reduce PREMUL_SUM")
    pairs = torch.complex(torch.full((2,), float(rank)), torch.ones(2))
    dist.all_reduce(pairs)
    same(pairs, torch.complex(torch.full((2,), size * (size - 1) / 2), torch.full((2,), float(size))), "all_reduce complex")
    gaps = values(rank, torch.float32, (4, 6))[:, ::2]
    dist.all_reduce(gaps)
    same(gaps, sum(values(r, torch.float32, (4, 6))[:, ::2] for r in range(size)), "all_reduce with gaps")
    for bad, op in ((torch.ones(2), dist.ReduceOp.BAND), (torch.ones(2, dtype=torch.int32), dist.ReduceOp.AVG)):
        try:
            dist.all_reduce(bad, op=op)
            raise AssertionError(f"{op} of {bad.dtype} was not refused")
        except ValueError as error:
            assert "gradwire" in str(error), error


def movements(rank, size):
    for dtype in [*TYPES, torch.bool, torch.complex64]:
        all_values = [values(r, dtype) for r in range(size)]
        for root in range(size):
            tensor = values(rank, dtype)
            dist.broadcast(tensor, root)
            same(tensor, all_values[root], f"broadcast {dtype}")
            rows = [torch.zeros(SHAPE, dtype=dtype) for _ in range(size)] if rank == root else None
            dist.gather(values(rank, dtype), rows, dst=root)
            for r in range(size if rank == root else 0):
                same(rows[r], all_values[r], f"gather {dtype}")
            mine = torch.zeros(SHAPE, dtype=dtype)
            dist.scatter(mine, all_values if rank == root else None, src=root)
            same(mine, all_values[rank], f"scatter {dtype}")
        rows = [torch.zeros(SHAPE, dtype=dtype) for _ in range(size)]
        dist.all_gather(rows, values(rank, dtype))
        for r in range(size):
            same(rows[r], all_values[r], f"all_gather {dtype}")
        flat = torch.zeros((size * SHAPE[0], SHAPE[1]), dtype=dtype)
        dist.all_gather_into_tensor(flat, values(rank, dtype))
        same(flat, torch.cat(all_values), f"all_gather_into_tensor {dtype}")
        taken = [torch.zeros(SHAPE, dtype=dtype) for _ in range(size)]
        dist.all_to_all(taken, [values(rank * size + r, dtype) for r in range(size)])
        for r in range(size):
            same(taken[r], values(r * size + rank, dtype), f"all_to_all {dtype}")


def uneven(rank, size):
    rows = [torch.zeros(r + 1) for r in range(size)]
    dist.all_gather(rows, torch.full((rank + 1,), float(rank)))
    for r in range(size):
        same(rows[r], torch.full((r + 1,), float(r)), "all_gather of uneven rows")
    sent = [r + 1 for r in range(size)]
    taken = [rank + 1] * size
    out = torch.zeros(sum(taken), 2)
    dist.all_to_all_single(out, torch.full((sum(sent), 2), float(rank)), taken, sent)
    same(out, torch.cat([torch.full((rank + 1, 2), float(r)) for r in range(size)]), "all_to_all_single")
    even = torch.zeros(size)
    dist.all_to_all_single(even, torch.arange(size, dtype=torch.float32) + 10 * rank)
    same(even, torch.arange(size, dtype=torch.float32) * 10 + rank, "all_to_all_single, even")
    own = torch.zeros(rank + 1)
    dist.reduce_scatter(own, [torch.full((r + 1,), float(rank + r)) for r in range(size)])
    same(own, torch.full((rank + 1,), float(sum(r + rank for r in range(size)))), "reduce_scatter")
    row = torch.zeros(4)
    dist.reduce_scatter_tensor(row, torch.arange(4.0 * size) + rank)
    wanted = size * torch.arange(4.0 * rank, 4.0 * rank + 4) + sum(range(size))
    same(row, wanted, "reduce_scatter_tensor")
    dist.barrier()


def coalesced(rank, size):
    tensors = [torch.full((n,), float(rank + n)) for n in (1, 5, 1000)]
    with dist._coalescing_manager():
        for tensor in tensors:
            dist.all_reduce(tensor)
    for tensor, n in zip(tensors, (1, 5, 1000)):
        same(tensor, torch.full((n,), float(sum(r + n for r in range(size)))), "coalesced all_reduce")
    outs = [torch.zeros(size * n) for n in (2, 3)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for out, n in zip(outs, (2, 3)):
            dist.all_gather_into_tensor(out, torch.full((n,), float(rank)))
    manager.wait()
    for out, n in zip(outs, (2, 3)):
        same(out, torch.arange(size, dtype=torch.float32).repeat_interleave(n), "coalesced all_gather")
    outs = [torch.zeros(n) for n in (2, 3)]
    with dist._coalescing_manager():
        for out, n in zip(outs, (2, 3)):
            dist.reduce_scatter_tensor(out, torch.ones(n * size))
    for out in outs:
        same(out, torch.full_like(out, float(size)), "coalesced reduce_scatter")
    # Each operation of a batch has its own factor, or none; they may differ between ranks.
    group, place = dist.group.WORLD, torch.device(emulated.here())
    half, three, plain = (torch.full((3,), float(rank + 1)) for _ in range(3))
    row = torch.zeros(2)
    group._start_coalescing(place)
    dist.all_reduce(half, op=dist._make_nccl_premul_sum(0.5), async_op=True)
    dist.all_reduce(three, op=dist._make_nccl_premul_sum(float(rank)), async_op=True)
    dist.all_reduce(plain, async_op=True)
    dist.reduce_scatter_tensor(row, torch.ones(2 * size), op=dist._make_nccl_premul_sum(4.0), async_op=True)
    group._end_coalescing(place).wait()
    ranks = range(size)
    same(half, torch.full((3,), 0.5 * sum(r + 1 for r in ranks)), "coalesced PREMUL_SUM")
    same(three, torch.full((3,), float(sum(r * (r + 1) for r in ranks))), "coalesced PREMUL_SUM of factors that differ")
    same(plain, torch.full((3,), float(sum(r + 1 for r in ranks))), "a sum beside coalesced PREMUL_SUM")
    same(row, torch.full((2,), 4.0 * size), "coalesced reduce_scatter with PREMUL_SUM")
    backend = dist.group.WORLD._get_backend(torch.device(emulated.here()))
    assert backend.supports_coalescing and backend.name() == "gradwire"


def messages(rank, size):
    after, before = (rank + 1) % size, (rank - 1) % size
    for dtype in TYPES:
        taken = torch.zeros(SHAPE, dtype=dtype)
        works = [dist.irecv(taken, before, tag=3), dist.isend(values(rank, dtype), after, tag=3)]
        for work in works:
            work.wait()
        same(taken, values(before, dtype), f"isend, irecv {dtype}")
    taken = torch.zeros(6)
    sends = [dist.P2POp(dist.isend, torch.full((6,), float(rank)), after), dist.P2POp(dist.irecv, taken, before)]
    for work in dist.batch_isend_irecv(sends):
        work.wait()
    same(taken, torch.full((6,), float(before)), "batch_isend_irecv")
    if rank == 0:
        seen = set()
        for _ in range(size - 1):
            taken = torch.zeros(1)
            source = dist.recv(taken)
            assert taken.item() == source, (taken, source)
            seen.add(source)
        assert seen == set(range(1, size)), seen
    else:
        dist.send(torch.tensor([float(rank)]), 0)
    dist.barrier()


def many_messages(rank, size):
    """64 between ranks 0 and 1, both ways at once, of 1 element to 16 segments; received in order, in reverse, shuffled, from any rank."""
    if rank > 1:
        return
    count, segment, tags = 64, 128 << 10, [0, 7, 1, 32765, 7]
    lengths = [1, 5, segment // 2, segment - 1, segment, 3 * segment + 7, 9 * segment, 16 * segment]

    def message(sender, k):
        return torch.arange(lengths[k % 8], dtype=torch.int32) + (sender * count + k) * 7919

    for order, peer in ((range(count), 1 - rank), (range(count - 1, -1, -1), 1 - rank),
                        ([(11 + 37 * j) % count for j in range(count)], 1 - rank), (range(count), None)):
        works = [dist.isend(message(rank, k), 1 - rank, tag=tags[k % 5]) for k in range(count)]
        left = list(range(count))
        for slot in order:
            tag = tags[slot % 5]
            k = next(k for k in left if tags[k % 5] == tag)  # the next with that tag
            left.remove(k)
            taken = torch.zeros(lengths[k % 8], dtype=torch.int32)
            dist.recv(taken, peer, tag=tag)
            assert torch.equal(taken, message(1 - rank, k)), f"message {k} with tag {tag}"
        for work in works:
            work.wait()


def futures(rank, size):
    tensor = torch.full((1000,), float(rank))
    work = dist.all_reduce(tensor, async_op=True)
    doubled = work.get_future().then(lambda done: done.value()[0] * 2)
    assert torch.equal(doubled.wait(), torch.full((1000,), float(size * (size - 1)))), doubled.value()
    assert work.wait() and work.is_completed() and work.is_success()
    same(work.result()[0], tensor, "result()")
    # A callback that waits for an operation that was issued before: more than one thread must serve.
    late = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(8)]
    chained = [late[i].get_future().then(lambda done, i=i: late[-1].wait()) for i in range(7)]
    for future in chained:
        future.wait()
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank, "text": "x" * (100 * rank)})
    assert [o["rank"] for o in objects] == list(range(size)), objects
    sparse = torch.sparse_coo_tensor([[rank, 4]], [1.0, 2.0], (6,), device="cpu")
    dist.all_reduce(sparse)
    wanted = torch.zeros(6, device="cpu")
    wanted[:size] += 1
    wanted[4] += 2 * size
    same(sparse.to_dense(), wanted, "all_reduce of sparse tensors")


def groups(rank, size):
    group = dist.new_group([0, size - 1])
    if rank in (0, size - 1):
        tensor = torch.full((3,), float(rank))
        dist.all_reduce(tensor, group=group)
        same(tensor, torch.full((3,), float(size - 1)), "all_reduce in a group")
        dist.destroy_process_group(group)
    dist.barrier()
    assert "rank" in gradwire.torch.describe()
    world = dist.group.WORLD
    if rank == 0:  # alone, and late: the barrier that names who is missing
        try:
            world.monitored_barrier(timeout=datetime.timedelta(seconds=0.5), wait_all_ranks=True)
            raise AssertionError("monitored_barrier passed without the others")
        except RuntimeError as error:
            missing = ", ".join(str(r) for r in range(1, size))
            assert f"Rank{'s' if size > 2 else ''} {missing} failed to pass monitoredBarrier in 500 ms" in str(error), error
    dist.barrier()
    world.monitored_barrier(timeout=datetime.timedelta(seconds=20))


class Collectives(unittest.TestCase):
    def on_ranks(self, function, **settings):
        for size in (2, 3):
            with self.subTest(ranks=size):
                ranks.run(size, function, **settings)

    def test_reductions(self):
        self.on_ranks(reductions)

    def test_movements(self):
        self.on_ranks(movements)

    def test_rows_of_different_lengths(self):
        self.on_ranks(uneven)

    def test_batches(self):
        self.on_ranks(coalesced)

    def test_messages(self):
        def over_tcp(_backend):
            return {"pg_options": gradwire.torch.Options(transport="tcp")}

        self.on_ranks(messages)
        self.on_ranks(many_messages)
        ranks.run(2, many_messages, setup=over_tcp)

    def test_futures_and_objects(self):
        self.on_ranks(futures)

    def test_groups_and_the_barrier_that_names_who_is_missing(self):
        self.on_ranks(groups)

    def test_everything_in_blocking_mode(self):
        def blocking(_backend):
            return {"pg_options": gradwire.torch.Options(blocking=True)}

        for function in (reductions, movements, uneven, coalesced, futures):
            ranks.run(2, function, setup=blocking)


if __name__ == "__main__":
    unittest.main()
