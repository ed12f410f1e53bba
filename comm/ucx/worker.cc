#include "comm/ucx/worker.h"

#include <poll.h>
#include <sched.h>
#include <sys/statvfs.h>
#include <ucs/config/global_opts.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <mutex>
#include <string>
#include <utility>

#include "base/text.h"
#include "comm/ucx/event_pause.h"
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
constexpr int kTurnsPerControl = 16;

// Where UCX's transport posix keeps the queues into which ranks of a host write: some MiB for each
// of them.
constexpr const char* kQueueFolder = "/dev/shm";

struct SharedRoom {
  SharedRoom() {
    struct statvfs facts {};
    if (::statvfs(kQueueFolder, &facts) != 0) return;
    writable = (facts.f_flag & ST_RDONLY) == 0 && ::access(kQueueFolder, W_OK) == 0;
    free_bytes = std::uint64_t{facts.f_bavail} * facts.f_frsize;
    all_bytes = std::uint64_t{facts.f_blocks} * facts.f_frsize;
  }
  bool little() const { return !writable || free_bytes < std::uint64_t{1} << 30; }
  // "/dev/shm has 3 of 64 MiB free" and what can be done about it.
  std::string text() const {
    const std::string state = writable ? format("%s has %llu of %llu MiB free", kQueueFolder,
                                                static_cast<unsigned long long>(free_bytes >> 20),
                                                static_cast<unsigned long long>(all_bytes >> 20))
                                       : std::string(kQueueFolder) + " cannot be written";
    return state +
           " (expected some MiB per rank: docker run --shm-size=1g or --ipc=host; or use "
           "UCX_TLS=^posix, or the transport tcp)";
  }

  bool writable = false;
  std::uint64_t free_bytes = 0;
  std::uint64_t all_bytes = 0;
};

// While it lives UCX logs nothing but what is fatal. The level is the process's: one at a time
// lowers it, or a second would take the lowered one for what is to be restored.
class QuietLog {
 public:
  QuietLog() : alone_(of_the_level) {
    std::array<char, 32> level{};
    if (ucs_global_opts_get_value("LOG_LEVEL", level.data(), level.size()) != UCS_OK) return;
    if (ucs_global_opts_set_value("LOG_LEVEL", "fatal") == UCS_OK) level_ = level.data();
  }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;
  ~QuietLog() {
    if (!level_.empty()) (void)ucs_global_opts_set_value("LOG_LEVEL", level_.c_str());
  }

 private:
  static inline std::mutex of_the_level;
  std::lock_guard<std::mutex> alone_;
  std::string level_;  // before; "": nothing was changed
};

}  // namespace

bool has_little_room() { return SharedRoom().little(); }

Result<std::unique_ptr<Worker>> Worker::make(const SettingsOptions& options, Deadline until) {
  std::unique_ptr<Worker> worker(new Worker);
  worker->wake_ = rendezvous::make_waker();
  if (!worker->wake_.valid()) {
    return Status(Code::kInternal, format("ucx: eventfd: %s", std::strerror(errno)));
  }
  GW_TRY(worker->start_data(options, until));
  worker->cuda_ = cuda_route(worker->context_, worker->settings_);
  GW_TRY(worker->start_control(options, until));
  return worker;
}

// Where /dev/shm has little room (64 MiB in a container of Docker's) UCX gives up as a whole, or
// ends the process (1.22, whose queues found room for a part), though others of its transports
// would carry the messages as well: there it is not asked to use it, unless the user says so.
Status Worker::start_data(const SettingsOptions& options, Deadline until) {
  // Before the lock of the log, which is not to be held while others' pauses are waited for.
  GW_ASSIGN(const auto pause, EventPause::begin(until));
  if (!has_little_room()) return try_data(options, *pause);
  SettingsOptions others = options;
  others.without_posix = true;
  if (try_data(others, *pause).ok()) return {};
  const QuietLog quiet;
  const Status last = try_data(options, *pause);
  if (last.ok()) return {};
  return {last.code(), std::string(last.message()) + "; " + SharedRoom().text()};
}

Status Worker::try_data(const SettingsOptions& options, const EventPause& pause) {
  if (context_ != nullptr) ucp_cleanup(std::exchange(context_, nullptr));
  GW_ASSIGN(Settings settings, read_settings(options));
  settings_ = std::move(settings.list);
  devices_ = std::move(settings.devices);
  GW_ASSIGN(context_, make_context(settings.config.get()));
  GW_ASSIGN(data_, make_half(context_, pause));
  return {};
}

// A machine without TCP, or a user who chose transports, leaves control messages where data goes.
Status Worker::start_control(SettingsOptions options, Deadline until) {
  GW_ASSIGN(const auto pause, EventPause::begin(until));
  options.tcp_alone = true;
  const auto over_tcp = [&]() -> Status {
    GW_ASSIGN(const Settings settings, read_settings(options));
    GW_ASSIGN(control_context_, make_context(settings.config.get()));
    GW_ASSIGN(control_, make_half(control_context_, *pause));
    return {};
  };
  if (over_tcp().ok()) return {};
  GW_ASSIGN(control_, make_half(context_, *pause));
  return {};
}

Result<ucp_context_h> Worker::make_context(const ucp_config_t* config) {
  ucp_params_t params{};
  params.field_mask = UCP_PARAM_FIELD_FEATURES | UCP_PARAM_FIELD_NAME;
  params.features = UCP_FEATURE_TAG | UCP_FEATURE_AM | UCP_FEATURE_WAKEUP;
  params.name = "gradwire";
  ucp_context_h context = nullptr;
  const ucs_status_t status = ucp_init(&params, config, &context);
  if (status != UCS_OK) return error("ucp_init", status);
  return context;
}

// The pause is the one during which it is made.
Result<Worker::Half> Worker::make_half(ucp_context_h context, const EventPause&) {
  ucp_worker_params_t params{};
  params.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
  params.thread_mode = UCS_THREAD_MODE_SERIALIZED;
  Half half;
  ucs_status_t status = ucp_worker_create(context, &params, &half.handle);
  if (status != UCS_OK) return error("ucp_worker_create", status);
  status = ucp_worker_get_efd(half.handle, &half.arrivals_fd);
  if (status == UCS_OK) return half;
  ucp_worker_destroy(half.handle);
  return error("no transport with an event descriptor", status);
}

Worker::~Worker() {
  drop_data();
  if (control_.handle != nullptr) ucp_worker_destroy(control_.handle);
  if (control_context_ != nullptr) ucp_cleanup(control_context_);
  if (context_ != nullptr) ucp_cleanup(context_);
}

// UCX warns of every message and request that nobody waits for any more: on purpose, here.
void Worker::drop_data() {
  if (data_.handle == nullptr) return;
  const QuietLog quiet;
  ucp_worker_destroy(data_.handle);
  data_ = {};
}

Status Worker::renew_data(Deadline until) {
  GW_ASSIGN(const auto pause, EventPause::begin(until));
  GW_ASSIGN(data_, make_half(context_, *pause));
  return {};
}

Result<std::string> Worker::address(const Half& half) {
  ucp_address_t* address = nullptr;
  std::size_t bytes = 0;
  const ucs_status_t status = ucp_worker_get_address(half.handle, &address, &bytes);
  if (status != UCS_OK) return error("ucp_worker_get_address", status);
  std::string copy(reinterpret_cast<const char*>(address), bytes);
  ucp_worker_release_address(half.handle, address);
  return copy;
}

bool Worker::drain(const Half& half) {
  if (half.handle == nullptr) return false;
  int events = 0;
  while (events < kMostEvents && ucp_worker_progress(half.handle) != 0) ++events;
  return events > 0;
}

bool Worker::progress_control() { return drain(control_); }

bool Worker::progress() {
  const bool look = ++turns_ % kTurnsPerControl == 0 || data_.handle == nullptr;
  const bool control = look && progress_control();
  return drain(data_) || control;
}

Result<bool> Worker::arm(const Half& half) {
  if (half.handle == nullptr) return true;
  const ucs_status_t armed = ucp_worker_arm(half.handle);
  if (armed == UCS_OK) return true;
  if (armed != UCS_ERR_BUSY) return error("ucp_worker_arm", armed);
  (void)drain(half);
  return false;
}

Status Worker::sleep(Deadline until, bool sending) {
  const Deadline enough = std::chrono::steady_clock::now() + kMostYielding;
  for (int i = 0; i < kYields && std::chrono::steady_clock::now() < enough; ++i) {
    if (progress()) return {};
    sched_yield();
  }
  GW_ASSIGN(const bool data_quiet, arm(data_));
  if (!data_quiet) return {};
  GW_ASSIGN(const bool control_quiet, arm(control_));
  if (!control_quiet) return {};
  return doze(until, sending ? kSendingMilliseconds : kMostMilliseconds);
}

Status Worker::doze(Deadline until, int most_milliseconds) {
  const int timeout = std::min(rendezvous::poll_timeout(until), most_milliseconds);
  pollfd fds[] = {
      {data_.arrivals_fd, POLLIN, 0}, {control_.arrivals_fd, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
  if (poll(fds, 3, timeout) < 0 && errno != EINTR) {
    return Status(Code::kInternal, format("ucx: poll: %s", std::strerror(errno)));
  }
  if ((fds[2].revents & POLLIN) != 0) rendezvous::take_wake(wake_);
  (void)progress_control();
  (void)progress();
  return {};
}

}  // namespace gradwire::ucx
