#include "adapters/trainer/modes/block_coder.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "aggregate/plan/plan.h"
#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "compress/error_feedback/feedback.h"

namespace gradwire {
namespace {

constexpr std::size_t kLengthBytes = 4;
constexpr std::size_t kMostRound = std::numeric_limits<std::uint32_t>::max();  // in so many bytes

TensorView shaped(std::span<float> values, const Shape& shape) {
  return {reinterpret_cast<std::byte*>(values.data()), shape, DType::kF32};
}

Status check_keys(const Parameter& plan, bool feedback) {
  if (plan.warmup_steps > 0 || plan.inner != nullptr) {
    return {Code::kInvalidArgument,
            "warmup_steps and intra_node belong to an all-reduce (expected a spec without them)"};
  }
  const FeedbackKind kind = plan.feedback.kind;
  if (kind == FeedbackKind::kNone) return {};
  if (!feedback) {
    return {Code::kInvalidArgument,
            "ef=" + std::string(to_string(kind)) +
                " for a difference, which is error feedback by itself (expected no ef)"};
  }
  if (kind == FeedbackKind::kEf14 || kind == FeedbackKind::kLoco) return {};
  return {Code::kInvalidArgument, "ef=" + std::string(to_string(kind)) +
                                      " keeps a mean of all ranks on the receiving side, which one "
                                      "push has not (expected ef14 or loco)"};
}

AggregatorOptions options_of(const BlockCoding& coding) {
  AggregatorOptions options;
  options.compressor = coding.compressor;
  options.allow_unsafe = coding.allow_unsafe;
  options.seed = coding.seed;
  return options;
}

Status named(const KeyBlock& block, const Status& status) {
  return status.ok() ? status : status.with_context("'" + block.tensor + "'");
}

}  // namespace

Result<std::vector<std::string>> coding_warnings(const Registry& registry,
                                                 const BlockCoding& coding,
                                                 std::span<const KeyBlock> blocks,
                                                 std::optional<double> momentum) {
  AggregatorOptions options = options_of(coding);
  options.momentum = momentum;
  GW_ASSIGN(Plan plan, read_plan(registry, options));
  std::byte nowhere{};  // nobody looks at their elements
  for (const KeyBlock& block : blocks) {
    const TensorView values(&nowhere, block.shape, DType::kF32);
    GW_TRY(plan_parameter(plan, options, block.tensor, values).error());
  }
  return std::move(plan.warnings);
}

Result<std::unique_ptr<BlockCoder>> BlockCoder::open(const Registry& registry,
                                                     const BlockCoding& coding,
                                                     const KeyBlock& block, End end,
                                                     bool feedback) {
  const AggregatorOptions options = options_of(coding);
  GW_ASSIGN(Plan plan, read_plan(registry, options));
  std::unique_ptr<BlockCoder> made(new BlockCoder);
  made->block_ = block;
  made->values_.resize(static_cast<std::size_t>(block.shape.elems()));
  GW_ASSIGN(const Parameter parameter,
            plan_parameter(plan, options, block.tensor, shaped(made->values_, block.shape)));
  if (parameter.path == Path::kDense) {
    made->most_bytes_ = made->values_.size() * sizeof(float);
    return made;
  }
  GW_TRY(named(block, check_keys(parameter, feedback)));
  const Compressor::Placement where{
      .seed = parameter.seed,
      .tensor = hash_name(block.tensor) + mix64(static_cast<std::uint64_t>(block.offset))};
  GW_ASSIGN(made->coder_, parameter.compressor->open(block.shape, where));
  for (int round = 0; round < parameter.compressor->traits().rounds; ++round) {
    const std::size_t most =
        parameter.compressor->max_payload_bytes(block.shape, DType::kF32, round, 1);
    if (most > kMostRound) {
      return Status(Code::kUnsupported,
                    format("'%s': a payload of up to %zu bytes in one message (expected at most "
                           "%zu: none for this tensor, or a method that sends less)",
                           block.tensor.c_str(), most, kMostRound));
    }
    made->round_bytes_.push_back(most);
    made->most_bytes_ += kLengthBytes + most;
  }
  made->scale_ = static_cast<float>(parameter.scale);
  if (end == End::kSender && parameter.feedback.kind != FeedbackKind::kNone) {
    GW_ASSIGN(made->coder_, make_feedback(std::move(made->coder_), block.shape, where,
                                          parameter.feedback, parameter.scale));
    made->with_feedback_ = true;
  }
  return made;
}

Status BlockCoder::run_rounds(std::vector<std::byte>& out) {
  for (std::size_t round = 0; round < round_bytes_.size(); ++round) {
    const std::size_t start = out.size();
    out.resize(start + kLengthBytes + round_bytes_[round]);
    const ByteSpan room = ByteSpan(out).subspan(start + kLengthBytes);
    GW_ASSIGN(const std::size_t wrote, coder_->encode(static_cast<int>(round), room, {}));
    GW_CHECK(wrote <= round_bytes_[round]);
    out.resize(start + kLengthBytes + wrote);
    const auto length = static_cast<std::uint32_t>(wrote);
    std::memcpy(out.data() + start, &length, kLengthBytes);
    const std::array<ConstByteSpan, 1> mine{ConstByteSpan(out).subspan(start + kLengthBytes)};
    GW_TRY(coder_->absorb(static_cast<int>(round), mine, {}));
  }
  return {};
}

Status BlockCoder::encode(std::span<const float> values, std::uint64_t step,
                          std::vector<std::byte>& out, std::span<float> decoded) {
  GW_CHECK(values.size() == values_.size());
  if (exact()) {
    const auto bytes = std::as_bytes(values);
    out.insert(out.end(), bytes.begin(), bytes.end());
    if (!decoded.empty()) std::ranges::copy(values, decoded.begin());
    return {};
  }
  const ConstTensorView input(reinterpret_cast<const std::byte*>(values.data()), block_.shape,
                              DType::kF32);
  GW_TRY(named(block_, coder_->begin(input, step, {})));
  GW_TRY(named(block_, run_rounds(out)));
  GW_TRY(named(block_, coder_->finish(shaped(values_, block_.shape), {}, {})));
  if (decoded.empty()) return {};
  // With feedback the coder has multiplied already.
  const float scale = with_feedback_ ? 1.0F : scale_;
  for (std::size_t i = 0; i < values_.size(); ++i) decoded[i] = scale * values_[i];
  return {};
}

Result<std::size_t> BlockCoder::decode(ConstByteSpan bytes, std::uint64_t step,
                                       std::span<float> values) {
  GW_CHECK(values.size() == values_.size());
  const auto corrupt = [&](const std::string& what) {
    return Status(Code::kCorruptPayload, "'" + block_.tensor + "': " + what);
  };
  if (exact()) {
    const std::size_t wanted = values.size_bytes();
    if (bytes.size() < wanted) {
      return corrupt(format("%zu bytes left (expected %zu)", bytes.size(), wanted));
    }
    std::memcpy(values.data(), bytes.data(), wanted);
    return wanted;
  }
  std::ranges::fill(values_, 0.0F);
  GW_TRY(named(block_, coder_->begin(shaped(values_, block_.shape), step, {})));
  std::size_t at = 0;
  for (std::size_t round = 0; round < round_bytes_.size(); ++round) {
    // Of zeros, and thrown away: some methods decide in encode() what absorb() relies on.
    scratch_.resize(round_bytes_[round]);
    GW_TRY(named(block_, coder_->encode(static_cast<int>(round), scratch_, {}).error()));
    std::uint32_t length = 0;
    if (bytes.size() - at < kLengthBytes) return corrupt("no length of a round");
    std::memcpy(&length, bytes.data() + at, kLengthBytes);
    at += kLengthBytes;
    if (length > round_bytes_[round] || length > bytes.size() - at) {
      return corrupt(format("a round of %u bytes (expected at most %zu, %zu left)", length,
                            round_bytes_[round], bytes.size() - at));
    }
    const std::array<ConstByteSpan, 1> theirs{bytes.subspan(at, length)};
    GW_TRY(named(block_, coder_->absorb(static_cast<int>(round), theirs, {})));
    at += length;
  }
  GW_TRY(named(block_, coder_->finish(shaped(values, block_.shape), {}, {})));
  if (scale_ != 1) {
    for (float& value : values) value *= scale_;
  }
  return at;
}

std::vector<NamedTensor> BlockCoder::state() {
  return coder_ == nullptr ? std::vector<NamedTensor>() : coder_->state();
}

Result<MessageCoder> MessageCoder::open(const Registry& registry, const BlockCoding& coding,
                                        std::vector<KeyBlock> blocks, BlockCoder::End end,
                                        bool feedback) {
  MessageCoder message;
  for (const KeyBlock& block : blocks) {
    GW_ASSIGN(auto coder, BlockCoder::open(registry, coding, block, end, feedback));
    message.coders_.push_back(std::move(coder));
  }
  message.blocks_ = std::move(blocks);
  return message;
}

std::size_t MessageCoder::most_bytes() const {
  std::size_t bytes = 0;
  for (const auto& coder : coders_) bytes += coder->most_bytes();
  return bytes;
}

Status MessageCoder::encode(std::span<const float> values, std::uint64_t step,
                            std::vector<std::byte>& out, std::span<float> decoded) {
  const std::int64_t origin = blocks_.front().offset;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    GW_TRY(coders_[b]->encode(part_of(values, blocks_[b], origin), step, out,
                              decoded.empty() ? decoded : part_of(decoded, blocks_[b], origin)));
  }
  return {};
}

Status MessageCoder::decode(ConstByteSpan bytes, std::uint64_t step, std::span<float> values) {
  const std::int64_t origin = blocks_.front().offset;
  for (std::size_t b = 0; b < blocks_.size(); ++b) {
    GW_ASSIGN(const std::size_t used,
              coders_[b]->decode(bytes, step, part_of(values, blocks_[b], origin)));
    bytes = bytes.subspan(used);
  }
  if (bytes.empty()) return {};
  return {Code::kCorruptPayload, format("%zu bytes behind the last block", bytes.size())};
}

std::vector<NamedTensor> MessageCoder::state() {
  std::vector<NamedTensor> all;
  for (std::size_t b = 0; b < coders_.size(); ++b) {
    for (NamedTensor& entry : coders_[b]->state()) {
      all.push_back({std::to_string(b) + "/" + entry.name, entry.tensor});
    }
  }
  return all;
}

}  // namespace gradwire
