// The conformance suite of compressors: property tests ("laws") that check a method's claims
// (Traits, ErrorBound) on 1 to 8 ranks, in fp32 and fp64. gradwire's own methods pass the same
// tests.
//
// For a method in a registry, in a GoogleTest program that links with gradwire-testing
// (pkg-config):
//
//   using namespace gradwire::laws;
//   INSTANTIATE_TEST_SUITE_P(Own, CompressorLaws,
//                            ::testing::ValuesIn(subjects(registry, {{"own:keep=7"}})), name_of);
//   INSTANTIATE_TEST_SUITE_P(Own, LargeTensorLaws,
//                            ::testing::ValuesIn(large_subjects(registry, {"own"})), name_of);
//
// Properties that a method does not claim are not among its cases. The tests call the method with
// plain arrays: it must not depend on an aggregator.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/compressor.h"
#include "gradwire/registry.h"
#include "gradwire/tensor.h"

namespace gradwire::laws {

// A spec to test.
struct CompressorCase {
  std::string spec;  // as in flags: "own:keep=7"
  // For an elementwise method: slices that start at multiples of this number of elements decode as
  // the whole tensor does; 0: only the whole tensor, since a block is a whole slice.
  std::int64_t slice_alignment = 1;
};

struct Law;  // one property; internal

// The parameter of a test: a method, an element type and a property.
struct CompressorSubject {
  std::shared_ptr<const Registry> registry;  // makes the method
  CompressorCase one;                        // its spec
  DType dtype = DType::kF32;                 // element type: kF32 or kF64
  const Law* law = nullptr;                  // the property of CompressorLaws; null for
                                             // LargeTensorLaws
  // Whether a property that takes long is tried with less: long tensors on one number of ranks
  // alone, two numbers of threads, every third bit, a quarter of the payloads.
  bool brief = false;
  // Prints spec and type, for GoogleTest.
  friend void PrintTo(const CompressorSubject& subject, std::ostream* out) {
    *out << subject.one.spec << " " << to_string(subject.dtype);
  }
};

// All parameters for CompressorLaws: every case in fp32 and fp64, with every property that the
// method claims; with all properties if the registry refuses the spec, so that the tests fail. The
// registry is copied.
std::vector<CompressorSubject> subjects(const Registry& registry,
                                        const std::vector<CompressorCase>& cases);
// All parameters for LargeTensorLaws: fp32, 2^24 and more elements, which take about 300 MB of
// memory.
std::vector<CompressorSubject> large_subjects(const Registry& registry,
                                              const std::vector<std::string>& specs);
// The name of a test: the property, the spec (with '_' for characters that names may not have) and
// the type.
std::string name_of(const ::testing::TestParamInfo<CompressorSubject>& info);

// The method under test, for the bodies of the tests.
class JudgedMethod {
 public:
  JudgedMethod() = default;
  // The parameter, and the compressor made from it.
  JudgedMethod(CompressorSubject subject, std::shared_ptr<const Compressor> compressor)
      : subject_(std::move(subject)), compressor_(std::move(compressor)) {}

 protected:
  // registry(): where the method comes from; law_case(): its spec; dtype(): its element type;
  // brief(): whether less is tried; compressor(): the method.
  const Registry& registry() const { return *subject_.registry; }
  const CompressorCase& law_case() const { return subject_.one; }
  DType dtype() const { return subject_.dtype; }
  bool brief() const { return subject_.brief; }
  const Compressor& compressor() const { return *compressor_; }

  // Calls law.operator()<T>() with T = double or float, the element type.
  template <typename Body>
  void with_type(const Body& law) const {
    if (dtype() == DType::kF64) {
      law.template operator()<double>();
    } else {
      law.template operator()<float>();
    }
  }

 private:
  CompressorSubject subject_;
  std::shared_ptr<const Compressor> compressor_;
};

// The properties: payload sizes, error bound, unbiasedness, linearity, the average over ranks,
// equal results on all ranks, error feedback that loses nothing, saved state, hostile and
// non-finite input, slices, threads, specs.
class CompressorLaws : public ::testing::TestWithParam<CompressorSubject>, public JudgedMethod {
 protected:
  // Makes the method; fails the test, with the registry's reason, if the spec is refused.
  void SetUp() override;
};

// The properties of tensors with more elements than a float can count (2^24).
class LargeTensorLaws : public CompressorLaws {};

}  // namespace gradwire::laws
