#include "collectives/failure/flight_recorder.h"

#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "base/files.h"
#include "base/text.h"
#include "collectives/schedules/op_traits.h"

namespace gradwire {
namespace {

std::int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      out += format("\\u%04x", static_cast<unsigned>(c));
    } else {
      out += c;
    }
  }
  return out + "\"";
}

std::string list(const std::vector<int>& ranks) { return "[" + numbers_text(ranks, ",") + "]"; }

std::string_view name_of(FlightRecord::State state) {
  switch (state) {
    case FlightRecord::State::kRunning: return "running";
    case FlightRecord::State::kDone: return "done";
    case FlightRecord::State::kFailed: return "failed";
  }
  return "?";
}

std::string line_of(const FlightRecord& record) {
  const Signature& s = record.signature;
  return format("{\"sequence\":%llu,\"communicator\":%u,\"number\":%llu,\"collective\":%s,",
                static_cast<unsigned long long>(record.sequence), record.communicator,
                static_cast<unsigned long long>(record.number),
                record.collective ? "true" : "false") +
         "\"name\":" + quoted(s.name) + ",\"dtype\":" + quoted(s.dtype) +
         ",\"reduce\":" + quoted(s.reduce) +
         format(",\"elems\":%lld,\"root\":%d", static_cast<long long>(s.elems), s.root) +
         ",\"algorithm\":" + quoted(record.algorithm) +
         ",\"state\":" + quoted(name_of(record.state)) +
         format(",\"begun_us\":%lld,\"ended_us\":%lld,\"bytes_sent\":%llu",
                static_cast<long long>(record.begun), static_cast<long long>(record.ended),
                static_cast<unsigned long long>(record.bytes_sent)) +
         ",\"waiting_for\":" + list(record.waiting_for) + "}";
}

}  // namespace

std::string numbers_text(const std::vector<int>& numbers, const char* between) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : between) + std::to_string(number);
  return text;
}

Signature signature_of(OpKind kind, DType dtype, ReduceOp op, std::int64_t elems, int peer) {
  const OpTraits traits = traits_of(kind);
  return {.name = traits.name,
          .dtype = to_string(dtype),
          .reduce = traits.reduces ? to_string(op) : std::string_view(),
          .elems = elems,
          .root = traits.rooted ? peer : -1};
}

std::string to_string(const Signature& signature) {
  std::string text(signature.name);
  if (signature.elems >= 0) text += " of " + std::to_string(signature.elems);
  if (!signature.dtype.empty()) text += " " + std::string(signature.dtype);
  if (!signature.reduce.empty()) text += " " + std::string(signature.reduce);
  if (signature.root >= 0) text += " with root " + std::to_string(signature.root);
  return text;
}

std::uint64_t FlightRecorder::begin(FlightRecord record) {
  record.begun = now_us();
  if (record.collective) note_begun(record.communicator, record.number);
  const std::lock_guard lock(mutex_);
  const std::uint64_t sequence = next_++;
  record.sequence = sequence;
  if (capacity_ == 0) return sequence;
  if (ring_.size() < capacity_) {
    ring_.push_back(std::move(record));
  } else {
    ring_[sequence % capacity_] = std::move(record);
  }
  return sequence;
}

FlightRecord* FlightRecorder::kept(std::uint64_t sequence) {
  if (capacity_ == 0 || sequence + capacity_ < next_) return nullptr;
  return &ring_[sequence % capacity_];
}

void FlightRecorder::end(std::uint64_t sequence, FlightRecord::State state,
                         std::uint64_t bytes_sent, std::vector<int> waiting_for) {
  const std::int64_t now = now_us();
  const std::lock_guard lock(mutex_);
  FlightRecord* const record = kept(sequence);
  if (record == nullptr) return;
  record->state = state;
  record->ended = now;
  record->bytes_sent = bytes_sent;
  record->waiting_for = std::move(waiting_for);
}

void FlightRecorder::end_at_once(std::uint64_t sequence, std::uint64_t bytes_sent) {
  const std::lock_guard lock(mutex_);
  FlightRecord* const record = kept(sequence);
  if (record == nullptr) return;
  record->state = FlightRecord::State::kDone;
  record->ended = record->begun;
  record->bytes_sent = bytes_sent;
}

std::optional<FlightRecord> FlightRecorder::last_of(std::uint32_t communicator,
                                                    std::optional<std::uint64_t> number) const {
  const std::lock_guard lock(mutex_);
  const FlightRecord* last = nullptr;
  for (const FlightRecord& record : ring_) {
    if (!record.collective || record.communicator != communicator) continue;
    if (number && record.number != *number) continue;
    if (last == nullptr || record.sequence > last->sequence) last = &record;
  }
  return last == nullptr ? std::nullopt : std::optional(*last);
}

std::vector<FlightRecord> FlightRecorder::records() const {
  const std::lock_guard lock(mutex_);
  std::vector<FlightRecord> records;
  records.reserve(ring_.size());
  for (std::size_t i = 0; i < ring_.size(); ++i) {
    records.push_back(ring_[(next_ + i) % ring_.size()]);
  }
  return records;
}

std::string flight_json(const FlightFailure& failure, const std::vector<FlightRecord>& records) {
  std::string text = format("{\"version\":1,\"rank\":%d,\"size\":%d,\"generation\":%u,",
                            failure.rank, failure.size, failure.generation) +
                     format("\"pid\":%d,\"written_us\":%lld,", static_cast<int>(getpid()),
                            static_cast<long long>(now_us())) +
                     "\"code\":" + quoted(to_string(failure.status.code())) +
                     ",\"message\":" + quoted(failure.status.message()) +
                     ",\"lost\":" + list(failure.lost) + ",\"silent\":" + list(failure.silent) +
                     ",\"absent\":" + list(failure.absent) + ",\"operations\":[";
  for (std::size_t i = 0; i < records.size(); ++i) {
    text += (i > 0 ? ",\n" : "\n") + line_of(records[i]);
  }
  return text + "\n]}\n";
}

Status write_flight(const std::string& folder, const FlightFailure& failure,
                    const std::vector<FlightRecord>& records) {
  std::error_code ignored;  // what is wrong shows when the file is opened
  std::filesystem::create_directories(folder, ignored);
  std::string name = format("rank-%d", failure.rank);
  if (failure.generation > 0) name += format("-after-%u", failure.generation);
  const std::filesystem::path path = std::filesystem::path(folder) / (name + ".json");
  const std::filesystem::path part = std::filesystem::path(folder) / ("." + name + ".part");
  const std::string text = flight_json(failure, records);
  // A FIFO in its place is not waited for: the error that is recorded wants to be told.
  if (auto opened = open_to_write(part); opened.has_value()) {
    std::FILE* const file = opened.value().release();
    const bool written = std::fwrite(text.data(), 1, text.size(), file) == text.size();
    const bool whole = std::fclose(file) == 0 && written;
    if (whole) std::filesystem::rename(part, path, ignored);
    if (whole && !ignored) return {};
  }
  return {Code::kInvalidArgument,
          "flight record: cannot write " + path.string() + " (expected a writable folder)"};
}

}  // namespace gradwire
