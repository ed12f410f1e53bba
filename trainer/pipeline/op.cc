#include "trainer/pipeline/op.h"

#include <charconv>

namespace gradwire {
namespace {

struct KindNames {
  std::string_view own;
  std::string_view pytorch;
};

// By kind.
constexpr std::array<KindNames, kPipelineOpKinds> kKindNames{{{"F", "F"},
                                                              {"B", "B"},
                                                              {"I", "I"},
                                                              {"W", "W"},
                                                              {"R", "R"},
                                                              {"SF", "SEND_F"},
                                                              {"RF", "RECV_F"},
                                                              {"SB", "SEND_B"},
                                                              {"RB", "RECV_B"},
                                                              {"RG", "REDUCE_GRAD"},
                                                              {"RT", "RT"},
                                                              {"RR", "RR"},
                                                              {"UNSHARD", "UNSHARD"},
                                                              {"RESHARD", "RESHARD"},
                                                              {"OPT", "OPT"},
                                                              {"STASH", "STASH"},
                                                              {"DROP", "DROP"}}};

const KindNames& names_of(PipelineOpKind kind) {
  return kKindNames[static_cast<std::size_t>(kind)];
}

std::string op_text(const PipelineOp& op, std::string_view name) {
  std::string text = std::to_string(op.stage);
  text += name;
  if (op.micro != PipelineOp::kNoMicro) text += std::to_string(op.micro);
  if (op.pipe != 0) text += "@" + std::to_string(op.pipe);
  if (op.version != 0) text += "#" + std::to_string(op.version);
  return text;
}

// Takes a number below `limit` off the front; false where there is none.
template <typename Number>
bool take_number(std::string_view& text, int limit, Number& number) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  // from_chars takes a sign, too.
  if (error != std::errc() || text.front() == '-' || value >= limit) return false;
  number = static_cast<Number>(value);
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return true;
}

std::string_view take_name(std::string_view& text) {
  std::size_t end = 0;
  while (end < text.size() && ((text[end] >= 'A' && text[end] <= 'Z') || text[end] == '_')) ++end;
  const std::string_view name = text.substr(0, end);
  text.remove_prefix(end);
  return name;
}

// A number behind `mark`, if the mark is there.
template <typename Number>
bool take_suffix(std::string_view& text, char mark, int limit, Number& number) {
  if (text.empty() || text.front() != mark) return true;
  text.remove_prefix(1);
  return take_number(text, limit, number);
}

}  // namespace

std::string_view to_string(PipelineOpKind kind) { return names_of(kind).own; }

std::string_view pytorch_name(PipelineOpKind kind) { return names_of(kind).pytorch; }

std::optional<PipelineOpKind> pipeline_op_kind(std::string_view name) {
  for (std::size_t kind = 0; kind < kKindNames.size(); ++kind) {
    if (name == kKindNames[kind].own || name == kKindNames[kind].pytorch) {
      return static_cast<PipelineOpKind>(kind);
    }
  }
  return std::nullopt;
}

std::string to_string(const PipelineOp& op) { return op_text(op, to_string(op.kind)); }

std::string message_text(const PipelineOp& send, int to) {
  return to_string(send) + " to rank " + std::to_string(to);
}

std::string pytorch_text(const PipelineOp& op) { return op_text(op, pytorch_name(op.kind)); }

std::optional<PipelineOp> pipeline_op(std::string_view text) {
  PipelineOp op;
  if (!take_number(text, kMostStages, op.stage)) return std::nullopt;
  const std::optional<PipelineOpKind> kind = pipeline_op_kind(take_name(text));
  if (!kind) return std::nullopt;
  op.kind = *kind;
  if (has_micro_batch(op.kind) && !take_number(text, kMostMicroBatches, op.micro)) {
    return std::nullopt;
  }
  if (!take_suffix(text, '@', kMostPipes, op.pipe)) return std::nullopt;
  if (!take_suffix(text, '#', kMostVersions, op.version) || !text.empty()) return std::nullopt;
  return op;
}

}  // namespace gradwire
