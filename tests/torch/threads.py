"""Ranks as threads of one process, each on a device of its own, over the NCCL that the tests play: its ranks are threads.

PyTorch's process groups are the thread's, as its own tests with ranks as threads have them.
"""

import ctypes
import datetime
import os
import pathlib
import subprocess
import tempfile
import threading
import traceback

import torch
import torch.distributed as dist
from torch.testing._internal.distributed import multi_threaded_pg

import emulated
import gradwire.torch
import ranks


class _Noticing(dist.Store):
    """A store that releases the lock when gradwire asks for something after its first number: it has read the environment then."""

    def __init__(self, store, lock):
        super().__init__()
        self._store, self._lock, self._begun = store, lock, False

    def _notice(self, key):
        if self._lock is None:
            return
        if "gradwire-uses" in key:
            self._begun = True
        elif self._begun:
            self._lock.release()
            self._lock = None

    def set(self, key, value):
        self._notice(key)
        self._store.set(key, value)

    def get(self, key):
        self._notice(key)
        return self._store.get(key)

    def add(self, key, value):
        self._notice(key)
        return self._store.add(key, value)

    def wait(self, keys, timeout=datetime.timedelta(seconds=300)):
        self._notice(keys[0])
        self._store.wait(keys, timeout)


def _library():
    """The played NCCL of the build whose library this is: that dlopen() finds it by its name from now on."""
    path = pathlib.Path(os.environ["GRADWIRE_LIBRARY"]).resolve().parents[2] / "comm/nccl/libnccl.so.2"
    ctypes.CDLL(str(path))
    return str(path)


def _hide_ucx():
    """Loads a library of UCX's name that has none of its functions, which the library finds then: messages go over TCP."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "libucp.so.0")
        subprocess.run(["g++", "-shared", "-x", "c", "/dev/null", "-Wl,-soname,libucp.so.0", "-o", path], check=True, timeout=300)
        ctypes.CDLL(path)


def _in_thread(rank, size, node, inter_node, store, lock, function, arguments, results):
    try:
        backend = emulated.use("gradwire", rank)
        assert lock.acquire(timeout=ranks.GROUP_SECONDS), "another rank did not come to its store"
        os.environ["GRADWIRE_NODE"] = node
        with torch.autograd.set_multithreading_enabled(False):  # else a device has one thread for all ranks
            dist.init_process_group(backend, rank=rank, world_size=size, store=_Noticing(store, lock),
                                    timeout=datetime.timedelta(seconds=ranks.GROUP_SECONDS),
                                    pg_options=gradwire.torch.Options(transport=f"nccl:{rank}", inter_node=inter_node))
            results[rank] = (True, ranks.on_host(function(rank, size, *arguments)))
            dist.destroy_process_group()
    except BaseException:  # noqa: BLE001: whatever it is, the caller shall print it
        results[rank] = (False, traceback.format_exc())


def _threads(_rank, _size, nodes, tcp, inter_node, function, arguments):
    if tcp:
        _hide_ucx()
    calls = emulated.load()
    calls.play_nccl(_library())
    torch._C._distributed_c10d._set_thread_isolation_mode(True)
    multi_threaded_pg._install_threaded_pg()
    store, lock, results = dist.HashStore(), threading.Lock(), [(False, "has not ended")] * len(nodes)
    started = [threading.Thread(target=_in_thread, args=(r, len(nodes), nodes[r], inter_node, store, lock, function, arguments, results), daemon=True)
               for r in range(len(nodes))]
    for thread in started:
        thread.start()
    for thread in started:
        thread.join()
    multi_threaded_pg._uninstall_threaded_pg()
    torch._C._distributed_c10d._set_thread_isolation_mode(False)
    failures = [f"rank {r}: {text}" for r, (ok, text) in enumerate(results) if not ok]
    assert not failures, "\n".join(failures)
    return [result for _, result in results], calls.take_nccl_log()


def run(nodes, function, *arguments, tcp=False, inter_node="", seconds=300.0):
    """function(rank, size, *arguments) on a rank for each name of a node in `nodes`, whose transport is NCCL; their results in rank order,
    and what NCCL was called for. Messages go over TCP, or over UCX where it is. AssertionError: as of ranks.run()."""
    return ranks.run(1, _threads, nodes, tcp, inter_node, function, arguments, backend="gloo", seconds=seconds)[0]
