// The bytes of device memory that a step of a coder moves, independently of its kernels: what a
// rate in `gpu_bench` is a share of.
//
// Counted is each tensor of the gradient's size, and each payload, that lies in memory when a stage
// begins and is needed there, or has to lie there when the stage has ended: once a round of the
// exchange, since no cache keeps a tensor from one round to the next. Left out are a method's
// smaller things (scales, factors, tables, samples), what kernels put aside within a round, and
// the second look of a method whose codes hang on one value of the whole tensor (terngrad without
// shared scales): such a method's share cannot reach 1.
//
// g: the gradient's bytes; w: the payload's, of all rounds; v: those of the last round.
//
//   method                            encode         with ef14       decode       with ef14
//   one round, residual in its pass   g + w          3 g + w         w + g        w + g
//   one round, ef14 in passes of its
//     own (acpsgd, block_sparse,
//     pairs with a second stage)      g + w          3 g + w         w + g        w + 3 g
//   shared scales (terngrad,
//     global_qsgd, thc)               2 g + w        5 g + w         w + g        w + g
//   factors (powersgd)                2 g + w        4 g + w         w + g        w + 3 g
//   shared places (cltk)              g + w + v      3 g + w + 2 v   w + g        w + g
//   with m tensors of its own state   2 m g more     refused         the same     refused
//   (signum: momentum; dgc: momentum and residual)
//
// With ef14 a residual is read and the next one written. Scales are found from gradient and
// residual together, 2 g, and codes made of them again, while the next residual is written, 3 g. A
// method that finds out at the end what was sent (powersgd, and whatever ef14 wraps) writes their
// sum at the start, 3 g, and takes away from it at the end, 2 g, which is decode's time. powersgd
// multiplies with the matrix twice, the second time with that sum. cltk's first round writes it,
// too (3 g), and its second reads the chosen elements alone (v), and with ef14 sets them to 0.
#pragma once

#include <string>
#include <vector>

#include "gradwire/compressor.h"

namespace gradwire::bench {

// One rank's step, alone.
struct MovedStep {
  std::string method;  // a spec's first name
  double gradient = 0;
  std::vector<double> payloads;  // bytes of each round's
  bool feedback = false;         // under ef14
  bool fused = false;            // the coder takes the residual into its own pass
  int kept = 0;  // tensors of the gradient's size that the coder itself moves from step to step
};

struct MovedBytes {
  double encode = 0;  // begin() and each round's encode()
  double decode = 0;  // each round's absorb(), and finish()
};

MovedBytes moved_bytes(const MovedStep& step);

// The part of it that `compressor` and an undecorated coder of it, opened for tensors of `elems`
// elements of kF32, say. Without payloads.
MovedStep moved_step(const Compressor& compressor, Coder& coder, std::int64_t elems);

}  // namespace gradwire::bench
