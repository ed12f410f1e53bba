#include "collectives/failure/roll_call.h"

#include <algorithm>
#include <chrono>
#include <set>

namespace gradwire {
namespace {

using Standing = EngineNote::Standing;

std::string told(const FlightRecord& record) {
  return to_string(record.signature) + " (operation " + std::to_string(record.number) + ")";
}

void note_answer(RollCall& call, int from, const EngineNote& answer, const Question& question) {
  call.answered.push_back(from);
  if (answer.standing == Standing::kNotBegun) {
    if (call.absent.empty()) call.absent_do = answer.text;
    call.absent.push_back(from);
  }
  const bool described = answer.standing == Standing::kRuns || answer.standing == Standing::kDone;
  if (described && !answer.text.empty() && answer.text != question.description &&
      call.disagreement.empty()) {
    call.disagreement = "rank " + std::to_string(from) +
                        (answer.standing == Standing::kRuns ? " runs " : " has run ") + answer.text;
  }
}

}  // namespace

void answer(Transport& transport, int to, const EngineNote& ask, const FlightRecorder& recorder,
            const Status& failure) {
  EngineNote note{.kind = EngineNote::Kind::kAnswer,
                  .communicator = ask.communicator,
                  .operation = ask.operation};
  if (const auto record = recorder.last_of(ask.communicator, ask.operation)) {
    const bool runs = record->state == FlightRecord::State::kRunning;
    note.standing = runs ? Standing::kRuns : Standing::kDone;
    note.text = to_string(record->signature);
  } else if (recorder.has_begun(ask.communicator, ask.operation)) {
    note.standing = Standing::kDone;  // or about to be: it is not waiting for messages
  } else {
    note.standing = Standing::kNotBegun;
    if (const auto last = recorder.last_of(ask.communicator)) note.text = told(*last);
  }
  if (!failure.ok() && note.standing == Standing::kNotBegun) {
    note.standing = Standing::kFailed;  // it would have come
    note.text = failure.message();
  }
  transport.tell(to, encode(note));
}

RollCall take_roll_call(Transport& transport, const Question& question,
                        const FlightRecorder& recorder, double seconds) {
  RollCall call;
  std::set<int> asked;
  const auto forget_lost = [&] {
    for (const LostPeer& lost : transport.all_lost()) asked.erase(lost.rank);
  };
  asked.insert(question.group.begin(), question.group.end());
  asked.erase(transport.rank());
  forget_lost();
  const EngineNote ask{.kind = EngineNote::Kind::kAsk,
                       .communicator = question.communicator,
                       .operation = question.operation,
                       .text = question.description};
  for (const int rank : asked) transport.tell(rank, encode(ask));
  const Deadline until = deadline_in(seconds);
  while (true) {
    if (!transport.progress().has_value()) break;
    for (const Note& note : transport.take_notes()) {
      const auto heard = decode_note(note.bytes, transport.size());
      if (!heard) continue;
      // Proposals come again.
      if (heard->kind == EngineNote::Kind::kAsk) answer(transport, note.from, *heard, recorder, {});
      const bool wanted = heard->kind == EngineNote::Kind::kAnswer &&
                          heard->communicator == question.communicator &&
                          heard->operation == question.operation;
      if (wanted && asked.erase(note.from) > 0) note_answer(call, note.from, *heard, question);
    }
    forget_lost();
    const Deadline now = std::chrono::steady_clock::now();
    if (asked.empty() || now >= until) break;
    if (!transport.wait(std::min(until, now + std::chrono::milliseconds(20))).ok()) break;
  }
  call.silent.assign(asked.begin(), asked.end());
  std::ranges::sort(call.absent);
  std::ranges::sort(call.answered);
  return call;
}

std::string ranks_text(const std::vector<int>& ranks) {
  if (ranks.empty()) return "no rank";
  return (ranks.size() == 1 ? "rank " : "ranks ") + numbers_text(ranks, ", ");
}

}  // namespace gradwire
