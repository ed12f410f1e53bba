#include "adapters/trainer/mesh/parallel_spec.h"

#include <array>
#include <utility>
#include <vector>

#include "base/mesh_pairs.h"
#include "base/nearest.h"
#include "base/text.h"
#include "trainer/pipeline/cut_layers.h"

namespace gradwire {
namespace {

constexpr std::int64_t kLargestSize = 1 << 20;  // as check_mesh()
constexpr std::int64_t kMostChunks = 1024;
constexpr std::int64_t kLastZeroStage = 3;
constexpr const char* kItems = "dp=N, tp=N[/LAYOUT], pp=N[/SCHEDULE] or zero=N";

using LayoutKind = TensorLayout::Kind;
using OrderKind = PipelineOrder::Kind;

constexpr std::array kLayouts{std::pair{LayoutKind::kMegatron, "megatron"},
                              std::pair{LayoutKind::kHybrid, "hybrid"},
                              std::pair{LayoutKind::kSpatial, "spatial"}};
constexpr std::array kOrders{std::pair{OrderKind::kGpipe, "gpipe"},
                             std::pair{OrderKind::k1f1b, "1f1b"},
                             std::pair{OrderKind::kInterleaved, "interleaved"},
                             std::pair{OrderKind::kZbH1, "zb-h1"},
                             std::pair{OrderKind::kZbV, "zb-v"},
                             std::pair{OrderKind::kZbVHalf, "zb-v-half"},
                             std::pair{OrderKind::kZbVMin, "zb-v-min"},
                             std::pair{OrderKind::kBreadthFirst, "breadth-first"},
                             std::pair{OrderKind::kChimera, "chimera"},
                             std::pair{OrderKind::kPipeDream, "pipedream"},
                             std::pair{OrderKind::k2bw, "2bw"},
                             std::pair{OrderKind::kFile, "file"}};

std::string_view without_blanks(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

std::string quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

Status bad_item(std::string_view item, const std::string& why) {
  return {Code::kInvalidArgument, "item " + quoted(item) + ": " + why};
}

// Items stand between commas outside of [ ].
std::vector<std::string_view> items_of(std::string_view text) {
  std::vector<std::string_view> items;
  int depth = 0;
  std::size_t begin = 0;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') ++depth;
    if (i < text.size() && text[i] == ']') --depth;
    if (i < text.size() && (text[i] != ',' || depth > 0)) continue;
    items.push_back(without_blanks(text.substr(begin, i - begin)));
    begin = i + 1;
  }
  return items;
}

// "interleaved[chunks=2]" as its name and what stands in brackets.
struct Named {
  std::string_view name;
  std::string_view inside;
  bool has_brackets = false;
};

Result<Named> named_of(std::string_view item, std::string_view text) {
  const std::size_t open = text.find('[');
  if (open == std::string_view::npos) {
    if (text.find(']') != std::string_view::npos) return bad_item(item, "']' has no '['");
    return Named{text, {}};
  }
  const std::size_t close = text.find(']', open);
  if (close == std::string_view::npos) return bad_item(item, "'[' has no ']'");
  if (close + 1 != text.size()) {
    return bad_item(item,
                    "got " + quoted(text.substr(close + 1)) + " behind ']', expected nothing");
  }
  return Named{text.substr(0, open), text.substr(open + 1, close - open - 1), true};
}

Result<int> number_of(std::string_view item, std::string_view text, std::int64_t least,
                      std::int64_t most) {
  const std::optional<std::int64_t> number = to_int(text);
  if (number && *number >= least && *number <= most) return static_cast<int>(*number);
  return bad_item(item, format("got '%s', expected %lld to %lld", std::string(text).c_str(),
                               static_cast<long long>(least), static_cast<long long>(most)));
}

// The value of the only key that may stand in brackets.
Result<std::string_view> value_of(std::string_view item, const Named& named, std::string_view key) {
  const std::size_t equals = named.inside.find('=');
  if (equals != std::string_view::npos && named.inside.substr(0, equals) == key) {
    return named.inside.substr(equals + 1);
  }
  return bad_item(
      item, "got [" + std::string(named.inside) + "], expected [" + std::string(key) + "=...]");
}

Status read_switch(std::string_view item, const Named& named, std::string_view key, bool& value) {
  GW_ASSIGN(const std::string_view text, value_of(item, named, key));
  value = text == "on";
  if (text == "on" || text == "off") return {};
  return bad_item(item,
                  "got " + std::string(key) + "=" + std::string(text) + ", expected on or off");
}

Status check_no_brackets(std::string_view item, const Named& named) {
  if (!named.has_brackets) return {};
  return bad_item(item,
                  quoted(named.name) + " takes no keys (got [" + std::string(named.inside) + "])");
}

template <typename Kinds>
Status unknown_name(std::string_view item, std::string_view name, const char* what,
                    const Kinds& kinds) {
  std::vector<std::string> known;
  for (const auto& [kind, text] : kinds) known.emplace_back(text);
  return bad_item(item, quoted(name) + " is no " + what + did_you_mean(name, known) +
                            " (expected " + joined(known) + ")");
}

Status read_tiles(std::string_view item, const Named& named, int tp, TensorLayout& layout) {
  const std::size_t cross = named.inside.find('x');
  if (!named.has_brackets || cross == std::string_view::npos) {
    return bad_item(item,
                    "got " + quoted(named.name) + " without its tiles, expected spatial[RxC]");
  }
  GW_ASSIGN(layout.rows, number_of(item, named.inside.substr(0, cross), 1, kLargestSize));
  GW_ASSIGN(layout.columns, number_of(item, named.inside.substr(cross + 1), 1, kLargestSize));
  const std::int64_t tiles = static_cast<std::int64_t>(layout.rows) * layout.columns;
  if (tiles == tp) return {};
  return bad_item(item, format("%d x %d = %lld tiles, but tp=%d", layout.rows, layout.columns,
                               static_cast<long long>(tiles), tp));
}

Status read_layout(std::string_view item, std::string_view text, int tp, TensorLayout& layout) {
  GW_ASSIGN(const Named named, named_of(item, text));
  for (const auto& [kind, name] : kLayouts) {
    if (named.name != name) continue;
    layout.kind = kind;
    if (kind == LayoutKind::kSpatial) return read_tiles(item, named, tp, layout);
    if (kind == LayoutKind::kHybrid || !named.has_brackets) return check_no_brackets(item, named);
    return read_switch(item, named, "sequence", layout.sequence);
  }
  return unknown_name(item, named.name, "layout", kLayouts);
}

bool has_chunks(OrderKind kind) {
  return kind == OrderKind::kInterleaved || kind == OrderKind::kBreadthFirst;
}

// One key of a schedule, "chunks=2".
Status read_key(std::string_view item, std::string_view text, PipelineOrder& order) {
  const Named named{.name = {}, .inside = text, .has_brackets = true};
  if (text.starts_with("stages=")) {
    GW_ASSIGN(const std::string_view counts, value_of(item, named, "stages"));
    auto layers = parse_layer_counts(counts);
    if (!layers) {
      return bad_item(item, "got stages=" + std::string(counts) +
                                ", expected a number of layers, 1 to 65536, for each stage, such "
                                "as stages=3+4+4+1");
    }
    if (!order.layers.empty()) return bad_item(item, "stages= is given twice (expected once)");
    order.layers = std::move(*layers);
    return {};
  }
  if (order.kind == OrderKind::kChimera) {
    return read_switch(item, named, "doubling", order.doubling);
  }
  if (order.kind == OrderKind::kPipeDream) {
    return read_switch(item, named, "vertical_sync", order.vertical_sync);
  }
  if (!has_chunks(order.kind)) {
    return bad_item(item, "got [" + std::string(text) + "], expected [stages=...]");
  }
  GW_ASSIGN(const std::string_view chunks, value_of(item, named, "chunks"));
  GW_ASSIGN(order.chunks, number_of(item, chunks, 1, kMostChunks));
  return {};
}

Status read_order(std::string_view item, std::string_view text, PipelineOrder& order) {
  GW_ASSIGN(const Named named, named_of(item, text));
  for (const auto& [kind, name] : kOrders) {
    if (named.name != name) continue;
    order.kind = kind;
    if (kind == OrderKind::kFile) {
      order.path = named.inside;
      return order.path.empty() ? bad_item(item, "no path (expected file[PATH])") : Status();
    }
    if (!named.has_brackets) return {};
    for (const std::string_view key : items_of(named.inside)) {
      GW_TRY(read_key(item, key, order));
    }
    return {};
  }
  return unknown_name(item, named.name, "schedule", kOrders);
}

// As many numbers of layers as there are stages.
Status check_layers(std::string_view item, int pp, const PipelineOrder& order) {
  const int stages = pp * order.stages_a_rank();
  if (order.layers.empty()) return {};
  if (pp == 1) return bad_item(item, "got stages= on one rank, expected pp=2 or more");
  if (order.layers.size() == static_cast<std::size_t>(stages)) return {};
  return bad_item(item,
                  format("got stages=%s, %zu numbers, expected %d, one for each stage",
                         layer_counts_text(order.layers).c_str(), order.layers.size(), stages));
}

// `value` stands behind "axis=".
Status read_item(std::string_view item, std::string_view axis, std::string_view value,
                 ParallelSpec& spec) {
  const std::size_t slash = value.find('/');
  const bool divided = slash != std::string_view::npos;
  const std::string_view size = value.substr(0, slash);
  const std::string_view rest = divided ? value.substr(slash + 1) : std::string_view();
  if (axis == "tp") {
    GW_ASSIGN(spec.tp, number_of(item, size, 1, kLargestSize));
    return divided ? read_layout(item, rest, spec.tp, spec.layout) : Status();
  }
  if (axis == "pp") {
    GW_ASSIGN(spec.pp, number_of(item, size, 1, kLargestSize));
    if (divided) GW_TRY(read_order(item, rest, spec.order));
    return check_layers(item, spec.pp, spec.order);
  }
  if (axis == "dp") {
    GW_ASSIGN(spec.dp, number_of(item, value, 1, kLargestSize));
    return {};
  }
  GW_ASSIGN(spec.zero, number_of(item, value, 0, kLastZeroStage));
  return {};
}

std::string layout_text(const TensorLayout& layout) {
  switch (layout.kind) {
    case LayoutKind::kMegatron: return layout.sequence ? "/megatron[sequence=on]" : "";
    case LayoutKind::kHybrid: return "/hybrid";
    case LayoutKind::kSpatial: break;
  }
  return format("/spatial[%dx%d]", layout.rows, layout.columns);
}

std::string order_text(const PipelineOrder& order) {
  return order == PipelineOrder() ? "" : "/" + to_string(order);
}

}  // namespace

std::string to_string(const PipelineOrder& order) {
  if (order.kind == OrderKind::kFile) return "file[" + order.path + "]";
  std::string text;
  for (const auto& [kind, name] : kOrders) text += kind == order.kind ? name : "";
  std::string keys;
  const auto add = [&keys](const std::string& key) { keys += (keys.empty() ? "" : ",") + key; };
  const bool chunks = has_chunks(order.kind) && order.chunks != PipelineOrder().chunks;
  if (chunks) add(format("chunks=%d", order.chunks));
  if (order.kind == OrderKind::kChimera && order.doubling) add("doubling=on");
  if (order.kind == OrderKind::kPipeDream && order.vertical_sync) add("vertical_sync=on");
  if (!order.layers.empty()) add("stages=" + layer_counts_text(order.layers));
  return keys.empty() ? text : text + "[" + keys + "]";
}

int PipelineOrder::stages_a_rank() const {
  const bool v = kind == Kind::kZbV || kind == Kind::kZbVHalf || kind == Kind::kZbVMin;
  return has_chunks(kind) ? chunks : v ? 2 : 1;
}

Result<ParallelSpec> ParallelSpec::parse(std::string_view text) {
  static const std::vector<std::string> axes{"dp", "tp", "pp", "zero"};
  ParallelSpec spec;
  std::vector<bool> given(axes.size());
  for (const std::string_view item : items_of(text)) {
    const std::size_t equals = item.find('=');
    if (item.empty() || equals == std::string_view::npos) {
      return bad_item(item, std::string("expected ") + kItems);
    }
    const std::string_view axis = item.substr(0, equals);
    std::size_t at = 0;
    while (at < axes.size() && axes[at] != axis) ++at;
    if (at == axes.size()) {
      return bad_item(item, quoted(axis) + " is no axis" + did_you_mean(axis, axes) +
                                " (expected " + kItems + ")");
    }
    if (given[at]) return bad_item(item, quoted(axis) + " is given twice (expected once)");
    given[at] = true;
    GW_TRY(read_item(item, axis, item.substr(equals + 1), spec));
  }
  return spec;
}

TensorShare ParallelSpec::share(int rank) const {
  TensorShare share{.ranks = tp, .rank = rank, .sequence = layout.sequence};
  if (layout.kind == LayoutKind::kHybrid) share.layout = TensorShare::Layout::kSamples;
  if (layout.kind == LayoutKind::kSpatial) {
    share.layout = TensorShare::Layout::kTiles;
    share.tile_rows = layout.rows;
    share.tile_columns = layout.columns;
  }
  return share;
}

std::optional<StreamRule> ParallelSpec::stream_rule(int micro_batches) const {
  using Versions = StreamRule::Versions;
  const bool each = order.kind == OrderKind::kPipeDream;
  if (!each && order.kind != OrderKind::k2bw) return std::nullopt;
  const Versions versions = !each                 ? Versions::kDelayed
                            : order.vertical_sync ? Versions::kInSync
                                                  : Versions::kNewest;
  return StreamRule{
      .ranks = pp, .micro_batches = micro_batches, .versions = versions, .layers = order.layers};
}

Result<MeshSizes> ParallelSpec::mesh(int ranks) const {
  MeshSizes sizes{pp, dp, tp};
  if (dp == kUnsaid) {
    GW_ASSIGN(sizes, with_all_replicas(sizes, ranks));
  }
  GW_TRY(check_mesh(sizes, ranks));
  if (order.kind == OrderKind::kChimera) {
    auto both = mesh_both_ways(sizes);
    if (!both.has_value()) return both.error().with_context(to_string(order));
    sizes = both.value();
  }
  return sizes;
}

std::string to_string(const ParallelSpec& spec) {
  std::string text;
  const auto add = [&text](const std::string& item) { text += (text.empty() ? "" : ",") + item; };
  if (spec.dp != ParallelSpec::kUnsaid) add(format("dp=%d", spec.dp));
  const std::string layout = layout_text(spec.layout);
  if (spec.tp != 1 || !layout.empty()) add(format("tp=%d", spec.tp) + layout);
  const std::string order = order_text(spec.order);
  if (spec.pp != 1 || !order.empty()) add(format("pp=%d", spec.pp) + order);
  if (spec.zero != ParallelSpec::kUnsaid) add(format("zero=%d", spec.zero));
  return text.empty() ? "tp=1" : text;  // which says nothing, and is a text
}

}  // namespace gradwire
