// Aggregator handles.
#include <optional>
#include <span>
#include <utility>

#include "adapters/c/bucket_steps.h"
#include "adapters/c/operation_call.h"
#include "adapters/c/outcome.h"
#include "adapters/c/places.h"
#include "adapters/c/spec_options.h"
#include "adapters/c/state.h"
#include "gradwire/schedule.h"

// NOLINTBEGIN(readability-identifier-naming): declared in gradwire/c.h
struct gw_aggregator {
  static constexpr std::uint64_t kMagic = 0x67775f6167677231;
  std::uint64_t magic = kMagic;
  std::shared_ptr<gradwire::c::BucketSteps> steps;
};
// NOLINTEND(readability-identifier-naming)

namespace gradwire::c {
namespace {

constexpr const char* kCreate = "gw_aggregator_create";

Result<std::vector<BucketSteps::Tensor>> tensors_of(std::span<const gw_tensor_info> infos) {
  std::vector<BucketSteps::Tensor> tensors;
  for (const gw_tensor_info& info : infos) {
    GW_TRY(check_given(info.name, kCreate, "a tensor's name"));
    GW_ASSIGN(const DType dtype, dtype_of(kCreate, info.dtype));
    GW_ASSIGN(const Shape shape, shape_of(kCreate, info.dimensions, info.shape));
    if (!is_floating(dtype)) {
      return Status(Code::kInvalidArgument, format("%s: '%s' is of ", kCreate, info.name) +
                                                std::string(to_string(dtype)) +
                                                " (expected a floating type)");
    }
    tensors.push_back({info.name, dtype, shape});
  }
  return tensors;
}

Status create(gw_comm* comm, std::span<const gw_tensor_info> infos,
              const gw_aggregator_options* given, gw_aggregator** aggregator) {
  if (infos.empty()) {
    return {Code::kInvalidArgument, std::string(kCreate) + ": no tensors (expected one or more)"};
  }
  GW_ASSIGN(const SpecOptions read, read_spec_options(kCreate, given));
  GW_ASSIGN(const std::vector<BucketSteps::Tensor> tensors, tensors_of(infos));
  GW_ASSIGN(const Device device, device_of(kCreate, read.space, read.device));
  auto handle = std::make_unique<gw_aggregator>();
  GW_ASSIGN(handle->steps,
            BucketSteps::create(comm->group, tensors, read.options, read.skips, device));
  *aggregator = handle.release();
  return {};
}

// stream: null for the default one of the aggregator's place. A null work is for the caller to
// wait.
gw_status submit(const char* function, gw_aggregator* aggregator, const gw_gradient* gradients,
                 size_t count, const gw_stream* stream, gw_work** work) {
  return guarded([&]() -> Status {
    if (work != nullptr) *work = nullptr;
    GW_TRY(check_handle(aggregator, function, "aggregator"));
    if (count > 0) GW_TRY(check_given(gradients, function, "gradients"));
    BucketSteps& steps = *aggregator->steps;
    Stream after{steps.device(), nullptr};
    if (stream != nullptr) {
      GW_ASSIGN(after, stream_of(function, *stream));
    }
    GW_ASSIGN(std::shared_ptr<WorkCell> cell, steps.submit(function, {gradients, count}, after));
    if (work != nullptr) {
      *work = new_work(std::move(cell));
      return {};
    }
    cell->wait(std::nullopt);
    return cell->status();
  });
}

// The common beginning of calls between steps.
template <typename Action>
gw_status between_steps(const char* function, gw_aggregator* aggregator, const Action& action) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(aggregator, function, "aggregator"));
    return aggregator->steps->between_steps(action).with_context(function);
  });
}

// Where as many ranks saved as there are now, a rank needs its own state alone.
Status load(gw_aggregator& aggregator, std::span<const gw_state* const> by_old_rank) {
  constexpr const char* kName = "gw_aggregator_load";
  const BucketSteps& steps = *aggregator.steps;
  const bool as_many = static_cast<int>(by_old_rank.size()) == steps.size();
  const auto own = static_cast<std::size_t>(steps.rank());
  std::vector<std::vector<NamedTensor>> views;
  for (std::size_t r = 0; r < by_old_rank.size(); ++r) {
    const bool stands_in = as_many && by_old_rank[r] == nullptr && r != own;
    const gw_state* state = by_old_rank[stands_in ? own : r];
    GW_TRY(check_handle(state, kName, format("the state of old rank %zu", r).c_str()));
    // Loading only reads.
    views.push_back(views_of(const_cast<gw_state&>(*state)));
  }
  return aggregator.steps->between_steps([&](Aggregator& inner) { return inner.load_state(views); })
      .with_context(kName);
}

}  // namespace
}  // namespace gradwire::c

using namespace gradwire;
using namespace gradwire::c;

gw_status gw_aggregator_create(gw_comm* comm, const gw_tensor_info* tensors, size_t count,
                               const gw_aggregator_options* options, gw_aggregator** aggregator) {
  return guarded([&]() -> Status {
    GW_TRY(check_given(aggregator, kCreate, "aggregator"));
    *aggregator = nullptr;
    GW_TRY(check_handle(comm, kCreate, "comm"));
    if (count > 0) GW_TRY(check_given(tensors, kCreate, "tensors"));
    return create(comm, {tensors, count}, options, aggregator);
  });
}

void gw_aggregator_free(gw_aggregator* aggregator) {
  if (aggregator == nullptr || aggregator->magic != gw_aggregator::kMagic) return;
  aggregator->magic = 0;
  guarded([&]() -> Status {
    delete aggregator;
    return {};
  });
}

gw_status gw_aggregator_submit(gw_aggregator* aggregator, const gw_gradient* gradients,
                               size_t count, gw_work** work) {
  return submit("gw_aggregator_submit", aggregator, gradients, count, nullptr, work);
}

gw_status gw_aggregator_submit_on(gw_aggregator* aggregator, const gw_gradient* gradients,
                                  size_t count, const gw_stream* stream, gw_work** work) {
  return submit("gw_aggregator_submit_on", aggregator, gradients, count, stream, work);
}

gw_status gw_aggregator_flush(gw_aggregator* aggregator) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(aggregator, "gw_aggregator_flush", "aggregator"));
    return aggregator->steps->flush();
  });
}

gw_status gw_aggregator_set_learning_rate(gw_aggregator* aggregator, double rate) {
  return between_steps("gw_aggregator_set_learning_rate", aggregator,
                       [rate](Aggregator& inner) { return inner.set_learning_rate(rate); });
}

gw_status gw_aggregator_set_loss_scale(gw_aggregator* aggregator, double scale) {
  return between_steps("gw_aggregator_set_loss_scale", aggregator,
                       [scale](Aggregator& inner) { return inner.set_loss_scale(scale); });
}

gw_status gw_aggregator_skip(gw_aggregator* aggregator, int overflow, int* skip) {
  const gw_status given = guarded([&] { return check_given(skip, "gw_aggregator_skip", "skip"); });
  if (given != GW_OK) return given;
  return between_steps("gw_aggregator_skip", aggregator, [&](Aggregator& inner) -> Status {
    GW_ASSIGN(const bool any, inner.skip_step(overflow != 0));
    *skip = any ? 1 : 0;
    return {};
  });
}

gw_status gw_aggregator_get_stats(const gw_aggregator* aggregator, gw_aggregator_stats* stats) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(aggregator, "gw_aggregator_get_stats", "aggregator"));
    return write_struct(aggregator->steps->stats(), "gw_aggregator_get_stats", stats);
  });
}

const char* gw_aggregator_warning(const gw_aggregator* aggregator, size_t i) {
  const gw_status valid =
      guarded([&] { return check_handle(aggregator, "gw_aggregator_warning", "aggregator"); });
  return valid == GW_OK ? aggregator->steps->warning(i) : nullptr;
}

gw_status gw_aggregator_save(gw_aggregator* aggregator, gw_state** state) {
  const gw_status given =
      guarded([&] { return check_given(state, "gw_aggregator_save", "state"); });
  if (given != GW_OK) return given;
  *state = nullptr;
  return between_steps("gw_aggregator_save", aggregator, [&](Aggregator& inner) -> Status {
    *state = copy_of(inner.state());
    return {};
  });
}

gw_status gw_aggregator_load(gw_aggregator* aggregator, const gw_state* const* by_old_rank,
                             size_t old_ranks) {
  return guarded([&]() -> Status {
    GW_TRY(check_handle(aggregator, "gw_aggregator_load", "aggregator"));
    if (old_ranks > 0) GW_TRY(check_given(by_old_rank, "gw_aggregator_load", "by_old_rank"));
    return load(*aggregator, {by_old_rank, old_ranks});
  });
}

gw_status gw_shard(int64_t elements, int rank, int size, int64_t* begin, int64_t* end) {
  return guarded([&]() -> Status {
    GW_TRY(check_given(begin, "gw_shard", "begin"));
    GW_TRY(check_given(end, "gw_shard", "end"));
    if (elements < 0 || size < 1 || rank < 0 || rank >= size) {
      return {Code::kInvalidArgument, format("gw_shard: rank %d of %d and %lld elements (expected "
                                             "0 <= rank < size and 0 or more elements)",
                                             rank, size, static_cast<long long>(elements))};
    }
    const Range own = piece(elements, size, rank);
    *begin = own.begin;
    *end = own.end;
    return {};
  });
}
