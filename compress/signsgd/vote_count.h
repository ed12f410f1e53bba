// A vote over signs that lie on a device.
#pragma once

#include <algorithm>
#include <span>

#include "base/elements.h"
#include "compress/signsgd/sign_thread_kernels.h"
#include "gradwire/tensor.h"

namespace gradwire::cuda {

// Enqueues dst = the sign of the sum of all payloads' signs, 0 on a tie; fewer than 2^15 payloads
// of the right length, in which `zero_bytes` of bits of blocks lie in front (VoteCount). What is
// corrupt is found at its rank.
inline Status count_votes(const char* name, std::span<const ConstByteSpan> payloads,
                          std::int64_t zero_bytes, TensorView dst, std::uint64_t* verdict,
                          const Stream& stream) {
  constexpr std::size_t kMost = VoteCount::kMostPayloads;
  for (std::size_t first = 0; first < payloads.size(); first += kMost) {
    const auto some = payloads.subspan(first, std::min(kMost, payloads.size() - first));
    VoteCount kernel{.payloads = {},
                     .number = static_cast<int>(some.size()),
                     .first = static_cast<int>(first),
                     .last = first + some.size() == payloads.size(),
                     .zero_bytes = zero_bytes,
                     .dst = elements<float>(dst).data(),
                     .count = dst.elems(),
                     .verdict = verdict};
    for (std::size_t r = 0; r < some.size(); ++r) kernel.payloads[r] = some[r].data();
    GW_TRY(launch(name, kernel, blocks_for(dst.elems(), 8 * VoteCount::kThreads), stream));
  }
  return {};
}

}  // namespace gradwire::cuda
