// Measured quantisation error beside what is expected of it.
//
// NMSE = |result - exact|^2 / |exact|^2. Data are synthetic: rank i of n holds g_i = s + n_i, s and
// n_i drawn alike, element by element: N(0, 1), or +-e^(1.5 z) with z from N(0, 1). What is
// compared is one gradient (s) with what its payload decodes to, or the mean over ranks with what a
// way of combining yields, all in fp32, by the codecs that a job would use:
//   gather    every rank's payload is decoded and added
//   sra       chunk c: rank c's own part exact, plus what the others' encodings decode to; encoded
//             again (stage 1) for all
//   ring      chunk c goes from rank c + 1 round to rank c; every hop encodes the partial sum, and
//             the last rank encodes once more for all
//   doubling  log2 n steps; in each a rank encodes its partial sum, and both partners go on with
//             the sum of the two decoded ones
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "gradwire/registry.h"
#include "gradwire/status.h"

namespace gradwire {

enum class NmseData : std::uint8_t { kGaussian, kLognormal };
enum class NmseCombine : std::uint8_t { kNone, kGather, kSra, kRing, kDoubling };
std::string_view to_string(NmseData data);
std::string_view to_string(NmseCombine combine);
// kInvalidArgument lists the names.
Result<NmseData> parse_nmse_data(std::string_view name);
Result<NmseCombine> parse_nmse_combine(std::string_view name);

struct NmseRow {
  std::string spec;
  NmseData data = NmseData::kGaussian;
  NmseCombine combine = NmseCombine::kNone;
  int ranks = 1;        // 2 to 128, a power of two for kDoubling; 1 for kNone
  int matrix_rows = 0;  // kNone alone: the gradient is a matrix of so many; 0: a vector
  double nmse = 0;      // expected; 0: not said
  double factor = 1.1;  // the measured one may be so much larger or smaller
  double bits = 0;      // per element of a payload, exactly; 0: not said
  int seeds = 0;        // 0: as many as the recipe says
  // An expectation that is of one seed, on tails so heavy that seeds differ by more than the
  // factor: it passes where it lies within the factor of what any seed gives, not of their mean.
  bool of_one_seed = false;
};

struct NmseRecipe {
  std::int64_t elements = 65536;
  int seeds = 10;
  std::vector<NmseRow> rows = {};
};

struct NmseOutcome {
  double nmse = 0;  // mean over the seeds
  double least = 0;
  double most = 0;
  double bits = 0;  // one payload of all elements, per element (sra and ring: all chunks' payloads)
  bool mean_within = true;  // nmse is within the row's factor of what it expects
  bool pass = true;         // nmse and bits are what the row expects
};

// Measures all rows, then tells them in order. kInvalidArgument for a spec that
// does not parse or that a row's combining does not suit (all but kNone take elementwise methods).
using NmseSink = std::function<void(const NmseRow&, const NmseOutcome&)>;
Status measure_nmse(const Registry& registry, const NmseRecipe& recipe, const NmseSink& sink);

// The table that the design's simulation gave (one seed, two digits): min-max on 4, 16 and 64 ranks
// and every way of combining, single gradients for the other methods, and the closed forms of the
// bits per element. Gaussian rows: the mean of 10 seeds within 10 %. Lognormal rows: any of 40
// seeds within a factor of 1.5, one row within 1.6. (On such tails one seed says little: means of
// 40 are off by up to 3.9, and some of the simulation's figures lie beyond those of 199 in 200
// seeds.)
NmseRecipe built_in_nmse_recipe();

}  // namespace gradwire
