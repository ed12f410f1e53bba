// What the engines of a job tell each other beside the data, when an operation fails.
//
//   note := version:u8 kind:u8 standing:u8 ready:u8 communicator:u32 operation:u64 generation:u32
//           lost:u16 certain:u16 lists text              little-endian, text is the rest
//   lists := (first:u16 last:u16)[lost + certain]        runs of ranks, both ascending
//          | bitmap{certain} bitmap{certain}             of the lost and the certain, where lost is
//                                                        65535: rank r is bit r % 8 of byte r / 8
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/failure/survivor_vote.h"
#include "gradwire/tensor.h"

namespace gradwire {

struct EngineNote {
  enum class Kind : std::uint8_t {
    kAsk = 1,  // what about this operation? `text` describes it as I run it
    kAnswer,   // my standing; `text` describes the operation, or my last one
    kPropose,  // let us go on without the lost of `proposal`
  } kind = Kind::kAsk;
  enum class Standing : std::uint8_t {
    kRuns,      // the operation, described by `text`
    kDone,      // has finished it; `text` describes it if that is still known
    kNotBegun,  // `text`: the last one of that communicator, empty if there was none
    kFailed,    // has given up; `text` says why
  } standing = Standing::kRuns;
  std::uint32_t communicator = 0;
  std::uint64_t operation = 0;
  Proposal proposal = {};
  std::string text = {};  // at most 160 bytes of it travel
};

// At most Transport::kMostNoteBytes. All lost ranks, of a job of up to 16,288 ranks whichever they
// are, of a larger one if they form no more than a thousand runs; else the first ones.
std::vector<std::byte> encode(const EngineNote& note);
// nullopt for bytes that no encode() made, or ranks not below `size`.
std::optional<EngineNote> decode_note(ConstByteSpan bytes, int size);

}  // namespace gradwire
