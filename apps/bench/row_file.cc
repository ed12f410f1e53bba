#include "apps/bench/row_file.h"

#include <cerrno>
#include <cstring>

namespace gradwire {

Result<RowFile> RowFile::create(const std::string& path) {
  if (path.empty()) return RowFile(nullptr, path);
  std::FILE* file = std::fopen(path.c_str(), "w");
  if (file != nullptr) return RowFile(file, path);
  return Status(Code::kInvalidArgument,
                "cannot write the results to '" + path + "' (" + std::strerror(errno) + ")");
}

Status RowFile::write(nlohmann::ordered_json row) {
  if (file_ == nullptr) return {};
  row["cpu"] = machine_.cpu;
  row["cores"] = machine_.cores;
  row["kernel"] = machine_.kernel;
  row["compiler"] = machine_.compiler;
  row["gradwire"] = machine_.gradwire;
  row["commit"] = machine_.commit;
  row["ucx"] = machine_.ucx;
  const std::string line = row.dump() + "\n";
  if (std::fputs(line.c_str(), file_.get()) >= 0 && std::fflush(file_.get()) == 0) return {};
  return {Code::kInvalidArgument,
          "cannot write the results to '" + path_ + "' (" + std::strerror(errno) + ")"};
}

}  // namespace gradwire
