// What a coder gives on a CUDA device, beside the same steps on the host. Defined where there is
// CUDA.
#pragma once

#include <cstdint>
#include <string>

#include "gradwire/registry.h"
#include "gradwire/status.h"

namespace gradwire::bench {

struct SmokeOutcome {
  std::string refused;  // why gradwire serves no such pair, or not on a device; then nothing else
  bool same_bytes = true;  // every payload of the device is the host's
  // |device's mean - host's| / |host's|, l2 norms: the largest of the steps.
  double difference = 0;
};

// The largest difference that is no fault: of methods with matrix products, which a device adds up
// in another order. Payloads of all others are the host's, byte for byte.
inline constexpr double kMostDifference = 1e-3;

// Two steps of `spec` on one rank, on the device and on the host, under ef14 or not. The gradient
// has `elements` elements, at least 1: a matrix of 4096 columns where that divides. Errors: a spec
// that does not parse, kUnsupported where there is no device, a kernel that went wrong.
Result<SmokeOutcome> smoke(const Registry& registry, const std::string& spec, bool feedback,
                           std::int64_t elements);

// Why an outcome is a fault; empty where it is none.
std::string fault_of(const SmokeOutcome& outcome, const std::string& spec);

}  // namespace gradwire::bench
