#include "apps/report/picture.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <sstream>
#include <thread>

#include "apps/environment.h"
#include "apps/sweep/child.h"
#include "apps/sweep/run_record.h"
#include "apps/whole_file.h"
#include "base/text.h"

namespace gradwire {
namespace {

namespace fs = std::filesystem;

constexpr int kWidth = 1600;     // CSS pixels: a whole table, three charts side by side
constexpr int kTallest = 16000;  // what a browser paints in one picture
constexpr double kBrowserSeconds = 60;

// A folder for the browser's profile and words, that goes when the pictures are there.
class Workplace {
 public:
  Workplace() : path_((fs::temp_directory_path() / "gradwire-picture-XXXXXX").string()) {
    if (::mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~Workplace() {
    std::error_code ignored;
    if (!path_.empty()) fs::remove_all(path_, ignored);
  }
  Workplace(const Workplace&) = delete;
  Workplace& operator=(const Workplace&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

Result<std::string> run_browser(const std::string& browser, const Workplace& place,
                                const std::vector<std::string>& words) {
  std::vector<std::string> argv{browser,
                                "--headless",
                                "--no-sandbox",
                                "--disable-gpu",
                                "--hide-scrollbars",
                                "--force-color-profile=srgb",
                                "--blink-settings=preferredColorScheme=1",
                                "--user-data-dir=" + place.path() + "/profile"};
  argv.insert(argv.end(), words.begin(), words.end());
  const std::string log = place.path() + "/log";
  GW_ASSIGN(Child child, Child::start(argv, log));
  const auto until =
      std::chrono::steady_clock::now() + std::chrono::duration<double>(kBrowserSeconds);
  for (;;) {
    if (const auto status = child.poll()) {
      if (*status == 0) return read_whole_file(log);
      return Status(Code::kInternal, format("'%s' ended with status %d (%s)", browser.c_str(),
                                            *status, words_of(log).c_str()));
    }
    if (std::chrono::steady_clock::now() > until)
      return Status(Code::kTimedOut,
                    format("'%s' took over %.0f s", browser.c_str(), kBrowserSeconds));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

// The page says how tall it is once it is drawn.
int height_in(const std::string& dom) {
  constexpr std::string_view kMark = "data-height=\"";
  const std::size_t at = dom.find(kMark);
  if (at == std::string::npos) return 0;
  const std::size_t begin = at + kMark.size();
  const auto height = to_int(dom.substr(begin, dom.find('"', begin) - begin));
  return static_cast<int>(std::clamp<std::int64_t>(height.value_or(0), 0, kTallest));
}

Status take(const std::string& browser, const Workplace& place, const std::string& url,
            const std::string& file) {
  const std::string width = std::to_string(kWidth);
  GW_ASSIGN(const std::string dom,
            run_browser(browser, place, {"--dump-dom", "--window-size=" + width + ",900", url}));
  const int height = height_in(dom);
  if (height == 0) return {Code::kInternal, "'" + browser + "' did not draw '" + url + "'"};
  std::error_code ignored;
  fs::remove(file, ignored);
  const auto done = run_browser(
      browser, place,
      {"--screenshot=" + file, "--window-size=" + width + "," + std::to_string(height), url});
  if (!done.has_value()) return done.error();
  if (!fs::exists(file, ignored))
    return {Code::kInternal, "'" + browser + "' left no picture '" + file + "' (" +
                                 words_of(place.path() + "/log") + ")"};
  return {};
}

}  // namespace

Result<std::string> find_browser() {
  if (const auto named = environment("GRADWIRE_CHROMIUM")) return *named;
  std::istringstream folders(environment("PATH").value_or("/usr/bin:/bin"));
  std::vector<std::string> places;
  for (std::string folder; std::getline(folders, folder, ':');) places.push_back(folder);
  for (const char* name : {"chromium", "chromium-browser", "google-chrome", "chrome"}) {
    for (const std::string& folder : places) {
      const std::string path = folder + "/" + name;
      if (::access(path.c_str(), X_OK) == 0) return path;
    }
  }
  return Status(Code::kUnsupported,
                "PNG pictures need a Chromium (none of chromium, chromium-browser, google-chrome, "
                "chrome is in PATH; Debian: chromium; GRADWIRE_CHROMIUM names another)");
}

Status take_pictures(const std::string& browser, const std::string& page,
                     const std::vector<std::string>& parts, const std::string& directory) {
  const Workplace place;
  if (place.path().empty()) return {Code::kInternal, "cannot make a temporary folder"};
  std::error_code ignored;
  const std::string url = "file://" + fs::absolute(page, ignored).string();
  const std::string folder = fs::absolute(directory, ignored).string();
  GW_TRY(take(browser, place, url, folder + "/report.png"));
  for (const std::string& part : parts)
    GW_TRY(take(browser, place, url + "#only=" + part, folder + "/" + part + ".png"));
  return {};
}

}  // namespace gradwire
