#include "comm/shm/arena.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>
#include <string>

#include "base/text.h"

namespace gradwire::shm {
namespace {

using rendezvous::Fd;
constexpr std::uint64_t kShareAlign = std::uint64_t{2} << 20;  // a huge page
constexpr std::uint64_t kLeastShare = std::uint64_t{16} << 20;

struct Header {
  std::int64_t nonce;
  std::int64_t ranks;
};

std::uint64_t shares_begin(int ranks) {
  const std::uint64_t used = Region::kPage + static_cast<std::uint64_t>(ranks) * sizeof(Bell);
  return (used + kShareAlign - 1) / kShareAlign * kShareAlign;
}

std::uint64_t share_bytes(std::uint64_t bytes, int ranks) {
  const std::uint64_t all = bytes - std::min(bytes, shares_begin(ranks));
  return all / static_cast<std::uint64_t>(ranks) / kShareAlign * kShareAlign;
}

Status refused(const std::string& what) {
  return {Code::kUnsupported, "shared memory: " + what + ": " + std::strerror(errno)};
}

Result<std::byte*> map(int fd, std::uint64_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (memory == MAP_FAILED) {
    return refused(format("mapping %llu MiB", static_cast<unsigned long long>(bytes >> 20)));
  }
  // A core dump would hold every rank's buckets once for every rank.
  madvise(memory, bytes, MADV_DONTDUMP);
  return static_cast<std::byte*>(memory);
}

std::uint64_t half_of_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return std::uint64_t{1} << 30;
  return static_cast<std::uint64_t>(pages) * static_cast<std::uint64_t>(page) / 2;
}

// Gets the pages now, where an error can be returned: later the lack of one is a signal.
bool populate(std::byte* begin, std::uint64_t bytes) {
#ifdef MADV_POPULATE_WRITE
  if (madvise(begin, bytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;
#endif
  return true;  // an older kernel: pages come when they are touched
}

}  // namespace

Region::Region(std::uint64_t begin, std::uint64_t end) {
  if (begin < end) free_.emplace(begin, end);
}

std::optional<std::uint64_t> Region::take(std::uint64_t bytes) {
  const std::uint64_t wanted = rounded(bytes);
  if (wanted < bytes) return std::nullopt;
  for (auto gap = free_.begin(); gap != free_.end(); ++gap) {
    const auto [begin, end] = *gap;
    if (end - begin < wanted) continue;
    free_.erase(gap);
    if (begin + wanted < end) free_.emplace(begin + wanted, end);
    return begin;
  }
  return std::nullopt;
}

void Region::give_back(std::uint64_t offset, std::uint64_t bytes) {
  std::uint64_t begin = offset;
  std::uint64_t end = offset + rounded(bytes);
  auto next = free_.lower_bound(begin);
  if (next != free_.end() && next->first == end) {
    end = next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    const auto before = std::prev(next);
    if (before->second == begin) {
      begin = before->first;
      free_.erase(before);
    }
  }
  free_.emplace(begin, end);
}

std::uint64_t Region::free_bytes() const {
  std::uint64_t sum = 0;
  for (const auto& [begin, end] : free_) sum += end - begin;
  return sum;
}

Arena::Arena(std::byte* base, std::size_t bytes, Fd fd, int rank, int ranks)
    : base_(base),
      bytes_(bytes),
      fd_(std::move(fd)),
      rank_(rank),
      ranks_(ranks),
      share_(
          shares_begin(ranks) + share_bytes(bytes, ranks) * static_cast<std::uint64_t>(rank),
          shares_begin(ranks) + share_bytes(bytes, ranks) * static_cast<std::uint64_t>(rank + 1)) {}

Arena::~Arena() { munmap(base_, bytes_); }

Result<std::shared_ptr<Arena>> Arena::create(int rank, int ranks, std::size_t most_bytes) {
  const auto count = static_cast<std::uint64_t>(ranks);
  const std::uint64_t cap = most_bytes == 0 ? half_of_memory() : most_bytes;
  const std::uint64_t bytes =
      shares_begin(ranks) + std::max(cap / count, kLeastShare) / kShareAlign * kShareAlign * count;
  Fd fd(memfd_create("gradwire", MFD_CLOEXEC));
  if (!fd.valid()) return refused("memfd_create");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0) return refused("sizing the memory");
  GW_ASSIGN(std::byte* const base, map(fd.get(), bytes));
  auto* header = reinterpret_cast<Header*>(base);
  if (getrandom(&header->nonce, sizeof header->nonce, 0) != sizeof header->nonce) {
    header->nonce = static_cast<std::int64_t>(getpid());
  }
  header->ranks = ranks;
  return std::shared_ptr<Arena>(new Arena(base, bytes, std::move(fd), rank, ranks));
}

Result<std::shared_ptr<Arena>> Arena::open(const Token& token, int rank, int ranks) {
  const std::string path = format("/proc/%lld/fd/%lld", static_cast<long long>(token.pid),
                                  static_cast<long long>(token.fd));
  const Fd fd(::open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!fd.valid()) return refused("opening " + path);
  struct stat info {};
  const auto bytes = static_cast<std::uint64_t>(std::max<std::int64_t>(token.bytes, 0));
  if (fstat(fd.get(), &info) != 0 || static_cast<std::uint64_t>(info.st_size) != bytes ||
      bytes < shares_begin(ranks)) {
    return Status(Code::kUnsupported, format("shared memory: %s has %lld bytes (expected %llu)",
                                             path.c_str(), static_cast<long long>(info.st_size),
                                             static_cast<unsigned long long>(bytes)));
  }
  GW_ASSIGN(std::byte* const base, map(fd.get(), bytes));
  const auto* header = reinterpret_cast<const Header*>(base);
  if (header->nonce != token.nonce || header->ranks != ranks) {
    munmap(base, bytes);
    return Status(Code::kUnsupported, "shared memory: " + path + " is of another job");
  }
  return std::shared_ptr<Arena>(new Arena(base, bytes, Fd(), rank, ranks));
}

Arena::Token Arena::token() const {
  return {.pid = getpid(),
          .fd = fd_.get(),
          .nonce = reinterpret_cast<const Header*>(base_)->nonce,
          .bytes = static_cast<std::int64_t>(bytes_)};
}

Bell& Arena::bell(int rank) const { return reinterpret_cast<Bell*>(base_ + Region::kPage)[rank]; }

Result<std::uint64_t> Arena::take(std::size_t bytes, Pages pages) {
  std::optional<std::uint64_t> offset;
  {
    const std::lock_guard lock(mutex_);
    if (!retired_) offset = share_.take(bytes);
  }
  if (!offset) {
    return Status(Code::kOutOfMemory,
                  format("shared memory: no room for %zu bytes in this rank's share", bytes));
  }
  if (pages == Pages::kNow && !populate(base_ + *offset, Region::rounded(bytes))) {
    const Status error(Code::kOutOfMemory, format("shared memory: no pages for %zu bytes: %s",
                                                  bytes, std::strerror(errno)));
    give_back(*offset, bytes);
    return error;
  }
  return *offset;
}

// The pages go back to the system, and are zero when they come again.
void Arena::give_back(std::uint64_t offset, std::size_t bytes) {
  if (mark_.in_child()) return;
  const std::lock_guard lock(mutex_);
  if (retired_) return;
  const std::uint64_t taken = Region::rounded(bytes);
  if (madvise(base_ + offset, taken, MADV_REMOVE) != 0) std::memset(base_ + offset, 0, taken);
  share_.give_back(offset, bytes);
}

Result<Buffer> Arena::allocate(std::size_t bytes, Pages pages) {
  GW_ASSIGN(const std::uint64_t offset, take(bytes, pages));
  std::byte* data = base_ + offset;
  std::shared_ptr<void> owner(data, [arena = shared_from_this(), offset, bytes](void*) {
    arena->give_back(offset, bytes);
  });
  return Buffer::adopt({data, bytes}, {}, std::move(owner));
}

void Arena::retire() {
  const std::lock_guard lock(mutex_);
  retired_ = true;
}

}  // namespace gradwire::shm
