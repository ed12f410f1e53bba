#include "adapters/trainer/modes/server/server_layout.h"

#include <utility>

#include "base/elements.h"
#include "base/text.h"

namespace gradwire {
namespace {

// Bounded, but beyond any run: what may hang has deadlines of its own.
constexpr double kWholeRunSeconds = 30.0 * 86400;

}  // namespace

Result<ServerLayout> ServerLayout::create(const Communicator& world, const ParameterTable& table,
                                          const ServerOptions& options) {
  if (options.servers < 1 || options.servers >= world.size()) {
    return Status(Code::kInvalidArgument, format("parameter server: %d servers among %d ranks "
                                                 "(expected at least one server and one worker)",
                                                 options.servers, world.size()));
  }
  ServerLayout layout;
  layout.rank_ = world.rank();
  layout.size_ = world.size();
  layout.servers_ = options.servers;
  GW_ASSIGN(layout.blocks_, cut_into_blocks(table, options.block_elems, options.servers));
  return layout;
}

Result<std::unique_ptr<Optimizer>> optimizer_within(const ParameterTable& table,
                                                    const FlatRange& range,
                                                    const OptimizerOptions& options) {
  const SliceTable whole = whole_slices(table);
  SliceTable slices = slices_within(whole, range.first, range.first + range.count);
  for (std::size_t i = 0; i < whole.size() && options.name == "lamb"; ++i) {
    if (slices[i].elems == 0 || slices[i].elems == whole[i].elems) continue;
    return Status(Code::kInvalidArgument,
                  format("parameter server: lamb with %lld of %lld elements of '%s' in one place "
                         "(expected whole tensors: one server, larger blocks, or adamw)",
                         static_cast<long long>(slices[i].elems),
                         static_cast<long long>(whole[i].elems), whole[i].name.c_str()));
  }
  return make_optimizer(options, std::move(slices));
}

Status share_parameters(Communicator& world, const ServerLayout& layout, std::span<float> params) {
  OpOptions how;
  for (int server = 0; server < layout.servers(); ++server) {
    how.deadline = deadline_in(kWholeRunSeconds);
    GW_ASSIGN(Work work, world.broadcast(view_of(layout.part(params, server)), server, how));
    GW_TRY(work.wait());
  }
  return {};
}

}  // namespace gradwire
