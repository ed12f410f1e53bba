#include "collectives/cost/simulate.h"

#include <algorithm>
#include <deque>
#include <queue>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "collectives/cost/simulate_program.h"

namespace gradwire {
namespace {

// The state of one run. A place is a program with its ports and its clock: a rank, or the ranks it
// stands for. Symmetry holds while ties are broken by what all of these share: the order in a round
// and the offset between the ends of a message, never a rank's number.
class Run {
 public:
  Run(const TimedJob& job, const SimulationOptions& options);
  Result<Simulation> run();

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
  // One end of a message.
  struct End {
    std::size_t thread = 0;
    std::uint32_t order = 0;  // in its round
    std::int64_t bytes = 0;
    bool send = false;
  };
  struct Message {
    std::size_t from = 0;  // threads
    std::size_t to = 0;
    std::int64_t bytes = 0;
    std::uint32_t order = 0;  // of the send in its round
    std::int32_t offset = 0;
    ExactTime ready = {};  // both ends were there
  };
  struct Ports {
    bool out_busy = false;
    bool in_busy = false;
    std::deque<std::size_t> out;  // messages that are ready, in order
    std::deque<std::size_t> in;
    ExactTime reducing_until;
    std::int64_t sent = 0;
    std::int64_t left_node = 0;
  };
  struct Event {
    ExactTime time;
    enum class Kind : std::uint8_t { kRound, kFree, kArrived } kind;
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
  int cuts_of(std::int64_t elems) const;
  void at(ExactTime time, Event::Kind kind, std::size_t subject);
  void handle(const Event& event);
  void run_rounds(std::size_t thread);
  bool post_round(std::size_t thread);
  bool next_round(Thread& thread);
  void offer(std::size_t thread, const TimedStep& step, std::uint32_t order, std::int64_t bytes);
  void match(const End& send, const End& receive, std::int32_t offset);
  void message_arrived(std::size_t thread);
  void start_what_can();
  bool earlier(std::size_t a, std::size_t b) const;
  void find_startable();
  void start(std::size_t message);
  Result<Simulation> result() const;

  const TimedJob& job_;
  const SimulationOptions& options_;
  ExactTime alpha_[2], beta_[2], gap_[2];  // [1]: inside a node
  ExactTime gamma_;
  ExactTime now_;
  ExactTime end_;
  std::vector<Thread> threads_;
  std::vector<Ports> ports_;
  std::vector<Message> messages_;
  std::vector<std::size_t> unused_;  // of messages_
  // Ends that wait for the other, oldest first, by sending place, offset and slot.
  std::unordered_map<std::uint64_t, std::vector<End>> lonely_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t next_number_ = 0;
  std::vector<std::size_t> fresh_;    // messages that became ready at this instant
  std::vector<std::size_t> senders_;  // places that may have something to start now
  std::vector<std::size_t> receivers_;
  std::vector<std::size_t> startable_;
  Status error_;
};

Run::Run(const TimedJob& job, const SimulationOptions& options) : job_(job), options_(options) {
  const LinkModel& links = options.links;
  alpha_[0] = ExactTime::from_seconds(links.alpha);
  alpha_[1] = ExactTime::from_seconds(links.alpha_intra);
  beta_[0] = ExactTime::from_seconds(links.beta);
  beta_[1] = ExactTime::from_seconds(links.beta_intra);
  gamma_ = ExactTime::from_seconds(links.gamma);
  gap_[0] = ExactTime::from_seconds(links.gap * links.alpha);
  gap_[1] = ExactTime::from_seconds(links.gap * links.alpha_intra);
  ports_.resize(job.programs.size());
  std::int64_t largest = 0;  // slots are the same on all ranks, as the executor's tags want it
  for (const TimedProgram& program : job.programs) largest = std::max(largest, program.largest);
  const int slots = std::min(options.slots, cuts_of(largest));
  for (std::size_t place = 0; place < job.programs.size(); ++place) {
    for (int slot = 0; slot < slots; ++slot) {
      threads_.push_back({.place = static_cast<int>(place),
                          .slot = static_cast<std::uint64_t>(slot),
                          .cut = slot});
    }
  }
}

int Run::cuts_of(std::int64_t elems) const {
  if (options_.segment_bytes <= 0 || !job_.programs.front().divisible) return 1;
  const std::int64_t per_segment =
      std::max<std::int64_t>(1, options_.segment_bytes / options_.elem_bytes);
  return static_cast<int>(std::max<std::int64_t>(1, (elems + per_segment - 1) / per_segment));
}

void Run::at(ExactTime time, Event::Kind kind, std::size_t subject) {
  events_.push({time, kind, subject, next_number_++});
}

Result<Simulation> Run::run() {
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
    GW_TRY(error_);
    start_what_can();
  }
  return result();
}

void Run::handle(const Event& event) {
  if (event.kind == Event::Kind::kRound) return run_rounds(event.subject);
  const Message message = messages_[event.subject];
  if (event.kind == Event::Kind::kFree) {
    ports(message.from).out_busy = false;
    ports(message.to).in_busy = false;
    senders_.push_back(place_of(message.from));
    receivers_.push_back(place_of(message.to));
    return;
  }
  unused_.push_back(event.subject);
  message_arrived(message.from);
  message_arrived(message.to);
}

// From the round that the thread stands before, until one has to be waited for.
void Run::run_rounds(std::size_t t) {
  while (!threads_[t].done && !post_round(t)) {
    if (!next_round(threads_[t])) return;
  }
}

// Whether there is something to wait for: messages.
bool Run::post_round(std::size_t t) {
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
    if (step.reduces()) thread.reduce_bytes += bytes;
    if (step.is_message()) offer(t, step, i - begin, bytes);
  }
  return thread.open > 0;
}

// Ends the round; false if the next begins later, or never.
bool Run::next_round(Thread& thread) {
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
    thread.done = thread.cut >= cuts_of(program.largest);
  }
  if (thread.done || until == now_) return !thread.done;
  at(until, Event::Kind::kRound, static_cast<std::size_t>(&thread - threads_.data()));
  return false;
}

void Run::message_arrived(std::size_t t) {
  if (--threads_[t].open > 0) return;
  if (next_round(threads_[t])) run_rounds(t);
}

// Meets the other end, or waits for it.
void Run::offer(std::size_t t, const TimedStep& step, std::uint32_t order, std::int64_t bytes) {
  Thread& thread = threads_[t];
  ++thread.open;
  const bool send = step.kind == TimedStep::Kind::kSend;
  const auto places = static_cast<int>(job_.programs.size());
  const int sender = send ? thread.place : (thread.place + step.offset) % places;
  const int offset = send ? step.offset : (job_.size - step.offset) % job_.size;
  const std::uint64_t key = (static_cast<std::uint64_t>(sender) << 40) |
                            (static_cast<std::uint64_t>(offset) << 16) | thread.slot;
  const End own{t, order, bytes, send};
  std::vector<End>& line = lonely_[key];
  if (line.empty() || line.front().send == send) {
    line.push_back(own);
    return;
  }
  const End other = line.front();
  line.erase(line.begin());
  if (line.empty()) lonely_.erase(key);
  match(send ? own : other, send ? other : own, offset);
}

void Run::match(const End& send, const End& receive, std::int32_t offset) {
  if (send.bytes != receive.bytes) {
    error_ = {Code::kInternal,
              format("simulate: rank %d sends %lld bytes where rank %d receives %lld",
                     threads_[send.thread].place, static_cast<long long>(send.bytes),
                     threads_[receive.thread].place, static_cast<long long>(receive.bytes))};
  }
  std::size_t index = messages_.size();
  if (unused_.empty()) {
    messages_.emplace_back();
  } else {
    index = unused_.back();
    unused_.pop_back();
  }
  messages_[index] = {send.thread, receive.thread, send.bytes, send.order, offset, now_};
  fresh_.push_back(index);
}

bool Run::earlier(std::size_t a, std::size_t b) const {
  const auto key = [this](std::size_t index) {
    const Message& m = messages_[index];
    return std::tuple(m.ready, m.order, threads_[m.from].slot, m.offset);
  };
  return key(a) < key(b);
}

// Of every port that has news, the first message whose other port is free too.
void Run::find_startable() {
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

void Run::start_what_can() {
  std::ranges::sort(fresh_, [this](std::size_t a, std::size_t b) { return earlier(a, b); });
  for (const std::size_t index : fresh_) {
    const std::size_t sender = place_of(messages_[index].from);
    ports_[sender].out.push_back(index);
    ports(messages_[index].to).in.push_back(index);
    senders_.push_back(sender);
  }
  fresh_.clear();
  // Two may want the same port; whoever loses looks again.
  for (find_startable(); !startable_.empty(); find_startable()) {
    for (const std::size_t index : startable_) {
      const Message& message = messages_[index];
      if (!ports(message.from).out_busy && !ports(message.to).in_busy) start(index);
    }
  }
  senders_.clear();
  receivers_.clear();
}

void Run::start(std::size_t index) {
  const Message& message = messages_[index];
  Ports& sender = ports(message.from);
  Ports& receiver = ports(message.to);
  sender.out_busy = receiver.in_busy = true;
  sender.out.erase(std::ranges::find(sender.out, index));
  receiver.in.erase(std::ranges::find(receiver.in, index));
  const auto place = static_cast<int>(place_of(message.from));
  const bool inside = job_.same_node(place, (place + message.offset) % job_.size);
  sender.sent += message.bytes;
  if (!inside) sender.left_node += message.bytes;
  const int level = inside ? 1 : 0;
  const ExactTime sent = now_ + message.bytes * beta_[level];
  at(sent + gap_[level], Event::Kind::kFree, index);
  at(sent + alpha_[level], Event::Kind::kArrived, index);
}

Result<Simulation> Run::result() const {
  Simulation simulation{.time = end_, .simulated_ranks = static_cast<int>(job_.programs.size())};
  for (const Thread& thread : threads_) {
    if (thread.done) continue;
    return Status(Code::kInternal,
                  format("simulate: rank %d waits in round %zu for a message that is never sent",
                         thread.place, thread.round + 1));
  }
  std::unordered_map<int, std::int64_t> by_node;
  for (std::size_t place = 0; place < ports_.size(); ++place) {
    const Ports& ports = ports_[place];
    simulation.rounds =
        std::max(simulation.rounds, static_cast<int>(job_.programs[place].round_ends.size()));
    simulation.steps += static_cast<std::int64_t>(job_.programs[place].steps.size());
    simulation.wire_bytes_max = std::max(simulation.wire_bytes_max, ports.sent);
    const int node = job_.node_of.empty() ? static_cast<int>(place) : job_.node_of[place];
    by_node[node] += ports.left_node;
  }
  for (const auto& [node, bytes] : by_node) {
    simulation.node_bytes_max = std::max(simulation.node_bytes_max, bytes);
  }
  return simulation;
}

}  // namespace

Result<Simulation> simulate(int size, const ScheduleOf& schedule_of,
                            const SimulationOptions& options) {
  GW_ASSIGN(const TimedJob job, compile(size, schedule_of, options));
  return Run(job, options).run();
}

}  // namespace gradwire
