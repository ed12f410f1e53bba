#include "trainer/pipeline/generate.h"

#include "base/text.h"
#include "trainer/pipeline/generators/generators.h"

namespace gradwire {
namespace {

constexpr int kMostChunks = 1024;
constexpr std::int64_t kMostGenerated = std::int64_t{1} << 27;

Status unknown_schedule(std::string_view text, std::string_view what) {
  return {
      Code::kInvalidArgument,
      format("pipeline schedule '%.*s'%.*s (expected gpipe, 1f1b, interleaved[chunks=V], zb-h1, "
             "breadth-first[chunks=V] or file[PATH], 1 <= V <= %d)",
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
    case PipelineKind::kBreadthFirst: return "breadth-first";
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
  if (!has_chunks(spec.kind)) return unknown_schedule(text, ": it has no keys");
  constexpr std::string_view kKey = "chunks=";
  if (!inside.starts_with(kKey)) return unknown_schedule(text, "");
  const auto chunks = to_int(inside.substr(kKey.size()));
  if (!chunks || *chunks < 1 || *chunks > kMostChunks) return unknown_schedule(text, "");
  spec.chunks = static_cast<int>(*chunks);
  return spec;
}

std::string PipelineSpec::text() const {
  std::string all(to_string(kind));
  if (has_chunks(kind)) all += format("[chunks=%d]", chunks);
  if (kind == PipelineKind::kFile) all += "[" + path + "]";
  return all;
}

Result<PipelineSchedule> generate_pipeline(const PipelineSpec& spec, int ranks, int micro_batches) {
  GW_TRY(check_count("ranks", ranks, kMostMicroBatches));
  GW_TRY(check_count("micro-batches", micro_batches, kMostMicroBatches));
  const int chunks = has_chunks(spec.kind) ? spec.chunks : 1;
  GW_TRY(check_count("chunks", chunks, kMostChunks));
  GW_TRY(check_count("stages", ranks * chunks, kMostStages));
  const std::int64_t operations = std::int64_t{3} * ranks * chunks * micro_batches;
  if (operations > kMostGenerated) {
    return Status(Code::kInvalidArgument,
                  format("a pipeline of %d stages and %d micro-batches (expected at most %lld "
                         "operations)",
                         ranks * chunks, micro_batches, static_cast<long long>(kMostGenerated)));
  }
  switch (spec.kind) {
    case PipelineKind::kGpipe: return gpipe_schedule(ranks, micro_batches);
    case PipelineKind::kOneFOneB: return one_f_one_b_schedule(ranks, micro_batches);
    case PipelineKind::kInterleaved: return interleaved_schedule(ranks, micro_batches, chunks);
    case PipelineKind::kZeroBubbleH1: return zero_bubble_h1_schedule(ranks, micro_batches);
    case PipelineKind::kBreadthFirst: return breadth_first_schedule(ranks, micro_batches, chunks);
    case PipelineKind::kFile: break;
  }
  return Status(Code::kUnsupported, "pipeline schedule '" + spec.text() +
                                        "' is read, not generated (expected a file's text)");
}

}  // namespace gradwire
