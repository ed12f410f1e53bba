! The same by the module mpi_f08, whose functions have names of their own.
program fortran_new
  use mpi_f08
  implicit none
  integer :: rank, ranks, i
  double precision :: values(1000)
  integer :: root_only(4)
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks)
  values = rank + 1
  call MPI_Allreduce(MPI_IN_PLACE, values, 1000, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  root_only = 0
  if (rank == 0) root_only = 7
  call MPI_Bcast(root_only, 4, MPI_INTEGER, 0, MPI_COMM_WORLD)
  do i = 1, 3
    call MPI_Barrier(MPI_COMM_WORLD)
  end do
  if (any(root_only /= 7)) print '(a)', 'MPI_Bcast is wrong'
  if (rank == 0) print '(a,i0,a,i0)', 'sum ', nint(sum(values)), ' of ', ranks
  call MPI_Finalize()
end program
