// Inputs that fuzzing found worth keeping: what reached new code, and whatever was once a finding.
// A line of hexadecimal digits each; corpus.py turns them into libFuzzer's files and back.
#pragma once

#include <fstream>
#include <string>

#include "tests/fuzz/fuzz_target.h"

namespace gradwire::fuzz {

// None where there is no such file.
inline std::vector<Bytes> read_corpus(const std::string& path) {
  std::vector<Bytes> all;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Bytes& bytes = all.emplace_back();
    for (std::size_t i = 0; i + 1 < line.size(); i += 2) {
      bytes.push_back(static_cast<std::uint8_t>(std::stoi(line.substr(i, 2), nullptr, 16)));
    }
  }
  return all;
}

}  // namespace gradwire::fuzz
