// Ranks as threads: runs one function per rank and collects what each returned.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "gradwire/communicator.h"

namespace gradwire {

// program(r) on a thread of its own for every r in 0 .. ranks - 1; the results by rank.
template <typename T>
std::vector<T> on_threads(int ranks, const std::function<T(int rank)>& program) {
  static_assert(!std::is_same_v<T, bool>, "ranks would write into one word");
  std::vector<T> results(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] { results[static_cast<std::size_t>(r)] = program(r); });
  }
  for (std::thread& thread : threads) thread.join();
  return results;
}

}  // namespace gradwire
