#include "aggregate/keys.h"

#include <array>
#include <limits>
#include <string>
#include <utility>

#include "compress/spec_reader.h"

namespace gradwire {
namespace {

constexpr std::array<std::string_view, 7> kKeys{"ef",       "ef_scale",     "combine", "min_elems",
                                                "dense_1d", "warmup_steps", "seed"};
constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

Result<Combine> read_combine(const SpecReader& reader) {
  GW_ASSIGN(const std::string text,
            reader.choice("combine", "auto", {"auto", "sum", "gather", "sra"}));
  if (text == "sum") return Combine::kSum;
  if (text == "gather") return Combine::kGather;
  if (text == "sra") return Combine::kSra;
  return Combine::kAuto;
}

// True when the key has the second of its two values; the first is its default.
Result<bool> read_switch(const SpecReader& reader, std::string_view key, const std::string& first,
                         const std::string& second) {
  const auto chosen = reader.choice(key, first, {first, second});
  if (!chosen.has_value()) return chosen.error();
  return chosen.value() == second;
}

Result<AggregatorKeys> read_keys(const Spec& spec) {
  const SpecReader reader(spec);
  AggregatorKeys keys;
  GW_ASSIGN(keys.error_feedback, read_switch(reader, "ef", "none", "ef14"));
  GW_ASSIGN(keys.scale_feedback, read_switch(reader, "ef_scale", "auto", "none"));
  keys.scale_feedback = !keys.scale_feedback;
  GW_ASSIGN(keys.combine, read_combine(reader));
  GW_ASSIGN(keys.min_elems, reader.integer("min_elems", keys.min_elems, 0, kMost));
  GW_ASSIGN(keys.dense_1d, reader.boolean("dense_1d", keys.dense_1d));
  GW_ASSIGN(keys.warmup_steps, reader.integer("warmup_steps", keys.warmup_steps, 0, kMost));
  if (reader.has("seed")) {
    GW_ASSIGN(const std::int64_t seed, reader.integer("seed", 0, 0, kMost));
    keys.seed = static_cast<std::uint64_t>(seed);
  }
  return keys;
}

}  // namespace

std::string_view to_string(Combine combine) {
  switch (combine) {
    case Combine::kAuto: return "auto";
    case Combine::kSum: return "sum";
    case Combine::kGather: return "gather";
    case Combine::kSra: return "sra";
  }
  return "?";
}

bool is_aggregator_key(std::string_view key) {
  for (const std::string_view known : kKeys) {
    if (key == known) return true;
  }
  return false;
}

std::string_view aggregator_key_list() {
  return "ef, ef_scale, combine, min_elems, dense_1d, warmup_steps, seed";
}

Result<SplitSpec> split_spec(const SpecChain& chain) {
  SplitSpec split;
  Spec own{chain.front().name, {}};
  for (std::size_t stage = 0; stage < chain.size(); ++stage) {
    Spec rest{chain[stage].name, {}};
    for (const auto& param : chain[stage].params) {
      if (!is_aggregator_key(param.first)) {
        rest.params.push_back(param);
      } else if (stage == 0) {
        own.params.push_back(param);
      } else {
        return Status(Code::kInvalidArgument, "compressor '" + to_string(chain) + "': key '" +
                                                  param.first + "' belongs into the first stage");
      }
    }
    split.method.push_back(std::move(rest));
  }
  GW_ASSIGN(split.keys, read_keys(own));
  return split;
}

}  // namespace gradwire
