// How the ranks of an MPI communicator come to a gradwire communicator: rank 0 says how, all say
// where they are, a transport connects them, and all hear whether that went well everywhere. What
// they say to each other for that goes over a communicator of their own, so that no message of the
// program's is met.
#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

#include "adapters/launch/connect.h"
#include "adapters/links.h"
#include "adapters/mpi/exchange_store.h"
#include "adapters/mpi/member.h"
#include "base/text.h"
#include "comm/host.h"
#include "comm/liveness.h"
#include "comm/rendezvous/hmac.h"

namespace gradwire::mpi {
namespace {

using Kind = Settings::Transport;

// Given back when this ends.
class Talk {
 public:
  static Result<Talk> over(MPI_Comm comm) {
    Talk talk;
    GW_TRY(checked(PMPI_Comm_rank(comm, &talk.rank_), "MPI_Comm_rank"));
    GW_TRY(checked(PMPI_Comm_size(comm, &talk.size_), "MPI_Comm_size"));
    // Not a duplicate: that would call what the program has attached to the communicator.
    GW_TRY(checked(PMPI_Comm_split(comm, 0, talk.rank_, &talk.comm_), "MPI_Comm_split"));
    PMPI_Comm_set_errhandler(talk.comm_, MPI_ERRORS_RETURN);
    return talk;
  }
  Talk(Talk&& other) noexcept
      : comm_(std::exchange(other.comm_, MPI_COMM_NULL)), rank_(other.rank_), size_(other.size_) {}
  Talk& operator=(Talk&&) = delete;
  ~Talk() {
    if (comm_ != MPI_COMM_NULL) PMPI_Comm_free(&comm_);
  }

  MPI_Comm comm() const { return comm_; }
  int rank() const { return rank_; }
  int size() const { return size_; }

  // The least of all ranks' numbers.
  Result<int> least(int own) const {
    int least = own;
    GW_TRY(checked(PMPI_Allreduce(&own, &least, 1, MPI_INT, MPI_MIN, comm_), "MPI_Allreduce"));
    return least;
  }

 private:
  Talk() = default;
  MPI_Comm comm_ = MPI_COMM_NULL;
  int rank_ = 0;
  int size_ = 0;
};

// What rank 0 tells the others.
struct Offer {
  Settings settings;
  char job[33] = {};     // of this communicator alone
  char secret[33] = {};  // connections are proved with it
};

Offer make_offer(const Settings& settings) {
  Offer offer{.settings = settings};
  std::strncpy(offer.job, rendezvous::random_hex(16).c_str(), sizeof offer.job - 1);
  std::strncpy(offer.secret, rendezvous::random_hex(16).c_str(), sizeof offer.secret - 1);
  return offer;
}

// The node of each rank as the smallest rank that is on it.
Result<std::vector<int>> nodes(const Talk& talk) {
  const std::uint64_t own = comm::host_number();
  std::vector<std::uint64_t> hosts(static_cast<std::size_t>(talk.size()));
  GW_TRY(checked(PMPI_Allgather(&own, 1, MPI_UINT64_T, hosts.data(), 1, MPI_UINT64_T, talk.comm()),
                 "MPI_Allgather"));
  std::vector<int> nodes;
  for (const std::uint64_t host : hosts) {
    nodes.push_back(static_cast<int>(std::ranges::find(hosts, host) - hosts.begin()));
  }
  return nodes;
}

Result<std::unique_ptr<Transport>> open_transport(const Settings& settings, bool one_host,
                                                  const Rendezvous& rendezvous) {
  const launch::MessageOptions options{
      .carrier = launch::messages_of(settings.transport == Kind::kTcp   ? "tcp"
                                     : settings.transport == Kind::kUcx ? "ucx"
                                                                        : "auto"),
      .interface = environment("GRADWIRE_IFNAME").value_or(""),
      .liveness_seconds = comm::liveness_for(settings.deadline_seconds)};
  return launch::open_messages(options, one_host, rendezvous);
}

Result<std::unique_ptr<Communicator>> open(const Settings& settings, std::vector<int> nodes,
                                           const Rendezvous& rendezvous) {
  const bool one_host = std::ranges::count(nodes, 0) == rendezvous.size;
  if (settings.transport == Kind::kShm && !one_host) {
    return Status(Code::kUnsupported, "transport shm: the ranks are on several hosts");
  }
  GW_ASSIGN(auto transport, open_transport(settings, one_host, rendezvous));
  CommunicatorOptions options;
  options.deadline_seconds = settings.deadline_seconds;
  options.node_of = std::move(nodes);
  if (settings.transport == Kind::kUcx || settings.transport == Kind::kTcp) {
    GW_ASSIGN(auto made, make_communicator(std::move(transport), options));
    GW_TRY(take_links(*made, settings.links, links_file(environment)));
    return made;
  }
  GW_ASSIGN(auto made, make_sharing_communicator(std::move(transport), options));
  if (settings.transport == Kind::kShm && made->shared_memory() != SharedMemory::kAllRanks) {
    return Status(Code::kUnsupported,
                  "transport shm: no shared memory (" + launch::transport_of(*made) + ")");
  }
  if (!one_host) GW_TRY(take_links(*made, settings.links, links_file(environment)));
  return made;
}

// What one rank cannot do, none does.
Result<std::unique_ptr<Member>> join_all(const Talk& talk, const Settings& own, bool room,
                                         MpiProgress* progress) {
  Offer offer;
  if (talk.rank() == 0) offer = make_offer(own);
  GW_TRY(checked(PMPI_Bcast(&offer, sizeof offer, MPI_BYTE, 0, talk.comm()), "MPI_Bcast"));
  GW_ASSIGN(const int all_have_room, talk.least(room ? 1 : 0));
  if (all_have_room == 0 || offer.settings.calls == 0) return std::make_unique<Member>();
  GW_ASSIGN(std::vector<int> nodes, mpi::nodes(talk));
  const auto store = std::make_shared<ExchangeStore>(talk.comm(), talk.rank(), talk.size());
  const Rendezvous rendezvous{.rank = talk.rank(),
                              .size = talk.size(),
                              .job = offer.job,
                              .store = store,
                              .secret = offer.secret};
  auto made = open(offer.settings, std::move(nodes), rendezvous);
  GW_TRY(store->settle());
  GW_ASSIGN(const int failed, talk.least(made.has_value() ? talk.size() : talk.rank()));
  if (failed == talk.rank()) return made.error();
  if (failed < talk.size()) return std::make_unique<Member>();
  return std::make_unique<Member>(std::move(made).value(), offer.settings.calls, progress);
}

}  // namespace

Result<std::unique_ptr<Member>> join(MPI_Comm comm, const Settings& settings, bool room,
                                     MpiProgress* progress) {
  GW_ASSIGN(const Talk talk, Talk::over(comm));
  return join_all(talk, settings, room, progress);
}

}  // namespace gradwire::mpi
