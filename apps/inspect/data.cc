// `gradwire inspect data SET`: what a data set holds and how its pixels become numbers.
#include <array>
#include <cstdio>

#include "apps/environment.h"
#include "apps/flags.h"
#include "apps/inspect/inspect.h"
#include "base/text.h"
#include "trainer/data/catalog.h"

namespace gradwire {
namespace {

void print_samples(const char* name, const DataSet& data, const Samples& samples) {
  std::array<std::int64_t, 256> per_class{};
  for (const std::uint8_t label : samples.labels) ++per_class[label];
  std::string classes;
  for (std::int64_t label = 0; label < data.classes(); ++label) {
    classes += format(" %lld", static_cast<long long>(per_class[static_cast<std::size_t>(label)]));
  }
  std::printf("%-6s %lld samples, per class%s\n", name, static_cast<long long>(samples.count()),
              classes.c_str());
}

// With all digits: outside programs repeat the normalisation from these figures.
std::string joined(const std::vector<double>& values, double scale) {
  std::string text;
  for (const double value : values) text += " " + shortest(value * scale);
  return text;
}

void print_text(const DataSet& data) {
  std::printf("%lld tokens of %zu to train, %lld to test; a sample is a window of %lld\n",
              static_cast<long long>(data.train().tokens.size()), data.vocabulary().size(),
              static_cast<long long>(data.test().tokens.size()),
              static_cast<long long>(data.labels_per_sample()));
}

void print_images(const DataSet& data) {
  const SampleShape shape = data.shape();
  std::printf("sample (%lld, %lld, %lld) bytes: channels, height, width; %lld classes\n",
              static_cast<long long>(shape.channels), static_cast<long long>(shape.height),
              static_cast<long long>(shape.width), static_cast<long long>(data.classes()));
  print_samples("train", data, data.train());
  print_samples("test", data, data.test());
  constexpr std::int64_t kMostChannels = 16;  // more are features, of no interest one by one
  if (shape.channels > kMostChannels) return;
  const Normalisation used = data.normalisation();
  std::printf("a byte v means (v / %g - mean) / deviation, per channel:\n", used.range);
  std::printf("  used      mean%s  deviation%s\n", joined(used.mean, 1).c_str(),
              joined(used.deviation, 1).c_str());
  const Normalisation measured = measure_normalisation(data.train(), shape);
  std::printf("  measured on the training pixels over %g: mean%s  deviation%s\n", used.range,
              joined(measured.mean, 255 / used.range).c_str(),
              joined(measured.deviation, 255 / used.range).c_str());
}

}  // namespace

Result<int> inspect_data(const std::vector<std::string>& args) {
  std::string name;
  std::string data_dir;
  DataOptions options;
  Flags flags("inspect data", "Reads and checks a data set and prints its counts and figures.");
  flags.positional("set", name, "digits, fashion-mnist, cifar10-subset, tinyshakespeare, ...");
  flags.text("data-dir", data_dir, "the set's folder or its parent; else GRADWIRE_DATA",
             "the carried sets");
  flags.text("text-file", options.text_file, "the text of the set text");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if ((name == "text") != flags.given("text-file")) {
    return Status(Code::kInvalidArgument,
                  "inspect data: --text-file and the set text belong together ('" + name +
                      (flags.given("text-file") ? "' with" : "' without") +
                      " --text-file seen; both or none wanted)");
  }
  const DataPlaces places{data_dir, environment("GRADWIRE_DATA").value_or("")};
  GW_ASSIGN(const std::string folder, find_data_set(name, places));
  GW_ASSIGN(const DataSet data, load_data_set(name, places, options));
  std::printf("%s%s%s\n", data.name().c_str(), folder.empty() ? "" : " in ", folder.c_str());
  if (data.is_text()) {
    print_text(data);
  } else {
    print_images(data);
  }
  return 0;
}

}  // namespace gradwire
