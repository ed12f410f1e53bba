#include "apps/train/mode_warnings.h"

#include <limits>
#include <optional>

#include "adapters/trainer/modes/block_coder.h"
#include "adapters/trainer/modes/server/server_layout.h"

namespace gradwire {

Result<std::vector<std::string>> mode_warnings(const TrainOptions& options,
                                               const ParameterTable& table) {
  if (options.mode.name == "fedavg") return std::vector<std::string>();
  const bool whole = options.mode.name == "sync-easgd" ||
                     (options.mode.name == "eamsgd" && !options.mode.asynchronous);
  GW_ASSIGN(
      const std::vector<KeyBlock> blocks,
      cut_into_blocks(
          table, whole ? std::numeric_limits<std::int64_t>::max() : ServerOptions().block_elems,
          whole ? 1 : static_cast<int>(options.mode.servers)));
  // Of what takes the means: elastic averaging has none there.
  std::optional<double> momentum = 0;
  if (options.mode.name.starts_with("ps-")) {
    const bool known = options.optimizer == "sgd" || options.optimizer == "nesterov";
    momentum = known ? std::optional(options.momentum) : std::nullopt;
    if (known && options.momentum_at == "worker") momentum = 0;
  }
  return coding_warnings(Registry::builtin(),
                         {options.compressor, options.allow_unsafe, options.seed}, blocks,
                         momentum);
}

}  // namespace gradwire
