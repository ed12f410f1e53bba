#include "apps/train/memory_table.h"

#include <array>
#include <span>

#include "base/elements.h"
#include "base/text.h"

namespace gradwire {
namespace {

bool comes_and_goes(MemoryClass what, bool whole_sums) {
  if (what == MemoryClass::kGradients || what == MemoryClass::kMainGradients) return whole_sums;
  return what == MemoryClass::kGathered || what == MemoryClass::kActivations ||
         what == MemoryClass::kWorkspace || what == MemoryClass::kCommunication;
}

void add_lines(MemoryTable& table, const std::string& place, const MemoryByClass& planned,
               const MemoryUse& use, bool whole_sums) {
  for (std::size_t i = 0; i < kMemoryClasses; ++i) {
    const auto what = static_cast<MemoryClass>(i);
    MemoryLine line{place, std::string(to_string(what)), planned[i], use.now[i], use.peak[i]};
    if (comes_and_goes(what, whole_sums)) line.held = line.peak;
    if (what == MemoryClass::kCommunication) line.planned = line.held;  // the exchanges' own word
    if (line.planned != 0 || line.held != 0 || line.peak != 0) table.lines.push_back(line);
  }
}

// A table as numbers: three of every place and class, then those of the whole.
constexpr std::array<const char*, 2> kPlaces{"device", "host"};
constexpr std::size_t kOfALine = 3;
constexpr std::size_t kOfLines = kPlaces.size() * kMemoryClasses * kOfALine;
using Numbers = std::array<std::int64_t, kOfLines + 4>;

Numbers numbers_of(const MemoryTable& table) {
  Numbers numbers{};
  for (const MemoryLine& line : table.lines) {
    std::size_t at = line.place == kPlaces[0] ? 0 : kOfLines / 2;
    while (to_string(static_cast<MemoryClass>(at / kOfALine % kMemoryClasses)) != line.what) {
      at += kOfALine;
    }
    numbers[at] = line.planned;
    numbers[at + 1] = line.held;
    numbers[at + 2] = line.peak;
  }
  numbers[kOfLines] = table.device_peak;
  numbers[kOfLines + 1] = table.host_peak;
  numbers[kOfLines + 2] = table.copied_out;
  numbers[kOfLines + 3] = table.copied_in;
  return numbers;
}

MemoryTable table_of(std::span<const std::int64_t> numbers) {
  MemoryTable table;
  for (std::size_t at = 0; at < kOfLines; at += kOfALine) {
    const MemoryLine line{
        kPlaces[at / (kOfLines / 2)],
        std::string(to_string(static_cast<MemoryClass>(at / kOfALine % kMemoryClasses))),
        numbers[at], numbers[at + 1], numbers[at + 2]};
    if (line.planned != 0 || line.held != 0 || line.peak != 0) table.lines.push_back(line);
  }
  table.device_peak = numbers[kOfLines];
  table.host_peak = numbers[kOfLines + 1];
  table.copied_out = numbers[kOfLines + 2];
  table.copied_in = numbers[kOfLines + 3];
  return table;
}

}  // namespace

MemoryTable memory_table(const RunMemory& planned, const MemoryPlaces& places) {
  MemoryTable table;
  const MemoryUse device = places.device.use();
  const MemoryUse host = places.host.use();
  add_lines(table, "device", planned.device, device, planned.whole_sums);
  add_lines(table, "host", planned.host, host, planned.whole_sums);
  table.device_peak = device.peak_total;
  table.host_peak = host.peak_total;
  table.copied_out = places.link->bytes_out;
  table.copied_in = places.link->bytes_in;
  return table;
}

Result<std::vector<MemoryTable>> gather_tables(Communicator& group, const MemoryTable& own) {
  Numbers mine = numbers_of(own);
  std::vector<std::int64_t> all(mine.size() * static_cast<std::size_t>(group.size()));
  GW_ASSIGN(Work work,
            group.all_gather(view_of(std::span<std::int64_t>(mine)), view_of(std::span(all))));
  GW_TRY(work.wait().with_context("memory of all ranks"));
  std::vector<MemoryTable> tables;
  for (std::size_t at = 0; group.rank() == 0 && at < all.size(); at += mine.size()) {
    tables.push_back(table_of(std::span(all).subspan(at, mine.size())));
  }
  return tables;
}

std::string memory_text(const MemoryTable& table, int rank) {
  std::string text = format("%-7s %-16s %14s %14s %14s\n", "place",
                            format("memory of rank %d", rank).c_str(), "planned", "held", "peak");
  for (const MemoryLine& line : table.lines) {
    text += format("%-7s %-16s %14lld %14lld %14lld\n", line.place.c_str(), line.what.c_str(),
                   static_cast<long long>(line.planned), static_cast<long long>(line.held),
                   static_cast<long long>(line.peak));
  }
  text += format("%-7s %-16s %14s %14s %14lld\n", "device", "total", "", "",
                 static_cast<long long>(table.device_peak));
  if (table.host_peak == 0) return text;
  text += format("%-7s %-16s %14s %14s %14lld\n", "host", "total", "", "",
                 static_cast<long long>(table.host_peak));
  return text + format("copied to the host: %lld bytes; back: %lld bytes\n",
                       static_cast<long long>(table.copied_out),
                       static_cast<long long>(table.copied_in));
}

}  // namespace gradwire
