// Operations that only begin here. Whether gradwire carries them must be known without waiting for
// anybody: so only on communicators that an earlier, blocking call has brought to gradwire.
#include <mpi.h>

#include <optional>
#include <utility>
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

TensorView view(const void* data, std::int64_t elems, const Reduction& reduction) {
  return {const_cast<std::byte*>(static_cast<const std::byte*>(data)), Shape::vector(elems),
          reduction.dtype};
}

std::vector<FlatRows> held(FlatRows rows) {
  std::vector<FlatRows> list;
  list.push_back(std::move(rows));
  return list;
}

}  // namespace

int MPI_Iallreduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                   MPI_Comm comm, MPI_Request* request) {
  Interception call = Interception::of_nonblocking(Call::kIallreduce, comm);
  const std::optional<Reduction> reduction = reduction_of(datatype, op);
  const std::int64_t bytes = bytes_of(count, datatype);
  if (!call.possible() || !reduction || bytes == 0) {
    call.leave(bytes);
    return PMPI_Iallreduce(sendbuf, recvbuf, count, datatype, op, comm, request);
  }
  const void* in = sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
  return call.start({.kind = OpKind::kAllReduce,
                     .in = view(in, count, *reduction),
                     .out = view(recvbuf, count, *reduction),
                     .op = reduction->op},
                    bytes, request);
}

int MPI_Ireduce(const void* sendbuf, void* recvbuf, int count, MPI_Datatype datatype, MPI_Op op,
                int root, MPI_Comm comm, MPI_Request* request) {
  Interception call = Interception::of_nonblocking(Call::kIreduce, comm);
  const std::optional<Reduction> reduction = reduction_of(datatype, op);
  const std::int64_t bytes = bytes_of(count, datatype);
  if (!call.possible() || !reduction || bytes == 0 || root < 0 || root >= call.size()) {
    call.leave(bytes);
    return PMPI_Ireduce(sendbuf, recvbuf, count, datatype, op, root, comm, request);
  }
  const bool at_root = call.rank() == root;
  const void* in = at_root && sendbuf == MPI_IN_PLACE ? recvbuf : sendbuf;
  return call.start({.kind = OpKind::kReduce,
                     .in = view(in, count, *reduction),
                     .out = at_root ? view(recvbuf, count, *reduction) : TensorView(),
                     .op = reduction->op,
                     .peer = root},
                    bytes, request);
}

int MPI_Ibcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm,
               MPI_Request* request) {
  Interception call = Interception::of_nonblocking(Call::kIbcast, comm);
  const std::int64_t bytes = bytes_of(count, datatype);
  if (!call.possible() || !fits(bytes) || root < 0 || root >= call.size()) {
    call.leave(bytes);
    return PMPI_Ibcast(buffer, count, datatype, root, comm, request);
  }
  FlatRows data = FlatRows::even(buffer, datatype, 1, count);
  const bool at_root = call.rank() == root;
  if (at_root) {
    const int code = data.pack(comm);
    if (code != MPI_SUCCESS) return code;
  }
  const TensorView all = data.all();
  return call.start({.kind = OpKind::kBroadcast, .in = all, .out = all, .peer = root}, bytes,
                    request, held(std::move(data)), !at_root);
}

int MPI_Iallgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                   int recvcount, MPI_Datatype recvtype, MPI_Comm comm, MPI_Request* request) {
  Interception call = Interception::of_nonblocking(Call::kIallgather, comm);
  const std::int64_t row = bytes_of(recvcount, recvtype);
  if (!call.possible() || !fits(row)) {
    call.leave(row);
    return PMPI_Iallgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm,
                           request);
  }
  FlatRows rows = FlatRows::even(recvbuf, recvtype, call.size(), recvcount);
  OpCall operation{.kind = OpKind::kAllGather, .out = rows.all()};
  std::vector<FlatRows> used;
  if (sendbuf == MPI_IN_PLACE) {
    const int code = rows.pack_row(call.rank(), comm);
    if (code != MPI_SUCCESS) return code;
    operation.in = rows.row(call.rank());
  } else {
    FlatRows own = FlatRows::even(sendbuf, sendtype, 1, sendcount);
    const int code = own.pack(comm);
    if (code != MPI_SUCCESS) return code;
    operation.in = own.all();
    used.push_back(std::move(own));
  }
  used.push_back(std::move(rows));
  return call.start(operation, row * call.size(), request, std::move(used), true);
}

int MPI_Ibarrier(MPI_Comm comm, MPI_Request* request) {
  Interception call = Interception::of_nonblocking(Call::kIbarrier, comm);
  if (call.possible()) return call.start({.kind = OpKind::kBarrier}, 0, request);
  call.leave(0);
  return PMPI_Ibarrier(comm, request);
}
