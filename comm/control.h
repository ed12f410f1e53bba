// What ranks tell each other beside the data: each transport carries these in its own way.
//
//   message := version:u8 kind:u8 epoch:u8 flag:u8 from:u16 about:u16 reporter:u16
//              marks:u8 cause:u8 operation:u32 id:u64 text
//                                                little-endian; text is the rest, at most 200
//                                                bytes, of a note at most 4096
//   marks: 1 the rank that it is about is there, and only gave up; 2 it is gone for certain
//   cause: a LossCause; operation: its number + 1, modulo 2^32; 0: none
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "gradwire/tensor.h"
#include "gradwire/transport.h"

namespace gradwire::comm {

struct Control {
  enum class Kind : std::uint8_t {
    kHello = 1,  // I have your address; flag: I can read your memory
    kHeartbeat,  // I live; flag: and you?
    kVerdict,    // `about` is lost, says `reporter`, because of `text`; id: its generation
    kGoodbye,    // nothing more comes from me; flag: because of a verdict, as above
    kFarewell,   // I have seen your goodbye
    kTaken,      // your message `id`, read from your memory or refused, is yours again
    kWithdraw,   // do not read my message `id`; answered by kTaken
    kNote,       // `text` is for the engine above
    kAddress,    // `text` is where generation `id` reaches me
    kSevered,    // my data connections end, and I do not
    kWant,       // send your message `id`, which you announced (comm/flow_window.h)
    kClosed,     // flag: has `about` closed? Without the flag: it has
    kCredit,     // so much of what you sent has met its receives: FlowWindow::credit()
  } kind = Kind::kHeartbeat;
  std::uint8_t epoch = 0;
  bool flag = false;
  int from = 0;
  int about = 0;  // a rank
  int reporter = 0;
  bool gone = true;      // of a verdict or goodbye, as in LostPeer
  bool certain = false;  // likewise
  LossCause cause = LossCause::kUnsaid;
  std::optional<std::uint64_t> operation = {};
  std::uint64_t id = 0;
  std::string text = {};
};

// The longest encode() makes.
inline constexpr std::size_t kMostControlBytes = 24 + 4096;
std::vector<std::byte> encode(const Control& message);
// nullopt for bytes that no encode() made, or ranks not below `size`.
std::optional<Control> decode(ConstByteSpan bytes, int size);

}  // namespace gradwire::comm
