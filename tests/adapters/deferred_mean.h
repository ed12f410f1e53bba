// What compression still owes a model, read from a checkpoint.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "gradwire/schedule.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/store.h"

namespace gradwire::testing {

using DeferredMean = std::map<std::string, std::vector<double>>;  // by parameter

// (1/n) (sum of ".error" + ".error2" joined), element by element, of a checkpoint's parameters.
inline DeferredMean deferred_mean(const std::string& folder) {
  const CheckpointStore store(folder);
  auto reader = CheckpointReader::open(store.path_of(10));
  EXPECT_TRUE(reader.has_value());
  const CheckpointManifest& manifest = reader.value().manifest();
  DeferredMean average;
  for (int rank = 0; rank < manifest.position.mesh.dp; ++rank) {
    const std::string prefix = "dp-" + std::to_string(rank) + "/gradients/";
    for (const auto& [name, tensor] : manifest.tensors) {
      const bool second = name.ends_with(".error2");
      if (!name.starts_with(prefix) || !(name.ends_with(".error") || second)) continue;
      std::vector<float> values(static_cast<std::size_t>(tensor.shape.elems()));
      const TensorView view(reinterpret_cast<std::byte*>(values.data()), tensor.shape, DType::kF32);
      EXPECT_TRUE(reader.value().read(name, view).ok());
      const std::string parameter = name.substr(prefix.size(), name.rfind('.') - prefix.size());
      std::vector<double>& sum = average[parameter];
      const std::string whole = "parameters/" + parameter;
      const std::int64_t elems = manifest.tensors.at(whole).shape.elems();
      sum.resize(static_cast<std::size_t>(elems));
      const std::int64_t begin =
          second ? piece(elems, manifest.position.mesh.dp, rank).begin : std::int64_t{0};
      for (std::size_t i = 0; i < values.size(); ++i) {
        sum[static_cast<std::size_t>(begin) + i] +=
            static_cast<double>(values[i]) / manifest.position.mesh.dp;
      }
    }
  }
  return average;
}

inline double relative_difference(const DeferredMean& a, const DeferredMean& b) {
  double difference = 0;
  double norm = 0;
  EXPECT_EQ(a.size(), b.size());
  for (const auto& [name, values] : a) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      difference += std::pow(values[i] - b.at(name)[i], 2);
      norm += std::pow(values[i], 2);
    }
  }
  EXPECT_GT(norm, 0);
  return std::sqrt(difference / norm);
}

}  // namespace gradwire::testing
