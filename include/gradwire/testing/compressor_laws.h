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
// A law that speaks of a claim which a method does not make is not among its cases. The method must
// not lean on what only aggregators do: it is given arrays alone.
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

struct CompressorCase {
  std::string spec;
  // Of an elementwise method: slices cut at multiples of this decode as the whole does; 0: its
  // buckets are whole slices.
  std::int64_t slice_alignment = 1;
};

struct Law;

// What a law is tested on: the method that `registry` makes of a spec, for elements of one type.
struct CompressorSubject {
  std::shared_ptr<const Registry> registry;
  CompressorCase one;
  DType dtype = DType::kF32;
  const Law* law = nullptr;  // of CompressorLaws; LargeTensorLaws have none
  friend void PrintTo(const CompressorSubject& subject, std::ostream* out) {
    *out << subject.one.spec << " " << to_string(subject.dtype);
  }
};

// Every case in fp32 and in fp64, with every law that speaks of it; with all of them where the
// registry makes nothing of its spec. The registry is copied.
std::vector<CompressorSubject> subjects(const Registry& registry,
                                        const std::vector<CompressorCase>& cases);
// In fp32, 2^24 and more elements at a time: some 300 MB of memory and a second or so each.
std::vector<CompressorSubject> large_subjects(const Registry& registry,
                                              const std::vector<std::string>& specs);
// A test's name: the law, the spec with '_' for what names may not hold, and the type.
std::string name_of(const ::testing::TestParamInfo<CompressorSubject>& info);

// The method at hand, as a law sees it.
class JudgedMethod {
 public:
  JudgedMethod() = default;
  JudgedMethod(CompressorSubject subject, std::shared_ptr<const Compressor> compressor)
      : subject_(std::move(subject)), compressor_(std::move(compressor)) {}

 protected:
  const Registry& registry() const { return *subject_.registry; }
  const CompressorCase& law_case() const { return subject_.one; }
  DType dtype() const { return subject_.dtype; }
  const Compressor& compressor() const { return *compressor_; }

  // Calls law.operator()<T>() with the element type.
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

// Payloads' size, error bound, unbiasedness, linearity and average, agreement of ranks, error
// feedback that loses nothing, saved state, hostile and non-finite input, slices, threads,
// specs.
class CompressorLaws : public ::testing::TestWithParam<CompressorSubject>, public JudgedMethod {
 protected:
  // Fails, naming the registry's reason, if it makes nothing of the spec.
  void SetUp() override;
};

// More elements than a 32-bit float can count.
class LargeTensorLaws : public CompressorLaws {};

}  // namespace gradwire::laws
