#include "adapters/mpi/arguments.h"

#include <cstddef>
#include <utility>

namespace gradwire::mpi {
namespace {

std::optional<ReduceOp> op_of(MPI_Op op) {
  if (op == MPI_SUM) return ReduceOp::kSum;
  if (op == MPI_PROD) return ReduceOp::kProduct;
  if (op == MPI_MIN) return ReduceOp::kMin;
  if (op == MPI_MAX) return ReduceOp::kMax;
  return std::nullopt;
}

constexpr DType signed_of(std::size_t bytes) { return bytes == 8 ? DType::kI64 : DType::kI32; }

std::optional<DType> exact_type_of(MPI_Datatype type) {
  if (type == MPI_FLOAT) return DType::kF32;
  if (type == MPI_DOUBLE) return DType::kF64;
  if (type == MPI_INT || type == MPI_INT32_T) return DType::kI32;
  if (type == MPI_LONG) return signed_of(sizeof(long));
  if (type == MPI_LONG_LONG || type == MPI_INT64_T) return DType::kI64;
  if (type == MPI_SIGNED_CHAR || type == MPI_INT8_T) return DType::kI8;
  if (type == MPI_UNSIGNED_CHAR || type == MPI_UINT8_T) return DType::kU8;
  return std::nullopt;
}

// By the size that the Fortran compiler, or its options, gave it.
std::optional<DType> fortran_type_of(MPI_Datatype type) {
  const bool real =
      type == MPI_REAL || type == MPI_DOUBLE_PRECISION || type == MPI_REAL4 || type == MPI_REAL8;
  const bool integer =
      type == MPI_INTEGER || type == MPI_INTEGER1 || type == MPI_INTEGER4 || type == MPI_INTEGER8;
  if (type == MPI_DATATYPE_NULL || (!real && !integer)) return std::nullopt;
  int bytes = 0;
  PMPI_Type_size(type, &bytes);
  if (real && bytes == 4) return DType::kF32;
  if (real && bytes == 8) return DType::kF64;
  if (integer && bytes == 1) return DType::kI8;
  if (integer && bytes == 4) return DType::kI32;
  if (integer && bytes == 8) return DType::kI64;
  return std::nullopt;
}

// Sums and products of unsigned numbers that wrap around have the bits of the signed ones.
std::optional<DType> same_bits_type_of(MPI_Datatype type) {
  if (type == MPI_UNSIGNED || type == MPI_UINT32_T) return DType::kI32;
  if (type == MPI_UNSIGNED_LONG) return signed_of(sizeof(unsigned long));
  if (type == MPI_UNSIGNED_LONG_LONG || type == MPI_UINT64_T) return DType::kI64;
  return std::nullopt;
}

// A predefined type without gaps. A derived one may also be without, but in another order.
bool is_plain(MPI_Datatype type, std::int64_t size, std::int64_t extent) {
  int integers = 0, addresses = 0, types = 0, combiner = 0;
  PMPI_Type_get_envelope(type, &integers, &addresses, &types, &combiner);
  return combiner == MPI_COMBINER_NAMED && size == extent;
}

}  // namespace

std::optional<Reduction> reduction_of(MPI_Datatype type, MPI_Op op) {
  const auto wanted = op_of(op);
  if (!wanted) return std::nullopt;
  auto dtype = exact_type_of(type);
  if (!dtype && (op == MPI_SUM || op == MPI_PROD)) dtype = same_bits_type_of(type);
  if (!dtype) dtype = fortran_type_of(type);
  if (!dtype) return std::nullopt;
  return Reduction{*dtype, *wanted};
}

std::int64_t bytes_of(std::int64_t count, MPI_Datatype type) {
  if (count <= 0 || type == MPI_DATATYPE_NULL) return 0;
  MPI_Count size = 0;
  if (PMPI_Type_size_x(type, &size) != MPI_SUCCESS || size < 0) return 0;
  return count * size;
}

FlatRows::FlatRows(const void* base, MPI_Datatype type, std::vector<Row> rows)
    : base_(const_cast<std::byte*>(static_cast<const std::byte*>(base))),
      type_(type),
      rows_(std::move(rows)),
      size_(mpi::bytes_of(1, type)) {
  MPI_Aint lower = 0, extent = 0;
  PMPI_Type_get_extent(type, &lower, &extent);
  extent_ = extent;
  bool consecutive = true;
  std::int64_t next = rows_.front().first;
  for (const Row& row : rows_) {
    consecutive = consecutive && row.first == next;
    next = row.first + row.count;
    bytes_ += row.count * size_;
  }
  flat_ = place_of(0);
  if (consecutive && is_plain(type, size_, extent_)) return;
  own_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(bytes_));
  flat_ = own_.get();
}

FlatRows FlatRows::even(const void* base, MPI_Datatype type, int rows, int count) {
  std::vector<Row> list;
  list.reserve(static_cast<std::size_t>(rows));
  for (int r = 0; r < rows; ++r) list.push_back({std::int64_t{r} * count, count});
  return {base, type, std::move(list)};
}

TensorView FlatRows::all() const { return {flat_, Shape::vector(bytes_), DType::kU8}; }

TensorView FlatRows::row(int r) const {
  std::int64_t begin = 0;
  for (int q = 0; q < r; ++q) begin += bytes_of_row(q);
  return {flat_ + begin, Shape::vector(bytes_of_row(r)), DType::kU8};
}

int FlatRows::pack(MPI_Comm comm) {
  for (int r = 0; r < static_cast<int>(rows_.size()); ++r) {
    if (const int code = pack_row(r, comm); code != MPI_SUCCESS) return code;
  }
  return MPI_SUCCESS;
}

int FlatRows::pack_row(int r, MPI_Comm comm) {
  if (own_ == nullptr) return MPI_SUCCESS;
  const int count = rows_[static_cast<std::size_t>(r)].count;
  std::byte* to = static_cast<std::byte*>(row(r).data());
  for (int done = 0; done < count;) {
    const int now = std::min(count - done, at_once());
    int position = 0;
    GW_MPI_TRY(PMPI_Pack(place_of(r) + done * extent_, now, type_, to + done * size_,
                         static_cast<int>(now * size_), &position, comm));
    done += now;
  }
  return MPI_SUCCESS;
}

int FlatRows::unpack_row(int r, MPI_Comm comm) const {
  const int count = rows_[static_cast<std::size_t>(r)].count;
  const std::byte* from = static_cast<const std::byte*>(row(r).data());
  for (int done = 0; done < count;) {
    const int now = std::min(count - done, at_once());
    int position = 0;
    GW_MPI_TRY(PMPI_Unpack(from + done * size_, static_cast<int>(now * size_), &position,
                           place_of(r) + done * extent_, now, type_, comm));
    done += now;
  }
  return MPI_SUCCESS;
}

int FlatRows::unpack(MPI_Comm comm) const {
  if (own_ == nullptr) return MPI_SUCCESS;
  for (int r = 0; r < static_cast<int>(rows_.size()); ++r) GW_MPI_TRY(unpack_row(r, comm));
  return MPI_SUCCESS;
}

}  // namespace gradwire::mpi
