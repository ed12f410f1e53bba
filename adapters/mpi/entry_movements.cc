// Operations that move data. Counts and types may differ between ranks, and be missing on some, as
// long as the same data goes over: so the bytes of a row decide, which MPI wants equal, and what
// has gaps or another order in memory is packed on the rank where it does.
#include <mpi.h>

#include <algorithm>
#include <vector>

#include "adapters/mpi/arguments.h"
#include "adapters/mpi/shim.h"

using namespace gradwire::mpi;  // of the functions below alone
using gradwire::OpCall;
using gradwire::OpKind;
using gradwire::TensorView;

namespace {

bool is_rank(int root, const Interception& call) { return root >= 0 && root < call.size(); }

// Every rank's `own` row (none: it lies in its place) becomes part of `rows`.
int gather_to_all(Interception& call, MPI_Comm comm, OpCall operation, FlatRows* own,
                  FlatRows& rows, std::int64_t bytes) {
  if (own != nullptr) {
    GW_MPI_TRY(own->pack(comm));
    operation.in = own->all();
  } else {
    GW_MPI_TRY(rows.pack_row(call.rank(), comm));
    operation.in = rows.row(call.rank());
  }
  operation.out = rows.all();
  GW_MPI_TRY(call.carry(operation, bytes));
  return rows.unpack(comm);
}

}  // namespace

int MPI_Bcast(void* buffer, int count, MPI_Datatype datatype, int root, MPI_Comm comm) {
  Interception call(Call::kBcast, comm);
  const std::int64_t bytes = bytes_of(count, datatype);
  if (!call.possible() || !fits(bytes) || !is_rank(root, call)) {
    call.leave(bytes);
    return PMPI_Bcast(buffer, count, datatype, root, comm);
  }
  const bool at_root = call.rank() == root;
  FlatRows data = FlatRows::even(buffer, datatype, 1, count);
  if (at_root) GW_MPI_TRY(data.pack(comm));
  GW_MPI_TRY(call.carry(
      {.kind = OpKind::kBroadcast, .in = data.all(), .out = data.all(), .peer = root}, bytes));
  return at_root ? MPI_SUCCESS : data.unpack(comm);
}

int MPI_Allgather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                  int recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
  Interception call(Call::kAllgather, comm);
  const std::int64_t row = bytes_of(recvcount, recvtype);
  if (!call.possible() || !fits(row)) {
    call.leave(row);
    return PMPI_Allgather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
  }
  FlatRows rows = FlatRows::even(recvbuf, recvtype, call.size(), recvcount);
  const OpCall operation{.kind = OpKind::kAllGather};
  const std::int64_t bytes = row * call.size();
  if (sendbuf == MPI_IN_PLACE) return gather_to_all(call, comm, operation, nullptr, rows, bytes);
  FlatRows own = FlatRows::even(sendbuf, sendtype, 1, sendcount);
  return gather_to_all(call, comm, operation, &own, rows, bytes);
}

int MPI_Allgatherv(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                   const int recvcounts[], const int displs[], MPI_Datatype recvtype,
                   MPI_Comm comm) {
  Interception call(Call::kAllgatherv, comm);
  std::vector<std::int64_t> bytes;
  std::vector<FlatRows::Row> list;
  std::int64_t all = 0;
  bool sane = call.possible() && recvcounts != nullptr && displs != nullptr;
  for (int r = 0; sane && r < call.size(); ++r) {
    list.push_back({displs[r], recvcounts[r]});
    bytes.push_back(bytes_of(recvcounts[r], recvtype));
    all += bytes.back();
    sane = recvcounts[r] >= 0 && bytes.back() <= kMostRowBytes;
  }
  if (!sane || all == 0) {
    call.leave(bytes_of(sendbuf == MPI_IN_PLACE ? 0 : sendcount, sendtype));
    return PMPI_Allgatherv(sendbuf, sendcount, sendtype, recvbuf, recvcounts, displs, recvtype,
                           comm);
  }
  FlatRows rows(recvbuf, recvtype, std::move(list));
  const OpCall operation{.kind = OpKind::kAllGatherV, .counts = bytes};
  if (sendbuf == MPI_IN_PLACE) return gather_to_all(call, comm, operation, nullptr, rows, all);
  FlatRows own = FlatRows::even(sendbuf, sendtype, 1, sendcount);
  return gather_to_all(call, comm, operation, &own, rows, all);
}

int MPI_Alltoall(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                 int recvcount, MPI_Datatype recvtype, MPI_Comm comm) {
  Interception call(Call::kAlltoall, comm);
  const std::int64_t row = bytes_of(recvcount, recvtype);
  if (!call.possible() || !fits(row)) {
    call.leave(row);
    return PMPI_Alltoall(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, comm);
  }
  FlatRows out = FlatRows::even(recvbuf, recvtype, call.size(), recvcount);
  OpCall operation{.kind = OpKind::kAllToAll, .in = out.all(), .out = out.all()};
  const std::int64_t bytes = row * call.size();
  if (sendbuf == MPI_IN_PLACE) {
    GW_MPI_TRY(out.pack(comm));
    GW_MPI_TRY(call.carry(operation, bytes));
    return out.unpack(comm);
  }
  FlatRows in = FlatRows::even(sendbuf, sendtype, call.size(), sendcount);
  GW_MPI_TRY(in.pack(comm));
  operation.in = in.all();
  GW_MPI_TRY(call.carry(operation, bytes));
  return out.unpack(comm);
}

int MPI_Gather(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
               int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
  Interception call(Call::kGather, comm);
  const bool at_root = call.possible() && call.rank() == root;
  const std::int64_t row = at_root ? bytes_of(recvcount, recvtype) : bytes_of(sendcount, sendtype);
  if (!call.possible() || !fits(row) || !is_rank(root, call)) {
    call.leave(row);
    return PMPI_Gather(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm);
  }
  const OpCall operation{.kind = OpKind::kGather, .peer = root};
  if (!at_root) {
    FlatRows own = FlatRows::even(sendbuf, sendtype, 1, sendcount);
    GW_MPI_TRY(own.pack(comm));
    return call.carry({.kind = OpKind::kGather, .in = own.all(), .peer = root}, row);
  }
  FlatRows rows = FlatRows::even(recvbuf, recvtype, call.size(), recvcount);
  if (sendbuf == MPI_IN_PLACE) return gather_to_all(call, comm, operation, nullptr, rows, row);
  FlatRows own = FlatRows::even(sendbuf, sendtype, 1, sendcount);
  return gather_to_all(call, comm, operation, &own, rows, row);
}

int MPI_Scatter(const void* sendbuf, int sendcount, MPI_Datatype sendtype, void* recvbuf,
                int recvcount, MPI_Datatype recvtype, int root, MPI_Comm comm) {
  Interception call(Call::kScatter, comm);
  const bool at_root = call.possible() && call.rank() == root;
  const std::int64_t row = at_root ? bytes_of(sendcount, sendtype) : bytes_of(recvcount, recvtype);
  if (!call.possible() || !fits(row) || !is_rank(root, call)) {
    call.leave(row);
    return PMPI_Scatter(sendbuf, sendcount, sendtype, recvbuf, recvcount, recvtype, root, comm);
  }
  if (!at_root) {
    FlatRows own = FlatRows::even(recvbuf, recvtype, 1, recvcount);
    GW_MPI_TRY(call.carry({.kind = OpKind::kScatter, .out = own.all(), .peer = root}, row));
    return own.unpack(comm);
  }
  FlatRows rows = FlatRows::even(sendbuf, sendtype, call.size(), sendcount);
  GW_MPI_TRY(rows.pack(comm));
  OpCall operation{.kind = OpKind::kScatter, .in = rows.all(), .out = rows.row(root), .peer = root};
  // In place the root's own row stays where it is.
  if (recvbuf == MPI_IN_PLACE) return call.carry(operation, row);
  FlatRows own = FlatRows::even(recvbuf, recvtype, 1, recvcount);
  operation.out = own.all();
  GW_MPI_TRY(call.carry(operation, row));
  return own.unpack(comm);
}

int MPI_Barrier(MPI_Comm comm) {
  Interception call(Call::kBarrier, comm);
  if (call.possible()) return call.carry({.kind = OpKind::kBarrier}, 0);
  call.leave(0);
  return PMPI_Barrier(comm);
}
