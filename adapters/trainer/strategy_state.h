// What a checkpoint calls the state of a strategy, whatever stage of sharding wrote it:
//
//   master/NAME          fp32 parameters as owners of shards step them, in their slices
//   optimizer/NAME.KIND  the optimizer's state of a parameter, in the parameter's shape: whole, or
//                        in owners' slices
//   optimizer/steps      of owners' optimizers; of the trainer's own, trainer/trainer.position
//   dp-D/gradients/X     what averaging the gradients keeps on replica D: Aggregator::state(), by
//                        the boxes of parameters, as boxed_state.h says
//   dp-D/parameters/X    the same of gathering the parameters; of the ranks that together hold
//                        replica D each writes what is of its own parameters (entry_owner.h)
//   rank-R/hook/X        DistributedStrategy::state() of methods that do otherwise
//
// What one stage wrote any other reads: shards are joined and cut, and what an owner still owes of
// a sum (".error2"), of which sharded gradients have none, is added to its own residual, which
// leaves the deferred mean (1/N) (sum of e_i + e2) as it is. So it is where a parameter's boxes are
// others than the old ones: a replica's residual is joined from all of its old ranks, and cut.
#pragma once

#include <cstdint>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapters/trainer/entry_owner.h"
#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/checkpoint/reader.h"
#include "trainer/checkpoint/tensor_file.h"
#include "trainer/parameters.h"

namespace gradwire {

// Names of a checkpoint's tensors begin so: what the optimizer keeps of parameters, at any stage,
// and the fp32 parameters that it steps.
inline constexpr std::string_view kOptimizerNames = "optimizer/";
inline constexpr std::string_view kMasterNames = "master/";
inline constexpr std::string_view kOptimizerSteps = "optimizer/steps";

// How DistributedStrategy::state() is to be read.
enum class StateForm : std::uint8_t {
  kReplicated,  // every rank steps all parameters: an aggregator's entries
  kSharded,     // owners step their shards
  kOther,       // a method's own
};
StateForm state_form(std::span<const NamedTensor> state);

// Of "fc1.weight.exp_avg": the parameter of the table, and "exp_avg". nullptr: none.
struct ParameterState {
  const ParameterInfo* info = nullptr;
  std::string kind;
};
ParameterState parameter_state(const ParameterTable& table, const std::string& name);

// What a rank of replica `replica` among `replicas` writes of its state; the views are borrowed.
// `owner`: this rank among those of the replica.
std::vector<TensorPart> strategy_parts(std::span<const NamedTensor> state,
                                       const ParameterTable& table, int replica, int replicas,
                                       const EntryOwner& owner);

// One old rank's state, in memory of its own.
struct LoadedState {
  std::vector<Buffer> memory;
  std::vector<NamedTensor> tensors;
  std::vector<std::string> begun;  // of these, what is as in a run that begins: other boxes' state
};

// The state of old replica `rank` as a strategy with state `own` takes it, of the parameters that
// are here; `used` gets the names of optimizer/ and master/ that were taken. Errors: the reader's.
Result<LoadedState> load_old_state(CheckpointReader& reader, std::span<const NamedTensor> own,
                                   const ParameterTable& table, int rank,
                                   std::set<std::string>& used);

// The optimizer's steps, whichever part of the strategy had them.
Result<std::int64_t> saved_optimizer_steps(CheckpointReader& reader);

}  // namespace gradwire
