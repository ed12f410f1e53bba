// `gradwire inspect nmse`: measured quantisation errors beside the expected ones.
#include <cstdio>
#include <nlohmann/json.hpp>

#include "apps/flags.h"
#include "apps/inspect/inspect.h"
#include "apps/inspect/nmse_file.h"
#include "apps/whole_file.h"
#include "base/text.h"
#include "bench/nmse.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

Json row_of(int seeds, const NmseRow& row, const NmseOutcome& outcome) {
  Json json;
  json["spec"] = row.spec;
  json["data"] = to_string(row.data);
  json["combine"] = to_string(row.combine);
  json["ranks"] = row.ranks;
  if (row.matrix_rows != 0) json["matrix_rows"] = row.matrix_rows;
  json["seeds"] = row.seeds == 0 ? seeds : row.seeds;
  json["nmse"] = outcome.nmse;
  json["least"] = outcome.least;
  json["most"] = outcome.most;
  if (row.nmse != 0) {
    json["expected"] = row.nmse;
    json["factor"] = row.factor;
    json["mean_within"] = outcome.mean_within;
    json["judged"] = row.of_one_seed ? "any seed" : "mean";
  }
  json["bits_per_element"] = outcome.bits;
  if (row.bits != 0) json["expected_bits"] = row.bits;
  json["pass"] = outcome.pass;
  return json;
}

void print_row(const NmseRow& row, const NmseOutcome& outcome) {
  const std::string wanted = row.nmse == 0 ? "-" : format("%.2e", row.nmse);
  const std::string factor =
      row.nmse == 0 ? "-" : format(row.of_one_seed ? "any %.3g" : "%.3g", row.factor);
  const std::string bits = row.bits == 0 ? "-" : format("%.5g", row.bits);
  const bool judged = row.nmse != 0 || row.bits != 0;
  const std::string matrix = row.matrix_rows == 0 ? "" : format(", %d rows", row.matrix_rows);
  std::printf("%-34s %-9s %-8s %5d  %8.2e %8.2e %8.2e  %8s %7s  %8.5g %8s  %s\n",
              (row.spec + matrix).c_str(), std::string(to_string(row.data)).c_str(),
              std::string(to_string(row.combine)).c_str(), row.ranks, outcome.nmse, outcome.least,
              outcome.most, wanted.c_str(), factor.c_str(), outcome.bits, bits.c_str(),
              !judged        ? "-"
              : outcome.pass ? "pass"
                             : "MISS");
}

void print_head(const NmseRecipe& recipe) {
  std::printf(
      "%lld elements, %d seeds per row unless the row says otherwise; nmse: mean, least and most "
      "over the seeds; factor: largest allowed ratio to the expected nmse, of the mean or of any "
      "seed\n",
      static_cast<long long>(recipe.elements), recipe.seeds);
  std::printf("%-34s %-9s %-8s %5s  %8s %8s %8s  %8s %7s  %8s %8s\n", "spec", "data", "combine",
              "ranks", "nmse", "least", "most", "expected", "factor", "bits", "expected");
}

Result<NmseRecipe> recipe_of(const std::string& name) {
  if (name == "built-in") return built_in_nmse_recipe();
  GW_ASSIGN(const std::string text, read_whole_file(name));
  auto recipe = parse_nmse_recipe(text);
  if (!recipe.has_value()) return recipe.error().with_context(name);
  return recipe;
}

}  // namespace

Result<int> inspect_nmse(const std::vector<std::string>& args) {
  std::string name = "built-in";
  bool as_json = false;
  Flags flags("inspect nmse",
              "Measures the normalised mean squared error of compressors on synthetic gradients, "
              "alone and combined over ranks, beside the expected error. Exits with 1 if a row "
              "misses its expectation.");
  flags.file("recipe", name,
             "built-in, or a JSON file: {\"elements\", \"seeds\", \"rows\": [{\"spec\", "
             "\"data\": gaussian|lognormal, \"combine\": none|gather|sra|ring|doubling, "
             "\"ranks\", \"matrix_rows\", \"nmse\", \"factor\", \"bits\", \"seeds\", \"judged\": "
             "mean|any seed}]}, all optional except spec");
  flags.toggle("json", as_json, "one JSON line per row");
  flags.example(
      "echo '{\"elements\": 1000, \"rows\": [{\"spec\": \"qsgd:bits=4\"}]}' > recipe.json && "
      "gradwire "
      "inspect nmse --recipe recipe.json");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  GW_ASSIGN(const NmseRecipe recipe, recipe_of(name));
  if (!as_json) print_head(recipe);
  int missed = 0;
  int means_off = 0;
  GW_TRY(measure_nmse(Registry::builtin(), recipe,
                      [&](const NmseRow& row, const NmseOutcome& measured) {
                        missed += measured.pass ? 0 : 1;
                        means_off += measured.pass && !measured.mean_within ? 1 : 0;
                        if (as_json) {
                          std::printf("%s\n", row_of(recipe.seeds, row, measured).dump().c_str());
                        } else {
                          print_row(row, measured);
                        }
                      }));
  if (!as_json) {
    std::printf(
        "%d of %zu rows missed their expectation; %d passed for every seed, not for the mean\n",
        missed, recipe.rows.size(), means_off);
  }
  return missed == 0 ? 0 : 1;
}

}  // namespace gradwire
