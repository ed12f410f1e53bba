#include "trainer/pipeline/text.h"

#include <optional>

#include "trainer/pipeline/cursor.h"

namespace gradwire {
namespace {

constexpr int kMostTextRanks = 65'536;
constexpr std::string_view kWantedOp = "an operation such as 2F0, 3I1 or 0OPT";

// The value of "name=NUMBER", from 1 to `most`.
std::optional<int> named_number(std::string_view word, std::string_view name, int most) {
  if (!word.starts_with(name) || word.size() <= name.size() || word[name.size()] != '=') {
    return std::nullopt;
  }
  const auto value = to_int(word.substr(name.size() + 1));
  if (!value || *value < 1 || *value > most) return std::nullopt;
  return static_cast<int>(*value);
}

// Reads the form of pipeline_text(), line by line.
class TextReader {
 public:
  explicit TextReader(std::string_view text) : cursor_(text) {}

  Result<PipelineSchedule> read() {
    GW_ASSIGN(const std::string_view first, next());
    GW_TRY(head(first));
    GW_TRY(places());
    while (ranks_read_ < schedule_.size()) GW_TRY(rank());
    std::string_view more;
    while (more.empty() && cursor_.next_line()) more = cursor_.word();
    if (more.empty()) return std::move(schedule_);
    return cursor_.error(more, "nothing behind the last rank");
  }

 private:
  // The first word of the next line that has one.
  Result<std::string_view> next() {
    while (cursor_.next_line()) {
      if (const std::string_view word = cursor_.word(); !word.empty()) return word;
    }
    return cursor_.error({}, schedule_.ranks.empty() ? "pipeline ranks=R stages=S micro-batches=M"
                                                     : format("rank %d:", ranks_read_));
  }

  Status number(std::string_view name, int most, int& value) {
    const std::string_view word = cursor_.word();
    const std::optional<int> found = named_number(word, name, most);
    if (!found) return cursor_.error(word, std::string(name) + "=1 to " + std::to_string(most));
    value = *found;
    return {};
  }

  Status end_of_line() {
    const std::string_view word = cursor_.word();
    if (word.empty()) return {};
    return cursor_.error(word, "the end of the line");
  }

  Status head(std::string_view first) {
    if (first != "pipeline") {
      return cursor_.error(first, "pipeline ranks=R stages=S micro-batches=M");
    }
    int ranks = 0;
    GW_TRY(number("ranks", kMostTextRanks, ranks));
    GW_TRY(number("stages", kMostStages, stages_));
    GW_TRY(number("micro-batches", kMostMicroBatches, schedule_.micro_batches));
    schedule_.ranks.resize(static_cast<std::size_t>(ranks));
    return end_of_line();
  }

  // The lines "place ...", and one of "layers ..."; then the first line of a rank is current.
  Status places() {
    while (true) {
      GW_ASSIGN(const std::string_view word, next());
      if (word == "rank" && !schedule_.rank_of.empty()) return operations();
      if (word == "layers" && schedule_.layers.empty()) {
        GW_TRY(layers());
        continue;
      }
      if (word != "place" || schedule_.pipes() == kMostPipes) {
        return cursor_.error(word, schedule_.rank_of.empty() ? "place and the rank of each stage"
                                                             : "place or rank 0:");
      }
      GW_TRY(place());
    }
  }

  Status place() {
    std::vector<int>& ranks = schedule_.rank_of.emplace_back();
    for (int stage = 0; stage < stages_; ++stage) {
      const std::string_view word = cursor_.word();
      const auto rank = to_int(word);
      if (!rank || *rank < 0 || *rank >= schedule_.size()) {
        return cursor_.error(word,
                             format("the rank of stage %d, 0 to %d", stage, schedule_.size() - 1));
      }
      ranks.push_back(static_cast<int>(*rank));
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
      schedule_.layers.push_back(static_cast<int>(*count));
    }
    return end_of_line();
  }

  Status rank() {
    GW_ASSIGN(const std::string_view word, next());
    if (word != "rank") return cursor_.error(word, format("rank %d:", ranks_read_));
    return operations();
  }

  // Behind the word "rank".
  Status operations() {
    const std::string wanted = std::to_string(ranks_read_) + ":";
    if (const std::string_view word = cursor_.word(); word != wanted) {
      return cursor_.error(word, wanted);
    }
    auto& ops = schedule_.ranks[static_cast<std::size_t>(ranks_read_++)];
    for (std::string_view word = cursor_.word(); !word.empty(); word = cursor_.word()) {
      const std::optional<PipelineOp> op = pipeline_op(word);
      if (!op) return cursor_.error(word, kWantedOp);
      ops.push_back(*op);
    }
    return {};
  }

  PipelineCursor cursor_;
  PipelineSchedule schedule_;
  int stages_ = 0;
  int ranks_read_ = 0;
};

// Reads the form of pipeline_csv().
class CsvReader {
 public:
  explicit CsvReader(std::string_view csv) : cursor_(csv) {}

  Result<PipelineSchedule> read() {
    while (cursor_.next_line()) {
      auto& ops = schedule_.ranks.emplace_back();
      if (schedule_.size() > kMostTextRanks) {
        return cursor_.error(cursor_.line(), format("at most %d ranks", kMostTextRanks));
      }
      for (std::string_view cell; cursor_.cell(cell);) {
        if (cell.empty()) continue;
        const std::optional<PipelineOp> op = pipeline_op(cell);
        if (!op) return cursor_.error(cell, kWantedOp);
        GW_TRY(place(*op, cell));
        ops.push_back(*op);
      }
    }
    GW_TRY(whole());
    return std::move(schedule_);
  }

 private:
  Status place(const PipelineOp& op, std::string_view cell) {
    auto& pipes = schedule_.rank_of;
    if (op.pipe >= pipes.size()) pipes.resize(op.pipe + std::size_t{1});
    auto& stages = pipes[op.pipe];
    if (op.stage >= stages.size()) stages.resize(op.stage + std::size_t{1}, -1);
    int& rank = stages[op.stage];
    if (rank < 0) rank = schedule_.size() - 1;
    if (has_micro_batch(op.kind)) {
      schedule_.micro_batches = std::max(schedule_.micro_batches, op.micro + 1);
    }
    if (rank == schedule_.size() - 1) return {};
    return cursor_.error(cell, format("stage %d of pipe %d on rank %d alone, where it stands first",
                                      op.stage, op.pipe, rank));
  }

  // Every stage of every pipe has been seen.
  Status whole() const {
    if (schedule_.micro_batches == 0) return cursor_.error({}, kWantedOp);
    std::size_t stages = 0;
    for (const auto& pipe : schedule_.rank_of) stages = std::max(stages, pipe.size());
    for (std::size_t pipe = 0; pipe < schedule_.rank_of.size(); ++pipe) {
      for (std::size_t stage = 0; stage < stages; ++stage) {
        const auto& found = schedule_.rank_of[pipe];
        if (stage < found.size() && found[stage] >= 0) continue;
        return cursor_.error(
            {}, format("an operation of stage %zu of pipe %zu on some rank", stage, pipe));
      }
    }
    return {};
  }

  PipelineCursor cursor_;
  PipelineSchedule schedule_;
};

}  // namespace

std::string pipeline_text(const PipelineSchedule& schedule) {
  std::string text = format("pipeline ranks=%d stages=%d micro-batches=%d\n", schedule.size(),
                            schedule.stages(), schedule.micro_batches);
  for (const auto& pipe : schedule.rank_of) {
    text += "place";
    for (const int rank : pipe) text += " " + std::to_string(rank);
    text += "\n";
  }
  if (!schedule.layers.empty()) text += "layers";
  for (const int count : schedule.layers) text += " " + std::to_string(count);
  if (!schedule.layers.empty()) text += "\n";
  for (std::size_t rank = 0; rank < schedule.ranks.size(); ++rank) {
    text += "rank " + std::to_string(rank) + ":";
    for (const PipelineOp& op : schedule.ranks[rank]) text += " " + to_string(op);
    text += "\n";
  }
  return text;
}

std::string pipeline_csv(const PipelineSchedule& schedule) {
  std::string csv;
  for (const auto& ops : schedule.ranks) {
    for (std::size_t i = 0; i < ops.size(); ++i) csv += (i == 0 ? "" : ",") + pytorch_text(ops[i]);
    csv += "\n";
  }
  return csv;
}

Result<PipelineSchedule> parse_pipeline_text(std::string_view text) {
  return TextReader(text).read();
}

Result<PipelineSchedule> parse_pipeline_csv(std::string_view csv) { return CsvReader(csv).read(); }

Result<PipelineSchedule> parse_pipeline(std::string_view text) {
  PipelineCursor cursor(text);
  while (cursor.next_line()) {
    if (const std::string_view word = cursor.word(); !word.empty()) {
      return word == "pipeline" ? parse_pipeline_text(text) : parse_pipeline_csv(text);
    }
  }
  return parse_pipeline_text(text);
}

}  // namespace gradwire
