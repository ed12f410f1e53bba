#include "tests/torch/device/memory.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "device/cuda/capture.h"
#include "device/cuda/memory.h"
#include "device/ops.h"
#include "tests/emulation/emulated_device.h"
#include "tests/torch/device/streams.h"

namespace gradwire::emulated_torch {
namespace {

c10::Stream current_stream() {
  return Streams::all().current({kType, static_cast<c10::DeviceIndex>(current_device())});
}

// Freed in the order of the stream on which it was taken, after what other streams do with it.
struct Block {
  cuda::Scratch memory;
  c10::Stream stream;
  std::vector<c10::Stream> others = {};
};

// Whether the stream is captured, well or not.
bool is_captured(const c10::Stream& stream) {
  const auto captured = cuda::is_capturing(Streams::all().native_of(stream));
  return !captured.has_value() || captured.value();
}

// What was let go. A stream that is captured cannot wait for others: until its end it is kept.
class Frees {
 public:
  void add(std::unique_ptr<Block> block) {
    const std::lock_guard<std::mutex> lock(mutex_);
    late_.push_back(std::move(block));
    std::erase_if(late_, [](const std::unique_ptr<Block>& one) { return order(*one); });
  }
  std::mutex& mutex() { return mutex_; }

 private:
  // Has the block's own stream wait for the others. False: one of them is captured.
  static bool order(const Block& block) {
    if (block.others.empty()) return true;
    if (is_captured(block.stream) ||
        std::any_of(block.others.begin(), block.others.end(), is_captured)) {
      return false;
    }
    for (const c10::Stream& other : block.others) {
      cuda::Event point = need(cuda::Event::create(native(other.device())));
      need(point.record(Streams::all().native_of(other)));
      need(point.before(Streams::all().native_of(block.stream)));
    }
    return true;
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> late_;
};
Frees& frees() {
  static auto* const all = new Frees;
  return *all;
}

void release(void* context) {
  if (context != nullptr) frees().add(std::unique_ptr<Block>(static_cast<Block*>(context)));
}

struct Allocator final : c10::Allocator {
  c10::DataPtr allocate(std::size_t bytes) override {
    const c10::Device device(kType, static_cast<c10::DeviceIndex>(current_device()));
    if (bytes == 0) return {nullptr, nullptr, &release, device};
    const c10::Stream stream = current_stream();
    auto* const block =
        new Block{need(cuda::Scratch::allocate(bytes, Streams::all().native_of(stream))), stream};
    return {block->memory.as<void*>(), block, &release, device};
  }
  void copy_data(void* to, const void* from, std::size_t bytes) const override {
    copy_there(to, from, bytes);
  }
};

// What the host has given copies to read, until they have been made.
class Sources {
 public:
  void keep(at::Tensor tensor, cuda::Event point) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const emulation::Uncounted own;
    while (!kept_.empty() && need(kept_.front().second.passed())) kept_.pop_front();
    kept_.emplace_back(std::move(tensor), std::move(point));
  }

 private:
  std::mutex mutex_;
  std::deque<std::pair<at::Tensor, cuda::Event>> kept_;
};
Sources& sources() {
  static auto* const all = new Sources;
  return *all;
}

void enqueue(const void* from, Device from_device, void* to, Device to_device, std::size_t bytes,
             const Stream& stream) {
  need(copy_bytes({static_cast<const std::byte*>(from), bytes}, from_device,
                  {static_cast<std::byte*>(to), bytes}, to_device, stream));
}

// Elements from the first to the last, with what lies between.
std::int64_t span_of(const at::Tensor& tensor) {
  std::int64_t span = 1;
  for (std::int64_t d = 0; d < tensor.dim(); ++d) span += (tensor.size(d) - 1) * tensor.stride(d);
  return span;
}

// Parts of the tensor that have no gaps, each with the host's elements for it.
void write_parts(const at::Tensor& host, const at::Tensor& tensor, const Stream& stream) {
  if (tensor.is_contiguous()) {
    enqueue(host.const_data_ptr(), {}, tensor.data_ptr(), stream.device, host.nbytes(), stream);
    return;
  }
  for (std::int64_t i = 0; i < tensor.size(0); ++i) {
    write_parts(host.select(0, i), tensor.select(0, i), stream);
  }
}

}  // namespace

c10::Allocator* allocator() {
  static Allocator all;
  return &all;
}
REGISTER_ALLOCATOR(kType, allocator());

void between_frees(const std::function<void()>& call) {
  const std::lock_guard<std::mutex> lock(frees().mutex());
  call();
}

void used_on(const c10::DataPtr& data, const c10::Stream& stream) {
  if (data.get_deleter() != &release) return;  // memory of others
  auto* const block = static_cast<Block*>(data.get_context());
  if (block != nullptr && stream != block->stream) block->others.push_back(stream);
}

void copy_there(void* to, const void* from, std::size_t bytes) {
  const Stream stream = Streams::all().native_of(current_stream());
  enqueue(from, stream.device, to, stream.device, bytes, stream);
}

void copy_parts(const at::Tensor& from, const at::Tensor& to) {
  if (from.is_contiguous() && to.is_contiguous()) {
    copy_there(to.data_ptr(), from.const_data_ptr(), to.nbytes());
    return;
  }
  for (std::int64_t i = 0; i < to.size(0); ++i) copy_parts(from.select(0, i), to.select(0, i));
}

at::Tensor host_copy(const at::Tensor& tensor) {
  const c10::Stream current = Streams::all().current(tensor.device());
  const Stream stream = Streams::all().native_of(current);
  const at::Tensor all = at::empty({span_of(tensor)}, at::dtype(tensor.scalar_type()));
  enqueue(tensor.const_data_ptr(), stream.device, all.data_ptr(), {}, all.nbytes(), stream);
  const emulation::Uncounted own;  // no wait of the library's
  need(cuda::synchronize(stream));
  at::Tensor host = all.as_strided(tensor.sizes(), tensor.strides());
  if (tensor.is_conj()) host = host.conj();
  return tensor.is_neg() ? host._neg_view() : host;
}

void write(const at::Tensor& host, const at::Tensor& tensor) {
  const c10::Stream current = Streams::all().current(tensor.device());
  const Stream stream = Streams::all().native_of(current);
  const at::Tensor own = host.clone();  // the caller may change it before the copy is made
  write_parts(own, tensor, stream);
  cuda::Event point = need(cuda::Event::create(stream.device));
  need(point.record(stream));
  sources().keep(own, std::move(point));
}

}  // namespace gradwire::emulated_torch
