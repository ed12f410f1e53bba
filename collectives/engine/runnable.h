// What an operation does between its start and its end, in turns that never block.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives/engine/scratch_pool.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "gradwire/transport.h"

namespace gradwire {

struct Route;  // collectives/engine/executor.h

// What an operation waits for; several may be set.
struct Awaited {
  bool messages = false;  // the transport hears of them
  bool memory = false;    // other ranks of the host write there, and ring this rank's bell
  bool device = false;    // nobody rings when it has finished
  bool nothing = false;   // it has more to do, and lets other operations go before it

  // Without news of messages, too, there may be something to do.
  bool besides_messages() const { return memory || device || nothing; }
  Awaited& operator|=(const Awaited& other) {
    messages = messages || other.messages;
    memory = memory || other.memory;
    device = device || other.device;
    nothing = nothing || other.nothing;
    return *this;
  }
};

// Used by one thread at a time. The operands are lent until it is done, or cancelled and settled.
class Runnable {
 public:
  virtual ~Runnable() = default;

  // Does what can be done now; true if anything moved. After an error call cancel().
  virtual Result<bool> advance(Transport& transport, ScratchPool& pool) = 0;
  virtual bool done() const = 0;

  // Asks for an early end; settled() then says whether nobody touches the operands any more.
  virtual void cancel(Transport& transport) = 0;
  virtual bool settled(Transport& transport) = 0;
  // Instead of cancel(), of what an engine that has failed does not take: any thread, no transport.
  // What other ranks have taken from the operands so far they must not take for good: after this
  // the owner may change them.
  virtual void refuse() {}
  // Hands scratch memory back; after done() or settled().
  virtual void release(ScratchPool& pool) = 0;

  // Job ranks that it waits for now, ascending.
  virtual std::vector<int> waiting_for(const Transport& transport) const = 0;
  // A job rank that has closed without what this operation waits for; -1 where there is none.
  virtual int closed_peer() const { return -1; }
  // The ranks that take part, and the tags that are this operation's.
  virtual const Route& route() const = 0;
  // To other ranks, so far.
  virtual std::uint64_t bytes_sent() const = 0;

  // From time to time while it is under way; true if it should have a turn.
  virtual bool tend(Transport& /*transport*/, Deadline /*now*/) { return false; }

  // What it waits for now; it gets a turn when there may be news of that.
  virtual Awaited awaited() const { return {.messages = true}; }
  // Of what waits for memory: whether advance() would move now.
  virtual bool ready() const { return false; }
  // True: it is one message, which it has posted, and it waits for nothing but its ticket.
  virtual bool single() const { return false; }
};

}  // namespace gradwire
