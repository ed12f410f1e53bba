#include "comm/ucx/ucx_transport.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "comm/descriptors.h"
#include "comm/members.h"
#include "comm/membership.h"
#include "comm/shm/peer_memory.h"
#include "comm/ucx/lanes.h"
#include "comm/ucx/peers.h"
#include "comm/ucx/settings.h"
#include "comm/ucx/tickets.h"
#include "comm/ucx/worker.h"

namespace gradwire {
namespace {

using ucx::Control;

// A goodbye waits so long for peers that do not answer.
constexpr double kLeaveSeconds = 0.5;
constexpr double kSettleSeconds = 0.3;
// Whether a device has copied is looked at this often.
constexpr std::chrono::microseconds kLook{200};

class UcxTransport final : public comm::TicketTransport<ucx::Tickets> {
 public:
  UcxTransport(const Rendezvous& rendezvous, const UcxOptions& options)
      : TicketTransport(rendezvous), options_(options) {}
  ~UcxTransport() override;
  Status start();

  TransportCaps caps() const override {
    return {.cuda_memory = worker_->cuda().direct, .notes = true};
  }
  TransportStats stats() const override { return comm::sum(tickets_->stats(), peers_->stats()); }

  Result<Ticket> post(std::span<const Transfer> batch) override;
  Result<int> progress() override;
  bool has_message(int peer, Tag tag, std::uint64_t any) override {
    return tickets_->has_message(peer, tag.bits(), any);
  }
  Status wait(Deadline until) override;
  void wake() override { worker_->wake(); }
  Status rebuild(std::span<const int> survivors, std::uint32_t generation, Deadline until) override;

 private:
  std::string describe_now() const;
  void warn_of_detours() const;
  bool advance();

  UcxOptions options_;
  shm::OwnNonce nonce_;
  std::unique_ptr<ucx::Worker> worker_;
  std::unique_ptr<ucx::Peers> peers_;
};

Status UcxTransport::start() {
  GW_TRY(
      comm::check_job("ucx", rendezvous_, options_.heartbeat_seconds, options_.liveness_seconds));
  ucx::release_signals();
  const Deadline deadline = deadline_in(rendezvous_.timeout_seconds);
  GW_ASSIGN(worker_, ucx::Worker::make({options_.interfaces}, deadline));
  for (const ucx::Setting& setting : worker_->settings()) {
    if (setting.variable == "UCX_TLS")
      options_.log(LogLevel::kInfo, "ucx: without posix: " + setting.why);
  }
  GW_ASSIGN(const std::string data, worker_->data_address());
  GW_ASSIGN(const std::string control, worker_->control_address());
  GW_ASSIGN(
      comm::Members members,
      comm::Members::meet(rendezvous_, "ucx", ucx::to_text({data, control, nonce_.process()})));
  peers_ = std::make_unique<ucx::Peers>(
      *worker_, std::move(members),
      comm::MembershipOptions{comm::duration_of(options_.heartbeat_seconds),
                              comm::duration_of(options_.liveness_seconds), options_.log});
  tickets_ = std::make_unique<ucx::Tickets>(*worker_, *peers_, options_.single_copy_bytes);
  peers_->membership().watch_also([this] { return tickets_->awaited(); });
  const bool late = options_.connects_late.value_or(!ucx::breaks_on_late_connections());
  GW_TRY(peers_->connect(late, deadline, rendezvous_.timeout_seconds));
  description_ = describe_now();
  options_.log(LogLevel::kInfo, description_);
  warn_of_detours();
  return {};
}

UcxTransport::~UcxTransport() {
  if (tickets_) {
    tickets_->cancel_all();
    const Deadline until = deadline_in(kSettleSeconds);
    while (!tickets_->awaited().empty() && std::chrono::steady_clock::now() < until) {
      if (!advance() &&
          !worker_->sleep(std::min(until, deadline_in(0.01)), tickets_->sending() > 0).ok())
        break;
    }
  }
  if (peers_) {
    peers_->leave(deadline_in(kLeaveSeconds));
    peers_->close();
    (void)worker_->progress();
  }
  worker_.reset();  // first: what it still completes refers to tickets and peers
}

// Silently taking the network between processes of one host is what UCX does when it is not told
// otherwise; it was told, unless the user wants no shared memory.
void UcxTransport::warn_of_detours() const {
  const bool told = std::ranges::any_of(worker_->settings(), [](const ucx::Setting& setting) {
    return setting.variable == "UCX_MM_ERROR_HANDLING" &&
           setting.source == ucx::Setting::Source::kGradwire;
  });
  for (int peer = 0; told && peer < size(); ++peer) {
    if (peer == rank() || peers_->membership().members().at(peer).pid == 0) continue;
    const ucp_ep_h endpoint = peers_->data_endpoint(peer);
    const auto lanes = endpoint == nullptr ? std::vector<ucx::Lane>() : ucx::lanes_of(endpoint);
    if (!ucx::network_only(lanes)) continue;
    options_.log(LogLevel::kWarn,
                 format("ucx: rank %d is on this host, but reached over %s, not shared memory",
                        peer, ucx::text_of(lanes).c_str()));
  }
}

std::string UcxTransport::describe_now() const {
  int readers = 0;
  for (int peer = 0; peer < size(); ++peer) readers += peers_->reads_us(peer) ? 1 : 0;
  std::string text = format("ucx %s: rank %d of %d; %s", ucx::library_version().c_str(), rank(),
                            size(), peers_->describe_lanes().c_str());
  if (readers > 0 && options_.single_copy_bytes != SIZE_MAX) {
    text += format("; one copy (process_vm_readv) above %zu bytes to %d of them",
                   options_.single_copy_bytes, readers);
  }
  if (worker_->cuda().direct) text += "; CUDA memory as it is";
  return text;
}

Result<Ticket> UcxTransport::post(std::span<const Transfer> batch) {
  const ucx::CudaRoute& cuda = worker_->cuda();
  const std::string_view why = cuda.why;
  GW_TRY(comm::check_batch(batch, size(), cuda.direct ? std::nullopt : std::optional(why)));
  return tickets_->post(batch);
}

// One round of everything; false when there was nothing to do.
bool UcxTransport::advance() {
  bool busy = worker_->progress();
  if (tickets_->awaits_answers()) busy = worker_->progress_control() || busy;
  const bool changed = peers_->tend();
  for (const Control& message : peers_->take_messages()) {
    tickets_->on_message(message);
    busy = true;
  }
  if (changed) tickets_->on_losses();
  return tickets_->progress() || busy;
}

Result<int> UcxTransport::progress() {
  (void)advance();
  return tickets_->take_settled();
}

Status UcxTransport::wait(Deadline until) {
  if (advance() || tickets_->any_settled() || tickets_->reading() ||
      peers_->membership().has_notes()) {
    return {};
  }
  if (tickets_->copying()) until = std::min(until, std::chrono::steady_clock::now() + kLook);
  GW_TRY(worker_->sleep(until, tickets_->sending() + peers_->sending() > 0));
  (void)advance();
  return {};
}

// With a data worker of its own a generation meets nothing of an earlier one.
Status UcxTransport::rebuild(std::span<const int> survivors, std::uint32_t generation,
                             Deadline until) {
  tickets_->sever();
  GW_TRY(peers_->membership().rebuild(survivors, generation));
  GW_TRY(peers_->reconnect(until));
  tickets_->restart();
  description_ = describe_now();
  return {};
}

}  // namespace

extern const bool kHaveUcx = true;

Result<std::unique_ptr<Transport>> make_ucx_transport(const Rendezvous& rendezvous,
                                                      const UcxOptions& options) {
  GW_TRY(ucx::load());
  // What UCX will need depends on its transports. The least is its own and a connection to each
  // other rank, for control messages: without that it dies in many ways. Over TCP it is the most.
  constexpr std::size_t kLeastOfItsOwn = 32;
  constexpr std::size_t kMostOfItsOwn = 64;
  constexpr std::size_t kMostForEachPeer = 4;
  const auto others = static_cast<std::size_t>(std::max(rendezvous.size - 1, 0));
  const std::string what = format("ucx: connections to %zu ranks", others);
  GW_TRY(comm::make_room_for_descriptors(kLeastOfItsOwn + others, what));
  const Status room =
      comm::make_room_for_descriptors(kMostOfItsOwn + kMostForEachPeer * others, what);
  auto transport = std::make_unique<UcxTransport>(rendezvous, options);
  if (const Status started = transport->start(); !started.ok()) {
    if (room.ok()) return started;
    return Status(room.code(), std::string(room.message()) + "; " + std::string(started.message()));
  }
  return std::unique_ptr<Transport>(std::move(transport));
}

}  // namespace gradwire
