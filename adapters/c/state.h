// A gw_state: named tensors with memory of their own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/c.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

// NOLINTBEGIN(readability-identifier-naming): declared in gradwire/c.h
struct gw_state {
  struct Entry {
    std::string name;
    gradwire::Shape shape;
    gradwire::DType dtype = gradwire::DType::kF32;
    std::vector<std::byte> bytes = {};
  };
  static constexpr std::uint64_t kMagic = 0x67775f7374617431;
  std::uint64_t magic = kMagic;
  std::vector<Entry> entries;
};
// NOLINTEND(readability-identifier-naming)

namespace gradwire::c {

// Of `function`'s argument. kInvalidArgument for more than four dimensions or a negative one.
Result<Shape> shape_of(const char* function, int dimensions, const std::int64_t (&shape)[4]);
// A copy.
gw_state* copy_of(const std::vector<NamedTensor>& tensors);
// Views of what it holds.
std::vector<NamedTensor> views_of(gw_state& state);

}  // namespace gradwire::c
