#include "collectives/plan/group.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "collectives/schedules/schedules.h"

namespace gradwire {
namespace {

constexpr int kMostSlots = 15;

std::vector<int> nodes_among(const std::vector<int>& job_ranks, const std::vector<int>& node_of) {
  if (node_of.empty()) return {};
  std::vector<int> keys;
  for (const int r : job_ranks) keys.push_back(node_of[static_cast<std::size_t>(r)]);
  return nodes_of(keys).node_of;
}

}  // namespace

std::uint32_t first_channel(bool point_to_point, DType dtype) {
  return (point_to_point ? 128u : 0u) | (static_cast<std::uint32_t>(dtype) << 4);
}

Group::Group(std::shared_ptr<ProgressEngine> engine, std::vector<int> job_ranks, int id,
             CommunicatorOptions options, Segmentation segmentation, bool fails_alone)
    : engine_(std::move(engine)),
      job_ranks_(std::make_shared<const std::vector<int>>(std::move(job_ranks))),
      rank_(
          static_cast<int>(std::ranges::find(*job_ranks_, engine_->rank()) - job_ranks_->begin())),
      id_(id),
      options_(std::move(options)),
      segmentation_(segmentation),
      nodes_(nodes_among(*job_ranks_, options_.node_of)),
      ledger_(std::make_shared<PairLedger>()),
      fate_(std::make_shared<GroupFate>(job_ranks_, fails_alone)) {
  segmentation_.slots = std::clamp(segmentation_.slots, 1, kMostSlots);
  engine_->keep_fate(static_cast<std::uint32_t>(id_), fate_);
}

Group::~Group() { engine_->release_id(id_); }

std::vector<int> Group::job_ranks_of(std::span<const int> ranks) const {
  std::vector<int> jobs;
  for (const int r : ranks) jobs.push_back(job_rank(r));
  return jobs;
}

Deadline Group::end_of(const std::optional<Deadline>& deadline) const {
  return deadline.value_or(deadline_in(options_.deadline_seconds));
}

std::uint64_t Group::take_number() {
  engine_->note_begun(static_cast<std::uint32_t>(id_), next_number_);
  return next_number_++;
}

Route Group::route_of(std::uint64_t number) const {
  return {job_ranks_, static_cast<std::uint32_t>(id_), number, 0};
}

Route Group::route_among(std::shared_ptr<const std::vector<int>> job_ranks, std::uint64_t number,
                         DType dtype) const {
  return {std::move(job_ranks), static_cast<std::uint32_t>(id_), number & kNumberMask,
          first_channel(false, dtype)};
}

SenderSearch::Request Group::search_for(int peer, int tag) const {
  SenderSearch::Request request{.ledger = ledger_, .route = route_of(0), .peers = {}, .tag = tag};
  request.route.first_channel = first_channel(true, DType{});
  for (int r = 0; r < size(); ++r) {
    if (r != rank_ && (peer == kAnySource || peer == r)) request.peers.push_back(r);
  }
  return request;
}

}  // namespace gradwire
