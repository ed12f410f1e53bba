#include "apps/train/trace_file.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "adapters/trainer/trace/clock_offset.h"
#include "base/elements.h"
#include "base/text.h"
#include "gradwire/version.h"

namespace gradwire {
namespace {

std::string json_text(std::string_view text) { return nlohmann::json(text).dump(); }

double microseconds(std::int64_t nanoseconds) { return static_cast<double>(nanoseconds) / 1000; }

Status wait_for(Result<Work> started) {
  GW_ASSIGN(Work work, std::move(started));
  return work.wait();
}

TensorView bytes_of(std::string& text) {
  return {reinterpret_cast<std::byte*>(text.data()),
          Shape::vector(static_cast<std::int64_t>(text.size())), DType::kU8};
}

// Texts of any length: first all lengths, then all texts, rank by rank.
Result<std::vector<std::string>> at_rank_0(Communicator& communicator, std::string own) {
  std::int64_t length = static_cast<std::int64_t>(own.size());
  if (communicator.rank() != 0) {
    GW_TRY(wait_for(communicator.send(view_of(std::span(&length, 1)), 0)));
    GW_TRY(wait_for(communicator.send(bytes_of(own), 0)));
    return std::vector<std::string>();
  }
  std::vector<std::string> all{std::move(own)};
  for (int rank = 1; rank < communicator.size(); ++rank) {
    GW_TRY(wait_for(communicator.recv(view_of(std::span(&length, 1)), rank)));
    if (length < 0) {
      return Status(Code::kCorruptPayload,
                    format("trace: %lld bytes from rank %d", static_cast<long long>(length), rank));
    }
    std::string text(static_cast<std::size_t>(length), ' ');
    GW_TRY(wait_for(communicator.recv(bytes_of(text), rank)));
    all.push_back(std::move(text));
  }
  return all;
}

}  // namespace

std::string trace_events(const RankTrace& trace, int rank, std::int64_t origin,
                         std::int64_t offset) {
  std::string text = format(
      "{\"ph\":\"M\",\"name\":\"process_name\",\"pid\":%d,\"tid\":0,"
      "\"args\":{\"name\":\"rank %d\"}}",
      rank, rank);
  for (std::size_t at = 0; at < trace.streams().size(); ++at) {
    text += format(
        ",\n{\"ph\":\"M\",\"name\":\"thread_name\",\"pid\":%d,\"tid\":%zu,"
        "\"args\":{\"name\":%s}}",
        rank, at, json_text(trace.streams()[at]).c_str());
  }
  for (const TraceSpan& span : trace.spans()) {
    text += format(
        ",\n{\"ph\":\"X\",\"name\":%s,\"cat\":%s,\"pid\":%d,\"tid\":%d,\"ts\":%.3f,"
        "\"dur\":%.3f,\"args\":{\"step\":%lld}}",
        json_text(span.name).c_str(), json_text(span.category).c_str(), rank, span.stream,
        microseconds(span.begin + offset - origin), microseconds(span.end - span.begin),
        static_cast<long long>(span.step));
  }
  for (const TraceCount& count : trace.counts()) {
    std::string by_class;
    for (std::size_t i = 0; i < count.bytes.size(); ++i) {
      if (count.bytes[i] == 0) continue;
      by_class += format("%s%s:%llu", by_class.empty() ? "" : ",",
                         json_text(to_string(static_cast<TrafficClass>(i))).c_str(),
                         static_cast<unsigned long long>(count.bytes[i]));
    }
    text += format(
        ",\n{\"ph\":\"C\",\"name\":\"bytes sent in a step\",\"pid\":%d,\"tid\":0,\"ts\":%.3f,"
        "\"args\":{%s}}",
        rank, microseconds(count.time + offset - origin), by_class.c_str());
  }
  return text;
}

Result<TraceFile> TraceFile::create(const std::string& path) {
  auto file = open_to_write(path);
  if (!file.has_value()) return file.error().with_context("train: --trace");
  return TraceFile(std::move(file).value(), path);
}

Status TraceFile::failed() const {
  return {Code::kInvalidArgument,
          "train: --trace " + path_ + " cannot be written: " + std::strerror(errno)};
}

Status TraceFile::write(const std::vector<std::string>& events_by_rank) {
  const auto put = [&](const std::string& text) {
    return std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size();
  };
  if (!put("{\"displayTimeUnit\":\"ms\",\"otherData\":{\"gradwire\":\"" GRADWIRE_VERSION
           "\"},\"traceEvents\":[\n")) {
    return failed();
  }
  for (std::size_t rank = 0; rank < events_by_rank.size(); ++rank) {
    if (!put((rank == 0 ? "" : ",\n") + events_by_rank[rank])) return failed();
  }
  if (!put("\n]}\n") || std::fflush(file_.get()) != 0) return failed();
  file_.reset();
  return {};
}

Status write_trace(Communicator& communicator, const RankTrace& trace, TraceFile* file) {
  GW_ASSIGN(const std::int64_t offset, offset_to_rank_0(communicator));
  std::int64_t origin = std::numeric_limits<std::int64_t>::max();  // a rank without spans
  for (const TraceSpan& span : trace.spans()) origin = std::min(origin, span.begin + offset);
  GW_TRY(wait_for(communicator.all_reduce(view_of(std::span(&origin, 1)), ReduceOp::kMin)));
  GW_ASSIGN(const std::vector<std::string> all,
            at_rank_0(communicator, trace_events(trace, communicator.rank(), origin, offset)));
  return file != nullptr ? file->write(all) : Status();
}

}  // namespace gradwire
