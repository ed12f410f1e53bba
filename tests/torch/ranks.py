"""Ranks as forked processes of a test, with a deadline. The parent holds no threads and no communicator.

With GRADWIRE_TEST_DEVICE=emulated new tensors of a rank are on that device (emulated.py), and results come back on the host.
"""

import multiprocessing
import os
import pickle
import tempfile
import time
import traceback

import emulated

# Machines that run these tests may be very busy: these end what hangs, and nothing else.
GROUP_SECONDS = 300.0


def on_host(value):
    """The value with its tensors in the host's memory."""
    from torch.utils import _pytree

    return _pytree.tree_map(lambda leaf: leaf.cpu() if hasattr(leaf, "cpu") else leaf, value)


def in_rank(rank, size, store, backend, setup, function, arguments, pipe):
    import datetime

    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    try:
        backend = emulated.begin(backend)
        options = setup(backend) if setup else {}
        dist.init_process_group(
            backend, rank=rank, world_size=size, store=dist.FileStore(store, size), timeout=datetime.timedelta(seconds=GROUP_SECONDS), **options
        )
        result = on_host(function(rank, size, *arguments))
        if dist.is_initialized():
            dist.destroy_process_group()
        pipe.send_bytes(pickle.dumps((True, result)))
    except BaseException:  # noqa: BLE001: whatever it is, the parent shall print it
        pipe.send_bytes(pickle.dumps((False, traceback.format_exc())))
    finally:
        pipe.close()
        os._exit(0)


def run(size, function, *arguments, backend="gradwire", setup=None, seconds=600.0):
    """function(rank, size, *arguments) on `size` ranks in a process group; their results in rank order. AssertionError: a rank raised,
    died, or had not ended in time."""
    context = multiprocessing.get_context("fork")
    if emulated.DEVICE != "cpu":
        emulated.build()
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(size):
            mine, theirs = context.Pipe(duplex=False)
            process = context.Process(
                target=in_rank, args=(rank, size, os.path.join(folder, "store"), backend, setup, function, arguments, theirs)
            )
            process.start()
            theirs.close()
            started.append((process, mine))
        deadline = time.monotonic() + seconds
        outcomes = []
        for process, pipe in started:
            try:
                ready = pipe.poll(max(0.0, deadline - time.monotonic()))
                outcomes.append(pickle.loads(pipe.recv_bytes()) if ready else (False, f"had not ended after {seconds} s"))
            except EOFError:
                outcomes.append((False, "died"))
        for process, _ in started:
            process.join(0.5 if all(ok for ok, _ in outcomes) else 0.1)
            if process.is_alive():
                process.kill()
                process.join()
    failures = [f"rank {rank}: {text}" for rank, (ok, text) in enumerate(outcomes) if not ok]
    assert not failures, "\n".join(failures)
    return [result for _, result in outcomes]
