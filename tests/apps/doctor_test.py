#!/usr/bin/env python3
"""gradwire doctor: alone, as a job, and when something is wrong.

usage: doctor_test.py PATH/TO/gradwire UCX_VERSION
"""
import json
import os
import re
import subprocess
import sys
import unittest

GRADWIRE = os.path.abspath(sys.argv.pop(1))
UCX = sys.argv.pop(1)  # as configured; "none" without
LIMIT = 100
LAUNCHERS = ("GRADWIRE_", "UCX_", "OMPI_", "PMI", "PALS_", "SLURM_", "RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_", "TORCHELASTIC_")


def doctor(*words, launcher=(), **variables):
    environment = {k: v for k, v in os.environ.items() if not k.startswith(LAUNCHERS)}
    environment["GRADWIRE_TRANSPORT"] = "tcp" if UCX == "none" else "ucx"
    return subprocess.run([*launcher, GRADWIRE, "doctor", *words], env=environment | variables, capture_output=True,
                          text=True, timeout=LIMIT)


def report(**more):
    done = doctor("--json", **more)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


class Alone(unittest.TestCase):
    def test_every_key_is_there(self):
        seen = report()
        self.assertEqual(list(seen), ["build", "machine", "launcher", "transport", "ucx", "interfaces", "tcp_interface", "same_host",
                                      "job", "environment", "notes"])
        self.assertEqual((seen["launcher"]["source"], seen["launcher"]["reason"]), ("alone", "no launcher's variables are set"))
        self.assertEqual(seen["machine"]["cores"], len(os.sched_getaffinity(0)))
        self.assertIn("127.0.0.1", [one["address"] for one in seen["interfaces"]])
        self.assertIsNone(seen["job"])

    @unittest.skipIf(UCX == "none", "no UCX in this build")
    def test_ucx_and_the_transport_it_takes_on_one_host(self):
        seen = report()
        self.assertTrue((seen["ucx"]["running_version"] + ".").startswith(UCX + "."))
        self.assertIn("host", seen["ucx"]["memory_types"])
        if "cuda" not in seen["ucx"]["memory_types"]:
            self.assertFalse(seen["ucx"]["cuda_memory"]["direct"])
            self.assertIn("cuda", seen["ucx"]["cuda_memory"]["why"])
        self.assertIn("tcp", [one["name"] for one in seen["ucx"]["transports"]])
        self.assertRegex(seen["same_host"]["describe"], "; (sysv|posix)")
        settings = {one["variable"]: one for one in seen["ucx"]["settings"]}
        self.assertEqual(settings["UCX_MM_ERROR_HANDLING"]["source"], "gradwire")

    @unittest.skipIf(UCX == "none", "no UCX in this build")
    def test_what_the_user_has_set_is_named_and_judged(self):
        seen = report(UCX_TLS="tcp", UCX_KEEPALIVE_INTERVAL="3s")
        settings = {one["variable"]: one for one in seen["ucx"]["settings"]}
        self.assertEqual((settings["UCX_KEEPALIVE_INTERVAL"]["value"], settings["UCX_KEEPALIVE_INTERVAL"]["source"]),
                         ("3s", "environment"))
        self.assertEqual(seen["environment"]["UCX_TLS"], "tcp")
        notes = [one["text"] for one in seen["notes"] if "UCX_TLS" in one["text"]]
        self.assertEqual(len(notes), 1)
        self.assertIn("shared memory", notes[0])

    def test_an_interface_that_is_not_there_is_named_with_those_that_are(self):
        seen = report(GRADWIRE_IFNAME="eth99")
        texts = " ".join(one["text"] for one in seen["notes"] if one["level"] == "warning")
        self.assertIn("'eth99'", texts)
        self.assertIn("lo", texts.split("'eth99'", 1)[1])

    def test_secrets_are_not_printed(self):
        for words in ([], ["--json"]):
            done = doctor(*words, GRADWIRE_SECRET="do not tell anybody")
            self.assertEqual(done.returncode, 0)
            self.assertNotIn("do not tell", done.stdout + done.stderr)
            self.assertIn("(set)", done.stdout)

    def test_text_has_the_headings(self):
        done = doctor()
        for heading in ("gradwire ", "machine ", "launcher: alone", "two processes of this host", "environment"):
            self.assertIn("\n" + heading, "\n" + done.stdout)
        self.assertEqual(done.stderr, "")


class InAJob(unittest.TestCase):
    def test_rank_zero_reports_on_all(self):
        seen = report(launcher=(GRADWIRE, "run", "-n", "3", "--plain", "--"))
        self.assertEqual((seen["launcher"]["source"], seen["launcher"]["ranks"]), ("GRADWIRE_*", 3))
        self.assertTrue(seen["launcher"]["secret"])
        self.assertEqual(seen["launcher"]["reason"], "GRADWIRE_RANK=0 and GRADWIRE_WORLD_SIZE=3")
        self.assertRegex(seen["launcher"]["root"], r"^127\.0\.0\.1:\d+$")
        self.assertEqual([one["rank"] for one in seen["job"]["ranks"]], [0, 1, 2])
        for one in seen["job"]["ranks"]:
            self.assertIn(f"rank {one['rank']} of 3", one["describe"])
        cores = len(os.sched_getaffinity(0))
        self.assertEqual(seen["job"]["oversubscribed"], cores < 3)
        self.assertEqual([(one["ranks"], one["cores"]) for one in seen["job"]["hosts"]], [(3, cores)])

    def test_ranks_that_differ_about_checksums_learn_it(self):
        script = f"GRADWIRE_CHECKSUM=$GRADWIRE_RANK exec '{GRADWIRE}' doctor --json"
        done = subprocess.run([GRADWIRE, "run", "-n", "2", "--deadline", "2", "--", "sh", "-c", script], capture_output=True, text=True, timeout=LIMIT)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stdout + done.stderr, r"GRADWIRE_CHECKSUM\b.*'1' on rank 1\b.*'0'.* on rank 0\b")

    def test_ranks_that_differ_about_the_transport_learn_it(self):
        script = f"[ $GRADWIRE_RANK = 1 ] && export GRADWIRE_TRANSPORT=tcp || export GRADWIRE_TRANSPORT=auto; exec '{GRADWIRE}' doctor --json"
        done = subprocess.run([GRADWIRE, "run", "-n", "2", "--deadline", "20", "--", "sh", "-c", script], capture_output=True, text=True, timeout=LIMIT)
        self.assertNotEqual(done.returncode, 0)
        said = done.stdout + done.stderr
        self.assertRegex(said, r"transport\b.*'tcp' on rank 1\b.*'auto'.* on rank 0\b")
        self.assertNotIn("was not set", said)

    def test_an_unknown_congestion_control_is_refused(self):
        variables = {"GRADWIRE_TRANSPORT": "tcp", "GRADWIRE_TCP_CONGESTION": "zap"}
        done = doctor(launcher=(GRADWIRE, "run", "-n", "2", "--deadline", "2", "--"), **variables)
        self.assertNotEqual(done.returncode, 0)
        said = done.stdout + done.stderr
        self.assertEqual(len(re.findall(r"GRADWIRE_TCP_CONGESTION\b.*'zap'", said)), 1, said)

    def test_checksums_are_named(self):
        seen = report(launcher=(GRADWIRE, "run", "-n", "2", "--plain", "--"), GRADWIRE_CHECKSUM="1")
        self.assertIn("XXH3 checksums", seen["job"]["ranks"][1]["describe"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
