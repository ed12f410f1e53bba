// The laws of Transport (include/gradwire/transport.h), run by every backend. A backend gets them
// all by one line in a file of its own:
//   INSTANTIATE_TEST_SUITE_P(Name, TransportLaws, testing::Values(backend()), backend_name);
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <ostream>
#include <string>

#include "gradwire/transport.h"

namespace gradwire::laws {

// What one rank does; it owns its transport and says goodbye when it returns.
using RankBody = std::function<void(std::unique_ptr<Transport>)>;

enum class Fate { kReturns, kKilled, kStopped };

struct TransportBackend {
  std::string name;
  // Runs `body` on `size` ranks at once and returns when all have ended, each as `fates` says
  // (default: returns). Fails the running test if a rank does not end so, or not within
  // `limit_seconds`; expectations that fail inside a body fail the test too.
  std::function<void(int size, const RankBody& body, const std::map<int, Fate>& fates,
                     double limit_seconds)>
      run;
  // Takes the calling rank out of service without a goodbye. May return (ranks as threads): the
  // rank then leaves.
  std::function<void(Transport&, Fate)> end;
  // Within this time every survivor knows of a rank that was killed or stopped.
  double notice_seconds;

  friend void PrintTo(const TransportBackend& backend, std::ostream* out) { *out << backend.name; }
};

class TransportLaws : public testing::TestWithParam<TransportBackend> {
 protected:
  void on_ranks(int size, const RankBody& body, const std::map<int, Fate>& fates = {}) {
    GetParam().run(size, body, fates, 60);
  }
  // Every wait of a law is bounded by this.
  static Deadline soon() { return deadline_in(20); }
};

inline std::string backend_name(const testing::TestParamInfo<TransportBackend>& info) {
  return info.param.name;
}

}  // namespace gradwire::laws
