"""The structs of gradwire/c.h, field by field, and its callbacks."""

from __future__ import annotations

import ctypes as c

LOG = c.CFUNCTYPE(None, c.c_void_p, c.c_int, c.c_char_p)
ALL_GATHER = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_void_p, c.c_size_t)


class Sized(c.Structure):
    """A struct whose first field says how much of it the caller knows."""

    def __init__(self, **fields: object) -> None:
        super().__init__(struct_size=c.sizeof(self), **fields)


class CommOptions(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("liveness_seconds", c.c_double), ("timeout_seconds", c.c_double),
                ("rendezvous_seconds", c.c_double), ("transport", c.c_char_p), ("interface_name", c.c_char_p),
                ("algorithm", c.c_char_p), ("links", c.c_char_p), ("job", c.c_char_p), ("secret", c.c_char_p),
                ("flight_folder", c.c_char_p), ("checksums", c.c_int), ("log_level", c.c_int), ("log", LOG),
                ("log_context", c.c_void_p), ("rank", c.c_int), ("size", c.c_int), ("rendezvous", c.c_char_p)]


class Launch(c.Structure):
    _fields_ = [("rank", c.c_int), ("size", c.c_int), ("local_rank", c.c_int), ("source", c.c_char * 32),
                ("rendezvous", c.c_char * 256)]


class CommStats(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("bytes_sent", c.c_uint64), ("job_bytes_sent", c.c_uint64),
                ("job_bytes_received", c.c_uint64), ("job_messages_sent", c.c_uint64), ("job_messages_received", c.c_uint64)]


class Stream(c.Structure):
    _fields_ = [("space", c.c_int), ("device", c.c_int), ("native", c.c_void_p)]


class OpOptions(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("timeout_seconds", c.c_double), ("algorithm", c.c_char_p), ("factor", c.c_double),
                ("tag", c.c_int), ("stream", Stream)]


class TensorInfo(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_int), ("dimensions", c.c_int), ("shape", c.c_int64 * 4)]


class AggregatorOptions(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("compressor", c.c_char_p), ("algorithm", c.c_char_p), ("bucket_bytes", c.c_int64),
                ("seed", c.c_uint64), ("threads", c.c_int), ("allow_unsafe", c.c_int), ("form", c.c_int), ("traffic", c.c_int),
                ("nonfinite", c.c_int), ("momentum", c.POINTER(c.c_double)), ("space", c.c_int), ("device", c.c_int)]


class Gradient(c.Structure):
    _fields_ = [("index", c.c_int), ("data", c.c_void_p)]


class AggregatorStats(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("steps", c.c_uint64), ("skipped_steps", c.c_uint64), ("gradient_bytes", c.c_uint64),
                ("dense_ring_bytes", c.c_uint64), ("payload_bytes", c.c_uint64), ("wire_bytes", c.c_uint64),
                ("encode_seconds", c.c_double), ("exchange_seconds", c.c_double), ("decode_seconds", c.c_double),
                ("exposed_seconds", c.c_double)]


class StateEntry(c.Structure):
    _fields_ = [("name", c.c_char_p), ("dtype", c.c_int), ("dimensions", c.c_int), ("shape", c.c_int64 * 4), ("data", c.c_void_p),
                ("bytes", c.c_size_t)]


class Method(c.Structure):
    _fields_ = [("name", c.c_char_p), ("help", c.c_char_p), ("keys", c.c_char_p)]


class SpecInfo(Sized):
    _fields_ = [("struct_size", c.c_size_t), ("spec", c.c_char * 256), ("path", c.c_char * 16), ("dense_bytes", c.c_uint64),
                ("payload_bytes", c.c_uint64), ("rounds", c.c_int), ("elementwise", c.c_int), ("sparse", c.c_int),
                ("lossless", c.c_int), ("unbiased", c.c_int), ("stateful", c.c_int), ("error_feedback", c.c_int)]
