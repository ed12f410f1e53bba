#include "adapters/trainer/sharded/shard_states.h"

#include <cstdint>

#include "base/text.h"
#include "device/host_copy.h"
#include "gradwire/schedule.h"

namespace gradwire {
namespace {

Result<ConstTensorView> find(const std::vector<NamedTensor>& state, const NamedTensor& own) {
  for (const NamedTensor& entry : state) {
    if (entry.name != own.name) continue;
    if (entry.tensor.elems() == 0 || entry.tensor.dtype() == own.tensor.dtype()) {
      return ConstTensorView(entry.tensor);
    }
  }
  return Status(Code::kInvalidArgument,
                "state '" + own.name + "' is missing on an old rank, or of another type");
}

Status too_few(const NamedTensor& own, std::int64_t seen) {
  return {Code::kInvalidArgument,
          format("state '%s': %lld elements (expected %lld)", own.name.c_str(),
                 static_cast<long long>(seen), static_cast<long long>(own.tensor.elems()))};
}

}  // namespace

Status copy_entry(const NamedTensor& own, const std::vector<NamedTensor>& old) {
  GW_ASSIGN(const ConstTensorView from, find(old, own));
  if (from.elems() != own.tensor.elems()) return too_few(own, from.elems());
  return write_from_host(from.bytes(), own.tensor);
}

Status join_slices(const NamedTensor& own, OldStates old, int rank, int size) {
  if (old.size() == static_cast<std::size_t>(size)) {
    return copy_entry(own, old[static_cast<std::size_t>(rank)]);
  }
  std::vector<std::byte> all;
  for (const std::vector<NamedTensor>& state : old) {
    GW_ASSIGN(const ConstTensorView from, find(state, own));
    all.insert(all.end(), from.bytes().begin(), from.bytes().end());
  }
  const auto width = static_cast<std::int64_t>(size_of(own.tensor.dtype()));
  const Range mine = piece(static_cast<std::int64_t>(all.size()) / width, size, rank);
  if (mine.size() != own.tensor.elems()) return too_few(own, mine.size());
  const std::span<const std::byte> bytes(all);
  return write_from_host(bytes.subspan(static_cast<std::size_t>(mine.begin * width),
                                       static_cast<std::size_t>(mine.size() * width)),
                         own.tensor);
}

std::vector<std::vector<NamedTensor>> behind(const std::string& prefix, OldStates states) {
  std::vector<std::vector<NamedTensor>> all;
  for (const std::vector<NamedTensor>& state : states) {
    all.emplace_back();
    for (const NamedTensor& entry : state) {
      if (!entry.name.starts_with(prefix)) continue;
      all.back().push_back({entry.name.substr(prefix.size()), entry.tensor});
    }
  }
  return all;
}

}  // namespace gradwire
