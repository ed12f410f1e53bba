#include "apps/run/lines.h"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace gradwire {
namespace {

constexpr std::string_view kError = "gradwire: error: ";

}  // namespace

void OutputQueue::write_some() {
  // A pipe that poll(2) calls writable takes a page without blocking.
  constexpr std::size_t kStep = 4096;
  std::size_t done = 0;
  while (done < pending_.size()) {
    pollfd entry{fd_, POLLOUT, 0};
    if (::poll(&entry, 1, 0) <= 0) break;
    const std::size_t step = std::min(kStep, pending_.size() - done);
    const ssize_t count = ::write(fd_, pending_.data() + done, step);
    if (count > 0) done += static_cast<std::size_t>(count);
    if (count >= 0 || errno == EINTR) continue;
    if (errno == EAGAIN) break;
    error_ = errno;
    done = pending_.size();
  }
  pending_.erase(0, done);
}

LinePrefixer::LinePrefixer(int rank, OutputQueue& out, bool plain)
    : prefix_(plain ? "" : "rank " + std::to_string(rank) + " | "), out_(out) {}

void LinePrefixer::feed(std::string_view bytes) {
  while (!bytes.empty()) {
    const std::size_t newline = bytes.find('\n');
    const std::size_t end = std::min(newline, bytes.size());
    const std::size_t room = kMaxLine - line_.size();
    line_ += bytes.substr(0, std::min(end, room));
    if (end > room) {
      emit();
      bytes.remove_prefix(room);
      continue;
    }
    if (newline == std::string_view::npos) return;
    emit();
    bytes.remove_prefix(newline + 1);
  }
}

void LinePrefixer::finish() {
  if (!line_.empty()) emit();
}

void LinePrefixer::emit() {
  out_.append(prefix_ + line_ + "\n");
  const std::size_t at = line_.find(kError);
  if (at != std::string::npos) last_error_ = line_.substr(at + kError.size(), 500);
  line_.clear();
}

}  // namespace gradwire
