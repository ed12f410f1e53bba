// Ranks as threads that share a layer's or a model's tensors, and what they send.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "adapters/trainer/tensor/communicator_peers.h"
#include "tests/support/aggregate_job.h"
#include "tests/trainer/layer_run.h"
#include "trainer/parameters.h"

namespace gradwire::testing {

// One rank's place: its peers, and the bytes that it has sent.
struct TensorRank {
  Communicator& group;
  CommunicatorPeers peers;

  int rank() const { return group.rank(); }
  int ranks() const { return group.size(); }
  // What `work` makes this rank send.
  std::uint64_t bytes_of(const std::function<void()>& work) const {
    const std::uint64_t before = group.bytes_sent();
    work();
    return group.bytes_sent() - before;
  }
};

inline void on_tensor_ranks(int ranks, const std::function<void(TensorRank&)>& program) {
  const auto statuses = on_ranks(ranks, [&](std::unique_ptr<Communicator>& group) -> Status {
    TensorRank rank{*group, CommunicatorPeers(*group)};
    program(rank);
    return rank.peers.status();
  });
  for (const Status& status : statuses) EXPECT_TRUE(status.ok()) << status.message();
}

// The elements of a whole tensor that are here.
template <typename T>
std::vector<T> cut(const std::vector<T>& whole, const TensorBox& box) {
  std::vector<T> here;
  for (std::int64_t i = 0; i < box.elems(); ++i) {
    here.push_back(whole[static_cast<std::size_t>(box.element(i))]);
  }
  return here;
}

// The parameters of a part, out of those of the whole, whose table has the same names.
template <typename T>
std::vector<T> cut_parameters(const std::vector<T>& whole, const ParameterTable& all,
                              const ParameterTable& part) {
  std::vector<T> here;
  for (std::size_t i = 0; i < part.size(); ++i) {
    EXPECT_EQ(part[i].name, all[i].name);
    const auto begin = whole.begin() + all[i].offset;
    const std::vector<T> own(begin, begin + all[i].shape.elems());
    const std::vector<T> values = cut(own, box_of(part[i]));
    here.insert(here.end(), values.begin(), values.end());
  }
  return here;
}

// Columns [begin, end) of every row.
template <typename T>
std::vector<T> columns_of(const std::vector<T>& rows, std::int64_t width, Range at) {
  std::vector<T> part;
  for (std::size_t begin = 0; begin < rows.size(); begin += static_cast<std::size_t>(width)) {
    part.insert(part.end(), rows.begin() + static_cast<std::ptrdiff_t>(begin) + at.begin,
                rows.begin() + static_cast<std::ptrdiff_t>(begin) + at.end);
  }
  return part;
}

template <typename T>
double distance(const std::vector<T>& a, const std::vector<T>& b) {
  EXPECT_EQ(a.size(), b.size());
  double most = 0;
  for (std::size_t i = 0; i < a.size() && i < b.size(); ++i) {
    most = std::max(most, std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i])));
  }
  return most;
}

// The same over the largest element of `b`.
template <typename T>
double relative_distance(const std::vector<T>& a, const std::vector<T>& b) {
  double largest = 0;
  for (const T value : b) largest = std::max(largest, std::abs(static_cast<double>(value)));
  return distance(a, b) / largest;
}

}  // namespace gradwire::testing
