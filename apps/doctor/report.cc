#include "apps/doctor/report.h"

#include <vector>

#include "base/text.h"

namespace gradwire {
namespace {

using Json = DoctorReport;

class Text {
 public:
  void head(const std::string& title) { text_ += (text_.empty() ? "" : "\n") + title + "\n"; }
  void row(const std::string& what, const std::string& value) {
    text_ += format("  %-16s %s\n", what.c_str(), value.c_str());
  }
  void line(const std::string& line) { text_ += "  " + line + "\n"; }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

std::string str(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.dump();
}

std::string joined(const Json& list) {
  std::string text;
  for (const Json& one : list) text += (text.empty() ? "" : ", ") + str(one);
  return text.empty() ? "none" : text;
}

std::string mebibytes(const Json& bytes) {
  return std::to_string(bytes.get<std::uint64_t>() >> 20) + " MiB";
}

void write_build(Text& out, const Json& report) {
  const Json& build = report["build"];
  out.head("gradwire " + str(build["version"]) + " (" + str(build["commit"]) + "), " +
           str(build["compiler"]));
  out.row("backends",
          joined(build["backends"]) + "; gradwire train uses " + str(report["transport"]));
}

void write_machine(Text& out, const Json& report) {
  const Json& here = report["machine"];
  const Json& shared = here["shared_memory"];
  out.head("machine " + str(here["host"]));
  out.row("processor", str(here["cpu"]) + ", " + str(here["cores"]) + " cores for this process");
  out.row("memory", mebibytes(here["memory_bytes"]) + "; /dev/shm " +
                        (shared.is_null() ? "is missing"
                                          : mebibytes(shared["bytes"]) + ", " +
                                                mebibytes(shared["free_bytes"]) + " free"));
  out.row("kernel", str(here["kernel"]) + "; ptrace scope " +
                        (here["ptrace_scope"].is_null() ? "none" : str(here["ptrace_scope"])));
  for (const Json& one : report["interfaces"]) {
    out.row("interface", str(one["name"]) + " " + str(one["address"]) +
                             (one["up"] ? "" : ", down") + (one["loopback"] ? ", loopback" : "") +
                             (one["bridge"] ? ", bridge" : ""));
  }
  const Json& tcp = report["tcp_interface"];
  out.row("tcp offers", tcp.is_null()           ? "loopback only"
                        : tcp.contains("error") ? str(tcp["error"])
                                                : str(tcp["name"]) + " " + str(tcp["address"]));
}

void write_launcher(Text& out, const Json& launcher) {
  out.head("launcher: " + str(launcher["source"]));
  out.row("reason", str(launcher["reason"]));
  out.row("rank", str(launcher["rank"]) + " of " + str(launcher["ranks"]) + ", local rank " +
                      str(launcher["local_rank"]));
  if (launcher["ranks"] > 1) {
    // An exchange through the launcher brings a secret of its own.
    const std::string rendezvous = launcher["rendezvous"];
    const bool exchanged = rendezvous.starts_with("pmi") || rendezvous.starts_with("torch://");
    out.row("rendezvous", rendezvous + " for job " + str(launcher["job"]) +
                              (launcher["secret"] ? ", with a secret"
                               : exchanged        ? ", with a secret that rank 0 makes"
                                                  : ", without a secret"));
    if (launcher.contains("root")) out.row("root", "rank 0 is at " + str(launcher["root"]));
  }
  for (const auto& [name, value] : launcher["variables"].items()) out.line(name + "=" + str(value));
}

void write_ucx(Text& out, const Json& ucx) {
  if (ucx.contains("error")) {
    out.head("UCX");
    return out.line(str(ucx["error"]));
  }
  out.head("UCX " + str(ucx["running_version"]) + " (headers of " + str(ucx["header_version"]) +
           ")");
  out.row("memory types", joined(ucx["memory_types"]));
  const Json& cuda = ucx["cuda_memory"];
  out.row("CUDA memory",
          (cuda["direct"] ? "direct: " : "through host memory: ") + str(cuda["why"]));
  for (const Json& one : ucx["transports"])
    out.row("transport",
            str(one["name"]) + "/" + str(one["device"]) + " (" + str(one["kind"]) + ")");
  for (const Json& one : ucx["devices"])
    out.row("device",
            str(one["name"]) + (one["taken"] ? ": used" : ": not used: " + str(one["reason"])));
  for (const Json& one : ucx["settings"]) {
    out.line(str(one["variable"]) + "=" + str(one["value"]) + " [" + str(one["source"]) + "]");
    out.line("    " + str(one["why"]));
  }
}

void write_job(Text& out, const Json& report) {
  out.head("two processes of this host");
  const Json& pair = report["same_host"];
  out.line(str(pair.contains("error") ? pair["error"] : pair["describe"]));
  const Json& job = report["job"];
  if (job.is_null()) return;
  out.head("this job");
  for (const Json& host : job["hosts"])
    out.row(str(host["host"]), str(host["ranks"]) + " ranks, " + str(host["cores"]) + " cores");
  for (const Json& rank : job["ranks"]) out.line(str(rank["describe"]));
}

}  // namespace

std::string report_text(const Json& report) {
  Text out;
  write_build(out, report);
  write_machine(out, report);
  write_launcher(out, report["launcher"]);
  write_ucx(out, report["ucx"]);
  write_job(out, report);
  out.head("environment");
  for (const auto& [name, value] : report["environment"].items()) out.line(name + "=" + str(value));
  if (report["environment"].empty()) out.line("no GRADWIRE_ or UCX_ variable is set");
  out.head(report["notes"].empty() ? "no problems found" : "notes");
  for (const Json& one : report["notes"]) out.line(str(one["level"]) + ": " + str(one["text"]));
  return out.take();
}

}  // namespace gradwire
