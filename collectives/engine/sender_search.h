// Finds out who has sent something: the first half of a recv from any source, and all of a probe.
//
// A rank's messages are matched by their sender, so a receiver must know whom to receive from. Each
// message announces itself: it comes, or a word about it, before a receive asks for it, and the
// transport knows what has come. So the sender is the first peer whose next message with the tag is
// there; a recv from it follows.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "collectives/engine/executor.h"
#include "collectives/engine/pair_ledger.h"
#include "collectives/engine/runnable.h"

namespace gradwire {

class SenderSearch final : public Runnable {
 public:
  struct Request {
    std::shared_ptr<PairLedger> ledger;
    Route route;             // the group, the communicator and the first channel count
    std::vector<int> peers;  // group ranks that may be the sender
    int tag = 0;
  };
  // What receives a peer's message.
  using Receive =
      std::function<std::unique_ptr<Runnable>(int peer, const PairLedger::Message& message)>;
  // What a probe and its caller share.
  struct Answer {
    std::atomic<int> source{-1};
    std::atomic<bool> unwanted{false};  // set by the caller: it need not go on
  };

  SenderSearch(Request request, Receive receive)
      : request_(std::move(request)), receive_(std::move(receive)) {}
  // Ends when there is a sender, of whose message it takes nothing.
  SenderSearch(Request request, std::shared_ptr<Answer> answer)
      : request_(std::move(request)), answer_(std::move(answer)) {}

  Result<bool> advance(Transport& transport, ScratchPool& pool) override;
  bool done() const override;
  void cancel(Transport& transport) override {
    if (receiving_) receiving_->cancel(transport);
  }
  bool settled(Transport& transport) override {
    return receiving_ == nullptr || receiving_->settled(transport);
  }
  void release(ScratchPool& pool) override {
    if (receiving_) receiving_->release(pool);
  }
  std::vector<int> waiting_for(const Transport& transport) const override;
  const Route& route() const override { return request_.route; }
  std::uint64_t bytes_sent() const override { return 0; }
  bool tend(Transport& transport, Deadline now) override;
  // What follows is what the recv says, once there is one.
  int closed_peer() const override { return receiving_ ? receiving_->closed_peer() : -1; }
  Awaited awaited() const override {
    return receiving_ ? receiving_->awaited() : Runnable::awaited();
  }
  bool ready() const override { return receiving_ && receiving_->ready(); }

 private:
  bool find(Transport& transport);

  Request request_;
  Receive receive_;                 // of a recv
  std::shared_ptr<Answer> answer_;  // of a probe
  std::unique_ptr<Runnable> receiving_;
};

}  // namespace gradwire
