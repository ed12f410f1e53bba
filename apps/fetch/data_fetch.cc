#include "apps/fetch/data_fetch.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "apps/fetch/download.h"
#include "apps/flags.h"
#include "apps/progress.h"
#include "base/nearest.h"

namespace gradwire {
namespace {

struct Figures {
  const char* name;
  std::int64_t bytes;
  const char* sha256;
};

// Source: Xiao, Rasul, Vollgraf, "Fashion-MNIST: a novel image dataset for benchmarking machine
// learning algorithms", 2017. The set's own page publishes md5 sums of the same files.
constexpr Figures kFashionMnist[] = {
    {"train-images-idx3-ubyte.gz", 26421880,
     "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84"},
    {"train-labels-idx1-ubyte.gz", 29515,
     "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845"},
    {"t10k-images-idx3-ubyte.gz", 4422102,
     "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073"},
    {"t10k-labels-idx1-ubyte.gz", 5148,
     "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5"},
};
constexpr const char* kFashionMnistHomes[] = {
    "https://raw.githubusercontent.com/zalandoresearch/fashion-mnist/master/data/fashion",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
};

std::vector<RemoteFile> files_from(const std::vector<std::string>& homes) {
  std::vector<RemoteFile> files;
  for (const Figures& figures : kFashionMnist) {
    RemoteFile file{figures.name, {}, figures.bytes, figures.sha256};
    for (const std::string& home : homes) file.urls.push_back(home + "/" + figures.name);
    files.push_back(std::move(file));
  }
  return files;
}

Status fetch_all(const std::vector<RemoteFile>& files, const std::string& folder, bool json) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    return {Code::kInvalidArgument,
            "data fetch: cannot create the folder '" + folder + "': " + error.message()};
  }
  for (const RemoteFile& file : files) {
    std::FILE* const out = json ? stderr : stdout;
    Progress bar(out, Progress::style_for(out), file.name, file.bytes, 4);
    DownloadOptions options;
    options.progress = [&bar](std::int64_t bytes) { bar.update(bytes, "bytes"); };
    const auto outcome = fetch_file(file, folder, options);
    if (!outcome.has_value()) {
      return {outcome.error().code(),
              "data fetch: " + std::string(outcome.error().message()) +
                  "; the same command resumes a broken transfer; files put into '" + folder +
                  "' by other means are taken too"};
    }
    if (json) {
      const bool fetched = outcome.value() == FetchOutcome::kFetched;
      const nlohmann::ordered_json line{
          {"kind", "file"},      {"name", file.name},     {"path", folder + "/" + file.name},
          {"bytes", file.bytes}, {"sha256", file.sha256}, {"fetched", fetched}};
      std::printf("%s\n", line.dump().c_str());
      continue;
    }
    std::printf("%s  %s\n", file.name.c_str(),
                outcome.value() == FetchOutcome::kAlreadyThere ? "present, checksum right"
                                                               : "fetched, checksum right");
  }
  return {};
}

Result<int> fetch(const std::vector<std::string>& args) {
  std::string set;
  std::string out;
  std::string url;
  bool json = false;
  Flags flags(
      "data fetch",
      "Downloads a data set and verifies the SHA-256 of every file. Interrupted transfers are "
      "resumed.");
  flags.positional("SET", set, "fashion-mnist (60,000 + 10,000 grey images, 30 MB)", false,
                   {"fashion-mnist"});
  flags.folder("out", out, "folder for the files, created if missing", "data/SET");
  flags.text("url", url, "web folder with the files", "the set's home, then its mirror", "URL");
  flags.toggle("json", json, "one JSON line per file");
  flags.example("gradwire data fetch fashion-mnist --out data/fashion-mnist");
  GW_ASSIGN(const auto outcome, flags.parse(args));
  if (outcome == Flags::Outcome::kHelp) return 0;
  if (set != "fashion-mnist") {
    return Status(Code::kInvalidArgument, "data fetch: unknown SET '" + set + "'" +
                                              did_you_mean(set, {"fashion-mnist"}) +
                                              " (expected fashion-mnist)");
  }
  if (out.empty()) out = "data/" + set;
  std::vector<std::string> homes(std::begin(kFashionMnistHomes), std::end(kFashionMnistHomes));
  if (!url.empty()) homes = {url};
  GW_TRY(fetch_all(files_from(homes), out, json));
  if (!json)
    std::printf("ready: gradwire train --data %s --data-dir %s\n", set.c_str(), out.c_str());
  return 0;
}

constexpr std::array kActions{Command{"fetch", "download of a data set", fetch}};

}  // namespace

const CommandGroup& data_group() {
  static const CommandGroup group{
      .name = "data",
      .word = "ACTION",
      .purpose = "Downloads data sets. gradwire inspect data lists them.",
      .commands = kActions,
      .example = "gradwire inspect data"};
  return group;
}

Result<int> data_command(const std::vector<std::string>& args) {
  return run_group(data_group(), args);
}

}  // namespace gradwire
