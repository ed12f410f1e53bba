#include "apps/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr int kBarCells = 24;

int columns_of(std::FILE* out) {
  winsize size{};
  const bool known = ioctl(fileno(out), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : 80;
}

}  // namespace

std::string clock_text(double seconds) {
  const auto whole = static_cast<long long>(seconds + 0.5);
  const long long hours = whole / 3600;
  const long long minutes = whole / 60 % 60;
  if (hours > 0) return format("%lld:%02lld:%02lld", hours, minutes, whole % 60);
  return format("%lld:%02lld", minutes, whole % 60);
}

Progress::Style Progress::style_for(std::FILE* out) {
  return isatty(fileno(out)) == 1 ? Style::kBar : Style::kLines;
}

Progress::Progress(std::FILE* out, Style style, std::string label, std::int64_t total, int lines,
                   Unit unit)
    : out_(out),
      style_(style),
      label_(std::move(label)),
      total_(std::max<std::int64_t>(total, 1)),
      unit_(unit),
      line_every_(std::max<std::int64_t>((total_ + lines - 1) / lines, 1)),
      next_line_(std::min(line_every_, total_)) {}

Progress::~Progress() {
  if (open_) std::fputc('\n', out_);
}

std::string Progress::time_left(std::int64_t done) const {
  if (done <= 0) return "?";
  const double elapsed = std::chrono::duration<double>(Clock::now() - start_).count();
  return clock_text(elapsed / static_cast<double>(done) * static_cast<double>(total_ - done));
}

void Progress::update(std::int64_t done, const std::string& text) {
  if (style_ == Style::kBar) draw_bar(done, text);
  if (style_ == Style::kLines) print_line(done, text);
}

void Progress::draw_bar(std::int64_t done, const std::string& text) {
  const auto now = Clock::now();
  if (done < total_ && now - drawn_ < std::chrono::milliseconds(100)) return;
  drawn_ = now;
  const int full = static_cast<int>(kBarCells * std::min(done, total_) / total_);
  std::string line = label_ + " [" + std::string(static_cast<std::size_t>(full), '#') +
                     std::string(static_cast<std::size_t>(kBarCells - full), '.') + "] " +
                     format("%3lld%%", static_cast<long long>(100 * done / total_)) + "  " +
                     (done < total_ ? "ETA " + time_left(done) + "  " : "") + text;
  const auto room = static_cast<std::size_t>(std::max(columns_of(out_) - 1, 20));
  if (line.size() > room) line.resize(room);
  std::fprintf(out_, "\r\033[K%s", line.c_str());
  open_ = done < total_;
  if (!open_) std::fputc('\n', out_);
  std::fflush(out_);
}

void Progress::print_line(std::int64_t done, const std::string& text) {
  if (done < next_line_) return;
  next_line_ = (done / line_every_ + 1) * line_every_;
  if (total_ - next_line_ < line_every_ / 2) next_line_ = std::max(total_, done + 1);
  const std::string where =
      unit_ == Unit::kPercent
          ? format("%lld %%", static_cast<long long>(100 * done / total_))
          : format("%lld/%lld", static_cast<long long>(done), static_cast<long long>(total_));
  std::fprintf(out_, "%s %s  %s%s\n", label_.c_str(), where.c_str(), text.c_str(),
               done < total_ ? ("  ETA " + time_left(done)).c_str() : "");
  std::fflush(out_);
}

}  // namespace gradwire
