#include "apps/generate/saved_language_model.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/text.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/store.h"
#include "trainer/data/token_text.h"

namespace gradwire {
namespace {

constexpr const char* kVocabulary = "vocabulary";

// A whole number of the settings.
Result<std::int64_t> number_of(const std::map<std::string, std::string>& settings,
                               const std::string& name) {
  const auto found = settings.find(name);
  const auto number = found == settings.end() ? std::nullopt : to_int(found->second);
  if (number) return *number;
  return Status(Code::kInvalidArgument,
                "its setting '" + name + "' is " +
                    (found == settings.end() ? "missing" : "'" + found->second + "'") +
                    " (expected a whole number)");
}

std::string text_of(const std::map<std::string, std::string>& settings, const std::string& name) {
  const auto found = settings.find(name);
  return found == settings.end() ? std::string() : found->second;
}

}  // namespace

std::map<std::string, std::string> language_settings(const ModelOptions& model,
                                                     const DataSet& data) {
  return {{"layers", std::to_string(model.layers)},
          {"width", std::to_string(model.width.value_or(kGptWidth))},
          {"tied", model.tied ? "yes" : "no"},
          {kVocabulary, vocabulary_text(data.vocabulary())}};
}

Result<SavedLanguageModel> saved_language_model(const CheckpointManifest& manifest) {
  const auto& settings = manifest.settings;
  SavedLanguageModel saved;
  saved.model.name = text_of(settings, "model");
  if (saved.model.name != "gpt") {
    return Status(Code::kInvalidArgument,
                  "it holds a model '" + saved.model.name + "' (expected a language model: gpt)");
  }
  if (!settings.contains(kVocabulary)) {
    return Status(Code::kInvalidArgument,
                  "it was written by " + manifest.written_by +
                      ", whose checkpoints do not say what their tokens are (expected one of a "
                      "later version: train --resume continues from this one and writes it)");
  }
  GW_ASSIGN(saved.vocabulary, parse_vocabulary(settings.at(kVocabulary)));
  GW_ASSIGN(saved.tokens, parse_token_kind(text_of(settings, "tokens")));
  GW_ASSIGN(saved.precision, parse_precision(text_of(settings, "precision")));
  GW_ASSIGN(saved.context, number_of(settings, "context"));
  GW_ASSIGN(saved.model.heads, number_of(settings, "heads"));
  GW_ASSIGN(saved.model.layers, number_of(settings, "layers"));
  GW_ASSIGN(saved.model.width, number_of(settings, "width"));
  saved.model.tied = text_of(settings, "tied") == "yes";
  return saved;
}

// Where owners of shards stepped, what passes saw is rounded from what those hold.
Status read_saved_parameters(CheckpointReader& checkpoint, const SavedLanguageModel& saved,
                             const ParameterTable& table, std::span<float> values) {
  const auto& tensors = checkpoint.manifest().tensors;
  const std::vector<NamedTensor> named = named_tensors(table, values);
  for (std::size_t i = 0; i < named.size(); ++i) {
    const std::string master = "master/" + named[i].name;
    const std::string name = tensors.contains(master) ? master : "parameters/" + named[i].name;
    GW_TRY(checkpoint.read(name, box_of(table[i]), 0, named[i].tensor));
  }
  if (saved.precision != Precision::kF32) round_to(saved.precision, values);
  return {};
}

Result<std::string> checkpoint_at(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (fs::exists(fs::path(path) / kManifestName, error)) return path;
  const CheckpointStore store(path);
  GW_ASSIGN(const std::vector<std::int64_t> steps, store.complete());
  if (!steps.empty()) return store.path_of(steps.back());
  return Status(Code::kInvalidArgument,
                "no complete checkpoint in " + path +
                    " (expected the folder of train --checkpoint, or one of those in it)");
}

}  // namespace gradwire
