#include "collectives/notes.h"

#include <algorithm>
#include <cstring>

namespace gradwire {
namespace {

constexpr std::uint8_t kVersion = 1;
constexpr std::size_t kMostText = 160;
constexpr std::size_t kMostRanks = 900;

struct Head {
  std::uint8_t version, kind, standing, ready;
  std::uint32_t communicator;
  std::uint64_t operation;
  std::uint32_t generation;
  std::uint16_t lost, certain;
};
static_assert(sizeof(Head) == 24);

std::byte* put_ranks(std::byte* to, const std::vector<int>& ranks, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const auto rank = static_cast<std::uint16_t>(ranks[i]);
    std::memcpy(to, &rank, sizeof rank);
    to += sizeof rank;
  }
  return to;
}

// Ascending ranks below `size`; nullopt else.
std::optional<std::vector<int>> read_ranks(const std::byte* from, std::size_t count, int size) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t rank = 0;
    std::memcpy(&rank, from + i * sizeof rank, sizeof rank);
    if (rank >= size || (!ranks.empty() && rank <= ranks.back())) return std::nullopt;
    ranks.push_back(rank);
  }
  return ranks;
}

}  // namespace

std::vector<std::byte> encode(const EngineNote& note) {
  const std::size_t lost = std::min(note.lost.size(), kMostRanks);
  // Of those that travel: the reader wants the certain ones among the lost.
  const auto is_sent = [&](int rank) { return lost > 0 && rank <= note.lost[lost - 1]; };
  const auto certain = static_cast<std::size_t>(std::ranges::count_if(note.certain, is_sent));
  const Head head = {kVersion,
                     static_cast<std::uint8_t>(note.kind),
                     static_cast<std::uint8_t>(note.standing),
                     static_cast<std::uint8_t>(note.ready ? 1 : 0),
                     note.communicator,
                     note.operation,
                     note.generation,
                     static_cast<std::uint16_t>(lost),
                     static_cast<std::uint16_t>(certain)};
  const std::size_t text = std::min(note.text.size(), kMostText);
  std::vector<std::byte> bytes(sizeof head + (lost + certain) * sizeof(std::uint16_t) + text);
  std::memcpy(bytes.data(), &head, sizeof head);
  std::byte* const behind_lost = put_ranks(bytes.data() + sizeof head, note.lost, lost);
  std::byte* const behind_ranks = put_ranks(behind_lost, note.certain, certain);
  if (text > 0) std::memcpy(behind_ranks, note.text.data(), text);
  return bytes;
}

std::optional<EngineNote> decode_note(ConstByteSpan bytes, int size) {
  Head head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  const bool known = head.version == kVersion &&
                     head.kind >= static_cast<std::uint8_t>(EngineNote::Kind::kAsk) &&
                     head.kind <= static_cast<std::uint8_t>(EngineNote::Kind::kSent) &&
                     head.standing <= static_cast<std::uint8_t>(EngineNote::Standing::kFailed);
  if (!known || head.ready > 1 || head.lost > kMostRanks || head.certain > head.lost) {
    return std::nullopt;
  }
  const std::size_t lists = (std::size_t{head.lost} + head.certain) * sizeof(std::uint16_t);
  if (bytes.size() < sizeof head + lists || bytes.size() > sizeof head + lists + kMostText) {
    return std::nullopt;
  }
  const std::byte* const at = bytes.data() + sizeof head;
  const auto lost = read_ranks(at, head.lost, size);
  const auto certain = read_ranks(at + head.lost * sizeof(std::uint16_t), head.certain, size);
  if (!lost || !certain || !std::ranges::includes(*lost, *certain)) return std::nullopt;
  EngineNote note;
  note.kind = static_cast<EngineNote::Kind>(head.kind);
  note.standing = static_cast<EngineNote::Standing>(head.standing);
  note.ready = head.ready == 1;
  note.communicator = head.communicator;
  note.operation = head.operation;
  note.generation = head.generation;
  note.lost = *lost;
  note.certain = *certain;
  note.text.assign(reinterpret_cast<const char*>(at) + lists, bytes.size() - sizeof head - lists);
  return note;
}

}  // namespace gradwire
