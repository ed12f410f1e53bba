#include "comm/checked/checked_transport.h"

#include <xxhash.h>

#include <bit>
#include <unordered_map>
#include <utility>

#include "base/philox.h"
#include "base/text.h"

namespace gradwire {
namespace {

static_assert(std::endian::native == std::endian::little, "the trailer is sent as it lies");

struct Trailer {
  std::uint64_t bytes = 0;
  std::uint64_t hash = 0;
};

// What a batch needs until its ticket is settled. Neither vector is resized after the post: the
// inner transport holds pointers to the trailers.
struct Pending {
  std::vector<Transfer> transfers;
  std::vector<Trailer> trailers;
};

class CheckedTransport final : public Transport {
 public:
  explicit CheckedTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}

  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  TransportCaps caps() const override {
    TransportCaps caps = inner_->caps();
    caps.cuda_memory = false;
    return caps;
  }
  TransportStats stats() const override { return inner_->stats(); }
  bool is_crowded() const override { return inner_->is_crowded(); }
  std::string describe() const override { return inner_->describe() + "; XXH3 checksums"; }

  Result<Ticket> post(std::span<const Transfer> batch) override;
  void gather(bool more) override { inner_->gather(more); }
  Result<int> progress() override { return inner_->progress(); }
  std::optional<Status> poll(Ticket ticket) override;
  std::size_t received(Ticket ticket, std::size_t index) const override {
    return inner_->received(ticket, 2 * index);
  }
  bool has_message(int peer, Tag tag, std::uint64_t any) override {
    return inner_->has_message(peer, tag, any);
  }
  void cancel(Ticket ticket) override { inner_->cancel(ticket); }
  std::optional<LostPeer> lost() const override { return inner_->lost(); }
  void announce(const LostPeer& loss) override { inner_->announce(loss); }
  Status wait(Deadline until) override { return inner_->wait(until); }
  void wake() override { inner_->wake(); }
  void tell(int peer, ConstByteSpan note) override { inner_->tell(peer, note); }
  std::vector<Note> take_notes() override { return inner_->take_notes(); }
  std::vector<LostPeer> all_lost() const override { return inner_->all_lost(); }
  bool accept_losses() override { return inner_->accept_losses(); }
  bool sever() override { return inner_->sever(); }
  Status rebuild(std::span<const int> survivors, std::uint32_t generation,
                 Deadline until) override {
    return inner_->rebuild(survivors, generation, until);
  }

 private:
  std::uint64_t hash(const Transfer& transfer, std::size_t bytes) const;
  Status verify(const Transfer& transfer, const Trailer& trailer) const;

  std::unordered_map<std::uint64_t, Pending> pending_;
  std::unique_ptr<Transport> inner_;  // ends first: it writes into what is pending
};

std::uint64_t CheckedTransport::hash(const Transfer& transfer, std::size_t bytes) const {
  const bool sends = transfer.kind == Transfer::Kind::kSend;
  const auto from = static_cast<std::uint64_t>(sends ? rank() : transfer.peer);
  const auto to = static_cast<std::uint64_t>(sends ? transfer.peer : rank());
  const std::uint64_t seed = mix64(transfer.tag.bits() ^ mix64(from << 32 | to));
  return XXH3_64bits_withSeed(transfer.data.data(), bytes, seed);
}

Result<Ticket> CheckedTransport::post(std::span<const Transfer> batch) {
  Pending pending{{batch.begin(), batch.end()}, std::vector<Trailer>(batch.size())};
  std::vector<Transfer> doubled;
  doubled.reserve(2 * batch.size());
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const Transfer& transfer = batch[i];
    if (transfer.device.space == MemorySpace::kCuda) {
      return Status(Code::kInvalidArgument,
                    "post: memory of a device (checksums are for host memory)");
    }
    Trailer& trailer = pending.trailers[i];
    if (transfer.kind == Transfer::Kind::kSend)
      trailer = {transfer.data.size(), hash(transfer, transfer.data.size())};
    Transfer second = transfer;
    second.data = std::as_writable_bytes(std::span(&trailer, 1));
    doubled.push_back(transfer);
    doubled.push_back(second);
  }
  GW_ASSIGN(const Ticket ticket, inner_->post(doubled));
  pending_.emplace(static_cast<std::uint64_t>(ticket), std::move(pending));
  return ticket;
}

std::optional<Status> CheckedTransport::poll(Ticket ticket) {
  std::optional<Status> outcome = inner_->poll(ticket);
  if (!outcome) return outcome;
  const auto found = pending_.extract(static_cast<std::uint64_t>(ticket));
  if (found.empty() || !outcome->ok()) return outcome;
  const Pending& pending = found.mapped();
  for (std::size_t i = 0; i < pending.transfers.size(); ++i) {
    if (pending.transfers[i].kind != Transfer::Kind::kRecv) continue;
    if (Status status = verify(pending.transfers[i], pending.trailers[i]); !status.ok())
      return status;
  }
  return outcome;
}

Status CheckedTransport::verify(const Transfer& transfer, const Trailer& trailer) const {
  const std::uint64_t tag = transfer.tag.bits();
  const auto wrong = [&](const std::string& what) {
    return Status(
        Code::kCorruptPayload,
        format("message from rank %d to rank %d (communicator %d, operation %d, channel %d): %s",
               transfer.peer, rank(), static_cast<int>(tag >> 28),
               static_cast<int>(tag >> 8 & 0xfffff), static_cast<int>(tag & 0xff), what.c_str()));
  };
  if (trailer.bytes > transfer.data.size()) {
    return wrong(format("its trailer says %llu bytes (expected at most %zu)",
                        static_cast<unsigned long long>(trailer.bytes), transfer.data.size()));
  }
  const std::uint64_t seen = hash(transfer, static_cast<std::size_t>(trailer.bytes));
  if (seen == trailer.hash) return {};
  return wrong(format("checksum %016llx over its %llu bytes (expected %016llx)",
                      static_cast<unsigned long long>(seen),
                      static_cast<unsigned long long>(trailer.bytes),
                      static_cast<unsigned long long>(trailer.hash)));
}

}  // namespace

std::unique_ptr<Transport> with_checksums(std::unique_ptr<Transport> inner) {
  return std::make_unique<CheckedTransport>(std::move(inner));
}

}  // namespace gradwire
