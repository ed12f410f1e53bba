#include "trainer/data/catalog.h"

#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include "base/nearest.h"
#include "base/text.h"
#include "trainer/built_in_places.h"
#include "trainer/data/cifar10.h"
#include "trainer/data/digits.h"
#include "trainer/data/file_bytes.h"
#include "trainer/data/idx.h"
#include "trainer/data/synthetic.h"

namespace gradwire {
namespace {

constexpr std::int64_t kClasses = 10;

// Paths of a set's files, in the order of Entry::files, as they were found (with or without .gz).
using Paths = std::vector<std::string>;

Result<DataSet> load_digits(const Paths& paths, const DataOptions& /*options*/) {
  GW_ASSIGN(Samples all, read_digits(paths[0]));
  if (all.count() != kDigitsCount) {
    return Status(Code::kCorruptPayload, format("%s: %lld lines (expected %lld)", paths[0].c_str(),
                                                static_cast<long long>(all.count()),
                                                static_cast<long long>(kDigitsCount)));
  }
  Samples test;
  test.pixels.assign(all.pixels.begin() + kDigitsTrain * kDigitsShape.elems(), all.pixels.end());
  test.labels.assign(all.labels.begin() + kDigitsTrain, all.labels.end());
  all.pixels.resize(static_cast<std::size_t>(kDigitsTrain * kDigitsShape.elems()));
  all.labels.resize(static_cast<std::size_t>(kDigitsTrain));
  return DataSet("digits", kDigitsShape, kClasses, {16, {0}, {1}}, std::move(all), std::move(test));
}

Result<DataSet> load_fashion_mnist(const Paths& paths, const DataOptions& /*options*/) {
  GW_ASSIGN(IdxSamples train, read_idx(paths[0], paths[1], kClasses));
  GW_ASSIGN(IdxSamples test, read_idx(paths[2], paths[3], kClasses));
  if (train.shape != test.shape) {
    return Status(
        Code::kCorruptPayload,
        format("%s: images of %lldx%lld (expected %lldx%lld, as in %s)", paths[2].c_str(),
               static_cast<long long>(test.shape.height), static_cast<long long>(test.shape.width),
               static_cast<long long>(train.shape.height),
               static_cast<long long>(train.shape.width), paths[0].c_str()));
  }
  return DataSet("fashion-mnist", train.shape, kClasses, {255, {0.2860}, {0.3530}},
                 std::move(train.samples), std::move(test.samples));
}

Result<DataSet> load_cifar10_subset(const Paths& paths, const DataOptions& /*options*/) {
  GW_ASSIGN(Samples train, read_cifar10(paths[0]));
  GW_ASSIGN(Samples test, read_cifar10(paths[1]));
  Normalisation measured = measure_normalisation(train, kCifar10Shape);
  return DataSet("cifar10-subset", kCifar10Shape, kClasses, std::move(measured), std::move(train),
                 std::move(test));
}

std::string_view text_in(const std::vector<std::uint8_t>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr std::size_t kLongestText = std::size_t{1} << 30;

Result<DataSet> read_text(const std::string& name, const std::string& path,
                          const DataOptions& options) {
  GW_ASSIGN(const std::vector<std::uint8_t> bytes, read_file_bytes(path, kLongestText));
  return make_text(name, text_in(bytes), options.text);
}

Result<DataSet> load_tinyshakespeare(const Paths& paths, const DataOptions& options) {
  return read_text("tinyshakespeare", paths[0], options);
}

Result<DataSet> load_text(const Paths& /*paths*/, const DataOptions& options) {
  if (options.text_file.empty()) {
    return Status(Code::kInvalidArgument, "data set text: no file (expected one to read)");
  }
  if (options.valid_file.empty()) return read_text("text", options.text_file, options);
  GW_ASSIGN(const std::vector<std::uint8_t> train,
            read_file_bytes(options.text_file, kLongestText));
  GW_ASSIGN(const std::vector<std::uint8_t> test,
            read_file_bytes(options.valid_file, kLongestText));
  return make_text("text", text_in(train), text_in(test), options.text);
}

Result<DataSet> load_grammar(const Paths& /*paths*/, const DataOptions& options) {
  constexpr std::int64_t kSentences = 8000;
  return make_text("grammar", grammar_text(kSentences), options.text);
}

Result<DataSet> load_separable(const Paths& /*paths*/, const DataOptions& /*options*/) {
  return make_separable();
}

Result<DataSet> load_sparse(const Paths& /*paths*/, const DataOptions& /*options*/) {
  return make_sparse();
}

struct Entry {
  std::string name;
  Paths files;  // each may also lie there with .gz appended; none: the set lies in no folder
  Result<DataSet> (*load)(const Paths& paths, const DataOptions& options);
  bool is_text = false;
};

std::vector<Entry> entries() {
  return {
      {"digits", {"digits.csv"}, load_digits},
      {"fashion-mnist",
       {"train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte",
        "t10k-labels-idx1-ubyte"},
       load_fashion_mnist},
      {"cifar10-subset", {"train_jpeg_8000.bin", "test_jpeg_2000.bin"}, load_cifar10_subset},
      {"tinyshakespeare", {"input.txt"}, load_tinyshakespeare, true},
      {"text", {}, load_text, true},
      {"grammar", {}, load_grammar, true},
      {"separable", {}, load_separable},
      {"sparse", {}, load_sparse},
  };
}

// The set's files in `folder`, or none if one is missing.
Paths files_in(const std::filesystem::path& folder, const Entry& entry) {
  Paths found;
  for (const std::string& file : entry.files) {
    for (const char* suffix : {"", ".gz"}) {
      const std::filesystem::path path = folder / (file + suffix);
      std::error_code ignored;
      if (!std::filesystem::is_regular_file(path, ignored)) continue;
      found.push_back(path.string());
      break;
    }
  }
  if (found.size() != entry.files.size()) found.clear();
  return found;
}

struct Found {
  std::filesystem::path folder;
  Paths files;
};

Result<Found> find(const Entry& entry, const DataPlaces& places) {
  if (entry.files.empty()) return Found{};
  std::string searched;
  std::error_code ignored;
  if (!places.data_dir.empty() && !std::filesystem::is_directory(places.data_dir, ignored)) {
    return Status(Code::kInvalidArgument,
                  "data-dir " + places.data_dir +
                      " is no folder (expected a data set's folder or its parent)");
  }
  for (const std::string& place : {places.data_dir, places.environment_dir,
                                   std::string(kSourceDataDir), std::string(kInstalledDataDir)}) {
    if (place.empty()) continue;
    for (const std::filesystem::path& folder :
         {std::filesystem::path(place), std::filesystem::path(place) / entry.name}) {
      Paths files = files_in(folder, entry);
      if (!files.empty()) return Found{folder, std::move(files)};
      searched += (searched.empty() ? "" : ", ") + folder.string();
    }
  }
  std::string wanted;
  for (const std::string& file : entry.files) wanted += (wanted.empty() ? "" : ", ") + file;
  return Status(
      Code::kInvalidArgument,
      "data set " + entry.name + " not found (searched " + searched +
          "; expected one folder with " + wanted + ", each plain or .gz" +
          (entry.name == "fashion-mnist" ? "; gradwire data fetch fashion-mnist gets it)" : ")"));
}

Result<Entry> entry_of(std::string_view name) {
  std::string names;
  for (Entry& entry : entries()) {
    if (entry.name == name) return std::move(entry);
    names += (names.empty() ? "" : ", ") + entry.name;
  }
  return Status(Code::kInvalidArgument, "unknown data set '" + std::string(name) + "'" +
                                            did_you_mean(name, data_set_names()) + " (expected " +
                                            names + ")");
}

}  // namespace

std::vector<std::string> data_set_names() {
  std::vector<std::string> names;
  for (Entry& entry : entries()) names.push_back(std::move(entry.name));
  return names;
}

bool is_text_set(std::string_view name) {
  const auto entry = entry_of(name);
  return entry.has_value() && entry.value().is_text;
}

Result<std::string> find_data_set(std::string_view name, const DataPlaces& places) {
  GW_ASSIGN(const Entry entry, entry_of(name));
  GW_ASSIGN(const Found found, find(entry, places));
  return found.folder.string();
}

Result<DataSet> load_data_set(std::string_view name, const DataPlaces& places,
                              const DataOptions& options) {
  GW_ASSIGN(const Entry entry, entry_of(name));
  GW_ASSIGN(const Found found, find(entry, places));
  return entry.load(found.files, options);
}

}  // namespace gradwire
