// What is announced: asked for, sent then, and how that ends where somebody gives up.
#include <algorithm>
#include <utility>

#include "comm/ucx/tickets.h"

namespace gradwire::ucx {

// The peer has a receive for it.
void Tickets::send_announced(Op& op) {
  op.announces = false;
  send_bytes(op, op.data, op.device,
             wire_tag(options_.rank, comm::announced_tag(op.descriptor.id)));
  end_loan(op);
}

// What callbacks of UCX left to be said.
void Tickets::answer() {
  for (const auto& [peer, credit] : std::exchange(credits_, {})) {
    peers_.tell(peer, {.kind = Control::Kind::kCredit, .id = credit});
  }
  for (std::size_t i = 0; i < reads_.size();) {
    Op& op = *reads_[i];
    if (op.descriptor.magic != kAnnouncedMagic) {
      ++i;
      continue;
    }
    reads_.erase(reads_.begin() + static_cast<std::ptrdiff_t>(i));
    receive_announced(op);
    release(op, kRead);
  }
}

// A receive has met an announcement: asks for the data where it has room.
void Tickets::receive_announced(Op& op) {
  const std::uint64_t id = op.descriptor.id;
  stats_.bytes_received += sizeof op.descriptor;
  const auto refuse = [&] { peers_.tell(op.peer, {.kind = Control::Kind::kTaken, .id = id}); };
  if (withdrawn_.erase({op.peer, id}) > 0) {  // that was answered
    if (op.batch->status.ok()) op.batch->status = withdrawn_by(op.peer);
    return;
  }
  if (!op.batch->status.ok()) return refuse();
  if (op.descriptor.bytes > op.data.size()) {
    too_long(op, op.descriptor.bytes);
    return refuse();
  }
  hold(op, kData);
  awaited_.push_back(&op);
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = on_data;
  params.user_data = &op;
  params.memory_type = memory_type(op.device);
  const ucs_status_ptr_t request =
      ucp_tag_recv_nbx(worker_.data(), op.data.data(), op.data.size(),
                       wire_tag(op.peer, comm::announced_tag(id)), ~std::uint64_t{0}, &params);
  if (!UCS_PTR_IS_PTR(request)) return got_announced(op, UCS_PTR_STATUS(request), 0);
  op.request = request;  // nothing can have come before kWant
  peers_.tell(op.peer, {.kind = Control::Kind::kWant, .id = id});
}

void Tickets::on_data(void* request, ucs_status_t status, const ucp_tag_recv_info_t* info,
                      void* op) {
  auto& self = *static_cast<Op*>(op);
  self.request = nullptr;
  const std::size_t bytes = info->length;
  ucp_request_free(request);
  self.owner->got_announced(self, status, bytes);
}

void Tickets::got_announced(Op& op, ucs_status_t status, std::size_t bytes) {
  std::erase(awaited_, &op);
  if (status == UCS_OK) {
    membership_.heard(op.peer);
    ++stats_.messages_received;
    stats_.bytes_received += bytes;
    op.arrived = bytes;
  } else if (status == UCS_ERR_MESSAGE_TRUNCATED) {
    too_long(op, bytes);
  } else if (op.batch->status.ok()) {
    peers_.suspect(op.peer, status);
    hold(op, kReason);
  }
  release(op, kData);
}

// The peer has been asked for it, and sends it or withdraws it: what comes is thrown away.
void Tickets::drop_announced(int peer, std::uint64_t id) {
  drops_.push_back({this, peer, id});
  Drop& drop = drops_.back();
  ucp_request_param_t params{};
  params.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA |
                        UCP_OP_ATTR_FIELD_MEMORY_TYPE | UCP_OP_ATTR_FLAG_NO_IMM_CMPL;
  params.cb.recv = on_dropped;
  params.user_data = &drop;
  params.memory_type = UCS_MEMORY_TYPE_HOST;
  const std::uint64_t tag = wire_tag(peer, comm::announced_tag(id));
  const ucs_status_ptr_t request =
      ucp_tag_recv_nbx(worker_.data(), nullptr, 0, tag, ~std::uint64_t{0}, &params);
  if (!UCS_PTR_IS_PTR(request)) return drops_.pop_back();
  if (!drops_.empty() && &drops_.back() == &drop) drop.request = request;
}

void Tickets::on_dropped(void* request, ucs_status_t, const ucp_tag_recv_info_t*, void* drop) {
  const Drop& self = *static_cast<Drop*>(drop);
  self.owner->drops_.remove_if([&](const Drop& one) { return &one == &self; });
  ucp_request_free(request);
}

// If it is being read, kTaken follows by itself.
void Tickets::on_withdrawal(int peer, std::uint64_t id) {
  const auto is_it = [&](const Op* op) { return op->peer == peer && op->descriptor.id == id; };
  const auto read = std::ranges::find_if(reads_, is_it);
  if (read != reads_.end() && (*read)->descriptor.magic != kAnnouncedMagic) return;
  const auto awaited = std::ranges::find_if(awaited_, is_it);
  const auto drop = std::ranges::find_if(
      drops_, [&](const Drop& one) { return one.peer == peer && one.id == id; });
  if (awaited != awaited_.end()) {
    (*awaited)->descriptor.id = 0;  // there is nothing to be thrown away
    fail(*(*awaited)->batch, withdrawn_by(peer));
  } else if (drop != drops_.end()) {
    ucp_request_cancel(worker_.data(), drop->request);
  } else {
    withdrawn_.emplace(peer, id);
  }
  peers_.tell(peer, {.kind = Control::Kind::kTaken, .id = id});
}

}  // namespace gradwire::ucx
