// `gradwire inspect data SET`: what a data set holds and how its pixels become numbers.
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "apps/catalogue.h"
#include "apps/environment.h"
#include "apps/flags.h"
#include "apps/inspect/inspect.h"
#include "base/text.h"
#include "trainer/data/catalog.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

std::vector<std::int64_t> counts_of(const DataSet& data, const Samples& samples) {
  std::vector<std::int64_t> per_class(static_cast<std::size_t>(data.classes()));
  for (const std::uint8_t label : samples.labels) ++per_class.at(label);
  return per_class;
}

void print_samples(const char* name, const Json& samples) {
  std::string classes;
  for (const Json& count : samples["per_class"]) classes += " " + count.dump();
  std::printf("%-6s %lld samples, per class%s\n", name, samples["samples"].get<long long>(),
              classes.c_str());
}

// With all digits: outside programs repeat the normalisation from these figures.
std::string joined(const Json& values) {
  std::string text;
  for (const Json& value : values) text += " " + shortest(value.get<double>());
  return text;
}

std::vector<double> scaled(std::vector<double> values, double scale) {
  for (double& value : values) value *= scale;
  return values;
}

Json text_facts(const DataSet& data) {
  return {{"vocabulary", data.vocabulary().size()},
          {"train_tokens", data.train().tokens.size()},
          {"test_tokens", data.test().tokens.size()},
          {"context", data.labels_per_sample()}};
}

void print_text(const Json& facts) {
  std::printf("%lld tokens of %lld for training, %lld for testing; a sample has %lld tokens\n",
              facts["train_tokens"].get<long long>(), facts["vocabulary"].get<long long>(),
              facts["test_tokens"].get<long long>(), facts["context"].get<long long>());
}

Json image_facts(const DataSet& data) {
  constexpr std::int64_t kMostChannels = 16;  // more are features, of no interest one by one
  const SampleShape shape = data.shape();
  Json facts{{"channels", shape.channels},
             {"height", shape.height},
             {"width", shape.width},
             {"classes", data.classes()}};
  for (const auto& [name, samples] :
       {std::pair("train", &data.train()), std::pair("test", &data.test())}) {
    facts[name] = {{"samples", samples->count()}, {"per_class", counts_of(data, *samples)}};
  }
  if (shape.channels > kMostChannels) return facts;
  const Normalisation used = data.normalisation();
  const Normalisation measured = measure_normalisation(data.train(), shape);
  facts["range"] = used.range;
  facts["mean"] = used.mean;
  facts["deviation"] = used.deviation;
  facts["measured_mean"] = scaled(measured.mean, 255 / used.range);
  facts["measured_deviation"] = scaled(measured.deviation, 255 / used.range);
  return facts;
}

void print_images(const Json& facts) {
  std::printf("sample (%lld, %lld, %lld) bytes: channels, height, width; %lld classes\n",
              facts["channels"].get<long long>(), facts["height"].get<long long>(),
              facts["width"].get<long long>(), facts["classes"].get<long long>());
  print_samples("train", facts["train"]);
  print_samples("test", facts["test"]);
  if (!facts.contains("range")) return;
  const double range = facts["range"].get<double>();
  std::printf("a byte v means (v / %g - mean) / deviation, per channel:\n", range);
  std::printf("  used      mean%s  deviation%s\n", joined(facts["mean"]).c_str(),
              joined(facts["deviation"]).c_str());
  std::printf("  measured on the training pixels over %g: mean%s  deviation%s\n", range,
              joined(facts["measured_mean"]).c_str(), joined(facts["measured_deviation"]).c_str());
}

}  // namespace

Result<int> inspect_data(const std::vector<std::string>& args) {
  std::string name;
  std::string data_dir;
  DataOptions options;
  bool as_json = false;
  Flags flags("inspect data",
              "Reads and checks a data set and prints its counts and normalisation. Without SET, "
              "lists the data sets.");
  flags.positional("SET", name, "name of a data set", true, data_set_names());
  flags.folder("data-dir", data_dir, "folder of the data set, or its parent",
               "GRADWIRE_DATA, else the sets that come with gradwire");
  flags.file("text-file", options.text_file, "text of the set text");
  flags.toggle("json", as_json, "one JSON line per data set");
  flags.example("gradwire inspect data digits");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if ((name == "text") != flags.given("text-file")) {
    return Status(Code::kInvalidArgument,
                  "inspect data: --text-file and the set text require each other (got '" + name +
                      (flags.given("text-file") ? "' with" : "' without") + " --text-file)");
  }
  if (name.empty()) {
    std::printf("%s", (as_json ? data_json_lines() : data_list()).c_str());
    return 0;
  }
  const DataPlaces places{data_dir, environment("GRADWIRE_DATA").value_or("")};
  GW_ASSIGN(const std::string folder, find_data_set(name, places));
  GW_ASSIGN(const DataSet data, load_data_set(name, places, options));
  const Json facts = data.is_text() ? text_facts(data) : image_facts(data);
  if (as_json) {
    Json line{{"kind", "data"}, {"name", data.name()}, {"folder", folder}};
    line.update(facts);
    std::printf("%s\n", line.dump().c_str());
    return 0;
  }
  std::printf("%s%s%s\n", data.name().c_str(), folder.empty() ? "" : " in ", folder.c_str());
  if (data.is_text()) {
    print_text(facts);
  } else {
    print_images(facts);
  }
  return 0;
}

}  // namespace gradwire
