#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "base/text.h"
#include "tests/laws/communicator/communicator_programs.h"
#include "tests/reference/collectives_reference.h"
#include "tests/support/short_run.h"

namespace gradwire {
namespace {

struct Case {
  ReduceOp op;
  std::string_view algorithm;
  std::int64_t elems;
};

std::string text_of(const char* name, DType dtype, const Case& one) {
  return format("%s of %lld %s, op %d, %s: ", name, static_cast<long long>(one.elems),
                std::string(to_string(dtype)).c_str(), static_cast<int>(one.op),
                std::string(one.algorithm).c_str());
}

Status wait_for(Result<Work> work) {
  if (!work.has_value()) return work.error();
  return work.value().wait();
}

template <DType kType>
std::string check_all_reduce(Communicator& world, const Case& one) {
  std::vector<std::byte> data = reference::inputs<kType>(world.rank(), 0, one.elems);
  const TensorView tensor(data.data(), Shape::vector(one.elems), kType);
  const Status status = wait_for(
      world.all_reduce(tensor, one.op, {.algorithm = one.algorithm, .deadline = {}, .stream = {}}));
  if (!status.ok()) return text_of("all_reduce", kType, one) + std::string(status.message());
  const bool canonical = one.algorithm == "canonical";
  if (data == reference::all_reduce<kType>(one.op, world.size(), one.elems, canonical)) return "";
  return text_of("all_reduce", kType, one) + "wrong contents";
}

template <DType kType>
std::string check_reduce_scatter(Communicator& world, const Case& one) {
  using Stored = typename reference::Element<kType>::Stored;
  const int p = world.size();
  const std::vector<std::byte> in = reference::inputs<kType>(world.rank(), 0, p * one.elems);
  std::vector<std::byte> out(static_cast<std::size_t>(one.elems) * sizeof(Stored));
  const Status status =
      wait_for(world.reduce_scatter(ConstTensorView(in.data(), Shape::matrix(p, one.elems), kType),
                                    TensorView(out.data(), Shape::vector(one.elems), kType), one.op,
                                    {.algorithm = one.algorithm, .deadline = {}, .stream = {}}));
  if (!status.ok()) return text_of("reduce_scatter", kType, one) + std::string(status.message());
  const bool canonical = one.algorithm == "canonical";
  if (in != reference::inputs<kType>(world.rank(), 0, p * one.elems))
    return "reduce_scatter changed its input";
  if (out == reference::reduce_scatter<kType>(one.op, p, world.rank(), one.elems, canonical))
    return "";
  return text_of("reduce_scatter", kType, one) + "wrong contents";
}

// In a short run one or two of the counts for each algorithm and reduction, others each time.
template <DType kType>
std::string reduce_type(Communicator& world, const std::vector<std::int64_t>& counts) {
  ShortRun run(5, world.size() + static_cast<int>(kType));
  for (const std::string_view algorithm : {"ring", "canonical"}) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMean, ReduceOp::kMax, ReduceOp::kMin}) {
      if (op == ReduceOp::kMean && !reference::is_floating<kType>()) continue;
      for (const std::int64_t elems : counts) {
        if (!run.takes()) continue;
        const Case one{op, algorithm, elems};
        if (auto fault = check_all_reduce<kType>(world, one); !fault.empty()) return fault;
        if (auto fault = check_reduce_scatter<kType>(world, one); !fault.empty()) return fault;
      }
    }
  }
  return "";
}

}  // namespace

std::string reduce_everything(Communicator& world) {
  const int p = world.size();
  const std::vector<std::int64_t> counts{0, 1, p - 1, p, p + 1, 997};
  std::string fault;
  const auto take = [&](std::string found) {
    if (fault.empty()) fault = std::move(found);
  };
  take(reduce_type<DType::kF64>(world, counts));
  take(reduce_type<DType::kF32>(world, counts));
  take(reduce_type<DType::kF16>(world, counts));
  take(reduce_type<DType::kBF16>(world, counts));
  take(reduce_type<DType::kI64>(world, counts));
  take(reduce_type<DType::kI32>(world, counts));
  take(reduce_type<DType::kI8>(world, counts));
  take(reduce_type<DType::kU8>(world, counts));
  return fault;
}

std::string reduce_large(Communicator& world) {
  for (const std::string_view algorithm : {"ring", "canonical"}) {
    const Case sum{ReduceOp::kSum, algorithm, 700001};
    const Case mean{ReduceOp::kMean, algorithm, 150001};
    if (auto fault = check_all_reduce<DType::kF32>(world, sum); !fault.empty()) return fault;
    if (auto fault = check_reduce_scatter<DType::kF64>(world, mean); !fault.empty()) return fault;
    if (auto fault = check_all_reduce<DType::kBF16>(world, mean); !fault.empty()) return fault;
  }
  return "";
}

}  // namespace gradwire
