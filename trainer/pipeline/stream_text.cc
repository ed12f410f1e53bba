#include <algorithm>
#include <array>
#include <string>

#include "base/text.h"
#include "trainer/pipeline/cursor.h"
#include "trainer/pipeline/stream.h"

namespace gradwire {
namespace {

constexpr int kMostNumber = 65'536;
constexpr std::array kParts{&PipelineStream::start, &PipelineStream::period,
                            &PipelineStream::drain};
constexpr std::array<std::string_view, 3> kPartNames{"start", "period", "drain"};
constexpr const char* kStreamHead = "stream ranks=R stages=S micro-batches=M window=W versions=V";

// Reads the form of stream_text(), and of stream_csv(), whose commas have become blanks.
class StreamReader {
 public:
  StreamReader(std::string_view text, bool csv) : cursor_(text), csv_(csv) {}

  Result<PipelineStream> read() {
    GW_TRY(head());
    GW_TRY(place());
    GW_ASSIGN(std::string_view name, next(kPartNames[0]));
    if (name == "layers") {
      GW_TRY(layers());
      GW_ASSIGN(name, next(kPartNames[0]));
    }
    for (std::size_t part = 0; part < kParts.size(); ++part) {
      if (part > 0) {
        GW_ASSIGN(name, next(kPartNames[part]));
      }
      if (name != kPartNames[part]) return cursor_.error(name, kPartNames[part]);
      GW_TRY(end_of_line());
      for (int rank = 0; rank < ranks_; ++rank) {
        GW_TRY(operations((stream_.*kParts[part]).emplace_back(), rank));
      }
    }
    std::string_view more;
    while (more.empty() && cursor_.next_line()) more = cursor_.word();
    if (more.empty()) return std::move(stream_);
    return cursor_.error(more, "nothing behind the drain");
  }

 private:
  // The first word of the next line that has one.
  Result<std::string_view> next(std::string_view wanted) {
    while (cursor_.next_line()) {
      if (const std::string_view word = cursor_.word(); !word.empty()) return word;
    }
    return cursor_.error({}, wanted);
  }
  Status end_of_line() {
    const std::string_view word = cursor_.word();
    return word.empty() ? Status() : cursor_.error(word, "the end of the line");
  }
  Status number(const std::string& name, int& value) {
    const std::string_view word = cursor_.word();
    const auto found = word.starts_with(name + "=") ? to_int(word.substr(name.size() + 1))
                                                    : std::optional<std::int64_t>();
    if (!found || *found < 1 || *found > kMostNumber) {
      return cursor_.error(word, name + "=1 to " + std::to_string(kMostNumber));
    }
    value = static_cast<int>(*found);
    return {};
  }

  Status head() {
    GW_ASSIGN(const std::string_view first, next(kStreamHead));
    if (first != "stream") return cursor_.error(first, kStreamHead);
    GW_TRY(number("ranks", ranks_));
    GW_TRY(number("stages", stages_));
    GW_TRY(number("micro-batches", stream_.micro_batches));
    GW_TRY(number("window", stream_.window));
    GW_TRY(number("versions", stream_.versions));
    return end_of_line();
  }
  Status place() {
    GW_ASSIGN(const std::string_view first, next("place and the rank of each stage"));
    if (first != "place") return cursor_.error(first, "place and the rank of each stage");
    for (int stage = 0; stage < stages_; ++stage) {
      const std::string_view word = cursor_.word();
      const auto rank = to_int(word);
      if (!rank || *rank < 0 || *rank >= ranks_) {
        return cursor_.error(word, format("the rank of stage %d, 0 to %d", stage, ranks_ - 1));
      }
      stream_.rank_of.push_back(static_cast<int>(*rank));
    }
    return end_of_line();
  }

  Status layers() {
    for (int stage = 0; stage < stages_; ++stage) {
      const std::string_view word = cursor_.word();
      const auto count = to_int(word);
      if (!count || *count < 1 || *count > kMostStages) {
        return cursor_.error(word, format("the layers of stage %d, 1 to %d", stage, kMostStages));
      }
      stream_.layers.push_back(static_cast<int>(*count));
    }
    return end_of_line();
  }

  // A rank's line of CSV may be empty.
  Status operations(std::vector<PipelineOp>& ops, int rank) {
    if (csv_) {
      if (!cursor_.next_line()) return cursor_.error({}, format("the line of rank %d", rank));
    } else {
      GW_ASSIGN(const std::string_view first, next(format("rank %d:", rank)));
      const std::string_view number = first == "rank" ? cursor_.word() : first;
      if (first != "rank" || number != std::to_string(rank) + ":") {
        return cursor_.error(number, format("rank %d:", rank));
      }
    }
    for (std::string_view word = cursor_.word(); !word.empty(); word = cursor_.word()) {
      const std::optional<PipelineOp> op = pipeline_op(word);
      if (!op) return cursor_.error(word, "an operation such as 2F0, 3B1 or 0OPT");
      ops.push_back(*op);
    }
    return {};
  }

  PipelineCursor cursor_;
  bool csv_;
  PipelineStream stream_;
  int ranks_ = 0;
  int stages_ = 0;
};

std::string stream_head(const PipelineStream& stream) {
  std::string text =
      format("stream ranks=%d stages=%d micro-batches=%d window=%d versions=%d\nplace",
             stream.size(), stream.stages(), stream.micro_batches, stream.window, stream.versions);
  for (const int rank : stream.rank_of) text += " " + std::to_string(rank);
  if (!stream.layers.empty()) text += "\nlayers";
  for (const int count : stream.layers) text += " " + std::to_string(count);
  return text + "\n";
}

}  // namespace

std::string stream_text(const PipelineStream& stream) {
  std::string text = stream_head(stream);
  for (std::size_t part = 0; part < kParts.size(); ++part) {
    text += std::string(kPartNames[part]) + "\n";
    const PipelineStream::Lists& lists = stream.*kParts[part];
    for (std::size_t rank = 0; rank < lists.size(); ++rank) {
      text += "rank " + std::to_string(rank) + ":";
      for (const PipelineOp& op : lists[rank]) text += " " + to_string(op);
      text += "\n";
    }
  }
  return text;
}

std::string stream_csv(const PipelineStream& stream) {
  std::string csv = stream_head(stream);
  std::ranges::replace(csv, ' ', ',');
  for (std::size_t part = 0; part < kParts.size(); ++part) {
    csv += std::string(kPartNames[part]) + "\n";
    for (const auto& ops : stream.*kParts[part]) {
      for (std::size_t i = 0; i < ops.size(); ++i) {
        csv += (i == 0 ? "" : ",") + pytorch_text(ops[i]);
      }
      csv += "\n";
    }
  }
  return csv;
}

bool is_stream(std::string_view text) {
  PipelineCursor cursor(text);
  while (cursor.next_line()) {
    const std::string_view word = cursor.word();
    if (!word.empty()) return word == "stream" || word.starts_with("stream,");
  }
  return false;
}

Result<PipelineStream> parse_stream(std::string_view text) {
  if (!text.starts_with("stream,")) return StreamReader(text, false).read();
  std::string blanks(text);
  std::ranges::replace(blanks, ',', ' ');
  return StreamReader(blanks, true).read();
}

}  // namespace gradwire
