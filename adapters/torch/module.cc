// The Python module: Options, the creator of backends, and averagers.
#include <pybind11/chrono.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/python.h>

#include <mutex>
#include <torch/csrc/distributed/c10d/Types.hpp>
#include <vector>

#include "adapters/torch/averager.h"
#include "adapters/torch/backend.h"
#include "adapters/torch/failure.h"

namespace gradwire::torch_backend {

namespace {

namespace py = pybind11;

// The groups of a process, to be ended before the interpreter is.
class Groups {
 public:
  void add(const c10::intrusive_ptr<GradwireBackend>& backend) {
    const std::lock_guard<std::mutex> lock(mutex_);
    backends_.emplace_back(backend);
  }
  void close() {
    std::unique_lock<std::mutex> lock(mutex_);
    std::vector<c10::weak_intrusive_ptr<GradwireBackend>> all;
    all.swap(backends_);
    lock.unlock();
    for (const auto& weak : all) {
      const auto backend = weak.lock();
      if (backend) backend->release();
    }
  }

 private:
  std::mutex mutex_;
  std::vector<c10::weak_intrusive_ptr<GradwireBackend>> backends_;
};

c10::intrusive_ptr<c10d::Backend> create(Groups& groups,
                                         const c10d::DistributedBackendOptions& group,
                                         const GroupOptions& options) {
  auto own = c10::make_intrusive<GroupOptions>(options);
  own->timeout = std::chrono::duration_cast<std::chrono::milliseconds>(group.timeout);
  own->group_name = group.group_id;
  auto backend =
      c10::make_intrusive<GradwireBackend>(group.store, group.group_rank, group.group_size, own);
  groups.add(backend);
  return backend;
}

c10::intrusive_ptr<GradwireBackend> own_backend(const c10::intrusive_ptr<c10d::Backend>& backend) {
  auto* own = dynamic_cast<GradwireBackend*>(backend.get());
  TORCH_CHECK_VALUE(own != nullptr, "gradwire: a group of backend ", backend->getBackendName(),
                    " (expected gradwire)");
  return c10::intrusive_ptr<GradwireBackend>::reclaim_copy(own);
}

// DDP's Python hooks want a future of a Python object.
std::shared_ptr<torch::jit::PythonFutureWrapper> python_future_of(
    const c10::intrusive_ptr<GradwireWork>& work, const at::Tensor& whole) {
  std::vector<c10::Device> devices;
  if (!whole.device().is_cpu()) devices.push_back(whole.device());
  auto future =
      c10::make_intrusive<c10::ivalue::Future>(c10::PyObjectType::get(), std::move(devices));
  // Made here, where the interpreter's lock is held, so that completing needs none.
  const c10::IValue value = torch::jit::toIValue(py::cast(whole), c10::PyObjectType::get());
  // So are the storages named whose readers wait for the device.
  const std::vector<c10::ivalue::Future::WeakStorage> storages{
      whole.storage().getWeakStorageImpl()};
  work->on_end([future, value, storages](const std::exception_ptr& error) {
    if (error) {
      future->setError(error);
    } else {
      future->markCompleted(value, storages);
    }
  });
  {
    const py::gil_scoped_release release;
    work->begin();
  }
  return std::make_shared<torch::jit::PythonFutureWrapper>(future);
}

void bind_options(py::module& module) {
  py::class_<GroupOptions, c10::intrusive_ptr<GroupOptions>, c10d::Backend::Options>(module,
                                                                                     "Options")
      .def(py::init<>())
      .def_readwrite("blocking", &GroupOptions::blocking)
      .def_readwrite("liveness", &GroupOptions::liveness)
      .def_readwrite("rendezvous", &GroupOptions::rendezvous)
      .def_readwrite("transport", &GroupOptions::transport)
      .def_readwrite("interface_name", &GroupOptions::interface_name)
      .def_readwrite("algorithm", &GroupOptions::algorithm)
      .def_readwrite("links", &GroupOptions::links);
}

std::unique_ptr<Averager> averager_of(const c10::intrusive_ptr<c10d::Backend>& backend,
                                      const py::list& tensors, const std::string& spec, int form,
                                      int traffic, bool skip_nonfinite, bool allow_unsafe,
                                      std::uint64_t seed, int threads, std::int64_t bucket_bytes,
                                      std::optional<double> momentum) {
  std::vector<NamedShape> shapes;
  for (const py::handle& entry : tensors) {
    const auto pair = entry.cast<std::pair<std::string, at::Tensor>>();
    shapes.push_back(
        {pair.first, pair.second.scalar_type(), pair.second.sizes().vec(), pair.second.device()});
  }
  const AveragerOptions options{spec,
                                static_cast<gw_form>(form),
                                static_cast<gw_traffic>(traffic),
                                skip_nonfinite,
                                allow_unsafe,
                                seed,
                                threads,
                                bucket_bytes,
                                momentum};
  const py::gil_scoped_release release;
  return std::make_unique<Averager>(own_backend(backend), shapes, options);
}

void bind_averager(py::module& module) {
  using NoLock = py::call_guard<py::gil_scoped_release>;
  py::class_<Averager>(module, "Averager")
      .def(py::init(&averager_of), py::arg("backend"), py::arg("tensors"), py::arg("spec"),
           py::arg("form"), py::arg("traffic"), py::arg("skip_nonfinite"), py::arg("allow_unsafe"),
           py::arg("seed"), py::arg("threads"), py::arg("bucket_bytes"), py::arg("momentum"))
      .def("submit",
           [](Averager& self, const std::vector<std::int64_t>& indices,
              const std::vector<at::Tensor>& parts, const at::Tensor& whole) {
             return python_future_of(self.submit(indices, parts, whole), whole);
           })
      .def("set_learning_rate", &Averager::set_learning_rate, NoLock())
      .def("set_loss_scale", &Averager::set_loss_scale, NoLock())
      .def("stats", &Averager::stats, NoLock())
      .def("warnings", &Averager::warnings, NoLock())
      .def("save", &Averager::save, NoLock())
      .def("load", &Averager::load, NoLock());
}

}  // namespace

void bind(py::module& module) {
  bind_options(module);
  bind_averager(module);
  py::class_<Groups>(module, "Groups")
      .def(py::init<>())
      .def("create", &create, py::call_guard<py::gil_scoped_release>())
      .def("close", &Groups::close, py::call_guard<py::gil_scoped_release>());
  module.def("is_own", [](const c10::intrusive_ptr<c10d::Backend>& backend) {
    return dynamic_cast<GradwireBackend*>(backend.get()) != nullptr;
  });
  module.def("is_blocking", [](const c10::intrusive_ptr<c10d::Backend>& backend) {
    return own_backend(backend)->completion()->blocking;
  });
  module.def("describe", [](const c10::intrusive_ptr<c10d::Backend>& backend) {
    return std::string(gw_comm_describe(own_backend(backend)->comm().get()));
  });
  module.def("shard_of", &shard_of);
  module.def("check_spec", [](const std::string& spec, bool allow_unsafe, int form, int traffic,
                              std::optional<double> momentum) {
    check_spec({.spec = spec,
                .form = static_cast<gw_form>(form),
                .traffic = static_cast<gw_traffic>(traffic),
                .allow_unsafe = allow_unsafe,
                .momentum = momentum});
  });
  module.def("library_version", [] { return std::string(gw_version()); });
}

}  // namespace gradwire::torch_backend

PYBIND11_MODULE(GRADWIRE_TORCH_MODULE, module) { gradwire::torch_backend::bind(module); }
