// The laws of Compressor, Coder and WireFormat as tests: a method is held to its own claims, on 1
// to 8 ranks, in fp32 and fp64. gradwire's own methods pass the very same ones.
//
// Of a method that is in a registry, one statement each, in a GoogleTest program that links with
// gradwire-testing (pkg-config):
//
//   using namespace gradwire::laws;
//   INSTANTIATE_TEST_SUITE_P(Own, CompressorLaws,
//                            ::testing::ValuesIn(subjects(registry, {{"own:keep=7"}})), name_of);
//   INSTANTIATE_TEST_SUITE_P(Own, LargeTensorLaws,
//                            ::testing::ValuesIn(large_subjects(registry, {"own"})), name_of);
//
// A law that speaks of a claim which a method does not make passes. The method must not lean on
// what only aggregators do: it is given arrays alone.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "gradwire/compressor.h"
#include "gradwire/registry.h"
#include "gradwire/tensor.h"

namespace gradwire::laws {

struct CompressorCase {
  std::string spec;
  // Of an elementwise method: slices cut at multiples of this decode as the whole does; 0: its
  // buckets are whole slices.
  std::int64_t slice_alignment = 1;
};

// What a law is tested on: the method that `registry` makes of a spec, for elements of one type.
struct CompressorSubject {
  std::shared_ptr<const Registry> registry;
  CompressorCase one;
  DType dtype = DType::kF32;
  friend void PrintTo(const CompressorSubject& subject, std::ostream* out) {
    *out << subject.one.spec << " " << to_string(subject.dtype);
  }
};

// Every case in fp32 and in fp64. The registry is copied.
std::vector<CompressorSubject> subjects(const Registry& registry,
                                        const std::vector<CompressorCase>& cases);
// In fp32, 2^24 and more elements at a time: some 300 MB of memory and a second or so each.
std::vector<CompressorSubject> large_subjects(const Registry& registry,
                                              const std::vector<std::string>& specs);
// A test's name: the spec with '_' for what names may not hold, and the type.
std::string name_of(const ::testing::TestParamInfo<CompressorSubject>& info);

// Payloads' size, error bound, unbiasedness, linearity and average, agreement of ranks, error
// feedback that loses nothing, saved state, hostile and non-finite input, slices, threads,
// specs.
class CompressorLaws : public ::testing::TestWithParam<CompressorSubject> {
 protected:
  // Fails, naming the registry's reason, if it makes nothing of the spec.
  void SetUp() override;

  const Registry& registry() const { return *GetParam().registry; }
  const CompressorCase& law_case() const { return GetParam().one; }
  DType dtype() const { return GetParam().dtype; }
  const Compressor& compressor() const { return *compressor_; }

  // Calls law.operator()<T>() with the element type.
  template <typename Law>
  void with_type(const Law& law) {
    if (dtype() == DType::kF64) {
      law.template operator()<double>();
    } else {
      law.template operator()<float>();
    }
  }

 private:
  std::unique_ptr<Compressor> compressor_;
};

// More elements than a 32-bit float can count.
class LargeTensorLaws : public CompressorLaws {};

}  // namespace gradwire::laws
