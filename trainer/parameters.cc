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

}  // namespace

std::int64_t parameter_elems(const ParameterTable& table) {
  return table.empty() ? 0 : table.back().offset + table.back().shape.elems();
}

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
    const Draws draws(info, seed);
    const auto count = static_cast<std::uint64_t>(info.shape.elems());
    for (std::uint64_t i = 0; i < count; ++i) {
      flat[static_cast<std::size_t>(info.offset) + i] = static_cast<T>(draws.element(i));
    }
  }
}

bool set_init(ParameterInfo& info, std::string_view scheme) {
  if (scheme != "uniform" && scheme != "xavier" && scheme != "kaiming" && scheme != "gpt2") {
    return false;
  }
  if (info.init.kind == Init::Kind::kConstant) return true;
  if (scheme == "uniform") {
    info.init = {};
  } else if (info.shape.rank < 2) {
    info.init = {Init::Kind::kConstant, 0};
  } else if (scheme == "xavier") {
    const std::int64_t receptive = info.shape.dim[2] * info.shape.dim[3];
    const auto fans = static_cast<double>(info.fan_in + info.shape.dim[0] * receptive);
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
