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
  enum class Axis : std::uint8_t {
    kNone,
    kFeatures,
    kPositions,
    kSamples,
    kTiles
  } axis = Axis::kNone;

  static constexpr Placement invariant() { return {}; }
  static constexpr Placement replicated() { return {Kind::kReplicated, Axis::kNone}; }
  static constexpr Placement by_features() { return {Kind::kVarying, Axis::kFeatures}; }
  static constexpr Placement by_positions() { return {Kind::kVarying, Axis::kPositions}; }
  static constexpr Placement by_samples() { return {Kind::kVarying, Axis::kSamples}; }
  static constexpr Placement by_tiles() { return {Kind::kVarying, Axis::kTiles}; }
  // A rank has a part along the data (positions, samples, tiles): of a parameter that it has as a
  // whole it computes an addend of the gradient.
  constexpr bool divides_data() const { return kind == Kind::kVarying && axis != Axis::kFeatures; }
  static constexpr Placement partial() { return {Kind::kPartial, Axis::kNone}; }
  friend bool operator==(const Placement&, const Placement&) = default;
};

// "I", "R", "V by features", "V by positions", "V by samples", "V by tiles", "P".
inline std::string to_string(const Placement& placement) {
  switch (placement.kind) {
    case Placement::Kind::kInvariant: return "I";
    case Placement::Kind::kReplicated: return "R";
    case Placement::Kind::kPartial: return "P";
    case Placement::Kind::kVarying: break;
  }
  switch (placement.axis) {
    case Placement::Axis::kPositions: return "V by positions";
    case Placement::Axis::kSamples: return "V by samples";
    case Placement::Axis::kTiles: return "V by tiles";
    default: return "V by features";
  }
}

}  // namespace gradwire
