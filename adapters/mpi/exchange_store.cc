// Messages: key_bytes:u32 key value, in the order of this host, since MPI jobs of mixed byte order
// are not supported.
#include "adapters/mpi/exchange_store.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>

namespace gradwire::mpi {
namespace {

constexpr int kTag = 1;
constexpr std::chrono::microseconds kFirstPause{50};
constexpr std::chrono::microseconds kLongestPause{2000};

}  // namespace

Status checked(int code, const char* what) {
  if (code == MPI_SUCCESS) return {};
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  if (PMPI_Error_string(code, text.data(), &length) != MPI_SUCCESS) length = 0;
  return {Code::kInternal, std::string(what) + " failed: " +
                               std::string(text.data(), static_cast<std::size_t>(length))};
}

ExchangeStore::ExchangeStore(MPI_Comm comm, int rank, int size)
    : comm_(comm), rank_(rank), size_(size), taken_(static_cast<std::size_t>(size), 0) {}

Status ExchangeStore::set(std::string_view key, ConstByteSpan value, Deadline deadline) {
  GW_TRY(rendezvous::check_limits(key, value.size()));
  GW_TRY(table_.set(key, value, deadline));
  const auto key_bytes = static_cast<std::uint32_t>(key.size());
  Sending& sending = sending_.emplace_back();
  sending.bytes.resize(sizeof key_bytes + key.size() + value.size());
  std::byte* at = sending.bytes.data();
  std::memcpy(at, &key_bytes, sizeof key_bytes);
  std::memcpy(at + sizeof key_bytes, key.data(), key.size());
  std::ranges::copy(value, at + sizeof key_bytes + key.size());
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    MPI_Request& request = sending.requests.emplace_back(MPI_REQUEST_NULL);
    GW_TRY(checked(PMPI_Isend(at, static_cast<int>(sending.bytes.size()), MPI_BYTE, peer, kTag,
                              comm_, &request),
                   "MPI_Isend"));
  }
  return {};
}

Result<bool> ExchangeStore::take() {
  int there = 0;
  MPI_Status status;
  GW_TRY(checked(PMPI_Iprobe(MPI_ANY_SOURCE, kTag, comm_, &there, &status), "MPI_Iprobe"));
  if (there == 0) return false;
  int count = 0;
  GW_TRY(checked(PMPI_Get_count(&status, MPI_BYTE, &count), "MPI_Get_count"));
  std::vector<std::byte> bytes(static_cast<std::size_t>(count));
  GW_TRY(checked(
      PMPI_Recv(bytes.data(), count, MPI_BYTE, status.MPI_SOURCE, kTag, comm_, MPI_STATUS_IGNORE),
      "MPI_Recv"));
  ++taken_[static_cast<std::size_t>(status.MPI_SOURCE)];
  std::uint32_t key_bytes = 0;
  if (bytes.size() >= sizeof key_bytes) std::memcpy(&key_bytes, bytes.data(), sizeof key_bytes);
  if (bytes.size() < sizeof key_bytes + key_bytes) {
    return Status(Code::kCorruptPayload, "a rendezvous message of " + std::to_string(bytes.size()) +
                                             " bytes with a key of " + std::to_string(key_bytes));
  }
  const ConstByteSpan rest = std::span(bytes).subspan(sizeof key_bytes);
  const std::string_view key(reinterpret_cast<const char*>(rest.data()), key_bytes);
  GW_TRY(table_.set(key, rest.subspan(key_bytes), {}));
  return true;
}

Result<std::vector<std::byte>> ExchangeStore::get(std::string_view key, Deadline deadline) {
  GW_TRY(rendezvous::check_limits(key, 0));
  const auto start = std::chrono::steady_clock::now();
  auto pause = kFirstPause;
  while (true) {
    if (auto value = table_.find(key)) return *std::move(value);
    GW_ASSIGN(const bool moved, take());
    if (moved) continue;
    const auto now = std::chrono::steady_clock::now();
    if (now >= deadline) {
      const std::chrono::duration<double> waited = now - start;
      return rendezvous::never_set(key, waited.count(), {});
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, kLongestPause);
  }
}

Status ExchangeStore::settle() {
  const int told = static_cast<int>(sending_.size());
  std::vector<int> sent(static_cast<std::size_t>(size_));
  // Blocks until all have come here, and none sets anything after that.
  GW_TRY(
      checked(PMPI_Allgather(&told, 1, MPI_INT, sent.data(), 1, MPI_INT, comm_), "MPI_Allgather"));
  sent[static_cast<std::size_t>(rank_)] = 0;
  while (taken_ != sent) GW_TRY(take().error());
  for (Sending& sending : sending_) {
    GW_TRY(checked(PMPI_Waitall(static_cast<int>(sending.requests.size()), sending.requests.data(),
                                MPI_STATUSES_IGNORE),
                   "MPI_Waitall"));
  }
  sending_.clear();
  return {};
}

}  // namespace gradwire::mpi
