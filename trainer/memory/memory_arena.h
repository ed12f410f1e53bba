// Memory of one place (a device, or the host beside it), counted by what it is for.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/stream.h"

namespace gradwire {

// What a training run holds memory for.
enum class MemoryClass : std::uint8_t {
  kParameters,     // as they are stored: in 16 bits, or fp32; a rank's own part where sharded
  kGradients,      // as they are stored, likewise
  kMainGradients,  // fp32 sums beside 16-bit gradients, or a rank's own part beside whole ones
  kMaster,         // fp32 parameters beside 16-bit ones, an owner's part or the host's copy
  kMoments,        // what the optimizer keeps between steps
  kGathered,       // parameters that are whole for a while though they are sharded, narrow or away
  kActivations,    // of forward, for backward
  kWorkspace,      // derivatives by activations, scratch
  kMessages,       // activations and their gradients between stages of a pipeline
  kVersions,       // older weights, which micro-batches under way read
  kCommunication,  // what exchanges keep and send from
  kOther,          // running statistics, momenta of workers, chunks on their way
};
inline constexpr std::size_t kMemoryClasses = 12;
// "parameters", "gradients", "main_gradients", "master", "moments", "gathered", "activations",
// "workspace", "messages", "versions", "communication", "other".
std::string_view to_string(MemoryClass what);

// Bytes.
struct MemoryUse {
  std::array<std::int64_t, kMemoryClasses> now{};
  std::array<std::int64_t, kMemoryClasses> peak{};     // of each class by itself
  std::array<std::int64_t, kMemoryClasses> at_peak{};  // of all classes when their sum was highest
  std::int64_t total = 0;                              // as the allocator counts, not by class
  std::int64_t peak_total = 0;

  std::int64_t now_of(MemoryClass what) const { return now[static_cast<std::size_t>(what)]; }
  std::int64_t peak_of(MemoryClass what) const { return peak[static_cast<std::size_t>(what)]; }
};

// Copies are the same arena. Thread-safe.
class MemoryArena {
 public:
  // When the host's memory is taken: as it is allocated, or page by page as it is written: a
  // dry run then takes none.
  enum class Pages : std::uint8_t { kNow, kWritten };

  // Of the host, or of the stream's device: whoever computes with this memory enqueues its work
  // there. The stream is borrowed for as long as memory of the arena lives; it waits for CUDA's
  // default stream.
  explicit MemoryArena(Stream stream, Pages pages = Pages::kNow)
      : stream_(stream), pages_(pages), ledger_(std::make_shared<Ledger>()) {}
  MemoryArena() : MemoryArena(Stream()) {}

  Stream stream() const { return stream_; }
  Device device() const { return stream_.device; }

  // Zeroed memory, counted until it goes. Errors as Buffer::allocate().
  Result<Buffer> allocate(MemoryClass what, std::size_t bytes) const;
  // Zeroed address space on a page boundary that takes memory only where it is written (on a
  // device: memory); what of it counts is told by hold(). kOutOfMemory when the system has none.
  Result<Buffer> reserve(std::size_t bytes) const;
  // to = from, both of this place: on a device enqueued on stream().
  Status copy(std::span<const float> from, std::span<float> to) const;
  // So many bytes more, or less where negative, are in use.
  void hold(MemoryClass what, std::int64_t bytes) const { ledger_->hold(what, bytes); }

  MemoryUse use() const;
  // Peaks are of what follows.
  void restart_peaks() const;

 private:
  struct Ledger {
    mutable std::mutex mutex;
    MemoryUse use;
    void hold(MemoryClass what, std::int64_t bytes);
  };
  struct Charge;  // a buffer and its count, which go together
  Stream stream_;
  Pages pages_;
  std::shared_ptr<Ledger> ledger_;
};

// Bytes that were copied between two arenas. Each way is counted from one thread at a time.
struct MemoryLink {
  std::int64_t bytes_out = 0;  // device to host
  std::int64_t bytes_in = 0;   // host to device
};

// to = from, each of its arena: enqueued on the stream of the one that is a device's, else done.
Status copy_between(std::span<const float> from, const MemoryArena& here, std::span<float> to,
                    const MemoryArena& there);

// The two arenas of a rank, and what was copied between them. Copies are the same places.
struct MemoryPlaces {
  MemoryArena device;
  MemoryArena host;
  std::shared_ptr<MemoryLink> link = std::make_shared<MemoryLink>();
};

}  // namespace gradwire
