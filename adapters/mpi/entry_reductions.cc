// Reductions. MPI wants the same count, type and operation on all ranks, so these decide.
#include <mpi.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "adapters/mpi/arguments.h"
#include "adapters/mpi/shim.h"

using namespace gradwire::mpi;  // of the functions below alone
using gradwire::ConstTensorView;
using gradwire::OpCall;
using gradwire::OpKind;
using gradwire::Shape;
using gradwire::TensorView;

namespace {

ConstTensorView input(const void* data, std::int64_t elems, const Reduction& reduction) {
  return {static_cast<const std::byte*>(data), Shape::vector(elems), reduction.dtype};
}

TensorView output(void* data, std::int64_t elems, const Reduction& reduction) {
  return {static_cast<std::byte*>(data), Shape::vector(elems), reduction.dtype};
}

// Rows of counts[r] elements. MPI's result in place lies at the buffer's beginning, gradwire's
// where the row lies: so that comes to be apart.
int reduce_scatter(Interception& call, const void* in, void* out,
                   const std::vector<std::int64_t>& counts, const Reduction& reduction) {
  const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  const std::int64_t own = counts[static_cast<std::size_t>(call.rank())];
  const auto width = static_cast<std::int64_t>(size_of(reduction.dtype));
  const bool in_place = in == MPI_IN_PLACE;
  std::unique_ptr<std::byte[]> apart;
  if (in_place) {
    apart = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(own * width));
  }
  OpCall operation{.kind = OpKind::kReduceScatter,
                   .in = input(in_place ? out : in, all, reduction),
                   .out = output(in_place ? apart.get() : out, own, reduction),
                   .op = reduction.op};
  const bool even = std::ranges::all_of(counts, [&](std::int64_t n) { return n == counts[0]; });
  if (!even) {
    operation.kind = OpKind::kReduceScatterV;
    operation.counts = counts;
  }
  const int code = call.carry(operation, all * width);
  if (code == MPI_SUCCESS && in_place) {
    std::memcpy(out, apart.get(), static_cast<std::size_t>(own * width));
  }
  return code;
}

// The ranks before this one, then this one. `out` may be where the input is.
int scan(Interception& call, bool inclusive, const void* in, void* out, std::int64_t count,
         const Reduction& reduction, MPI_Datatype datatype, MPI_Op op) {
  const auto bytes = static_cast<std::size_t>(count) * size_of(reduction.dtype);
  const auto before = std::make_unique_for_overwrite<std::byte[]>(bytes);
  GW_MPI_TRY(call.carry({.kind = OpKind::kExclusiveScan,
                         .in = input(in, count, reduction),
                         .out = output(before.get(), count, reduction),
                         .op = reduction.op},
                        static_cast<std::int64_t>(bytes)));
  if (call.rank() == 0) {  // nobody is before it: MPI leaves its result of MPI_Exscan undefined
    if (inclusive && out != in) std::memcpy(out, in, bytes);
    return MPI_SUCCESS;
  }
  if (inclusive) {
    if (out != in) std::memcpy(out, in, bytes);
    return PMPI_Reduce_local(before.get(), out, static_cast<int>(count), datatype, op);
  }
  std::memcpy(out, before.get(), bytes);
  return MPI_SUCCESS;
}

}  // namespace

int MPI_Allreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                  MPI_Comm comm) {
  Interception call(Call::kAllreduce, comm);
  const std::optional<Reduction> reduction = reduction_of(datatype, op);
  const std::int64_t bytes = bytes_of(count, datatype);
  if (!call.possible() || !reduction || bytes == 0) {
    call.leave(bytes);
    return PMPI_Allreduce(sendbuf, recvbuf, count, datatype, op, comm);
  }
  const void* in = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
  return call.carry({.kind = OpKind::kAllReduce,
                     .in = input(in, count, *reduction),
                     .out = output(recvbuf, count, *reduction),
                     .op = reduction->op},
                    bytes);
}

int MPI_Reduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
               int root, MPI_Comm comm) {
  Interception call(Call::kReduce, comm);
  const std::optional<Reduction> reduction = reduction_of(datatype, op);
  const std::int64_t bytes = bytes_of(count, datatype);
  if (!call.possible() || !reduction || bytes == 0 || root < 0 || root >= call.size()) {
    call.leave(bytes);
    return PMPI_Reduce(sendbuf, recvbuf, count, datatype, op, root, comm);
  }
  const bool at_root = call.rank() == root;
  const void* in = at_root && sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
  return call.carry({.kind = OpKind::kReduce,
                     .in = input(in, count, *reduction),
                     .out = at_root ? output(recvbuf, count, *reduction) : TensorView(),
                     .op = reduction->op,
                     .peer = root},
                    bytes);
}

int MPI_Reduce_scatter(const void* sendbuf, void* recvbuf, const int recvcounts[],
                       MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  Interception call(Call::kReduceScatter, comm);
  const std::optional<Reduction> reduction = reduction_of(datatype, op);
  std::vector<std::int64_t> counts;
  if (recvcounts != nullptr) counts.assign(recvcounts, recvcounts + call.size());
  const bool negative = std::ranges::any_of(counts, [](std::int64_t n) { return n < 0; });
  const std::int64_t all = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (!call.possible() || !reduction || negative || all == 0) {
    call.leave(negative ? 0 : bytes_of(all, datatype));
    return PMPI_Reduce_scatter(sendbuf, recvbuf, recvcounts, datatype, op, comm);
  }
  return reduce_scatter(call, sendbuf, recvbuf, counts, *reduction);
}

int MPI_Reduce_scatter_block(const void* sendbuf, void* recvbuf, int recvcount,
                             MPI_Datatype datatype, MPI_Op op, MPI_Comm comm) {
  Interception call(Call::kReduceScatterBlock, comm);
  const std::optional<Reduction> reduction = reduction_of(datatype, op);
  const std::int64_t bytes = bytes_of(recvcount, datatype);
  if (!call.possible() || !reduction || bytes == 0) {
    call.leave(bytes);
    return PMPI_Reduce_scatter_block(sendbuf, recvbuf, recvcount, datatype, op, comm);
  }
  const std::vector<std::int64_t> counts(static_cast<std::size_t>(call.size()), recvcount);
  return reduce_scatter(call, sendbuf, recvbuf, counts, *reduction);
}

int MPI_Scan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
             MPI_Comm comm) {
  Interception call(Call::kScan, comm);
  const std::optional<Reduction> reduction = reduction_of(datatype, op);
  const std::int64_t bytes = bytes_of(count, datatype);
  if (!call.possible() || !reduction || bytes == 0) {
    call.leave(bytes);
    return PMPI_Scan(sendbuf, recvbuf, count, datatype, op, comm);
  }
  const void* in = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
  return scan(call, true, in, recvbuf, count, *reduction, datatype, op);
}

int MPI_Exscan(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
               MPI_Comm comm) {
  Interception call(Call::kExscan, comm);
  const std::optional<Reduction> reduction = reduction_of(datatype, op);
  const std::int64_t bytes = bytes_of(count, datatype);
  if (!call.possible() || !reduction || bytes == 0) {
    call.leave(bytes);
    return PMPI_Exscan(sendbuf, recvbuf, count, datatype, op, comm);
  }
  const void* in = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
  return scan(call, false, in, recvbuf, count, *reduction, datatype, op);
}
