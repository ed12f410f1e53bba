#include "apps/run/run.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>

#include "apps/flags.h"
#include "apps/flight_folder.h"
#include "apps/job.h"
#include "apps/run/job.h"
#include "base/files.h"
#include "base/text.h"
#include "comm/rendezvous/hmac.h"

namespace gradwire {
namespace {

constexpr int kMaxRanks = 1024;

// The file's text without the line end that editors leave; refused when others can read it.
Result<std::string> read_secret(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0)
    return Status(Code::kInvalidArgument, format("run: cannot read --secret-file %s (%s)",
                                                 path.c_str(), std::strerror(errno)));
  if ((info.st_mode & (S_IRWXG | S_IRWXO)) != 0)
    return Status(Code::kInvalidArgument,
                  format("run: --secret-file %s is open to others (got mode %03o, expected 600)",
                         path.c_str(), info.st_mode & 0777U));
  auto read = read_text(path);
  if (!read.has_value()) return read.error().with_context("run: --secret-file");
  std::string secret = std::move(read).value();
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  const bool fits =
      secret.size() >= 16 && secret.size() <= 4096 && secret.find('\0') == std::string::npos;
  if (!fits)
    return Status(Code::kInvalidArgument,
                  format("run: --secret-file %s must hold 16 to 4096 bytes of text (got %zu)",
                         path.c_str(), secret.size()));
  return secret;
}

// Files that are opened later must not become standard input, output or error by accident. What is
// written to one that was closed is lost, and an error.
void occupy_standard_files() {
  int fd = ::open("/dev/null", O_RDONLY);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDONLY);
  if (fd > STDERR_FILENO) ::close(fd);
}

// The launcher's own words: -n is --ranks for short.
std::vector<std::string> long_words(std::vector<std::string> words) {
  for (std::string& word : words) {
    if (word == "-n") {
      word = "--ranks";
    } else if (word.starts_with("-n") && word.size() > 2) {
      word = "--ranks=" + word.substr(word[2] == '=' ? 3 : 2);
    }
  }
  return words;
}

}  // namespace

Result<int> run_command(const std::vector<std::string>& args) {
  const auto dashes = std::find(args.begin(), args.end(), "--");
  std::int64_t ranks = 1;
  double timeout = 0;
  RunOptions options;
  std::string secret_file;
  Flags flags("run",
              "Starts the ranks of a job on this machine and prints their output, line by line, as "
              "'rank R | text'. Exits with the status of the first rank that failed (128 + N if "
              "signal N killed it), 124 after --timeout, 128 + N after signal N, 126 or 127 where "
              "the program cannot be executed or found. Ranks that a signal or --timeout ends have "
              "--deadline and 2 s more to save and to report; a second signal kills them.");
  flags.trailer("-- PROGRAM [ARG ...]");
  flags.integer("ranks", ranks, {1, kMaxRanks}, "number of ranks to start; short: -n", "required");
  flags.number("timeout", timeout, {0, 1e9}, "time limit of the job, in seconds", "none");
  flags.number("deadline", options.deadline, {0.1, 1e9},
               "timeout of one communication operation of the ranks, in seconds; after a failure "
               "the other ranks have 2 s more to report");
  flags.file("secret-file", secret_file,
             "file with the secret of the rendezvous, 16 bytes or more, mode 600",
             "a random secret");
  flags.folder("flight", options.flight,
               "folder for flight records: the last operations of each rank, written on failure "
               "(gradwire inspect flight reads them)",
               "GRADWIRE_FLIGHT, else none");
  flags.toggle("plain", options.plain, "no 'rank R | ' before the ranks' lines");
  flags.example("gradwire run -n 2 -- gradwire train --steps 5");
  GW_ASSIGN(const Flags::Outcome outcome, flags.parse(long_words({args.begin(), dashes})));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (!flags.given("ranks"))
    return Status(Code::kInvalidArgument, "run: -n is missing (expected the number of ranks)");
  if (dashes == args.end() || dashes + 1 == args.end())
    return Status(Code::kInvalidArgument,
                  "run: PROGRAM is missing (expected gradwire run -n N -- PROGRAM ARGS...)");
  GW_TRY(check_settings(transport_from_environment()));
  GW_TRY(check_flight_folder(options.flight));
  options.ranks = static_cast<int>(ranks);
  if (flags.given("timeout") && timeout > 0) options.timeout = timeout;
  options.command.assign(dashes + 1, args.end());
  if (secret_file.empty()) {
    options.secret = rendezvous::random_hex(32);
  } else {
    GW_ASSIGN(options.secret, read_secret(secret_file));
  }

  occupy_standard_files();
  std::fflush(stdout);
  Job job(options);
  const Result<JobResult> verdict = job.run();
  if (!verdict.has_value()) {
    std::fprintf(stderr, "gradwire: error: run: %s\n",
                 std::string(verdict.error().message()).c_str());
    return verdict.error().code() == Code::kUnsupported ? 127 : 126;  // as a shell says it
  }
  if (!verdict.value().message.empty())
    std::fprintf(stderr, "gradwire: error: %s\n", verdict.value().message.c_str());
  return verdict.value().exit_status;
}

}  // namespace gradwire
