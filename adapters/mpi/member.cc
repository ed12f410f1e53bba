#include "adapters/mpi/member.h"

#include <algorithm>
#include <chrono>

namespace gradwire::mpi {
namespace {

using Clock = std::chrono::steady_clock;

// How long MPI may stand still while gradwire is waited for: briefly at first, for a peer that is
// about to come; then less often, since each look costs a spell of spinning.
constexpr std::chrono::microseconds kFirstWait{200};
constexpr std::chrono::microseconds kLongestWait{3200};

}  // namespace

Status Member::run(const OpCall& call) {
  GW_ASSIGN(Work work, group_->start(call));
  return finish(work);
}

Status Member::finish(Work& work) const {
  if (work.done()) return work.wait();
  auto patience = kFirstWait;
  while (true) {
    const Status outcome = work.wait(Clock::now() + patience);
    if (outcome.code() != Code::kTimedOut) return outcome;
    // The waiting ended, or the operation did, by its own deadline.
    if (work.done()) return work.wait();
    progress_->advance();
    patience = std::min(patience * 2, kLongestWait);
  }
}

int Member::error_code(int error_class, const std::string& text) {
  if (error_code_ != MPI_SUCCESS && text == error_text_) return error_code_;
  int code = MPI_SUCCESS;
  if (PMPI_Add_error_code(error_class, &code) != MPI_SUCCESS) return MPI_ERR_OTHER;
  error_text_ = text;
  error_code_ = code;
  PMPI_Add_error_string(code, text.substr(0, MPI_MAX_ERROR_STRING - 1).c_str());
  return code;
}

}  // namespace gradwire::mpi
