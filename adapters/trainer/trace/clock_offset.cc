#include "adapters/trainer/trace/clock_offset.h"

#include <chrono>
#include <cstdlib>
#include <span>

#include "base/elements.h"

namespace gradwire {
namespace {

constexpr int kRoundTrips = 16;

std::int64_t now() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

Status wait_for(Result<Work> started) {
  GW_ASSIGN(Work work, std::move(started));
  return work.wait();
}

Status answer(Communicator& communicator, int rank) {
  std::int64_t time = 0;
  const TensorView view = view_of(std::span(&time, 1));
  for (int trip = 0; trip < kRoundTrips; ++trip) {
    GW_TRY(wait_for(communicator.recv(view, rank)));
    time = now();
    GW_TRY(wait_for(communicator.send(view, rank)));
  }
  return {};
}

Result<std::int64_t> ask(Communicator& communicator) {
  std::int64_t offset = 0;
  std::int64_t fastest = 0;
  for (int trip = 0; trip < kRoundTrips; ++trip) {
    std::int64_t theirs = 0;
    const TensorView view = view_of(std::span(&theirs, 1));
    const std::int64_t start = now();
    GW_TRY(wait_for(communicator.send(view, 0)));
    GW_TRY(wait_for(communicator.recv(view, 0)));
    const std::int64_t took = now() - start;
    if (trip > 0 && took >= fastest) continue;
    fastest = took;
    offset = theirs - (start + took / 2);
  }
  return std::abs(offset) <= fastest / 2 + 1 ? 0 : offset;
}

}  // namespace

Result<std::int64_t> offset_to_rank_0(Communicator& communicator) {
  if (communicator.rank() != 0) {
    // One after another: rank 0 has ears for one.
    return ask(communicator);
  }
  for (int rank = 1; rank < communicator.size(); ++rank) GW_TRY(answer(communicator, rank));
  return 0;
}

}  // namespace gradwire
