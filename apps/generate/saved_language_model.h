// What a checkpoint says of the language model that it holds.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/data/data_set.h"
#include "trainer/data/text.h"
#include "trainer/models.h"
#include "trainer/parameters.h"
#include "trainer/precision.h"

namespace gradwire {

struct SavedLanguageModel {
  ModelOptions model = {};
  std::int64_t context = 0;
  TokenKind tokens = TokenKind::kCharacters;
  std::vector<std::string> vocabulary = {};
  Precision precision = Precision::kF32;  // that passes computed from
};

// Settings of a run on a text, beside those that resuming compares: what saved_language_model()
// wants to know.
std::map<std::string, std::string> language_settings(const ModelOptions& model,
                                                     const DataSet& data);

// kInvalidArgument: it holds another model, or was written before checkpoints said this.
Result<SavedLanguageModel> saved_language_model(const CheckpointManifest& manifest);
// Parameters of `table`, a part of the model's or all, in its order, as passes read them.
Status read_saved_parameters(CheckpointReader& checkpoint, const SavedLanguageModel& saved,
                             const ParameterTable& table, std::span<float> values);

// `path`: a checkpoint's folder, or one with checkpoints, of which the last complete one is meant.
// kInvalidArgument where there is none.
Result<std::string> checkpoint_at(const std::string& path);

}  // namespace gradwire
