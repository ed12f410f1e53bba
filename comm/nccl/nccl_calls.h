// NCCL's functions, out of the library that is opened at run time, and its errors as Status.
#pragma once

#include <nccl.h>

#include <memory>
#include <string>
#include <vector>

#include "gradwire/status.h"
#include "gradwire/tensor.h"

namespace gradwire::nccl {

inline constexpr int kOldestVersion = 21900;  // 2.19.0, as NCCL counts

// The calls that are made: F(the member of Calls, NCCL's name).
// clang-format off
#define GW_NCCL_CALLS(F)                                                                 \
  F(last_error, ncclGetLastError)                  F(unique_id, ncclGetUniqueId)         \
  F(init, ncclCommInitRankConfig)                  F(finalize, ncclCommFinalize)         \
  F(destroy, ncclCommDestroy)                      F(abort, ncclCommAbort)               \
  F(async_error, ncclCommGetAsyncError)            F(split, ncclCommSplit)               \
  F(user_rank, ncclCommUserRank)                   F(count, ncclCommCount)               \
  F(create_pre_mul_sum, ncclRedOpCreatePreMulSum)  F(destroy_op, ncclRedOpDestroy)       \
  F(group_start, ncclGroupStart)                   F(group_end, ncclGroupEnd)            \
  F(all_reduce, ncclAllReduce)                     F(reduce, ncclReduce)                 \
  F(broadcast, ncclBroadcast)                      F(reduce_scatter, ncclReduceScatter)  \
  F(all_gather, ncclAllGather)                     F(send, ncclSend)  F(recv, ncclRecv)
// clang-format on

// Any thread may use it.
struct Calls {
  std::string library;  // as it was opened
  int version = 0;      // of that library, which need not be the header's
  decltype(&ncclGetVersion) get_version;
  decltype(&ncclGetErrorString) error_string;
#define GW_NCCL_MEMBER(member, name) decltype(&name) member;
  GW_NCCL_CALLS(GW_NCCL_MEMBER)
#undef GW_NCCL_MEMBER
};

// The first of `names` (file names, which the system looks for in its own places, or paths) that
// opens and is 2.19 or newer. kUnsupported, with each name and what is the matter with it, if there
// is none.
Result<std::shared_ptr<const Calls>> open_calls(const std::vector<std::string>& names);

// "2.32.3".
std::string version_text(int version);

// OK (also for a call that goes on, ncclInProgress), or the error with NCCL's text, the call and
// what NCCL says of it (comm may be null): kPeerLost for a remote error, kInvalidArgument where
// NCCL found fault with how it was called (two ranks on one device are such a case), else
// kInternal.
Status status_of(const Calls& calls, ncclResult_t result, const char* call, ncclComm_t comm);

ncclDataType_t data_type_of(DType dtype);
// kPreMulSum, which NCCL has no number for, counts as a sum here: see NcclComm.
ncclRedOp_t op_of(ReduceOp op);

}  // namespace gradwire::nccl
