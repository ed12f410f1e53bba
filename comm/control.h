// What ranks tell each other beside the data: each transport carries these in its own way.
//
//   message := version:u8 kind:u8 epoch:u8 flag:u8 from:u16 culprit:u16 reporter:u16 zero:u16
//              zero:u32 id:u64 text              little-endian; text is the rest, at most 200 bytes
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/tensor.h"

namespace gradwire::comm {

struct Control {
  enum class Kind : std::uint8_t {
    kHello = 1,  // I have your address; flag: I can read your memory
    kHeartbeat,  // I live
    kVerdict,    // `culprit` is lost, says `reporter`, because of `text`
    kGoodbye,    // nothing more comes from me; flag: because of a verdict, as above
    kFarewell,   // I have seen your goodbye
    kTaken,      // your message `id`, read from your memory, is yours again
    kWithdraw,   // do not read my message `id`; answered by kTaken
  } kind = Kind::kHeartbeat;
  std::uint8_t epoch = 0;
  bool flag = false;
  int from = 0;
  int culprit = 0;
  int reporter = 0;
  std::uint64_t id = 0;
  std::string text = {};
};

std::vector<std::byte> encode(const Control& message);
// nullopt for bytes that no encode() made, or ranks not below `size`.
std::optional<Control> decode(ConstByteSpan bytes, int size);

}  // namespace gradwire::comm
