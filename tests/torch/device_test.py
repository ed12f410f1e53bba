#!/usr/bin/env python3
"""What only tensors on a device have: the order of streams, works and futures that a stream waits for, devices in barriers, and
refusals."""

import datetime
import os
import re
import threading
import time
import unittest
import warnings

import torch
import torch.distributed as dist

import emulated
import gradwire.torch  # noqa: F401: registers the backend
import ranks
import selection

warnings.filterwarnings("ignore")

SEEDS = 3 if selection.short() else 200
COUNT = 2000
GAPS = 64  # elements of tensors with gaps, which the device copies one by one


def stream():
    """A stream of the device, and its address for the emulator."""
    made = torch.Stream(device=f"{emulated.DEVICE}:0")
    return made, made.native_handle


def an_operation_follows_the_stream(rank, size):
    """While the current stream is held back the calls return, and nothing is summed before the stream has come to it."""
    calls = torch.emulated.calls
    own, address = stream()
    with own:
        tensor = torch.zeros(COUNT)
        torch.accelerator.current_stream().synchronize()
        calls.hold(address)
        tensor.copy_(torch.full((COUNT,), float(rank + 1), device="cpu"))
        started = time.monotonic()
        work = dist.all_reduce(tensor, async_op=True)
        work.wait()  # the stream waits
        dist.all_reduce(tensor)
        took = time.monotonic() - started
        time.sleep(0.1)
        assert not work.is_completed()
        calls.release(address)
        wanted = size * size * (size + 1) / 2
        assert torch.equal(tensor.cpu(), torch.full((COUNT,), float(wanted), device="cpu")), (tensor, wanted)
        assert work.is_completed() and work.is_success()
    assert took < 20, took  # it is held until release() says so


def many_orders(rank, size):
    """Each step writes, sums and reads on another stream: whatever the streams' delays, no element is of another step."""
    streams = [stream()[0] for _ in range(3)]
    tensors = [torch.zeros(COUNT) for _ in range(3)]
    torch.accelerator.synchronize()
    for step in range(30):
        own, tensor = streams[step % 3], tensors[step % 3]
        with own:
            tensor.fill_(float(rank + step))
            work = dist.all_reduce(tensor, async_op=True)
            if step % 2:
                work.wait()
                seen = tensor.cpu()
            else:
                seen = work.get_future().wait()[0].cpu()
        wanted = torch.full((COUNT,), float(size * step + size * (size - 1) // 2), device="cpu")
        assert torch.equal(seen, wanted), f"step {step}: {seen[:4]} seen, {wanted[0]} wanted"


def futures(rank, size):
    """What is chained to a future runs on streams of its own, behind the operation; what waits for that follows."""
    tensor = torch.full((2 * GAPS,), float(rank))[::2]  # with gaps: copied back on the device
    future = dist.all_reduce(tensor, async_op=True).get_future()
    doubled = future.then(lambda done: done.value()[0] * 2)
    wanted = torch.full((GAPS,), float(size * (size - 1)), device="cpu")
    assert torch.equal(doubled.wait().cpu(), wanted), doubled.value()
    assert torch.equal(tensor.cpu() * 2, wanted), tensor


def futures_at_the_call(rank, size):
    """A future is complete while the stream is held back; its readers follow, wherever they are."""
    own, address = stream()
    reader, _ = stream()
    with own:
        tensor = torch.zeros(COUNT)
        torch.accelerator.current_stream().synchronize()
        torch.emulated.calls.hold(address)
        tensor.copy_(torch.full((COUNT,), float(rank), device="cpu"))
        future = dist.all_reduce(tensor, async_op=True).get_future()
        assert future.done()
        threads = []
        chained = future.then(lambda done: threads.append(threading.current_thread()) or done.value()[0])
        assert threads == [threading.current_thread()]
        torch.emulated.calls.release(address)
    with reader:
        seen = chained.wait().cpu()
    assert torch.equal(seen, torch.full((COUNT,), size * (size - 1) / 2, device="cpu")), seen


def let_go_before_the_copy(rank, size):
    """What is copied back to a tensor with gaps, that the caller has let go, goes nowhere else."""
    own, _ = stream()
    with own:
        for step in range(20):
            whole = torch.full((2 * GAPS,), float(step))
            dist.all_reduce(whole[::2], async_op=True)
            del whole
            fresh = torch.full((2 * GAPS,), 0.5)
            assert torch.equal(fresh.cpu(), torch.full((2 * GAPS,), 0.5, device="cpu")), f"step {step}"
    dist.barrier()


def batches(rank, size):
    """Operations of a batch, one of which has more to do at the end, follow its stream, and so do their futures."""
    own, address = stream()
    group, place = dist.group.WORLD, torch.device(f"{emulated.DEVICE}:0")
    with own:
        summed, gaps = torch.zeros(COUNT), torch.zeros(2 * GAPS)
        rows = [[torch.zeros(3), torch.zeros(4)] for _ in range(size)]
        parts = [torch.full((3,), float(rank)), torch.full((4,), 2.0)]
        torch.accelerator.current_stream().synchronize()
        torch.emulated.calls.hold(address)
        summed.copy_(torch.full((COUNT,), float(rank), device="cpu"))
        gaps.copy_(torch.full((2 * GAPS,), 1.0, device="cpu"))
        group._start_coalescing(place)
        works = [dist.all_reduce(summed, async_op=True), dist.all_reduce(gaps[::2], async_op=True)]
        works.append(group.allgather_coalesced(rows, parts))
        batch = group._end_coalescing(place)
        batch.wait()
        assert all(work.wait() and not work.is_completed() and work.get_future().done() for work in works)
        torch.emulated.calls.release(address)
        assert torch.equal(summed.cpu(), torch.full((COUNT,), size * (size - 1) / 2, device="cpu")), summed
        assert torch.equal(gaps.cpu(), torch.tensor([float(size), 1.0], device="cpu").repeat(GAPS)), gaps
        for r in range(size):
            assert rows[r][0].cpu().tolist() == [r] * 3 and rows[r][1].cpu().tolist() == [2.0] * 4, rows
        assert batch.is_completed() and all(work.is_completed() for work in works)


def batches_begun_elsewhere(rank, size):
    """A batch follows the streams that its operations were begun on, not only the one that is current at its end."""
    first, address = stream()
    second, _ = stream()
    group, place = dist.group.WORLD, torch.device(f"{emulated.DEVICE}:0")
    with first:
        tensor = torch.zeros(COUNT)
        torch.accelerator.current_stream().synchronize()
        torch.emulated.calls.hold(address)
        tensor.copy_(torch.full((COUNT,), float(rank + 1), device="cpu"))
        group._start_coalescing(place)
        dist.all_reduce(tensor, async_op=True)
    with second:
        batch = group._end_coalescing(place)
        batch.wait()
        time.sleep(0.1)
        assert not batch.is_completed()
        torch.emulated.calls.release(address)
        assert torch.equal(tensor.cpu(), torch.full((COUNT,), size * (size + 1) / 2, device="cpu")), tensor


def groups_that_end(rank, size):
    """A group that ends awaits what its streams are behind with."""
    group = dist.new_group()
    own, address = stream()
    with own:
        tensor = torch.zeros(COUNT)
        torch.accelerator.current_stream().synchronize()
        torch.emulated.calls.hold(address)
        tensor.copy_(torch.full((COUNT,), float(rank + 1), device="cpu"))
        work = dist.all_reduce(tensor, group=group, async_op=True)
        work.wait()
        late = threading.Timer(0.3, torch.emulated.calls.release, [address])
        late.start()
        dist.destroy_process_group(group)
        assert work.is_completed()
        late.join()
        assert torch.equal(tensor.cpu(), torch.full((COUNT,), size * (size + 1) / 2, device="cpu")), tensor


def messages_of_anyone(rank, size):
    """A message of any rank is taken behind what its stream does to the tensor before."""
    own, address = stream()
    with own:
        tensor = torch.zeros(COUNT)
        torch.accelerator.current_stream().synchronize()
        if rank != 0:
            dist.send(torch.full((COUNT,), float(rank)), 0)
            return
        torch.emulated.calls.hold(address)
        tensor.copy_(torch.full((COUNT,), -1.0, device="cpu"))
        late = threading.Timer(0.3, torch.emulated.calls.release, [address])
        late.start()
        seen = set()
        for _ in range(size - 1):
            source = dist.recv(tensor)
            seen.add(source)
            assert torch.equal(tensor.cpu(), torch.full((COUNT,), float(source), device="cpu")), (source, tensor)
        late.join()
        assert seen == set(range(1, size)), seen


def messages_that_come_later(rank, size):
    """wait() of a receive holds back the stream that is current then, not the host, until the message is there."""
    store = dist.distributed_c10d._get_default_store()
    own, _ = stream()
    reader, _ = stream()
    others = range(1, size)
    if rank == 0:
        store.wait([f"{other} has waited" for other in others], datetime.timedelta(seconds=60))
        time.sleep(0.2)
        for other in others:
            dist.send(torch.full((COUNT,), float(other)), other)
        return
    with own:
        tensor = torch.full((COUNT,), -1.0)
        torch.accelerator.current_stream().synchronize()
        work = dist.irecv(tensor, 0)
    with reader:
        work.wait()
        seen = tensor.clone()
        store.set(f"{rank} has waited", "1")
        assert torch.equal(seen.cpu(), torch.full((COUNT,), float(rank), device="cpu")), seen


def copies_behind_the_end(rank, size):
    """A message for a tensor with gaps is there, and its copy into them is not: it has not completed, and who waits follows the copy."""
    store = dist.distributed_c10d._get_default_store()
    own, address = stream()
    reader, _ = stream()
    others = range(1, size)
    if rank == 0:
        store.wait([f"{other} is held back" for other in others], datetime.timedelta(seconds=60))
        for other in others:
            dist.send(torch.full((GAPS,), float(other)), other)
        store.set("all are sent", "1")
        return
    with own:
        whole = torch.zeros(2 * GAPS)
        work = dist.irecv(whole[::2], 0)
        torch.accelerator.current_stream().synchronize()  # the receive is behind what the stream had to do
        torch.emulated.calls.hold(address)
    store.set(f"{rank} is held back", "1")
    store.wait(["all are sent"], datetime.timedelta(seconds=60))
    time.sleep(0.3)
    assert not work.is_completed()
    try:
        work.wait(datetime.timedelta(seconds=0.2))
        raise AssertionError("wait() did not end at its limit")
    except RuntimeError as error:
        assert "has not ended within the 0.2" in str(error), error
    with reader:
        work.wait()
        seen = whole.clone()
    time.sleep(0.1)
    torch.emulated.calls.release(address)
    with reader:
        assert torch.equal(seen.cpu()[::2], torch.full((GAPS,), float(rank), device="cpu")), seen
    assert work.is_completed()


def monitored_barriers(rank, size):
    """A monitored barrier is passed when the last rank has come."""
    store = dist.distributed_c10d._get_default_store()
    if rank == 0:
        time.sleep(0.3)
        store.set("the last has come", "1")
    dist.group.WORLD.monitored_barrier(timeout=datetime.timedelta(seconds=60))
    assert store.check(["the last has come"])


def captures(rank, size):
    """The host has a part in operations that do not go over NCCL: they are refused where a graph is captured, and the group goes on."""
    own, address = stream()
    with own:
        tensor = torch.ones(4)
        torch.accelerator.current_stream().synchronize()
        torch.emulated.calls.begin_capture(address)
        try:
            dist.all_reduce(tensor)
            raise AssertionError("an all-reduce in a graph was taken")
        except RuntimeError as error:
            assert "captured as a CUDA graph" in str(error), error
        finally:
            torch.emulated.calls.end_capture(address)
        dist.all_reduce(tensor)
        assert torch.equal(tensor.cpu(), torch.full((4,), float(size), device="cpu")), tensor


def limits(rank, size):
    """wait() with a time limit has the host wait."""
    calls = torch.emulated.calls
    own, address = stream()
    with own:
        tensor = torch.ones(COUNT)
        torch.accelerator.current_stream().synchronize()
        calls.hold(address)
        tensor.copy_(torch.full((COUNT,), 2.0, device="cpu"))
        work = dist.all_reduce(tensor, async_op=True)
        try:
            work.wait(datetime.timedelta(seconds=0.2))
            raise AssertionError("wait() did not end at its limit")
        except RuntimeError as error:
            assert "has not ended within the 0.2" in str(error), error
        calls.release(address)
        assert work.wait(datetime.timedelta(seconds=60)) and work.is_completed()
        assert torch.equal(tensor.cpu(), torch.full((COUNT,), 2.0 * size, device="cpu")), tensor


def memory(rank, size):
    """Tensors that the caller lets go live until the operation's end, and so do those that another stream was recorded for."""
    own, address = stream()
    results = []
    for step in range(8):
        with own:
            torch.emulated.calls.hold(address)
            tensor = torch.empty(COUNT)
            tensor.copy_(torch.full((COUNT,), float(step + rank), device="cpu"))
            out = torch.empty(size * COUNT)
            work = dist.all_gather_into_tensor(out, tensor, async_op=True)
            del tensor
            work.wait()
            results.append(out)
            out.record_stream(own)
            del work
            torch.emulated.calls.release(address)
    with own:
        for step, out in enumerate(results):
            wanted = torch.arange(size, dtype=torch.float32, device="cpu").repeat_interleave(COUNT) + step
            assert torch.equal(out.cpu(), wanted), f"step {step}"


def memory_read_elsewhere(rank, size):
    """What another stream reads, for which it is recorded, stays until that stream has come past, though it is let go before."""
    own, _ = stream()
    reader, address = stream()
    wanted = torch.arange(size, dtype=torch.float32, device="cpu").repeat_interleave(COUNT)
    for step in range(8):
        with own:
            out = torch.empty(size * COUNT)
            work = dist.all_gather_into_tensor(out, torch.full((COUNT,), float(step + rank)), async_op=True)
        with reader:
            seen = torch.empty(size * COUNT)
            torch.accelerator.current_stream().synchronize()
            torch.emulated.calls.hold(address)
            work.wait()
            seen.copy_(out)
            out.record_stream(reader)
        with own:
            work.wait()
            del out, work
            others = [torch.empty(size * COUNT) for _ in range(4)]  # would be where it was
            for other in others:
                other.copy_(torch.full((size * COUNT,), -1.0, device="cpu"))
        torch.emulated.calls.release(address)
        with reader:
            assert torch.equal(seen.cpu(), wanted + step), f"step {step}: {seen[:4]}"
        del others


def barriers(rank, size):
    """With a device a barrier is passed when all ranks' streams have come to it."""
    own, address = stream()
    with own:
        tensor = torch.zeros(4)
        torch.accelerator.current_stream().synchronize()
        if rank == 0:
            torch.emulated.calls.hold(address)
            tensor.copy_(torch.ones(4, device="cpu"))
        work = dist.barrier(device_ids=[0], async_op=True)
        time.sleep(0.2)
        assert not work.is_completed()
        word = torch.ones(1, device="cpu")  # rank 0 lets its stream go when all have looked
        if rank != 0:
            dist.send(word, 0)
        for other in range(1, size if rank == 0 else 0):
            dist.recv(word, other)
        if rank == 0:
            torch.emulated.calls.release(address)
        work.wait()
        assert work.is_completed()
    dist.barrier()


def mismatches(rank, size):
    """Ranks whose calls differ are told so, by name, by a wait with a limit and by the next call."""
    group = dist.new_group()
    work = dist.all_reduce(torch.ones(4 if rank == 0 else 5), group=group, async_op=True)
    for call in (lambda: work.wait(datetime.timedelta(seconds=60)), lambda: dist.all_reduce(torch.ones(4), group=group)):
        try:
            call()
            raise AssertionError("sums of 4 and of 5 elements ended")
        except dist.DistBackendError as error:
            assert re.search("rank [0-9].*all_reduce", str(error)) and "4" in str(error) and "5" in str(error), error
    tensor = torch.ones(2)
    dist.all_reduce(tensor)  # other groups go on
    assert tensor.cpu().tolist() == [size] * 2, tensor


def refused(rank, size):
    here, there = torch.ones(4), torch.ones(4, device="cpu")
    cases = [
        (lambda: dist.all_gather([torch.zeros(4, device="cpu") for _ in range(size)], here), "host memory|CUDA device 0"),
        (lambda: dist.all_reduce_coalesced([here, torch.ones(4, device=f"{emulated.DEVICE}:1")]), "expected one device"),
        (lambda: dist.all_reduce(here.to(torch.int32), op=dist.ReduceOp.BXOR), "bitwise"),
    ]
    for call, words in cases:
        try:
            call()
            raise AssertionError(f"{words}: not refused")
        except (RuntimeError, ValueError, NotImplementedError) as error:
            assert re.search(words, str(error)), error
    dist.all_reduce(there)  # the group goes on
    dist.all_reduce(here)
    assert torch.equal(here.cpu(), there), here


class OnADevice(unittest.TestCase):
    def on_ranks(self, function):
        for size in (2, 3):
            with self.subTest(ranks=size):
                ranks.run(size, function, seconds=300)

    def test_operations_follow_the_stream(self):
        self.on_ranks(an_operation_follows_the_stream)

    def test_no_element_of_another_step(self):
        self.on_ranks(many_orders)

    def test_no_element_of_another_step_with_other_delays(self):
        kept = os.environ.get("GRADWIRE_EMULATION_SEED")
        try:
            for seed in range(SEEDS):
                os.environ["GRADWIRE_EMULATION_SEED"] = str(seed)  # of the streams' delays
                with self.subTest(seed=seed):
                    ranks.run(2, many_orders, seconds=300)
        finally:
            os.environ.pop("GRADWIRE_EMULATION_SEED")
            if kept is not None:
                os.environ["GRADWIRE_EMULATION_SEED"] = kept

    def test_futures(self):
        self.on_ranks(futures)

    def test_futures_are_complete_at_the_call(self):
        self.on_ranks(futures_at_the_call)

    def test_copies_of_what_is_let_go(self):
        self.on_ranks(let_go_before_the_copy)

    def test_batches(self):
        self.on_ranks(batches)

    def test_batches_begun_elsewhere(self):
        self.on_ranks(batches_begun_elsewhere)

    def test_groups_that_end(self):
        self.on_ranks(groups_that_end)

    def test_messages_of_anyone(self):
        self.on_ranks(messages_of_anyone)

    def test_messages_that_come_later(self):
        self.on_ranks(messages_that_come_later)

    def test_copies_behind_the_end(self):
        self.on_ranks(copies_behind_the_end)

    def test_monitored_barriers(self):
        self.on_ranks(monitored_barriers)

    def test_captures_are_refused(self):
        self.on_ranks(captures)

    def test_waits_with_a_limit(self):
        self.on_ranks(limits)

    def test_memory_that_is_let_go(self):
        self.on_ranks(memory)

    def test_memory_that_another_stream_reads(self):
        self.on_ranks(memory_read_elsewhere)

    def test_barriers_of_devices(self):
        self.on_ranks(barriers)

    def test_calls_that_differ_are_named(self):
        self.on_ranks(mismatches)

    def test_refusals(self):
        self.on_ranks(refused)


if __name__ == "__main__":
    unittest.main()
