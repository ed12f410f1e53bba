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
                  format("run: --secret-file %s can be used by others (mode %03o seen; 600 wanted)",
                         path.c_str(), info.st_mode & 0777U));
  auto read = read_text(path);
  if (!read.has_value()) return read.error().with_context("run: --secret-file");
  std::string secret = std::move(read).value();
  while (!secret.empty() && (secret.back() == '\n' || secret.back() == '\r')) secret.pop_back();
  const bool fits =
      secret.size() >= 16 && secret.size() <= 4096 && secret.find('\0') == std::string::npos;
  if (!fits)
    return Status(Code::kInvalidArgument,
                  format("run: --secret-file %s holds %zu bytes (wanted: 16..4096 of text)",
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
  Flags flags(
      "run",
      "Starts the ranks of a job on this machine: gradwire run -n 4 -- PROGRAM ARGS...\n"
      "Their output comes line by line as 'rank R | text'. Exits with the status of the "
      "first rank that failed (128 + signal for a killed one), 124 after --timeout, 128 + "
      "signal after one to gradwire run, 1 where the ranks' output cannot be written.\n"
      "Ranks that a signal or --timeout ends have --deadline and 2 s more to save what they "
      "have and to report; a second signal kills them.");
  flags.integer("ranks", ranks, {1, kMaxRanks}, "how many ranks to start; -n for short",
                "required");
  flags.number("timeout", timeout, {0, 1e9}, "seconds after which the job is ended", "none");
  flags.number(
      "deadline", options.deadline, {0.1, 1e9},
      "seconds that one operation of the ranks may take; when a rank fails, or all are to end, the "
      "others get 2 s more to report");
  flags.text("secret-file", secret_file,
             "file (mode 600) with the secret of the rendezvous, 16 bytes or more",
             "a random secret");
  flags.text("flight", options.flight,
             "folder for what each rank did last, should the job fail; gradwire inspect flight "
             "reads it",
             "GRADWIRE_FLIGHT, else none");
  flags.toggle("plain", options.plain, "the ranks' lines as they are, without their rank");
  GW_ASSIGN(const Flags::Outcome outcome, flags.parse(long_words({args.begin(), dashes})));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (!flags.given("ranks"))
    return Status(Code::kInvalidArgument, "run: -n is not given (wanted: the number of ranks)");
  if (dashes == args.end() || dashes + 1 == args.end())
    return Status(Code::kInvalidArgument,
                  "run: no program (wanted: gradwire run -n N -- PROGRAM ARGS...)");
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
  const Result<Verdict> verdict = job.run();
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
