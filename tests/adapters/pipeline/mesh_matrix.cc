// Every mesh of replicas, tensor ranks and stages of up to 8 ranks against one rank, 20 steps of a
// GPT each: in fp32 and bf16; of up to 4 ranks with every stage of ZeRO, with and without layers
// that are computed again, and with compressors between replicas. By hand; tests run a part:
//
//   ninja -C build tests/adapters/pipeline/mesh_matrix
//   build/tests/adapters/pipeline/mesh_matrix [--done FILE]
//
// FILE gets a line for each cell that passed; another start of the same build with the same FILE
// goes on behind them. Ends with 1 where a cell fails.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/adapters/pipeline/mesh_cells.h"

namespace gradwire::testing {
namespace {

std::vector<MeshCell> meshes(int most) {
  constexpr std::array kFactors{1, 2, 3, 4, 6, 8};
  std::vector<MeshCell> all;
  for (const int dp : kFactors) {
    for (const int tp : kFactors) {
      for (const int pp : kFactors) {
        if (dp * tp * pp <= most) all.push_back({dp, tp, pp});
      }
    }
  }
  return all;
}

std::vector<MeshCell> cells() {
  std::vector<MeshCell> all;
  for (const char* precision : {"fp32", "bf16"}) {
    for (MeshCell cell : meshes(8)) {
      cell.precision = precision;
      all.push_back(cell);
    }
  }
  for (MeshCell cell : meshes(4)) {  // 8 positions
    cell.sequence = true;
    if (cell.tp == 2 || cell.tp == 4) all.push_back(cell);
  }
  for (MeshCell cell : meshes(4)) {
    for (cell.zero = 0; cell.zero <= 3; ++cell.zero) {
      for (const char* recompute : {"none", "full"}) {
        cell.recompute = recompute;
        if (cell.zero > 0 || cell.recompute != "none") all.push_back(cell);
      }
    }
  }
  for (MeshCell cell : meshes(4)) {
    for (const char* compressor : {"qsgd:bits=4,ef=ef14,min_elems=0,dense_1d=false",
                                   "signsgd:ef=ef14,min_elems=0,dense_1d=false",
                                   "topk:ratio=0.1,ef=ef14,min_elems=0,dense_1d=false",
                                   "powersgd:rank=2,ef=ef14,min_elems=0"}) {
      cell.compressor = compressor;
      if (cell.dp > 1) all.push_back(cell);
    }
  }
  return all;
}

int run_matrix(const char* done_file) {
  std::set<std::string> done;
  std::ofstream file;
  if (done_file != nullptr) {
    std::ifstream before(done_file);
    for (std::string line; std::getline(before, line);) done.insert(line);
    file.open(done_file, std::ios::app);
  }
  const std::vector<MeshCell> all = cells();
  MeshReferences references;
  const auto began = std::chrono::steady_clock::now();
  std::size_t seen = 0;
  std::size_t made = 0;
  std::size_t failed = 0;
  for (const MeshCell& cell : all) {
    ++seen;
    if (done.contains(cell.name())) continue;
    const auto failures = [] {
      return ::testing::UnitTest::GetInstance()->ad_hoc_test_result().total_part_count();
    };
    const int before = failures();
    expect_cell(cell, references);
    const bool passed = failures() == before;
    failed += passed ? 0 : 1;
    ++made;
    if (passed && file.is_open()) file << cell.name() << std::endl;
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    std::printf("%-96s %-6s ETA %4.0f s\n", cell.name().c_str(), passed ? "passed" : "FAILED",
                seconds / static_cast<double>(made) * static_cast<double>(all.size() - seen));
    std::fflush(stdout);
  }
  std::printf("%zu cells, %zu of them now, %zu failed\n", all.size(), made, failed);
  return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace gradwire::testing

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const bool has_file = argc == 3 && std::strcmp(argv[1], "--done") == 0;
  if (argc != 1 && !has_file) {
    std::fprintf(stderr, "mesh_matrix: unknown arguments (expected none, or --done FILE)\n");
    return 2;
  }
  return gradwire::testing::run_matrix(has_file ? argv[2] : nullptr);
}
