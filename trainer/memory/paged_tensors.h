// Tensors one behind the other in one address space, whose memory comes and goes one by one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "gradwire/tensor.h"
#include "trainer/memory/memory_arena.h"
#include "trainer/parameters.h"

namespace gradwire {

// Copies are the same memory. What is dropped are whole pages: ends of tensors that share a page
// with a neighbour stay, and a tensor counts with its bytes. From one thread at a time.
class PagedTensors {
 public:
  // Of a table that lies without gaps; zeroed, and held by nobody yet. dtype: f32, bf16 or f16.
  static Result<PagedTensors> create(const ParameterTable& table, const MemoryArena& arena,
                                     MemoryClass what, DType dtype = DType::kF32);
  PagedTensors() = default;

  DType dtype() const { return memory_->dtype; }
  // Of f32.
  std::span<float> all() const;
  std::span<float> tensor(int index) const;
  // Of 16 bits.
  std::span<std::uint16_t> halves() const;
  std::span<std::uint16_t> halves(int index) const;
  TensorView view(int index) const;
  TensorView whole() const;  // all of them as one
  std::vector<NamedTensor> named() const;
  Device device() const { return memory_->arena.device(); }
  std::int64_t most_elems() const;  // of a tensor
  int size() const;                 // 0 where nothing was created

  // Counts tensor `index` from now on, if it is not yet.
  void take(int index) const;
  void take_all() const;
  // Gives its memory back: it reads as zeros where its pages went. On a device it stays, and is
  // counted on.
  void drop(int index) const;
  // As drop(), for a tensor that is written again soon: its pages are the system's to take when it
  // wants memory, and hold what they held until then, so that writing to them costs no page faults.
  void offer(int index) const;
  bool held(int index) const;

 private:
  struct Memory {
    Memory(const ParameterTable& of, const MemoryArena& counted_by, MemoryClass kind, DType type,
           Buffer pages);
    Memory(const Memory&) = delete;
    Memory& operator=(const Memory&) = delete;
    ~Memory();
    std::int64_t bytes(int index) const;
    ParameterTable table;
    MemoryArena arena;
    MemoryClass what;
    DType dtype;
    Buffer buffer;
    std::vector<bool> held;
  };
  bool release(int index) const;  // false where it is not counted, or stays
  const ParameterInfo& info(int index) const {
    return memory_->table[static_cast<std::size_t>(index)];
  }
  std::shared_ptr<Memory> memory_;
};

}  // namespace gradwire
