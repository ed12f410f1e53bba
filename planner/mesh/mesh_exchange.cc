#include "planner/mesh/mesh_exchange.h"

#include <algorithm>
#include <cmath>

#include "gradwire/registry.h"

namespace gradwire {
namespace {

constexpr double kMostTicks = 0x1p50;

constexpr double kNanoseconds = 1e9;

std::int64_t whole(double ticks) {
  return static_cast<std::int64_t>(std::ceil(std::min(ticks, kMostTicks)));
}

MeshExchange sending(const MeshLink& link, double sent, int latencies) {
  return {.ticks = whole(sent * link.byte),
          .latency = latencies * link.latency,
          .sent = sent,
          .beside = whole(sent * link.processor)};
}

// The passes over a gradient's elements, and over what a rank decodes, in units of the gradient.
struct Passes {
  double encode = 1;
  double decode = 1;
};

Passes passes_of(Path path, double ranks) {
  switch (path) {
    // All parts are encoded, the others' are decoded and added, the sum of one's own is encoded,
    // and all of them are decoded.
    case Path::kSra:
    case Path::kOkTopk: return {1 + 1 / ranks, (ranks - 1) / ranks + 1};
    case Path::kGather: return {1, ranks};
    case Path::kSum:
    case Path::kDense: break;
  }
  return {1, 1};
}

// Bytes that are read and written for a byte of gradients, of methods that were not measured.
double unmeasured_passes(const Rule& rule, const MeshGradients& gradients, double ranks) {
  const double bytes = gradients.elems * sizeof(float);
  if (rule.path == Path::kSum) return 3;  // as PowerSGD: two products and the reconstruction
  if (rule.path == Path::kSra) return 3;
  return 1 + ranks * gradients.payloads.front() / bytes;
}

}  // namespace

MeshExchange& MeshExchange::operator+=(const MeshExchange& other) {
  ticks += other.ticks;
  latency += other.latency;
  sent += other.sent;
  before += other.before;
  beside += other.beside;
  behind += other.behind;
  return *this;
}

MeshExchange ring_half(const MeshLink& link, double bytes) {
  if (link.members < 2 || bytes == 0) return {};
  return sending(link, bytes * (link.members - 1) / link.members, link.members - 1);
}

MeshExchange ring_all_reduce(const MeshLink& link, double bytes) {
  MeshExchange both = ring_half(link, bytes);
  both += both;
  return both;
}

MeshExchange canonical_half(const MeshLink& link, double bytes) {
  if (link.members < 2 || bytes == 0) return {};
  return sending(link, bytes * (link.members - 1) / link.members, 1);
}

MeshExchange canonical_all_reduce(const MeshLink& link, double bytes) {
  MeshExchange both = canonical_half(link, bytes);
  both += both;
  return both;
}

MeshExchange with_a_bucket(const MeshLink& ring, MeshExchange exchange) {
  if (ring.times != nullptr && exchange.any()) {
    exchange.take_longer(whole(kNanoseconds * ring.times->bucket() * (ring.members - 1)));
  }
  return exchange;
}

MeshGradients& MeshGradients::operator+=(const MeshGradients& other) {
  elems += other.elems;
  payloads.resize(std::max(payloads.size(), other.payloads.size()));
  for (std::size_t i = 0; i < other.payloads.size(); ++i) payloads[i] += other.payloads[i];
  return *this;
}

Result<MeshCompression> MeshCompression::make(const std::string& spec, double momentum) {
  MeshCompression made;
  made.none_ = spec == "none";
  made.options_.compressor = spec;
  made.options_.momentum = momentum;
  GW_ASSIGN(Plan plan, read_plan(Registry::builtin(), made.options_));
  for (const Rule& rule : plan.rules) {
    if (rule.inner == nullptr) continue;
    return Status(
        Code::kUnsupported,
        "compressor '" + spec + "': two levels are not planned (expected no intra_node=)");
  }
  made.rules_ = std::make_shared<Plan>(std::move(plan));
  return made;
}

Result<Parameter> MeshCompression::planned(const std::string& name, const Shape& shape,
                                           DType dtype) const {
  static std::byte nowhere{};  // without an address it would have no elements
  return plan_parameter(*rules_, options_, name, TensorView(&nowhere, shape, dtype));
}

Result<std::vector<Parameter>> MeshCompression::planned(const ParameterTable& table,
                                                        DType dtype) const {
  std::vector<Parameter> all;
  all.reserve(table.size());
  for (const ParameterInfo& one : table) {
    GW_ASSIGN(Parameter parameter, planned(one.name, one.shape, dtype));
    all.push_back(std::move(parameter));
  }
  return all;
}

Result<std::vector<MeshGradients>> MeshCompression::found(const MeshLayerWork& layer,
                                                          int ranks) const {
  std::vector<MeshGradients> all(ways());
  if (none_) {
    all.front().elems = layer.parameters;
    return all;
  }
  for (const MeshTensor& tensor : layer.tensors) {
    GW_ASSIGN(const Parameter one, planned(tensor.name, tensor.shape, DType::kF32));
    const auto rule = std::ranges::find_if(
        rules_->rules, [&](const Rule& known) { return known.compressor == one.compressor; });
    const bool coded = one.path != Path::kDense && rule != rules_->rules.end();
    MeshGradients gradients{.elems = static_cast<double>(tensor.shape.elems())};
    for (int round = 0; coded && round < one.compressor->traits().rounds; ++round) {
      gradients.payloads.push_back(static_cast<double>(
          one.compressor->max_payload_bytes(tensor.shape, DType::kF32, round, ranks)));
    }
    const auto way = coded ? 1 + (rule - rules_->rules.begin()) : 0;
    all[static_cast<std::size_t>(way)] += gradients;
  }
  return all;
}

Result<const std::vector<MeshGradients>*> MeshCompression::gradients(const MeshLayerWork& layer,
                                                                     int ranks) const {
  const std::pair key(&layer, ranks);
  const auto known = known_.find(key);
  if (known != known_.end()) return &known->second;
  GW_ASSIGN(std::vector<MeshGradients> all, found(layer, ranks));
  return &known_.emplace(key, std::move(all)).first->second;
}

MeshExchange MeshCompression::coded(const Rule& rule, const MeshGradients& gradients,
                                    const MeshLink& ring, const MeshLink& direct) const {
  const double n = ring.members;
  MeshExchange all;
  switch (rule.path) {
    case Path::kSum:
      for (const double payload : gradients.payloads) all += ring_all_reduce(ring, payload);
      return all;
    case Path::kGather: return sending(direct, (n - 1) * gradients.payloads.front(), 1);
    case Path::kSra:
    case Path::kOkTopk:
    case Path::kDense: break;
  }
  return sending(direct, 2 * (n - 1) / n * gradients.payloads.front(), 2);
}

MeshExchange MeshCompression::exchange(std::size_t way, const MeshGradients& gradients,
                                       const MeshLink& ring, const MeshLink& direct,
                                       double element_bytes, const MeshRates& rates,
                                       const DeviceType& type) const {
  MeshExchange all = foretold(way, gradients, ring, direct, element_bytes, rates, type);
  if (ring.times == nullptr || !all.any()) return all;
  const LinkTimes& times = *ring.times;
  const double bucket = kNanoseconds * times.bucket();
  double longer = bucket;
  const std::string method = way == 0 ? "none" : rules_->rules[way - 1].compressor->spec();
  if (const auto step = times.exchange(method, gradients.elems)) {
    const MeshLink two{.members = 2,
                       .latency = std::llround(kNanoseconds * times.latency()),
                       .byte = 0,
                       .processor = kNanoseconds * times.processor(),
                       .times = nullptr};
    const MeshExchange known = foretold(way, gradients, two, two, element_bytes, rates, type);
    const auto ticks =
        static_cast<double>(known.before + known.beside + known.latency + known.behind);
    longer = std::max(bucket, kNanoseconds * *step - ticks);
  }
  all.take_longer(whole(longer + (ring.members - 2) * bucket));
  return all;
}

MeshExchange MeshCompression::foretold(std::size_t way, const MeshGradients& gradients,
                                       const MeshLink& ring, const MeshLink& direct,
                                       double element_bytes, const MeshRates& rates,
                                       const DeviceType& type) const {
  if (ring.members < 2 || gradients.elems == 0) return {};
  if (way == 0) return ring_all_reduce(ring, gradients.elems * element_bytes);
  const Rule& rule = rules_->rules[way - 1];
  const double n = ring.members;
  MeshExchange all = coded(rule, gradients, ring, direct);
  const std::string method = rule.compressor->spec();
  if (const auto codec = rates.codec_ticks(type, method, gradients.elems)) {
    const Passes passes = passes_of(rule.path, n);
    // A residual is what remains of a gradient when its own payload is taken off.
    const double own = rule.keys.error_feedback ? 1 : 0;
    all.before = codec->encode + whole(own * static_cast<double>(codec->decode));
    all.behind = whole((passes.encode - 1) * static_cast<double>(codec->encode) +
                       passes.decode * static_cast<double>(codec->decode));
    return all;
  }
  constexpr double kSegments = 64;
  const double seconds = unmeasured_passes(rule, gradients, n) * gradients.elems * sizeof(float) *
                         rates.codec_byte(method);
  const auto wire = static_cast<double>(all.ticks);
  if (rule.path == Path::kSum) {
    all.ticks += whole(seconds);
  } else {
    all.ticks = whole(std::max(wire, seconds) + std::min(wire, seconds) / kSegments);
  }
  return all;
}

}  // namespace gradwire
