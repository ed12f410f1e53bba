// Outcomes as values. gradwire throws no exception of its own: a function that can fail returns
// Status or Result<T>, and the compiler warns when that is ignored. A Status may be copied between
// threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

namespace gradwire {

// The kind of a failure, for programs to branch on. The message has the details, for people.
enum class Code : std::uint8_t {
  kOk,               // success
  kInvalidArgument,  // wrong input from the caller; a retry with the same input fails again
  kUnsupported,      // valid input that this build, machine or device cannot serve
  kOutOfMemory,      // no GPU or pinned memory left, or received lengths exceed the host's memory;
                     // std::bad_alloc of other host allocations passes through
  kPeerLost,         // a rank ended, stopped or closed; the communicator is unusable
  kTimedOut,         // a deadline passed. If an operation's: the communicator is unusable. If that
                     // of Work::wait(): the operation continues
  kCancelled,        // Work::cancel(), Communicator::abort() or the communicator's destruction
                     // ended the operation
  kCorruptPayload,   // received bytes contradict their own header or checksum
  kRankMismatch,     // ranks passed different operations, sizes or element types
  kInternal,         // a bug in gradwire
};

// "invalid argument", "peer lost", ...: the text for messages. Valid for the program's life.
std::string_view to_string(Code code);

// The outcome of an operation. Copyable; success allocates nothing. Immutable, so any thread may
// read it.
class [[nodiscard]] Status {
 public:
  // Success.
  Status() = default;
  // A failure, with one sentence that names the object, what was got and what was expected.
  Status(Code code, std::string message)
      : rep_(std::make_shared<const Rep>(Rep{code, std::move(message)})) {}

  // True for success.
  bool ok() const { return rep_ == nullptr; }
  // The kind of failure; kOk for success.
  Code code() const { return ok() ? Code::kOk : rep_->code; }
  // The sentence; "ok" for success. Valid as long as a copy of this Status.
  std::string_view message() const { return ok() ? std::string_view("ok") : rep_->message; }

  // A copy with "context: " in front of the message. Success stays success. Never fails.
  Status with_context(std::string_view context) const;

 private:
  struct Rep {
    Code code;
    std::string message;
  };
  std::shared_ptr<const Rep> rep_;  // null means ok: success never allocates
};

// A value of type T, or the Status that says why there is none. The names are those of C++23's
// std::expected.
template <typename T>
class [[nodiscard]] Result {
 public:
  // Success. Implicit, so that a function may `return value;`.
  Result(T value)
      : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  // Failure. Implicit, so that a function may `return status;`. A Status of success is replaced by
  // kInternal, since it would say neither.
  Result(Status error)  // NOLINT(google-explicit-constructor)
      : state_(std::in_place_index<1>, error.ok()
                                           ? Status(Code::kInternal, "neither a value nor an error")
                                           : std::move(error)) {}

  // True for success.
  bool has_value() const { return state_.index() == 0; }
  // The failure; success if has_value(). Never fails.
  Status error() const { return has_value() ? Status() : std::get<1>(state_); }
  // The value. Requires has_value(), and throws std::bad_variant_access otherwise.
  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }

 private:
  std::variant<T, Status> state_;
};

// GW_TRY(expr): evaluates `expr`, a Status, and returns it from the enclosing function unless it is
// success.
#define GW_TRY(expr)                                                              \
  do {                                                                            \
    if (::gradwire::Status gw_status = (expr); !gw_status.ok()) return gw_status; \
  } while (false)

// GW_ASSIGN(auto group, world.split(color, key)): evaluates a Result; declares `group` with its
// value, or returns its error from the enclosing function. GW_JOIN, GW_JOIN_NOW and
// GW_ASSIGN_AS are its parts.
#define GW_ASSIGN(decl, expr) GW_ASSIGN_AS(decl, expr, GW_JOIN(gw_result_, __LINE__))
#define GW_JOIN(a, b) GW_JOIN_NOW(a, b)
#define GW_JOIN_NOW(a, b) a##b
#define GW_ASSIGN_AS(decl, expr, tmp)       \
  auto tmp = (expr);                        \
  if (!tmp.has_value()) return tmp.error(); \
  decl = std::move(tmp).value()

}  // namespace gradwire
