// The bundled trainer's model of a plan: shapes alone, so that any size may be asked about.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "apps/plan/plan_question.h"
#include "trainer/accounts/run_memory.h"
#include "trainer/model.h"
#include "trainer/tensor_share.h"

namespace gradwire {

// --model; a gpt has the transformer's shape and tied ends, as transformer_params() counts. `share`
// is the part of it that a rank has. Errors as make_model().
Result<Model<float>> plan_model(const PlanQuestion& question, const TensorShare& share = {});

// What is asked of a run of it on one rank, at one stage of ZeRO.
Result<RunMemoryQuestion> plan_run(const PlanQuestion& question, int stage);

// "3x224x224": channels, height and width, 2^30 elements at most. kInvalidArgument: another text.
Result<SampleShape> parse_image_size(const std::string& text);

// The flags of gradwire train that name the model, with values as TOML has them.
std::vector<std::pair<std::string, std::string>> model_flags_of_train(const PlanQuestion& question,
                                                                      bool tied);

}  // namespace gradwire
