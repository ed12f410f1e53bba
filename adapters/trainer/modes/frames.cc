#include "adapters/trainer/modes/frames.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <string>
#include <utility>

#include "base/elements.h"
#include "base/text.h"

namespace gradwire {
namespace {

static_assert(std::endian::native == std::endian::little, "headers are sent as they lie in memory");

ConstTensorView bytes_view(ConstByteSpan bytes) {
  return {bytes.data(), Shape::vector(static_cast<std::int64_t>(bytes.size())), DType::kU8};
}
TensorView bytes_view(ByteSpan bytes) {
  return {bytes.data(), Shape::vector(static_cast<std::int64_t>(bytes.size())), DType::kU8};
}
template <typename Header>
auto header_bytes(Header& header) {
  return std::as_bytes(std::span(&header, 1));
}

}  // namespace

OpOptions FrameLink::timeout() const {
  OpOptions how;
  how.deadline = deadline_in(deadline_seconds_);
  return how;
}

Result<Work> FrameLink::start_send(FrameHeader& header, ConstByteSpan body) {
  header.bytes = static_cast<std::int64_t>(body.size());
  const int to = 1 - pair_->rank();
  const std::array<OpCall, 2> calls{OpCall::send(bytes_view(header_bytes(header)), to),
                                    OpCall::send(bytes_view(body), to)};
  return pair_->start_all(std::span(calls).first(body.empty() ? 1 : 2), timeout());
}

Status FrameLink::send(FrameHeader header, ConstByteSpan body) {
  GW_ASSIGN(Work work, start_send(header, body));
  return work.wait();
}

Result<FrameHeader> FrameLink::recv(std::span<const FrameKind> kinds, std::size_t most_bytes,
                                    std::vector<std::byte>& body) {
  FrameHeader header;
  const int from = 1 - pair_->rank();
  const auto own = std::as_writable_bytes(std::span(&header, 1));
  {
    GW_ASSIGN(Work work, pair_->recv(bytes_view(ByteSpan(own)), from, timeout()));
    GW_TRY(work.wait());
  }
  const auto is_kind = [&](FrameKind kind) {
    return header.kind == static_cast<std::int64_t>(kind);
  };
  if (!std::ranges::any_of(kinds, is_kind) || header.step < 0 || header.count < 0 ||
      header.bytes < 0 || header.bytes > static_cast<std::int64_t>(most_bytes)) {
    return Status(Code::kCorruptPayload,
                  format("a frame of kind %lld, step %lld, %lld steps and %lld bytes from rank %d "
                         "(expected at most %zu bytes)",
                         static_cast<long long>(header.kind), static_cast<long long>(header.step),
                         static_cast<long long>(header.count), static_cast<long long>(header.bytes),
                         peer(), most_bytes));
  }
  body.resize(static_cast<std::size_t>(header.bytes));
  if (body.empty()) return header;
  GW_ASSIGN(Work work, pair_->recv(bytes_view(ByteSpan(body)), from, timeout()));
  GW_TRY(work.wait());
  return header;
}

void FrameLink::abort(const Status& reason) {
  if (pair_->status().ok()) pair_->abort(reason.message());
}

// Everybody is in one pair of a split at most: in split k server s meets worker (s + k) mod n, n
// being the larger number of the two.
Result<std::vector<FrameLink>> link_up(Communicator& world, int servers, double deadline_seconds) {
  const int workers = world.size() - servers;
  const int n = std::max(servers, workers);
  const bool serves = world.rank() < servers;
  const int own = serves ? world.rank() : world.rank() - servers;
  std::vector<std::unique_ptr<Communicator>> pairs(
      static_cast<std::size_t>(serves ? workers : servers));
  for (int k = 0; k < n; ++k) {
    const int other = serves ? (own + k) % n : (own - k + n) % n;
    const bool meets = other < (serves ? workers : servers);
    const int color = serves ? own : other;
    GW_ASSIGN(auto pair, world.split(meets ? color : -1, world.rank()));
    if (meets) pairs[static_cast<std::size_t>(other)] = std::move(pair);
  }
  std::vector<FrameLink> links;
  for (auto& pair : pairs) links.emplace_back(std::move(pair), deadline_seconds);
  return links;
}

template <typename T>
bool take_front(ConstByteSpan& body, std::span<T> values) {
  if (body.size() < values.size_bytes()) return false;
  if (!values.empty()) std::memcpy(values.data(), body.data(), values.size_bytes());
  body = body.subspan(values.size_bytes());
  return true;
}
template bool take_front(ConstByteSpan& body, std::span<std::int64_t> values);
template bool take_front(ConstByteSpan& body, std::span<double> values);
template bool take_front(ConstByteSpan& body, std::span<float> values);

template <typename T>
void append(std::vector<std::byte>& body, std::span<const T> values) {
  const auto bytes = std::as_bytes(values);
  body.insert(body.end(), bytes.begin(), bytes.end());
}
template void append(std::vector<std::byte>& body, std::span<const std::int64_t> values);
template void append(std::vector<std::byte>& body, std::span<const double> values);
template void append(std::vector<std::byte>& body, std::span<const float> values);

}  // namespace gradwire
