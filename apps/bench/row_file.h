// Result rows for programs, each with the machine it was measured on: JSON lines, CSV, or both.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "apps/machine.h"
#include "base/files.h"
#include "gradwire/status.h"

namespace gradwire {

// As a path: rows go to standard output, and no table does.
inline constexpr std::string_view kStandardOutput = "-";

class RowFile {
 public:
  // Replaces what was there; an empty path makes a file that drops every row, kStandardOutput
  // stands for standard output.
  static Result<RowFile> create(const std::string& json_path, const std::string& csv_path = "");

  // Adds the machine's facts and writes one line to each file. The CSV's columns are the first
  // row's keys, so all rows should have the same.
  Status write(nlohmann::ordered_json row);

 private:
  struct Output {
    File file;  // null: drops, or standard output
    std::string path;
  };
  static Result<Output> open(const std::string& path);
  static Status put(const Output& output, const std::string& line);

  Output json_;
  Output csv_;
  bool has_heading_ = false;
  Machine machine_ = machine();
};

}  // namespace gradwire
