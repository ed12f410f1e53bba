// Files that are taken into the program at build time by embed_file.py: the page of a report, its
// script, and Chart.js (MIT licence) as Debian's libjs-chart.js ships it.
#pragma once

#include <cstddef>

namespace gradwire {
extern const char kReportPage[];
extern const std::size_t kReportPageBytes;
extern const char kReportScript[];
extern const std::size_t kReportScriptBytes;
extern const char kChartJs[];
extern const std::size_t kChartJsBytes;
}  // namespace gradwire
