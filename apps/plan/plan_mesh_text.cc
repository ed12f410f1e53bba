#include "apps/plan/plan_mesh_text.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/sim/sim_text.h"
#include "base/text.h"
#include "trainer/memory/memory_arena.h"

namespace gradwire {
namespace {

constexpr double kNanoseconds = 1e-9;

std::string duration(std::int64_t ticks) {
  return time_text(static_cast<double>(ticks) * kNanoseconds);
}
std::string amount_of(double bytes) { return size_text(static_cast<std::int64_t>(bytes)); }

std::string mesh_name(const MeshChoice& choice) {
  return brief_parallel_text(choice) + (choice.has_flush() ? "" : " stale");
}

std::string micro_batches(const MeshChoice& choice) {
  return format("%dx%lld", choice.accumulate, static_cast<long long>(choice.micro_batch));
}

double share_of(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::string left_out_text(const MeshSearchResult& result) {
  std::string text =
      format("%lld mesh%s, %lld simulated; left out:%s\n", static_cast<long long>(result.choices),
             result.choices == 1 ? "" : "es", static_cast<long long>(result.simulated),
             result.left_out.empty() ? " none" : "");
  for (const auto& [why, count] : result.left_out) {
    text += format("%10lld  %s\n", static_cast<long long>(count), why.c_str());
  }
  return text;
}

nlohmann::ordered_json choice_json(const MeshChoice& choice) {
  return {{"parallel", parallel_text(choice)},
          {"dp", choice.dp},
          {"tp", choice.tp},
          {"pp", choice.pp},
          {"schedule", choice.pp > 1 ? choice.order.text() : ""},
          {"zero", choice.zero},
          {"accumulate", choice.accumulate},
          {"micro_batch", choice.micro_batch},
          {"recompute", choice.recompute},
          {"compressor", choice.compressor},
          {"stale", !choice.has_flush()}};
}

nlohmann::ordered_json answer_json(const char* kind, const MeshAnswer& answer) {
  nlohmann::ordered_json json{{"kind", kind}};
  json.update(choice_json(answer.choice));
  json["seconds"] = static_cast<double>(answer.ticks) * kNanoseconds;
  json["bound_seconds"] = static_cast<double>(answer.bound) * kNanoseconds;
  json["fits"] = fits(answer);
  json["memory_bytes"] = answer.most_memory();
  json["needed_bytes"] = answer.most_needed();
  json["device_bytes"] = answer.room;
  for (const NamedPhase& phase : named_phases(answer.phases)) {
    json[std::string(phase.name) + "_seconds"] = static_cast<double>(phase.ticks) * kNanoseconds;
  }
  json["data_bytes"] = answer.bytes.data;
  json["message_bytes"] = answer.bytes.messages;
  json["tensor_bytes"] = answer.bytes.tensors;
  return json;
}

// Classes that some rank has bytes of.
std::vector<std::size_t> held_classes(const MeshAnswer& row) {
  std::vector<std::size_t> held;
  for (std::size_t place = 0; place < kMemoryClasses; ++place) {
    const bool any = std::ranges::any_of(
        row.memory, [&](const MeshRankMemory& rank) { return rank.bytes[place] > 0; });
    if (any) held.push_back(place);
  }
  return held;
}

std::string memory_text(const MeshAnswer& row) {
  std::string text = format("%-5s %-9s", "rank", "stages");
  const std::vector<std::size_t> held = held_classes(row);
  for (const std::size_t place : held) {
    text += format(" %12s", std::string(to_string(static_cast<MemoryClass>(place))).c_str());
  }
  text += format(" %12s\n", "total");
  for (const MeshRankMemory& rank : row.memory) {
    std::string stages;
    for (const int stage : rank.stages) {
      stages += (stages.empty() ? "" : ",") + std::to_string(stage);
    }
    text += format("%-5d %-9s", rank.rank, stages.c_str());
    for (const std::size_t place : held) {
      text += format(" %12s", size_text(rank.bytes[place]).c_str());
    }
    text += format(" %12s\n", size_text(rank.total()).c_str());
  }
  return text;
}

std::string near_text(const MeshAnswer& row, const std::vector<MeshAnswer>& near) {
  constexpr std::size_t kMost = 20;
  std::string text = "\nBeside it: ranks on other axes, or one other choice changed\n";
  std::size_t shown = 0;
  std::size_t others = 0;
  for (const MeshAnswer& other : near) {
    if (!fits(other)) {
      ++others;
      continue;
    }
    if (++shown > kMost) continue;
    text += format("%+8.1f%%  %s\n", share_of(other.ticks - row.ticks, row.ticks),
                   brief_text(other.choice).c_str());
  }
  if (shown > kMost) text += format("and %zu slower ones", shown - kMost);
  if (shown > kMost) text += "\n";
  text += format("%zu others do not fit\n", others);
  return text;
}

}  // namespace

std::vector<NamedPhase> named_phases(const MeshPhases& phases) {
  return {{"compute", phases.compute},
          {"bubble", phases.bubble},
          {"tensors", phases.tensors},
          {"messages", phases.messages},
          {"data", phases.data}};
}

std::string mesh_table(const MeshSearchResult& result) {
  std::size_t width = 8;
  std::size_t codec = 10;
  for (const MeshAnswer& row : result.rows) {
    width = std::max(width, mesh_name(row.choice).size());
    codec = std::max(codec, row.choice.compressor.size());
  }
  const int w = static_cast<int>(width);
  const int c = static_cast<int>(codec);
  std::string text =
      format("\n%3s  %-*s %9s %-9s %-*s %10s %8s %8s %8s %8s %8s %10s %5s %10s\n", "row", w, "mesh",
             "micro", "recompute", c, "compressor", "step", "compute", "bubble", "tensors",
             "messages", "data", "memory", "full", "sent");
  int number = 0;
  for (const MeshAnswer& row : result.rows) {
    text += format("%3d  %-*s %9s %-9s %-*s %10s", ++number, w, mesh_name(row.choice).c_str(),
                   micro_batches(row.choice).c_str(), row.choice.recompute.c_str(), c,
                   row.choice.compressor.c_str(), duration(row.ticks).c_str());
    for (const NamedPhase& phase : named_phases(row.phases)) {
      text += format(" %7.1f%%", share_of(phase.ticks, row.ticks));
    }
    text += format(" %10s %4.0f%% %10s\n", size_text(row.most_memory()).c_str(),
                   share_of(row.most_needed(), row.room),
                   amount_of(row.bytes.data + row.bytes.messages + row.bytes.tensors).c_str());
  }
  text +=
      "micro: micro-batches of a replica x samples of one; tensors, messages, data: exchanges that "
      "nothing hides;\nmemory and sent: of the rank that has most\n\n";
  return text + left_out_text(result);
}

std::string mesh_lines(const MeshSearchResult& result) {
  std::string text;
  for (const MeshAnswer& row : result.rows) text += answer_json("mesh", row).dump() + "\n";
  for (const auto& [why, count] : result.left_out) {
    text +=
        nlohmann::ordered_json{{"kind", "left_out"}, {"why", why}, {"count", count}}.dump() + "\n";
  }
  return text +
         nlohmann::ordered_json{
             {"kind", "search"}, {"meshes", result.choices}, {"simulated", result.simulated}}
             .dump() +
         "\n";
}

std::string why_text(std::int64_t number, const MeshAnswer& row,
                     const std::vector<MeshAnswer>& near) {
  std::string text = format("Row %lld: %s\n%s a step, %s by the lower bound\n",
                            static_cast<long long>(number), brief_text(row.choice).c_str(),
                            duration(row.ticks).c_str(), duration(row.bound).c_str());
  if (parallel_text(row.choice) != brief_parallel_text(row.choice)) {
    text += "--parallel " + parallel_text(row.choice) + "\n";
  }
  const std::vector<const char*> meanings{
      "layers and optimizer of the rank that has most", "waiting that no exchange causes",
      "sums among ranks that share tensors", "messages between stages",
      "gradients and parameters among replicas"};
  std::size_t at = 0;
  for (const NamedPhase& phase : named_phases(row.phases)) {
    text += format("%-9s %10s %6.1f%%  %s\n", phase.name, duration(phase.ticks).c_str(),
                   share_of(phase.ticks, row.ticks), meanings[at++]);
  }
  text +=
      format("sent by a rank: %s of gradients and parameters, %s between stages, %s of tensors\n",
             amount_of(row.bytes.data).c_str(), amount_of(row.bytes.messages).c_str(),
             amount_of(row.bytes.tensors).c_str());
  text += format("rank %d is the fullest: %s of %s", row.fullest,
                 size_text(row.most_memory()).c_str(), size_text(row.room).c_str());
  const std::int64_t more = row.most_needed() - row.most_memory();
  if (more > 0) text += "; gradients on their way take at most " + size_text(more) + " more";
  text += "\n\n";
  return text + memory_text(row) + near_text(row, near);
}

std::string why_lines(const MeshAnswer& row, const std::vector<MeshAnswer>& near) {
  std::string text;
  for (const MeshRankMemory& rank : row.memory) {
    nlohmann::ordered_json json{{"kind", "rank"},
                                {"rank", rank.rank},
                                {"stages", rank.stages},
                                {"params", rank.parameters}};
    for (std::size_t place = 0; place < kMemoryClasses; ++place) {
      json[std::string(to_string(static_cast<MemoryClass>(place))) + "_bytes"] = rank.bytes[place];
    }
    json["total_bytes"] = rank.total();
    text += json.dump() + "\n";
  }
  for (const MeshAnswer& other : near) text += answer_json("neighbour", other).dump() + "\n";
  return text;
}

}  // namespace gradwire
