// One block's values as bytes that one other rank decodes: what a parameter server pushes and
// pulls.
//
// Both ends open a coder that knows of one rank alone. The sender runs the method's rounds by
// itself; the payloads of all rounds travel together, the receiver absorbs them, and so both come
// to the same values, bit for bit, whatever the method.
//
// clang-format off
//   block := round*                    of a coded block, in the method's order
//   round := length bytes              length: u32, little-endian; so many bytes follow
//   block := f32*                      of a block that travels exactly
// clang-format on
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters/trainer/modes/server/key_blocks.h"
#include "gradwire/coder.h"
#include "gradwire/registry.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

struct BlockCoding {
  std::string compressor = "none";  // a spec or rules by the tensor's name and the block's size
  bool allow_unsafe = false;
  std::uint64_t seed = 0;
};

// What there is to say of such a coding of these blocks, each thing once: what error feedback
// divides by, and the like. `momentum`: AggregatorOptions::momentum.
Result<std::vector<std::string>> coding_warnings(const Registry& registry,
                                                 const BlockCoding& coding,
                                                 std::span<const KeyBlock> blocks,
                                                 std::optional<double> momentum);

// Of one block, one sender and one direction. Not thread-safe.
class BlockCoder {
 public:
  // `feedback`: the sender keeps what it did not send, as the spec's ef key says; without, a spec
  // that has one is refused. Errors as Aggregator::create(); kInvalidArgument too for what needs
  // more than one sender (a moving mean on the other side: ef21). kUnsupported where a round may
  // have 2^32 bytes.
  enum class End : std::uint8_t { kSender, kReceiver };
  static Result<std::unique_ptr<BlockCoder>> open(const Registry& registry,
                                                  const BlockCoding& coding, const KeyBlock& block,
                                                  End end, bool feedback);

  bool exact() const { return coder_ == nullptr; }
  std::size_t most_bytes() const { return most_bytes_; }

  // Appends the block to `out`. `decoded`: what the receiver will have; skipped if empty.
  Status encode(std::span<const float> values, std::uint64_t step, std::vector<std::byte>& out,
                std::span<float> decoded);
  // values = what the front of `bytes` holds; returns how many bytes that were. kCorruptPayload on
  // anything else.
  Result<std::size_t> decode(ConstByteSpan bytes, std::uint64_t step, std::span<float> values);
  // All that it keeps between messages, to be saved and, before the first one, written to. Views
  // are valid until the next message.
  std::vector<NamedTensor> state();

 private:
  BlockCoder() = default;
  Status run_rounds(std::vector<std::byte>& out);

  KeyBlock block_;
  std::unique_ptr<Coder> coder_;          // null: exact
  std::vector<std::size_t> round_bytes_;  // the most of each
  std::size_t most_bytes_ = 0;
  float scale_ = 1;  // the receiver's: what the sender's feedback multiplies in by itself
  bool with_feedback_ = false;
  std::vector<std::byte> scratch_;
  std::vector<float> values_;
};

// The coders of several blocks, one message.
class MessageCoder {
 public:
  static Result<MessageCoder> open(const Registry& registry, const BlockCoding& coding,
                                   std::vector<KeyBlock> blocks, BlockCoder::End end,
                                   bool feedback);
  std::size_t most_bytes() const;
  // values: of all blocks, one after another, as they lie in the flat buffer.
  Status encode(std::span<const float> values, std::uint64_t step, std::vector<std::byte>& out,
                std::span<float> decoded = {});
  Status decode(ConstByteSpan bytes, std::uint64_t step, std::span<float> values);
  // "<block>/<name>" of every coder's state().
  std::vector<NamedTensor> state();

 private:
  std::vector<KeyBlock> blocks_;
  std::vector<std::unique_ptr<BlockCoder>> coders_;
};

}  // namespace gradwire
