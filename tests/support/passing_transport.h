// A transport that passes every call on to another one: a test overrides what it wants to change.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/transport.h"

namespace gradwire {

// As `inner`, which it owns.
class PassingTransport : public Transport {
 public:
  explicit PassingTransport(std::unique_ptr<Transport> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  TransportCaps caps() const override { return inner_->caps(); }
  TransportStats stats() const override { return inner_->stats(); }
  std::string describe() const override { return inner_->describe(); }
  Result<Ticket> post(std::span<const Transfer> batch) override { return inner_->post(batch); }
  Result<int> progress() override { return inner_->progress(); }
  std::optional<Status> poll(Ticket ticket) override { return inner_->poll(ticket); }
  std::size_t received(Ticket ticket, std::size_t index) const override {
    return inner_->received(ticket, index);
  }
  void cancel(Ticket ticket) override { inner_->cancel(ticket); }
  std::optional<LostPeer> lost() const override { return inner_->lost(); }
  void announce(const LostPeer& loss) override { inner_->announce(loss); }
  Status wait(Deadline until) override { return inner_->wait(until); }
  void wake() override { inner_->wake(); }

 protected:
  std::unique_ptr<Transport> inner_;
};

}  // namespace gradwire
