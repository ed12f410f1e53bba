#include "comm/inproc/inproc_transport.h"

#include <utility>

#include "base/text.h"
#include "comm/inproc/hub.h"
#include "comm/members.h"
#include "comm/tickets.h"

namespace gradwire {
namespace {

class InprocTransport final : public Transport {
 public:
  InprocTransport(std::shared_ptr<inproc::Hub> hub, int rank)
      : hub_(std::move(hub)), rank_(rank), left_(hub_->size()) {}
  ~InprocTransport() override { hub_->close(rank_); }

  int rank() const override { return rank_; }
  int size() const override { return hub_->size(); }
  TransportCaps caps() const override { return {.notes = true}; }
  TransportStats stats() const override { return hub_->stats(rank_); }
  // All are threads of this process.
  bool is_crowded() const override {
    const std::vector all(static_cast<std::size_t>(left_), shm::usable_processors());
    return comm::is_crowded(all);
  }
  std::string describe() const override {
    return format("inproc: %d ranks as threads, one copy from sender to receiver", size());
  }

  Result<Ticket> post(std::span<const Transfer> batch, const Stream&) override {
    GW_TRY(comm::check_batch(batch, size(), "the in-process transport takes no other"));
    return hub_->post(rank_, batch);
  }
  Result<int> progress() override { return hub_->progress(rank_); }
  std::optional<Status> poll(Ticket ticket) override { return hub_->poll(rank_, ticket); }
  std::size_t received(Ticket ticket, std::size_t index) const override {
    return hub_->received(rank_, ticket, index);
  }
  bool has_message(int peer, Tag tag, std::uint64_t any) override {
    return hub_->has_message(rank_, peer, tag.bits(), any);
  }
  void cancel(Ticket ticket) override { hub_->cancel(rank_, ticket); }
  std::optional<LostPeer> lost() const override { return hub_->lost(rank_); }
  void announce(const LostPeer& culprit) override { hub_->announce(rank_, culprit); }
  Status wait(Deadline until) override {
    hub_->wait(rank_, until);
    return {};
  }
  void wake() override { hub_->wake(rank_); }
  void tell(int peer, ConstByteSpan note) override {
    if (peer >= 0 && peer < size() && note.size() <= kMostNoteBytes) hub_->tell(rank_, peer, note);
  }
  std::vector<Note> take_notes() override { return hub_->take_notes(rank_); }
  std::vector<LostPeer> all_lost() const override { return hub_->all_lost(rank_); }
  bool accept_losses() override {
    hub_->accept_losses(rank_);
    return true;
  }
  bool sever() override {
    hub_->sever(rank_);
    return true;
  }
  Status rebuild(std::span<const int> survivors, std::uint32_t generation, Deadline) override {
    GW_TRY(hub_->rebuild(rank_, survivors, generation));
    left_ = static_cast<int>(survivors.size());
    return {};
  }

  inproc::Hub& hub() { return *hub_; }

 private:
  std::shared_ptr<inproc::Hub> hub_;
  int rank_;
  int left_;  // ranks, since the last rebuild
};

}  // namespace

Result<std::vector<std::unique_ptr<Transport>>> make_inproc_transports(
    int size, const InprocOptions& options) {
  if (size < 1 || size > 65536) {
    return Status(Code::kInvalidArgument, format("inproc: %d ranks (expected 1 to 65536)", size));
  }
  auto hub = std::make_shared<inproc::Hub>(size, options.silence_seconds, options.clock);
  std::vector<std::unique_ptr<Transport>> transports;
  for (int rank = 0; rank < size; ++rank) {
    transports.push_back(std::make_unique<InprocTransport>(hub, rank));
  }
  return transports;
}

void kill_rank(Transport& transport) {
  if (auto* self = dynamic_cast<InprocTransport*>(&transport)) self->hub().kill(self->rank());
}

void stop_rank(Transport& transport) {
  if (auto* self = dynamic_cast<InprocTransport*>(&transport)) self->hub().stop(self->rank());
}

}  // namespace gradwire
