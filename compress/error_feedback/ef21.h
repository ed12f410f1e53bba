// Error feedback by differences: every rank keeps what the others believe its gradient to be, and
// sends what that lacks.
//
//   d = g - h               what is compressed
//   c = scale * D(C(d))
//   h <- h + c              h = 0 at first; own
//   mean <- mean + average over ranks of c
//
// With eta < 1 (ef21_sgdm) the moving average v <- (1 - eta) v + eta g, v = 0 at first, stands in
// for g. Invariant: mean == average over ranks of h, to rounding. There is no residual: the result
// follows the gradients instead of adding up what was lost. C must be a contraction, E|d - c|^2 <=
// (1 - delta)|d|^2: under a constant gradient |g - h|^2 shrinks at least by 1 - delta a step
// (in expectation where C draws). Plain ef21 follows the noise of small batches; ef21_sgdm is for
// those. Ranks must not skip steps apart from one another.
// Source: Richtarik, Sokolov, Fatkhullin, "EF21", NeurIPS 2021, algorithm 2; Fatkhullin, Tyurin,
// Richtarik, "Momentum provably improves error feedback!", NeurIPS 2023, algorithm 1.
#pragma once

#include <memory>
#include <string_view>

#include "gradwire/coder.h"
#include "gradwire/compressor.h"

namespace gradwire {

// What the names of its state() begin with.
inline constexpr std::string_view kEf21State = "ef21.";

struct Ef21Options {
  double scale = 1;  // 0 < scale <= 1
  double eta = 1;    // 0 < eta <= 1; 1: no moving average
};

// As make_ef14() (errors, lending, what is left untouched by a step that fails).
// state(): "ef21.h", "ef21.mean", which is equal on all ranks, and with eta < 1 "ef21.v", each of
// the opened shape, then the inner coder's. When the number of ranks changes, every new rank gets
// the average of h and of v.
Result<std::unique_ptr<Coder>> make_ef21(std::unique_ptr<Coder> inner, const Shape& shape,
                                         const Compressor::Placement& where,
                                         const Ef21Options& options = {});

}  // namespace gradwire
