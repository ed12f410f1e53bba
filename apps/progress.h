// How far a long job is: a bar with the time left on a terminal, some plain lines elsewhere.
#pragma once

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

namespace gradwire {

// Not thread-safe. Writes to `out` alone.
class Progress {
 public:
  enum class Style : std::uint8_t { kSilent, kLines, kBar };
  // kBar when `out` is a terminal, else kLines.
  static Style style_for(std::FILE* out);

  // What plain lines count in.
  enum class Unit : std::uint8_t { kCount, kPercent };
  // label stands first on every line. total: steps or bytes, > 0. lines: how many plain lines a
  // whole job prints, about.
  Progress(std::FILE* out, Style style, std::string label, std::int64_t total, int lines = 12,
           Unit unit = Unit::kCount);
  // Ends an unfinished bar's line, so that an error message starts on its own.
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  // `done` of `total`; `text` says more, e.g. the loss. Redraws at most every 100 ms.
  void update(std::int64_t done, const std::string& text);

 private:
  using Clock = std::chrono::steady_clock;
  void draw_bar(std::int64_t done, const std::string& text);
  void print_line(std::int64_t done, const std::string& text);
  std::string time_left(std::int64_t done) const;

  std::FILE* out_;
  Style style_;
  std::string label_;
  std::int64_t total_;
  Unit unit_;
  std::int64_t line_every_;
  std::int64_t next_line_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point drawn_{};
  bool open_ = false;  // a bar stands on the current line
};

// "0:07", "12:30", "2:03:00".
std::string clock_text(double seconds);

}  // namespace gradwire
