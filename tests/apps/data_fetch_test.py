"""gradwire data fetch against a small web server on this machine: resumed, broken, wrong and
refused transfers. usage: data_fetch_test.py GRADWIRE"""

import http.server
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import threading
import unittest

GRADWIRE = sys.argv.pop(1)
FILE = "train-images-idx3-ubyte.gz"  # the first that is fetched
SIZE = 26421880


class Handler(http.server.BaseHTTPRequestHandler):
    """Serves `content` for every path. Modes: ranges, plain (ignores Range), broken (closes halfway
    the first time)."""

    content = bytes(SIZE)
    mode = "ranges"
    seen = []  # (path, Range header)

    def do_GET(self):
        wanted = self.headers.get("Range")
        type(self).seen.append((self.path, wanted))
        body = self.content
        match = re.fullmatch(r"bytes=(\d+)-", wanted or "")
        if match and self.mode != "plain":
            start = int(match.group(1))
            self.send_response(206)
            self.send_header("Content-Range", f"bytes {start}-{len(body) - 1}/{len(body)}")
            body = body[start:]
        else:
            self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.mode == "broken" and len(type(self).seen) == 1:
            body = body[: len(body) // 2]
        try:
            self.wfile.write(body)
        except OSError:
            pass  # the client had enough
        self.close_connection = True

    def log_message(self, *_):
        pass


class DataFetchTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.out = pathlib.Path(self.folder.name) / "set"
        Handler.content, Handler.mode, Handler.seen = bytes(SIZE), "ranges", []
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    def tearDown(self):
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()
        self.folder.cleanup()

    def fetch(self, port=None):
        url = f"http://127.0.0.1:{port or self.server.server_port}"
        env = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
        words = [GRADWIRE, "data", "fetch", "fashion-mnist", "--out", str(self.out), "--url", url]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60, env=env)
        return done.returncode, done.stderr

    def test_wrong_checksum_is_refused_and_the_file_removed(self):
        status, error = self.fetch()
        self.assertEqual(status, 1)
        for word in ("gradwire: error: data fetch: ", FILE, "checksum", "sha256"):
            self.assertIn(word, error)
        self.assertIn("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", error)
        self.assertEqual(list(self.out.iterdir()), [])

    def test_a_partial_file_is_resumed_where_it_ends(self):
        self.out.mkdir()
        (self.out / (FILE + ".part")).write_bytes(bytes(SIZE - 10))
        self.fetch()
        self.assertEqual(Handler.seen[0], ("/" + FILE, f"bytes={SIZE - 10}-"))

    def test_a_broken_transfer_is_resumed_within_one_call(self):
        Handler.mode = "broken"
        status, error = self.fetch()
        self.assertEqual(status, 1)  # the contents are still not the set's
        self.assertIn("checksum", error)
        self.assertEqual(Handler.seen[0][1], None)
        # The half that came was kept: the next request names where it ends.
        start = int(re.fullmatch(r"bytes=(\d+)-", Handler.seen[1][1]).group(1))
        self.assertEqual(start, SIZE // 2)

    def test_a_server_without_ranges_starts_anew(self):
        Handler.mode = "plain"
        self.out.mkdir()
        (self.out / (FILE + ".part")).write_bytes(bytes(100))
        status, error = self.fetch()
        self.assertEqual(status, 1)
        self.assertIn("checksum", error)  # a whole file came
        self.assertEqual([r for _, r in Handler.seen][:2], ["bytes=100-", None])

    def test_too_many_bytes_are_cut_off(self):
        Handler.content = bytes(SIZE + 1)
        status, error = self.fetch()
        self.assertEqual(status, 1)
        self.assertRegex(error, rf"more than .*\b{SIZE} bytes")

    def test_too_few_bytes_name_both_numbers(self):
        Handler.content = bytes(1000)
        status, error = self.fetch()
        self.assertEqual(status, 1)
        self.assertRegex(error, rf"\b1000 bytes\b.*\b{SIZE}\b")

    def test_refused_connection_names_the_address(self):
        closed = http.server.HTTPServer(("127.0.0.1", 0), Handler)
        port = closed.server_port
        closed.server_close()
        status, error = self.fetch(port)
        self.assertEqual(status, 1)
        self.assertIn(f"http://127.0.0.1:{port}/{FILE}", error)
        self.assertNotIn("checksum", error)

    def test_a_fifo_in_the_way_is_not_waited_for(self):
        self.out.mkdir()
        os.mkfifo(self.out / (FILE + ".part"))
        status, error = self.fetch()
        self.assertEqual(status, 1)
        self.assertIn(f"{self.out / FILE}.part", error)
        self.assertEqual(Handler.seen, [])

    def test_an_existing_other_file_is_never_overwritten(self):
        self.out.mkdir()
        (self.out / FILE).write_bytes(b"mine")
        status, error = self.fetch()
        self.assertEqual(status, 1)
        self.assertIn(str(self.out / FILE), error)
        self.assertEqual((self.out / FILE).read_bytes(), b"mine")
        self.assertEqual(Handler.seen, [])


if __name__ == "__main__":
    unittest.main()
