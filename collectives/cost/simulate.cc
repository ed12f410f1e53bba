#include "collectives/cost/simulate.h"

#include <algorithm>
#include <array>
#include <deque>
#include <map>
#include <queue>
#include <tuple>

#include "base/text.h"

namespace gradwire {
namespace {

// The state of one run. A place is a program with its ports and its clock: a rank, or the ranks it
// stands for. Symmetry holds while ties are broken by what all of these share: the order in a round
// and the offset between the ends of a message, never a rank's number.
class Run {
 public:
  Run(const TimedJob& job, const SimulationOptions& options);

  Result<Simulation> run() {
    for (std::size_t t = 0; t < threads_.size(); ++t) at(now_, Event::Kind::kRound, t);
    while (!events_.empty()) {
      now_ = events_.top().time;
      // Everything that happens now comes before what starts now: else the order of threads, not
      // that of the schedules, would decide who gets a port.
      while (!events_.empty() && events_.top().time == now_) {
        const Event event = events_.top();
        events_.pop();
        handle(event);
      }
      start_what_can();
    }
    return result();
  }

 private:
  // A slot of a place: runs its cuts one after another.
  struct Thread {
    int place = 0;
    std::uint64_t slot = 0;
    int cut = 0;
    std::size_t round = 0;
    int open = 0;  // messages of the round
    std::int64_t reduce_bytes = 0;
    bool done = false;
  };
  struct Message {
    std::size_t from = 0;  // threads
    std::size_t to = 0;
    std::int64_t bytes = 0;
    std::uint32_t order = 0;  // of the send in its round
    std::int32_t distance = 0;
    bool inside = false;   // a node
    ExactTime ready = {};  // both ends were there
  };
  struct Ports {
    bool out_busy = false;
    bool in_busy = false;
    std::deque<std::size_t> out;  // messages that are ready, in order
    std::deque<std::size_t> in;
    ExactTime reducing_until;
  };
  struct Event {
    ExactTime time;
    enum class Kind : std::uint8_t { kRound, kFree, kArrived, kFreeAndArrived } kind;
    std::size_t subject;  // thread or message
    std::uint64_t number;
    bool operator>(const Event& other) const {
      return time != other.time ? time > other.time : number > other.number;
    }
  };

  Ports& ports(std::size_t thread) { return ports_[place_of(thread)]; }
  std::size_t place_of(std::size_t thread) const {
    return static_cast<std::size_t>(threads_[thread].place);
  }
  const TimedProgram& program_of(const Thread& thread) const {
    return job_.programs[static_cast<std::size_t>(thread.place)];
  }

  int cuts_of(std::int64_t elems) const {
    if (options_.segment_bytes <= 0 || !job_.programs.front().divisible) return 1;
    const std::int64_t per_segment =
        std::max<std::int64_t>(1, options_.segment_bytes / options_.elem_bytes);
    return static_cast<int>(std::max<std::int64_t>(1, (elems + per_segment - 1) / per_segment));
  }

  // Bytes that are still to be reduced when all of the cell has arrived: one cut, unless reducing
  // takes longer than arriving.
  std::int64_t seen_of_reduction(std::int64_t bytes) const {
    const std::int64_t cut = options_.overlap_bytes;
    const bool hides =
        cut > 0 && job_.programs.front().divisible && gamma_ < beta_[all_inside_ ? 1 : 0];
    return hides ? std::min(cut, bytes) : bytes;
  }

  void at(ExactTime time, Event::Kind kind, std::size_t subject) {
    events_.push({time, kind, subject, next_number_++});
  }

  void handle(const Event& event) {
    if (event.kind == Event::Kind::kRound) return run_rounds(event.subject);
    const Message message = messages_[event.subject];
    if (event.kind != Event::Kind::kArrived) {
      ports(message.from).out_busy = false;
      ports(message.to).in_busy = false;
      senders_.push_back(place_of(message.from));
      receivers_.push_back(place_of(message.to));
    }
    if (event.kind == Event::Kind::kFree) return;
    unused_.push_back(event.subject);
    message_arrived(message.from);
    message_arrived(message.to);
  }

  // From the round that the thread stands before, until one has to be waited for.
  void run_rounds(std::size_t t) {
    while (!threads_[t].done && !post_round(t)) {
      if (!next_round(threads_[t])) return;
    }
  }

  // Whether there is something to wait for: messages.
  bool post_round(std::size_t t) {
    Thread& thread = threads_[t];
    const TimedProgram& program = program_of(thread);
    thread.reduce_bytes = 0;
    if (thread.round == program.round_ends.size()) return false;
    const std::uint32_t begin = thread.round == 0 ? 0 : program.round_ends[thread.round - 1];
    for (std::uint32_t i = begin; i < program.round_ends[thread.round]; ++i) {
      const TimedStep& step = program.steps[i];
      const int cuts = cuts_of(step.elems);
      if (thread.cut >= cuts) continue;
      const std::int64_t bytes = piece(step.elems, cuts, thread.cut).size() * options_.elem_bytes;
      if (step.is_message()) {
        offer(t, i, i - begin, bytes);
      } else {
        thread.reduce_bytes += seen_of_reduction(bytes);
      }
    }
    return thread.open > 0;
  }

  // Ends the round; false if the next begins later, or never.
  bool next_round(Thread& thread) {
    const TimedProgram& program = program_of(thread);
    const bool last = ++thread.round >= program.round_ends.size();
    const std::int64_t bytes = thread.reduce_bytes;
    thread.reduce_bytes = 0;
    ExactTime until = now_;
    if (bytes > 0) {
      ExactTime& busy = ports_[static_cast<std::size_t>(thread.place)].reducing_until;
      busy = std::max(busy, now_) + bytes * gamma_;
      until = busy;
    }
    if (last) {
      end_ = std::max(end_, until);
      thread.round = 0;
      thread.cut += options_.slots;
      thread.done = thread.cut >= std::min(cuts_of(program.largest), most_cuts_);
    }
    if (thread.done || until == now_) return !thread.done;
    at(until, Event::Kind::kRound, static_cast<std::size_t>(&thread - threads_.data()));
    return false;
  }

  // Meets the other end, or waits for it. A slot is at one of a program's messages once at a time,
  // so there is no more than one end of each to meet.
  void offer(std::size_t t, std::uint32_t number, std::uint32_t order, std::int64_t bytes) {
    Thread& thread = threads_[t];
    ++thread.open;
    const auto place = static_cast<std::size_t>(thread.place);
    const TimedStep& step = job_.programs[place].steps[number];
    if (step.partner < 0) return;
    const std::size_t slot = static_cast<std::size_t>(thread.slot) * steps_;
    const auto partner = static_cast<std::size_t>(step.partner);
    if (!waits_[slot + partner]) {
      waits_[slot + first_step_[place] + number] = true;
      return;
    }
    waits_[slot + partner] = false;
    std::size_t index = messages_.size();
    if (unused_.empty()) {
      messages_.emplace_back();
    } else {
      index = unused_.back();
      unused_.pop_back();
    }
    const std::size_t slots = threads_.size() / ports_.size();
    const auto other = static_cast<std::size_t>(step.place) * slots + thread.slot;
    const bool send = step.kind == TimedStep::Kind::kSend;
    Message& message = messages_[index];
    message = {send ? t : other, send ? other : t, bytes, order, step.distance, step.inside, now_};
    if (!send) message.order = order_of(other, partner);
    fresh_.push_back(index);
  }

  void message_arrived(std::size_t t) {
    if (--threads_[t].open > 0) return;
    if (next_round(threads_[t])) run_rounds(t);
  }

  void start_what_can() {
    std::ranges::sort(fresh_, [this](std::size_t a, std::size_t b) { return earlier(a, b); });
    for (const std::size_t index : fresh_) {
      const std::size_t sender = place_of(messages_[index].from);
      ports_[sender].out.push_back(index);
      ports(messages_[index].to).in.push_back(index);
      senders_.push_back(sender);
    }
    fresh_.clear();
    // Two may want the same port; the one that loses looks again.
    for (find_startable(); !startable_.empty(); find_startable()) {
      for (const std::size_t index : startable_) {
        const Message& message = messages_[index];
        if (!ports(message.from).out_busy && !ports(message.to).in_busy) start(index);
      }
    }
    senders_.clear();
    receivers_.clear();
  }

  bool earlier(std::size_t a, std::size_t b) const {
    const auto key = [this](std::size_t index) {
      const Message& m = messages_[index];
      return std::tuple(m.ready, m.order, threads_[m.from].slot, m.distance);
    };
    return key(a) < key(b);
  }

  // Of every port that has news, the first message whose other port is free too.
  void find_startable() {
    startable_.clear();
    const auto look = [this](std::size_t place, bool send) {
      const Ports& own = ports_[place];
      if (send ? own.out_busy : own.in_busy) return;
      const std::deque<std::size_t>& queue = send ? own.out : own.in;
      const auto free = [&](std::size_t index) {
        return send ? !ports(messages_[index].to).in_busy : !ports(messages_[index].from).out_busy;
      };
      const auto found = std::ranges::find_if(queue, free);
      if (found != queue.end()) startable_.push_back(*found);
    };
    for (const std::size_t place : senders_) look(place, true);
    for (const std::size_t place : receivers_) look(place, false);
    std::ranges::sort(startable_, [this](std::size_t a, std::size_t b) { return earlier(a, b); });
  }

  void start(std::size_t index) {
    const Message& message = messages_[index];
    Ports& sender = ports(message.from);
    Ports& receiver = ports(message.to);
    sender.out_busy = receiver.in_busy = true;
    sender.out.erase(std::ranges::find(sender.out, index));
    receiver.in.erase(std::ranges::find(receiver.in, index));
    const std::size_t level = message.inside ? 1 : 0;
    const ExactTime bytes = message.bytes * beta_[level];
    const ExactTime arrived = now_ + bytes + alpha_[level];
    if (options_.links.gap == 1) return at(arrived, Event::Kind::kFreeAndArrived, index);
    at(now_ + bytes + gap_[level], Event::Kind::kFree, index);
    at(arrived, Event::Kind::kArrived, index);
  }

  // A step's place in the round that its thread is in.
  std::uint32_t order_of(std::size_t t, std::size_t step) const {
    const Thread& thread = threads_[t];
    const auto number =
        static_cast<std::uint32_t>(step) - first_step_[static_cast<std::size_t>(thread.place)];
    return thread.round == 0 ? number : number - program_of(thread).round_ends[thread.round - 1];
  }

  Result<Simulation> result() const {
    for (const Thread& thread : threads_) {
      if (thread.done) continue;
      return Status(Code::kInternal,
                    format("simulate: rank %d waits in round %zu for a message that is never sent",
                           thread.place, thread.round + 1));
    }
    Simulation simulation{.time = end_,
                          .steps = static_cast<std::int64_t>(steps_),
                          .simulated_ranks = static_cast<int>(job_.programs.size())};
    std::vector<std::int64_t> left(job_.programs.size());  // bytes that leave a rank's node
    const std::int64_t alike = job_.size / simulation.simulated_ranks;
    for (std::size_t place = 0; place < left.size(); ++place) {
      const TimedProgram& program = job_.programs[place];
      std::int64_t sent = 0;
      for (const TimedStep& step : program.steps) {
        const std::int64_t bytes = step.elems * options_.elem_bytes;
        if (step.kind == TimedStep::Kind::kReduce) simulation.all_reduced += alike * bytes;
        if (step.kind != TimedStep::Kind::kSend) continue;
        simulation.all_messages += alike;
        sent += bytes;
        if (!step.inside) left[place] += bytes;
      }
      simulation.all_sent += alike * sent;
      simulation.rounds = std::max(simulation.rounds, static_cast<int>(program.round_ends.size()));
      simulation.wire_bytes_max = std::max(simulation.wire_bytes_max, sent);
    }
    std::map<int, std::int64_t> by_node;
    for (int rank = 0; rank < job_.size; ++rank) {
      const auto at = static_cast<std::size_t>(rank);
      by_node[job_.node_of.empty() ? rank : job_.node_of[at]] += left[at % left.size()];
    }
    for (const auto& [node, bytes] : by_node) {
      simulation.node_bytes_max = std::max(simulation.node_bytes_max, bytes);
    }
    return simulation;
  }

  const TimedJob& job_;
  const SimulationOptions& options_;
  std::array<ExactTime, 2> alpha_, beta_, gap_;  // [1]: inside a node
  ExactTime gamma_;
  bool all_inside_ = true;  // every message stays in a node
  ExactTime now_;
  int most_cuts_ = 1;
  ExactTime end_;
  std::vector<std::uint32_t> first_step_;  // by place, among all of the job
  std::vector<Thread> threads_;
  std::vector<Ports> ports_;
  std::vector<Message> messages_;
  std::vector<std::size_t> unused_;  // of messages_
  // By slot and step of the job: whether this end of a message waits for the other.
  std::vector<bool> waits_;
  std::size_t steps_ = 0;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_number_ = 0;
  std::vector<std::size_t> fresh_;    // messages that became ready at this instant
  std::vector<std::size_t> senders_;  // places that may have something to start now
  std::vector<std::size_t> receivers_;
  std::vector<std::size_t> startable_;
};

Run::Run(const TimedJob& job, const SimulationOptions& options) : job_(job), options_(options) {
  const LinkModel& links = options.links;
  const std::array alphas{links.alpha, links.alpha_intra};
  const std::array betas{links.beta, links.beta_intra};
  for (std::size_t level = 0; level < 2; ++level) {
    alpha_[level] = ExactTime::from_seconds(alphas[level]);
    beta_[level] = ExactTime::from_seconds(betas[level]);
    gap_[level] = ExactTime::from_seconds(links.gap * alphas[level]);
  }
  gamma_ = ExactTime::from_seconds(links.gamma);
  ports_.resize(job.programs.size());
  std::int64_t largest = 0;  // slots are the same on all ranks, as the executor's tags want it
  for (const TimedProgram& program : job.programs) {
    largest = std::max(largest, program.largest);
    first_step_.push_back(static_cast<std::uint32_t>(steps_));
    steps_ += program.steps.size();
    for (const TimedStep& step : program.steps) {
      if (step.is_message() && !step.inside) all_inside_ = false;
    }
  }
  most_cuts_ = cuts_of(largest);
  if (options.most_cuts > 0) most_cuts_ = std::min(options.most_cuts, most_cuts_);
  const int slots = std::min(options.slots, most_cuts_);
  waits_.resize(steps_ * static_cast<std::size_t>(slots));
  for (std::size_t place = 0; place < job.programs.size(); ++place) {
    for (int slot = 0; slot < slots; ++slot) {
      threads_.push_back({.place = static_cast<int>(place),
                          .slot = static_cast<std::uint64_t>(slot),
                          .cut = slot});
    }
  }
}

}  // namespace

Result<Simulation> simulate(const TimedJob& job, const SimulationOptions& options) {
  return Run(job, options).run();
}

// Of every round what its messages keep the busier port for, and the last one's start.
ExactTime least_time(const TimedProgram& program, const SimulationOptions& options) {
  const LinkModel& links = options.links;
  const double gamma = options.overlap_bytes > 0 ? 0 : links.gamma;
  double seconds = 0;
  std::uint32_t i = 0;
  for (const std::uint32_t end : program.round_ends) {
    std::array<double, 2> busy{};  // the out-port and the in-port
    double alpha = 0;              // the shortest start of the round
    for (; i < end; ++i) {
      const TimedStep& step = program.steps[i];
      const auto bytes = static_cast<double>(step.elems * options.elem_bytes);
      if (!step.is_message()) {
        seconds += bytes * gamma;
        continue;
      }
      const double start = step.inside ? links.alpha_intra : links.alpha;
      const double beta = step.inside ? links.beta_intra : links.beta;
      double& port = busy[step.kind == TimedStep::Kind::kSend ? 0 : 1];
      alpha = alpha == 0 ? start : std::min(alpha, start);
      port += links.gap * start + bytes * beta;
    }
    const double port = std::max(busy[0], busy[1]);
    if (port > 0 || alpha > 0) seconds += port + (1 - links.gap) * alpha;
  }
  return ExactTime::from_seconds(seconds);
}

}  // namespace gradwire
