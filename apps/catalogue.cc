#include "apps/catalogue.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string_view>

#include "apps/environment.h"
#include "base/text.h"
#include "trainer/data/catalog.h"
#include "trainer/models.h"

namespace gradwire {
namespace {

using Texts = std::map<std::string_view, const char*>;

const Texts& model_texts() {
  static const Texts texts{
      {"mlp", "multilayer perceptron, --hidden 128,64; for images"},
      {"cnn", "two 3x3 convolutions with pooling, one linear layer; for images"},
      {"logistic", "logistic regression, convex; for images"},
      {"linear", "linear least squares on one-hot labels, convex; for images"},
      {"resnet8", "residual network with 3 blocks and batch norm; for images"},
      {"resnet20", "residual network with 9 blocks and batch norm (He et al. 2016); for images"},
      {"alexnet", "five convolutions, three linear layers (Krizhevsky et al. 2012); for images"},
      {"gpt", "decoder-only transformer, --layers 2 --heads 4 --width 64; for texts"},
  };
  return texts;
}

const Texts& data_texts() {
  static const Texts texts{
      {"digits", "handwritten digits, 1,437 + 360 grey images of 8x8; comes with gradwire"},
      {"fashion-mnist", "clothes, 60,000 + 10,000 grey images of 28x28; gradwire data fetch"},
      {"cifar10-subset", "photographs, 8,000 + 2,000 colour images of 32x32; files in --data-dir"},
      {"tinyshakespeare", "plays as one text, input.txt; file in --data-dir"},
      {"text", "any text, --text-file FILE"},
      {"grammar", "generated sentences of a small grammar, a text"},
      {"separable", "generated: ten linearly separable classes of 64 features, 4,096 + 1,024"},
      {"sparse", "generated: two classes of 1,000 sparse features, 4,096 + 1,024"},
  };
  return texts;
}

std::vector<CatalogueEntry> entries_of(const std::vector<std::string>& names, const Texts& texts) {
  std::vector<CatalogueEntry> all;
  for (const std::string& name : names) {
    const auto found = texts.find(name);
    all.push_back({.name = name, .help = found == texts.end() ? "" : found->second});
  }
  return all;
}

std::string table_of(const std::vector<CatalogueEntry>& entries) {
  std::string text;
  for (const CatalogueEntry& entry : entries) {
    text += format("%-16s %s%s\n", entry.name.c_str(), entry.help.c_str(),
                   entry.is_there ? "" : " (not found)");
  }
  return text;
}

}  // namespace

std::vector<CatalogueEntry> model_catalogue() { return entries_of(model_names(), model_texts()); }

std::vector<CatalogueEntry> data_catalogue() {
  std::vector<CatalogueEntry> all = entries_of(data_set_names(), data_texts());
  const DataPlaces places{.data_dir = {},
                          .environment_dir = environment("GRADWIRE_DATA").value_or("")};
  for (CatalogueEntry& entry : all) {
    entry.is_there = find_data_set(entry.name, places).has_value();
  }
  return all;
}

std::string model_list() { return table_of(model_catalogue()); }
std::string data_list() { return table_of(data_catalogue()); }

std::string model_json_lines() {
  std::string text;
  for (const CatalogueEntry& entry : model_catalogue()) {
    const nlohmann::ordered_json json{
        {"kind", "model"}, {"name", entry.name}, {"help", entry.help}};
    text += json.dump() + "\n";
  }
  return text;
}

std::string data_json_lines() {
  std::string text;
  for (const CatalogueEntry& entry : data_catalogue()) {
    const nlohmann::ordered_json json{
        {"kind", "data"}, {"name", entry.name}, {"help", entry.help}, {"found", entry.is_there}};
    text += json.dump() + "\n";
  }
  return text;
}

}  // namespace gradwire
