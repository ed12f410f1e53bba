#include "collectives/failure/notes.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "gradwire/transport.h"

namespace gradwire {
namespace {

constexpr std::uint8_t kVersion = 2;
constexpr std::size_t kMostText = 160;
// In place of the number of runs: what follows are bitmaps.
constexpr std::uint16_t kBitmaps = 0xffff;

struct Head {
  std::uint8_t version, kind, standing, ready;
  std::uint32_t communicator;
  std::uint64_t operation;
  std::uint32_t generation;
  std::uint16_t lost, certain;
};
static_assert(sizeof(Head) == 24);
static_assert(std::endian::native == std::endian::little, "it is sent as it lies in memory");

// Ranks that follow one another.
struct Run {
  std::uint16_t first, last;
};
static_assert(sizeof(Run) == 4);

std::vector<Run> runs_of(const std::vector<int>& ranks) {
  std::vector<Run> runs;
  for (const int rank : ranks) {
    const auto number = static_cast<std::uint16_t>(rank);
    if (!runs.empty() && runs.back().last + 1 == rank) {
      runs.back().last = number;
    } else {
      runs.push_back({number, number});
    }
  }
  return runs;
}

// Ascending ranks below `size`; nullopt else.
std::optional<std::vector<int>> read_runs(const std::byte* from, std::size_t count, int size) {
  std::vector<int> ranks;
  for (std::size_t i = 0; i < count; ++i) {
    Run run{};
    std::memcpy(&run, from + i * sizeof run, sizeof run);
    const bool behind = ranks.empty() || run.first > ranks.back();
    if (!behind || run.last < run.first || run.last >= size) return std::nullopt;
    for (int rank = run.first; rank <= run.last; ++rank) ranks.push_back(rank);
  }
  return ranks;
}

void set_bits(std::byte* bitmap, const std::vector<int>& ranks) {
  for (const int rank : ranks) bitmap[rank / 8] |= std::byte{1} << (rank % 8);
}

std::optional<std::vector<int>> read_bits(const std::byte* bitmap, std::size_t bytes, int size) {
  std::vector<int> ranks;
  for (std::size_t rank = 0; rank < bytes * 8; ++rank) {
    if ((bitmap[rank / 8] >> (rank % 8) & std::byte{1}) == std::byte{0}) continue;
    if (rank >= static_cast<std::size_t>(size)) return std::nullopt;
    ranks.push_back(static_cast<int>(rank));
  }
  return ranks;
}

// What a note says of ranks: its two counts, and their bytes.
struct Lists {
  std::uint16_t lost = 0, certain = 0;
  std::vector<std::byte> bytes = {};
};

// `most`: of the bytes.
Lists encode_lists(const Proposal& note, std::size_t most) {
  std::vector<Run> lost = runs_of(note.lost), certain = runs_of(note.certain);
  const std::size_t bitmap =
      note.lost.empty() ? 0 : static_cast<std::size_t>(note.lost.back()) / 8 + 1;
  Lists lists;
  if ((lost.size() + certain.size()) * sizeof(Run) > most && 2 * bitmap <= most) {
    lists = {kBitmaps, static_cast<std::uint16_t>(bitmap), std::vector<std::byte>(2 * bitmap)};
    set_bits(lists.bytes.data(), note.lost);
    set_bits(lists.bytes.data() + bitmap, note.certain);
    return lists;
  }
  // Scattered losses in jobs of more than sixteen thousand ranks: the first ones, all of them
  // uncertain.
  if ((lost.size() + certain.size()) * sizeof(Run) > most) {
    certain.clear();
    lost.resize(std::min(lost.size(), most / sizeof(Run)));
  }
  lists.lost = static_cast<std::uint16_t>(lost.size());
  lists.certain = static_cast<std::uint16_t>(certain.size());
  lost.insert(lost.end(), certain.begin(), certain.end());
  lists.bytes.resize(lost.size() * sizeof(Run));
  if (!lost.empty()) std::memcpy(lists.bytes.data(), lost.data(), lists.bytes.size());
  return lists;
}

}  // namespace

std::vector<std::byte> encode(const EngineNote& note) {
  const std::size_t text = std::min(note.text.size(), kMostText);
  const Lists lists = encode_lists(note.proposal, Transport::kMostNoteBytes - sizeof(Head) - text);
  const Head head = {kVersion,
                     static_cast<std::uint8_t>(note.kind),
                     static_cast<std::uint8_t>(note.standing),
                     static_cast<std::uint8_t>(note.proposal.ready ? 1 : 0),
                     note.communicator,
                     note.operation,
                     note.proposal.generation,
                     lists.lost,
                     lists.certain};
  std::vector<std::byte> bytes(sizeof head + lists.bytes.size() + text);
  std::byte* const behind_head = bytes.data() + sizeof head;
  std::memcpy(bytes.data(), &head, sizeof head);
  if (!lists.bytes.empty()) {
    std::memcpy(behind_head, lists.bytes.data(), lists.bytes.size());
  }
  if (text > 0) std::memcpy(behind_head + lists.bytes.size(), note.text.data(), text);
  return bytes;
}

std::optional<EngineNote> decode_note(ConstByteSpan bytes, int size) {
  Head head;
  if (bytes.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);
  const bool known = head.version == kVersion &&
                     head.kind >= static_cast<std::uint8_t>(EngineNote::Kind::kAsk) &&
                     head.kind <= static_cast<std::uint8_t>(EngineNote::Kind::kPropose) &&
                     head.standing <= static_cast<std::uint8_t>(EngineNote::Standing::kFailed);
  if (!known || head.ready > 1) return std::nullopt;
  const bool bitmaps = head.lost == kBitmaps;
  const std::size_t lists = bitmaps ? 2 * std::size_t{head.certain}
                                    : (std::size_t{head.lost} + head.certain) * sizeof(Run);
  if (bytes.size() < sizeof head + lists || bytes.size() > sizeof head + lists + kMostText) {
    return std::nullopt;
  }
  const std::byte* const at = bytes.data() + sizeof head;
  const auto lost = bitmaps ? read_bits(at, head.certain, size) : read_runs(at, head.lost, size);
  const auto certain = bitmaps ? read_bits(at + head.certain, head.certain, size)
                               : read_runs(at + head.lost * sizeof(Run), head.certain, size);
  if (!lost || !certain || !std::ranges::includes(*lost, *certain)) return std::nullopt;
  EngineNote note;
  note.kind = static_cast<EngineNote::Kind>(head.kind);
  note.standing = static_cast<EngineNote::Standing>(head.standing);
  note.communicator = head.communicator;
  note.operation = head.operation;
  note.proposal = {head.generation, head.ready == 1, *lost, *certain};
  note.text.assign(reinterpret_cast<const char*>(at) + lists, bytes.size() - sizeof head - lists);
  // Runs that could be joined, and bitmaps where runs would do, are nothing that encode() makes.
  if (!std::ranges::equal(encode(note), bytes)) return std::nullopt;
  return note;
}

}  // namespace gradwire
