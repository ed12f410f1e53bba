#!/usr/bin/env python3
"""The command line: every example of every --help runs, JSON is alone on standard output, exit statuses, completion in bash, and
docs/cli.md says what the program says. usage: cli_test.py GRADWIRE
"""
import json
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import unittest

GRADWIRE = os.path.abspath(sys.argv.pop(1))
ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/cli.md"
LIMIT = 100  # seconds for one command
# What runs before a program of MPI does, and starts nothing.
MPIRUN = '#!/bin/sh\nshift 2\nexec "$@"\n'
# Examples that cannot succeed on every machine, what is added to them, and what they must say instead of a complaint about flags.
ELSEWHERE = {"mpi": ("", "tell which MPI"), "record": ("", "tell which MPI"),
             "data fetch": (" --url http://127.0.0.1:9/none", "cannot fetch")}
# Whose rows of the page have the keys of each kind of line.
SEARCHES = {"`plan --cluster`", "`plan search`"}
CLUSTER = """[device.cpu]
memory = "1G"
macs_per_second = 1e9
[link.wire]
latency = 1e-5
bandwidth = 1e8
[[node]]
name = "node"
devices = 2
device = "cpu"
link = "wire"
"""
RECORD = {"version": 1, "rank": 0, "size": 2, "generation": 0, "message": "rank 1 lost", "lost": [1], "operations": [
    {"communicator": 0, "number": 3, "name": "all_reduce", "elems": 7, "state": "failed", "waiting_for": [1]}]}


def environment(**more):
    values = {name: value for name, value in os.environ.items() if not name.startswith("GRADWIRE_")}
    return {**values, "PATH": f"{os.path.dirname(GRADWIRE)}:{values['PATH']}", **more}


def gradwire(*words, folder=None, **more):
    return subprocess.run([GRADWIRE, *words], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=LIMIT,
                          cwd=folder, env=environment(**more))


def helps():
    """The words of every command that has flags, and its help."""
    todo, found = [()], {}
    while todo:
        words = todo.pop(0)
        text = gradwire(*words, "--help").stdout
        listed = re.search(r"\nCommands:\n((?:  \S.*\n)+)", text)
        if listed:
            todo += [words + (line.split()[0],) for line in listed.group(1).splitlines()]
        found[words] = text
    return found


def rows(page, heading):
    """The cells of the table below a heading, without code marks."""
    section = page.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    table = [line for line in section.splitlines() if line.startswith("|")][2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table]


class Help(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.helps = helps()

    def test_every_example_runs(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "mpirun").write_text(MPIRUN)
            (folder / "mpirun").chmod(0o755)
            (folder / "records").mkdir()
            (folder / "records/rank-0.json").write_text(json.dumps(RECORD))
            (folder / "program").write_text("#!/bin/sh\n")
            (folder / "program").chmod(0o755)
            path = f"{folder}:{environment()['PATH']}"
            for words, text in self.helps.items():
                name = " ".join(words)
                examples = re.search(r"\nExamples?:\n((?:  .*\n)+)$", text)
                self.assertIsNotNone(examples, f"gradwire {name} --help ends without an example")
                for example in examples.group(1).splitlines():
                    more, instead = ELSEWHERE.get(name, ("", None))
                    with self.subTest(example.strip()):
                        done = subprocess.run(["bash", "-euo", "pipefail", "-c", example + more], capture_output=True, text=True,
                                              stdin=subprocess.DEVNULL, timeout=LIMIT, cwd=folder, env=environment(PATH=path))
                        if instead is None:
                            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                        else:
                            self.assertEqual(done.returncode, 1)
                            self.assertRegex(done.stderr, f"{instead}|has no libcurl")

    def test_usage_and_width(self):
        for words, text in self.helps.items():
            with self.subTest(" ".join(words)):
                self.assertRegex(text, rf"^usage: gradwire {' '.join(words)}")
                long = [line for line in text.split("\n\nExample")[0].splitlines() if len(line) > 80 and len(line.split()) > 2]
                self.assertEqual(long, [])
                self.assertEqual(gradwire("help", *words).stdout, text)

    def test_the_page_lists_the_commands_with_their_help(self):
        said = {}
        for words, text in self.helps.items():
            listed = re.search(r"\nCommands:\n((?:  \S.*\n)+)", text)
            for line in listed.group(1).splitlines() if listed else ():
                name, help_text = line.split(None, 1)
                said[" ".join((*words, name))] = help_text
        leaves = {name: text for name, text in said.items() if not any(other.startswith(name + " ") for other in said)}
        groups = {name: text for name, text in said.items() if name == "sim"}
        wanted = {f"`gradwire {name}`": text for name, text in leaves.items() if not name.startswith("sim ")}
        wanted["`gradwire sim OPERATION`"] = "algorithms of a collective operation on a modelled network"
        self.assertEqual(list(groups), ["sim"])
        self.assertEqual(dict(rows(PAGE.read_text(), "Commands")), wanted)

    def test_the_page_shows_what_is_printed(self):
        block = re.search(r"```text\n(.*?)```", PAGE.read_text(), re.S).group(1)
        shown = re.findall(r"\$ gradwire (.*)\n((?:(?!\$ ).*\n)*)", block)
        self.assertEqual(len(shown), 2)
        for words, text in shown:
            self.assertEqual(gradwire(*shlex.split(words)).stderr, text)


    def test_the_page_of_pipelines_shows_what_is_printed(self):
        page = (ROOT / "docs/pipelines.md").read_text()
        block = re.search(r"```text\n(.*?)```", page, re.S).group(1)
        command = re.search(r"gradwire (sim pipeline .*--picture)\n", page).group(1)
        self.assertEqual(gradwire(*shlex.split(command)).stdout.split("\n\n", 1)[1], block)

    def test_simulated_pipelines_say_how_many_micro_batches_a_row_is_of(self):
        table = gradwire("sim", "pipeline", "--schedules", "1f1b;2bw", "--micro-batches", "4", "--steps", "3").stdout.splitlines()
        self.assertEqual(table[1].split()[:3], ["schedule", "micro-batches", "makespan"])
        self.assertEqual([row.split()[:2] for row in table[2:]], [["1f1b", "4"], ["2bw", "12"]])


class Json(unittest.TestCase):
    def lines(self, *words):
        done = gradwire(*words)
        self.assertEqual(done.returncode, 0, done.stderr)
        return [json.loads(line) for line in done.stdout.splitlines()]

    def test_standard_output_holds_the_documented_objects_alone(self):
        quick = ("--inproc", "2", "--min", "1K", "--max", "1K", "--seconds", "0.001")
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            payload, recipe = str(folder / "p.bin"), str(folder / "recipe.json")
            (folder / "recipe.json").write_text('{"elements": 100, "seeds": 2, "rows": [{"spec": "qsgd:bits=4"}]}')
            (folder / "rank-0.json").write_text(json.dumps(RECORD))
            calls = [("`bench` OPERATION", ("bench", "all_reduce", *quick)),
                     ("`bench codecs`", ("bench", "codecs", "--elements", "1000", "--rounds", "1", "--compressors", "none")),
                     ("`bench exchange`", ("bench", "exchange", *"--transport tcp --elements 64 --rounds 2 --pause 0".split())),
                     ("`bench gemm`", ("bench", "gemm", *"--rows 8 --width 8 --tp 2 --seconds 0.001".split())),
                     ("`doctor`", ("doctor",)),
                     ("`inspect compressors`", ("inspect", "compressors")),
                     ("`inspect models`", ("inspect", "models")),
                     ("`inspect data`", ("inspect", "data")),
                     ("`inspect data` SET", ("inspect", "data", "digits")),
                     ("`inspect data` SET", ("inspect", "data", "grammar")),
                     ("`inspect nmse`", ("inspect", "nmse", "--recipe", recipe)),
                     ("`inspect schedule`", ("inspect", "schedule", "ring", "3")),
                     ("`inspect schedule pipeline`", ("inspect", "schedule", "pipeline", "1f1b", "2", "3")),
                     ("`inspect flight`", ("inspect", "flight", scratch)),
                     ("`inspect encode`", ("inspect", "encode", "topk:k=3", "--elements", "100", "--out", payload)),
                     ("`inspect payload`", ("inspect", "payload", payload)),
                     ("`plan`", ("plan", *"--layers 4 --width 64 --heads 4 --sequence 64 --parallel dp=1,pp=2".split())),
                     ("`plan --explain`", ("plan", *"--explain --layers 4 --width 64 --heads 4 --sequence 64 --vocabulary 9".split())),
                     ("`profile`", ("profile", "--quick", str(folder / "profile.json"))),
                     ("`sim` OPERATION", ("sim", "broadcast", "--ranks", "4", "--bytes", "1K")),
                     ("`sim pipeline`", ("sim", "pipeline", "--ranks", "2")),
                     ("`version`", ("version",))]
            documented = {name: set(re.findall(r"`(\w+)`", keys)) for name, _, keys in rows(PAGE.read_text(), "JSON")}
            self.assertEqual(set(documented) - {name for name, _ in calls}, {"`data fetch`", *SEARCHES})
            for name, words in calls:
                with self.subTest(" ".join(words)):
                    lines = self.lines(*words, "--json")
                    self.assertGreater(len(lines), 0)
                    keys = set().union(*lines)
                    optional = {"expected", "factor", "mean_within", "judged", "expected_bits", "memory", "cost", "traffic", "work", "tensors"}
                    if name == "`inspect data` SET":
                        self.assertLessEqual(keys, documented[name])
                    else:
                        self.assertEqual(documented[name] - keys - optional, set())

    def test_searches_print_the_documented_keys_of_each_kind(self):
        page = {name: keys for name, _, keys in rows(PAGE.read_text(), "JSON")}
        with tempfile.TemporaryDirectory() as scratch:
            cluster = str(pathlib.Path(scratch) / "cluster.toml")
            pathlib.Path(cluster).write_text(CLUSTER)
            search = ("plan", "search", "--graph", "inception", "--cluster", cluster, "--json")
            printed = {"`plan --cluster`": self.lines("plan", *"--model mlp --image 1x8x8 --batch 8 --rows 2 --why 1".split(),
                                                      "--cluster", cluster, "--json"),
                       "`plan search`": self.lines(*search, "--method", "expert") + self.lines(*search, "--method", "dapple")}
        self.assertEqual(set(printed), SEARCHES)
        for name, lines in printed.items():
            wanted = {}
            for kinds, keys in re.findall(r"`kind` \(([^)]*)\): ([^;]*)", page[name]):
                for kind in re.findall(r"`(\w+)`", kinds):
                    wanted[kind] = {"kind", *re.findall(r"`(\w+)`", keys)}
            found = {}
            for line in lines:
                self.assertEqual(found.setdefault(line["kind"], set(line)), set(line), line)
            self.assertEqual(found, wanted, name)

    def test_a_file_leaves_the_table(self):
        with tempfile.TemporaryDirectory() as scratch:
            file = pathlib.Path(scratch) / "rows"
            done = gradwire("sim", "broadcast", "--ranks", "4", "--json", str(file))
            self.assertIn("chosen by auto", done.stdout)
            self.assertEqual(file.read_text(), gradwire("sim", "broadcast", "--ranks", "4", "--json", "-").stdout)

    def test_lists_of_models_and_data_sets_are_the_choices(self):
        for kind, flag in (("models", "--list-models"), ("data", "--list-data")):
            names = [line["name"] for line in self.lines("inspect", kind, "--json")]
            self.assertEqual([line.split()[0] for line in gradwire("train", flag).stdout.splitlines()], names)
            self.assertEqual(self.lines("train", flag, "--json"), self.lines("inspect", kind, "--json"))
            refused = gradwire("train", "--model" if kind == "models" else "--data", "nonesuch").stderr
            self.assertIn(", ".join(names), refused)
            for line in self.lines("inspect", kind, "--json"):
                self.assertTrue(line["help"], line)
        self.assertIn("--json without --list-models or --list-data", gradwire("train", "--json", "--steps", "1").stderr)


class ExitStatus(unittest.TestCase):
    def test_help_and_page_agree(self):
        text = re.search(r"\nExit status:\n((?:  .*\n)+)", gradwire("--help").stdout).group(1)
        text = re.sub(r"\n {6,}", " ", text)
        said = dict(re.match(r"  (128 \+ N|\S+) +(.*)", line).groups() for line in text.splitlines())
        page = {status: meaning.replace("`", "") for status, meaning in rows(PAGE.read_text(), "Exit status")}
        self.assertEqual(said, page)

    def test_each_status(self):
        run = ("run", "-n", "1", "--")
        for status, words in ((0, ("version",)), (1, ("nonesuch",)), (1, ("train", "--steps", "x")),
                              (124, ("run", "-n", "1", "--timeout", "0.2", "--deadline", "0.1", "--", "sleep", "60")),
                              (126, (*run, "/etc/passwd")), (127, (*run, "no-such-program")),
                              (128 + signal.SIGKILL, (*run, "sh", "-c", "kill -9 $$")), (7, (*run, "sh", "-c", "exit 7"))):
            with self.subTest(" ".join(words)):
                self.assertEqual(gradwire(*words).returncode, status)
        recipe = '{"elements": 100, "seeds": 2, "rows": [{"spec": "qsgd:bits=4", "nmse": 1e-30}]}'
        with tempfile.TemporaryDirectory() as scratch:
            (pathlib.Path(scratch) / "r.json").write_text(recipe)
            self.assertEqual(gradwire("inspect", "nmse", "--recipe", "r.json", folder=scratch).returncode, 1)

    def test_a_signal_to_the_launcher(self):
        job = subprocess.Popen([GRADWIRE, "run", "-n", "1", "--deadline", "0.1", "--", "sh", "-c", "echo up; exec sleep 60"],
                               stdout=subprocess.PIPE, text=True, env=environment())
        self.assertIn("up", job.stdout.readline())
        job.send_signal(signal.SIGTERM)
        job.communicate(timeout=LIMIT)
        self.assertEqual(job.returncode, 128 + signal.SIGTERM)


class Nearest(unittest.TestCase):
    def test_each_kind_of_name(self):
        with tempfile.TemporaryDirectory() as scratch:
            folder = pathlib.Path(scratch)
            (folder / "run.toml").write_text("stesp = 3\n")
            (folder / "study.toml").write_text("[train]\nmodle = 'mlp'\n")
            (folder / "top.toml").write_text("seed = 3\n")
            for words, right in ((("trian",), "train"), (("inspect", "compresors"), "compressors"), (("bench", "allreduce"), "all_reduce"),
                                 (("sim", "broadcats"), "broadcast"), (("completion", "bsh"), "bash"), (("train", "--epoch", "1"), "--epochs"),
                                 (("train", "--data", "digit"), "digits"), (("train", "--algorithm", "rign"), "ring"),
                                 (("train", "--transport", "tpc"), "tcp"), (("train", "--optimizer", "adamv"), "adamw"),
                                 (("train", "--optimizer", "adamw:bata2=0.9"), "beta2"),
                                 (("train", "--compressor", "topkk:ratio=0.1", "--steps", "1"), "topk"),
                                 (("train", "--compressor", "topk:raito=0.1", "--steps", "1"), "ratio"),
                                 (("train", "--compressor", "topk:ratio=0.1,ef=ef41", "--steps", "1"), "ef14"),
                                 (("train", "--config", "run.toml"), "steps"), (("sweep", "study.toml", "--list"), "model"),
                                 (("sweep", "top.toml", "--list"), "seeds"), (("inspect", "schedule", "rings", "4"), "ring"),
                                 (("bench", "all_reduce", "--inproc", "2", "--algorithm", "rign"), "ring"),
                                 (("inspect", "data", "digist"), "digits"), (("data", "fetch", "fashion_mnist"), "fashion-mnist")):
                with self.subTest(" ".join(words)):
                    done = gradwire(*words, folder=folder)
                    self.assertEqual(done.returncode, 1)
                    self.assertIn(f"did you mean '{right}'?", done.stderr)

    def test_a_variable_that_nothing_reads_is_a_warning(self):
        done = gradwire("version", GRADWIRE_TRANPORT="tcp")
        self.assertEqual(done.returncode, 0)
        self.assertEqual(done.stderr, "gradwire: warning: unknown environment variable GRADWIRE_TRANPORT; "
                                      "did you mean 'GRADWIRE_TRANSPORT'?\n")
        self.assertNotIn("did you mean", gradwire("version", GRADWIRE_COLOUR="1").stderr)
        self.assertEqual(gradwire("version", GRADWIRE_TRANPORT="tcp", GRADWIRE_RANK="1").stderr, "")
        self.assertEqual(gradwire("version", GRADWIRE_TEST_FULL="1", GRADWIRE_LOG="info").stderr, "")

    def test_an_earlier_name_of_a_flag_is_taken_with_a_notice(self):
        for words, old, new in ((("bench", "codecs", "--elements", "1000", "--rounds", "1", "--methods", "none"), "--methods", "--compressors"),
                                (("inspect", "schedule", "ring", "2", "--elems=4"), "--elems", "--elements")):
            done = gradwire(*words)
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(done.stderr, f"gradwire: warning: {old} is now called {new}\n")
            self.assertNotRegex(gradwire(*words[:2], "--help").stdout, rf"{old}\b")


class Variables(unittest.TestCase):
    def test_the_page_lists_what_the_code_reads(self):
        folders = ("base", "comm", "collectives", "compress", "aggregate", "adapters", "device", "trainer", "apps", "python/gradwire")
        read = set()
        for folder in folders:
            for path in (ROOT / folder).rglob("*"):
                if path.suffix in (".cc", ".h", ".cu", ".py") and path != ROOT / "apps/variables.cc":
                    read |= set(re.findall(r"[\"'](GRADWIRE_[A-Z_]+)[\"']", path.read_text()))
        page = dict(rows(PAGE.read_text(), "Environment variables"))
        self.assertEqual(read - {"GRADWIRE_VERSION", "GRADWIRE_COMMIT"}, {name.strip("`") for name in page})
        table = dict(re.findall(r"Variable\{\"(\w+)\",\s*\"([^\"]*)\"\}", (ROOT / "apps/variables.cc").read_text()))
        self.assertEqual({f"`{name}`": text for name, text in table.items()}, page)


class Completion(unittest.TestCase):
    def answers(self, line):
        """What bash offers for the last word of the line, after `gradwire `."""
        words = ["gradwire", *line.split(" ")]
        script = ('source <("$0" completion bash); shift; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _gradwire; '
                  'printf "%s\\n" "${COMPREPLY[@]}"')
        done = subprocess.run(["bash", "-c", script, GRADWIRE, "-", *words], capture_output=True, text=True, timeout=LIMIT,
                              env=environment(), cwd=ROOT)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr, "")
        return done.stdout.split()

    def test_bash(self):
        self.assertEqual(self.answers("tr"), ["train"])
        self.assertEqual(self.answers("inspect comp"), ["compressors"])
        self.assertEqual(self.answers("train --list-"), ["--list-models", "--list-data"])
        self.assertEqual(self.answers("train --model resnet"), ["resnet8", "resnet20"])
        self.assertEqual(self.answers("train --model = resnet2"), ["resnet20"])
        self.assertEqual(self.answers("compare --model resnet2"), ["resnet20"])
        self.assertEqual(self.answers("train --compressor powe"), ["powersgd"])
        self.assertEqual(self.answers("inspect data digi"), ["digits"])
        self.assertEqual(self.answers("completion z"), ["zsh"])
        self.assertEqual(self.answers("train --config pyproj"), ["pyproject.toml"])
        self.assertEqual(self.answers("train --data-dir doc"), ["docs"])
        self.assertEqual(self.answers("train --steps "), [])
        self.assertIn("bash", self.answers("run -n 2 -- bas"))

    def test_bash_registers_it(self):
        done = subprocess.run(["bash", "-c", 'source <("$0" completion bash); complete -p gradwire', GRADWIRE], capture_output=True,
                              text=True, timeout=LIMIT)
        self.assertIn("-F _gradwire gradwire", done.stdout)

    @unittest.skipUnless(shutil.which("zsh"), "zsh is not installed (Debian: zsh)")
    def test_zsh_reads_it(self):
        script = ('autoload -Uz compinit; compinit -u -D; source <("$0" completion zsh); _gradwire_parts inspect; print -l ${parts%%:*}; '
                  '_gradwire_values train --model; print -l $values; _gradwire_flags version; print -l -- ${flags%%:*}; print $_comps[gradwire]')
        done = subprocess.run(["zsh", "-fc", script, GRADWIRE], capture_output=True, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("compressors", "resnet20", "--json", "_gradwire"):
            self.assertIn(word, done.stdout.split())


if __name__ == "__main__":
    unittest.main(verbosity=2)
