#include "trainer/pipeline/generate.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "trainer/pipeline/cut_layers.h"
#include "trainer/pipeline/generators/generators.h"

namespace gradwire {
namespace {

constexpr int kMostChunks = 1024;
constexpr std::int64_t kMostGenerated = std::int64_t{1} << 27;

Status unknown_schedule(std::string_view text, std::string_view what) {
  return {
      Code::kInvalidArgument,
      format("pipeline schedule '%.*s'%.*s (expected gpipe, 1f1b, interleaved[chunks=V], zb-h1, "
             "zb-v, zb-v-half, zb-v-min, breadth-first[chunks=V], chimera[doubling=on|off], "
             "pipedream[vertical_sync=on|off], 2bw, each also with [stages=N+N+...], or "
             "file[PATH], 1 <= V <= %d)",
             static_cast<int>(text.size()), text.data(), static_cast<int>(what.size()), what.data(),
             kMostChunks)};
}

std::optional<PipelineKind> kind_named(std::string_view name) {
  for (const PipelineKind kind : kGeneratedPipelines) {
    if (name == to_string(kind)) return kind;
  }
  if (name == to_string(PipelineKind::kFile)) return PipelineKind::kFile;
  return std::nullopt;
}

// One key and its value; false: it is not the kind's.
bool read_key(std::string_view inside, PipelineSpec& spec) {
  constexpr std::string_view kStages = "stages=";
  if (inside.starts_with(kStages)) {
    auto layers = parse_layer_counts(inside.substr(kStages.size()));
    if (!layers || !spec.layers.empty()) return false;
    spec.layers = std::move(*layers);
    return true;
  }
  if (spec.kind == PipelineKind::kChimera) {
    spec.doubling = inside == "doubling=on";
    return spec.doubling || inside == "doubling=off";
  }
  if (spec.kind == PipelineKind::kPipeDream) {
    spec.vertical_sync = inside == "vertical_sync=on";
    return spec.vertical_sync || inside == "vertical_sync=off";
  }
  constexpr std::string_view kKey = "chunks=";
  if (!has_chunks(spec.kind) || !inside.starts_with(kKey)) return false;
  const auto chunks = to_int(inside.substr(kKey.size()));
  if (!chunks || *chunks < 1 || *chunks > kMostChunks) return false;
  spec.chunks = static_cast<int>(*chunks);
  return true;
}

// What stands in brackets, keys with commas between them.
bool read_keys(std::string_view inside, PipelineSpec& spec) {
  for (std::size_t begin = 0; begin <= inside.size();) {
    const std::size_t end = std::min(inside.find(',', begin), inside.size());
    if (!read_key(inside.substr(begin, end - begin), spec)) return false;
    begin = end + 1;
  }
  return true;
}

Result<PipelineSchedule> make_chimera(const PipelineSpec& spec, int ranks, int micro_batches) {
  const auto wrong = [&spec](const char* what, int value, const std::string& expected) {
    return Status(Code::kInvalidArgument,
                  format("pipeline schedule %s of %d %s (expected %s)", spec.text().c_str(), value,
                         what, expected.c_str()));
  };
  if (ranks % 2 != 0) return wrong("ranks", ranks, "an even number");
  if (micro_batches % 2 != 0) return wrong("micro-batches", micro_batches, "an even number");
  if (!spec.doubling) return chimera_schedule(ranks, micro_batches);
  if (micro_batches == 2 * ranks) return doubled_chimera_schedule(ranks);
  return wrong("micro-batches", micro_batches, format("%d, twice the ranks", 2 * ranks));
}

Result<PipelineSchedule> make_double_buffered(int ranks, int micro_batches, int steps) {
  if (micro_batches >= ranks) return double_buffered_schedule(ranks, micro_batches, steps);
  return Status(
      Code::kInvalidArgument,
      format("pipeline schedule 2bw of %d micro-batches a step (expected at least %d, one "
             "for each rank)",
             micro_batches, ranks));
}

Status check_count(const char* what, int value, int most) {
  if (value >= 1 && value <= most) return {};
  return {Code::kInvalidArgument,
          format("a pipeline of %d %s (expected 1 to %d)", value, what, most)};
}

}  // namespace

std::string_view to_string(PipelineKind kind) {
  switch (kind) {
    case PipelineKind::kGpipe: return "gpipe";
    case PipelineKind::kOneFOneB: return "1f1b";
    case PipelineKind::kInterleaved: return "interleaved";
    case PipelineKind::kZeroBubbleH1: return "zb-h1";
    case PipelineKind::kZeroBubbleV: return "zb-v";
    case PipelineKind::kZeroBubbleVHalf: return "zb-v-half";
    case PipelineKind::kZeroBubbleVMin: return "zb-v-min";
    case PipelineKind::kBreadthFirst: return "breadth-first";
    case PipelineKind::kChimera: return "chimera";
    case PipelineKind::kPipeDream: return "pipedream";
    case PipelineKind::kPipeDream2BW: return "2bw";
    case PipelineKind::kFile: return "file";
  }
  return "?";
}

Result<PipelineSpec> PipelineSpec::parse(std::string_view text) {
  const std::size_t open = text.find('[');
  const std::optional<PipelineKind> kind = kind_named(text.substr(0, open));
  if (!kind) return unknown_schedule(text, "");
  PipelineSpec spec{.kind = *kind};
  if (open == text.npos) {
    if (spec.kind == PipelineKind::kFile) return unknown_schedule(text, ": no path");
    return spec;
  }
  if (text.back() != ']') return unknown_schedule(text, ": no ']' at its end");
  const std::string_view inside = text.substr(open + 1, text.size() - open - 2);
  if (spec.kind == PipelineKind::kFile) {
    spec.path = inside;
    if (inside.empty()) return unknown_schedule(text, ": no path");
    return spec;
  }
  if (!read_keys(inside, spec)) return unknown_schedule(text, "");
  return spec;
}

std::string PipelineSpec::text() const {
  const std::string all(to_string(kind));
  if (kind == PipelineKind::kFile) return all + "[" + path + "]";
  std::string keys;
  const auto add = [&keys](const std::string& key) { keys += (keys.empty() ? "" : ",") + key; };
  if (has_chunks(kind)) add(format("chunks=%d", chunks));
  if (kind == PipelineKind::kChimera && doubling) add("doubling=on");
  if (kind == PipelineKind::kPipeDream && vertical_sync) add("vertical_sync=on");
  if (!layers.empty()) add("stages=" + layer_counts_text(layers));
  return keys.empty() ? all : all + "[" + keys + "]";
}

namespace {

Status check_layers(const PipelineSpec& spec, int ranks) {
  const int stages = ranks * spec.stages_a_rank();
  if (spec.layers.empty() || spec.layers.size() == static_cast<std::size_t>(stages)) return {};
  return {Code::kInvalidArgument,
          format("pipeline schedule %s of %d ranks: %zu numbers of layers (expected %d, one for "
                 "each stage)",
                 spec.text().c_str(), ranks, spec.layers.size(), stages)};
}

Result<PipelineSchedule> generate(const PipelineSpec& spec, int ranks, int micro_batches, int steps,
                                  std::int64_t all_micros);

}  // namespace

Result<PipelineSchedule> generate_pipeline(const PipelineSpec& spec, int ranks, int micro_batches,
                                           int steps) {
  GW_TRY(check_count("ranks", ranks, kMostMicroBatches));
  GW_TRY(check_count("micro-batches", micro_batches, kMostMicroBatches));
  GW_TRY(check_count("steps", steps, kMostMicroBatches));
  if (steps > 1 && !is_asynchronous(spec.kind)) {
    return Status(Code::kInvalidArgument,
                  format("pipeline schedule %s of %d steps (expected 1: it has a flush)",
                         spec.text().c_str(), steps));
  }
  const int chunks = spec.stages_a_rank();
  GW_TRY(check_count("chunks", chunks, kMostChunks));
  GW_TRY(check_count("stages", ranks * chunks, kMostStages));
  const std::int64_t all_micros = std::int64_t{micro_batches} * steps;
  if (all_micros > kMostMicroBatches) {
    return Status(
        Code::kInvalidArgument,
        format("a pipeline of %d steps of %d micro-batches (expected at most %d of these)", steps,
               micro_batches, kMostMicroBatches));
  }
  const std::int64_t operations = 3 * all_micros * ranks * chunks;
  if (operations > kMostGenerated) {
    return Status(Code::kInvalidArgument,
                  format("a pipeline of %d stages and %d micro-batches (expected at most %lld "
                         "operations)",
                         ranks * chunks, micro_batches, static_cast<long long>(kMostGenerated)));
  }
  GW_TRY(check_layers(spec, ranks));
  GW_ASSIGN(PipelineSchedule made, generate(spec, ranks, micro_batches, steps, all_micros));
  made.layers = spec.layers;
  return made;
}

namespace {

Result<PipelineSchedule> generate(const PipelineSpec& spec, int ranks, int micro_batches, int steps,
                                  std::int64_t all_micros) {
  const int chunks = spec.stages_a_rank();
  switch (spec.kind) {
    case PipelineKind::kGpipe: return gpipe_schedule(ranks, micro_batches);
    case PipelineKind::kOneFOneB: return one_f_one_b_schedule(ranks, micro_batches);
    case PipelineKind::kInterleaved: return interleaved_schedule(ranks, micro_batches, chunks);
    case PipelineKind::kZeroBubbleH1: return zero_bubble_h1_schedule(ranks, micro_batches);
    case PipelineKind::kZeroBubbleV: return zero_bubble_v_schedule(ranks, micro_batches);
    case PipelineKind::kZeroBubbleVHalf: return zero_bubble_v_half_schedule(ranks, micro_batches);
    case PipelineKind::kZeroBubbleVMin: return zero_bubble_v_min_schedule(ranks, micro_batches);
    case PipelineKind::kBreadthFirst: return breadth_first_schedule(ranks, micro_batches, chunks);
    case PipelineKind::kChimera: return make_chimera(spec, ranks, micro_batches);
    case PipelineKind::kPipeDream:
      return pipedream_schedule(ranks, static_cast<int>(all_micros), spec.vertical_sync);
    case PipelineKind::kPipeDream2BW: return make_double_buffered(ranks, micro_batches, steps);
    case PipelineKind::kFile: break;
  }
  return Status(Code::kUnsupported, "pipeline schedule '" + spec.text() +
                                        "' is read, not generated (expected a file's text)");
}

}  // namespace

}  // namespace gradwire
