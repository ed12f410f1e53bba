#include "aggregate/state/replica_check.h"

#include <vector>

#include "base/elements.h"
#include "base/hash.h"
#include "base/text.h"
#include "device/host_copy.h"

namespace gradwire {
namespace {

// "rank 1", "ranks 1, 3"
std::string ranks_text(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
  }
  return text;
}

}  // namespace

Status check_equal(Communicator& communicator, std::span<const NamedHash> values,
                   const std::string& what) {
  const auto count = values.size();
  const auto size = static_cast<std::size_t>(communicator.size());
  std::vector<std::int64_t> own;
  for (const NamedHash& value : values) own.push_back(static_cast<std::int64_t>(value.hash));
  std::vector<std::int64_t> all(count * size);
  GW_ASSIGN(Work work,
            communicator.all_gather(
                const_view_of<std::int64_t>(own),
                TensorView(reinterpret_cast<std::byte*>(all.data()),
                           Shape::matrix(communicator.size(), static_cast<std::int64_t>(count)),
                           DType::kI64)));
  GW_TRY(work.wait());
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<int> differing;
    for (std::size_t r = 1; r < size; ++r) {
      if (all[r * count + i] != all[i]) differing.push_back(static_cast<int>(r));
    }
    if (differing.empty()) continue;
    // All ranks have the same numbers and come here. Who is first must not leave, and take the
    // others' gathering with it, before they have theirs; how the barrier itself ends is no matter.
    if (auto all_know = communicator.barrier(); all_know.has_value()) {
      (void)all_know.value().wait();
    }
    return {Code::kRankMismatch,
            format("%s: '%s' differs: %s %s other bytes than rank 0 (%s)", what.c_str(),
                   values[i].name.c_str(), ranks_text(differing).c_str(),
                   differing.size() == 1 ? "holds" : "hold",
                   format("hash %016llx there, %016llx on rank 0",
                          static_cast<unsigned long long>(
                              all[static_cast<std::size_t>(differing[0]) * count + i]),
                          static_cast<unsigned long long>(all[i]))
                       .c_str())};
  }
  return {};
}

Status check_replicas(Communicator& communicator, std::span<const NamedTensor> tensors,
                      const std::string& when) {
  std::vector<NamedHash> hashes;
  for (const NamedTensor& entry : tensors) {
    GW_ASSIGN(const HostCopy copy, HostCopy::of(entry.tensor));
    hashes.push_back({entry.name, hash_bytes(copy.bytes())});
  }
  return check_equal(communicator, hashes, "replicas " + when);
}

}  // namespace gradwire
