#include "adapters/trainer/agreement.h"

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradwire {
namespace {

// outcome := code text
// code    : u8, of the Status; text: its message, or where it is ok what the rank gives
Status read_code(std::uint8_t code, std::string message) {
  if (code > static_cast<std::uint8_t>(Code::kInternal)) {
    return {Code::kCorruptPayload, "an outcome with an unknown code"};
  }
  return {static_cast<Code>(code), std::move(message)};
}

}  // namespace

Result<std::vector<std::string>> share_outcome(Communicator& communicator, const Status& mine,
                                               std::string_view text, double seconds) {
  std::string own(1, static_cast<char>(mine.code()));
  own += mine.ok() ? text : mine.message();
  std::vector<std::byte> all;
  std::vector<std::int64_t> lengths;
  OpOptions options;
  options.deadline = deadline_in(seconds);
  auto work = communicator.all_gather_unsized(std::as_bytes(std::span(own.data(), own.size())), all,
                                              lengths, options);
  const Status shared = work.has_value() ? work.value().wait() : work.error();
  // What went wrong here first says more than what became of the others for it.
  if (!shared.ok()) return mine.ok() ? shared : mine;
  std::vector<std::string> texts;
  std::size_t at = 0;
  for (std::size_t rank = 0; rank < lengths.size(); ++rank) {
    const auto length = static_cast<std::size_t>(lengths[rank]);
    if (length == 0) {
      return Status(Code::kCorruptPayload, "rank " + std::to_string(rank) + ": an empty outcome");
    }
    const char* bytes = reinterpret_cast<const char*>(all.data() + at);
    at += length;
    texts.emplace_back(bytes + 1, length - 1);
    const auto code = static_cast<std::uint8_t>(bytes[0]);
    if (code == static_cast<std::uint8_t>(Code::kOk)) continue;
    return read_code(code, texts.back()).with_context("rank " + std::to_string(rank));
  }
  return texts;
}

}  // namespace gradwire
