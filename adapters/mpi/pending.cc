#include "adapters/mpi/pending.h"

#include <algorithm>
#include <string>
#include <utility>

#include "adapters/mpi/shim.h"

namespace gradwire::mpi {
namespace {

// What MPI_Wait tells of a collective: nothing.
int describe(void*, MPI_Status* status) {
  PMPI_Status_set_elements(status, MPI_BYTE, 0);
  PMPI_Status_set_cancelled(status, 0);
  status->MPI_SOURCE = MPI_UNDEFINED;
  status->MPI_TAG = MPI_UNDEFINED;
  return MPI_SUCCESS;
}
int release(void*) { return MPI_SUCCESS; }
int cancel(void*, int) { return MPI_SUCCESS; }

}  // namespace

int PendingOperations::add(Operation operation, MPI_Request* request) {
  const int code = PMPI_Grequest_start(describe, release, cancel, nullptr, request);
  if (code != MPI_SUCCESS) return code;
  const std::lock_guard lock(mutex_);
  entries_.push_back({*request, std::move(operation)});
  ++count_;
  return MPI_SUCCESS;
}

bool PendingOperations::has(MPI_Request request) const {
  const std::lock_guard lock(mutex_);
  return std::ranges::find(entries_, request, &Entry::request) != entries_.end();
}

template <typename Wanted>
std::optional<PendingOperations::Entry> PendingOperations::take(const Wanted& wanted) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find_if(entries_, wanted);
  if (found == entries_.end()) return std::nullopt;
  Entry entry = std::move(*found);
  entries_.erase(found);
  --count_;
  return entry;
}

int PendingOperations::settle(Entry entry) {
  Operation& operation = entry.operation;
  const Status status = operation.member->finish(operation.work);
  int code = MPI_SUCCESS;
  if (!status.ok()) {
    code = Shim::get()->raise(operation.comm, *operation.member, operation.call, status);
  } else if (operation.unpack) {
    code = operation.rows.back().unpack(operation.comm);
  }
  PMPI_Grequest_complete(entry.request);
  return code;
}

int PendingOperations::finish(MPI_Request request) {
  auto entry = take([&](const Entry& one) { return one.request == request; });
  return entry ? settle(std::move(*entry)) : MPI_SUCCESS;
}

int PendingOperations::finish_done(std::span<const MPI_Request> requests) {
  int first = MPI_SUCCESS;
  while (true) {
    auto entry = take([&](const Entry& one) {
      return one.operation.work.done() &&
             std::ranges::find(requests, one.request) != requests.end();
    });
    if (!entry) return first;
    const int code = settle(std::move(*entry));
    if (first == MPI_SUCCESS) first = code;
  }
}

void PendingOperations::finish_all_of(const Member* member) {
  while (auto entry = take([&](const Entry& one) { return one.operation.member == member; })) {
    (void)settle(std::move(*entry));
  }
}

}  // namespace gradwire::mpi
