// Chart.js (MIT licence) as Debian's libjs-chart.js ships it, taken into the program at build time
// by embed_file.py.
#pragma once

#include <cstddef>

namespace gradwire {
extern const char kChartJs[];
extern const std::size_t kChartJsBytes;
}  // namespace gradwire
