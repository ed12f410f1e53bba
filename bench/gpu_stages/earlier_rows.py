"""What an earlier run of bench/gpu has found already: --resume measures none of it again."""
import json


def key_of(row):
    """What a row is about; None: of no work that is done once."""
    kind = row.get("bench")
    if kind in ("smoke", "codec"):
        return kind, row.get("spec"), row.get("feedback")
    if kind == "test":
        return kind, row.get("test"), row.get("filter", "")
    if kind == "sanitizer":
        return kind, row.get("tool"), row.get("test")
    if kind == "trainer":
        return kind, row.get("model"), row.get("compressor")
    if kind == "torch":
        return kind, row.get("ranks"), row.get("transport")
    return None


def is_whole(row):
    """Whether nothing more comes of this work, and it was good."""
    if "failed" in row or "left_out" in row:
        return False
    kind = row["bench"]
    if kind == "codec":
        return row.get("stage") == "decode" or "refused" in row
    if kind in ("test", "sanitizer"):
        return row.get("outcome") in ("passed", "skipped")
    if kind == "torch":
        return row.get("case") == "end"
    return "skipped" not in row


class EarlierRows:
    """The work that runs of the same commit, GPUs and sizes have done, as a file's rows tell it."""

    def __init__(self, path="", begin=None):
        """None of it without `path`. begin: the first row of this run."""
        self.done = set()
        same = False
        try:
            lines = open(path, encoding="utf-8").read().splitlines() if path else []
        except OSError:
            lines = []
        for line in lines:
            try:
                row = json.loads(line)
            except ValueError:
                continue  # cut short, by what ended its run
            if not isinstance(row, dict):
                continue
            if row.get("bench") == "run" and "began" in row:
                same = self._are_alike(row, begin)
            elif same and key_of(row) is not None and is_whole(row):
                self.done.add(key_of(row))

    @staticmethod
    def _are_alike(one, other):
        """Sources that are changed are never alike."""
        def names(row):
            return [card.get("name") for card in row.get("cards", [])]
        commit = one.get("commit", "")
        return (bool(commit) and not commit.endswith("-dirty") and commit == other["commit"] and names(one) == names(other)
                and all(one.get(name) == other[name] for name in ("archs", "elements")))

    def has(self, row):
        return key_of(row) in self.done
