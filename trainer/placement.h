// How the elements of a value lie on the ranks that share tensors (Scope::kTensor): tags by which a
// shared model is checked, layer by layer, before it computes anything. A sum that is left out, or
// made twice, changes no forward pass: the loss goes down all the same, another way.
#pragma once

#include <cstdint>
#include <string>

namespace gradwire {

struct Placement {
  enum class Kind : std::uint8_t {
    kInvariant,   // I: all of it, equal on all ranks, and so is its derivative
    kReplicated,  // R: all of it, equal on all ranks; each has the derivative by way of its own
                  // outputs, and the derivative is the sum of these
    kVarying,     // V: each rank has a part, along an axis
    kPartial,     // P: each rank has an addend of it, of the whole shape
  } kind = Kind::kInvariant;
  enum class Axis : std::uint8_t { kNone, kFeatures, kPositions } axis = Axis::kNone;

  static constexpr Placement invariant() { return {}; }
  static constexpr Placement replicated() { return {Kind::kReplicated, Axis::kNone}; }
  static constexpr Placement by_features() { return {Kind::kVarying, Axis::kFeatures}; }
  static constexpr Placement by_positions() { return {Kind::kVarying, Axis::kPositions}; }
  static constexpr Placement partial() { return {Kind::kPartial, Axis::kNone}; }
  friend bool operator==(const Placement&, const Placement&) = default;
};

// "I", "R", "V by features", "V by positions", "P".
inline std::string to_string(const Placement& placement) {
  switch (placement.kind) {
    case Placement::Kind::kInvariant: return "I";
    case Placement::Kind::kReplicated: return "R";
    case Placement::Kind::kPartial: return "P";
    case Placement::Kind::kVarying: break;
  }
  return placement.axis == Placement::Axis::kFeatures ? "V by features" : "V by positions";
}

}  // namespace gradwire
