#include "adapters/trainer/boxed_state.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/text.h"
#include "compress/error_feedback/stored_residual.h"
#include "gradwire/buffer.h"
#include "gradwire/schedule.h"

namespace gradwire {
namespace {

constexpr std::string_view kOwn = ".error";
constexpr std::string_view kOfSum = ".error2";
constexpr std::string_view kShaped[] = {"error", "ef21.v", "coder.residual"};

bool holds(const TensorBox& box, std::int64_t element) {
  for (std::size_t d = 4; d-- > 0;) {
    const std::int64_t at = element % box.grid.dim[d];
    if (at < box.at[d].begin || at >= box.at[d].end) return false;
    element /= box.grid.dim[d];
  }
  return true;
}

// All elements of an entry, and its scales if they are codes.
struct StoredValues {
  Buffer memory;
  Buffer scale_memory;
  TensorView values;
  TensorView scales;
};

class Join {
 public:
  Join(CheckpointReader& reader, const ParameterInfo& info)
      : reader_(reader), box_(box_of(info)), sum_(static_cast<std::size_t>(box_.elems())) {}

  // Of a tensor of the parameter's shape, whatever boxes it was written in.
  Status add_shaped(const std::string& name, const CheckpointTensor& saved) {
    const auto elems = static_cast<std::size_t>(box_.elems());
    GW_ASSIGN(const Buffer memory, Buffer::allocate(elems * size_of(saved.dtype)));
    const TensorView values = memory.tensor(Shape::vector(box_.elems()), saved.dtype);
    GW_TRY(reader_.read(name, box_, 0, values));
    for (std::size_t i = 0; i < sum_.size(); ++i) sum_[i] += stored_value(values, values, i);
    return {};
  }

  // Of an entry that has elements `part` of the row of all elements of `box`.
  Status add(const std::string& name, const TensorBox& box, Range part) {
    GW_ASSIGN(const StoredValues stored, read(name));
    if (stored.values.elems() != part.size()) {
      return {Code::kInvalidArgument,
              format("state '%s': %lld elements (expected %lld of box %s)", name.c_str(),
                     static_cast<long long>(stored.values.elems()),
                     static_cast<long long>(part.size()), to_string(box).c_str())};
    }
    for (std::int64_t i = part.begin; i < part.end; ++i) {
      const std::int64_t element = box.element(i);
      if (!holds(box_, element)) continue;
      sum_[static_cast<std::size_t>(box_.index_of(element))] +=
          stored_value(stored.values, stored.scales, static_cast<std::size_t>(i - part.begin));
    }
    return {};
  }

  const CheckpointTensor* find(const std::string& name) const {
    const auto& tensors = reader_.manifest().tensors;
    const auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
  }

  std::vector<double> take() { return std::move(sum_); }

 private:
  Result<TensorView> whole(const std::string& name, Buffer& memory) {
    const CheckpointTensor* saved = find(name);
    if (saved == nullptr) return Status(Code::kInvalidArgument, "state '" + name + "' is missing");
    const auto elems = static_cast<std::size_t>(saved->shape.elems());
    GW_ASSIGN(memory, Buffer::allocate(elems * size_of(saved->dtype)));
    const TensorView view = memory.tensor(saved->shape, saved->dtype);
    GW_TRY(reader_.read(name, view));
    return view;
  }

  Result<StoredValues> read(const std::string& name) {
    StoredValues stored;
    GW_ASSIGN(stored.values, whole(name, stored.memory));
    stored.scales = stored.values;
    if (stored.values.dtype() != DType::kI8) return stored;
    GW_ASSIGN(stored.scales, whole(name + ".scale", stored.scale_memory));
    const auto block = static_cast<std::int64_t>(kResidualBlock);
    const std::int64_t blocks = (stored.values.elems() + block - 1) / block;
    if (stored.scales.elems() == blocks && stored.scales.dtype() == DType::kF32) return stored;
    return Status(
        Code::kInvalidArgument,
        format("state '%s.scale': %lld elements (expected %lld of f32)", name.c_str(),
               static_cast<long long>(stored.scales.elems()), static_cast<long long>(blocks)));
  }

  CheckpointReader& reader_;
  TensorBox box_;
  std::vector<double> sum_;
};

}  // namespace

BoxedName boxed_name(const ParameterTable& table, std::string_view name) {
  BoxedName longest;  // one parameter's name may begin another's
  for (const ParameterInfo& info : table) {
    if (longest.info != nullptr && info.name.size() <= longest.info->name.size()) continue;
    if (!name.starts_with(info.name)) continue;
    const std::string_view rest = name.substr(info.name.size());
    const std::size_t close = rest.find("].");
    if (rest.starts_with('.')) {
      longest = {&info, {}, rest.substr(1)};
    } else if (rest.starts_with('[') && close != std::string_view::npos) {
      longest = {&info, rest.substr(0, close + 1), rest.substr(close + 2)};
    }
  }
  return longest;
}

bool has_parameter_shape(std::string_view kind, DType dtype) {
  if (dtype == DType::kI8) return false;
  return std::ranges::any_of(kShaped, [&](std::string_view shaped) {
    return kind == shaped || (shaped.starts_with("coder") && kind.starts_with(shaped));
  });
}

std::vector<TensorBox> saved_boxes(const CheckpointManifest& manifest, const std::string& name) {
  std::vector<TensorBox> boxes;
  const auto found = manifest.tensors.find(std::string(kParameterNames) + name);
  if (found == manifest.tensors.end()) return boxes;
  for (const CheckpointSlice& slice : found->second.slices) {
    const TensorBox box = found->second.box_of(slice);
    if (std::ranges::find(boxes, box) == boxes.end()) boxes.push_back(box);
  }
  return boxes;
}

Result<std::vector<double>> joined_residual(CheckpointReader& reader, const std::string& prefix,
                                            const ParameterInfo& info, int replica) {
  Join join(reader, info);
  const int replicas = reader.manifest().position.mesh.dp;
  const std::string plain = prefix + info.name + std::string(kOwn);
  const CheckpointTensor* shaped = join.find(plain);
  if (shaped != nullptr && shaped->dtype != DType::kI8) GW_TRY(join.add_shaped(plain, *shaped));
  for (const TensorBox& box : saved_boxes(reader.manifest(), info.name)) {
    const std::string there = prefix + info.name + range_text(box);
    const std::string own = there + std::string(kOwn);
    const CheckpointTensor* codes = join.find(own);
    if (codes != nullptr && codes->dtype == DType::kI8) {
      GW_TRY(join.add(own, box, {0, box.elems()}));
    }
    const std::string owed = there + std::string(kOfSum);
    if (join.find(owed) != nullptr) {
      GW_TRY(join.add(owed, box, piece(box.elems(), replicas, replica)));
    }
  }
  return join.take();
}

}  // namespace gradwire
