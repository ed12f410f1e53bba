#include "collectives/plan/lent_inputs.h"

#include <utility>
#include <vector>

#include "collectives/schedules/op_traits.h"
#include "device/ops.h"

namespace gradwire {
namespace {

// dst = src, times factor where there is one; in memory of the host.
Status copy_scaled(ConstTensorView src, double factor, TensorView dst) {
  if (factor != 1) return scaled_copy(src, factor, dst, {});
  if (src.data() == dst.data()) return {};
  return copy_bytes(src.bytes(), src.device(), dst.bytes(), dst.device(), {});
}

// Whether each tensor begins where the one before it ends.
bool adjacent(const std::vector<TensorView>& tensors) {
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i - 1].data() + tensors[i - 1].bytes().size() != tensors[i].data()) return false;
  }
  return true;
}

// An all_reduce has room for the scaled input in `out`.
Status premultiply(Operated& operated, const CheckedCall& checked, const Stream& stream,
                   OwnMemory& memory) {
  const OpCall& call = checked.call;
  const ConstTensorView in(call.in.data(), Shape::vector(checked.extent.in), checked.extent.dtype,
                           call.in.device());
  if (in.empty()) return {};
  const bool alike = call.in.device().space == call.out.device().space;
  std::byte* scaled = operated.out;
  if (call.kind != OpKind::kAllReduce || !alike) {
    GW_ASSIGN(operated.lent, memory.lend(in.bytes().size(), in.device()));
    scaled = operated.lent.get();
  }
  operated.in = scaled;
  operated.before = [in, scaled, factor = checked.options.factor, stream] {
    return scaled_copy(in, factor, {scaled, Shape::vector(in.elems()), in.dtype(), in.device()},
                       stream);
  };
  return {};
}

// Tensors that lie one after another are one already; others are copied to where they do, and
// back. In memory of the host: on a device the pieces stay where they are (message_path.cc).
Status fuse(Operated& operated, const CheckedCall& checked, OwnMemory& memory) {
  std::vector<TensorView> tensors(checked.call.tensors.begin(), checked.call.tensors.end());
  std::erase_if(tensors, [](const TensorView& tensor) { return tensor.empty(); });
  if (tensors.empty()) return {};
  const double factor = checked.options.factor;
  const Extent& extent = checked.extent;
  const bool whole = adjacent(tensors);
  std::byte* data = tensors.front().data();
  if (!whole) {
    GW_ASSIGN(
        operated.lent,
        memory.lend(static_cast<std::size_t>(extent.agreed) * size_of(extent.dtype), Device{}));
    data = operated.lent.get();
  }
  operated.in = operated.out = data;
  const TensorView all(data, Shape::vector(extent.agreed), extent.dtype);
  if (whole && factor == 1) return {};
  if (whole) {
    operated.before = [all, factor] { return copy_scaled(all, factor, all); };
    return {};
  }
  operated.before = [tensors, all, factor] {
    std::int64_t begin = 0;
    for (const TensorView& tensor : tensors) {
      GW_TRY(copy_scaled(tensor, factor, all.slice(begin, tensor.elems())));
      begin += tensor.elems();
    }
    return Status();
  };
  operated.after = [tensors, all] {
    std::int64_t begin = 0;
    for (const TensorView& tensor : tensors) {
      GW_TRY(copy_scaled(all.slice(begin, tensor.elems()), 1, tensor));
      begin += tensor.elems();
    }
    return Status();
  };
  return {};
}

}  // namespace

Result<std::shared_ptr<std::byte>> OwnMemory::lend(std::size_t bytes, Device device) {
  if (bytes == 0) return std::shared_ptr<std::byte>();
  const std::lock_guard lock(mutex_);
  GW_ASSIGN(Buffer taken, pool_.take(bytes, device));
  std::byte* const data = taken.bytes().data();
  auto give_back = [self = shared_from_this(),
                    buffer = std::make_shared<Buffer>(std::move(taken))](std::byte*) {
    const std::lock_guard back(self->mutex_);
    self->pool_.give_back(std::move(*buffer));
  };
  return std::shared_ptr<std::byte>(data, std::move(give_back));
}

Result<Operated> operated_of(const CheckedCall& call, const Stream& stream, OwnMemory& memory) {
  Operated operated{.in = call.call.in.data(), .out = call.call.out.data()};
  GW_TRY(call.call.kind == OpKind::kAllReduceFused ? fuse(operated, call, memory)
                                                   : premultiply(operated, call, stream, memory));
  return operated;
}

}  // namespace gradwire
