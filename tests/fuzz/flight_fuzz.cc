// Flight records as `gradwire inspect flight` reads them: files of a folder that anybody may have
// written.
#include <filesystem>
#include <fstream>
#include <string>

#include "apps/inspect/flight_files.h"
#include "base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/temporary_folder.h"

namespace gradwire::fuzz {
namespace {

// Its bytes as rank 1's record, beside a good one of rank 0.
void read_folder(const std::uint8_t* data, std::size_t size) {
  static const TemporaryFolder folder;
  const std::string good =
      R"({"version":1,"rank":0,"size":3,"message":"rank 2 lost","lost":[2],"operations":[]})";
  std::ofstream(folder.path() + "/rank-0.json") << good;
  std::ofstream(folder.path() + "/rank-1.json", std::ios::binary)
      .write(reinterpret_cast<const char*>(data), static_cast<std::streamsize>(size));
  const auto files = read_flight_files(folder.path());
  if (!files.has_value()) {
    GW_CHECK(files.error().message().find("rank-1.json") != std::string::npos);
    return;
  }
  GW_CHECK(!files.value().empty());
  for (const auto& [generation, ranks] : files.value()) {
    for (const auto& [rank, file] : ranks) {
      GW_CHECK(rank == file.rank && rank >= 0 && rank < file.size);
    }
    GW_CHECK(!explain_flight(ranks).empty());
  }
}

Bytes bytes_of(std::string_view text) { return {text.begin(), text.end()}; }

}  // namespace

std::vector<Bytes> seeds() {
  return {
      bytes_of(R"({"version":1,"rank":1,"size":3,"generation":0,"code":"peer lost",)"
               R"("message":"rank 2 lost in all_reduce","lost":[2],"silent":[2],"absent":[0],)"
               R"("operations":[{"communicator":0,"number":1,"collective":true,)"
               R"("name":"all_reduce","elems":1000,"dtype":"f32","reduce":"sum","root":-1,)"
               R"("state":"failed","begun_us":5,"ended_us":9,"bytes_sent":16,)"
               R"("waiting_for":[2]}]})"),
      bytes_of(
          R"({"version":1,"rank":1,"size":2,"generation":7,"operations":[{},{"number":-1},3]})"),
      bytes_of(R"({"version":1,"rank":65535,"size":65536,"lost":[-1,65536,1e9],"operations":[]})"),
      bytes_of(R"([[[[[[[[]]]]]]]])"),
  };
}

}  // namespace gradwire::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  gradwire::fuzz::read_folder(data, size);
  return 0;
}
