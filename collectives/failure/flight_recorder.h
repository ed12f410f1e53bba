// The last operations of a rank, always kept, and written down when something fails.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/communicator.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire {

// "2,3", or what stands between them else.
std::string numbers_text(const std::vector<int>& numbers, const char* between);

// What all ranks of a communicator must agree on about an operation, as far as it has it. The
// texts are literals.
struct Signature {
  std::string_view name;         // "all_reduce"
  std::string_view dtype = {};   // "f32"
  std::string_view reduce = {};  // "sum"; empty where nothing is reduced
  std::int64_t elems = -1;
  int root = -1;  // group rank
  friend bool operator==(const Signature&, const Signature&) = default;
};

// Of a call of that kind. peer: the root, where it has one.
Signature signature_of(OpKind kind, DType dtype, ReduceOp op, std::int64_t elems, int peer);

// "all_reduce of 1000 f32 sum", "broadcast of 8 f32 from rank 2": what a disagreement shows.
std::string to_string(const Signature& signature);

struct FlightRecord {
  enum class State : std::uint8_t { kRunning, kDone, kFailed };
  std::uint64_t sequence = 0;  // of the rank, from 0
  std::uint32_t communicator = 0;
  std::uint64_t number = 0;  // within the communicator; send and recv: with that peer
  bool collective = true;
  Signature signature = {};
  std::string_view algorithm = {};  // a literal
  State state = State::kRunning;
  std::int64_t begun = 0;             // microseconds of Unix time
  std::int64_t ended = 0;             // 0 while it runs
  std::uint64_t bytes_sent = 0;       // of messages, when it ended
  std::vector<int> waiting_for = {};  // job ranks, when it failed
};

// Why the operations ended, for the head of the file.
struct FlightFailure {
  int rank = 0;
  int size = 1;
  std::uint32_t generation = 0;
  Status status;
  std::vector<int> lost = {};    // job ranks that are gone
  std::vector<int> silent = {};  // that did not answer the roll call
  std::vector<int> absent = {};  // that answered that they had not begun the operation
};

// Any thread may call. An operation costs two calls of some 50 ns.
class FlightRecorder {
 public:
  explicit FlightRecorder(std::size_t operations) : capacity_(operations) {
    ring_.reserve(capacity_);
  }

  // Fills in sequence and begun; returns the sequence number.
  std::uint64_t begin(FlightRecord record);
  // Nothing if the record has been overwritten.
  void end(std::uint64_t sequence, FlightRecord::State state, std::uint64_t bytes_sent,
           std::vector<int> waiting_for = {});

  // Of an operation that takes but microseconds: it ended as it began. Spares it a look at the
  // clock.
  void end_at_once(std::uint64_t sequence, std::uint64_t bytes_sent);

  // A collective that is begun, recorded or not: begin() notes it too.
  void note_begun(std::uint32_t communicator, std::uint64_t number) {
    begun_[communicator % kCommunicators].store(number + 1, std::memory_order_relaxed);
  }
  bool has_begun(std::uint32_t communicator, std::uint64_t number) const {
    return number < begun_[communicator % kCommunicators].load(std::memory_order_relaxed);
  }
  // Of communicators that come and go under one id: the new one has begun nothing.
  void forget(std::uint32_t communicator) {
    begun_[communicator % kCommunicators].store(0, std::memory_order_relaxed);
  }

  // The latest collective one of the communicator, or with that number in it.
  std::optional<FlightRecord> last_of(std::uint32_t communicator,
                                      std::optional<std::uint64_t> number = {}) const;
  std::vector<FlightRecord> records() const;  // oldest first

 private:
  // Null if the record has been overwritten. Needs the mutex.
  FlightRecord* kept(std::uint64_t sequence);

  static constexpr std::size_t kCommunicators = 4096;  // ids have 12 bits
  const std::unique_ptr<std::atomic<std::uint64_t>[]> begun_ =
      std::make_unique<std::atomic<std::uint64_t>[]>(kCommunicators);  // numbers + 1
  mutable std::mutex mutex_;
  std::size_t capacity_;
  std::uint64_t next_ = 0;
  std::vector<FlightRecord> ring_;
};

std::string flight_json(const FlightFailure& failure, const std::vector<FlightRecord>& records);

// Makes FOLDER/rank-R.json, or rank-R-after-G.json in generation G above 0, whole or not at all;
// the folder too if there is none.
Status write_flight(const std::string& folder, const FlightFailure& failure,
                    const std::vector<FlightRecord>& records);

}  // namespace gradwire
