"""One rank of a job that a launcher starts, in which one rank fails around a step of DDP.

    fault_rank.py FOLDER (SIGKILL|SIGSTOP|late) (before|during|after) LIVENESS [SPEC]

Each rank leaves in FOLDER its process number, pid-R; the failing one the time of its fault, fault; a survivor what its backward or
next collective raised, raised-R, and how long it took to leave the group, left-R. Times are of the machine's monotonic clock. Survivors
end with status 3. "late": the rank sleeps, and nobody may fail.
"""

import datetime
import json
import os
import pathlib
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import gradwire.torch
import training

DOOMED = 1
STEPS_BEFORE = 2
OPERATION_SECONDS = 300.0
PATIENCE = 300.0
SURVIVOR_STATUS = 3
LATE_SECONDS = "GRADWIRE_TEST_LATE"


def leave(folder, name, content):
    """A file that is whole as soon as it is there."""
    part = pathlib.Path(folder) / f"{name}.part"
    part.write_text(json.dumps(content), encoding="utf-8")
    part.rename(pathlib.Path(folder) / name)


def wait_for(folder, names):
    """Until all are there, or patience ends."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline and not all((pathlib.Path(folder) / name).exists() for name in names):
        time.sleep(0.01)


def rank_and_size():
    """As gradwire run or torchrun say."""
    prefix = "GRADWIRE_" if "GRADWIRE_RANK" in os.environ else ""
    return int(os.environ[f"{prefix}RANK"]), int(os.environ[f"{prefix}WORLD_SIZE"])


def fail(folder, how):
    if how == "late":
        time.sleep(float(os.environ[LATE_SECONDS]))
        return
    leave(folder, "fault", time.monotonic())
    os.kill(os.getpid(), getattr(signal, how))


def doomed(folder, how, moment, wrapped, optimizer, rank):
    """Fails at its moment. What a late rank, or a stopped one that was continued, does after it: one step like the others."""
    if moment == "before":
        fail(folder, how)
    elif moment == "during":  # in the backward, when its bucket is not yet on its way
        next(wrapped.module.parameters()).register_hook(lambda gradient: fail(folder, how))
    training.step_of(wrapped, optimizer, rank, STEPS_BEFORE)
    if moment == "after":
        fail(folder, how)


def survive(folder, wrapped, optimizer, rank, size):
    """Steps until one raises."""
    deadline = time.monotonic() + PATIENCE
    step = STEPS_BEFORE
    outcome = ("nothing", "", 0.0)
    while outcome[0] == "nothing" and time.monotonic() < deadline:
        try:
            training.step_of(wrapped, optimizer, rank, step)
            step += 1
        except RuntimeError as error:
            outcome = (type(error).__name__, str(error), time.monotonic())
    leave(folder, f"raised-{rank}", outcome)
    # Who leaves before is lost to those that have noticed nothing yet.
    wait_for(folder, [f"raised-{other}" for other in range(size) if other != DOOMED])
    started = time.monotonic()
    dist.destroy_process_group()
    leave(folder, f"left-{rank}", time.monotonic() - started)


def main(folder, how, moment, liveness, spec=None):
    torch.set_num_threads(1)
    rank, size = rank_and_size()
    leave(folder, f"pid-{rank}", os.getpid())
    dist.init_process_group(
        "gradwire", rank=rank, world_size=size, store=dist.FileStore(os.path.join(folder, "store"), size),
        timeout=datetime.timedelta(seconds=60 if how == "late" else OPERATION_SECONDS),
        pg_options=gradwire.torch.Options(liveness=float(liveness)),
    )
    wrapped = DistributedDataParallel(training.mlp())
    if spec:
        gradwire.torch.compress(wrapped, spec)
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.01)
    for step in range(STEPS_BEFORE):
        training.step_of(wrapped, optimizer, rank, step)
    dist.barrier()
    if how == "late":
        if rank == DOOMED:
            doomed(folder, how, moment, wrapped, optimizer, rank)
        else:
            training.step_of(wrapped, optimizer, rank, STEPS_BEFORE)
        training.same_on_all(rank, size, wrapped.module, "a late rank")
        dist.destroy_process_group()
        return 0
    if rank == DOOMED:
        doomed(folder, how, moment, wrapped, optimizer, rank)
        return SURVIVOR_STATUS
    survive(folder, wrapped, optimizer, rank, size)
    return SURVIVOR_STATUS


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
