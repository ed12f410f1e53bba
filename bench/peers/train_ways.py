"""The ways of averaging gradients that train_beside_torch.py times, and what of them is a goal.

A way's `bits` are of one element on the wire of a bandwidth-optimal all-reduce, roughly: they say how many steps fit into the time.
"""
import dataclasses


@dataclasses.dataclass(frozen=True)
class Way:
    name: str
    spec: str  # of gradwire's compressor, or the hook of torch_train.py
    bits: float
    lr: float = 1  # times the rate of all others
    bucket_mb: float = 25  # of DDP; 25 is its default

    @property
    def torch(self):
        return self.name.startswith("torch")


COMPUTE, TORCH_COMPUTE = "compute", "torch-compute"

# signum's update is a sign, whatever the gradient's size; dgc's momentum of 0.9 sums ten gradients.
GRADWIRE = [
    Way("none", "none", 32),
    Way("bf16", "cast:bf16", 16),
    Way("fp16", "cast:fp16", 16),
    Way("lossless", "lossless", 26),
    Way("fp8", "fp8:e4m3,ef=ef14,combine=sra", 8),
    Way("mx4", "mx:e2m1,ef=ef14,combine=sra", 4.25),
    Way("natural", "natural:combine=sra", 9),
    Way("int8-sra", "absmax:bits=8,ef=ef14,combine=sra", 8),
    Way("int4-sra", "absmax:bits=4,ef=ef14,combine=sra", 4),
    Way("minmax4-sra", "minmax:bits=4,ef=ef14,combine=sra", 4),
    Way("qsgd8-sra", "qsgd:bits=8,combine=sra", 8),
    Way("qsgd4-sra", "qsgd:bits=4,combine=sra", 4),
    Way("global-qsgd4", "global_qsgd:bits=4", 6.5),
    Way("thc", "thc", 6.5),
    Way("terngrad", "terngrad", 4),
    Way("signsgd-ef", "signsgd:ef=ef14", 2),
    Way("signsgd-ef-sra", "signsgd:ef=ef14,combine=sra", 1),
    Way("signum", "signum", 2, lr=0.002),
    Way("onebit", "onebit:ef=ef14", 2),
    Way("topk-1%", "topk:ratio=0.01,ef=ef14", 1.3),
    Way("oktopk-1%", "topk:ratio=0.01,ef=ef14,combine=oktopk", 1.3),
    Way("randomk-1%", "randomk:ratio=0.01,ef=ef14", 0.3),
    Way("cltk-1%", "cltk:ratio=0.01,ef=ef14", 0.6),
    Way("threshold", "threshold:tau=0.003,ef=ef14", 2),
    Way("dgc-0.1%", "dgc:ratio=0.001", 0.2, lr=0.1),
    Way("block-sparse", "block_sparse", 32),
    Way("powersgd-4", "powersgd:rank=4,ef=ef14", 0.3),
    Way("acpsgd-4", "acpsgd:rank=4,ef=ef14", 0.2),
]
TORCH = [
    Way("torch-ddp", "none", 32),
    Way("torch-ddp-4mb", "none", 32, bucket_mb=4),
    Way("torch-fp16", "fp16", 16),
    Way("torch-fp16-4mb", "fp16", 16, bucket_mb=4),
    # With DDP's buckets PowerSGD over Gloo aborts; one bucket it is.
    Way("torch-powersgd-4", "powersgd", 0.3, bucket_mb=100),
]
# gradwire under PyTorch: its backend, and its compression of DDP.
BACKEND = [
    Way("torch-gradwire", "none", 32),
    Way("torch-gradwire-int4", "gradwire:absmax:bits=4,ef=ef14,combine=sra", 4),
    Way("torch-gradwire-qsgd4", "gradwire:qsgd:bits=4,ef=ef14", 4),
    Way("torch-gradwire-topk-1%", "gradwire:topk:ratio=0.01,ef=ef14", 1.3),
    Way("torch-gradwire-powersgd-4", "gradwire:powersgd:rank=4,ef=ef14", 0.3),
]
DENSE, FP16, POWERSGD = ("torch-ddp", "torch-ddp-4mb"), ("torch-fp16", "torch-fp16-4mb"), ("torch-powersgd-4",)
ALL = GRADWIRE + TORCH + BACKEND


@dataclasses.dataclass(frozen=True)
class Goal:
    """`ours`, each of them, at least `factor` times as fast as the fastest of `peers`; with `overhead` the step's time above compute's
    is compared."""
    name: str
    link: str
    hosts: int
    ours: tuple
    peers: tuple
    factor: float
    overhead: bool = False


GOALS = [
    Goal("C1", "1gbit", 2, ("none",), DENSE, 1.05),
    Goal("C2", "1gbit", 2, ("powersgd-4",), POWERSGD, 2.0),
    Goal("C2", "1gbit", 2, ("powersgd-4",), POWERSGD, 4.0, overhead=True),
    Goal("C3", "1gbit", 2, ("int8-sra",), DENSE, 3.3),
    Goal("C3", "1gbit", 2, ("int4-sra",), DENSE, 5.0),
    Goal("C3", "1gbit", 2, ("int8-sra",), FP16, 2.4),
    Goal("C4", "1gbit", 2, ("signsgd-ef", "topk-1%"), DENSE, 6.0),
    Goal("C4", "1gbit", 2, ("signsgd-ef", "topk-1%"), POWERSGD, 1.8),
    Goal("C5", "1gbit", 4, ("powersgd-4",), POWERSGD, 2.2),
    Goal("C5", "1gbit", 4, ("none",), DENSE, 1.05),
    Goal("C5", "1gbit", 4, ("bf16", "fp16"), FP16, 1.7),
    *[Goal("C6", "100mbit", hosts, ours, peers, factor) for hosts in (2, 4)
      for ours, peers, factor in ((("none",), DENSE, 1.02), (("powersgd-4",), POWERSGD, 2.0), (("int4-sra",), DENSE, 6.0))],
    *[Goal("backend", "1gbit", hosts, ours, peers, factor) for hosts in (2, 4)
      for ours, peers, factor in ((("torch-gradwire",), DENSE, 1.0), (("torch-gradwire-powersgd-4",), POWERSGD, 2.0),
                                  (("torch-gradwire-qsgd4", "torch-gradwire-topk-1%"), DENSE, 3.0))],
]


def verdicts(link, hosts, seconds):
    """Lines about the goals of a cell. `seconds`: name -> a step's, of those that were measured."""
    lines = []
    for goal in GOALS:
        peers = [name for name in goal.peers if name in seconds]
        if (goal.link, goal.hosts) != (link, hosts) or not peers:
            continue
        peer = min(peers, key=seconds.get)
        for name in goal.ours:
            if name not in seconds:
                continue
            theirs, own = seconds[peer], seconds[name]
            if goal.overhead:
                theirs, own = theirs - seconds[TORCH_COMPUTE], max(own - seconds[COMPUTE], 1e-6)
            verdict = "met" if theirs >= goal.factor * own else "missed"
            what = "overhead of " if goal.overhead else ""
            lines.append(f"{goal.name}: {what}{name} {theirs / own:.2f} times as fast as {peer} ({goal.factor:g} wanted): {verdict}")
    return lines
