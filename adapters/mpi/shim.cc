#include "adapters/mpi/shim.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <utility>

#include "base/text.h"

namespace gradwire::mpi {
namespace {

// Each has a transport of its own, with its threads and descriptors.
constexpr std::size_t kMostCommunicators = 16;
static_assert(kCalls <= 32);

// The C interface of MPI leaves no other place for what its functions share.
std::unique_ptr<Shim>& the_shim() {
  static std::unique_ptr<Shim> shim;
  return shim;
}

int on_free(MPI_Comm, int, void* member, void*) {
  if (Shim* shim = Shim::get()) shim->forget(static_cast<const Member*>(member));
  return MPI_SUCCESS;
}

// MPI_Finalize deletes the attributes of MPI_COMM_SELF before it does anything else, those that
// were set first last.
int on_end(MPI_Comm, int, void*, void*) {
  if (Shim* shim = Shim::get()) shim->end();
  the_shim().reset();
  return MPI_SUCCESS;
}

// "ucx 1.13.1: ...": what a communicator says that it runs over.
std::string transport_of(const Member& member) {
  const std::string text = member.describe();
  const std::size_t over = text.find(" over ");
  return over == std::string::npos ? text : text.substr(over + 6);
}

// Several ranks that are all of this job: between jobs that have met later (MPI_Comm_spawn,
// MPI_Comm_connect) nothing is known to be alike.
bool eligible(MPI_Comm comm) {
  int inter = 0, size = 0;
  if (PMPI_Comm_test_inter(comm, &inter) != MPI_SUCCESS || inter != 0) return false;
  if (PMPI_Comm_size(comm, &size) != MPI_SUCCESS || size < 2) return false;
  MPI_Group group = MPI_GROUP_NULL, world = MPI_GROUP_NULL;
  PMPI_Comm_group(comm, &group);
  PMPI_Comm_group(MPI_COMM_WORLD, &world);
  std::vector<int> ranks(static_cast<std::size_t>(size)), in_world(ranks.size());
  for (int r = 0; r < size; ++r) ranks[static_cast<std::size_t>(r)] = r;
  PMPI_Group_translate_ranks(group, size, ranks.data(), world, in_world.data());
  PMPI_Group_free(&group);
  PMPI_Group_free(&world);
  return std::ranges::find(in_world, MPI_UNDEFINED) == in_world.end();
}

[[noreturn]] void end_job(const Status& why) {
  std::fprintf(stderr, "gradwire mpi: error: %s\n", std::string(why.message()).c_str());
  // MPICH's launcher throws away what it has not read yet when a process aborts.
  std::this_thread::sleep_for(std::chrono::seconds(1));
  PMPI_Abort(MPI_COMM_WORLD, 2);
  std::abort();
}

// An MPI that does not understand its launcher runs every process as a job of one, without a word.
Status check_ranks(int launched) {
  int size = 0;
  PMPI_Comm_size(MPI_COMM_WORLD, &size);
  if (launched == 0 || size == launched) return {};
  return {Code::kInvalidArgument,
          format("this MPI (%s) has %d of the launcher's %d processes in MPI_COMM_WORLD (expected "
                 "all: start the program with the launcher of the MPI that it links)",
                 GW_MPI_NAME, size, launched)};
}

}  // namespace

void Shim::start() {
  const Result<Settings> settings = read_settings(environment);
  if (!settings.has_value()) end_job(settings.error());
  const Result<Supervision> supervision = read_supervision(environment);
  if (!supervision.has_value()) end_job(supervision.error());
  const Status alone = check_ranks(supervision.value().launched_ranks);
  if (!alone.ok()) end_job(alone);
  the_shim().reset(new Shim(settings.value(), supervision.value()));
}

Shim* Shim::get() { return the_shim().get(); }

Shim::Shim(const Settings& settings, Supervision supervision)
    : settings_(settings), supervision_(std::move(supervision)), pid_(getpid()) {
  PMPI_Comm_rank(MPI_COMM_WORLD, &rank_);
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_free, &keyval_, nullptr);
  PMPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, on_end, &self_keyval_, nullptr);
  PMPI_Comm_set_attr(MPI_COMM_SELF, self_keyval_, nullptr);
  PMPI_Add_error_class(&error_class_);
  PMPI_Add_error_string(error_class_, "gradwire: a collective failed");
}

// Without MPI_Finalize a program that exits comes here.
Shim::~Shim() {
  if (getpid() == pid_) return;
  // A child of fork() has the objects, but not their threads.
  for (auto& member : members_) static_cast<void>(member.release());
}

Member* Shim::known_member_of(MPI_Comm comm) const {
  void* known = nullptr;
  int there = 0;
  if (comm == MPI_COMM_NULL ||
      PMPI_Comm_get_attr(comm, keyval_, static_cast<void*>(&known), &there) != MPI_SUCCESS)
    return nullptr;
  return there != 0 ? static_cast<Member*>(known) : nullptr;
}

Member* Shim::member_of(MPI_Comm comm) {
  if (comm == MPI_COMM_NULL) return nullptr;
  if (Member* known = known_member_of(comm)) return known;
  bool room = false;
  {
    const std::lock_guard lock(mutex_);
    room = carrying_ < kMostCommunicators;
    // Room is taken before it is used: another thread may join on another communicator meanwhile.
    if (room) ++carrying_;
  }
  auto member = std::make_unique<Member>();
  if (eligible(comm)) {
    auto joined = join(comm, settings_, room, &progress_);
    joined.has_value() ? member.swap(joined.value()) : warn(joined.error());
  }
  Member* made = member.get();
  {
    const std::lock_guard lock(mutex_);
    if (room && !made->active()) --carrying_;
    if (made->active() && ever_++ == 0) first_ = transport_of(*made);
    members_.push_back(std::move(member));
  }
  PMPI_Comm_set_attr(comm, keyval_, made);
  return made;
}

// Once for the same on one communicator after another.
void Shim::warn(const Status& failure) {
  const std::lock_guard lock(mutex_);
  if (warned_ == failure.message()) return;
  warned_ = failure.message();
  std::fprintf(stderr, "gradwire mpi: warning: left to MPI: %s\n", warned_.c_str());
}

void Shim::forget(const Member* member) {
  pending_.finish_all_of(member);
  std::unique_ptr<Member> gone;  // ends outside of the lock: it waits for its thread
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(members_, member, &std::unique_ptr<Member>::get);
  if (found == members_.end()) return;
  if (member->active()) --carrying_;
  gone = std::move(*found);
  members_.erase(found);
}

void Shim::count(Call call, bool carried, std::int64_t bytes) {
  Tally& tally = (carried ? carried_ : left_)[static_cast<std::size_t>(call)];
  tally.calls.fetch_add(1, std::memory_order_relaxed);
  tally.bytes.fetch_add(static_cast<std::uint64_t>(bytes), std::memory_order_relaxed);
}

int Shim::raise(MPI_Comm comm, Member& member, Call call, const Status& status) {
  const std::string text =
      format("gradwire: %s: %s", name_of(call), std::string(status.message()).c_str());
  const int code = member.error_code(error_class_, text);
  PMPI_Comm_call_errhandler(comm, code);
  return code;
}

void Shim::end() {
  if (settings_.verbose && rank_ == 0) report();
  if (recorder() != nullptr) {
    const Status written = recorder_.write(supervision_.record_folder, rank_);
    if (!written.ok())
      std::fprintf(stderr, "gradwire mpi: error: %s\n", std::string(written.message()).c_str());
  }
  const std::lock_guard lock(mutex_);
  members_.clear();
}

void Shim::report() const {
  const std::lock_guard lock(mutex_);
  std::fprintf(stderr, "gradwire mpi: communicators carried: %d%s%s\n", ever_,
               ever_ > 0 ? ", the first over " : "", first_.c_str());
  for (std::size_t i = 0; i < kCalls; ++i) {
    const auto carried = carried_[i].calls.load();
    const auto left = left_[i].calls.load();
    if (carried + left == 0) continue;
    std::fprintf(stderr,
                 "gradwire mpi: %s: carried %llu calls, %llu bytes; fell through %llu calls, %llu "
                 "bytes\n",
                 name_of(static_cast<Call>(i)), static_cast<unsigned long long>(carried),
                 static_cast<unsigned long long>(carried_[i].bytes.load()),
                 static_cast<unsigned long long>(left),
                 static_cast<unsigned long long>(left_[i].bytes.load()));
  }
  std::fflush(stderr);
}

Interception::Interception(Call call, MPI_Comm comm)
    : Interception(call, comm, Shim::get(), nullptr) {
  if (shim_ != nullptr) member_ = shim_->member_of(comm);
}

Interception::Interception(Call call, MPI_Comm comm, Shim* shim, Member* member)
    : call_(call),
      comm_(comm),
      shim_(shim),
      member_(member),
      begin_(std::chrono::steady_clock::now()) {}

Interception Interception::of_nonblocking(Call call, MPI_Comm comm) {
  Shim* shim = Shim::get();
  return {call, comm, shim, shim != nullptr ? shim->known_member_of(comm) : nullptr};
}

Interception::~Interception() {
  Recorder* recorder = shim_ != nullptr ? shim_->recorder() : nullptr;
  if (recorder == nullptr) return;
  recorder->add({call_, bytes_, size(), carried_}, std::chrono::steady_clock::now() - begin_);
}

int Interception::size() const {
  if (possible()) return member_->size();
  int size = 0;
  if (comm_ == MPI_COMM_NULL || PMPI_Comm_size(comm_, &size) != MPI_SUCCESS) return 0;
  return size;
}

int Interception::run(const OpCall& operation) {
  const Status status = member_->run(operation);
  return status.ok() ? MPI_SUCCESS : shim_->raise(comm_, *member_, call_, status);
}

int Interception::carry(const OpCall& operation, std::int64_t bytes) {
  const int code = run(operation);
  if (code != MPI_SUCCESS) return code;
  shim_->count(call_, true, bytes);
  bytes_ = bytes;
  carried_ = true;
  return MPI_SUCCESS;
}

int Interception::start(const OpCall& operation, std::int64_t bytes, MPI_Request* request,
                        std::vector<FlatRows> rows, bool unpack) {
  auto work = member_->start(operation);
  if (!work.has_value()) return shim_->raise(comm_, *member_, call_, work.error());
  shim_->count(call_, true, bytes);
  bytes_ = bytes;
  carried_ = true;
  return shim_->pending().add(
      {call_, comm_, member_, std::move(work).value(), std::move(rows), unpack}, request);
}

void Interception::leave(std::int64_t bytes) {
  if (shim_ == nullptr) return;
  shim_->count(call_, false, bytes);
  bytes_ = bytes;
}

}  // namespace gradwire::mpi
