#include "apps/run/job.h"

#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

#include "adapters/launch/join_notice.h"
#include "base/text.h"
#include "comm/rendezvous/hmac.h"

namespace gradwire {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kReportSeconds = 2;   // beyond the ranks' own deadline
constexpr double kEndingSeconds = 2;   // between SIGTERM and SIGKILL, beyond what is said there
constexpr double kMeetingSeconds = 1;  // for ranks that cannot meet any more
constexpr double kLastMeetingSeconds = 0.5;  // then, between SIGTERM and SIGKILL
constexpr double kDrainSeconds = 1;  // for output that somebody outside the job still holds open
const char* const kHost = "127.0.0.1";

bool is_ignored(int signal) {
  struct sigaction action {};
  return ::sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

Job::Job(const RunOptions& options)
    : options_(options), out_queue_(STDOUT_FILENO), err_queue_(STDERR_FILENO) {
  end_.ranks.resize(static_cast<std::size_t>(options.ranks));
}

Job::~Job() {
  signal_all(SIGKILL);
  for (const int number : running())
    (void)::waitpid(ranks_[static_cast<std::size_t>(number)].child.pid, nullptr, 0);
  // Of a signal the exit status tells; one that follows it may not end the process before that.
  if (masked_ && end_.interrupted_by == 0) (void)::sigprocmask(SIG_SETMASK, &old_mask_, nullptr);
  std::error_code ignored;
  if (!token_folder_.empty()) std::filesystem::remove_all(token_folder_, ignored);
}

// Of sides that lose each other the one goes on that is first to write here (docs/failure.md).
Status Job::make_token_store() {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
  std::string name = (error ? std::filesystem::path("/tmp") : folder) / "gradwire-run-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    return {Code::kInternal, format("cannot make %s (%s)", name.c_str(), std::strerror(errno))};
  }
  token_folder_ = name;
  return {};
}

Result<JobResult> Job::run() {
  GW_TRY(take_signals());
  GW_TRY(start_ranks());
  if (options_.timeout) job_end_ = deadline_in(*options_.timeout);
  while (!running().empty()) step();
  drain();
  return judge(end_);
}

Status Job::take_signals() {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGCHLD);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP})
    if (!is_ignored(signal)) sigaddset(&wanted, signal);  // nohup keeps its meaning
  (void)::signal(SIGPIPE, SIG_IGN);  // a reader that goes away is noticed by write(2)
  masked_ = ::sigprocmask(SIG_BLOCK, &wanted, &old_mask_) == 0;
  signals_ = rendezvous::Fd(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!masked_ || !signals_.valid())
    return {Code::kInternal, format("cannot take signals (%s)", std::strerror(errno))};
  return {};
}

Status Job::start_ranks() {
  GW_ASSIGN(port_, rendezvous::reserve_port(kHost, 0));
  GW_ASSIGN(const int port, rendezvous::local_port(port_.get()));
  const std::string job = "run-" + rendezvous::random_hex(8);
  const std::string file = resolve_program(options_.command[0]);
  std::vector<std::string> shared = {"GRADWIRE_WORLD_SIZE=" + std::to_string(options_.ranks),
                                     format("GRADWIRE_RENDEZVOUS=%s:%d", kHost, port),
                                     "GRADWIRE_JOB=" + job, "GRADWIRE_SECRET=" + options_.secret,
                                     "GRADWIRE_DEADLINE=" + shortest(options_.deadline)};
  GW_TRY(make_token_store());
  shared.push_back("GRADWIRE_LAUNCHER_STORE=file://" + token_folder_);
  shared.push_back("GRADWIRE_LAUNCHER=" + std::to_string(::getpid()));
  if (!options_.flight.empty()) shared.push_back("GRADWIRE_FLIGHT=" + options_.flight);
  ranks_.reserve(end_.ranks.size());
  for (int number = 0; number < options_.ranks; ++number) {
    const std::string rank = std::to_string(number);
    Rank& started = ranks_.emplace_back(number, out_queue_, err_queue_, options_.plain);
    std::vector<std::string> environment = shared;
    environment.push_back("GRADWIRE_RANK=" + rank);
    environment.push_back("GRADWIRE_LOCAL_RANK=" + rank);
    Result<RankProcess> child = start_child({.file = file,
                                             .arguments = options_.command,
                                             .environment = std::move(environment),
                                             .launcher = ::getpid()});
    if (!child.has_value()) {
      ranks_.pop_back();
      return child.error();
    }
    started.child = std::move(child).value();
  }
  return {};
}

void Job::step() {
  const auto deadline = next_deadline();
  move_output(deadline ? rendezvous::poll_timeout(*deadline) : -1);
  look_at_ranks();
  on_deadline(Clock::now());
  look_at_output();
}

// A job whose output is lost is ended. A reader that went away is SIGPIPE's to tell.
void Job::look_at_output() {
  if (end_.interrupted_by != 0 || end_.output_error != 0) return;
  const bool of_error = !out_queue_.closed();
  const int error = of_error ? err_queue_.error() : out_queue_.error();
  if (error == 0 || running().empty()) return;
  if (error == EPIPE) return interrupt(SIGPIPE);
  lose_output(error, of_error);
  end_ranks(SIGTERM, 0);
}

void Job::lose_output(int error, bool of_error) {
  end_.output_error = error;
  end_.of_error = of_error;
}

void Job::move_output(int timeout_ms) {
  std::vector<pollfd> entries{{signals_.get(), POLLIN, 0}};
  for (const Rank& rank : ranks_) {
    entries.push_back({out_queue_.full() ? -1 : rank.child.out.get(), POLLIN, 0});
    entries.push_back({err_queue_.full() ? -1 : rank.child.err.get(), POLLIN, 0});
  }
  entries.push_back({out_queue_.empty() ? -1 : out_queue_.fd(), POLLOUT, 0});
  entries.push_back({err_queue_.empty() ? -1 : err_queue_.fd(), POLLOUT, 0});
  for (const Rank& rank : ranks_) entries.push_back({rank.child.joining.get(), POLLIN, 0});
  (void)::poll(entries.data(), entries.size(), timeout_ms);

  // Output first: what a rank said last belongs to the judgement of its end.
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (entries[1 + 2 * i].revents != 0) read_output(ranks_[i], false);
    if (entries[2 + 2 * i].revents != 0) read_output(ranks_[i], true);
  }
  for (Rank& rank : ranks_) read_step(rank);
  if (entries[0].revents != 0) read_signals();
  out_queue_.write_some();
  err_queue_.write_some();
}

std::optional<Deadline> Job::next_deadline() const {
  std::optional<Deadline> first;
  for (const auto& one : {job_end_, phase_end_, meeting_end_})
    if (one && (!first || *one < *first)) first = one;
  return first;
}

void Job::on_deadline(Deadline now) {
  if (job_end_ && now >= *job_end_) {
    job_end_.reset();
    if (!end_.first_failed && end_.interrupted_by == 0) {
      end_.timeout = options_.timeout;
      end_.still_running = rank_list(running());
      if (const auto stopped = stopped_now(); !stopped.empty())
        end_.still_running += " (" + rank_list(stopped) + " stopped)";
    }
    end_ranks(SIGTERM, options_.deadline);
  }
  if (phase_ == Phase::kReporting && stopped_now().size() == running().size()) {
    end_ranks(SIGTERM, 0);
  }
  end_meeting(now);
  if (!phase_end_ || now < *phase_end_) return;
  if (phase_ == Phase::kReporting) {
    end_ranks(SIGTERM, 0);
  } else {
    signal_all(SIGKILL);  // again and again, should a rank be stuck in the kernel
    enter(Phase::kKilling, deadline_in(kEndingSeconds));
  }
}

// Ranks that look for one that has died find it never; those that come to look later, neither.
void Job::end_meeting(Deadline now) {
  if (!meeting_end_ || now < *meeting_end_) return;
  meeting_end_ = deadline_in(kLastMeetingSeconds);
  const auto missing =
      std::ranges::find_if(ranks_, [&](const Rank& one) { return has_missed(one); });
  if (!end_.first_failed && missing == ranks_.end()) return;
  for (const int number : running()) {
    Rank& rank = ranks_[static_cast<std::size_t>(number)];
    if (rank.step != static_cast<char>(launch::JoinStep::kMeeting)) continue;
    if (!end_.first_failed && !end_.absent) {
      end_.absent = static_cast<int>(missing - ranks_.begin());
    }
    (void)::kill(-rank.child.pid, std::exchange(rank.told_to_end, true) ? SIGKILL : SIGTERM);
    (void)::kill(-rank.child.pid, SIGCONT);
  }
}

// Whether a rank has ended well without having joined, and has left nobody who still could.
bool Job::has_missed(const Rank& rank) const {
  const RankState& state = end_.ranks[static_cast<std::size_t>(&rank - ranks_.data())];
  return !state.running && !state.failed() && !rank.child.joining.valid() &&
         rank.step != static_cast<char>(launch::JoinStep::kJoined);
}

void Job::enter(Phase phase, Deadline until) {
  phase_ = phase;
  phase_end_ = until;
}

void Job::end_ranks(int signal, double seconds) {
  if (phase_ == Phase::kEnding || phase_ == Phase::kKilling) return;
  signal_all(signal);
  signal_all(SIGCONT);  // a stopped process takes no signal but SIGKILL
  enter(Phase::kEnding, deadline_in(seconds + kEndingSeconds));
}

void Job::signal_all(int signal) {
  for (const int number : running())
    (void)::kill(-ranks_[static_cast<std::size_t>(number)].child.pid, signal);
}

void Job::read_signals() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == static_cast<ssize_t>(sizeof info))
    if (info.ssi_signo != SIGCHLD && !repeats_.is_repeat(static_cast<int>(info.ssi_signo)))
      interrupt(static_cast<int>(info.ssi_signo));
}

void Job::interrupt(int signal) {
  const bool ending = phase_ == Phase::kEnding || phase_ == Phase::kKilling;
  if (end_.interrupted_by != 0 || (end_.timeout && ending) || running().empty()) {
    signal_all(SIGKILL);
    impatient_ = true;
    return;
  }
  if (!end_.first_failed && !end_.timeout) end_.interrupted_by = signal;
  const bool well = phase_ == Phase::kRunning && signal != SIGPIPE;
  end_ranks(signal == SIGPIPE ? SIGTERM : signal, well ? options_.deadline : 0);
}

void Job::read_output(Rank& rank, bool is_err) {
  rendezvous::Fd& fd = is_err ? rank.child.err : rank.child.out;
  LinePrefixer& lines = is_err ? rank.err : rank.out;
  const OutputQueue& queue = is_err ? err_queue_ : out_queue_;
  std::array<char, 16384> chunk;  // NOLINT(cppcoreguidelines-pro-type-member-init)
  // A rank that never stops talking may not keep the others waiting.
  for (int turn = 0; turn < 16 && fd.valid() && !queue.full(); ++turn) {
    const ssize_t count = ::read(fd.get(), chunk.data(), chunk.size());
    if (count > 0) {
      lines.feed({chunk.data(), static_cast<std::size_t>(count)});
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
      lines.finish();
      fd = rendezvous::Fd();
    } else {
      return;
    }
  }
}

void Job::read_step(Rank& rank) {
  char step = 0;
  ssize_t count = 0;
  while (rank.child.joining.valid() && (count = ::read(rank.child.joining.get(), &step, 1)) > 0)
    if (rank.step != static_cast<char>(launch::JoinStep::kJoined)) rank.step = step;
  if (count == 0) rank.child.joining = rendezvous::Fd();
}

void Job::look_at_ranks() {
  std::vector<int> failed;
  for (const int number : running()) look_at(number, failed);
  if (failed.empty()) return;
  judge_failures(failed);
  for (const int number : failed) note_end(number);
}

// Takes what the kernel has to tell about one rank.
void Job::look_at(int number, std::vector<int>& failed) {
  Rank& rank = ranks_[static_cast<std::size_t>(number)];
  RankState& state = end_.ranks[static_cast<std::size_t>(number)];
  siginfo_t info{};
  while (::waitid(P_PID, static_cast<id_t>(rank.child.pid), &info,
                  WSTOPPED | WCONTINUED | WNOHANG) == 0 &&
         info.si_pid != 0) {
    rank.stopped = info.si_code == CLD_STOPPED;
    if (rank.stopped) rank.stopped_since = Clock::now();
    if (!end_.first_failed) state.stopped_by = rank.stopped ? info.si_status : 0;
    info = {};
  }
  // The zombie is looked at before it is reaped: while it is there, its process group's number
  // belongs to nobody else.
  if (::waitid(P_PID, static_cast<id_t>(rank.child.pid), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
      info.si_pid == 0)
    return;
  (void)::kill(-rank.child.pid, SIGKILL);
  (void)::waitpid(rank.child.pid, nullptr, 0);
  state.running = false;
  state.exit_status = info.si_code == CLD_EXITED ? info.si_status : 0;
  state.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
  read_output(rank, true);
  read_step(rank);
  state.last_error = rank.err.last_error();
  if (state.failed()) failed.push_back(number);
  const bool joined = rank.step == static_cast<char>(launch::JoinStep::kJoined);
  if (!state.failed() && !joined && !meeting_end_) meeting_end_ = deadline_in(kMeetingSeconds);
}

// Of several that are found at the same time, one that was killed is the likelier cause: the others
// may have failed for want of it.
void Job::judge_failures(std::vector<int>& failed) {
  if (end_.first_failed || end_.absent || phase_ != Phase::kRunning) return;
  std::stable_partition(failed.begin(), failed.end(), [&](int number) {
    return end_.ranks[static_cast<std::size_t>(number)].signal != 0;
  });
  end_.first_failed = failed.front();
  const auto since = [&](int number) {
    return ranks_[static_cast<std::size_t>(number)].stopped_since;
  };
  const std::vector<int> stopped = stopped_now();
  if (!stopped.empty()) end_.first_stopped = *std::ranges::min_element(stopped, {}, since);
  enter(Phase::kReporting, deadline_in(options_.deadline + kReportSeconds));
  const Rank& first = ranks_[static_cast<std::size_t>(failed.front())];
  if (first.step != static_cast<char>(launch::JoinStep::kJoined))
    meeting_end_ = deadline_in(kMeetingSeconds);
}

// One line for every rank that ends badly; what it said itself stands above already.
void Job::note_end(int number) {
  const RankState& state = end_.ranks[static_cast<std::size_t>(number)];
  std::string text = format("rank %d: %s", number, describe_end(state, false).c_str());
  const bool told = ranks_[static_cast<std::size_t>(number)].told_to_end;
  if (state.signal != 0 && (phase_ >= Phase::kEnding || told)) text += ", ended by the launcher";
  if (end_.first_failed == number && phase_ == Phase::kReporting && !running().empty())
    text += format("; the other ranks have %g s to report%s", options_.deadline + kReportSeconds,
                   meeting_end_ ? ", those waiting for it to join 1 s" : "");
  note(text);
}

void Job::note(const std::string& text) { err_queue_.append("gradwire: " + text + "\n"); }

std::vector<int> Job::running() const {
  std::vector<int> numbers;
  for (std::size_t i = 0; i < ranks_.size(); ++i)
    if (end_.ranks[i].running) numbers.push_back(static_cast<int>(i));
  return numbers;
}

std::vector<int> Job::stopped_now() const {
  std::vector<int> numbers = running();
  std::erase_if(numbers,
                [&](int number) { return !ranks_[static_cast<std::size_t>(number)].stopped; });
  return numbers;
}

// All ranks have ended. Takes the rest of their output and hands it on, for as long as its reader
// takes, unless a signal asks to be quick.
void Job::drain() {
  const Deadline until = deadline_in(kDrainSeconds);
  const auto open = [&] {
    return Clock::now() < until && std::ranges::any_of(ranks_, [](const Rank& rank) {
             return rank.child.out.valid() || rank.child.err.valid();
           });
  };
  while (open() && !impatient_) move_output(rendezvous::poll_timeout(until));
  for (Rank& rank : ranks_) {
    rank.out.finish();
    rank.err.finish();
    rank.child = {};
  }
  while (!(out_queue_.empty() && err_queue_.empty()) && !impatient_) move_output(-1);
  for (const OutputQueue* queue : {&err_queue_, &out_queue_})
    if (queue->closed() && queue->error() != EPIPE)
      lose_output(queue->error(), queue == &err_queue_);
}

}  // namespace gradwire
