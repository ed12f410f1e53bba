#include "adapters/c/state.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "adapters/c/operation_call.h"
#include "adapters/c/outcome.h"

namespace gradwire::c {

Result<Shape> shape_of(const char* function, int dimensions, const std::int64_t (&shape)[4]) {
  constexpr std::int64_t kMostElems = std::int64_t{1} << 40;
  if (dimensions < 0 || dimensions > 4) {
    return Status(
        Code::kInvalidArgument,
        std::string(function) +
            format(": %d dimensions (expected 0 to 4; fold further ones together)", dimensions));
  }
  Shape read = Shape::vector(1);
  if (dimensions > 0) read.rank = dimensions;
  std::int64_t elems = 1;
  for (int d = 0; d < dimensions; ++d) {
    const std::int64_t length = shape[d];
    if (length < 0 || (length > 0 && elems > kMostElems / length)) {
      return Status(Code::kInvalidArgument,
                    std::string(function) +
                        format(": a dimension of %lld (expected 0 or more, 2^40 elements at most)",
                               static_cast<long long>(length)));
    }
    elems *= length;
    read.dim[static_cast<std::size_t>(d)] = length;
  }
  return read;
}

gw_state* copy_of(const std::vector<NamedTensor>& tensors) {
  auto state = std::make_unique<gw_state>();
  for (const NamedTensor& named : tensors) {
    const ByteSpan bytes = named.tensor.bytes();
    state->entries.push_back(
        {named.name, named.tensor.shape(), named.tensor.dtype(), {bytes.begin(), bytes.end()}});
  }
  return state.release();
}

std::vector<NamedTensor> views_of(gw_state& state) {
  std::vector<NamedTensor> views;
  for (gw_state::Entry& entry : state.entries) {
    views.push_back({entry.name, TensorView(entry.bytes.data(), entry.shape, entry.dtype)});
  }
  return views;
}

}  // namespace gradwire::c

using namespace gradwire;
using namespace gradwire::c;

gw_status gw_state_create(gw_state** state) {
  return guarded([&]() -> Status {
    GW_TRY(check_given(state, "gw_state_create", "state"));
    *state = new gw_state();
    return {};
  });
}

gw_status gw_state_add(gw_state* state, const gw_state_entry* entry) {
  constexpr const char* kName = "gw_state_add";
  return guarded([&]() -> Status {
    GW_TRY(check_handle(state, kName, "state"));
    GW_TRY(check_given(entry, kName, "entry"));
    GW_TRY(check_given(entry->name, kName, "its name"));
    GW_ASSIGN(const DType dtype, dtype_of(kName, entry->dtype));
    GW_ASSIGN(const Shape shape, shape_of(kName, entry->dimensions, entry->shape));
    const std::size_t bytes = static_cast<std::size_t>(shape.elems()) * size_of(dtype);
    if (entry->bytes != bytes) {
      return {Code::kInvalidArgument, format("gw_state_add: '%s' of %zu bytes (expected %zu)",
                                             entry->name, entry->bytes, bytes)};
    }
    if (bytes > 0) GW_TRY(check_given(entry->data, kName, "its data"));
    const auto* first = static_cast<const std::byte*>(entry->data);
    state->entries.push_back({entry->name, shape, dtype, {first, first + bytes}});
    return {};
  });
}

size_t gw_state_count(const gw_state* state) {
  const bool alive = state != nullptr && state->magic == gw_state::kMagic;
  return alive ? state->entries.size() : 0;
}

gw_status gw_state_get(const gw_state* state, size_t i, gw_state_entry* entry) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(state, "gw_state_get", "state"));
    GW_TRY(check_given(entry, "gw_state_get", "entry"));
    if (i >= state->entries.size()) {
      return {Code::kInvalidArgument,
              format("gw_state_get: entry %zu (expected less than %zu)", i, state->entries.size())};
    }
    const gw_state::Entry& from = state->entries[i];
    *entry = {};
    entry->name = from.name.c_str();
    entry->dtype = static_cast<gw_dtype>(from.dtype);
    entry->dimensions = from.shape.rank;
    std::copy_n(from.shape.dim.begin(), 4, entry->shape);
    entry->data = from.bytes.data();
    entry->bytes = from.bytes.size();
    return {};
  });
}

void gw_state_free(gw_state* state) {
  if (state == nullptr || state->magic != gw_state::kMagic) return;
  state->magic = 0;
  delete state;
}
