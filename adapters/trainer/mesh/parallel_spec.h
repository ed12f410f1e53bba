// The text by which a user says how a job's ranks divide a model and its data:
//
// clang-format off
//   parallel := item {"," item}          each item at most once, in any order
//   item     := "dp=" N                  replicas
//             | "tp=" N ["/" layout]     ranks that share every tensor
//             | "pp=" N ["/" schedule]   pipeline stages
//             | "zero=" N                ZeRO stage, 0 to 3
//   layout   := "megatron" ["[sequence=" ("on" | "off") "]"] | "hybrid" | "spatial[" R "x" C "]"
//   schedule := name ["[" key {"," key} "]"] | "file[" path "]"
//   name     := "gpipe" | "1f1b" | "interleaved" | "zb-h1" | "zb-v" | "zb-v-half" | "zb-v-min"
//             | "breadth-first" | "chimera" | "pipedream" | "2bw"
//   key      := "chunks=" v                     interleaved, breadth-first: stages of a rank
//             | "doubling=" ("on" | "off")      chimera
//             | "vertical_sync=" ("on" | "off") pipedream
//             | "stages=" n {"+" n}             the layers of each stage, in model order
// clang-format on
//
// e.g. dp=4,pp=2/interleaved[chunks=2],zero=1. Blanks around items are ignored. The specs of
// compressors (gradwire/registry.h) have no brackets inside an item, so this has a reader of its
// own.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/mesh.h"
#include "gradwire/status.h"
#include "trainer/pipeline/stream_rule.h"
#include "trainer/tensor_share.h"

namespace gradwire {

// How the ranks of tp share tensors.
struct TensorLayout {
  enum class Kind : std::uint8_t {
    kMegatron,  // by columns and rows (Shoeybi et al., arXiv 2019, section 3)
    kHybrid,    // convolutions by samples, linear layers by columns (Krizhevsky, arXiv 2014)
    kSpatial,   // images by tiles
  } kind = Kind::kMegatron;
  bool sequence = false;  // megatron: what stands between the shared layers is divided by tokens
                          // (Korthikanti et al., MLSys 2023, section 4.2.2)
  int rows = 0;           // spatial: tiles in each direction
  int columns = 0;
  friend bool operator==(const TensorLayout&, const TensorLayout&) = default;
};

// The order in which the stages of pp work.
struct PipelineOrder {
  enum class Kind : std::uint8_t {
    kGpipe,         // Huang et al., NeurIPS 2019
    k1f1b,          // Narayanan et al., SOSP 2019, flushed at the end of a step
    kInterleaved,   // Narayanan et al., SC 2021, section 2.2
    kZbH1,          // Qi et al., ICLR 2024, section 2
    kZbV,           // Qi et al., ICLR 2024, section 6
    kZbVHalf,       // Qi et al., NeurIPS 2024
    kZbVMin,        // likewise
    kBreadthFirst,  // Lamy-Poirier, MLSys 2023
    kChimera,       // Li and Hoefler, SC 2021
    kPipeDream,     // Narayanan et al., SOSP 2019, without a flush
    k2bw,           // Narayanan et al., ICML 2021
    kFile,          // a file has it
  } kind = Kind::k1f1b;
  int chunks = 2;                // interleaved, breadth-first: stages that a rank holds
  bool doubling = false;         // chimera
  bool vertical_sync = false;    // pipedream
  std::string path = {};         // file
  std::vector<int> layers = {};  // but for file: of each stage; empty: cut by cost
  // Of a pipe and a rank; 1 for file, which says its own.
  int stages_a_rank() const;
  friend bool operator==(const PipelineOrder&, const PipelineOrder&) = default;
};

struct ParallelSpec {
  static constexpr int kUnsaid = -1;

  int dp = kUnsaid;  // as many as there are ranks for
  int tp = 1;
  TensorLayout layout = {};
  int pp = 1;
  PipelineOrder order = {};
  int zero = kUnsaid;  // another flag's, or 0

  // kInvalidArgument shows the item, what was got and what was expected.
  static Result<ParallelSpec> parse(std::string_view text);

  // Whether several ranks of tp divide images, or their samples: hybrid, spatial.
  bool divides_images() const { return tp > 1 && layout.kind != TensorLayout::Kind::kMegatron; }
  // Of coordinate `rank` of tp.
  TensorShare share(int rank) const;

  // Pipes that go through the stages: 2 under chimera, each with its share of a replica's
  // micro-batches.
  int pipes() const { return pp > 1 && order.kind == PipelineOrder::Kind::kChimera ? 2 : 1; }
  // Whether ranks go by a schedule: with one stage, too, where 2bw delays its weights.
  bool has_stages() const { return pp > 1 || order.kind == PipelineOrder::Kind::k2bw; }
  // Of an order without a flush: what ranks do, with so many micro-batches a step; else nullopt.
  std::optional<StreamRule> stream_rule(int micro_batches) const;
  // The mesh of a job of so many ranks, of both ways where there are two pipes. kInvalidArgument,
  // with the products, where they do not fit, and for two pipes of an odd number of ranks.
  Result<MeshSizes> mesh(int ranks) const;

  friend bool operator==(const ParallelSpec&, const ParallelSpec&) = default;
};

// The schedule's own text: interleaved[chunks=2].
std::string to_string(const PipelineOrder& order);
// The canonical text, which parses to an equal value: items in the order dp, tp, pp, zero, without
// what is so anyway.
std::string to_string(const ParallelSpec& spec);

}  // namespace gradwire
