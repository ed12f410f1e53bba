#include "collectives/engine/staged_execution.h"

#include <algorithm>
#include <utility>

namespace gradwire {

StagedExecution::StagedExecution(Route route, std::vector<Stages> pieces, std::size_t in_flight)
    : route_(std::move(route)), in_flight_(in_flight) {
  for (Stages& stages : pieces) {
    if (!stages.empty()) pieces_.push_back({.stages = std::move(stages)});
  }
}

std::size_t StagedExecution::end_of_window() const {
  return std::min(first_ + in_flight_, pieces_.size());
}

template <typename Property>
bool StagedExecution::any_stage(const Property& is) const {
  for (std::size_t i = first_; i < end_of_window(); ++i) {
    if (!pieces_[i].done() && is(pieces_[i].stage())) return true;
  }
  return false;
}

// Pieces that others make room for begin in this turn: the next comes when memory or a message
// moves what has begun, and all that had may have ended now.
Result<bool> StagedExecution::advance(Transport& transport, ScratchPool& pool) {
  bool moved = false;
  for (std::size_t i = first_; i < end_of_window(); ++i) {
    const bool alone = end_of_window() - first_ == 1;
    if (pieces_[i].done()) continue;
    GW_ASSIGN(const bool piece_moved, advance(pieces_[i], alone, transport, pool));
    moved = moved || piece_moved;
    while (!done() && pieces_[first_].done()) ++first_;
  }
  return moved;
}

// alone: no other piece's messages wait for this one's work in memory.
Result<bool> StagedExecution::advance(Piece& piece, bool alone, Transport& transport,
                                      ScratchPool& pool) {
  bool moved = false;
  while (!piece.done()) {
    Runnable& stage = piece.stage();
    GW_ASSIGN(const bool stage_moved, stage.advance(transport, pool));
    moved = moved || stage_moved;
    if (!stage.done()) {
      if (alone && stage_moved && stage.awaited().memory) continue;  // one step of several
      return moved;
    }
    bytes_sent_ += stage.bytes_sent();
    stage.release(pool);
    piece.stages[piece.at++].reset();
    moved = true;
  }
  return moved;
}

template <typename Act>
void StagedExecution::each_left(const Act& act) const {
  for (const Piece& piece : pieces_) {
    for (std::size_t i = piece.at; i < piece.stages.size(); ++i) act(*piece.stages[i]);
  }
}

void StagedExecution::cancel(Transport& transport) {
  each_left([&](Runnable& stage) { stage.cancel(transport); });
}

void StagedExecution::refuse() {
  each_left([](Runnable& stage) { stage.refuse(); });
}

bool StagedExecution::settled(Transport& transport) {
  bool all = true;
  each_left([&](Runnable& stage) { all = stage.settled(transport) && all; });
  return all;
}

void StagedExecution::release(ScratchPool& pool) {
  each_left([&](Runnable& stage) { stage.release(pool); });
}

// Of the piece that has to be done first.
std::vector<int> StagedExecution::waiting_for(const Transport& transport) const {
  return done() ? std::vector<int>() : pieces_[first_].stage().waiting_for(transport);
}

int StagedExecution::closed_peer() const {
  int found = -1;
  any_stage([&](const Runnable& stage) { return (found = stage.closed_peer()) >= 0; });
  return found;
}

Awaited StagedExecution::awaited() const {
  Awaited all;
  any_stage([&](const Runnable& stage) {
    all |= stage.awaited();
    return false;
  });
  return all;
}

bool StagedExecution::ready() const {
  return any_stage([](const Runnable& stage) { return stage.ready(); });
}

std::uint64_t StagedExecution::bytes_sent() const {
  std::uint64_t bytes = bytes_sent_;
  for (std::size_t i = first_; i < end_of_window(); ++i) {
    if (!pieces_[i].done()) bytes += pieces_[i].stage().bytes_sent();
  }
  return bytes;
}

}  // namespace gradwire
