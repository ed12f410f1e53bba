#include "apps/train/memory_table.h"

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

std::string memory_text(const MemoryTable& table) {
  std::string text =
      format("%-7s %-16s %14s %14s %14s\n", "place", "memory of rank 0", "planned", "held", "peak");
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
