// The ranks of one communicator of the library that plays NCCL: threads that meet.
#pragma once

#include <nccl.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace fake {

// A collective that one rank has called.
struct Call {
  enum class Kind { kAllReduce, kReduce, kBroadcast, kReduceScatter, kAllGather, kSplit } kind;
  const std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclFloat32;
  int op = ncclSum;
  double scale = 1;  // of this rank's elements
  int root = 0;      // of a split: the color
  int key = 0;
};

std::size_t width_of(ncclDataType_t type);

class Clique {
 public:
  explicit Clique(int size) : calls_(static_cast<std::size_t>(size)) {}
  int size() const { return static_cast<int>(calls_.size()); }

  // Waits for the others, at most ten seconds; all ranks' calls, or none when they did not come or
  // are not alike.
  std::vector<Call> meet(int rank, const Call& call);
  // Waits until all have come here.
  bool part();
  void send(int from, int to, std::vector<std::byte> message);
  // Waits for it as meet() does; false where none comes, or one of another length.
  bool receive(int from, int to, std::byte* out, std::size_t bytes);

 private:
  bool await(std::unique_lock<std::mutex>& lock, long generation);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Call> calls_;
  int come_ = 0;
  long generation_ = 0;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> mail_;
};

// What rank's `out` is after the calls, by definition; empty for a rank that gets nothing.
std::vector<std::byte> result_of(const std::vector<Call>& calls, int rank);

}  // namespace fake
