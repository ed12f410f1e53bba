// The ways in which ranks meet.
#include <array>
#include <cstdio>
#include <cstring>
#include <utility>

#include "adapters/c/callback_store.h"
#include "adapters/c/handles.h"
#include "adapters/c/join.h"
#include "adapters/c/outcome.h"
#include "adapters/c/unique_id.h"
#include "adapters/launch/join_notice.h"
#include "gradwire/config.h"

namespace gradwire::c {
namespace {

Status check_ranks(const char* function, int rank, int size) {
  constexpr int kMostRanks = 65536;
  if (size < 1 || size > kMostRanks) {
    return {Code::kInvalidArgument,
            format("%s: size %d (expected 1 to %d)", function, size, kMostRanks)};
  }
  if (rank >= 0 && rank < size) return {};
  return {Code::kInvalidArgument,
          format("%s: rank %d (expected 0 to %d)", function, rank, size - 1)};
}

// The result of every gw_init_...(): `meet` makes the rendezvous.
template <typename Meet>
gw_status init(const char* function, const gw_comm_options* options, gw_comm** comm,
               const Meet& meet) {
  return guarded([&]() -> Status {
    GW_TRY(check_given(comm, function, "comm"));
    *comm = nullptr;
    GW_ASSIGN(const Settings settings, read_settings(function, options));
    GW_ASSIGN(const Rendezvous rendezvous, meet(settings));
    GW_ASSIGN(auto communicator, join(settings, rendezvous));
    *comm = new_comm(std::move(communicator), settings.timeout_seconds);
    return {};
  });
}

template <std::size_t Room>
void copy_text(const std::string& text, char (&to)[Room]) {
  std::snprintf(to, Room, "%s", text.c_str());
}

Status write_id(const MeetingPlace& place, gw_unique_id& id) {
  const std::string text = to_text(place);
  if (text.size() >= sizeof id.bytes) {
    return {
        Code::kInvalidArgument,
        format("unique id: a text of %zu bytes (expected less than %zu; use a shorter job name)",
               text.size(), sizeof id.bytes)};
  }
  std::memset(id.bytes, 0, sizeof id.bytes);
  std::memcpy(id.bytes, text.data(), text.size());
  return {};
}

Result<MeetingPlace> read_id(const gw_unique_id& id) {
  return parse_meeting_place({id.bytes, strnlen(id.bytes, sizeof id.bytes)});
}

// Rank 0's id, on all ranks; what rank 0 could not do all say.
Result<MeetingPlace> gathered_place(gw_all_gather_fn all_gather, void* context, int rank, int size,
                                    const Settings& settings) {
  gw_unique_id own = {};
  Status opened;
  if (rank == 0) {
    auto place = open_meeting_place(settings);
    opened = place.has_value() ? write_id(place.value(), own) : place.error();
  }
  std::vector<gw_unique_id> all(static_cast<std::size_t>(size));
  const int failed = all_gather(context, &own, all.data(), sizeof own);
  GW_TRY(opened);
  if (failed != 0) {
    if (rank == 0) GW_TRY(release(read_id(own).value()));
    return Status(Code::kInternal, format("the all-gather function returned %d", failed));
  }
  if (all.front().bytes[0] == '\0') {
    return Status(Code::kPeerLost, "rank 0 could not open a place to meet");
  }
  return read_id(all.front());
}

}  // namespace

gw_comm* new_comm(std::unique_ptr<Communicator> communicator, double timeout_seconds) {
  auto group = std::make_shared<Group>();
  group->description = communicator->describe();
  group->communicator = std::move(communicator);
  group->timeout_seconds = timeout_seconds;
  auto comm = std::make_unique<gw_comm>();
  comm->group = std::move(group);
  return comm.release();
}

}  // namespace gradwire::c

using namespace gradwire;
using namespace gradwire::c;

gw_status gw_launch_from_env(gw_launch* launch) {
  return guarded([&]() -> Status {
    GW_TRY(check_given(launch, "gw_launch_from_env", "launch"));
    *launch = {};
    GW_ASSIGN(const LaunchInfo info, discover_launch(environment));
    launch->rank = info.rank;
    launch->size = info.size;
    launch->local_rank = info.local_rank;
    copy_text(info.source, launch->source);
    copy_text(info.rendezvous, launch->rendezvous);
    return {};
  });
}

gw_status gw_init_env(const gw_comm_options* options, gw_comm** comm) {
  const auto meet = [](const Settings& settings) -> Result<Rendezvous> {
    GW_ASSIGN(const LaunchInfo info, discover_launch(environment, settings.launch));
    settings.log(LogLevel::kDebug,
                 "launched by " + info.source + ", rendezvous " + info.rendezvous);
    launch::tell_launcher(environment, launch::JoinStep::kMeeting);
    return open_rendezvous(info, settings.secret, settings.rendezvous_seconds);
  };
  const gw_status status = init("gw_init_env", options, comm, meet);
  if (status == GW_OK) launch::tell_launcher(environment, launch::JoinStep::kJoined);
  return status;
}

gw_status gw_init_all_gather(gw_all_gather_fn all_gather, void* context, int rank, int size,
                             const gw_comm_options* options, gw_comm** comm) {
  constexpr const char* kName = "gw_init_all_gather";
  return init(kName, options, comm, [&](const Settings& settings) -> Result<Rendezvous> {
    if (all_gather == nullptr) {
      return Status(Code::kInvalidArgument, std::string(kName) + ": all_gather is NULL");
    }
    GW_TRY(check_ranks(kName, rank, size));
    auto place = gathered_place(all_gather, context, rank, size, settings);
    if (!place.has_value()) return place.error().with_context(kName);
    return meet_at(place.value(), rank, size, settings);
  });
}

gw_status gw_init_store(const gw_store* store, int rank, int size, const gw_comm_options* options,
                        gw_comm** comm) {
  constexpr const char* kName = "gw_init_store";
  std::shared_ptr<CallbackStore> lent;
  const gw_status outcome =
      init(kName, options, comm, [&](const Settings& settings) -> Result<Rendezvous> {
        GW_TRY(check_given(store, kName, "store"));
        if (store->set == nullptr || store->get == nullptr) {
          return Status(Code::kInvalidArgument, std::string(kName) + ": set or get is NULL");
        }
        GW_TRY(check_ranks(kName, rank, size));
        const std::string job = settings.launch.job.empty() ? "job" : settings.launch.job;
        lent = std::make_shared<CallbackStore>(*store, "gradwire/" + job + "/");
        return Rendezvous{.rank = rank,
                          .size = size,
                          .job = job,
                          .store = lent,
                          .timeout_seconds = settings.rendezvous_seconds,
                          .secret = settings.secret};
      });
  if (lent != nullptr) lent->close();
  return outcome;
}

gw_status gw_unique_id_create(const gw_comm_options* options, gw_unique_id* id) {
  return guarded([&]() -> Status {
    GW_TRY(check_given(id, "gw_unique_id_create", "id"));
    GW_ASSIGN(const Settings settings, read_settings("gw_unique_id_create", options));
    GW_ASSIGN(const MeetingPlace place, open_meeting_place(settings));
    const Status written = write_id(place, *id);
    if (!written.ok()) (void)release(place);
    return written;
  });
}

gw_status gw_unique_id_release(const gw_unique_id* id) {
  return guarded([&]() -> Status {
    GW_TRY(check_given(id, "gw_unique_id_release", "id"));
    GW_ASSIGN(const MeetingPlace place, read_id(*id));
    return release(place);
  });
}

gw_status gw_init_unique_id(const gw_unique_id* id, int rank, int size,
                            const gw_comm_options* options, gw_comm** comm) {
  constexpr const char* kName = "gw_init_unique_id";
  return init(kName, options, comm, [&](const Settings& settings) -> Result<Rendezvous> {
    GW_TRY(check_given(id, kName, "id"));
    GW_TRY(check_ranks(kName, rank, size));
    GW_ASSIGN(const MeetingPlace place, read_id(*id));
    return meet_at(place, rank, size, settings);
  });
}

gw_status gw_init_threads(int size, const gw_comm_options* options, gw_comm** comms) {
  constexpr const char* kName = "gw_init_threads";
  return guarded([&]() -> Status {
    GW_TRY(check_given(comms, kName, "comms"));
    GW_TRY(check_ranks(kName, 0, size));
    for (int r = 0; r < size; ++r) comms[r] = nullptr;
    GW_ASSIGN(const Settings settings, read_settings(kName, options));
    CommunicatorOptions made;
    made.deadline_seconds = settings.timeout_seconds;
    made.algorithm = settings.algorithm;
    made.checksums = settings.checksums;
    made.warn = [log = settings.log](std::string_view line) { log(LogLevel::kWarn, line); };
    GW_ASSIGN(auto communicators, make_inproc_communicators(size, made));
    for (std::size_t r = 0; r < communicators.size(); ++r) {
      comms[r] = new_comm(std::move(communicators[r]), settings.timeout_seconds);
    }
    return {};
  });
}
