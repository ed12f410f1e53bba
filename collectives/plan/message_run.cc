#include "collectives/plan/message_run.h"

#include <vector>

#include "collectives/engine/device_fill.h"
#include "collectives/engine/staged_execution.h"
#include "collectives/schedules/schedules.h"

namespace gradwire {
namespace {

// The operation part of a message's tag: the number, and 6 bits of what ranks must agree on beside
// dtype and sizes. Messages of ranks that disagree never meet, so they time out, and the failure
// report says why, instead of a sum of maxima. Two that differ in one of the three, roots by less
// than 64, never have the same bits. Numbers wrap after 2^14 operations.
std::uint64_t tag_number(const MessageCall& call, std::uint64_t number) {
  if (call.pair()) return pair_operation(call.tag, number);
  const auto bits = 19 * static_cast<std::uint64_t>(call.kind) +
                    7 * static_cast<std::uint64_t>(call.operands.op) +
                    static_cast<std::uint64_t>(call.signature.root + 1);
  return (bits & 0x3f) << 14 | (number & kNumberMask);
}

Route route_of(const Group& group, const MessageCall& call, const PairLedger::Message& message) {
  return {.group = group.job_ranks(),
          .communicator = static_cast<std::uint32_t>(group.id()),
          .operation = tag_number(call, message.number),
          .first_channel = first_channel(call.pair(), call.dtype),
          .turn = message.turn};
}

}  // namespace

SenderSearch::Wish wish_of(const Group& group, int peer, int tag) {
  SenderSearch::Wish wish{
      .ledger = group.ledger(), .route = group.route_of(0), .peers = {}, .tag = tag};
  wish.route.first_channel = first_channel(true, DType{});
  for (int r = 0; r < group.size(); ++r) {
    if (r != group.rank() && (peer == kAnySource || peer == r)) wish.peers.push_back(r);
  }
  return wish;
}

// Its number among those of its kind tells its messages from others'.
Status MessageRun::start(const std::shared_ptr<WorkState>& work, std::optional<Deadline> deadline) {
  auto operation = std::make_unique<Operation>(Operation{.signature = call_.signature,
                                                         .algorithm = call_.plan.algorithm,
                                                         .collective = !call_.pair(),
                                                         .queue = call_.operands.queue,
                                                         .work = work,
                                                         .bytes_sent = group().message_bytes(),
                                                         .after = call_.operated.after,
                                                         .own = call_.operated.lent});
  if (call_.kind == OpKind::kRecv && call_.peer == kAnySource) {
    operation->execution = search(work);
    return group().submit(std::move(operation), deadline);
  }
  PairLedger::Message message;
  if (!call_.pair()) {
    message.number = group().take_number();
  } else if (call_.kind == OpKind::kRecv) {
    message = group().ledger()->take_recv(call_.peer, call_.tag);
  } else {
    message = group().ledger()->take_send(call_.peer, call_.tag);
  }
  operation->number = message.number;
  if (call_.pair() && !deadline) operation->peer = group().job_rank(call_.peer);
  operation->execution = run_on(route_of(group(), call_, message));
  return group().submit(std::move(operation), deadline);
}

std::unique_ptr<Runnable> MessageRun::run_on(Route route) const {
  if (call_.fill.empty()) {
    return std::make_unique<Execution>(call_.plan.layout, call_.operands, std::move(route));
  }
  StagedExecution::Stages stages;
  stages.push_back(std::make_unique<Execution>(call_.plan.layout, call_.operands, route));
  stages.push_back(std::make_unique<DeviceFill>(route, call_.operands.staging->lane,
                                                call_.operands.op, call_.fill));
  std::vector<StagedExecution::Stages> piece;
  piece.push_back(std::move(stages));
  return std::make_unique<StagedExecution>(route, std::move(piece), 1);
}

// What it makes outlives the communicator, if need be.
std::unique_ptr<Runnable> MessageRun::search(const std::shared_ptr<WorkState>& work) const {
  SenderSearch::Wish wish = wish_of(group(), kAnySource, call_.tag);
  Segmentation segmentation = group().segmentation();
  segmentation.ends_short = true;
  auto receive = [call = call_, route = wish.route, segmentation, rank = group().rank(), work](
                     int peer, const PairLedger::Message& message) -> std::unique_ptr<Runnable> {
    work->set_source(peer);
    Route to = route;
    to.operation = tag_number(call, message.number);
    to.turn = message.turn;
    to.first_channel = first_channel(true, call.dtype);
    const auto size = static_cast<int>(route.group->size());
    const StagedTensors staged{.in = false,
                               .out = call.operands.staging && !call.operands.staging->out.empty()};
    auto layout =
        std::make_shared<const Layout>(point_to_point_recv(rank, size, peer, call.signature.elems),
                                       call.dtype, segmentation, staged);
    return std::make_unique<Execution>(std::move(layout), call.operands, std::move(to));
  };
  return std::make_unique<SenderSearch>(std::move(wish), std::move(receive));
}

}  // namespace gradwire
