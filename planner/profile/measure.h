// Measuring what training takes on this machine: layers by shape, and optimizers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "planner/profile/profile.h"
#include "trainer/data/data_set.h"
#include "trainer/model.h"

namespace gradwire {

// What a layer of the model is known by: its shape, without a name, rows and times.
ProfiledLayer profiled_shape(const Model<float>& model, std::size_t layer);
// Likewise what a pass does besides layers, of a model with that output: "LABEL loss".
ProfiledLayer profiled_loss(const SampleShape& output);

// One entry for each layer of the model, named "LABEL LAYER", in its order, and one for loading and
// the loss: medians of `rounds` passes, after one that is not counted, of micro-batches with `rows`
// training samples of `data`, others in each pass, and a step of sgd between passes. As training
// computes them on the host, on the calling thread. kInvalidArgument: rows or rounds below 1, more
// rows than there are samples, a model that is not of the data.
Result<std::vector<ProfiledLayer>> measure_layers(const Model<float>& model, const DataSet& data,
                                                  const std::string& label, std::int64_t rows,
                                                  int rounds);

// One step of sgd with momentum, adamw or lamb: the median of `rounds`, after one that is not
// counted. kInvalidArgument: elements or rounds below 1, and as make_optimizer().
Result<ProfiledOptimizer> measure_optimizer(const std::string& name, std::int64_t elements,
                                            int rounds);

// A micro-batch's gradients of so many elements, added to a sum as training does: the median of
// `rounds`, after one that is not counted. kInvalidArgument: elements or rounds below 1.
Result<ProfiledSum> measure_sum(std::int64_t elements, int rounds);

}  // namespace gradwire
