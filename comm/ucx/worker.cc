#include "comm/ucx/worker.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "base/text.h"
#include "comm/ucx/settings.h"

namespace gradwire::ucx {
namespace {

// Arming and polling costs some 6 us; a message between two busy ranks takes less. Each yield lets
// the peer run where ranks outnumber the cores.
constexpr int kYields = 50;
// On a machine with much else to do one yield can take many milliseconds; sleeping is then no
// worse.
constexpr auto kMostYielding = std::chrono::microseconds(200);
constexpr int kMostMilliseconds = 100;
constexpr int kSendingMilliseconds = 1;
constexpr int kMostEvents = 64;

}  // namespace

Result<std::unique_ptr<Worker>> Worker::make(const SettingsOptions& options) {
  std::unique_ptr<Worker> worker(new Worker);
  GW_TRY(worker->start(options));
  return worker;
}

Status Worker::start(const SettingsOptions& options) {
  wake_fd_ = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_fd_ < 0) {
    return Status(Code::kInternal, format("ucx: eventfd: %s", std::strerror(errno)));
  }
  GW_ASSIGN(Settings settings, read_settings(options));
  settings_ = std::move(settings.list);
  devices_ = std::move(settings.devices);
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "gradwire";
  ucs_status_t status = ucp_init(&params, settings.config.get(), &context_);
  if (status != UCS_OK) {
    context_ = nullptr;
    return error("ucp_init", status);
  }
  ucp_worker_params_t worker_params{};
  worker_params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  worker_params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  status = ucp_worker_create(context_, &worker_params, &worker_);
  if (status != UCS_OK) {
    worker_ = nullptr;
    return error("ucp_worker_create", status);
  }
  status = ucp_worker_get_efd(worker_, &arrivals_fd_);
  return status == UCS_OK ? Status() : error("no transport with an event descriptor", status);
}

Worker::~Worker() {
  if (worker_ != nullptr) ucp_worker_destroy(worker_);
  if (context_ != nullptr) ucp_cleanup(context_);
  if (wake_fd_ >= 0) ::close(wake_fd_);
}

Result<std::string> Worker::address() const {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  const ucs_status_t status = ucp_worker_get_address(worker_, &address, &bytes);
  if (status != UCS_OK) return error("ucp_worker_get_address", status);
  std::string copy(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(worker_, address);
  return copy;
}

bool Worker::progress() {
  int events = 0;
  while (events < kMostEvents && ucp_worker_progress(worker_) != 0) ++events;
  return events > 0;
}

Status Worker::sleep(Deadline until, bool sending) {
  const Deadline enough = std::chrono::steady_clock::now() + kMostYielding;
  for (int i = 0; i < kYields && std::chrono::steady_clock::now() < enough; ++i) {
    if (progress()) return {};
    sched_yield();
  }
  const ucs_status_t armed = ucp_worker_arm(worker_);
  if (armed == UCS_ERR_BUSY) {  // something came meanwhile
    (void)progress();
    return {};
  }
  if (armed != UCS_OK) return error("ucp_worker_arm", armed);
  return doze(until, sending ? kSendingMilliseconds : kMostMilliseconds);
}

Status Worker::doze(Deadline until, int most_milliseconds) {
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
  const int timeout =
      static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, most_milliseconds));
  pollfd fds[] = {{arrivals_fd_, POLLIN, 0}, {wake_fd_, POLLIN, 0}};
  if (poll(fds, 2, timeout) < 0 && errno != EINTR) {
    return Status(Code::kInternal, format("ucx: poll: %s", std::strerror(errno)));
  }
  std::uint64_t count = 0;
  if ((fds[1].revents & POLLIN) != 0) (void)!read(wake_fd_, &count, sizeof count);
  (void)progress();
  return {};
}

void Worker::wake() const {
  const std::uint64_t one = 1;
  (void)!write(wake_fd_, &one, sizeof one);  // fails only when it is already awake 2^64 times
}

}  // namespace gradwire::ucx
