#include "adapters/torch/backend.h"

#include <algorithm>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "adapters/torch/clock.h"
#include "adapters/torch/failure.h"
#include "adapters/torch/operations.h"
#include "adapters/torch/starting.h"
#include "adapters/torch/streams.h"

namespace gradwire::torch_backend {

namespace {

constexpr std::chrono::milliseconds kCallbacksEnd{2000};

}  // namespace

GradwireBackend::GradwireBackend(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
                                 c10::intrusive_ptr<GroupOptions> options)
    : c10d::Backend(rank, size),
      store_(std::move(store)),
      options_(std::move(options)),
      completion_(std::make_shared<Completion>()),
      timeout_(options_->timeout) {
  completion_->blocking = options_->blocking;
  completion_->pool = std::make_shared<Pool>();
  comm_ = meet(store_, "", rank, size, *options_, timeout_);
}

GradwireBackend::~GradwireBackend() { release(); }

Comm GradwireBackend::comm() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (!comm_) raise("gradwire: this process group was destroyed");
  return comm_;
}

void GradwireBackend::check_caller(const char* operation) {
  if (completion_->blocking || !Pool::inside()) return;
  // Short, and the way out first: ranks pass on so much of a reason.
  const std::string reason = std::string(
                                 "chained operations need gradwire.torch.Options(blocking=True) or "
                                 "GRADWIRE_BLOCKING=1: ") +
                             operation + " issued from a callback";
  // The other ranks wait for what will not come: they get the same sentence.
  gw_comm_abort(comm().get(), reason.c_str());
  raise("gradwire: rank " + std::to_string(rank_) + ": " + reason +
        " of an asynchronous operation, where ranks would issue operations in different orders");
}

c10::intrusive_ptr<GradwireWork> GradwireBackend::work_of(Operation operation) {
  if (!operation.stream) {
    operation.stream = current_stream(device_of(operation.lent.kept, operation.name));
  }
  if (operation.stream && !completion_->blocking) {
    operation.results = results_stream(operation.stream->device());
  }
  return c10::make_intrusive<GradwireWork>(rank_, std::move(operation), ++number_, completion_);
}

c10::Stream GradwireBackend::results_stream(const at::Device& device) {
  const std::lock_guard<std::mutex> lock(streams_mutex_);
  const auto found = std::find_if(streams_.begin(), streams_.end(), [&](const c10::Stream& stream) {
    return stream.device() == device;
  });
  if (found != streams_.end()) return *found;
  return streams_.emplace_back(another_stream(device));
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::start(Operation operation) {
  check_caller(operation.name);
  const Comm held = comm();
  operation.timeout = timeout_for(operation.timeout);
  const auto work = work_of(std::move(operation));
  const Operation& asked = work->operation();
  std::unique_lock<std::mutex> lock(mutex_);
  if (batch_) {
    scale_inputs(work->operation(), size_);  // a batch has one factor, its operations may have many
    batch_->ops.insert(batch_->ops.end(), asked.ops.begin(), asked.ops.end());
    batch_->works.push_back(work);
    batch_->timeout = std::max(batch_->timeout, asked.timeout);
    return work;
  }
  lock.unlock();
  gw_op_options options = GW_OP_OPTIONS_INIT;
  options.timeout_seconds = seconds_of(asked.timeout);
  options.factor = asked.factor;
  options.stream = native_of(asked.stream);
  gw_work* handle = nullptr;
  check_start(start_ops(held.get(), asked.ops, options, &handle), asked.name,
              completion_->blocking);
  work->begin(handle);
  return work;
}

void GradwireBackend::startCoalescing() {
  const std::lock_guard<std::mutex> lock(mutex_);
  TORCH_CHECK(!batch_, "gradwire: a batch is open already (expected one at a time)");
  batch_.emplace();
}

c10::intrusive_ptr<c10d::Work> GradwireBackend::endCoalescing() {
  std::unique_lock<std::mutex> lock(mutex_);
  TORCH_CHECK(batch_.has_value(), "gradwire: no batch is open");
  Batch batch = std::move(*batch_);
  batch_.reset();
  lock.unlock();
  Operation all;
  all.type = c10d::OpType::COALESCED;
  all.name = "batch";
  all.timeout = batch.timeout;
  all.ops = std::move(batch.ops);
  for (const auto& work : batch.works) {
    const Operation& part = work->operation();
    all.outputs.insert(all.outputs.end(), part.outputs.begin(), part.outputs.end());
    all.lent.kept.insert(all.lent.kept.end(), part.lent.kept.begin(), part.lent.kept.end());
    all.lent.copies.insert(all.lent.copies.end(), part.lent.copies.begin(), part.lent.copies.end());
    if (!part.finish) continue;
    all.finish = [before = std::move(all.finish), own = part.finish] {
      if (before) before();
      own();
    };
  }
  const Comm held = comm();
  gw_op_options options = GW_OP_OPTIONS_INIT;
  options.timeout_seconds = seconds_of(all.timeout);
  const auto carrier = work_of(std::move(all));
  const std::optional<c10::Stream>& stream = carrier->operation().stream;
  options.stream = native_of(stream);
  for (const auto& work : batch.works) {
    if (stream && work->operation().stream) order(*work->operation().stream, *stream);
  }
  gw_work* handle = nullptr;
  check_start(start_ops(held.get(), carrier->operation().ops, options, &handle), "batch",
              completion_->blocking);
  carrier->carry(std::move(batch.works));
  carrier->begin(handle);
  return carrier;
}

std::chrono::milliseconds GradwireBackend::timeout_for(std::chrono::milliseconds asked) const {
  if (asked.count() > 0) return asked;
  const std::lock_guard<std::mutex> lock(mutex_);
  return timeout_;
}

void GradwireBackend::setTimeout(std::chrono::milliseconds timeout) {
  const std::lock_guard<std::mutex> lock(mutex_);
  timeout_ = timeout;
  options_->timeout = timeout;
}

void GradwireBackend::abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (comm_) gw_comm_abort(comm_.get(), "its process group was aborted");
}

// What streams wait for ends first, as the program that waited for it takes it to have ended; each
// operation has its own time limit, and all end when the communicator has failed.
void GradwireBackend::shutdown() {
  std::unique_lock<std::mutex> lock(mutex_);
  const bool open = comm_ != nullptr;
  lock.unlock();
  if (open) completion_->followed->await(timeout_for(c10d::kUnsetTimeout));
  release();
}

void GradwireBackend::release() {
  std::unique_lock<std::mutex> lock(mutex_);
  Comm last = std::move(comm_);
  comm_.reset();
  lock.unlock();
  if (!last) return;
  last.reset();
  // Callbacks see their operations end now; nobody who destroys a group from one waits for itself.
  if (!Pool::inside()) completion_->pool->drain(kCallbacksEnd);
}

c10d::ErrorType GradwireBackend::getError() {
  switch (gw_comm_status(comm().get())) {
    case GW_OK: return c10d::ErrorType::SUCCESS;
    case GW_TIMED_OUT: return c10d::ErrorType::TIMEOUT;
    case GW_PEER_LOST:
    case GW_CANCELLED: return c10d::ErrorType::REMOTE_ERROR;
    default: return c10d::ErrorType::COMM_ERROR;
  }
}

void GradwireBackend::registerOnCompletionHook(
    std::function<void(std::shared_ptr<c10d::WorkInfo>)>&& hook) {
  TORCH_CHECK(number_.load() == 0, "gradwire: a completion hook comes before the first operation");
  onCompletionHook_ = hook;
  // Operations hold `completion_` to their end, which may come after that of this group.
  completion_->hook = [told = std::move(hook)](const c10d::WorkInfo& info) {
    told(std::make_shared<c10d::WorkInfo>(info));
  };
}

void GradwireBackend::waitForPendingWorks() {
  completion_->pool->drain(std::chrono::duration_cast<std::chrono::milliseconds>(
      timeout_for(std::chrono::milliseconds(0))));
}

at::Tensor GradwireBackend::allocateTensor(long size, at::TensorOptions options) {
  if (!options.device().is_cpu()) return at::empty({size}, options);
  const std::size_t bytes =
      static_cast<std::size_t>(size) * c10::elementSize(options.dtype().toScalarType());
  void* memory = gw_memory_alloc(comm().get(), bytes);
  if (memory == nullptr) raise(std::string("gradwire: ") + gw_last_error());
  return at::from_blob(
      memory, {size}, [](void* given) { gw_memory_free(given); }, options.device(at::kCPU));
}

c10::intrusive_ptr<GroupOptions> GradwireBackend::options_for(
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  auto chosen = c10::make_intrusive<GroupOptions>(*options_);
  const auto* own = dynamic_cast<const GroupOptions*>(opts.get());
  if (own != nullptr) chosen = c10::make_intrusive<GroupOptions>(*own);
  if (opts) {
    chosen->timeout = opts->timeout;
    chosen->group_name = opts->group_name;
  }
  return chosen;
}

c10::intrusive_ptr<c10d::Backend> GradwireBackend::split(
    const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  const auto self = std::find(ranks.begin(), ranks.end(), rank_);
  if (self == ranks.end()) return nullptr;
  return c10::make_intrusive<GradwireBackend>(store, static_cast<int>(self - ranks.begin()),
                                              static_cast<int>(ranks.size()), options_for(opts));
}

c10::intrusive_ptr<c10d::Backend> GradwireBackend::merge(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts, const int& rank, const int& size) {
  return c10::make_intrusive<GradwireBackend>(store, rank, size, options_for(opts));
}

c10::intrusive_ptr<c10d::Backend> GradwireBackend::shrink(
    const std::vector<int64_t>& ranks_to_exclude, int /*flags*/,
    const c10::intrusive_ptr<c10d::Backend::Options>& opts) {
  std::vector<int> left;
  for (int r = 0; r < size_; ++r) {
    if (std::find(ranks_to_exclude.begin(), ranks_to_exclude.end(), r) == ranks_to_exclude.end()) {
      left.push_back(r);
    }
  }
  // A meeting of its own: it works whether the excluded ranks are dead or merely left out.
  const auto fresh =
      c10::make_intrusive<c10d::PrefixStore>("shrink-" + std::to_string(++shrinks_), store_);
  return split(fresh, left, opts);
}

}  // namespace gradwire::torch_backend
