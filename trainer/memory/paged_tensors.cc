#include "trainer/memory/paged_tensors.h"

#include <algorithm>
#include <utility>

#include "device/pages.h"

namespace gradwire {

PagedTensors::Memory::Memory(const ParameterTable& of, const MemoryArena& counted_by,
                             MemoryClass kind, Buffer pages)
    : table(of), arena(counted_by), what(kind), buffer(std::move(pages)), held(of.size(), false) {}

std::int64_t PagedTensors::Memory::bytes(int index) const {
  return table[static_cast<std::size_t>(index)].shape.elems() *
         static_cast<std::int64_t>(sizeof(float));
}

PagedTensors::Memory::~Memory() {
  for (std::size_t i = 0; i < held.size(); ++i) {
    if (held[i]) arena.hold(what, -bytes(static_cast<int>(i)));
  }
}

Result<PagedTensors> PagedTensors::create(const ParameterTable& table, const MemoryArena& arena,
                                          MemoryClass what) {
  const auto elems = static_cast<std::size_t>(parameter_elems(table));
  GW_ASSIGN(Buffer buffer, arena.reserve(elems * sizeof(float)));
  PagedTensors made;
  made.memory_ = std::make_shared<Memory>(table, arena, what, std::move(buffer));
  return made;
}

std::span<float> PagedTensors::all() const {
  const ByteSpan bytes = memory_->buffer.bytes();
  return {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)};
}

std::span<float> PagedTensors::tensor(int index) const {
  const ParameterInfo& info = memory_->table[static_cast<std::size_t>(index)];
  return all().subspan(static_cast<std::size_t>(info.offset),
                       static_cast<std::size_t>(info.shape.elems()));
}

std::vector<NamedTensor> PagedTensors::named() const {
  return named_tensors(memory_->table, all(), memory_->arena.device());
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

void PagedTensors::drop(int index) const {
  if (!held(index) || memory_->arena.device().space != MemorySpace::kHost) return;
  memory_->held[static_cast<std::size_t>(index)] = false;
  (void)drop_pages(std::as_writable_bytes(tensor(index)));
  memory_->arena.hold(memory_->what, -memory_->bytes(index));
}

bool PagedTensors::held(int index) const { return memory_->held[static_cast<std::size_t>(index)]; }

}  // namespace gradwire
