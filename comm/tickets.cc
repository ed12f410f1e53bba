#include "comm/tickets.h"

#include "base/text.h"

namespace gradwire::comm {

Status unknown_ticket(Ticket ticket) {
  return {Code::kInvalidArgument, format("no ticket %llu: unknown or already reported",
                                         static_cast<unsigned long long>(ticket))};
}

Status cancelled_by(int rank) {
  return {Code::kCancelled, format("rank %d cancelled the transfer", rank)};
}

Status withdrawn_by(int rank) {
  return {Code::kCancelled, format("rank %d withdrew its message", rank)};
}

Status message_too_long(int from, std::uint64_t tag, std::size_t bytes, std::size_t room) {
  constexpr std::uint64_t kTagBits = (std::uint64_t{1} << 40) - 1;
  return {Code::kRankMismatch,
          format("message of %zu bytes from rank %d, tag 0x%010llx: the receive takes %zu", bytes,
                 from, static_cast<unsigned long long>(tag & kTagBits), room)};
}

TransportStats sum(const TransportStats& some, const TransportStats& more) {
  return {some.bytes_sent + more.bytes_sent, some.bytes_received + more.bytes_received,
          some.messages_sent + more.messages_sent, some.messages_received + more.messages_received,
          some.bytes_staged + more.bytes_staged};
}

Status check_batch(std::span<const Transfer> batch, int size,
                   std::optional<std::string_view> no_cuda) {
  for (const Transfer& transfer : batch) {
    if (transfer.peer < 0 || transfer.peer >= size) {
      return {Code::kInvalidArgument,
              format("post: peer %d (expected 0 to %d)", transfer.peer, size - 1)};
    }
    if (transfer.device.space == MemorySpace::kCuda && no_cuda) {
      return {Code::kInvalidArgument, format("post: CUDA memory (expected host memory; %.*s)",
                                             static_cast<int>(no_cuda->size()), no_cuda->data())};
    }
  }
  return {};
}

}  // namespace gradwire::comm
