#include "planner/mesh/mesh_exchange.h"

#include <algorithm>
#include <cmath>

#include "gradwire/registry.h"

namespace gradwire {
namespace {

constexpr double kMostTicks = 0x1p50;

std::int64_t whole(double ticks) {
  return static_cast<std::int64_t>(std::ceil(std::min(ticks, kMostTicks)));
}

// Every rank sends so many bytes, in `hops` rounds, and codes for so long beside.
MeshExchange direct_exchange(const MeshLink& link, double sent, int hops, double codec) {
  constexpr double kSegments = 64;
  const double wire = sent * link.byte;
  return {whole(std::max(wire, codec) + std::min(wire, codec) / kSegments), hops * link.latency,
          sent};
}

}  // namespace

MeshExchange ring_half(const MeshLink& link, double bytes) {
  if (link.members < 2) return {};
  const double sent = bytes * (link.members - 1) / link.members;
  return {whole(sent * link.byte), (link.members - 1) * link.latency, sent};
}

MeshExchange ring_all_reduce(const MeshLink& link, double bytes) {
  const MeshExchange half = ring_half(link, bytes);
  return {2 * half.ticks, 2 * half.latency, 2 * half.sent};
}

Result<MeshCompression> MeshCompression::make(const std::string& spec) {
  MeshCompression made;
  made.none_ = spec == "none";
  GW_ASSIGN(const auto compressor, Registry::builtin().make(spec));
  constexpr std::int64_t kSide = 4096;
  const Shape shape = Shape::matrix(kSide, kSide);
  const Traits traits = compressor->traits();
  made.sums_ = traits.exchange == Exchange::kAllReduceSum;
  made.elementwise_ = traits.elementwise;
  for (int round = 0; round < traits.rounds; ++round) {
    made.ratios_.push_back(
        static_cast<double>(compressor->max_payload_bytes(shape, DType::kF32, round, 2)) /
        (static_cast<double>(shape.elems()) * sizeof(float)));
  }
  return made;
}

MeshExchange MeshCompression::exchange(const MeshLink& ring, const MeshLink& direct, double bytes,
                                       double codec_byte) const {
  const double n = ring.members;
  if (ring.members < 2) return {};
  if (none_) return ring_all_reduce(ring, bytes);
  if (sums_) {
    constexpr double kPasses = 3;  // as PowerSGD: two products and the reconstruction
    MeshExchange all;
    for (const double ratio : ratios_) {
      const MeshExchange one = ring_all_reduce(ring, bytes * ratio);
      all = {all.ticks + one.ticks, all.latency + one.latency, all.sent + one.sent};
    }
    all.ticks += whole(kPasses * bytes * codec_byte);
    return all;
  }
  const double payload = bytes * ratios_.front();
  // Passes over the gradient: encode, decode and add, decode the sum; choosing ones read it once.
  const double passes = elementwise_ ? 3 : 1.2;
  const MeshExchange owners =
      direct_exchange(direct, 2 * (n - 1) / n * payload, 2, passes * bytes * codec_byte);
  const MeshExchange gather =
      direct_exchange(direct, (n - 1) * payload, 1, (1 + n * ratios_.front()) * bytes * codec_byte);
  return owners.ticks + owners.latency < gather.ticks + gather.latency ? owners : gather;
}

}  // namespace gradwire
