#include "tests/gpu/nccl/staged_communicator.h"

#include <algorithm>
#include <bit>
#include <list>
#include <optional>
#include <span>

#include "collectives/engine/work_state.h"
#include "device/cuda/memory_calls.h"
#include "device/ops.h"
#include "gradwire/buffer.h"
#include "tests/laws/communicator/communicator_programs.h"

namespace gradwire::gpu {
namespace {

// Host memory and its image on the device.
class Image {
 public:
  static Result<Image> of(std::byte* begin, std::byte* end, const Stream& stream) {
    Image image;
    image.begin_ = begin;
    image.size_ = static_cast<std::size_t>(end - begin);
    GW_ASSIGN(image.there_, Buffer::allocate(image.size_, stream.device));
    GW_TRY(copy_bytes({begin, image.size_}, Device{}, image.bytes(), stream.device, stream));
    return image;
  }
  bool holds(const std::byte* data) const {
    return data >= begin_ && data < begin_ + static_cast<std::ptrdiff_t>(size_);
  }
  template <typename View>
  View view(const View& here) const {
    return {bytes().data() + (here.data() - begin_), here.shape(), here.dtype(), there_.device()};
  }
  Status copy_back(const Stream& stream) const {
    return copy_bytes(bytes(), stream.device, {begin_, size_}, Device{}, stream);
  }

 private:
  ByteSpan bytes() const { return there_.bytes().first(size_); }
  std::byte* begin_ = nullptr;
  std::size_t size_ = 0;
  Buffer there_;
};

// The images of some calls' tensors: those that overlap share one.
class Images {
 public:
  explicit Images(const Stream& stream) : stream_(stream) {}

  void cover(ConstTensorView tensor) {
    if (tensor.empty()) return;
    auto* const begin = const_cast<std::byte*>(tensor.data());
    Span span{begin, begin + tensor.bytes().size()};
    for (auto other = spans_.begin(); other != spans_.end();) {
      if (other->begin < span.end && span.begin < other->end) {
        span = {std::min(span.begin, other->begin), std::max(span.end, other->end)};
        other = spans_.erase(other);
      } else {
        ++other;
      }
    }
    spans_.push_back(span);
  }
  Status copy_there() {
    for (const Span& span : spans_) {
      GW_ASSIGN(Image image, Image::of(span.begin, span.end, stream_));
      images_.push_back(std::move(image));
    }
    return {};
  }
  template <typename View>
  View there(const View& here) const {
    for (const Image& image : images_) {
      if (!here.empty() && image.holds(here.data())) return image.view(here);
    }
    return here;
  }
  Status copy_back() const {
    for (const Image& image : images_) GW_TRY(image.copy_back(stream_));
    return cuda::synchronize(stream_);
  }

 private:
  struct Span {
    std::byte* begin;
    std::byte* end;
  };
  Stream stream_;
  std::list<Span> spans_;
  std::vector<Image> images_;
};

// Done when `work` is, and its images are copied back.
Work copied_back_after(Work work, std::shared_ptr<Images> images) {
  const std::shared_ptr<WorkState> inner = work.state();
  auto outer = std::make_shared<WorkState>(inner->engine());
  auto held = std::make_shared<Work>(std::move(work));
  inner->on_done([outer, held, images = std::move(images)] {
    outer->set_source(held->source());
    const Status status = held->state()->status();
    outer->finish(status.ok() ? images->copy_back() : status);
  });
  return Work(std::move(outer));
}

}  // namespace

Result<std::unique_ptr<Communicator>> StagedCommunicator::staged(
    Result<std::unique_ptr<Communicator>> part) const {
  if (!part.has_value()) return part.error();
  if (part.value() == nullptr) return std::unique_ptr<Communicator>();
  return std::unique_ptr<Communicator>(
      std::make_unique<StagedCommunicator>(std::move(part).value(), device_, serves_, stream_));
}

Result<std::unique_ptr<Communicator>> StagedCommunicator::shrink(std::optional<Deadline> deadline) {
  return staged(world_->shrink(deadline));
}

Result<std::unique_ptr<Communicator>> StagedCommunicator::split(int color, int key,
                                                                const GroupOptions& options) {
  return staged(world_->split(color, key, options));
}

Result<Work> StagedCommunicator::start(const OpCall& call, const OpOptions& options) {
  return start_all(std::span(&call, 1), options);
}

Result<Work> StagedCommunicator::start_all(std::span<const OpCall> calls,
                                           const OpOptions& options) {
  const bool by_nccl = serves_ == Serves::kWhatNcclDoes;
  if (by_nccl && calls.front().kind == OpKind::kExclusiveScan) {
    return world_->start_all(calls, options);
  }
  OpOptions on_device = options;
  if (by_nccl) on_device.algorithm = "auto";
  on_device.stream = {device_, stream_};
  auto kept = std::make_shared<Images>(on_device.stream);
  Images& images = *kept;
  for (const OpCall& call : calls) {
    images.cover(call.in);
    images.cover(call.out);
    for (const TensorView& tensor : call.tensors) images.cover(tensor);
  }
  GW_TRY(images.copy_there());
  std::vector<OpCall> there(calls.begin(), calls.end());
  std::list<std::vector<TensorView>> tensors;
  for (OpCall& call : there) {
    call.in = images.there(call.in);
    call.out = images.there(call.out);
    tensors.emplace_back(call.tensors.begin(), call.tensors.end());
    for (TensorView& tensor : tensors.back()) tensor = images.there(tensor);
    call.tensors = tensors.back();
  }
  GW_ASSIGN(Work work, world_->start_all(there, on_device));
  if (!by_nccl) return copied_back_after(std::move(work), std::move(kept));
  GW_TRY(work.wait());
  GW_TRY(images.copy_back());
  return Work(nullptr);
}

// Each run stages anew, since the host's memory is what the caller writes in between.
Result<PersistentWork> StagedCommunicator::prepare(const OpCall& call, const OpOptions& options) {
  if (options.deadline) return world_->prepare(call, options);  // which is refused
  auto counts = std::make_shared<std::vector<std::int64_t>>(call.counts.begin(), call.counts.end());
  auto others =
      std::make_shared<std::vector<std::int64_t>>(call.recv_counts.begin(), call.recv_counts.end());
  auto tensors =
      std::make_shared<std::vector<TensorView>>(call.tensors.begin(), call.tensors.end());
  return PersistentWork([this, call, options, counts, others, tensors] {
    OpCall again = call;
    again.counts = *counts;
    again.recv_counts = *others;
    again.tensors = *tensors;
    return start(again, options);
  });
}

std::string run_device_laws(Communicator& staged_world) {
  Sizes sizes{.elems = {1, staged_world.size() + 1, 997, 65537}, .stride = 13};
  // NCCL scales before it adds, which is exact where the factor is a power of two.
  sizes.exact_means = std::has_single_bit(static_cast<unsigned>(staged_world.size()));
  if (std::string fault = reduce_exactly(staged_world, sizes); !fault.empty()) return fault;
  if (std::string fault = move_exactly(staged_world, sizes); !fault.empty()) return fault;
  for (const auto program :
       {keep_nans, work_in_place_and_apart, split_and_split_again, run_again_and_again}) {
    if (std::string fault = program(staged_world); !fault.empty()) return fault;
  }
  return staged_world.status().ok() ? "" : std::string(staged_world.status().message());
}

}  // namespace gradwire::gpu
