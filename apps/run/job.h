// A job of local ranks, from start to verdict.
#pragma once

#include <poll.h>
#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/run/child.h"
#include "apps/run/lines.h"
#include "apps/run/signal_repeats.h"
#include "apps/run/verdict.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

struct RunOptions {
  int ranks = 1;
  std::optional<double> timeout;     // seconds for the whole job; none: as long as it takes
  double deadline = 15;              // seconds of one operation, passed on to the ranks
  std::string secret;                // passed on to the ranks
  std::string flight;                // folder for their flight records; empty: what they have
  std::vector<std::string> command;  // the program and its arguments
  bool plain = false;                // output lines as they are, without "rank R | "
};

// Supervises the ranks of one job: direct children, one process group each. All waiting is one
// poll(2) over their output, a signalfd and the next deadline.
//
//   running ──a rank fails──> reporting ──deadline + 2 s──> ending ──2 s──> killing
//      └── --timeout, a signal to the launcher, no reader of the output, only stopped ranks left
//      ──^
//
// When the rank that failed, or ended well, had not joined the job, ranks that still look for the
// others can only wait for it: they are ended after 1 s.
//
// Ranks that are told to end while all is well have the deadline and 2 s for it: they may meet once
// more and save. ending sends SIGTERM (a signal to the launcher: that one) and SIGCONT, killing
// sends SIGKILL. A rank that ends is reaped at once, and what is left of its process group is
// killed.
class Job {
 public:
  explicit Job(const RunOptions& options);
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;
  ~Job();

  // Starts the ranks and returns when all have ended. An error means that not all could be started.
  Result<JobResult> run();

 private:
  enum class Phase : unsigned char { kRunning, kReporting, kEnding, kKilling };
  struct Rank {
    Rank(int number, OutputQueue& out_queue, OutputQueue& err_queue, bool plain)
        : out(number, out_queue, plain), err(number, err_queue, plain) {}
    RankProcess child;
    LinePrefixer out;
    LinePrefixer err;
    char step = 0;             // the furthest launch::JoinStep that it told; 0: none
    bool told_to_end = false;  // while it looked for a rank that has died
    bool stopped = false;
    Deadline stopped_since{};
  };

  Status take_signals();
  Status start_ranks();
  Status make_token_store();
  void step();
  void move_output(int timeout_ms);
  std::optional<Deadline> next_deadline() const;
  void on_deadline(Deadline now);
  void read_signals();
  void interrupt(int signal);
  void read_output(Rank& rank, bool is_err);
  void read_step(Rank& rank);
  void look_at_output();
  void lose_output(int error, bool of_error);
  void end_meeting(Deadline now);
  bool has_missed(const Rank& rank) const;
  void look_at_ranks();
  void look_at(int number, std::vector<int>& failed);
  void judge_failures(std::vector<int>& failed);
  void note_end(int number);
  void enter(Phase phase, Deadline until);
  void end_ranks(int signal, double seconds);
  void signal_all(int signal);
  void note(const std::string& text);
  std::vector<int> running() const;
  std::vector<int> stopped_now() const;
  void drain();

  const RunOptions options_;
  std::vector<Rank> ranks_;
  JobEnd end_;  // ranks[] is kept up to date all the time
  OutputQueue out_queue_;
  OutputQueue err_queue_;
  std::string token_folder_;
  rendezvous::Fd port_;  // reserves the port where rank 0 will serve
  rendezvous::Fd signals_;
  SignalRepeats repeats_;
  sigset_t old_mask_{};
  bool masked_ = false;
  Phase phase_ = Phase::kRunning;
  std::optional<Deadline> phase_end_;
  std::optional<Deadline> job_end_;
  std::optional<Deadline> meeting_end_;  // a rank ended before it had joined
  bool impatient_ = false;               // the launcher was told again to end
};

}  // namespace gradwire
