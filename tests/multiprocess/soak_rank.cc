// One rank of a soak: a program for soak_test.py.
//
// All ranks draw the same random operations, sizes and communicators from a seed, and check every
// element. Now and then a rank, drawn too, aborts, and all go on with what shrink() gives them; in
// the end the last rank kills itself, and the others go on once more. For --calm
// seconds there are no faults, and groups are made anew instead.
// Memory in use is looked at after every shrink, and now and then while all is calm. What was
// wrong, and figures, go into --report as one line of JSON.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <fstream>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/elements.h"
#include "base/philox.h"
#include "base/text.h"
#include "gradwire/communicator.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kStepsPerLook = 40;  // between two looks at the clock, which rank 0 makes for all
constexpr int kKinds = 6;
constexpr long kWarmSteps = 2000;  // of the calm: most sizes have been drawn by then
// What growth is judged by; a slow machine gets so many seconds more to come to it.
constexpr long kShrinksToJudge = 3;
constexpr long kLooksToJudge = 2;
constexpr double kMoreSeconds = 60;

struct Plan {
  int rank = 0;
  int size = 4;
  std::string store, transport, report;
  double seconds = 10;
  double calm = 0;  // of these, in the beginning
  std::uint64_t seed = 1;
  int per_node = 0;  // ranks of each node; 0: all are where they are
};

struct Report {
  std::string trouble;
  long steps = 0;
  long shrinks = 0;
  double first_mib = 0;  // after the second shrink, when everything has been used once
  double most_mib = 0;   // later
  long calm_steps = 0;
  long calm_looks = 0;  // at memory, once warm
  double calm_first_mib = 0;
  double calm_most_mib = 0;  // later
};

double resident_mib() {
  std::ifstream file("/proc/self/statm");
  long whole = 0, resident = 0;
  file >> whole >> resident;
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// What all ranks draw alike for one step.
class Draw {
 public:
  Draw(std::uint64_t seed, long step)
      : words_(RandomStream(seed, RandomUse::kTest, 0, kSharedRank, 0,
                            static_cast<std::uint64_t>(step))
                   .block(0)) {}
  int kind() const { return static_cast<int>(words_[0] % kKinds); }
  // 1 to 100,000, short ones as often as long ones.
  std::size_t elems() const { return 1 + (words_[1] >> 8) % (std::size_t{1} << words_[1] % 17); }
  // As elems(), now and then up to 4 MiB, which goes in pieces where it goes by two levels.
  std::size_t tensor_elems() const {
    return words_[2] >> 8 & 31 ? elems() : 1 + (words_[1] >> 8) % (std::size_t{1} << 20);
  }
  std::size_t communicator() const { return words_[2] % 3; }
  int rank(int size) const { return static_cast<int>(words_[3] % static_cast<unsigned>(size)); }
  bool faulty() const { return words_[3] >> 8 < (1u << 24) / 150; }

 private:
  std::array<std::uint32_t, 4> words_;
};

Status outcome(Result<Work> work) {
  if (!work.has_value()) return work.error();
  return work.value().wait();
}

// Small whole numbers: sums are exact in any order.
float value(int job_rank, std::size_t i) { return static_cast<float>((job_rank + 1) * (i % 61)); }

Status wrong(const char* what) { return {Code::kInternal, std::string("wrong element: ") + what}; }

Status all_reduce(Communicator& c, std::size_t elems) {
  std::vector<float> data(elems);
  for (std::size_t i = 0; i < elems; ++i) data[i] = value(c.job_rank(c.rank()), i);
  const Status status = outcome(c.all_reduce(view_of(std::span(data)), ReduceOp::kSum));
  if (!status.ok()) return status;
  for (std::size_t i = 0; i < elems; ++i) {
    float sum = 0;
    for (int r = 0; r < c.size(); ++r) sum += value(c.job_rank(r), i);
    if (data[i] != sum) return wrong("all_reduce");
  }
  return {};
}

Status all_gather(Communicator& c, std::size_t elems) {
  std::vector<float> in(elems), out(elems * static_cast<std::size_t>(c.size()));
  for (std::size_t i = 0; i < elems; ++i) in[i] = value(c.job_rank(c.rank()), i);
  const Status status =
      outcome(c.all_gather(const_view_of(std::span<const float>(in)), view_of(std::span(out))));
  if (!status.ok()) return status;
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i] != value(c.job_rank(static_cast<int>(i / elems)), i % elems)) {
      return wrong("all_gather");
    }
  }
  return {};
}

Status all_to_all(Communicator& c, std::size_t elems) {
  const auto size = static_cast<std::size_t>(c.size());
  std::vector<float> in(elems * size), out(elems * size);
  for (std::size_t i = 0; i < in.size(); ++i) in[i] = value(c.job_rank(c.rank()), i / elems);
  const Status status =
      outcome(c.all_to_all(const_view_of(std::span<const float>(in)), view_of(std::span(out))));
  if (!status.ok()) return status;
  for (std::size_t i = 0; i < out.size(); ++i) {
    const int from = c.job_rank(static_cast<int>(i / elems));
    if (out[i] != value(from, static_cast<std::size_t>(c.rank()))) return wrong("all_to_all");
  }
  return {};
}

Status broadcast(Communicator& c, std::size_t elems, int root) {
  std::vector<float> data(elems);
  for (std::size_t i = 0; i < elems; ++i) data[i] = value(c.job_rank(c.rank()), i);
  const Status status = outcome(c.broadcast(view_of(std::span(data)), root));
  if (!status.ok()) return status;
  for (std::size_t i = 0; i < elems; ++i) {
    if (data[i] != value(c.job_rank(root), i)) return wrong("broadcast");
  }
  return {};
}

Status ring_of_messages(Communicator& c, std::size_t elems) {
  if (c.size() == 1) return {};
  std::vector<float> out(elems), in(elems);
  for (std::size_t i = 0; i < elems; ++i) out[i] = value(c.job_rank(c.rank()), i);
  const int next = (c.rank() + 1) % c.size();
  const int before = (c.rank() + c.size() - 1) % c.size();
  auto sending = c.send(const_view_of(std::span<const float>(out)), next);
  const Status received = outcome(c.recv(view_of(std::span(in)), before));
  const Status sent = outcome(std::move(sending));
  if (!received.ok()) return received;
  if (!sent.ok()) return sent;
  for (std::size_t i = 0; i < elems; ++i) {
    if (in[i] != value(c.job_rank(before), i)) return wrong("recv");
  }
  return {};
}

// The whole job, its halves and its pairs across them.
struct Groups {
  std::unique_ptr<Communicator> world, half, across;

  Status split() {
    GW_ASSIGN(half, world->split(world->rank() / 2, 0));
    GW_ASSIGN(across, world->split(world->rank() % 2, 0));
    return {};
  }
  Communicator& at(std::size_t which) { return which == 0 ? *world : which == 1 ? *half : *across; }
};

Status step(Groups& groups, const Draw& draw) {
  Communicator& c = groups.at(draw.communicator());
  switch (draw.kind()) {
    case 0: return all_reduce(c, draw.tensor_elems());
    case 1: return all_gather(c, draw.elems());
    case 2: return all_to_all(c, draw.elems() / 4 + 1);
    case 3: return broadcast(c, draw.tensor_elems(), draw.rank(c.size()));
    case 4: return ring_of_messages(c, draw.elems());
    default: return outcome(c.barrier());
  }
}

Status shrink(Groups& groups, Report& report) {
  groups.half.reset();
  groups.across.reset();
  GW_ASSIGN(auto next, groups.world->shrink());
  groups.world = std::move(next);
  ++report.shrinks;
  const double now = resident_mib();
  if (report.shrinks == 2) report.first_mib = now;
  if (report.shrinks > 2) report.most_mib = std::max(report.most_mib, now);
  return groups.split();
}

// The drawn rank gives up; the others notice. All of them are there afterwards.
Status fault(Groups& groups, const Draw& draw, Report& report) {
  const int size = groups.world->size();
  Status status = outcome(groups.world->barrier());  // all have finished the step before
  if (groups.world->rank() == draw.rank(size)) {
    GW_TRY(status);
    groups.world->abort("soak");
  } else if (status.ok()) {
    status = outcome(groups.world->barrier());
    if (status.ok()) return {Code::kInternal, "a barrier without the rank that aborted"};
  }
  GW_TRY(shrink(groups, report));
  return groups.world->size() == size ? Status()
                                      : Status(Code::kInternal, "a rank was left behind");
}

enum class Phase : std::int32_t { kCalm, kFaults, kOver };

// When rank 0's clock, which is everybody's, lets a phase end.
struct Ends {
  explicit Ends(const Plan& plan)
      : with_calm(plan.calm > 0),
        calm(deadline_in(plan.calm)),
        all(deadline_in(plan.seconds)),
        last(deadline_in(plan.seconds + kMoreSeconds)) {}

  Phase phase_now(const Report& report) const {
    const Deadline now = Clock::now();
    if (now >= last) return Phase::kOver;
    if (now < calm || (with_calm && report.calm_looks < kLooksToJudge)) return Phase::kCalm;
    return now < all || report.shrinks < kShrinksToJudge ? Phase::kFaults : Phase::kOver;
  }

  bool with_calm;
  Deadline calm, all, last;
};

Result<Phase> agree_on(Communicator& world, Phase own) {
  std::vector<std::int32_t> phase{static_cast<std::int32_t>(own)};
  GW_TRY(outcome(world.broadcast(view_of(std::span(phase)), 0)));
  return static_cast<Phase>(phase[0]);
}

void look_at_memory(Report& report) {
  report.calm_steps = report.steps;
  if (report.steps < kWarmSteps) return;
  const double now = resident_mib();
  if (report.calm_looks++ == 0) report.calm_first_mib = now;
  report.calm_most_mib = std::max(report.calm_most_mib, now);
}

Status work(const Plan& plan, Groups& groups, Report& report) {
  GW_TRY(groups.split());
  const Ends ends(plan);
  Phase phase = Phase::kCalm;
  for (;; ++report.steps) {
    const Draw draw(plan.seed, report.steps);
    if (report.steps % kStepsPerLook == 0) {
      GW_ASSIGN(phase, agree_on(*groups.world, ends.phase_now(report)));
      if (phase == Phase::kOver) return {};
      if (phase == Phase::kCalm) look_at_memory(report);
    }
    if (draw.faulty()) {
      GW_TRY(phase == Phase::kCalm ? groups.split() : fault(groups, draw, report));
    }
    GW_TRY(step(groups, draw));
  }
}

Status lose_the_last(Groups& groups, Report& report) {
  const int size = groups.world->size();
  if (groups.world->rank() == size - 1) kill(getpid(), SIGKILL);
  Status status;
  for (int i = 0; i < 1000 && status.ok(); ++i) status = all_reduce(*groups.world, 1000);
  if (status.code() != Code::kPeerLost)
    return {Code::kInternal, "no loss: " + std::string(status.message())};
  GW_TRY(shrink(groups, report));
  for (int i = 0; i < 100; ++i) GW_TRY(all_reduce(*groups.world, 1000));
  return {};
}

Status play(const Plan& plan, Report& report) {
  GW_ASSIGN(auto store, make_file_store(plan.store));
  Rendezvous rendezvous{.rank = plan.rank, .size = plan.size, .job = "soak", .store = store};
  rendezvous.timeout_seconds = 60;
  CommunicatorOptions options{.deadline_seconds = 20};
  for (int r = 0; plan.per_node > 0 && r < plan.size; ++r) {
    options.node_of.push_back(r / plan.per_node);
  }
  Groups groups;
  GW_ASSIGN(groups.world, make_communicator(plan.transport, rendezvous, options));
  if (plan.rank == 0) std::fprintf(stderr, "%s\n", groups.world->describe().c_str());
  GW_TRY(work(plan, groups, report));
  return lose_the_last(groups, report);
}

int soak(int argc, char** argv) {
  std::map<std::string, std::string> flags;
  for (int i = 1; i + 1 < argc; i += 2) flags[std::string(argv[i]).substr(2)] = argv[i + 1];
  Plan plan;
  plan.rank = static_cast<int>(to_int(flags["rank"]).value_or(0));
  plan.size = static_cast<int>(to_int(flags["size"]).value_or(4));
  plan.store = flags["store"];
  plan.transport = flags["transport"];
  plan.report = flags["report"];
  plan.seconds = to_double(flags["seconds"]).value_or(10);
  plan.calm = to_double(flags["calm"]).value_or(0);
  plan.seed = static_cast<std::uint64_t>(to_int(flags["seed"]).value_or(1));
  plan.per_node = static_cast<int>(to_int(flags["per-node"]).value_or(0));
  Report report;
  const Status status = play(plan, report);
  std::string trouble(status.ok() ? "" : status.message());
  std::ranges::replace(trouble, '"', '\'');
  std::ofstream(plan.report)
      << format("{\"rank\":%d,\"steps\":%ld,\"shrinks\":%ld,\"first_mib\":%.1f,\"most_mib\":%.1f,",
                plan.rank, report.steps, report.shrinks, report.first_mib, report.most_mib)
      << format(
             "\"calm_steps\":%ld,\"calm_looks\":%ld,\"calm_first_mib\":%.1f,\"calm_most_mib\":%."
             "1f,",
             report.calm_steps, report.calm_looks, report.calm_first_mib, report.calm_most_mib)
      << "\"trouble\":\"" << trouble << "\"}\n";
  return status.ok() ? 0 : 1;
}

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) { return gradwire::soak(argc, argv); }
