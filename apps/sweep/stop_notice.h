// What the terminal says when Ctrl-C or a SIGTERM ends a sweep.
#pragma once

#include <string>

namespace gradwire {

// While it exists, SIGINT and SIGTERM write `text` and a line end to standard error before they end
// the process as they would without it. "" changes nothing. One at a time.
class StopNotice {
 public:
  explicit StopNotice(const std::string& text);
  ~StopNotice();
  StopNotice(const StopNotice&) = delete;
  StopNotice& operator=(const StopNotice&) = delete;

 private:
  bool active_;
};

}  // namespace gradwire
