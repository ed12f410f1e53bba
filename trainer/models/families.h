// The parts of make_model(): one function per family.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainer/models.h"

namespace gradwire::families {

// kInvalidArgument "model NAME: WHAT GOT (expected LOW to HIGH)" unless it lies between them.
Status check_size(const std::string& model, const char* what, std::int64_t seen, std::int64_t low,
                  std::int64_t high);
Status check_image(const std::string& model, SampleShape image, std::int64_t smallest);

template <typename T>
Result<Model<T>> make_mlp(const ModelOptions& options, SampleShape input, std::int64_t classes);
template <typename T>
Result<Model<T>> make_cnn(const ModelOptions& options, SampleShape input, std::int64_t classes);
// Three stages of `blocks` basic blocks.
template <typename T>
Result<Model<T>> make_resnet(const ModelOptions& options, SampleShape input, std::int64_t classes,
                             int blocks);
template <typename T>
Result<Model<T>> make_alexnet(const ModelOptions& options, SampleShape input, std::int64_t classes);
template <typename T>
Result<Model<T>> make_gpt(const ModelOptions& options, SampleShape input, std::int64_t classes);

}  // namespace gradwire::families
