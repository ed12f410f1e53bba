#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include "base/text.h"
#include "collectives/device/nccl_backend.h"
#include "collectives/device/nccl_two_levels.h"
#include "collectives/group_communicator.h"
#include "collectives/shm/setup.h"
#include "comm/checked/checked_transport.h"
#include "comm/host.h"
#include "comm/inproc/inproc_transport.h"
#include "comm/liveness.h"
#include "comm/nccl/have_nccl.h"
#include "comm/rendezvous/agree.h"
#include "comm/tcp/tcp_transport.h"
#include "comm/ucx/ucx_transport.h"
#include "gradwire/communicator.h"

namespace gradwire {
namespace {

// Ranks that are threads, unless the caller knows better: waking one up is what a message costs.
constexpr LinkModel kThreads{
    .alpha = 5e-6, .beta = 0.1e-9, .gamma = 0.05e-9, .alpha_intra = 5e-6, .beta_intra = 0.1e-9};

constexpr int kMostReductionThreads = 1024;

Status check(const Transport* transport, const CommunicatorOptions& options) {
  if (transport == nullptr) return {Code::kInvalidArgument, "make_communicator: no transport"};
  if (!(options.deadline_seconds > 0)) {
    return {Code::kInvalidArgument, "make_communicator: deadline_seconds must be above 0"};
  }
  if (options.reduction_threads < 1 || options.reduction_threads > kMostReductionThreads) {
    return {Code::kInvalidArgument,
            format("make_communicator: reduction_threads %d (expected 1 to %d)",
                   options.reduction_threads, kMostReductionThreads)};
  }
  const std::size_t nodes = options.node_of.size();
  if (nodes == 0 || nodes == static_cast<std::size_t>(transport->size())) return {};
  return {Code::kInvalidArgument, "make_communicator: node_of has " + std::to_string(nodes) +
                                      " entries (expected 0 or " +
                                      std::to_string(transport->size()) + ")"};
}

std::shared_ptr<Workers> workers_of(const CommunicatorOptions& options) {
  return options.reduction_threads > 1 ? std::make_shared<Workers>(options.reduction_threads)
                                       : nullptr;
}

std::unique_ptr<GroupCommunicator> world_over(std::unique_ptr<Transport> transport,
                                              const CommunicatorOptions& options) {
  if (options.checksums) transport = with_checksums(std::move(transport));
  const TransportCaps caps = transport->caps();
  Segmentation segmentation;
  segmentation.segment_bytes = caps.segment_bytes;
  segmentation.least_segment_bytes = caps.least_segment_bytes;
  std::vector<int> group;
  for (int r = 0; r < transport->size(); ++r) group.push_back(r);
  auto engine = ProgressEngine::make(
      std::move(transport), EngineOptions{.flight_folder = options.flight_folder,
                                          .flight_operations = options.flight_operations,
                                          .warn = options.warn,
                                          .waiting = options.waiting,
                                          .allow_lone_survivor = options.allow_lone_survivor,
                                          .take_token = options.take_token,
                                          .workers = workers_of(options)});
  constexpr int kRootId = 0;
  (void)engine->claim_id(kRootId);
  return std::make_unique<GroupCommunicator>(std::move(engine), std::move(group), kRootId, options,
                                             segmentation);
}

Result<std::unique_ptr<Transport>> make_transport(std::string_view backend,
                                                  const Rendezvous& rendezvous, double liveness) {
  if (backend == "tcp" || (backend != "ucx" && !kHaveUcx))
    return make_tcp_transport(rendezvous, {.liveness_seconds = liveness});
  UcxOptions ucx;
  ucx.liveness_seconds = liveness;
  return make_ucx_transport(rendezvous, ucx);
}

}  // namespace

Result<CommunicatorOptions> with_nodes(const Rendezvous& rendezvous,
                                       const CommunicatorOptions& options) {
  CommunicatorOptions known = options;
  if (!options.node_of.empty()) return known;
  const std::string own = options.node.empty() ? comm::host_identity() : options.node;
  GW_ASSIGN(known.node_of, rendezvous::nodes_of_job(rendezvous, own));
  return known;
}

Result<std::unique_ptr<GroupCommunicator>> make_group_communicator(
    std::unique_ptr<Transport> transport, const CommunicatorOptions& options) {
  GW_TRY(check(transport.get(), options));
  return world_over(std::move(transport), options);
}

Result<std::unique_ptr<Communicator>> make_communicator(std::unique_ptr<Transport> transport,
                                                        const CommunicatorOptions& options) {
  GW_ASSIGN(auto world, make_group_communicator(std::move(transport), options));
  return std::unique_ptr<Communicator>(std::move(world));
}

Result<std::unique_ptr<Communicator>> make_sharing_communicator(
    std::unique_ptr<Transport> transport, const CommunicatorOptions& options) {
  GW_ASSIGN(auto world, make_group_communicator(std::move(transport), options));
  GW_ASSIGN(auto memory, share_memory(world->members(), options.shared_bytes));
  world->add_path(std::move(memory));
  return std::unique_ptr<Communicator>(std::move(world));
}

Result<std::unique_ptr<Communicator>> make_communicator(std::string_view backend,
                                                        const Rendezvous& rendezvous,
                                                        const CommunicatorOptions& options) {
  GW_TRY(rendezvous::agree(rendezvous, "checksums", options.checksums ? "on" : "off"));
  const bool nccl = is_nccl(backend);
  if (backend != "auto" && backend != "ucx" && backend != "tcp" && !nccl) {
    return Status(Code::kUnsupported,
                  "make_communicator: unknown backend '" + std::string(backend) +
                      "' (expected auto, ucx, tcp, nccl or nccl:N; for ranks as threads use "
                      "make_inproc_communicators())");
  }
  std::optional<int> ordinal;
  if (nccl) {
    GW_ASSIGN(ordinal, nccl_ordinal(backend));
    GW_TRY(check_have_nccl());
  }
  GW_ASSIGN(const CommunicatorOptions known, with_nodes(rendezvous, options));
  const double liveness = comm::liveness_for(options.deadline_seconds);
  GW_ASSIGN(auto transport, make_transport(backend, rendezvous, liveness));
  if (backend == "auto") return make_sharing_communicator(std::move(transport), known);
  GW_ASSIGN(auto world, make_group_communicator(std::move(transport), known));
  if (nccl) GW_TRY(add_nccl(*world, ordinal, rendezvous.timeout_seconds));
  return std::unique_ptr<Communicator>(std::move(world));
}

Status add_nccl(GroupCommunicator& world, std::optional<int> ordinal, double timeout_seconds) {
  GW_TRY(check_have_nccl());
  if constexpr (kHaveNccl) {
    GW_ASSIGN(auto path, make_nccl_path(world.members(), nccl_places(), ordinal, timeout_seconds));
    const Device device = path->device().value();
    const bool levels = world.members().group.options().algorithm == "two_level";
    world.add_path(std::move(path));
    if (!levels) return {};
    GW_ASSIGN(auto two_levels, make_nccl_two_levels(world.members(), device));
    world.add_path(std::move(two_levels));
  }
  return {};
}

Result<std::vector<std::unique_ptr<GroupCommunicator>>> make_inproc_groups(
    int size, const CommunicatorOptions& options) {
  GW_ASSIGN(auto transports, make_inproc_transports(size));
  CommunicatorOptions timed = options;
  if (timed.links == LinkModel{}) timed.links = kThreads;
  std::vector<std::unique_ptr<GroupCommunicator>> groups;
  for (auto& transport : transports) {
    GW_ASSIGN(auto group, make_group_communicator(std::move(transport), timed));
    groups.push_back(std::move(group));
  }
  return groups;
}

Result<std::vector<std::unique_ptr<Communicator>>> make_inproc_communicators(
    int size, const CommunicatorOptions& options) {
  GW_ASSIGN(auto groups, make_inproc_groups(size, options));
  return std::vector<std::unique_ptr<Communicator>>(std::make_move_iterator(groups.begin()),
                                                    std::make_move_iterator(groups.end()));
}

}  // namespace gradwire
