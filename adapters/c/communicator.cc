// Communicator handles: what they are asked, groups of their ranks, their end.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "adapters/c/handles.h"
#include "adapters/c/outcome.h"
#include "gradwire/buffer.h"

namespace gradwire::c {
namespace {

// Memory for callers begins with the Buffer that owns it, in a line of its own.
constexpr std::size_t kLine = 64;
static_assert(sizeof(Buffer*) <= kLine);

bool alive(const gw_comm* comm) { return comm != nullptr && comm->magic == gw_comm::kMagic; }

// Collective. A null communicator, where this rank is in no group, becomes a null handle.
Status split_into(const Group& group, Result<std::unique_ptr<Communicator>> made, gw_comm** out) {
  if (!made.has_value()) return made.error();
  auto communicator = std::move(made).value();
  if (communicator != nullptr) *out = new_comm(std::move(communicator), group.timeout_seconds);
  return {};
}

Status check_members(std::span<const int> ranks, int size) {
  std::vector<int> sorted(ranks.begin(), ranks.end());
  std::ranges::sort(sorted);
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    const bool twice = i > 0 && sorted[i] == sorted[i - 1];
    if (!twice && sorted[i] >= 0 && sorted[i] < size) continue;
    return {Code::kInvalidArgument,
            format("gw_comm_group: rank %d%s (expected each from 0 to %d at most once)", sorted[i],
                   twice ? " twice" : "", size - 1)};
  }
  return {};
}

}  // namespace
}  // namespace gradwire::c

using namespace gradwire;
using namespace gradwire::c;

void gw_comm_free(gw_comm* comm) {
  if (!alive(comm)) return;
  comm->magic = 0;
  guarded([&]() -> Status {
    // What is under way would otherwise end with the communicator's relatives.
    if (*comm->group->open > 0) comm->group->communicator->abort("its communicator was freed");
    delete comm;
    return {};
  });
}

int gw_comm_rank(const gw_comm* comm) {
  return alive(comm) ? comm->group->communicator->rank() : -1;
}

int gw_comm_size(const gw_comm* comm) {
  return alive(comm) ? comm->group->communicator->size() : -1;
}

int gw_comm_job_rank(const gw_comm* comm, int r) {
  if (r < 0 || r >= gw_comm_size(comm)) return -1;
  return comm->group->communicator->job_rank(r);
}

gw_status gw_comm_status(const gw_comm* comm) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(comm, "gw_comm_status", "comm"));
    return comm->group->communicator->status();
  });
}

const char* gw_comm_describe(const gw_comm* comm) {
  return alive(comm) ? comm->group->description.c_str() : "";
}

gw_status gw_comm_get_stats(const gw_comm* comm, gw_comm_stats* stats) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(comm, "gw_comm_get_stats", "comm"));
    const Communicator& communicator = *comm->group->communicator;
    const TransportStats job = communicator.transport_stats();
    const gw_comm_stats seen = {sizeof(gw_comm_stats), communicator.bytes_sent(),
                                job.bytes_sent,        job.bytes_received,
                                job.messages_sent,     job.messages_received};
    return write_struct(seen, "gw_comm_get_stats", stats);
  });
}

gw_status gw_comm_abort(gw_comm* comm, const char* reason) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(comm, "gw_comm_abort", "comm"));
    comm->group->communicator->abort(reason == nullptr ? "aborted by its caller" : reason);
    return {};
  });
}

gw_status gw_comm_split(gw_comm* comm, int color, int key, gw_comm** group) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(comm, "gw_comm_split", "comm"));
    GW_TRY(check_given(group, "gw_comm_split", "group"));
    *group = nullptr;
    const std::lock_guard lock(comm->group->order);
    return split_into(*comm->group, comm->group->communicator->split(color, key), group);
  });
}

gw_status gw_comm_group(gw_comm* comm, const int* ranks, int count, gw_comm** group) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(comm, "gw_comm_group", "comm"));
    GW_TRY(check_given(group, "gw_comm_group", "group"));
    *group = nullptr;
    Communicator& communicator = *comm->group->communicator;
    if (count < 0 || count > communicator.size()) {
      return {Code::kInvalidArgument,
              format("gw_comm_group: %d ranks (expected 0 to %d)", count, communicator.size())};
    }
    if (count > 0) GW_TRY(check_given(ranks, "gw_comm_group", "ranks"));
    const std::span<const int> members(ranks, static_cast<std::size_t>(count));
    GW_TRY(check_members(members, communicator.size()));
    const auto self = std::ranges::find(members, communicator.rank());
    const int key = static_cast<int>(self - members.begin());
    const std::lock_guard lock(comm->group->order);
    return split_into(*comm->group, communicator.split(self == members.end() ? -1 : 0, key), group);
  });
}

gw_status gw_comm_shrink(gw_comm* comm, double seconds, gw_comm** survivors) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(comm, "gw_comm_shrink", "comm"));
    GW_TRY(check_given(survivors, "gw_comm_shrink", "survivors"));
    *survivors = nullptr;
    std::optional<Deadline> deadline;
    if (seconds > 0 && seconds < 1e9) deadline = deadline_in(seconds);
    return split_into(*comm->group, comm->group->communicator->shrink(deadline), survivors);
  });
}

void* gw_memory_alloc(gw_comm* comm, size_t bytes) {
  void* memory = nullptr;
  guarded([&]() -> Status {
    GW_TRY(check_handle(comm, "gw_memory_alloc", "comm"));
    GW_ASSIGN(Buffer buffer, comm->group->communicator->allocate(bytes + kLine));
    std::byte* const line = buffer.bytes().data();
    Buffer* const owner = new Buffer(std::move(buffer));
    std::memcpy(line, &owner, sizeof owner);
    memory = line + kLine;
    return {};
  });
  return memory;
}

void gw_memory_free(void* memory) {
  if (memory == nullptr) return;
  Buffer* owner = nullptr;
  std::memcpy(&owner, static_cast<std::byte*>(memory) - kLine, sizeof owner);
  delete owner;
}
