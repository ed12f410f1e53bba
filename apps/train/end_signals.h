// SIGINT and SIGTERM of a training process. Where ranks save checkpoints the first one is passed on
// to them and they end together; else, and where it comes again later than SignalRepeats::kSeconds,
// it ends the process at once. The status is 128 + signal either way.
#pragma once

#include <atomic>
#include <csignal>
#include <string>
#include <thread>

#include "adapters/trainer/interruption.h"
#include "apps/run/signal_repeats.h"
#include "comm/rendezvous/socket.h"
#include "gradwire/status.h"

namespace gradwire {

class EndSignals final : public EndRequest {
 public:
  // Takes both signals, unless they are ignored, from this thread and those that it starts from now
  // on: one that runs already would get them itself. `seconds`: that ranks have to meet, from the
  // signal on.
  explicit EndSignals(double seconds);
  // Gives them back.
  ~EndSignals() override;
  EndSignals(const EndSignals&) = delete;
  EndSignals& operator=(const EndSignals&) = delete;

  int signal() const override { return signal_.load(); }
  void listen() override { listening_ = true; }
  void met() override { met_ = true; }

 private:
  void watch();
  void take(int signal);
  [[noreturn]] void end_now(int signal, const std::string& why) const;
  int milliseconds_left() const;

  const double seconds_;
  std::atomic<int> signal_ = 0;
  std::atomic<bool> listening_ = false;
  std::atomic<bool> met_ = false;
  sigset_t before_{};
  rendezvous::Fd signals_;
  rendezvous::Fd stop_;
  Deadline until_{};       // of the thread alone
  SignalRepeats repeats_;  // likewise
  std::jthread thread_;    // last: it uses the others
};

}  // namespace gradwire
