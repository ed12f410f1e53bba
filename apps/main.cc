// The program gradwire: runs the command and prints its error, if any.
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <vector>

#include "apps/command.h"
#include "apps/variables.h"

namespace gradwire {
namespace {

int fail(std::string_view message) {
  std::fflush(stdout);
  std::fprintf(stderr, "gradwire: error: %.*s\n", static_cast<int>(message.size()), message.data());
  return 1;
}

// Sizes come from flags and files, so too large ones are the user's to hear of, in whatever thread
// they meet the end of memory.
[[noreturn]] void explain_and_end() {
  try {
    if (std::current_exception() != nullptr) throw;
  } catch (const std::bad_alloc&) {
    (void)fail("out of memory (an allocation failed); use a smaller size");
    std::_Exit(1);
  } catch (const std::system_error& refused) {  // mostly of threads, whose stacks take memory
    (void)fail(std::string("cannot start a thread (") + refused.what() +
               "); use fewer --threads or ranks, or raise the limit of memory or processes");
    std::_Exit(1);
  } catch (const std::exception& bug) {
    (void)fail(bug.what());
  }
  std::abort();
}

int run(const std::vector<std::string>& words) {
  warn_of_unknown_variables();
  const auto outcome = run_program(words);
  return outcome.has_value() ? outcome.value() : fail(outcome.error().message());
}

// What was printed and could not be written makes the program fail: a full disk must not look like
// an empty result. Why an earlier write failed is known by trying another one.
int check_output(int status) {
  const bool flushed = std::fflush(stdout) == 0;
  if (flushed && std::ferror(stdout) == 0) return status;
  const bool goes_on = flushed && ::write(STDOUT_FILENO, "\n", 1) == 1;
  const std::string reason = goes_on ? "earlier, for a while" : std::strerror(errno);
  const int failed = fail("cannot write to standard output (" + reason + ")");
  return status == 0 ? failed : status;
}

}  // namespace
}  // namespace gradwire

int main(int argc, char** argv) {
  std::set_terminate(gradwire::explain_and_end);
  return gradwire::check_output(gradwire::run({argv + 1, argv + argc}));
}
