// Which methods may stand under error feedback, decided from their claims alone (Traits and
// ErrorBound), so that a method of the user's own is judged like a built-in one.
//
//   method                                 with ef=ef14
//   vote (mean is not the average of own)  refused, always
//   keeps a residual of its own (DGC, ...) refused, always
//   contraction (top-k, scaled sign, ...)  sound
//   unbiased, omega < 1                    sound
//   unbiased, omega >= 1                   sound when divided by 1 + omega (ef_scale=auto); may
//                                          diverge without (ef_scale=none), since omega is the
//                                          worst case and says nothing of the data at hand
//   contraction of scale s < 1             likewise, multiplied by s
//   neither (unscaled sign)                known to fail
//
// The same holds for ef21, ef21_sgdm and loco: what the left column lets through, divided where it
// says so, is a contraction, which is what each of them asks for.
//
// Without error feedback nothing is refused but a second momentum; biased methods, votes and
// unbiased ones of omega > 3 are warned of.
//
// Pairs that are not sound need allow_unsafe, because experiments must be able to show what they
// do.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gradwire/compressor.h"
#include "gradwire/status.h"

namespace gradwire {

struct PairOptions {
  bool error_feedback = false;  // ef=ef14, ef21, ef21_sgdm or loco
  bool ef_scale_auto = true;    // ef_scale=auto; false: none
  bool allow_unsafe = false;
  std::optional<double> momentum = {};  // AggregatorOptions::momentum
};

struct PairVerdict {
  double scale = 1;                   // for make_feedback(), and for both residuals under sra
  std::vector<std::string> warnings;  // for logs and reports; each names the compressor
};

// Judges `compressor` for tensors of `shape` (omega may depend on it). kInvalidArgument says why
// the pair is refused and what to write instead.
Result<PairVerdict> check_pair(const Compressor& compressor, const Shape& shape,
                               const PairOptions& options);

}  // namespace gradwire
