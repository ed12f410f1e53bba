// Open MPI's Fortran functions call each other past the C ones, so they are taken as well, under
// the names that mpif.h and `use mpi` call (mpi_x_) and that mpi_f08 does (ompi_x_f). MPICH's come
// to the C functions by themselves, but for those of mpi_f08 without a buffer.
#include <dlfcn.h>
#include <mpi.h>

#include "adapters/mpi/shim.h"

#ifndef OPEN_MPI

namespace {

template <typename Function>
Function own(const char* name) {
  return reinterpret_cast<Function>(::dlsym(RTLD_NEXT, name));
}

// `error` is optional in mpi_f08; without it MPI ends the job on one.
void begin(const MPI_Fint* error) {
  if (error == nullptr || *error == MPI_SUCCESS) gradwire::mpi::Shim::start();
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names that Fortran compilers make.
extern "C" {

void mpi_init_f08_(MPI_Fint* error) {
  static const auto theirs = own<void (*)(MPI_Fint*)>("mpi_init_f08_");
  theirs(error);
  begin(error);
}

void mpi_init_thread_f08_(MPI_Fint* required, MPI_Fint* provided, MPI_Fint* error) {
  static const auto theirs = own<void (*)(MPI_Fint*, MPI_Fint*, MPI_Fint*)>("mpi_init_thread_f08_");
  theirs(required, provided, error);
  begin(error);
}

void mpi_barrier_f08_(const MPI_Fint* comm, MPI_Fint* error) {
  const int code = MPI_Barrier(PMPI_Comm_f2c(*comm));
  if (error != nullptr) *error = code;
}

}  // extern "C"

// NOLINTEND(readability-identifier-naming)

#else

static_assert(sizeof(MPI_Fint) == sizeof(int), "arrays of counts are passed on as they are");

namespace {

// Fortran's constants are variables, known by their address, wherever the program has them.
void* from_fortran(void* buffer, bool may_be_in_place) {
  static void* const in_place = ::dlsym(RTLD_DEFAULT, "mpi_fortran_in_place_");
  static void* const bottom = ::dlsym(RTLD_DEFAULT, "mpi_fortran_bottom_");
  if (may_be_in_place && buffer == in_place && buffer != nullptr) return MPI_IN_PLACE;
  return buffer == bottom ? MPI_BOTTOM : buffer;
}
void* sent(void* buffer) { return from_fortran(buffer, true); }
void* received(void* buffer) { return from_fortran(buffer, false); }

MPI_Comm comm_of(const MPI_Fint* comm) { return PMPI_Comm_f2c(*comm); }
MPI_Datatype type_of(const MPI_Fint* type) { return PMPI_Type_f2c(*type); }
MPI_Op op_of(const MPI_Fint* op) { return PMPI_Op_f2c(*op); }

void tell(MPI_Fint* error, int code) {
  if (error != nullptr) *error = code;
}

}  // namespace

// NOLINTBEGIN(readability-identifier-naming): the names that Fortran compilers make.
#define GW_ALIAS(name) __attribute__((alias(name)))

extern "C" {

void mpi_init_(MPI_Fint* error) { tell(error, MPI_Init(nullptr, nullptr)); }
void ompi_init_f(MPI_Fint* error) GW_ALIAS("mpi_init_");

void mpi_init_thread_(const MPI_Fint* required, MPI_Fint* provided, MPI_Fint* error) {
  tell(error, MPI_Init_thread(nullptr, nullptr, *required, provided));
}
void ompi_init_thread_f(const MPI_Fint* required, MPI_Fint* provided, MPI_Fint* error)
    GW_ALIAS("mpi_init_thread_");

void mpi_allreduce_(void* in, void* out, const MPI_Fint* count, const MPI_Fint* type,
                    const MPI_Fint* op, const MPI_Fint* comm, MPI_Fint* error) {
  tell(error,
       MPI_Allreduce(sent(in), received(out), *count, type_of(type), op_of(op), comm_of(comm)));
}
void ompi_allreduce_f(void* in, void* out, const MPI_Fint* count, const MPI_Fint* type,
                      const MPI_Fint* op, const MPI_Fint* comm, MPI_Fint* error)
    GW_ALIAS("mpi_allreduce_");

void mpi_scan_(void* in, void* out, const MPI_Fint* count, const MPI_Fint* type, const MPI_Fint* op,
               const MPI_Fint* comm, MPI_Fint* error) {
  tell(error, MPI_Scan(sent(in), received(out), *count, type_of(type), op_of(op), comm_of(comm)));
}
void ompi_scan_f(void* in, void* out, const MPI_Fint* count, const MPI_Fint* type,
                 const MPI_Fint* op, const MPI_Fint* comm, MPI_Fint* error) GW_ALIAS("mpi_scan_");

void mpi_exscan_(void* in, void* out, const MPI_Fint* count, const MPI_Fint* type,
                 const MPI_Fint* op, const MPI_Fint* comm, MPI_Fint* error) {
  tell(error, MPI_Exscan(sent(in), received(out), *count, type_of(type), op_of(op), comm_of(comm)));
}
void ompi_exscan_f(void* in, void* out, const MPI_Fint* count, const MPI_Fint* type,
                   const MPI_Fint* op, const MPI_Fint* comm, MPI_Fint* error)
    GW_ALIAS("mpi_exscan_");

void mpi_reduce_(void* in, void* out, const MPI_Fint* count, const MPI_Fint* type,
                 const MPI_Fint* op, const MPI_Fint* root, const MPI_Fint* comm, MPI_Fint* error) {
  tell(error,
       MPI_Reduce(sent(in), received(out), *count, type_of(type), op_of(op), *root, comm_of(comm)));
}
void ompi_reduce_f(void* in, void* out, const MPI_Fint* count, const MPI_Fint* type,
                   const MPI_Fint* op, const MPI_Fint* root, const MPI_Fint* comm, MPI_Fint* error)
    GW_ALIAS("mpi_reduce_");

void mpi_reduce_scatter_(void* in, void* out, const MPI_Fint* counts, const MPI_Fint* type,
                         const MPI_Fint* op, const MPI_Fint* comm, MPI_Fint* error) {
  tell(error, MPI_Reduce_scatter(sent(in), received(out), counts, type_of(type), op_of(op),
                                 comm_of(comm)));
}
void ompi_reduce_scatter_f(void* in, void* out, const MPI_Fint* counts, const MPI_Fint* type,
                           const MPI_Fint* op, const MPI_Fint* comm, MPI_Fint* error)
    GW_ALIAS("mpi_reduce_scatter_");

void mpi_reduce_scatter_block_(void* in, void* out, const MPI_Fint* count, const MPI_Fint* type,
                               const MPI_Fint* op, const MPI_Fint* comm, MPI_Fint* error) {
  tell(error, MPI_Reduce_scatter_block(sent(in), received(out), *count, type_of(type), op_of(op),
                                       comm_of(comm)));
}
void ompi_reduce_scatter_block_f(void* in, void* out, const MPI_Fint* count, const MPI_Fint* type,
                                 const MPI_Fint* op, const MPI_Fint* comm, MPI_Fint* error)
    GW_ALIAS("mpi_reduce_scatter_block_");

void mpi_bcast_(void* data, const MPI_Fint* count, const MPI_Fint* type, const MPI_Fint* root,
                const MPI_Fint* comm, MPI_Fint* error) {
  tell(error, MPI_Bcast(received(data), *count, type_of(type), *root, comm_of(comm)));
}
void ompi_bcast_f(void* data, const MPI_Fint* count, const MPI_Fint* type, const MPI_Fint* root,
                  const MPI_Fint* comm, MPI_Fint* error) GW_ALIAS("mpi_bcast_");

void mpi_barrier_(const MPI_Fint* comm, MPI_Fint* error) {
  tell(error, MPI_Barrier(comm_of(comm)));
}
void ompi_barrier_f(const MPI_Fint* comm, MPI_Fint* error) GW_ALIAS("mpi_barrier_");

void mpi_allgather_(void* in, const MPI_Fint* in_count, const MPI_Fint* in_type, void* out,
                    const MPI_Fint* out_count, const MPI_Fint* out_type, const MPI_Fint* comm,
                    MPI_Fint* error) {
  tell(error, MPI_Allgather(sent(in), *in_count, type_of(in_type), received(out), *out_count,
                            type_of(out_type), comm_of(comm)));
}
void ompi_allgather_f(void* in, const MPI_Fint* in_count, const MPI_Fint* in_type, void* out,
                      const MPI_Fint* out_count, const MPI_Fint* out_type, const MPI_Fint* comm,
                      MPI_Fint* error) GW_ALIAS("mpi_allgather_");

void mpi_allgatherv_(void* in, const MPI_Fint* in_count, const MPI_Fint* in_type, void* out,
                     const MPI_Fint* counts, const MPI_Fint* places, const MPI_Fint* out_type,
                     const MPI_Fint* comm, MPI_Fint* error) {
  tell(error, MPI_Allgatherv(sent(in), *in_count, type_of(in_type), received(out), counts, places,
                             type_of(out_type), comm_of(comm)));
}
void ompi_allgatherv_f(void* in, const MPI_Fint* in_count, const MPI_Fint* in_type, void* out,
                       const MPI_Fint* counts, const MPI_Fint* places, const MPI_Fint* out_type,
                       const MPI_Fint* comm, MPI_Fint* error) GW_ALIAS("mpi_allgatherv_");

void mpi_alltoall_(void* in, const MPI_Fint* in_count, const MPI_Fint* in_type, void* out,
                   const MPI_Fint* out_count, const MPI_Fint* out_type, const MPI_Fint* comm,
                   MPI_Fint* error) {
  tell(error, MPI_Alltoall(sent(in), *in_count, type_of(in_type), received(out), *out_count,
                           type_of(out_type), comm_of(comm)));
}
void ompi_alltoall_f(void* in, const MPI_Fint* in_count, const MPI_Fint* in_type, void* out,
                     const MPI_Fint* out_count, const MPI_Fint* out_type, const MPI_Fint* comm,
                     MPI_Fint* error) GW_ALIAS("mpi_alltoall_");

void mpi_alltoallv_(void* in, const MPI_Fint* in_counts, const MPI_Fint* in_places,
                    const MPI_Fint* in_type, void* out, const MPI_Fint* out_counts,
                    const MPI_Fint* out_places, const MPI_Fint* out_type, const MPI_Fint* comm,
                    MPI_Fint* error) {
  tell(error, MPI_Alltoallv(sent(in), in_counts, in_places, type_of(in_type), received(out),
                            out_counts, out_places, type_of(out_type), comm_of(comm)));
}
void ompi_alltoallv_f(void* in, const MPI_Fint* in_counts, const MPI_Fint* in_places,
                      const MPI_Fint* in_type, void* out, const MPI_Fint* out_counts,
                      const MPI_Fint* out_places, const MPI_Fint* out_type, const MPI_Fint* comm,
                      MPI_Fint* error) GW_ALIAS("mpi_alltoallv_");

void mpi_gather_(void* in, const MPI_Fint* in_count, const MPI_Fint* in_type, void* out,
                 const MPI_Fint* out_count, const MPI_Fint* out_type, const MPI_Fint* root,
                 const MPI_Fint* comm, MPI_Fint* error) {
  tell(error, MPI_Gather(sent(in), *in_count, type_of(in_type), received(out), *out_count,
                         type_of(out_type), *root, comm_of(comm)));
}
void ompi_gather_f(void* in, const MPI_Fint* in_count, const MPI_Fint* in_type, void* out,
                   const MPI_Fint* out_count, const MPI_Fint* out_type, const MPI_Fint* root,
                   const MPI_Fint* comm, MPI_Fint* error) GW_ALIAS("mpi_gather_");

void mpi_gatherv_(void* in, const MPI_Fint* in_count, const MPI_Fint* in_type, void* out,
                  const MPI_Fint* counts, const MPI_Fint* places, const MPI_Fint* out_type,
                  const MPI_Fint* root, const MPI_Fint* comm, MPI_Fint* error) {
  tell(error, MPI_Gatherv(sent(in), *in_count, type_of(in_type), received(out), counts, places,
                          type_of(out_type), *root, comm_of(comm)));
}
void ompi_gatherv_f(void* in, const MPI_Fint* in_count, const MPI_Fint* in_type, void* out,
                    const MPI_Fint* counts, const MPI_Fint* places, const MPI_Fint* out_type,
                    const MPI_Fint* root, const MPI_Fint* comm, MPI_Fint* error)
    GW_ALIAS("mpi_gatherv_");

// Only here is it the receiver that may be in place.
void mpi_scatter_(void* in, const MPI_Fint* in_count, const MPI_Fint* in_type, void* out,
                  const MPI_Fint* out_count, const MPI_Fint* out_type, const MPI_Fint* root,
                  const MPI_Fint* comm, MPI_Fint* error) {
  tell(error, MPI_Scatter(received(in), *in_count, type_of(in_type), sent(out), *out_count,
                          type_of(out_type), *root, comm_of(comm)));
}
void ompi_scatter_f(void* in, const MPI_Fint* in_count, const MPI_Fint* in_type, void* out,
                    const MPI_Fint* out_count, const MPI_Fint* out_type, const MPI_Fint* root,
                    const MPI_Fint* comm, MPI_Fint* error) GW_ALIAS("mpi_scatter_");

void mpi_scatterv_(void* in, const MPI_Fint* counts, const MPI_Fint* places,
                   const MPI_Fint* in_type, void* out, const MPI_Fint* out_count,
                   const MPI_Fint* out_type, const MPI_Fint* root, const MPI_Fint* comm,
                   MPI_Fint* error) {
  tell(error, MPI_Scatterv(received(in), counts, places, type_of(in_type), sent(out), *out_count,
                           type_of(out_type), *root, comm_of(comm)));
}
void ompi_scatterv_f(void* in, const MPI_Fint* counts, const MPI_Fint* places,
                     const MPI_Fint* in_type, void* out, const MPI_Fint* out_count,
                     const MPI_Fint* out_type, const MPI_Fint* root, const MPI_Fint* comm,
                     MPI_Fint* error) GW_ALIAS("mpi_scatterv_");

}  // extern "C"

// NOLINTEND(readability-identifier-naming)

#endif
