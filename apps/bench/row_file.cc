#include "apps/bench/row_file.h"

#include <cerrno>
#include <cstring>

namespace gradwire {
namespace {

// RFC 4180: fields with commas, quotes or line ends stand in quotes, which are doubled inside.
std::string csv_field(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + "\"";
}

std::string csv_field(const nlohmann::ordered_json& value) {
  if (value.is_null()) return "";
  return csv_field(value.is_string() ? value.get<std::string>() : value.dump());
}

}  // namespace

Result<RowFile::Output> RowFile::open(const std::string& path) {
  Output output;
  output.path = path;
  if (path.empty() || path == kStandardOutput) return output;
  auto file = open_to_write(path);
  if (!file.has_value()) return file.error().with_context("results");
  output.file = std::move(file).value();
  return output;
}

Status RowFile::put(const Output& output, const std::string& line) {
  std::FILE* file = output.path == kStandardOutput ? stdout : output.file.get();
  if (file == nullptr) return {};
  if (std::fputs(line.c_str(), file) >= 0 && std::fflush(file) == 0) return {};
  return {Code::kInvalidArgument,
          "cannot write the results to '" + output.path + "' (" + std::strerror(errno) + ")"};
}

Result<RowFile> RowFile::create(const std::string& json_path, const std::string& csv_path) {
  RowFile rows;
  GW_ASSIGN(rows.json_, open(json_path));
  GW_ASSIGN(rows.csv_, open(csv_path));
  return rows;
}

Status RowFile::write(nlohmann::ordered_json row) {
  if (json_.path.empty() && csv_.path.empty()) return {};
  row["cpu"] = machine_.cpu;
  row["cores"] = machine_.cores;
  row["kernel"] = machine_.kernel;
  row["compiler"] = machine_.compiler;
  row["gradwire"] = machine_.gradwire;
  row["commit"] = machine_.commit;
  row["ucx"] = machine_.ucx;
  GW_TRY(put(json_, row.dump() + "\n"));
  std::string heading;
  std::string line;
  for (const auto& [key, value] : row.items()) {
    heading += (heading.empty() ? "" : ",") + csv_field(key);
    line += (line.empty() ? "" : ",") + csv_field(value);
  }
  if (!has_heading_) GW_TRY(put(csv_, heading + "\n"));
  has_heading_ = true;
  return put(csv_, line + "\n");
}

}  // namespace gradwire
