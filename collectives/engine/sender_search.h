// Finds out who has sent something: the first half of a recv from any source, and all of a probe.
//
// A rank's messages are matched by their sender, so a receiver must know whom to receive from. It
// asks its peers how many messages with the tag they have begun to send to it. Each answers at
// once, and from then on tells of every further one when it begins. As soon as a peer has sent more
// than was received, that is the sender; a recv from it follows. Questions and answers are notes
// beside the data; a question is asked again now and then, since notes may be lost. A rank
// that leaves tells its last counts to those who have not asked, who may ask too late.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "collectives/engine/executor.h"
#include "collectives/engine/pair_ledger.h"
#include "collectives/engine/runnable.h"
#include "collectives/failure/notes.h"

namespace gradwire {

// A question or an answer about messages of that tag, to be told to a peer.
EngineNote note_about(EngineNote::Kind kind, std::uint32_t communicator, std::uint32_t generation,
                      int tag, std::uint64_t count);
// Of such a note.
int tag_of(const EngineNote& note);
std::uint64_t count_of(const EngineNote& note);

class SenderSearch final : public Runnable {
 public:
  struct Wish {
    std::shared_ptr<PairLedger> ledger;
    Route route;  // the group and the communicator count
    std::uint32_t generation = 0;
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

  SenderSearch(Wish wish, Receive receive);
  // Ends when there is a sender, of whose message it takes nothing.
  SenderSearch(Wish wish, std::shared_ptr<Answer> answer);

  Result<bool> advance(Transport& transport, ScratchPool& pool) override;
  bool done() const override;
  void cancel(Transport& transport) override;
  bool settled(Transport& transport) override;
  void release(ScratchPool& pool) override;
  std::vector<int> waiting_for(const Transport& transport) const override;
  const Route& route() const override { return wish_.route; }
  std::uint64_t bytes_sent() const override { return 0; }
  bool tend(Transport& transport, Deadline now) override;
  // What follows is what the recv says, once there is one.
  int closed_peer() const override { return receiving_ ? receiving_->closed_peer() : -1; }
  bool polls() const override { return receiving_ && receiving_->polls(); }
  bool listens() const override { return !receiving_ || receiving_->listens(); }
  bool ready() const override { return !receiving_ || receiving_->ready(); }
  bool waits_for_device() const override { return receiving_ && receiving_->waits_for_device(); }

 private:
  void ask(Transport& transport, Deadline now);
  bool found();

  Wish wish_;
  Receive receive_;                 // of a recv
  std::shared_ptr<Answer> answer_;  // of a probe
  std::unique_ptr<Runnable> receiving_;
  bool asked_ = false;
  Deadline ask_again_;
  Deadline::duration pause_;
};

}  // namespace gradwire
