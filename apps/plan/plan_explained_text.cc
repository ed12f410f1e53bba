#include "apps/plan/plan_explained_text.h"

#include <cstdio>
#include <nlohmann/json.hpp>
#include <vector>

#include "apps/sim/sim_text.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr double kSentWidth = 4;  // bytes: gradients and activations are sent in fp32

std::string rounded_size(double bytes) { return size_text(static_cast<std::int64_t>(bytes)); }

std::string optional_size(const std::optional<double>& bytes) {
  return bytes.has_value() ? rounded_size(*bytes) : "-";
}

double percent(std::int64_t part, std::int64_t whole) {
  return whole > 0 ? 100.0 * static_cast<double>(part) / static_cast<double>(whole) : 0;
}

std::int64_t cell(const ExplainedLayer& layer, LayerDivision division, std::int64_t samples) {
  return layer_traffic(division, layer.product.size, samples).total();
}

std::string name_of(const ExplainedLayer& layer) {
  return layer.product.name + (layer.count > 1 ? format(" (%d)", layer.count) : "");
}

void print_layers(const PlanExplained& e) {
  std::printf(
      "\nElements that dividing a layer among %lld ranks sends in a step of %lld samples;\n"
      "each rank sends (p-1)/p of them, 4 bytes each\n",
      static_cast<long long>(e.ranks), static_cast<long long>(e.samples));
  std::printf("%-24s %11s %11s %11s %11s\n", "", "data", "partition", "column", "reduce");
  std::printf("%-24s %11s %11s %11s %11s  %-16s %10s\n", "",
              "parallel:", "output:", "parallel:", "output:", "", "a rank");
  std::printf("%-24s %11s %11s %11s %11s  %-16s %10s\n", "layer", "gradients", "both ways",
              "backward", "forward", "least", "sends");
  for (const ExplainedLayer& layer : e.layers) {
    std::printf("%-24s", name_of(layer).c_str());
    for (const LayerDivision division : kLayerDivisions) {
      std::printf(" %11lld", static_cast<long long>(cell(layer, division, e.samples)));
    }
    const double sent = sent_by_rank(cell(layer, layer.least, e.samples), e.ranks);
    std::printf("  %-16s %10s\n", std::string(to_string(layer.least)).c_str(),
                rounded_size(kSentWidth * sent).c_str());
  }
  const auto total = [&e](const char* what, std::int64_t elems) {
    std::printf("%-24s %11lld elements, %s from each rank\n", what, static_cast<long long>(elems),
                rounded_size(kSentWidth * sent_by_rank(elems, e.ranks)).c_str());
  };
  total("all data parallel", e.traffic.data_parallel);
  total("each layer the least", e.traffic.least);
}

void print_work(const PlanExplained& e) {
  std::int64_t macs = 0;
  std::int64_t outputs = 0;
  for (const KindOfWork& kind : e.work) {
    macs += kind.forward_macs;
    outputs += kind.outputs;
  }
  std::printf("\nWork and parameters\n");
  std::printf("%-16s %18s %9s %14s %9s %14s %9s\n", "", "multiplications", "share", "parameters",
              "share", "activations", "share");
  std::int64_t others = e.parameters;
  for (const KindOfWork& kind : e.work) {
    others -= kind.parameters;
    std::printf("%-16s %18lld %7.1f %% %14lld %7.1f %% %14lld %7.1f %%\n",
                std::string(to_string(kind.kind)).c_str(),
                static_cast<long long>(kind.forward_macs), percent(kind.forward_macs, macs),
                static_cast<long long>(kind.parameters), percent(kind.parameters, e.parameters),
                static_cast<long long>(kind.outputs), percent(kind.outputs, outputs));
  }
  if (others > 0) {
    std::printf("%-16s %18s %9s %14lld %7.1f %%\n", "others", "", "",
                static_cast<long long>(others), percent(others, e.parameters));
  }
  std::printf("multiplications and activations (outputs of these layers) of one sample, forward\n");
}

void print_tensors(const PlanQuestion& q, const PlanExplained& e) {
  if (e.tensors.empty()) return;
  std::printf(
      "\nTensor parallelism: %d sums in each of %lld blocks for a micro-batch of %lld, %d at the "
      "ends\n",
      TensorTraffic::kSumsOfBlock, static_cast<long long>(q.transformer.layers),
      static_cast<long long>(q.transformer.batch), TensorTraffic::kSumsOfEnds);
  const auto line = [](const std::vector<std::string>& cells) {
    std::printf("%-3s", cells[0].c_str());
    for (std::size_t i = 1; i < cells.size(); ++i) std::printf(" %9s", cells[i].c_str());
    std::printf("\n");
  };
  line({"", "a rank", "sends", "", "held, in", "sequence", "", "held, by", "sequence"});
  line({"tp", "a block", "blocks", "ends", "16 bits", "=on", "saved", "train", "=on", "saved"});
  for (const ExplainedTensors& row : e.tensors) {
    const double of_one = row.block_bytes / static_cast<double>(q.transformer.layers);
    std::optional<double> saved;
    if (row.run && row.run_sequence) saved = *row.run - *row.run_sequence;
    line({std::to_string(row.ranks), rounded_size(of_one), rounded_size(row.block_bytes),
          rounded_size(row.end_bytes), rounded_size(row.published),
          rounded_size(row.published_sequence),
          rounded_size(row.published - row.published_sequence), optional_size(row.run),
          optional_size(row.run_sequence), optional_size(saved)});
  }
  std::printf(
      "sent in fp32; held: activations of the blocks in 16 bits, as published, and of the whole\n"
      "model as gradwire train keeps them, in fp32\n");
}

nlohmann::ordered_json layer_json(const PlanExplained& e, const ExplainedLayer& layer,
                                  LayerDivision division) {
  const PhaseElems phases = layer_traffic(division, layer.product.size, e.samples);
  nlohmann::ordered_json json;
  json["kind"] = "layer";
  json["layer"] = layer.product.name;
  json["count"] = layer.count;
  json["samples"] = e.samples;
  json["ranks"] = e.ranks;
  json["weights"] = layer.product.size.weights;
  json["division"] = to_string(division);
  json["forward_elems"] = phases.forward;
  json["backward_elems"] = phases.backward;
  json["gradient_elems"] = phases.gradients;
  json["rank_elems"] = sent_by_rank(phases.total(), e.ranks);
  json["least"] = division == layer.least;
  return json;
}

nlohmann::ordered_json tensors_json(const ExplainedTensors& row) {
  const auto optional = [](const std::optional<double>& bytes) {
    return bytes.has_value() ? nlohmann::ordered_json(*bytes) : nlohmann::ordered_json(nullptr);
  };
  nlohmann::ordered_json json;
  json["kind"] = "tensors";
  json["tp"] = row.ranks;
  json["block_sums"] = TensorTraffic::kSumsOfBlock;
  json["block_bytes"] = row.block_bytes;
  json["end_bytes"] = row.end_bytes;
  json["activation_bytes"] = row.published;
  json["sequence_activation_bytes"] = row.published_sequence;
  json["run_activation_bytes"] = optional(row.run);
  json["run_sequence_activation_bytes"] = optional(row.run_sequence);
  return json;
}

}  // namespace

void print_explained(const PlanQuestion& question, const PlanExplained& explained) {
  print_layers(explained);
  print_work(explained);
  print_tensors(question, explained);
}

std::string explained_lines(const PlanExplained& e) {
  std::string text;
  for (const ExplainedLayer& layer : e.layers) {
    for (const LayerDivision division : kLayerDivisions) {
      text += layer_json(e, layer, division).dump() + "\n";
    }
  }
  nlohmann::ordered_json totals;
  totals["kind"] = "traffic";
  totals["samples"] = e.samples;
  totals["ranks"] = e.ranks;
  totals["data_parallel_elems"] = e.traffic.data_parallel;
  totals["least_elems"] = e.traffic.least;
  text += totals.dump() + "\n";
  for (const KindOfWork& kind : e.work) {
    nlohmann::ordered_json json;
    json["kind"] = "work";
    json["product"] = to_string(kind.kind);
    json["macs"] = kind.forward_macs;
    json["params"] = kind.parameters;
    json["outputs"] = kind.outputs;
    text += json.dump() + "\n";
  }
  for (const ExplainedTensors& row : e.tensors) text += tensors_json(row).dump() + "\n";
  return text;
}

}  // namespace gradwire
