#!/usr/bin/env python3
"""Who is whose neighbour, peer or root, and whose the part of a batch or tensor is, say functions of base/ (mesh.h, piece()): the
trainer and its strategies do no arithmetic with ranks.

usage: rank_arithmetic_test.py SOURCE_ROOT BUILD_ROOT
"""
import re
import sys

import sources

FOLDERS = ("trainer", "adapters/trainer")
# Asynchronous servers and Hogwild have servers beside the mesh; in a schedule of a pipeline, which is data, a rank is a place.
APART = ("adapters/trainer/modes", "trainer/pipeline")
# A rank, or a number of ranks: rank, old_ranks, replica_, communicator_.size(), mesh.dp. Not a tensor's number of dimensions.
RANK = (r"(?:(?<!grid\.)(?<!shape\.)(?<!Shape\.)\b(?:\w+_)?(?:ranks?|replicas?)_?\b(?!\.|->)(?:\([^()]*\))?"
        r"|\b(?:communicator|group|replicas|world)_?(?:\(\))?(?:\.|->)(?:size|rank)\(\)"
        r"|(?:\.|\b)(?:pp|dp|tp)\b)")
OPERATOR = r"[-+*/%]"
OBJECT = r"(?:\w+(?:\(\))?(?:\.|->))*"  # whose it is: options_.ranks, mesh().dp
ARITHMETIC = re.compile(rf"{RANK} {OPERATOR}=? (?!\")|(?<!\") {OPERATOR}=? \(?{OBJECT}{RANK}(?![\w.]|->)")
CAST = re.compile(r"static_cast<[^<>]*>\(([^()]*(?:\(\))?)\)")
TEXT = re.compile(r"std::to_string\([^()]*(?:\(\))?\)")
# file: (what stands in the line, why it is none).
ALLOWED = {
    "trainer/accounts/training_memory.cc": [("static_cast<double>(question.tensor_ranks)", "an average of ranks, in an estimate"),
                                            ("static_cast<double>(question.data_ranks)", "likewise")],
    "trainer/checkpoint/manifest_json.cc": [("kMostRanks / sizes.dp", "a bound of what a file says")],
    "trainer/training_options.cc": [('format("0 to %d", options.ranks - 1)', "the text of an error")],
    "trainer/step/step_averages.cc": [("1.0 / replicas", "a mean")],
    "adapters/trainer/group_consensus.cc": [("1.0 / ranks(scope)", "a mean")],
    "adapters/trainer/mesh/parallel_spec.cc": [("pp * order.stages_a_rank()", "how many stages a schedule has")],
    "adapters/trainer/optimizers/demo.cc": [("static_cast<std::size_t>(rank) * payload_bytes_", "where a rank's payload lies")],
}
SEEN = ["const int next = (rank + 1) % ranks;", "shard = elems / communicator_.size();", "if (rank == ranks - 1) return;",
        "place.dp * mesh.tp + place.tp", "batch / options_.ranks", "at += 2 * replica;", "group->size() - 1", "x % mesh().dp",
        "bytes * static_cast<std::size_t>(rank)"]
UNSEEN = ["from = box.grid.rank - 1;", '"rank-" + std::to_string(communicator_.rank()) + ".x"', 'replica + "/gradients/"',
          "method_of(replica) + name", "piece(elems, ranks, rank)", "for (int r = 0; r < ranks; ++r)", "static_cast<int>(*rank)",
          "shares.number(rank, micro)", "if (*rank < 0 || *rank >= replicas_) return {};"]


def finds(line):
    return ARITHMETIC.search(TEXT.sub('""', CAST.sub(r"\1", line.split("//")[0]))) is not None


def main():
    errors = [f"this test does not see: {line}" for line in SEEN if not finds(line)]
    errors += [f"this test sees something in: {line}" for line in UNSEEN if finds(line)]
    used = set()
    for path in sources.code(sys.argv[1]):
        folder = str(path.parent) + "/"
        if not folder.startswith(tuple(f + "/" for f in FOLDERS)) or folder.startswith(tuple(f + "/" for f in APART)):
            continue
        for number, line in enumerate((sources.pathlib.Path(sys.argv[1]) / path).read_text().split("\n"), 1):
            if not finds(line):
                continue
            reasons = [text for text, _ in ALLOWED.get(str(path), ()) if text in line]
            used.update((str(path), text) for text in reasons)
            if not reasons:
                errors.append(f"{path}:{number}: arithmetic with ranks (expected a function of base/mesh.h): {line.strip()}")
    errors += [f"{path}: allows '{text}', which does not stand there" for path, texts in ALLOWED.items()
               for text, _ in texts if (path, text) not in used]
    sources.finish(errors)


if __name__ == "__main__":
    main()
