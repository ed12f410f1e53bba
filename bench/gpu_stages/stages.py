#!/usr/bin/env python3
"""Builds what runs on a GPU, compares coders with the host, measures them, runs the suite `gpu`, trains, and calls PyTorch, within a time.

    bench/gpu [--seconds N] [--deps DIR] [--build DIR] [--out FILE] [--archs LIST] [--python PROGRAM] [--elements N] [--full] [--resume]
              [-- SPEC...]

Needs a CUDA toolkit and a C++ compiler; no network. Results are JSON lines, printed and added to FILE as they come: whatever
ends the run, what was found before is there. Progress goes to standard error.

    --seconds N       for everything, default 500. What did not fit is a row with "left_out"
    --deps DIR        what `./check --prefetch DIR` fetched: libraries, Meson and Ninja are taken from there
    --build DIR       default build-gpu
    --out FILE        default gpu.jsonl in the build folder
    --archs LIST      -Dgpu_archs; default: those of the GPUs that nvidia-smi sees, else 'sm_80;sm_90'
    --python PROGRAM  the Python whose environment has cuBLAS and NCCL (-Dnvidia_python), and PyTorch
    --elements N      of the gradients that are measured (gpu_bench's)
    --full            the laws of errors over hundreds of steps, too
    --resume          leaves out what FILE has of the same commit, GPUs and --elements: what failed or was left out is done again
    SPEC...           methods to measure; default: those with kernels

Stages, in this order: gpu_bench is built; each method does two steps beside the host; each method is measured in a process of its
own; the suite is built, and run two tests at a time; the trainer trains, with its losses beside the host's; PyTorch's tensors, where
a PyTorch with CUDA is here; compute-sanitizer, where it is here, runs some of the tests. Exit status 1: something failed, which a row says; 77:
there is no GPU, and nothing was measured; else 0, also where rows were left out.
"""
import argparse
import json
import os
import pathlib
import signal
import sys
import time

import gpu_build
import gpu_suite
import gpu_torch
import gpu_trainer
from earlier_rows import EarlierRows
from timed_rows import Clock, Commands, Rows, say

NO_DEVICE = 77
PROGRAM = "bench/gpu_bench"  # in the build folder, and its target
SMOKE_SECONDS = 30  # for what is left of the smoke test
SPEC_SECONDS = 30  # for one method, with the start of CUDA
LEAST_SECONDS = 2  # that are worth beginning something
BUILD_SHARE = 0.75  # of what is left


class Stopped(BaseException):
    """A signal asks for the end: no stage's error."""


class Arguments(argparse.ArgumentParser):
    def error(self, message):
        print(f"gradwire: error: {message} (bench/gpu --help)", file=sys.stderr)
        sys.exit(1)


def parse(words):
    parser = Arguments(prog="bench/gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
                       usage=argparse.SUPPRESS, allow_abbrev=False)
    for name, default in (("deps", ""), ("build", "build-gpu"), ("out", ""), ("archs", ""), ("python", ""), ("elements", "")):
        parser.add_argument(f"--{name}", default=default, help=argparse.SUPPRESS)
    parser.add_argument("--seconds", type=float, default=500, help=argparse.SUPPRESS)
    for name in ("full", "resume"):
        parser.add_argument(f"--{name}", action="store_true", help=argparse.SUPPRESS)
    dashes = words.index("--") if "--" in words else len(words)
    options = parser.parse_args(words[:dashes])
    options.specs = words[dashes + 1:]
    if not options.seconds > 0:
        parser.error(f"--seconds must be above 0 (got {options.seconds:g})")
    return options


class Run:
    def __init__(self, options, gpus):
        self.options = options
        self.clock = Clock(options.seconds)
        self.build = gpu_build.Build(options.build, options.deps, options.python,
                                     options.archs or gpu_build.wanted_archs(gpus))
        self.jobs = gpu_build.wanted_jobs()
        self.gpus = gpus
        self.has_gpu = gpu_build.sees_gpu(gpus)
        out = options.out or f"{options.build}/gpu.jsonl"
        pathlib.Path(out).absolute().parent.mkdir(parents=True, exist_ok=True)
        self.begun = {"bench": "run", "began": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "seconds": self.clock.seconds, "cards": gpus,
                      "archs": self.build.options["gpu_archs"], "elements": options.elements,
                      "commit": gpu_build.output_of("git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude", "*")}
        self.earlier = EarlierRows(out if options.resume else "", self.begun)
        self.rows = Rows(out)
        self.commands = Commands()
        self.stage = "begin"
        self.no_device = ""  # what CUDA says of that

    def begin(self):
        nvcc = gpu_build.output_of(gpu_build.nvcc_program() or "nvcc", "--version").split("\n")
        self.rows.add({**self.begun, "nvcc": nvcc[-1], "host": os.uname().nodename, "jobs": self.jobs})
        if self.earlier.done:
            say(f"{len(self.earlier.done)} pieces of work are done already")

    def make(self, target):
        """Whether the target is there, and new. Without PROGRAM in time the run has failed."""
        if self.clock.left() < LEAST_SECONDS:
            self.rows.add_left_out(f"build of {target}", {"bench": "build", "target": target}, self.time_is_over())
            return False
        say(f"building {target} in {self.build.folder} with {self.jobs} jobs")
        outcome = self.build.make(self.commands, target, self.jobs, BUILD_SHARE * self.clock.left())
        row = {"bench": "build", "target": target, "seconds": outcome.seconds}
        if outcome.status == 0:
            self.rows.add({**row, "outcome": "built"})
        elif outcome.timed_out and target != PROGRAM:
            self.rows.add_left_out(f"build of {target}", row, f"{outcome.why()}, of --seconds {self.clock.seconds:g}")
        else:
            self.rows.add_failed(f"build of {target}", row, outcome.why())
        return outcome.status == 0

    def time_is_over(self):
        return f"{self.clock.left():.0f} s of --seconds {self.clock.seconds:g} were left"

    def configure(self):
        outcome = self.build.configure(self.commands, self.clock.left())
        if outcome is None or outcome.status == 0:
            return True
        self.rows.add_failed("configuring", {"bench": "build", "target": "", "seconds": outcome.seconds}, outcome.why())
        say("\n".join(outcome.lines))
        return False

    def wanted_specs(self, kind):
        """Those without rows of this kind yet, in their order."""
        program = str(self.build.folder / PROGRAM)
        specs = self.options.specs or gpu_build.output_of(program, "--list").split()
        if not specs:
            self.rows.add_failed("gpu_bench", {"bench": kind}, f"{program} --list says nothing")
        return [spec for spec in specs if not all(self.earlier.has(codec_row(spec, feedback, kind)) for feedback in ("none", "ef14"))]

    def smoke_all(self):
        """All in one process; where that ends early, the spec whose rows are missing is at fault, and the next are tried anew."""
        program = str(self.build.folder / PROGRAM)
        specs = self.wanted_specs("smoke")
        while specs and not self.no_device:
            limit = min(SMOKE_SECONDS, self.clock.left())
            if limit < LEAST_SECONDS:
                for spec in specs:
                    self.rows.add_left_out(f"smoke of {spec}", {"bench": "smoke", "spec": spec}, self.time_is_over())
                return
            self.stage = f"smoke from {specs[0]} on"
            said = {}

            def take(line):
                try:
                    row = json.loads(line)
                except ValueError:
                    return False
                said[row.get("spec")] = said.get(row.get("spec"), 0) + 1
                if "failed" in row:
                    say(f"smoke of {row.get('spec')} failed: {row['failed']}")
                    self.rows.failed.append(f"smoke of {row.get('spec')}, feedback {'ef14' if row.get('feedback') else 'none'}")
                self.rows.add(row)
                return True

            outcome = self.commands.run([program, "--smoke", *specs], limit, on_line=take, apart=True)
            if outcome.status == NO_DEVICE:
                self.miss_device(outcome.lines[-1].split("skipped: ", 1)[-1] if outcome.lines else "gpu_bench says so", "smoke")
                return
            missing = [spec for spec in specs if said.get(spec, 0) < 2]
            if missing and outcome.timed_out and limit < SMOKE_SECONDS:
                specs = missing
                continue  # the run's time is over, as the next round says
            if missing:
                self.rows.add_failed(f"smoke of {missing[0]}", {"bench": "smoke", "spec": missing[0]}, outcome.why())
            specs = missing[1:]

    def measure_all(self):
        program = str(self.build.folder / PROGRAM)
        for spec in self.wanted_specs("codec"):
            if self.no_device:
                return
            self.stage = f"measuring {spec}"
            self.measure(program, spec)

    def measure(self, program, spec):
        """With and without error feedback: in one process, unless that ends before it has said all."""
        missing = [feedback for feedback in ("none", "ef14") if not self.earlier.has(codec_row(spec, feedback))]

        def take(line):
            try:
                row = json.loads(line)
            except ValueError:
                return False
            if row.get("bench") == "copy":
                row["spec"] = spec
            feedback = "ef14" if row.get("feedback") else "none"
            if "failed" in row:
                self.rows.failed.append(f"{spec}, feedback {feedback}")
            if row.get("bench") == "codec" and row.get("stage") != "encode" and feedback in missing:
                missing.remove(feedback)  # all that comes of it
            self.rows.add(row)
            return True

        while missing:
            limit = min(SPEC_SECONDS, self.clock.left())
            if limit < LEAST_SECONDS:
                for feedback in missing:
                    self.rows.add_left_out(f"{spec}, feedback {feedback}", codec_row(spec, feedback), self.time_is_over())
                return
            before = len(missing)
            command = [program, "--feedback", "both" if before == 2 else missing[0]]
            command += ["--elements", self.options.elements] * bool(self.options.elements) + [spec]
            outcome = self.commands.run(command, limit, on_line=take, apart=True)
            if outcome.status == NO_DEVICE and before == len(missing):
                self.miss_device(outcome.lines[-1].split("skipped: ", 1)[-1] if outcome.lines else "gpu_bench says so")
                return
            if not missing:  # all was said before it ended
                if outcome.timed_out:
                    say(f"{spec}: gpu_bench said all and did not end ({outcome.why()})")
                return
            if outcome.timed_out and limit < SPEC_SECONDS:
                self.rows.add_left_out(f"{spec}, feedback {missing[0]}", codec_row(spec, missing.pop(0)), self.time_is_over())
            elif len(missing) == before or outcome.timed_out or outcome.status < 0:
                feedback = missing.pop(0)
                self.rows.add_failed(f"{spec}, feedback {feedback}", codec_row(spec, feedback), outcome.why())

    def miss_device(self, why, kind="codec"):
        self.no_device = why
        row = {"bench": kind}
        if self.has_gpu:  # what is here is of no use: no reason to be content
            self.rows.add_failed("gpu_bench", row, f"a GPU is here, and CUDA finds none: {why}")
        else:
            self.rows.add({**row, "skipped": why})
            say(f"no GPU: nothing was measured ({why})")

    def attempt(self, what, stage, *arguments):
        """What stage() answers. What it did not foresee is a row, and the next stage begins."""
        try:
            return stage(*arguments)
        except gpu_build.BuildError as error:
            self.rows.add_failed(what, {"bench": "run"}, str(error))
        except Exception as error:
            self.rows.add_failed(what, {"bench": "run"}, f"{type(error).__name__}: {error}")
        return None

    def all_stages(self):
        self.begin()
        self.stage = "configuring"
        if not self.attempt(self.stage, self.configure):
            return
        self.stage = f"building {PROGRAM}"
        if self.attempt(self.stage, self.make, PROGRAM):
            self.attempt("the smoke test", self.smoke_all)
            self.attempt("measuring", self.measure_all)
        self.attempt("the suite", gpu_suite.run_suite, self)
        self.attempt("the trainer", gpu_trainer.run_trainer, self)
        self.attempt("PyTorch", gpu_torch.run_torch, self)
        self.attempt("compute-sanitizer", gpu_suite.run_sanitizer, self)

    def end(self, stopped=""):
        row = {"bench": "run", "ended": "stopped" if stopped else "failed" if self.rows.failed else "done",
               "seconds": round(self.clock.passed(), 1), "failed": self.rows.failed, "left_out": self.rows.left_out}
        if stopped:
            row.update({"stopped": stopped, "during": self.stage})
        self.rows.end({**row, "cards": [] if stopped else gpu_build.gpu_facts()})
        say(f"{self.rows.number} rows in {self.rows.path}, after {row['seconds']} s")
        for name, what in (("failed", self.rows.failed), ("left out", self.rows.left_out)):
            if what:
                say(f"{name}: {'; '.join(what)}")
        if self.rows.failed:
            return 1
        return NO_DEVICE if self.no_device else 0


def codec_row(spec, feedback, kind="codec"):
    return {"bench": kind, "spec": spec, "feedback": feedback == "ef14"}


def stop(number, _):
    for one in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    raise Stopped(number)


def main():
    options = parse(sys.argv[1:])
    try:
        run = Run(options, gpu_build.gpu_facts())
    except (gpu_build.BuildError, OSError) as error:
        print(f"gradwire: error: {error}", file=sys.stderr)
        return 1
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, stop)
    try:
        run.all_stages()
    except Stopped as stopped:
        number = signal.Signals(stopped.args[0])
        run.end(number.name)  # first: who asked may not wait
        run.commands.end_all()
        os._exit(128 + number)
    status = run.end()
    run.commands.end_all()
    return status


if __name__ == "__main__":
    sys.exit(main())
