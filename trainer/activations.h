// The values that one micro-batch leaves behind on its way forward, and the room for its way back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "gradwire/buffer.h"
#include "gradwire/status.h"

namespace gradwire {

// Memory for micro-batches of up to max_rows samples, allocated once: a training step allocates
// nothing. Every block starts on a 64-byte boundary, so that the same values meet the same
// vector instructions on every rank.
template <typename T>
class Activations {
 public:
  // widths[0] values per sample enter layer 0, widths[l + 1] leave layer l; `scratch` values serve
  // whichever layer runs.
  static Result<Activations> create(std::span<const std::int64_t> widths, std::int64_t max_rows,
                                    std::int64_t scratch);

  std::int64_t max_rows() const { return max_rows_; }
  // What enters layer `level`: (rows, widths[level]). Level 0 is the input, the last one the
  // output.
  std::span<T> values(std::size_t level, std::int64_t rows);
  // The derivative of the loss by values(level). Two buffers take turns: levels l and l + 2 share.
  std::span<T> deltas(std::size_t level, std::int64_t rows);
  std::span<T> scratch();

 private:
  std::span<T> block(std::int64_t offset, std::int64_t elems);

  std::vector<std::int64_t> widths_;
  std::vector<std::int64_t> value_offsets_;
  std::int64_t delta_offset_ = 0;
  std::int64_t delta_stride_ = 0;
  std::int64_t scratch_offset_ = 0;
  std::int64_t scratch_elems_ = 0;
  std::int64_t max_rows_ = 0;
  Buffer memory_;
};

}  // namespace gradwire
