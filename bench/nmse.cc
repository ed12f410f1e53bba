#include "bench/nmse.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <utility>

#include "base/text.h"
#include "bench/nmse_data.h"
#include "bench/nmse_ways.h"

namespace gradwire {
namespace {

constexpr std::array<std::string_view, 2> kDataNames{"gaussian", "lognormal"};
constexpr std::array<std::string_view, 5> kCombineNames{"none", "gather", "sra", "ring",
                                                        "doubling"};
constexpr int kMostRanks = 128;

template <typename Enum, std::size_t N>
Result<Enum> parse_name(std::string_view what, const std::array<std::string_view, N>& names,
                        std::string_view name) {
  std::string known;
  for (std::size_t i = 0; i < N; ++i) {
    if (names[i] == name) return static_cast<Enum>(i);
    known += (i == 0 ? "" : ", ") + std::string(names[i]);
  }
  return Status(Code::kInvalidArgument, "nmse: " + std::string(what) + " '" + std::string(name) +
                                            "' is unknown (expected one of " + known + ")");
}

// Gradients by (data, seed), for the largest number of ranks that a recipe needs.
class Gradients {
 public:
  explicit Gradients(const NmseRecipe& recipe) : elements_(recipe.elements) {
    for (const NmseRow& row : recipe.rows) {
      if (row.combine != NmseCombine::kNone) ranks_ = std::max(ranks_, row.ranks);
    }
  }
  const std::vector<std::vector<float>>& of(NmseData data, int seed) {
    const auto key = std::pair(data, seed);
    if (key != held_) {
      all_ = nmse_gradients(data, static_cast<std::uint64_t>(seed), elements_, ranks_);
      held_ = key;
    }
    return all_;
  }

 private:
  std::int64_t elements_;
  int ranks_ = 0;
  std::pair<NmseData, int> held_{NmseData::kGaussian, -1};
  std::vector<std::vector<float>> all_;
};

double nmse_of(const std::vector<float>& sum, std::span<const std::vector<float>> grads) {
  const double ranks = static_cast<double>(grads.size());
  double error = 0;
  double square = 0;
  for (std::size_t i = 0; i < sum.size(); ++i) {
    double exact = 0;
    for (const auto& grad : grads) exact += static_cast<double>(grad[i]);
    const double difference = (static_cast<double>(sum[i]) - exact) / ranks;
    error += difference * difference;
    square += exact / ranks * (exact / ranks);
  }
  return error / square;
}

Status check_row(const NmseRow& row, const Compressor& compressor, std::int64_t elements) {
  const auto wrong = [&row](const std::string& why) {
    return Status(Code::kInvalidArgument, "nmse: row '" + row.spec + "', " +
                                              std::string(to_string(row.combine)) + ": " + why);
  };
  if (row.matrix_rows != 0 && (row.combine != NmseCombine::kNone || row.matrix_rows < 1 ||
                               elements % row.matrix_rows != 0)) {
    return wrong(format("matrix_rows requires combine none and must divide %lld (got %d)",
                        static_cast<long long>(elements), row.matrix_rows));
  }
  if (row.combine == NmseCombine::kNone) return {};
  if (row.ranks < 2 || row.ranks > kMostRanks) {
    return wrong(format("ranks must be from 2 to %d (got %d)", kMostRanks, row.ranks));
  }
  if (row.combine == NmseCombine::kDoubling &&
      !std::has_single_bit(static_cast<unsigned>(row.ranks))) {
    return wrong(format("ranks must be a power of two (got %d)", row.ranks));
  }
  return compressor.traits().elementwise ? Status() : wrong("the compressor is not element-wise");
}

int seeds_of(const NmseRecipe& recipe, const NmseRow& row) {
  return row.seeds == 0 ? recipe.seeds : row.seeds;
}
int most_seeds(const NmseRecipe& recipe) {
  int most = 0;
  for (const NmseRow& row : recipe.rows) most = std::max(most, seeds_of(recipe, row));
  return most;
}

struct Measured {
  NmseOutcome outcome;
  int count = 0;

  void add(double nmse) {
    outcome.least = count == 0 ? nmse : std::min(outcome.least, nmse);
    outcome.most = std::max(outcome.most, nmse);
    outcome.nmse += nmse;
    ++count;
  }
};

Status measure_row(const Compressor& compressor, const NmseRow& row, int seed,
                   const std::vector<std::vector<float>>& all, Measured& measured) {
  const bool one = row.combine == NmseCombine::kNone;
  const auto ranks = static_cast<std::size_t>(row.ranks);
  const auto grads = one ? std::span(all).first(1) : std::span(all).subspan(1, ranks);
  const auto key = static_cast<std::uint64_t>(seed);
  GW_ASSIGN(const NmseSum result, one ? through_coder(compressor, key, grads[0], row.matrix_rows)
                                      : combine_by_slices(compressor, row.combine, key, grads));
  measured.add(nmse_of(result.sum, grads));
  measured.outcome.bits =
      8.0 * static_cast<double>(result.payload) / static_cast<double>(result.sum.size());
  return {};
}

void judge(const NmseRow& row, Measured& measured) {
  NmseOutcome& outcome = measured.outcome;
  outcome.nmse /= measured.count;
  const auto within = [&row](double low, double high) {
    return row.nmse == 0 || (low <= row.nmse * row.factor && high >= row.nmse / row.factor);
  };
  outcome.mean_within = within(outcome.nmse, outcome.nmse);
  const bool close = row.of_one_seed ? within(outcome.least, outcome.most) : outcome.mean_within;
  outcome.pass = close && (row.bits == 0 || outcome.bits == row.bits);
}

}  // namespace

std::string_view to_string(NmseData data) { return kDataNames[static_cast<std::size_t>(data)]; }
std::string_view to_string(NmseCombine combine) {
  return kCombineNames[static_cast<std::size_t>(combine)];
}
Result<NmseData> parse_nmse_data(std::string_view name) {
  return parse_name<NmseData>("data", kDataNames, name);
}
Result<NmseCombine> parse_nmse_combine(std::string_view name) {
  return parse_name<NmseCombine>("combine", kCombineNames, name);
}

// Seed by seed, so that one set of gradients is held at a time; then all rows are told.
Status measure_nmse(const Registry& registry, const NmseRecipe& recipe, const NmseSink& sink) {
  if (recipe.elements < 1 || recipe.seeds < 1) {
    return {Code::kInvalidArgument,
            format("nmse: expected at least 1 element and seed (got %lld, %d)",
                   static_cast<long long>(recipe.elements), recipe.seeds)};
  }
  std::vector<std::unique_ptr<Compressor>> methods;
  for (const NmseRow& row : recipe.rows) {
    GW_ASSIGN(auto compressor, registry.make(row.spec));
    GW_TRY(check_row(row, *compressor, recipe.elements));
    methods.push_back(std::move(compressor));
  }
  std::vector<Measured> measured(recipe.rows.size());
  Gradients gradients(recipe);
  for (const NmseData data : {NmseData::kGaussian, NmseData::kLognormal}) {
    for (int seed = 0; seed < most_seeds(recipe); ++seed) {
      for (std::size_t i = 0; i < recipe.rows.size(); ++i) {
        const NmseRow& row = recipe.rows[i];
        if (row.data != data || seed >= seeds_of(recipe, row)) continue;
        const Status status =
            measure_row(*methods[i], row, seed, gradients.of(data, seed), measured[i]);
        if (!status.ok()) return status.with_context("nmse: row '" + row.spec + "'");
      }
    }
  }
  for (std::size_t i = 0; i < recipe.rows.size(); ++i) {
    judge(recipe.rows[i], measured[i]);
    sink(recipe.rows[i], measured[i].outcome);
  }
  return {};
}

}  // namespace gradwire
