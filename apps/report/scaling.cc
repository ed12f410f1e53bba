#include "apps/report/scaling.h"

#include <algorithm>
#include <map>
#include <set>

#include "apps/report/html_page.h"
#include "base/text.h"

namespace gradwire {
namespace {

// "model mlp, ranks 4" -> "model mlp".
std::string without_ranks(const std::string& setting) {
  std::string rest;
  for (std::size_t at = 0; at <= setting.size();) {
    const std::size_t end = std::min(setting.find(", ", at), setting.size());
    const std::string part = setting.substr(at, end - at);
    if (!part.starts_with("ranks ")) rest += (rest.empty() || part.empty() ? "" : ", ") + part;
    at = end + 2;
  }
  return rest;
}

std::string key_of(const StudyCase& one) {
  std::string key = without_ranks(one.setting) + "\n" + one.row + "\n" + one.compressor + "\n" +
                    one.transport + "\n" + one.lab;
  for (const auto& [name, value] : one.flags) key += "\n" + name + " " + value;
  return key;
}

std::string table_of(const std::vector<const ScalingRow*>& rows, const std::set<int>& ranks) {
  std::string groups;
  std::string headings;
  for (const int n : ranks) {
    groups += format("<th colspan=\"4\">%d rank%s</th>", n, n == 1 ? "" : "s");
    headings +=
        "<th class=\"edge\">ms per<br>step</th><th>exposed</th><th>speed-up</th>"
        "<th>left of<br>the ranks</th>";
  }
  std::string html = scroll_box() + "<table class=\"results\"><thead><tr><th></th>" + groups +
                     "</tr>\n<tr><th></th>" + headings + "</tr></thead><tbody>\n";
  for (const ScalingRow* row : rows) {
    html += "<tr><th>" + breakable(row->name) + "</th>";
    for (const int n : ranks) {
      const auto found = std::ranges::find(row->ranks, n);
      if (found == row->ranks.end()) {
        html += "<td class=\"edge\">–</td><td>–</td><td>–</td><td>–</td>";
        continue;
      }
      const auto i = static_cast<std::size_t>(found - row->ranks.begin());
      html += format("<td class=\"edge\">%.2f</td><td>%.2f</td><td>%.2f</td><td>%.2f</td>",
                     row->cases[i]->step_ms, row->cases[i]->exposed_ms, row->speed_up(i),
                     row->left_by_communication(i));
    }
    html += "</tr>\n";
  }
  return html + "</tbody></table></div>\n";
}

}  // namespace

double ScalingRow::speed_up(std::size_t i) const {
  return cases[i]->step_ms > 0 ? cases[0]->step_ms / cases[i]->step_ms : 0;
}

double ScalingRow::left_by_communication(std::size_t i) const {
  const double all = cases[i]->compute_ms + cases[i]->exposed_ms;
  return all > 0 ? ranks[i] * cases[i]->compute_ms / all : 0;
}

std::vector<ScalingRow> scaling_of(const StudyPlan& plan, const std::vector<CaseSummary>& cases) {
  std::vector<ScalingRow> rows;
  std::map<std::string, std::size_t> at;
  for (std::size_t i = 0; i < plan.cases.size() && i < cases.size(); ++i) {
    if (cases[i].runs == 0) continue;
    const StudyCase& one = plan.cases[i];
    const auto [found, fresh] = at.try_emplace(key_of(one), rows.size());
    if (fresh) rows.push_back({cases[i].name, without_ranks(one.setting), {}, {}});
    ScalingRow& row = rows[found->second];
    const auto place = std::ranges::lower_bound(row.ranks, one.ranks);
    row.cases.insert(row.cases.begin() + (place - row.ranks.begin()), &cases[i]);
    row.ranks.insert(place, one.ranks);
  }
  std::erase_if(rows, [](const ScalingRow& row) { return row.ranks.size() < 2; });
  return rows;
}

std::string scaling_section(const std::vector<ScalingRow>& rows) {
  if (rows.empty()) return {};
  std::string html =
      "<section>\n<h2>More ranks</h2>\n<p class=\"dim\">The global batch is the same for all. "
      "<b>Speed-up</b>: steps per second over those of the fewest ranks. <b>Left of the ranks</b>: "
      "N · compute / (compute + exposed), the ranks' worth of computing that waiting for gradients "
      "leaves.</p>\n";
  std::vector<std::string> settings;
  for (const ScalingRow& row : rows) {
    if (std::ranges::find(settings, row.setting) == settings.end()) settings.push_back(row.setting);
  }
  for (const std::string& setting : settings) {
    std::vector<const ScalingRow*> own;
    std::set<int> ranks;
    for (const ScalingRow& row : rows) {
      if (row.setting != setting) continue;
      own.push_back(&row);
      ranks.insert(row.ranks.begin(), row.ranks.end());
    }
    if (!setting.empty()) html += "<h3>" + escaped(setting) + "</h3>\n";
    html += table_of(own, ranks);
  }
  return html + "</section>\n";
}

}  // namespace gradwire
