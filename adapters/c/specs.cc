// What is known about methods and specs without a communicator.
#include <cstddef>
#include <cstdio>
#include <string>

#include "adapters/c/operation_call.h"
#include "adapters/c/outcome.h"
#include "adapters/c/spec_options.h"
#include "adapters/c/state.h"
#include "aggregate/plan/plan.h"
#include "gradwire/registry.h"

namespace gradwire::c {
namespace {

Status bad_number(const char* function, const char* field, long long seen, const char* wanted) {
  return {Code::kInvalidArgument,
          format("%s: %s %lld (expected %s)", function, field, seen, wanted)};
}

TrafficClass traffic_of(gw_traffic traffic) {
  switch (traffic) {
    case GW_TRAFFIC_PARAMETERS: return TrafficClass::kParameters;
    case GW_TRAFFIC_OPTIMIZER: return TrafficClass::kOptimizer;
    case GW_TRAFFIC_STATISTICS: return TrafficClass::kStatistics;
    default: return TrafficClass::kGradients;
  }
}

// "topk: ratio=0.01 what it means", a line each.
std::string keys_of(const Registry::Method& method) {
  std::string text;
  for (const SpecKey& key : method.keys) {
    text += key.name + "=" + key.default_value + " " + key.meaning + "\n";
  }
  return text;
}

// All rounds, at most.
std::uint64_t payload_of(const Parameter& parameter, int size) {
  const Shape& shape = parameter.grad.shape();
  const DType dtype = parameter.grad.dtype();
  if (parameter.path == Path::kDense) return parameter.grad.bytes().size();
  std::uint64_t bytes = 0;
  for (int round = 0; round < parameter.compressor->traits().rounds; ++round) {
    bytes += parameter.compressor->max_payload_bytes(shape, dtype, round, size);
  }
  return bytes;
}

gw_spec_info info_of(const Parameter& parameter, int size) {
  gw_spec_info info = GW_SPEC_INFO_INIT;
  const bool dense = parameter.path == Path::kDense;
  const std::string spec = dense ? "none" : parameter.compressor->spec();
  std::snprintf(info.spec, sizeof info.spec, "%s", spec.c_str());
  std::snprintf(info.path, sizeof info.path, "%s", std::string(to_string(parameter.path)).c_str());
  info.dense_bytes = parameter.grad.bytes().size();
  info.payload_bytes = payload_of(parameter, size);
  info.error_feedback = parameter.error_feedback ? 1 : 0;
  if (dense) {
    info.rounds = info.elementwise = info.lossless = info.unbiased = 1;
    return info;
  }
  const Traits traits = parameter.compressor->traits();
  info.rounds = traits.rounds;
  info.elementwise = traits.elementwise ? 1 : 0;
  info.sparse = traits.sparse ? 1 : 0;
  info.lossless = traits.lossless ? 1 : 0;
  info.unbiased = traits.unbiased ? 1 : 0;
  info.stateful = traits.stateful ? 1 : 0;
  return info;
}

}  // namespace

Result<SpecOptions> read_spec_options(const char* function, const gw_aggregator_options* given) {
  gw_aggregator_options options = GW_AGGREGATOR_OPTIONS_INIT;
  constexpr std::size_t kFirstSize = offsetof(gw_aggregator_options, space);
  GW_TRY(read_struct(given, function, options, kFirstSize));
  if (options.form < GW_FORM_ALL_REDUCE || options.form > GW_FORM_ALL_GATHER) {
    return bad_number(function, "form", options.form, "0 to 2");
  }
  if (options.traffic < GW_TRAFFIC_GRADIENTS || options.traffic > GW_TRAFFIC_STATISTICS) {
    return bad_number(function, "traffic", options.traffic, "0 to 3");
  }
  if (options.nonfinite < GW_NONFINITE_FAILS || options.nonfinite > GW_NONFINITE_SKIPS) {
    return bad_number(function, "nonfinite", options.nonfinite, "0 or 1");
  }
  if (options.bucket_bytes < 0) {
    return bad_number(function, "bucket_bytes", options.bucket_bytes, "0 or more");
  }
  if (options.threads < 0) return bad_number(function, "threads", options.threads, "0 or more");
  SpecOptions read;
  if (options.compressor != nullptr) read.options.compressor = options.compressor;
  if (options.algorithm != nullptr) read.options.algorithm = options.algorithm;
  if (options.bucket_bytes > 0) read.options.bucket_bytes = options.bucket_bytes;
  if (options.threads > 0) read.options.threads = options.threads;
  read.options.seed = options.seed;
  read.options.allow_unsafe = options.allow_unsafe != 0;
  read.options.form = static_cast<AggregateForm>(options.form);
  read.options.traffic = traffic_of(options.traffic);
  if (options.momentum != nullptr) read.options.momentum = *options.momentum;
  read.skips = options.nonfinite == GW_NONFINITE_SKIPS;
  read.space = options.space;
  read.device = options.device;
  return read;
}

}  // namespace gradwire::c

using namespace gradwire;
using namespace gradwire::c;

gw_status gw_method_get(size_t i, gw_method* method) {
  return guarded([&]() -> Status {
    GW_TRY(check_given(method, "gw_method_get", "method"));
    thread_local Registry::Method last;
    thread_local std::string keys;
    const Registry registry = Registry::builtin();
    if (i >= registry.methods().size()) {
      *method = {};
      return {Code::kInvalidArgument, format("gw_method_get: method %zu (expected less than %zu)",
                                             i, registry.methods().size())};
    }
    last = registry.methods()[i];
    keys = keys_of(last);
    *method = {last.name.c_str(), last.help.c_str(), keys.c_str()};
    return {};
  });
}

gw_status gw_spec_inspect(const gw_aggregator_options* options, const gw_tensor_info* tensor,
                          int size, gw_spec_info* info) {
  constexpr const char* kName = "gw_spec_inspect";
  return guarded([&]() -> Status {
    GW_TRY(check_given(tensor, kName, "tensor"));
    GW_TRY(check_given(tensor->name, kName, "the tensor's name"));
    if (size < 1) return bad_number(kName, "size", size, "1 or more");
    GW_ASSIGN(const SpecOptions read, read_spec_options(kName, options));
    GW_ASSIGN(const DType dtype, dtype_of(kName, tensor->dtype));
    GW_ASSIGN(const Shape shape, shape_of(kName, tensor->dimensions, tensor->shape));
    if (!is_floating(dtype)) {
      return {Code::kInvalidArgument, std::string(kName) + ": " + std::string(to_string(dtype)) +
                                          " (expected a floating type)"};
    }
    // Nobody looks at its elements.
    std::byte nowhere{};
    const TensorView grad(&nowhere, shape, dtype == DType::kF64 ? dtype : DType::kF32);
    GW_ASSIGN(Plan plan, read_plan(Registry::builtin(), read.options));
    GW_ASSIGN(const Parameter parameter, plan_parameter(plan, read.options, tensor->name, grad));
    return write_struct(info_of(parameter, size), kName, info);
  });
}
