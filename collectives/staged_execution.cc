#include "collectives/staged_execution.h"

namespace gradwire {

Result<bool> StagedExecution::advance(Transport& transport, ScratchPool& pool) {
  bool moved = false;
  while (!done()) {
    GW_ASSIGN(const bool stage_moved, stages_[at_]->advance(transport, pool));
    moved = moved || stage_moved;
    if (!stages_[at_]->done()) {
      if (stage_moved && stages_[at_]->polls()) continue;  // one step of several
      return moved;
    }
    ++at_;
    moved = true;
  }
  return moved;
}

void StagedExecution::cancel(Transport& transport) {
  for (const auto& stage : stages_) stage->cancel(transport);
}

bool StagedExecution::settled(Transport& transport) {
  bool all = true;
  for (const auto& stage : stages_) all = stage->settled(transport) && all;
  return all;
}

void StagedExecution::release(ScratchPool& pool) {
  for (const auto& stage : stages_) stage->release(pool);
}

std::vector<int> StagedExecution::waiting_for(const Transport& transport) const {
  return done() ? std::vector<int>() : stages_[at_]->waiting_for(transport);
}

std::uint64_t StagedExecution::bytes_sent() const {
  std::uint64_t bytes = 0;
  for (const auto& stage : stages_) bytes += stage->bytes_sent();
  return bytes;
}

}  // namespace gradwire
