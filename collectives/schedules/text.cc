// A schedule as a table for people.
#include <string>

#include "base/text.h"
#include "gradwire/schedule.h"

namespace gradwire {
namespace {

std::string to_text(const Place& place) {
  const char* buffer = place.buffer == BufferId::kIn    ? "in"
                       : place.buffer == BufferId::kOut ? "out"
                                                        : "scratch";
  return format("%s[%lld, %lld)", buffer, static_cast<long long>(place.range.begin),
                static_cast<long long>(place.range.end));
}

std::string to_text(const Step& step) {
  switch (step.op) {
    case Step::Op::kSend: return to_text(step.from) + " -> rank " + std::to_string(step.peer);
    case Step::Op::kRecvReduce: return to_text(step.to) + " op= rank " + std::to_string(step.peer);
    case Step::Op::kRecvCopy: return to_text(step.to) + " <- rank " + std::to_string(step.peer);
    case Step::Op::kCopy: return to_text(step.to) + " = " + to_text(step.from);
    case Step::Op::kReduce: return to_text(step.to) + " op= " + to_text(step.from);
    case Step::Op::kFinish: return "finish " + to_text(step.to);
  }
  return "?";
}

}  // namespace

std::string to_string(const Schedule& schedule) {
  std::string text = format(
      "rank %d of %d: in %lld, out %lld, scratch %lld elements%s%s\n", schedule.rank, schedule.size,
      static_cast<long long>(schedule.in_elems), static_cast<long long>(schedule.out_elems),
      static_cast<long long>(schedule.scratch_elems), schedule.in_place ? ", in place" : "",
      schedule.divisible ? "" : ", in one cut");
  for (std::size_t t = 0; t < schedule.rounds.size(); ++t) {
    std::string lead = format("  round %2zu  ", t + 1);
    for (const Step& step : schedule.rounds[t]) {
      text += lead + to_text(step) + "\n";
      lead.assign(lead.size(), ' ');
    }
  }
  for (std::size_t k = 0; k < schedule.stretches.size(); ++k) {
    text += format("chunk %zu: ", k + 1) + to_string(schedule.stretches[k]);
  }
  return text;
}

}  // namespace gradwire
