#include "trainer/memory/paged_tensors.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "device/pages.h"

namespace gradwire {

PagedTensors::Memory::Memory(const ParameterTable& of, const MemoryArena& counted_by,
                             MemoryClass kind, DType type, Buffer pages)
    : table(of),
      arena(counted_by),
      what(kind),
      dtype(type),
      buffer(std::move(pages)),
      held(of.size(), false) {}

std::int64_t PagedTensors::Memory::bytes(int index) const {
  return table[static_cast<std::size_t>(index)].shape.elems() *
         static_cast<std::int64_t>(size_of(dtype));
}

PagedTensors::Memory::~Memory() {
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (held[i]) arena.hold(what, -bytes(static_cast<int>(i)));
  }
}

Result<PagedTensors> PagedTensors::create(const ParameterTable& table, const MemoryArena& arena,
                                          MemoryClass what, DType dtype) {
  const auto elems = static_cast<std::size_t>(parameter_elems(table));
  GW_ASSIGN(Buffer buffer, arena.reserve(elems * size_of(dtype)));
  PagedTensors made;
  made.memory_ = std::make_shared<Memory>(table, arena, what, dtype, std::move(buffer));
  return made;
}

std::span<float> PagedTensors::all() const {
  GW_CHECK(dtype() == DType::kF32);
  const ByteSpan bytes = memory_->buffer.bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<float> PagedTensors::tensor(int index) const {
  return all().subspan(static_cast<std::size_t>(info(index).offset),
                       static_cast<std::size_t>(info(index).shape.elems()));
}

std::span<std::uint16_t> PagedTensors::halves() const {
  GW_CHECK(size_of(dtype()) == sizeof(std::uint16_t));
  const ByteSpan bytes = memory_->buffer.bytes();
  return {reinterpret_cast<std::uint16_t*>(bytes.data()), bytes.size() / sizeof(std::uint16_t)};
}

std::span<std::uint16_t> PagedTensors::halves(int index) const {
  return halves().subspan(static_cast<std::size_t>(info(index).offset),
                          static_cast<std::size_t>(info(index).shape.elems()));
}

TensorView PagedTensors::view(int index) const {
  const auto first = static_cast<std::size_t>(info(index).offset) * size_of(dtype());
  return {memory_->buffer.bytes().data() + first, info(index).shape, dtype(), device()};
}

TensorView PagedTensors::whole() const {
  return {memory_->buffer.bytes().data(), Shape::vector(parameter_elems(memory_->table)), dtype(),
          device()};
}

std::vector<NamedTensor> PagedTensors::named() const {
  std::vector<NamedTensor> all;
  for (int index = 0; index < size(); ++index) all.push_back({info(index).name, view(index)});
  return all;
}

std::int64_t PagedTensors::most_elems() const {
  std::int64_t most = 0;
  for (const ParameterInfo& info : memory_->table) most = std::max(most, info.shape.elems());
  return most;
}

int PagedTensors::size() const {
  return memory_ == nullptr ? 0 : static_cast<int>(memory_->table.size());
}

void PagedTensors::take(int index) const {
  if (held(index)) return;
  memory_->held[static_cast<std::size_t>(index)] = true;
  memory_->arena.hold(memory_->what, memory_->bytes(index));
}

void PagedTensors::take_all() const {
  for (int index = 0; index < size(); ++index) take(index);
}

bool PagedTensors::release(int index) const {
  if (!held(index) || memory_->arena.device().space != MemorySpace::kHost) return false;
  memory_->held[static_cast<std::size_t>(index)] = false;
  memory_->arena.hold(memory_->what, -memory_->bytes(index));
  return true;
}

void PagedTensors::drop(int index) const {
  if (release(index)) (void)drop_pages(view(index).bytes());
}

void PagedTensors::offer(int index) const {
  if (release(index)) (void)offer_pages(view(index).bytes());
}

bool PagedTensors::held(int index) const { return memory_->held[static_cast<std::size_t>(index)]; }

}  // namespace gradwire
