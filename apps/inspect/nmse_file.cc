#include "apps/inspect/nmse_file.h"

#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/nearest.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr double kMostElements = 1 << 26;
constexpr double kMostSeeds = 1000;
constexpr double kMostNmseRanks = 128;
constexpr double kMost = std::numeric_limits<double>::max();

Status wrong(const std::string& where, const std::string& key, const nlohmann::json& seen,
             const std::string& wanted) {
  return {Code::kInvalidArgument,
          where + ": '" + key + "' must be " + wanted + " (got " + seen.dump() + ")"};
}

// Takes the keys of one object and knows what is left.
class Keys {
 public:
  Keys(std::string where, const nlohmann::json& object) : where_(std::move(where)), left_(object) {}

  Result<std::string> text(const std::string& key, const std::string& fallback) {
    const nlohmann::json value = take(key);
    if (value.is_null()) return fallback;
    if (value.is_string()) return value.get<std::string>();
    return wrong(where_, key, value, "a text");
  }
  Result<double> number(const std::string& key, double fallback, double least, double most) {
    const nlohmann::json value = take(key);
    if (value.is_null()) return fallback;
    if (value.is_number() && value.get<double>() >= least && value.get<double>() <= most) {
      return value.get<double>();
    }
    return wrong(where_, key, value, "a number from " + shortest(least) + " to " + shortest(most));
  }
  Result<int> integer(const std::string& key, int fallback, double least, double most) {
    const nlohmann::json value = take(key);
    if (value.is_null()) return fallback;
    if (value.is_number_integer() && value.get<double>() >= least && value.get<double>() <= most) {
      return value.get<int>();
    }
    return wrong(where_, key, value,
                 "an integer from " + shortest(least) + " to " + shortest(most));
  }
  nlohmann::json take(const std::string& key) {
    taken_.push_back(key);
    const auto found = left_.find(key);
    if (found == left_.end()) return {};
    nlohmann::json value = *found;
    left_.erase(key);
    return value;
  }
  Status nothing_left() const {
    if (left_.empty()) return {};
    const std::string key = left_.begin().key();
    return {Code::kInvalidArgument,
            where_ + ": unknown key '" + key + "'" + did_you_mean(key, taken_)};
  }

 private:
  std::string where_;
  nlohmann::json left_;
  std::vector<std::string> taken_;  // every key that was asked for
};

Result<NmseRow> parse_row(std::size_t index, const nlohmann::json& json) {
  const std::string where = format("row %zu", index);
  if (!json.is_object()) return wrong(where, "rows", json, "an object");
  Keys keys(where, json);
  NmseRow row;
  GW_ASSIGN(row.spec, keys.text("spec", ""));
  if (row.spec.empty()) {
    return Status(Code::kInvalidArgument, where + ": 'spec' is missing (expected a compressor)");
  }
  GW_ASSIGN(const std::string data, keys.text("data", "gaussian"));
  GW_ASSIGN(row.data, parse_nmse_data(data));
  GW_ASSIGN(const std::string combine, keys.text("combine", "none"));
  GW_ASSIGN(row.combine, parse_nmse_combine(combine));
  GW_ASSIGN(row.ranks,
            keys.integer("ranks", row.combine == NmseCombine::kNone ? 1 : 4, 1, kMostNmseRanks));
  GW_ASSIGN(row.matrix_rows, keys.integer("matrix_rows", 0, 1, kMostElements));
  GW_ASSIGN(row.nmse, keys.number("nmse", 0, 0, kMost));
  GW_ASSIGN(row.factor, keys.number("factor", row.factor, 1, kMost));
  GW_ASSIGN(row.bits, keys.number("bits", 0, 0, kMost));
  GW_ASSIGN(row.seeds, keys.integer("seeds", 0, 1, kMostSeeds));
  const nlohmann::json judged = keys.take("judged");
  row.of_one_seed = judged == "any seed";
  if (!judged.is_null() && judged != "mean" && !row.of_one_seed) {
    return wrong(where, "judged", judged, "\"mean\" or \"any seed\"");
  }
  GW_TRY(keys.nothing_left());
  return row;
}

}  // namespace

Result<NmseRecipe> parse_nmse_recipe(std::string_view text) {
  const nlohmann::json json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) {
    return Status(Code::kInvalidArgument, "recipe: not a JSON object (expected {\"rows\": [...]})");
  }
  Keys keys("recipe", json);
  NmseRecipe recipe;
  GW_ASSIGN(recipe.elements, keys.integer("elements", 65536, 1, kMostElements));
  GW_ASSIGN(recipe.seeds, keys.integer("seeds", recipe.seeds, 1, kMostSeeds));
  const nlohmann::json rows = keys.take("rows");
  if (!rows.is_array() || rows.empty()) return wrong("recipe", "rows", rows, "a list of rows");
  for (std::size_t i = 0; i < rows.size(); ++i) {
    GW_ASSIGN(NmseRow row, parse_row(i, rows[i]));
    recipe.rows.push_back(std::move(row));
  }
  GW_TRY(keys.nothing_left());
  return recipe;
}

}  // namespace gradwire
