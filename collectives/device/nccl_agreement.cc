#include "collectives/device/nccl_agreement.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>

#include "base/elements.h"
#include "base/hash.h"
#include "base/text.h"
#include "comm/nccl/nccl_calls.h"
#include "comm/process_state.h"
#include "device/cuda/stream.h"

namespace gradwire {
namespace {

// What a rank says: three numbers.
enum NcclStanding : std::size_t {
  kVersion,
  kOrdinal,
  kProcess,  // a hash of its number and of where that number counts
  kWords
};

std::int64_t this_process() {
  const std::string name =
      format("%s/%d", comm::process_space().c_str(), static_cast<int>(getpid()));
  return static_cast<std::int64_t>(hash_name(name));
}

Status check_versions(const std::vector<std::int64_t>& all) {
  const auto text = [](std::int64_t version) {
    return nccl::version_text(static_cast<int>(version));
  };
  const std::int64_t wanted = all[kVersion];
  for (std::size_t r = 0; r < all.size() / kWords; ++r) {
    const std::int64_t theirs = all[r * kWords + kVersion];
    const auto rank = static_cast<int>(r);
    if (theirs == 0) {
      return {Code::kUnsupported, format("nccl: rank %d cannot take part, and says why", rank)};
    }
    if (theirs == wanted) continue;
    return {Code::kRankMismatch, format("nccl: NCCL %s on rank %d (expected %s, as on rank 0)",
                                        text(theirs).c_str(), rank, text(wanted).c_str())};
  }
  return {};
}

}  // namespace

Result<NcclNeighbours> agree_on_nccl(Communicator& group, int version, Device device) {
  const std::array<std::int64_t, kWords> own{version, device.ordinal, this_process()};
  std::vector<std::int64_t> all(kWords * static_cast<std::size_t>(group.size()));
  GW_ASSIGN(Work work, group.all_gather(const_view_of(std::span<const std::int64_t>(own)),
                                        view_of(std::span(all))));
  GW_TRY(work.wait());
  GW_TRY(check_versions(all));
  NcclNeighbours neighbours;
  for (int r = 0; r < group.size(); ++r) {
    const std::int64_t* const theirs = all.data() + kWords * static_cast<std::size_t>(r);
    const bool beside = theirs[kProcess] == own[kProcess] && theirs[kOrdinal] == own[kOrdinal];
    if (beside && r != group.rank()) neighbours.push_back(group.job_rank(r));
  }
  return neighbours;
}

Status check_own_stream(const std::string& operation, const Stream& stream, const Group& group,
                        const NcclNeighbours& neighbours) {
  if (neighbours.empty()) return {};
  GW_ASSIGN(const bool shared, cuda::goes_with_default(stream));
  if (!shared) return {};
  for (int r = 0; r < group.size(); ++r) {
    if (std::ranges::find(neighbours, group.job_rank(r)) == neighbours.end()) continue;
    return {Code::kInvalidArgument,
            operation +
                format(": on a stream that synchronises with CUDA's default stream, while rank %d, "
                       "a thread of the same process, uses that device too (expected a stream of "
                       "the rank's own in OpOptions::stream, made with cudaStreamNonBlocking)",
                       r)};
  }
  return {};
}

}  // namespace gradwire
