#include "trainer/parameters.h"

#include <cmath>

#include "base/check.h"
#include "base/hash.h"
#include "base/philox.h"

namespace gradwire {
namespace {

// Draws of one tensor. Rounded in float also for T = double: both start from the same point.
class Draws {
 public:
  Draws(const ParameterInfo& info, std::uint64_t seed)
      : stream_(seed, RandomUse::kInit, hash_name(info.name), kSharedRank, 0, 0),
        kind_(info.init.kind),
        value_(static_cast<float>(kind_ == Init::Kind::kFanIn
                                      ? 1.0 / std::sqrt(static_cast<double>(info.fan_in))
                                      : info.init.value)) {}

  float element(std::uint64_t i) const {
    switch (kind_) {
      case Init::Kind::kFanIn:
      case Init::Kind::kUniform: return (2.0f * stream_.uniform(i) - 1.0f) * value_;
      case Init::Kind::kNormal: return static_cast<float>(stream_.normal(i)) * value_;
      case Init::Kind::kConstant: return value_;
    }
    return value_;
  }

 private:
  RandomStream stream_;
  Init::Kind kind_;
  float value_;
};

// Each value that is here as the same element of the whole tensor has it.
template <typename T>
void draw(const ParameterInfo& info, std::uint64_t seed, std::span<T> here) {
  const Draws draws(info, seed);
  const TensorBox box = box_of(info);
  GW_CHECK(check_box(box).ok() && box.elems() == info.shape.elems());
  for_each_common_run(box, TensorBox::of(box.whole, box.grid), [&](const CommonRun& run) {
    for (std::int64_t i = 0; i < run.elems; ++i) {
      const auto element = static_cast<std::uint64_t>(run.in_b + i);
      here[static_cast<std::size_t>(run.in_a + i)] = static_cast<T>(draws.element(element));
    }
  });
}

}  // namespace

TensorBox box_of(const ParameterInfo& info) {
  return info.box ? *info.box : TensorBox::of(info.shape);
}

Shape whole_shape(const ParameterInfo& info) { return info.box ? info.box->whole : info.shape; }

std::int64_t parameter_elems(const ParameterTable& table) {
  return table.empty() ? 0 : table.back().offset + table.back().shape.elems();
}

std::int64_t GradientTable::parameter_elems() const {
  if (tied.empty()) return elems();
  return tensors[static_cast<std::size_t>(parameters())].offset;
}

std::int64_t GradientTable::elems() const { return gradwire::parameter_elems(tensors); }

std::int64_t append_table(ParameterTable& table, std::string_view prefix,
                          const ParameterTable& local) {
  const std::int64_t offset = parameter_elems(table);
  for (ParameterInfo info : local) {
    info.name = std::string(prefix) + "." + info.name;
    info.offset += offset;
    table.push_back(std::move(info));
  }
  return offset;
}

std::vector<NamedTensor> named_tensors(const ParameterTable& table, std::span<float> flat,
                                       Device device) {
  GW_CHECK(static_cast<std::int64_t>(flat.size()) == parameter_elems(table));
  std::vector<NamedTensor> tensors;
  tensors.reserve(table.size());
  for (const ParameterInfo& info : table) {
    auto* data = reinterpret_cast<std::byte*>(flat.data() + info.offset);
    tensors.push_back({info.name, TensorView(data, info.shape, DType::kF32, device)});
  }
  return tensors;
}

template <typename T>
void init_parameters(const ParameterTable& table, std::uint64_t seed, std::span<T> flat) {
  GW_CHECK(static_cast<std::int64_t>(flat.size()) == parameter_elems(table));
  for (const ParameterInfo& info : table) {
    draw(info, seed, flat.subspan(static_cast<std::size_t>(info.offset)));
  }
}

void init_parameter(const ParameterInfo& info, std::uint64_t seed, std::span<float> values) {
  draw(info, seed, values);
}

bool set_init(ParameterInfo& info, std::string_view scheme) {
  if (scheme != "uniform" && scheme != "xavier" && scheme != "kaiming" && scheme != "gpt2") {
    return false;
  }
  if (info.init.kind == Init::Kind::kConstant) return true;
  if (scheme == "uniform") {
    info.init = {};
  } else if (whole_shape(info).rank < 2) {
    info.init = {Init::Kind::kConstant, 0};
  } else if (scheme == "xavier") {
    const Shape whole = whole_shape(info);
    const std::int64_t receptive = whole.dim[2] * whole.dim[3];
    const auto fans = static_cast<double>(info.fan_in + whole.dim[0] * receptive);
    info.init = {Init::Kind::kUniform, std::sqrt(6.0 / fans)};
  } else if (scheme == "kaiming") {
    info.init = {Init::Kind::kNormal, std::sqrt(2.0 / static_cast<double>(info.fan_in))};
  } else {
    info.init = {Init::Kind::kNormal, 0.02};
  }
  return true;
}

template void init_parameters<float>(const ParameterTable&, std::uint64_t, std::span<float>);
template void init_parameters<double>(const ParameterTable&, std::uint64_t, std::span<double>);

}  // namespace gradwire
