// Times a kernel by turns with a read-only pass, with plain code and with torch, and prints what it
// reaches beside what is wanted.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bench/goals/torch_peer.h"

namespace gradwire::bench {

struct Goal {
  const char* name;
  std::string what;
  double share;  // of the read-only rate, wanted
  std::function<void()> run;
  const char* peer_name = nullptr;
  std::function<void()> peer = nullptr;
  double times = 0;                  // faster than the peer, wanted; 0: no goal
  const char* torch_name = nullptr;  // what codec_torch.py calls the same work; null: nothing does
  double torch_times = 0;            // faster than torch, wanted; 0: no goal
};

class GoalTable {
 public:
  // x: what gradients hold. only: names of goals with commas between, "" for all. torch: null where
  // it is not installed.
  GoalTable(std::size_t elems, int rounds, std::string only, TorchPeer* torch);

  const std::vector<float>& x() const { return x_; }

  // The goal's input has the bytes of `read`; prints a line.
  void measure(const Goal& goal, std::span<const float> read);
  void measure(const Goal& goal) { measure(goal, x_); }
  static void print_head();

 private:
  struct Medians {
    double rate = 0;   // GB/s
    double share = 0;  // of the read pass
    double times = 0;  // faster than the peer
    double torch_times = 0;
  };
  static void print(const Goal& goal, const Medians& medians);

  std::vector<float> x_;
  int rounds_;
  std::string only_;
  TorchPeer* torch_;
  float sink_ = 0;
};

}  // namespace gradwire::bench
