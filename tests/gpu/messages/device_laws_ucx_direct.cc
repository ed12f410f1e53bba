// UCX that takes memory of the device which the host plays: it is told that such memory is CUDA's,
// as on a machine with a GPU, and the linker hands its calls through here (--wrap).
#include <gmock/gmock.h>

#include <atomic>
#include <memory>
#include <numeric>
#include <vector>

#include "base/elements.h"
#include "comm/ucx/device_memory.h"
#include "gradwire/buffer.h"
#include "tests/emulation/emulated_device.h"
#include "tests/gpu/messages/device_laws.h"
#include "tests/support/ended_cleanly.h"
#include "tests/support/names.h"
#include "tests/support/process_ranks.h"

namespace {

// UCX is the host here.
[[maybe_unused]] const bool may_touch = [] {
  gradwire::emulation::let_host_touch_devices();
  return true;
}();

std::atomic<int> cuda_sends{0};
std::atomic<int> cuda_receives{0};

// For the real UCX here the device's memory is the host's.
ucp_request_param_t as_host(const ucp_request_param_t& params, std::atomic<int>& seen) {
  ucp_request_param_t plain = params;
  const bool said = (params.op_attr_mask & UCP_OP_ATTR_FIELD_MEMORY_TYPE) != 0;
  if (said && params.memory_type == UCS_MEMORY_TYPE_CUDA) {
    ++seen;
    plain.memory_type = UCS_MEMORY_TYPE_HOST;
  }
  return plain;
}

}  // namespace

extern "C" {

ucs_status_t __real_ucp_context_query(ucp_context_h context, ucp_context_attr_t* attributes);
ucs_status_t __wrap_ucp_context_query(ucp_context_h context, ucp_context_attr_t* attributes) {
  const ucs_status_t status = __real_ucp_context_query(context, attributes);
  attributes->memory_types |= std::uint64_t{1} << UCS_MEMORY_TYPE_CUDA;
  return status;
}

ucs_status_ptr_t __real_ucp_tag_send_nbx(ucp_ep_h endpoint, const void* data, std::size_t bytes,
                                         ucp_tag_t tag, const ucp_request_param_t* params);
ucs_status_ptr_t __wrap_ucp_tag_send_nbx(ucp_ep_h endpoint, const void* data, std::size_t bytes,
                                         ucp_tag_t tag, const ucp_request_param_t* params) {
  const ucp_request_param_t plain = as_host(*params, cuda_sends);
  return __real_ucp_tag_send_nbx(endpoint, data, bytes, tag, &plain);
}

ucs_status_ptr_t __real_ucp_tag_recv_nbx(ucp_worker_h worker, void* data, std::size_t bytes,
                                         ucp_tag_t tag, ucp_tag_t mask,
                                         const ucp_request_param_t* params);
ucs_status_ptr_t __wrap_ucp_tag_recv_nbx(ucp_worker_h worker, void* data, std::size_t bytes,
                                         ucp_tag_t tag, ucp_tag_t mask,
                                         const ucp_request_param_t* params) {
  const ucp_request_param_t plain = as_host(*params, cuda_receives);
  return __real_ucp_tag_recv_nbx(worker, data, bytes, tag, mask, &plain);
}
}

namespace gradwire {
namespace {

INSTANTIATE_TEST_SUITE_P(UcxDirect, DeviceLaws, device_jobs("ucx", true), device_job_name);

constexpr std::int64_t kElems = 100000;  // a rank: more than what is lent between processes

std::vector<float> values_of(int rank) {
  std::vector<float> values(kElems);
  std::iota(values.begin(), values.end(), static_cast<float>(rank * kElems));
  return values;
}

// Gathers all ranks' values, of which those of even ranks lie on the device.
std::string gather(Communicator& world) {
  const Device device{world.rank() % 2 == 0 ? MemorySpace::kCuda : MemorySpace::kHost, 0};
  const std::size_t bytes = kElems * sizeof(float);
  auto in = Buffer::allocate(bytes, device);
  auto out = Buffer::allocate(bytes * static_cast<std::size_t>(world.size()), device);
  if (!in.has_value() || !out.has_value()) return "no memory";
  const std::vector<float> own = values_of(world.rank());
  const auto from = std::as_bytes(std::span(own));
  std::copy(from.begin(), from.end(), in.value().bytes().begin());
  auto work =
      world.all_gather(in.value().tensor(Shape::vector(kElems), DType::kF32),
                       out.value().tensor(Shape::vector(kElems * world.size()), DType::kF32));
  if (!work.has_value()) return std::string(work.error().message());
  if (const Status ended = work.value().wait(); !ended.ok()) return std::string(ended.message());
  const auto* got = reinterpret_cast<const float*>(out.value().bytes().data());
  for (std::int64_t i = 0; i < kElems * world.size(); ++i) {
    if (got[i] != static_cast<float>(i)) return "wrong element " + std::to_string(i);
  }
  return "";
}

TEST(UcxDirect, HandsMemoryOfTheDeviceToUcxAndReceivesWhatIsLentToIt) {
  const auto outcomes = on_processes(3, {}, 60, [](std::unique_ptr<Communicator> world) {
    const std::string fault = gather(*world);
    if (!fault.empty()) return fault;
    const bool on_device = world->rank() % 2 == 0;
    const bool told = cuda_sends > 0 && cuda_receives > 0;
    if (on_device != told) return std::string("UCX was told of other memory");
    return std::string(world->transport_stats().bytes_staged == 0 ? "" : "something was staged");
  });
  EXPECT_THAT(outcomes, ended_cleanly(3));
}

// As CUDA's pools give it: other processes and network devices could not open it.
TEST(UcxDirect, MemoryWithoutAHandleForOthersIsStaged) {
  const auto outcomes = on_processes(2, {}, 60, [](std::unique_ptr<Communicator> world) {
    emulation::give_pools_handles(false);
    const std::string fault = gather(*world);
    if (!fault.empty()) return fault;
    const bool staged = world->transport_stats().bytes_staged > 0;
    return std::string(staged == (world->rank() == 0) && cuda_sends == 0 ? "" : "was not staged");
  });
  EXPECT_THAT(outcomes, ended_cleanly(2));
}

// What is lent is described by a message, which comes to lie where the receive is.
TEST(UcxDirect, AReceiveThatCannotLearnWhatIsLentToItEndsItsOperation) {
  const auto outcomes = on_processes(2, {}, 60, [](std::unique_ptr<Communicator> world) {
    const Device device{world->rank() == 0 ? MemorySpace::kCuda : MemorySpace::kHost, 0};
    auto memory = Buffer::allocate(kElems * sizeof(float), device);
    if (!memory.has_value()) return std::string("no memory");
    emulation::refuse_copies_after(0);
    auto work = world->broadcast(memory.value().tensor(Shape::vector(kElems), DType::kF32), 1);
    const Status ended = work.has_value() ? work.value().wait() : work.error();
    return ended.ok() ? std::string("went well") : code_and_message(ended);
  });
  EXPECT_THAT(outcomes, ended_saying({tells("rank 1", "cudaMemcpyAsync"),
                                      tells(to_string(Code::kPeerLost), "rank 0")}));
}

// Otherwise eager messages would take it in pieces, and nobody is to be surprised by that.
TEST(UcxDirect, IsLeftWhereRendezvousIsNotWanted) {
  const char* const before = std::getenv("UCX_RNDV_THRESH");
  ASSERT_NE(before, nullptr);
  const std::string kept = before;
  unsetenv("UCX_RNDV_THRESH");
  const auto outcomes = on_processes(2, {}, 60, [](std::unique_ptr<Communicator> world) {
    const std::string fault = gather(*world);
    if (!fault.empty()) return fault;
    const bool staged = world->transport_stats().bytes_staged > 0;
    return std::string(staged == (world->rank() == 0) && cuda_sends == 0 ? "" : "was not staged");
  });
  setenv("UCX_RNDV_THRESH", kept.c_str(), 1);
  EXPECT_THAT(outcomes, ended_cleanly(2));
}

}  // namespace
}  // namespace gradwire
