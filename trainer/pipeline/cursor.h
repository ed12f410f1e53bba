// Where a reader stands in a text of lines: errors name the place.
#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "base/text.h"
#include "gradwire/status.h"

namespace gradwire {

class PipelineCursor {
 public:
  explicit PipelineCursor(std::string_view text) : rest_(text) {}

  // Steps to the next line, without its end ("\n" or "\r\n"); false behind the last one.
  bool next_line() {
    if (rest_.empty()) return false;
    const std::size_t end = rest_.find('\n');
    line_ = rest_.substr(0, end);
    rest_.remove_prefix(end == rest_.npos ? rest_.size() : end + 1);
    if (line_.ends_with('\r')) line_.remove_suffix(1);
    at_ = 0;
    ++number_;
    return true;
  }
  std::string_view line() const { return line_; }
  int number() const { return number_; }

  // The next word between blanks; empty at the line's end or before a comment.
  std::string_view word() {
    while (at_ < line_.size() && is_blank(line_[at_])) ++at_;
    const std::size_t begin = at_;
    if (at_ < line_.size() && line_[at_] == '#') return line_.substr(at_, 0);
    while (at_ < line_.size() && !is_blank(line_[at_])) ++at_;
    return line_.substr(begin, at_ - begin);
  }

  // The next cell between commas, without blanks around it; false at the line's end.
  bool cell(std::string_view& found) {
    if (at_ > line_.size()) return false;
    std::size_t end = std::min(line_.find(',', at_), line_.size());
    std::size_t begin = at_;
    at_ = end + 1;
    while (begin < end && is_blank(line_[begin])) ++begin;
    while (begin < end && is_blank(line_[end - 1])) --end;
    found = line_.substr(begin, end - begin);
    return true;
  }

  // `seen`: a part of line(), or empty: the end of it. Bytes that are not printable ASCII are shown
  // as \xNN: a terminal would take some for commands.
  Status error(std::string_view seen, std::string_view wanted) const {
    constexpr std::size_t kMostShown = 40;
    const std::size_t column = seen.data() == nullptr ? line_.size() : column_of(seen);
    const std::string got = seen.empty() ? "the end of the line"
                                         : "'" + printable(seen.substr(0, kMostShown)) +
                                               (seen.size() > kMostShown ? "...'" : "'");
    return {Code::kInvalidArgument,
            format("line %d, column %zu: got %s, expected %.*s", std::max(number_, 1), column + 1,
                   got.c_str(), static_cast<int>(wanted.size()), wanted.data())};
  }

 private:
  static bool is_blank(char c) { return c == ' ' || c == '\t'; }
  static std::string printable(std::string_view text) {
    std::string shown;
    for (const char c : text) {
      const bool is_printable = c >= ' ' && c <= '~';
      shown += is_printable
                   ? std::string(1, c)
                   : format("\\x%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
    return shown;
  }
  std::size_t column_of(std::string_view seen) const {
    return static_cast<std::size_t>(seen.data() - line_.data());
  }

  std::string_view rest_;
  std::string_view line_;
  std::size_t at_ = 0;
  int number_ = 0;
};

}  // namespace gradwire
