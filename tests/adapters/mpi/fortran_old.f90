! Prints "sum S of N" on rank 0: an all-reduce in place, after MPI_INIT of Fortran's.
program fortran_old
  implicit none
  include 'mpif.h'
  integer :: ierr, rank, ranks, i
  double precision :: values(1000)
  integer :: root_only(4)
  call MPI_INIT(ierr)
  call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
  call MPI_COMM_SIZE(MPI_COMM_WORLD, ranks, ierr)
  values = rank + 1
  call MPI_ALLREDUCE(MPI_IN_PLACE, values, 1000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD, ierr)
  root_only = 0
  if (rank == 0) root_only = 7
  call MPI_BCAST(root_only, 4, MPI_INTEGER, 0, MPI_COMM_WORLD, ierr)
  do i = 1, 3
    call MPI_BARRIER(MPI_COMM_WORLD, ierr)
  end do
  if (any(root_only /= 7)) print '(a)', 'MPI_BCAST is wrong'
  if (rank == 0) print '(a,i0,a,i0)', 'sum ', nint(sum(values)), ' of ', ranks
  call MPI_FINALIZE(ierr)
end program
