#include "adapters/torch/averager.h"

#include <algorithm>
#include <cstring>

#include "adapters/torch/failure.h"
#include "adapters/torch/streams.h"

namespace gradwire::torch_backend {

namespace {

using StateHandle = std::unique_ptr<gw_state, decltype(&gw_state_free)>;

at::ScalarType scalar_type_of(gw_dtype dtype) {
  switch (dtype) {
    case GW_F64: return at::kDouble;
    case GW_F32: return at::kFloat;
    case GW_F16: return at::kHalf;
    case GW_BF16: return at::kBFloat16;
    case GW_I64: return at::kLong;
    case GW_I32: return at::kInt;
    case GW_I8: return at::kChar;
    default: return at::kByte;
  }
}

// Dimensions beyond the fourth are folded into the fourth; `shape` has four places.
int fold(const std::vector<std::int64_t>& dims, std::int64_t* shape) {
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (i < 4) {
      shape[i] = dims[i];
    } else {
      shape[3] *= dims[i];
    }
  }
  return static_cast<int>(std::min<std::size_t>(dims.size(), 4));
}

// Points into `options`.
gw_aggregator_options settings_of(const AveragerOptions& options) {
  gw_aggregator_options settings = GW_AGGREGATOR_OPTIONS_INIT;
  settings.compressor = options.spec.c_str();
  settings.bucket_bytes = options.bucket_bytes;
  settings.seed = options.seed;
  settings.threads = options.threads;
  settings.allow_unsafe = options.allow_unsafe ? 1 : 0;
  settings.form = options.form;
  settings.traffic = options.traffic;
  settings.nonfinite = options.skip_nonfinite ? GW_NONFINITE_SKIPS : GW_NONFINITE_FAILS;
  if (options.momentum) settings.momentum = &*options.momentum;
  return settings;
}

StateHandle state_of(const Averager::State& tensors) {
  gw_state* made = nullptr;
  check(gw_state_create(&made), "load_state_dict");
  StateHandle state(made, &gw_state_free);
  for (const auto& [name, tensor] : tensors) {
    const at::Tensor held = tensor.cpu().contiguous();
    gw_state_entry entry = {};
    entry.name = name.c_str();
    entry.dtype = moved(held.scalar_type()).dtype;
    entry.dimensions = fold(held.sizes().vec(), entry.shape);
    entry.data = held.data_ptr();
    entry.bytes = held.nbytes();
    check(gw_state_add(state.get(), &entry), name.c_str());
  }
  return state;
}

}  // namespace

Averager::Averager(c10::intrusive_ptr<GradwireBackend> backend,
                   const std::vector<NamedShape>& tensors, const AveragerOptions& options)
    : backend_(std::move(backend)) {
  std::vector<gw_tensor_info> infos;
  for (const NamedShape& tensor : tensors) {
    TORCH_CHECK_VALUE(at::isFloatingType(tensor.type) && moved(tensor.type).per_element == 1,
                      "gradwire: ", tensor.name, " is of type ", tensor.type,
                      " (expected float, double, half or bfloat16)");
    gw_tensor_info info = {};
    info.name = tensor.name.c_str();
    info.dtype = moved(tensor.type).dtype;
    info.dimensions = fold(tensor.shape, info.shape);
    infos.push_back(info);
    std::int64_t elements = 1;
    for (const std::int64_t n : tensor.shape) elements *= n;
    elements_.push_back(elements);
    types_.push_back(tensor.type);
    TORCH_CHECK_VALUE(tensor.device == tensors.front().device, "gradwire: ", tensor.name, " is on ",
                      tensor.device, ", ", tensors.front().name, " on ", tensors.front().device,
                      " (expected one device)");
    if (!tensor.device.is_cpu()) device_ = tensor.device;
  }
  gw_aggregator_options settings = settings_of(options);
  const gw_stream place = native_of(current_stream(device_));
  settings.space = place.space;
  settings.device = place.device;
  gw_aggregator* made = nullptr;
  check(gw_aggregator_create(backend_->comm().get(), infos.data(), infos.size(), &settings, &made),
        "compress");
  aggregator_ = {made, &gw_aggregator_free};
}

c10::intrusive_ptr<GradwireWork> Averager::submit(const std::vector<std::int64_t>& indices,
                                                  const std::vector<at::Tensor>& parts,
                                                  const at::Tensor& whole) {
  TORCH_CHECK_VALUE(indices.size() == parts.size(), "gradwire: ", indices.size(), " indices and ",
                    parts.size(), " tensors (expected equally many)");
  std::vector<gw_gradient> gradients;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    check_tensor(parts[i], "compress");
    const auto index = static_cast<std::size_t>(indices[i]);
    TORCH_CHECK_VALUE(
        index < elements_.size() && parts[i].numel() == elements_[index] &&
            parts[i].scalar_type() == types_[index] && parts[i].is_non_overlapping_and_dense(),
        "gradwire: compress: tensor ", indices[i], " came with ", parts[i].numel(), " elements of ",
        parts[i].scalar_type(), ", not those it was registered with");
    TORCH_CHECK_VALUE(parts[i].device() == device_.value_or(at::Device(at::kCPU)),
                      "gradwire: compress: tensor ", indices[i], " came on ", parts[i].device(),
                      " (expected ", device_.value_or(at::Device(at::kCPU)),
                      ", where it was registered)");
    gradients.push_back({static_cast<int>(indices[i]), parts[i].data_ptr()});
  }
  Operation operation;
  operation.type = c10d::OpType::ALLREDUCE;
  operation.name = "compressed_all_reduce";
  operation.outputs = {whole};
  operation.lent.kept = parts;
  operation.stream = current_stream(device_);
  const gw_stream stream = native_of(operation.stream);
  gw_work* handle = nullptr;
  const gw_status status = gw_aggregator_submit_on(aggregator_.get(), gradients.data(),
                                                   gradients.size(), &stream, &handle);
  if (status != GW_OK) raise(std::string("gradwire: compress: ") + gw_last_error());
  submitted_ = (submitted_ + parts.size()) % elements_.size();
  auto work = backend_->work_of(std::move(operation));
  work->hand_over(handle);
  return work;
}

// A step's works end a moment before the step does, and between steps is after that.
void Averager::settle() const {
  if (submitted_ == 0) gw_aggregator_flush(aggregator_.get());
}

void Averager::set_learning_rate(double rate) {
  settle();
  check(gw_aggregator_set_learning_rate(aggregator_.get(), rate), "learning rate");
}

void Averager::set_loss_scale(double scale) {
  settle();
  check(gw_aggregator_set_loss_scale(aggregator_.get(), scale), "loss scale");
}

std::vector<std::pair<std::string, double>> Averager::stats() const {
  settle();
  gw_aggregator_stats s = GW_AGGREGATOR_STATS_INIT;
  check(gw_aggregator_get_stats(aggregator_.get(), &s), "stats");
  const auto number = [](std::uint64_t value) { return static_cast<double>(value); };
  return {{"steps", number(s.steps)},
          {"skipped_steps", number(s.skipped_steps)},
          {"gradient_bytes", number(s.gradient_bytes)},
          {"dense_ring_bytes", number(s.dense_ring_bytes)},
          {"payload_bytes", number(s.payload_bytes)},
          {"wire_bytes", number(s.wire_bytes)},
          {"encode_seconds", s.encode_seconds},
          {"exchange_seconds", s.exchange_seconds},
          {"decode_seconds", s.decode_seconds}};
}

std::vector<std::string> Averager::warnings() const {
  std::vector<std::string> all;
  for (std::size_t i = 0;; ++i) {
    const char* warning = gw_aggregator_warning(aggregator_.get(), i);
    if (warning == nullptr) return all;
    all.emplace_back(warning);
  }
}

Averager::State Averager::save() {
  settle();
  gw_state* made = nullptr;
  check(gw_aggregator_save(aggregator_.get(), &made), "state_dict");
  const StateHandle state(made, &gw_state_free);
  State tensors;
  for (std::size_t i = 0; i < gw_state_count(state.get()); ++i) {
    gw_state_entry entry = {};
    check(gw_state_get(state.get(), i, &entry), "state_dict");
    const std::vector<std::int64_t> shape(entry.shape, entry.shape + entry.dimensions);
    at::Tensor tensor = at::empty(shape, scalar_type_of(entry.dtype));
    std::memcpy(tensor.data_ptr(), entry.data, entry.bytes);
    tensors.emplace(entry.name, std::move(tensor));
  }
  return tensors;
}

void Averager::load(const std::vector<std::optional<State>>& by_old_rank) {
  settle();
  std::vector<StateHandle> held;
  std::vector<const gw_state*> states;
  for (const std::optional<State>& state : by_old_rank) {
    if (state) held.push_back(state_of(*state));
    states.push_back(state ? held.back().get() : nullptr);
  }
  check(gw_aggregator_load(aggregator_.get(), states.data(), states.size()), "load_state_dict");
}

void check_spec(const AveragerOptions& options) {
  const gw_aggregator_options settings = settings_of(options);
  gw_tensor_info matrix = {};
  matrix.name = "weight";
  matrix.dtype = GW_F32;
  matrix.dimensions = 2;
  matrix.shape[0] = matrix.shape[1] = 64;
  gw_spec_info info = GW_SPEC_INFO_INIT;
  check(gw_spec_inspect(&settings, &matrix, 2, &info), "compress");
}

std::pair<std::int64_t, std::int64_t> shard_of(std::int64_t elements, int rank, int size) {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  check(gw_shard(elements, rank, size, &begin, &end), "shard");
  return {begin, end};
}

}  // namespace gradwire::torch_backend
