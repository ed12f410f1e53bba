#include "apps/plan/plan_mesh_page.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>

#include "apps/plan/plan_mesh_template.h"
#include "apps/plan/plan_mesh_text.h"
#include "apps/report/html_page.h"
#include "apps/report/page_files.h"
#include "apps/sim/sim_text.h"
#include "base/text.h"
#include "trainer/memory/memory_arena.h"

namespace gradwire {
namespace {

using PageJson = nlohmann::ordered_json;

constexpr double kSecondsOfTick = 1e-9;

PageJson memory_json(const MeshAnswer& row) {
  PageJson classes = PageJson::array();
  for (std::size_t place = 0; place < kMemoryClasses; ++place) {
    PageJson bytes = PageJson::array();
    for (const MeshRankMemory& rank : row.memory) bytes.push_back(rank.bytes[place]);
    const bool any = std::ranges::any_of(
        row.memory, [&](const MeshRankMemory& rank) { return rank.bytes[place] > 0; });
    if (any) {
      classes.push_back({{"name", to_string(static_cast<MemoryClass>(place))}, {"bytes", bytes}});
    }
  }
  return {{"room", row.room}, {"classes", classes}};
}

// [lane, kind, begin, end, micro-batch, stage]; each rank has lanes of computation, of its messages
// and of exchanges among replicas.
Result<PageJson> timeline_json(const MeshProblem& problem, const MeshAnswer& row) {
  GW_ASSIGN(const MeshStep step, trace_mesh(problem, row.choice));
  PageJson spans = PageJson::array();
  std::int64_t end = 0;
  for (const MeshSpan& span : step.spans) {
    if (span.replica != 0) continue;
    const bool message = span.kind == MeshSpan::Kind::kMessage;
    const bool exchange =
        span.kind == MeshSpan::Kind::kReduce || span.kind == MeshSpan::Kind::kGather;
    const int lane = 3 * span.rank + (message ? 1 : exchange ? 2 : 0);
    end = std::max(end, span.end);
    spans.push_back({lane, static_cast<int>(span.kind),
                     static_cast<double>(span.begin) * kSecondsOfTick,
                     static_cast<double>(span.end) * kSecondsOfTick, span.micro, span.stage});
  }
  return PageJson{{"ranks", row.choice.pp},
                  {"seconds", static_cast<double>(end) * kSecondsOfTick},
                  {"spans", spans}};
}

PageJson points_json(const MeshSearchResult& result) {
  PageJson points = PageJson::array();
  for (const MeshAnswer& row : result.rows) {
    points.push_back({{"x", static_cast<double>(row.ticks) * kSecondsOfTick},
                      {"y", row.most_memory()},
                      {"name", to_string(row.choice)}});
  }
  return points;
}

// Times of tables as a page writes them.
std::string with_micro_sign(std::string text) {
  for (std::size_t at = text.find(" us"); at != std::string::npos; at = text.find(" us", at)) {
    const std::size_t end = at + 3;
    const bool is_word =
        end < text.size() && std::isalnum(static_cast<unsigned char>(text[end])) != 0;
    if (!is_word) text.replace(at, 3, " \u00b5s");
    at = end;
  }
  return text;
}

std::string phase_rows(const MeshAnswer& row) {
  std::string html;
  for (const NamedPhase& phase : named_phases(row.phases)) {
    const double share =
        row.ticks > 0 ? 100.0 * static_cast<double>(phase.ticks) / static_cast<double>(row.ticks)
                      : 0;
    html += std::string("<tr><th>") + phase.name + "</th><td>" +
            with_micro_sign(time_text(static_cast<double>(phase.ticks) * kSecondsOfTick)) +
            format("</td><td>%.1f %%</td></tr>\n", share);
  }
  return html;
}

// Those beside the row that fit, by phase; how much of the step each phase is, so that what they
// have more of stands where it comes from.
std::string near_rows(const MeshAnswer& row, const std::vector<MeshAnswer>& near) {
  constexpr std::size_t kMost = 20;
  std::string html;
  std::size_t shown = 0;
  const auto add = [&](const MeshAnswer& one) {
    const auto longer = static_cast<double>(one.ticks - row.ticks);
    html += "<tr><th>" + escaped(brief_text(one.choice)) +
            format("</th><td>%+.1f %%</td><td>",
                   row.ticks > 0 ? 100 * longer / static_cast<double>(row.ticks) : 0) +
            with_micro_sign(time_text(static_cast<double>(one.ticks) * kSecondsOfTick)) + "</td>";
    for (const NamedPhase& phase : named_phases(one.phases)) {
      html += "<td>" +
              with_micro_sign(time_text(static_cast<double>(phase.ticks) * kSecondsOfTick)) +
              "</td>";
    }
    html += "<td>" + size_text(one.most_memory()) + "</td></tr>\n";
  };
  add(row);
  for (const MeshAnswer& one : near) {
    if (fits(one) && ++shown <= kMost) add(one);
  }
  return html;
}

std::string near_note(const std::vector<MeshAnswer>& near) {
  const auto large = std::ranges::count_if(near, [](const MeshAnswer& one) { return !fits(one); });
  return format(
      "%zu meshes have ranks on other axes, or one other choice changed; the fastest 20 "
      "that fit are shown, %lld do not fit.",
      near.size(), static_cast<long long>(large));
}

// All of them that a row stands for, whatever its title leaves out.
std::string flags_text(const MeshChoice& choice) {
  return "--parallel '" + parallel_text(choice) +
         format("' --accumulate %d --recompute ", choice.accumulate) + choice.recompute +
         " --compressor '" + choice.compressor + "'";
}

std::string sent_note(const MeshAnswer& row) {
  const auto size = [](double bytes) { return size_text(static_cast<std::int64_t>(bytes)); };
  return "Sent by a rank: " + size(row.bytes.data) + " of gradients and parameters, " +
         size(row.bytes.messages) + " between stages, " + size(row.bytes.tensors) +
         " of tensors. No order of its work takes less than " +
         with_micro_sign(time_text(static_cast<double>(row.bound) * kSecondsOfTick)) + ".";
}

}  // namespace

Result<std::string> mesh_page(const MeshProblem& problem, const MeshPage& page) {
  const MeshAnswer& row = page.row;
  GW_ASSIGN(const PageJson timeline, timeline_json(problem, row));
  return filled(
      kPlanMeshPage,
      {{"title", escaped(brief_text(row.choice))},
       {"flags", escaped(flags_text(row.choice))},
       {"setup", escaped(page.heading)},
       {"step", with_micro_sign(time_text(static_cast<double>(row.ticks) * kSecondsOfTick))},
       {"phases", phase_rows(row)},
       {"sent", sent_note(row)},
       {"near", near_rows(row, page.near)},
       {"nearnote", near_note(page.near)},
       {"table", escaped(with_micro_sign(mesh_table(page.result)))},
       {"data", script_json({{"memory", memory_json(row)},
                             {"timeline", timeline},
                             {"points", points_json(page.result)},
                             {"chosen", to_string(row.choice)}})},
       {"chartjs", std::string(kChartJs, kChartJsBytes)}});
}

}  // namespace gradwire
