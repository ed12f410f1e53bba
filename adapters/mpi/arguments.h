// MPI's arguments in gradwire's terms.
#pragma once

#include <mpi.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "gradwire/tensor.h"

namespace gradwire::mpi {

// What a reduction runs as.
struct Reduction {
  DType dtype;
  ReduceOp op;
};

// nullopt: gradwire has no such type, or not this operation on it. MPI wants type and operation
// equal on all ranks, so all ranks get the same answer.
std::optional<Reduction> reduction_of(MPI_Datatype type, MPI_Op op);

// Data bytes of `count` elements; 0 for arguments that MPI would refuse. The signature of what
// moves decides it, so that ranks with different counts and types for the same data get the same.
std::int64_t bytes_of(std::int64_t count, MPI_Datatype type);

inline constexpr std::int64_t kMostRowBytes = std::int64_t{1} << 30;  // MPI_Pack counts in int
inline bool fits(std::int64_t row_bytes) { return row_bytes > 0 && row_bytes <= kMostRowBytes; }

// MPI's functions return at the first error.
#define GW_MPI_TRY(expr)                                                    \
  do {                                                                      \
    if (const int gw_code = (expr); gw_code != MPI_SUCCESS) return gw_code; \
  } while (false)

// Rows of elements of one MPI type as bytes without gaps: where they are, if they lie so, else in
// memory of their own, to which pack() brings them and from which unpack() takes them back.
class FlatRows {
 public:
  struct Row {
    std::int64_t first;  // in elements from `base` on, by the type's extent
    int count;
  };
  // base is lent.
  FlatRows(const void* base, MPI_Datatype type, std::vector<Row> rows);
  // `rows` rows of `count` elements, one after another.
  static FlatRows even(const void* base, MPI_Datatype type, int rows, int count);

  TensorView all() const;
  TensorView row(int r) const;
  // An error code of MPI; what MPI has against it has been raised on `comm`.
  int pack(MPI_Comm comm);
  int pack_row(int r, MPI_Comm comm);
  int unpack(MPI_Comm comm) const;

 private:
  int unpack_row(int r, MPI_Comm comm) const;
  std::byte* place_of(int r) const {
    return base_ + rows_[static_cast<std::size_t>(r)].first * extent_;
  }
  // Elements that MPI_Pack can count the bytes of.
  int at_once() const {
    return static_cast<int>(
        std::max<std::int64_t>(1, kMostRowBytes / std::max<std::int64_t>(1, size_)));
  }
  std::int64_t bytes_of_row(int r) const {
    return rows_[static_cast<std::size_t>(r)].count * size_;
  }

  std::byte* base_;
  MPI_Datatype type_;
  std::vector<Row> rows_;
  std::int64_t size_ = 0;    // data bytes of an element
  std::int64_t extent_ = 0;  // from one element to the next
  std::int64_t bytes_ = 0;   // of all rows
  std::unique_ptr<std::byte[]> own_;
  std::byte* flat_;
};

}  // namespace gradwire::mpi
