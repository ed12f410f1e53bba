// Training runs for tests: what they wrote, read back.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "gradwire/status.h"
namespace gradwire {

using Words = std::vector<std::string>;

// `gradwire train` in this process with --quiet; "ok" or the error's text.
std::string train(Words flags);

// The same where an error is judged: ok() where the command had none.
Status refusal(Words flags);

// One JSON value per line; a line that is none fails the test.
std::vector<nlohmann::json> json_lines(const std::string& path);

std::string contents(const std::string& path);

// |a - b| / |a| over all elements of two safetensors files with equal headers; fails the test when
// the headers differ.
double relative_distance(const std::string& path_a, const std::string& path_b);

// Every compressor of this build, with and without error feedback, under every way of combining
// that is legal for it; small tensors are compressed too.
Words all_compressors();

}  // namespace gradwire
