#include "apps/sim/sim_page.h"

#include <algorithm>

#include "apps/report/html_page.h"
#include "apps/report/page_files.h"
#include "apps/sim/sim_template.h"
#include "apps/sim/sim_text.h"
#include "base/text.h"

namespace gradwire {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::int64_t kSmallest = 64;

// (bytes, seconds) at powers of 4, up to four times the size that was asked for or a little more.
template <typename SecondsAt>
Json curve(const CostQuestion& question, const SecondsAt& seconds_at) {
  Json points = Json::array();
  const std::int64_t largest = std::max<std::int64_t>(4 * question.bytes, 1 << 20);
  CostQuestion at = question;
  for (at.bytes = kSmallest; at.bytes < 4 * largest; at.bytes *= 4) {
    const double seconds = seconds_at(at);
    if (seconds > 0) points.push_back({at.bytes, seconds});
  }
  return points;
}

Json curves_of(const CostQuestion& question) {
  Json curves = Json::array();
  for (const std::string_view algorithm : algorithms_of(question.collective)) {
    const Json points = curve(question, [&](const CostQuestion& at) {
      const auto cost = cost_of(at, algorithm);
      return cost.has_value() ? cost.value().time.seconds() : 0.0;
    });
    if (!points.empty()) curves.push_back({{"name", algorithm}, {"points", points}});
  }
  curves.push_back({{"name", "bound"}, {"points", curve(question, [](const CostQuestion& at) {
                                          return lower_bound(at).seconds();
                                        })}});
  return curves;
}

std::string table_rows(const CostQuestion& question, const std::vector<SimRow>& rows) {
  const double bound = lower_bound(question).seconds();
  std::string html;
  for (const SimRow& row : rows) {
    html += std::string("<tr") + (row.chosen ? " class=\"chosen\"" : "") + "><th>" +
            escaped(row.algorithm) + "</th><td>" + time_text(row.seconds) +
            format("</td><td>%.3f</td><td>%d</td><td>", bound > 0 ? row.seconds / bound : 1.0,
                   row.rounds) +
            size_text(row.wire_bytes_max) + "</td><td>" +
            (row.simulated ? size_text(row.node_bytes_max) : "–") + "</td></tr>\n";
  }
  return html;
}

}  // namespace

std::string sim_page(const CostQuestion& question, const std::vector<SimRow>& rows,
                     const std::string& command) {
  CostQuestion one_ported = question;
  one_ported.links.gap = 1;
  CostQuestion overlapping = question;
  overlapping.links.gap = 0;
  const std::string heading = heading_text(question);
  const std::size_t line = heading.find('\n');
  return filled(
      kSimPage,
      {{"title", escaped(heading.substr(0, line))},
       {"setup", escaped(heading.substr(line + 1))},
       {"rows", table_rows(question, rows)},
       {"overlapping", escaped(crossover_text(overlapping))},
       {"one_ported", escaped(crossover_text(one_ported))},
       {"command", escaped(command)},
       {"data", script_json({{"bytes", question.bytes}, {"curves", curves_of(question)}})},
       {"chartjs", std::string(kChartJs, kChartJsBytes)}});
}

}  // namespace gradwire
