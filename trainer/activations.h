// The values that one micro-batch leaves behind on its way forward, and the room for its way back.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"
#include "trainer/memory/memory_arena.h"

namespace gradwire {

// Layers [begin, end) of a model: a stage of a pipeline, or a piece that is computed again.
struct LayerRange {
  std::size_t begin = 0;
  std::size_t end = 0;
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

// A piece of a model whose inside is computed again on the way back, or kept.
struct Segment {
  LayerRange range;
  bool again = true;
  friend bool operator==(const Segment&, const Segment&) = default;
};

// Where derivatives live on the way back.
enum class DeltaRoom : std::uint8_t {
  kTurns,       // two buffers take turns: a level's delta lives until the next but one's
  kEveryLevel,  // all of them stay: gradients by weights may come after all those by inputs
};

// Sizes for one micro-batch, in elements. Level 0 is the input; layer l reads level l, keeps
// saved[l] and stash[l], and writes level l + 1.
struct ActivationSizes {
  std::vector<std::int64_t> widths;  // per sample and level, one more than there are layers
  std::vector<std::int64_t> saved;   // per layer
  std::vector<std::int64_t> stash;   // per layer
  std::int64_t scratch = 0;
  // From the first layer to the last. Of those that are computed again what enters them stays, and
  // the inside of one at a time is in memory. Empty: everything stays. With DeltaRoom::kTurns
  // alone.
  std::vector<Segment> segments = {};
  // Per level, samples for which there is room; empty: max_rows at each.
  std::vector<std::int64_t> rows = {};
  std::int64_t level_elems(std::size_t level, std::int64_t max_rows) const {
    return widths[level] * (rows.empty() ? max_rows : rows[level]);
  }
};

// Elements of one micro-batch's memory: its own, and what a thread's micro-batches share.
struct ActivationElems {
  std::int64_t own = 0;
  std::int64_t shared = 0;
};

// Memory for micro-batches of up to max_rows samples, allocated once: a training step allocates
// nothing. Every block starts on a 64-byte boundary, so that the same values meet the same
// vector instructions on every rank. Whoever holds it holds one micro-batch: several in flight have
// one each.
template <typename T>
class Activations {
 public:
  static Result<Activations> create(const ActivationSizes& sizes, std::int64_t max_rows,
                                    DeltaRoom room = DeltaRoom::kTurns,
                                    const MemoryArena& arena = {});
  // What create() would allocate.
  static ActivationElems elems(const ActivationSizes& sizes, std::int64_t max_rows,
                               DeltaRoom room = DeltaRoom::kTurns);
  // Memory for another micro-batch of the same sizes. What is used during a call alone is shared,
  // and so are deltas that take turns: siblings belong to one thread.
  Result<Activations> sibling() const;

  std::int64_t max_rows() const { return max_rows_; }
  DeltaRoom room() const { return room_; }
  // What enters layer `level`: (rows, widths[level]), of no more rows than it has room for. Level 0
  // is the input, the last one the output.
  std::span<T> values(std::size_t level, std::int64_t rows);
  // The derivative of the loss by values(level).
  std::span<T> deltas(std::size_t level, std::int64_t rows);
  // What layer `level` keeps from forward to backward, and between its two ways back.
  std::span<T> saved(std::size_t level) { return own_.block(saved_[level]); }
  std::span<T> stash(std::size_t level);
  std::span<T> scratch() { return shared_->block(scratch_); }
  // Of this micro-batch alone: what a pipeline multiplies by the micro-batches in flight.
  std::size_t own_bytes() const { return own_.bytes(); }

 private:
  struct Block {
    std::int64_t offset = 0;
    std::int64_t elems = 0;
  };
  class Memory {
   public:
    Block reserve(std::int64_t elems);
    // What is reserved next lies where it did when elems() was `elems`.
    void go_back(std::int64_t elems) { end_ = elems; }
    Status allocate(const MemoryArena& arena, MemoryClass what);
    std::span<T> block(Block block);
    std::int64_t elems() const { return elems_; }
    std::size_t bytes() const { return static_cast<std::size_t>(elems_) * sizeof(T); }

   private:
    std::int64_t end_ = 0;    // of the last block
    std::int64_t elems_ = 0;  // the furthest end there was
    Buffer buffer_;
  };
  static Activations lay_out(const ActivationSizes& sizes, std::int64_t max_rows, DeltaRoom room);
  void lay_out_values(const ActivationSizes& sizes);
  void lay_out_segments(const ActivationSizes& sizes);
  void lay_out_inside(const ActivationSizes& sizes, const LayerRange& segment);

  std::vector<std::int64_t> widths_;
  std::vector<Block> values_;
  std::vector<Block> deltas_;
  std::vector<Block> saved_;
  std::vector<Block> stash_;
  Block scratch_;
  std::int64_t max_rows_ = 0;
  DeltaRoom room_ = DeltaRoom::kTurns;
  MemoryArena arena_;
  Memory own_;
  std::shared_ptr<Memory> shared_;
};

}  // namespace gradwire
