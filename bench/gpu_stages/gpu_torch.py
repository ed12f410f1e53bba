"""PyTorch with CUDA tensors, for bench/gpu: torch_rows.py, with the PyTorch that the machine has."""
import json
import pathlib
import shutil

from timed_rows import say

LIBRARY = "adapters/c/libgradwire.so.1"  # in the build folder, and its target
ROOT = pathlib.Path(__file__).resolve().parents[2]
PROBE = ("import torch; assert torch.cuda.is_available(), 'torch.cuda.is_available() is False'; "
         "assert hasattr(torch.Stream, 'native_handle'), 'streams have no native_handle'; print(torch.__version__)")
RUN_SECONDS = 120
LEAST_SECONDS = 20
RANKS = (2, 4)


def python_with_torch(run):
    """(program, why not): a Python that has a PyTorch with CUDA whose streams can be told of."""
    why = "no Python with PyTorch (expected --python, or python3 in PATH)"
    for program in filter(None, map(shutil.which, (run.options.python, "python3"))):
        outcome = run.commands.run([program, "-c", PROBE], min(LEAST_SECONDS, run.clock.left()))
        if outcome.status == 0:
            return program, ""
        why = f"{program}: {outcome.why()}"
    return None, why


def run_torch(run):
    run.stage = "PyTorch"
    row = {"bench": "torch", "device": "cuda"}
    if run.no_device:
        run.rows.add_left_out(run.stage, row, f"there is no GPU: {run.no_device}")
        return
    program, why = python_with_torch(run)
    if program is None:
        run.rows.add_left_out(run.stage, row, why)
        return
    if not run.make(LIBRARY):
        return
    env = {**run.build.env, "GRADWIRE_LIBRARY": str((run.build.folder / LIBRARY).resolve()), "PYTHONPATH": str(ROOT / "python"),
           "GRADWIRE_CACHE": str((run.build.folder / "torch-extension").resolve())}
    for ranks in RANKS:
        for transport in ("auto", "nccl"):
            run.attempt(f"PyTorch, {ranks} ranks, {transport}", measure, run, program, env, ranks, transport)


def measure(run, program, env, ranks, transport):
    run.stage = f"PyTorch, {ranks} ranks, {transport}"
    row = {"bench": "torch", "device": "cuda", "ranks": ranks, "transport": transport}
    if run.earlier.has(row):
        return
    limit = min(RUN_SECONDS, run.clock.left())
    if limit < LEAST_SECONDS:
        run.rows.add_left_out(run.stage, row, run.time_is_over())
        return
    say(run.stage)
    if transport == "nccl":  # from 2.30 on ranks may share a GPU where they say so
        env = {**env, "NCCL_MULTI_RANK_GPU_ENABLE": "1", "NCCL_NVLS_ENABLE": "0", "NCCL_MAX_CTAS": "2"}

    def take(line):
        try:
            said = json.loads(line)
        except ValueError:
            return False
        if "failed" in said:
            run.rows.failed.append(f"{run.stage}: {said.get('case')} {said.get('spec', '')}".strip())
        run.rows.add(said)
        return True

    command = [program, str(ROOT / "bench/gpu_stages/torch_rows.py"), "--ranks", str(ranks), "--transport", transport]
    outcome = run.commands.run(command, limit, on_line=take, env=env, apart=True)
    if outcome.timed_out and limit < RUN_SECONDS:
        run.rows.add_left_out(run.stage, row, f"{outcome.why()}, of --seconds {run.clock.seconds:g}")
    elif outcome.status != 0 and not any(what.startswith(run.stage) for what in run.rows.failed):
        run.rows.add_failed(run.stage, row, outcome.why())
    elif outcome.status == 0:
        run.rows.add({**row, "case": "end", "seconds": outcome.seconds})
