// Memory that the ranks of one host share.
//
// One anonymous file (memfd), as large as the cap and without pages until they are used, mapped
// whole by every rank. It has no name, so nothing is left behind whatever dies: the others open it
// through the /proc entry of the rank that made it, which the kernel allows to processes of the
// same user alone. Every rank hands out its own share of it, without a word to the others:
//
//   arena = header:page bell:128[ranks] padding share[ranks]
//
// It is not bounded by what /dev/shm may hold.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/forks.h"
#include "comm/rendezvous/socket.h"
#include "comm/shm/bell.h"
#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::shm {

// Which parts of a rank's share of an arena are in use: offsets alone, no memory. First fit over
// pages; neighbours that are free become one. Used by one thread at a time.
class Region {
 public:
  static constexpr std::uint64_t kPage = 4096;

  // Bytes [begin, end), both multiples of kPage.
  Region(std::uint64_t begin, std::uint64_t end);

  // An offset, a multiple of kPage; nullopt when no gap is large enough.
  std::optional<std::uint64_t> take(std::uint64_t bytes);
  // What take(bytes) returned.
  void give_back(std::uint64_t offset, std::uint64_t bytes);
  // What take(bytes) takes.
  static constexpr std::uint64_t rounded(std::uint64_t bytes) {
    return bytes == 0 ? kPage : (bytes + kPage - 1) / kPage * kPage;
  }
  std::uint64_t free_bytes() const;

 private:
  std::map<std::uint64_t, std::uint64_t> free_;  // begin -> end
};

// Thread-safe but for close_door().
class Arena : public std::enable_shared_from_this<Arena> {
 public:
  // Where the other ranks of the host find an arena. Plain 64-bit numbers, to be sent.
  struct Token {
    std::int64_t pid = 0;
    std::int64_t fd = -1;
    std::int64_t nonce = 0;
    std::int64_t bytes = 0;
  };

  // Made by one rank, `rank` of `ranks`. Of the host's memory at most `most_bytes` will be used,
  // 0 for half of it. kUnsupported when the system refuses; the message says what.
  static Result<std::shared_ptr<Arena>> create(int rank, int ranks, std::size_t most_bytes = 0);
  // Opened by the others, while the maker keeps the door open. kUnsupported as above, or when the
  // memory is not the one that the token names.
  static Result<std::shared_ptr<Arena>> open(const Token& token, int rank, int ranks);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  Token token() const;
  // Nobody else can open it from now on.
  void close_door() { fd_ = rendezvous::Fd(); }

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // About what each rank's share has.
  std::uint64_t bytes_of_share() const { return bytes_ / static_cast<std::uint64_t>(ranks_); }
  Bell& bell(int rank) const;

  // Zeroed bytes of this rank's share, in pages of their own; they live as long as the Buffer.
  // kOutOfMemory when the share is used up or, where pages are wanted at once, there are none.
  enum class Pages : std::uint8_t { kNow, kWhenTouched };
  Result<Buffer> allocate(std::size_t bytes, Pages pages = Pages::kNow);
  // The same as an offset, for memory whose end is not that of one owner; give_back() takes what
  // take() was asked for.
  Result<std::uint64_t> take(std::size_t bytes, Pages pages = Pages::kNow);
  void give_back(std::uint64_t offset, std::size_t bytes);
  // Where [data, data + bytes) begins in the arena, the same on all ranks; nullopt if it is not
  // wholly inside. Here, since what GCC 12 makes of an optional that is returned waits until all
  // stores before it are in the cache.
  std::optional<std::uint64_t> offset_of(const void* data, std::size_t bytes) const {
    const auto base = reinterpret_cast<std::uintptr_t>(base_);
    const auto begin = reinterpret_cast<std::uintptr_t>(data) - base;  // huge if it is below
    if (begin > bytes_ || bytes > bytes_ - begin) return std::nullopt;
    return begin;
  }
  // Requires an offset below the arena's size.
  std::byte* at(std::uint64_t offset) const { return base_ + offset; }

  // After a failed operation other ranks may still write where it lay: nothing that was given back
  // since is handed out again, and allocate() refuses.
  void retire();

 private:
  Arena(std::byte* base, std::size_t bytes, rendezvous::Fd fd, int rank, int ranks);

  ForkMark mark_;
  std::byte* base_;
  std::size_t bytes_;
  rendezvous::Fd fd_;
  int rank_;
  int ranks_;
  std::mutex mutex_;  // guards what follows
  Region share_;
  bool retired_ = false;
};

}  // namespace gradwire::shm
