// How every peer is measured, and `gradwire bench` likewise: zeros, back to back, the slowest
// rank's time of each operation; one JSON line a size. A broadcast begins together each time: its
// root, which only sends, would run ahead of the others.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <string_view>
#include <vector>

namespace peers {

// What a peer does. Collective.
class Peer {
 public:
  virtual ~Peer() = default;
  virtual int rank() const = 0;
  virtual int ranks() const = 0;
  // One operation over `bytes` as of `gradwire bench`: the tensor, or all ranks' rows together.
  virtual void run(std::vector<float>& data) = 0;
  virtual void max(std::vector<double>& values) = 0;
  virtual void barrier() = 0;
};

// Messages of that size that send_recv has under way each way.
inline long messages_of(long bytes) { return std::clamp((256L << 20) / bytes, 1L, 64L); }

inline double now_us() {
  return std::chrono::duration<double, std::micro>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

inline int operations_for(Peer& peer, std::vector<float>& data, double seconds) {
  constexpr int kWarmUps = 3;
  std::vector<double> last(1);
  for (int i = 0; i < kWarmUps; ++i) {
    const double start = now_us();
    peer.run(data);
    last[0] = now_us() - start;
  }
  peer.max(last);
  return static_cast<int>(std::clamp(seconds * 1e6 / std::max(last[0], 1e-3), 10.0, 2000.0));
}

inline std::vector<double> times_of(Peer& peer, std::vector<float>& data, int operations,
                                    bool has_root) {
  std::vector<double> micros(static_cast<std::size_t>(operations));
  peer.barrier();
  double start = now_us();
  for (double& each : micros) {
    if (has_root) {
      peer.barrier();
      start = now_us();
    }
    peer.run(data);
    const double end = now_us();
    each = end - start;
    start = end;
  }
  peer.max(micros);
  std::sort(micros.begin(), micros.end());
  return micros;
}

// Elements of an all-reduce that are wrong when every rank gives whole numbers.
inline long wrong_sums(Peer& peer, std::vector<float>& data) {
  for (std::size_t i = 0; i < data.size(); ++i) {
    data[i] = static_cast<float>(i % 512 + static_cast<std::size_t>(peer.rank()));
  }
  peer.run(data);
  const int ranks = peer.ranks();
  long wrong = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const auto first = static_cast<float>(ranks * static_cast<int>(i % 512));
    wrong += data[i] == first + static_cast<float>(ranks * (ranks - 1) / 2) ? 0 : 1;
  }
  std::fill(data.begin(), data.end(), 0.0f);
  return wrong;
}

// Measures one size; rank 0 prints.
inline void measure(Peer& peer, const char* label, const char* operation, double seconds,
                    long bytes) {
  const bool reduces = std::string_view(operation) == "all_reduce";
  std::vector<float> data(static_cast<std::size_t>(bytes) / sizeof(float));
  const long wrong = reduces ? wrong_sums(peer, data) : 0;
  const bool has_root = std::string_view(operation) == "broadcast";
  const std::vector<double> micros =
      times_of(peer, data, operations_for(peer, data, seconds), has_root);
  if (peer.rank() != 0) return;
  std::printf(
      "{\"op\":\"%s\",\"transport\":\"%s\",\"ranks\":%d,\"bytes\":%ld,\"operations\":%zu,"
      "\"time_us_min\":%.3f,\"time_us_p50\":%.3f,\"wrong\":%ld}\n",
      operation, label, peer.ranks(), bytes, micros.size(), micros.front(),
      micros[(micros.size() + 1) / 2 - 1], wrong);
  std::fflush(stdout);
}

}  // namespace peers
