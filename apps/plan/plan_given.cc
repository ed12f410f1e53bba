#include "apps/plan/plan_given.h"

#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

using Layout = TensorLayout::Kind;
using Order = PipelineOrder::Kind;

bool is_stale(const PipelineOrder& order) {
  return order.kind == Order::kPipeDream || order.kind == Order::k2bw;
}

// Null: the search prices it.
const char* unpriced(const ParallelSpec& spec) {
  if (spec.order.kind == Order::kFile) return "file[...] (expected a schedule by its name)";
  if (spec.order.doubling) return "doubling=on (expected off)";
  if (spec.order.vertical_sync) return "vertical_sync=on (expected off)";
  if (spec.layout.sequence) return "sequence=on (expected off)";
  if (spec.pp == 1 && is_stale(spec.order)) return "one stage (expected pp=2 or more)";
  return nullptr;
}

bool matches(const GivenMesh& given, const MeshChoice& choice) {
  if (given.parallel) {
    const ParallelSpec& spec = *given.parallel;
    if (spec.dp != ParallelSpec::kUnsaid && spec.dp != choice.dp) return false;
    if (spec.tp != choice.tp || spec.pp != choice.pp) return false;
  }
  return given.zero.value_or(choice.zero) == choice.zero &&
         given.accumulate.value_or(choice.accumulate) == choice.accumulate &&
         given.micro_batch.value_or(choice.micro_batch) == choice.micro_batch &&
         given.recompute.value_or(choice.recompute) == choice.recompute;
}

}  // namespace

std::string GivenMesh::text() const {
  std::string all;
  const auto add = [&all](const char* name, const std::string& value) {
    all += std::string(all.empty() ? "--" : " --") + name + " " + value;
  };
  if (parallel) add("parallel", to_string(*parallel));
  if (zero && (!parallel || parallel->zero == ParallelSpec::kUnsaid)) {
    add("zero", std::to_string(*zero));
  }
  if (accumulate) add("accumulate", std::to_string(*accumulate));
  if (micro_batch) add("micro-batch", std::to_string(*micro_batch));
  if (recompute) add("recompute", *recompute);
  return all;
}

Status check_given(const GivenMesh& given, const std::string& layout, bool allow_stale) {
  if (!given.parallel) return {};
  const ParallelSpec& spec = *given.parallel;
  const auto refuse = [&spec](const std::string& why) {
    return Status(Code::kInvalidArgument,
                  "plan: --parallel " + to_string(spec) + " with --cluster: " + why);
  };
  if (const char* what = unpriced(spec); what != nullptr) return refuse(what);
  const bool hybrid = layout == "hybrid";
  const bool as_wanted = spec.layout.kind == (hybrid ? Layout::kHybrid : Layout::kMegatron);
  if (spec.tp > 1 && !as_wanted) {
    return refuse(format("this model's tensors are shared otherwise (expected tp=%d/%s)", spec.tp,
                         layout.c_str()));
  }
  if (is_stale(spec.order) && !allow_stale) {
    return refuse("other mathematics (expected --allow-stale beside it, or another schedule)");
  }
  return {};
}

namespace {

// A mesh that is given, which `asked` is then for alone.
Status ask_for(const ParallelSpec& spec, MeshProblem& asked) {
  GW_TRY(spec.mesh(asked.cluster->devices()).error());
  const bool flush = spec.pp == 1 || !is_stale(spec.order);
  GW_TRY(asked.model->part(spec.tp, flush).error());
  if (spec.pp == 1) return {};
  GW_ASSIGN(const PipelineSpec order, PipelineSpec::parse(to_string(spec.order)));
  // A run cuts stages by their products unless it is told otherwise.
  asked.cuts_stages = false;
  asked.orders = {order};
  return asked.model->cuts(spec.pp * order.stages_a_rank(), flush, order.layers).error();
}

}  // namespace

Result<std::vector<MeshChoice>> given_choices(const MeshProblem& problem, const GivenMesh& given) {
  MeshProblem asked = problem;
  if (given.parallel) {
    GW_TRY(
        ask_for(*given.parallel, asked).with_context("--parallel " + to_string(*given.parallel)));
  }
  GW_ASSIGN(MeshChoices choices, mesh_choices(asked));
  std::vector<MeshChoice> found;
  for (MeshChoice& choice : choices.all) {
    if (matches(given, choice)) found.push_back(std::move(choice));
  }
  if (!found.empty()) return found;
  const std::string why = reasons_text(choices.left_out);
  return Status(
      Code::kInvalidArgument,
      format("no mesh of %d devices for %lld samples is as %s says (expected numbers that divide "
             "them, a schedule that serves them, and a ZeRO stage: 0 of one replica and with a "
             "compressor, 0 or 1 under chimera and without a flush, else 0 to 3%s%s)",
             problem.cluster->devices(), static_cast<long long>(problem.batch),
             given.text().c_str(), why.empty() ? "" : "; left out were ", why.c_str()));
}

}  // namespace gradwire
