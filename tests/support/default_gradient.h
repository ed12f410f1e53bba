// The gradients of jobs that name none.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace gradwire::testing {

// Uniform in [-1, 1) by rank plus a part that all ranks share.
float default_gradient(const std::string& tensor, int rank, int step, std::int64_t e);
// Of all elements of `tensor`, from the first on.
void default_gradients(const std::string& tensor, int rank, int step, std::span<float> out);

}  // namespace gradwire::testing
