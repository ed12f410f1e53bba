// What Python calls beside PyTorch's own functions.
#include <cuda_runtime_api.h>
#include <pybind11/pybind11.h>

#include <memory>
#include <optional>
#include <string>

#include "tests/comm/nccl/fake_nccl.h"
#include "tests/emulation/emulated_device.h"
#include "tests/torch/device/memory.h"
#include "tests/torch/device/operators.h"
#include "tests/torch/device/streams.h"

namespace gradwire::emulated_torch {
namespace {

void check(cudaError_t status) {
  TORCH_CHECK(status == cudaSuccess, "the emulated device: CUDA's error ",
              static_cast<int>(status));
}

cudaStream_t stream_at(std::uintptr_t address) { return reinterpret_cast<cudaStream_t>(address); }

// A graph that was captured; launch() enqueues it.
class Graph {
 public:
  explicit Graph(cudaGraph_t graph) {
    const cudaError_t made = cudaGraphInstantiate(&exec_, graph, 0);
    check(cudaGraphDestroy(graph));
    check(made);
  }
  ~Graph() { (void)cudaGraphExecDestroy(exec_); }
  void launch(std::uintptr_t stream) const { check(cudaGraphLaunch(exec_, stream_at(stream))); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

std::unique_ptr<Graph> end_capture(std::uintptr_t stream) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(stream_at(stream), &graph));
  return std::make_unique<Graph>(graph);
}

std::optional<nccl_test::FakeNccl>& played_nccl() {
  static auto* const played = new std::optional<nccl_test::FakeNccl>;
  return *played;
}

// Has the library of NCCL's names that the tests build do its work on these devices.
void play_nccl(const std::string& path) {
  played_nccl().emplace(need(nccl_test::FakeNccl::open(path)));
}

void bind_streams(pybind11::module& module) {
  // By the address of a stream (torch.Stream.native_handle).
  module.def("hold", [](std::uintptr_t stream) { emulation::hold(stream_at(stream)); });
  module.def("release", [](std::uintptr_t stream) { emulation::release(stream_at(stream)); });
  module.def("begin_capture", [](std::uintptr_t stream) {
    between_frees([stream] {
      check(cudaStreamBeginCapture(stream_at(stream), cudaStreamCaptureModeThreadLocal));
    });
  });
  pybind11::class_<Graph>(module, "Graph").def("launch", &Graph::launch);
  module.def("end_capture", &end_capture);
}

}  // namespace
}  // namespace gradwire::emulated_torch

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  using namespace gradwire::emulated_torch;
  gradwire::emulation::play_devices(kDevices);
  register_hooks();
  module.def("device_count", [] { return kDevices; });
  module.def("current_device", [] { return current_device(); });
  module.def("set_device", [](int device) { current_device() = device; });
  bind_streams(module);
  module.def("launches", [] { return gradwire::emulation::launches_on(0); });
  module.def("play_nccl", &play_nccl);
  // The calls of the played NCCL since the last time.
  module.def("take_nccl_log", [] { return std::string(played_nccl().value().take_log()); });
}
