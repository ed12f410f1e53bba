"""Result rows that are written as they come, and commands that end in time: what bench/gpu's stages share."""
import collections
import json
import os
import signal
import subprocess
import sys
import threading
import time

LAST_LINES = 100  # of a command's output, for the report of a failure
RESERVE = 4  # seconds of a run's time that are kept for ending what runs, and for the last row
GRACE = 3  # seconds from SIGTERM to SIGKILL


def say(text):
    show(f"bench/gpu: {text}")


def show(line):
    """Nobody may be there to read it any more."""
    try:
        sys.stderr.write(f"{line}\n")  # at once, whichever thread says it
        sys.stderr.flush()
    except OSError:
        pass


class Clock:
    """The seconds of a run."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.began = time.monotonic()

    def passed(self):
        return time.monotonic() - self.began

    def left(self):
        return max(0.0, self.seconds - RESERVE - self.passed())


class Rows:
    """JSON lines, added to what the file holds already, each flushed, and printed. From several threads."""

    def __init__(self, path):
        self.path = path
        self.number = 0
        self.failed = []
        self.left_out = []
        self._file = open(path, "a", encoding="utf-8")
        self._lock = threading.Lock()

    def add(self, row):
        with self._lock:
            if self._file.closed:
                return  # of what was ended, too
            line = json.dumps(row)
            self._file.write(line + "\n")
            self._file.flush()
            self.number += 1
            try:
                print(line, flush=True)
            except OSError:
                pass  # nobody reads any more; the file is what counts

    def add_failed(self, what, row, why):
        say(f"{what} failed: {why}")
        self.failed.append(what)
        self.add({**row, "failed": why})

    def end(self, row):
        """The last row."""
        self.add(row)
        with self._lock:
            self._file.close()

    def add_left_out(self, what, row, why):
        self.left_out.append(what)
        self.add({**row, "left_out": why})


class Outcome:
    """How a command ended."""

    def __init__(self, status, seconds, limit, lines):
        self.status = status  # None: it took longer than its limit; below 0: a signal's
        self.seconds = round(seconds, 3)
        self.limit = limit
        self.lines = lines  # the last ones

    @property
    def timed_out(self):
        return self.status is None

    def why(self):
        """Why it did not end with 0: what ended it, and its last line, or all lines that speak of errors."""
        if self.timed_out:
            how = f"not done within {self.limit:.0f} s"
        elif self.status < 0:
            how = f"ended by {signal.Signals(-self.status).name}"
        else:
            how = f"exit status {self.status}"
        spoken = [line for line in self.lines if "error" in line.lower() or "FAILED" in line] or self.lines[-1:]
        return ": ".join([how] + ["\n".join(spoken)[-2000:]] * bool(spoken))


class Commands:
    """Runs commands, each in a process group of its own, and can end them all."""

    def __init__(self):
        self._live = set()
        self._lock = threading.Lock()

    def run(self, command, limit, on_line=None, echo=False, env=None, apart=False):
        """Waits for `command`, at most `limit` seconds. Each line of its output goes to on_line(line), which says
        whether it took it; what it did not take is kept for the Outcome, and with `echo` shown as it comes.
        `apart`: on_line hears of standard output alone, and standard error is but kept."""
        began = time.monotonic()
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE if apart else subprocess.STDOUT, text=True, errors="replace",
                                   env=env, start_new_session=True)
        with self._lock:
            self._live.add(process)
        last = collections.deque(maxlen=LAST_LINES)

        def read(stream, taken):
            for line in stream:
                line = line.rstrip("\n")
                if taken and taken(line):
                    continue
                last.append(line)
                if echo:
                    show(line)

        readers = [threading.Thread(target=read, args=(process.stdout, on_line), daemon=True)]
        if apart:
            readers.append(threading.Thread(target=read, args=(process.stderr, None), daemon=True))
        for reader in readers:
            reader.start()
        status = self._wait(process, limit)  # what interrupts it leaves the process to end_all()
        with self._lock:
            self._live.discard(process)
        for reader in readers:  # it may have left a child that holds the pipe
            reader.join(GRACE)
        return Outcome(status, time.monotonic() - began, limit, list(last))

    @staticmethod
    def _wait(process, limit):
        try:
            return process.wait(limit)
        except subprocess.TimeoutExpired:
            end_group(process)
            return None

    def end_all(self):
        with self._lock:
            live = list(self._live)
        for process in live:
            end_group(process)


def end_group(process):
    """SIGTERM, and a little later SIGKILL, to a process and what it has started. What the kernel holds on to is left."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            pass
        try:
            process.wait(GRACE)
            if number == signal.SIGKILL:
                return
        except subprocess.TimeoutExpired:
            pass
