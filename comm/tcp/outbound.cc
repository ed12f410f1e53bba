#include "comm/tcp/outbound.h"

#include <linux/sockios.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "comm/flow_window.h"

namespace gradwire::tcp {
namespace {

constexpr int kMostPieces = 128;

}  // namespace

// Behind all that are as urgent, and before the others but for what has been begun. Messages of one
// tag are of one operation, so none of them passes another.
Outbound::Item& Outbound::push(Op& op, Header header) {
  auto at = queue_.end();
  const auto first = queue_.begin() + (written_ > 0 ? 1 : 0);
  while (at > first && std::prev(at)->queue > op.queue) --at;
  return *queue_.insert(at, {.header = header,
                             .data = op.data.data(),
                             .bytes = op.data.size(),
                             .op = &op,
                             .announces = false,
                             .queue = op.queue,
                             .serial = op.batch->number,
                             .copy = {}});
}

void Outbound::push(Op& op) { (void)push(op, {prefix_ | op.tag, op.data.size()}); }

void Outbound::push_announced(Op& op) {
  (void)push(op, {prefix_ | comm::announced_tag(op.id), op.data.size()});
}

void Outbound::announce(Op& op) {
  Item& item = push(op, {prefix_ | op.tag, op.data.size() | kAnnounces});
  item.announces = true;
  item.data = reinterpret_cast<const std::byte*>(&op.id);
  item.bytes = sizeof op.id;
}

// What is next to be written, as pieces; returns their bytes.
std::size_t Outbound::gather(std::size_t most, bool hold, iovec* pieces, int& count) const {
  std::size_t skip = written_;
  std::size_t total = 0;
  const auto add = [&](const void* base, std::size_t bytes) {
    if (skip >= bytes) {
      skip -= bytes;
      return;
    }
    const std::size_t some = std::min(bytes - skip, most - total);
    pieces[count++] = {const_cast<std::byte*>(static_cast<const std::byte*>(base) + skip), some};
    total += some;
    skip = 0;
  };
  for (const Item& item : queue_) {
    if (count + 2 > kMostPieces || total >= most) break;
    if (hold && is_large(item) && !is_begun(item)) break;
    add(&item.header, sizeof item.header);
    if (total < most) add(item.data, item.bytes);
  }
  return total;
}

std::uint64_t Outbound::next_large() const {
  const auto found = std::ranges::find_if(
      queue_, [&](const Item& item) { return is_large(item) && !is_begun(item); });
  return found == queue_.end() ? 0 : found->serial;
}

rendezvous::Moved Outbound::write(std::size_t most, std::vector<Op*>& done, bool hold) {
  using Kind = rendezvous::Moved::Kind;
  std::size_t total = 0;
  held_ = false;
  while (runnable() && total < most) {
    iovec pieces[kMostPieces];
    int count = 0;
    const std::size_t wanted = gather(most - total, hold, pieces, count);
    held_ = wanted == 0;
    if (held_) break;
    msghdr message{};
    message.msg_iov = pieces;
    message.msg_iovlen = static_cast<std::size_t>(count);
    const ssize_t sent = ::sendmsg(fd_->get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno != EAGAIN && errno != EWOULDBLOCK) return {Kind::kClosed, total, errno};
      blocked_ = true;
      break;
    }
    const auto bytes = static_cast<std::size_t>(sent);
    total += bytes;
    advance(bytes, done);
    if (bytes < wanted) blocked_ = true;  // an edge follows when there is room again
  }
  return {total > 0 ? Kind::kSome : Kind::kWait, total, 0};
}

void Outbound::advance(std::size_t bytes, std::vector<Op*>& done) {
  written_ += bytes;
  while (!queue_.empty()) {
    const Item& first = queue_.front();
    if (written_ > 0 && is_large(first)) last_large_ = first.serial;
    const std::size_t whole = sizeof(Header) + first.bytes;
    if (written_ < whole) return;
    written_ -= whole;
    if (first.op != nullptr && !first.announces) done.push_back(first.op);
    queue_.pop_front();
  }
}

bool Outbound::withdraw(Op& op) {
  const auto found = std::ranges::find(queue_, &op, &Item::op);
  if (found == queue_.end()) return false;
  if (found != queue_.begin() || written_ == 0) {
    queue_.erase(found);
    return true;
  }
  found->op = nullptr;
  found->copy.assign(found->data, found->data + found->bytes);
  found->data = found->copy.data();
  return false;
}

void Outbound::shut() {
  if (is_open()) (void)::shutdown(fd_->get(), SHUT_WR);
}

std::size_t Outbound::undelivered() const {
  int bytes = 0;
  const bool known = is_open() && ::ioctl(fd_->get(), SIOCOUTQ, &bytes) == 0;
  return known && bytes > 0 ? static_cast<std::size_t>(bytes) : 0;
}

void Outbound::close() {
  fd_.reset();
  queue_.clear();
  written_ = 0;
}

}  // namespace gradwire::tcp
