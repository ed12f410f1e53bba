// Result rows as JSON lines, each with the machine it was measured on.
#pragma once

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "apps/machine.h"
#include "gradwire/status.h"

namespace gradwire {

class RowFile {
 public:
  // Replaces what was there; an empty path makes a file that drops every row.
  static Result<RowFile> create(const std::string& path);

  // Adds the machine's facts and writes one line.
  Status write(nlohmann::ordered_json row);

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { (void)std::fclose(file); }
  };
  RowFile(std::FILE* file, std::string path) : file_(file), path_(std::move(path)) {}

  std::unique_ptr<std::FILE, CloseFile> file_;  // null: drops
  std::string path_;
  Machine machine_ = machine();
};

}  // namespace gradwire
