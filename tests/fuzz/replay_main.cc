// Feeds a fuzz target its seeds, every prefix of them, a fixed number of changed ones, and its
// corpus.
//
//   FUZZ_TARGET                 the test
//   FUZZ_TARGET FILE...         these files, for a crash that libFuzzer has found
//   FUZZ_TARGET --write FOLDER  writes the seeds there, for libFuzzer to start from
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/philox.h"
#include "tests/fuzz/corpus.h"
#include "tests/fuzz/fuzz_target.h"

namespace gradwire::fuzz {
namespace {

constexpr std::size_t kMostPrefixes = 600;  // of one seed
constexpr std::uint64_t kChanges = 400;     // of one seed

// Data is copied to the heap at its exact size, so that a sanitizer sees a read beyond it.
void feed(const Bytes& bytes) {
  const Bytes exact(bytes.begin(), bytes.end());
  (void)LLVMFuzzerTestOneInput(exact.data(), exact.size());
}

// One to four bytes changed, runs removed or repeated; the same for the same number.
Bytes changed(Bytes bytes, std::uint64_t number) {
  std::uint64_t state = mix64(number);
  const auto below = [&](std::size_t limit) {
    state = mix64(state);
    return static_cast<std::size_t>(state % std::max<std::size_t>(limit, 1));
  };
  const std::size_t edits = 1 + below(4);
  for (std::size_t i = 0; i < edits && !bytes.empty(); ++i) {
    const std::size_t at = below(bytes.size());
    const std::size_t end = at + 1 + below(std::min<std::size_t>(bytes.size() - at, 16));
    const auto from = bytes.begin() + static_cast<std::ptrdiff_t>(at);
    const auto to = bytes.begin() + static_cast<std::ptrdiff_t>(std::min(end, bytes.size()));
    switch (below(6)) {
      case 0: bytes.erase(from, to); break;
      case 1: {
        const Bytes again(from, to);
        bytes.insert(from, again.begin(), again.end());
        break;
      }
      case 2: std::fill(from, to, static_cast<std::uint8_t>(0xff)); break;
      case 3: std::fill(from, to, static_cast<std::uint8_t>(0)); break;
      case 4: *from = static_cast<std::uint8_t>(below(256)); break;
      default: *from ^= static_cast<std::uint8_t>(1U << below(8)); break;
    }
  }
  return bytes;
}

int replay_seeds() {
  const std::vector<Bytes> all = seeds();
  std::size_t count = 0;
  for (std::size_t s = 0; s < all.size(); ++s) {
    const std::size_t step = all[s].size() / kMostPrefixes + 1;
    for (std::size_t size = 0; size < all[s].size(); size += step, ++count)
      feed(Bytes(all[s].begin(), all[s].begin() + static_cast<std::ptrdiff_t>(size)));
    feed(all[s]);
    for (std::uint64_t i = 0; i < kChanges; ++i, ++count) feed(changed(all[s], s * kChanges + i));
  }
  const std::vector<Bytes> corpus = read_corpus(GW_FUZZ_CORPUS "/" GW_FUZZ_NAME ".hex");
  for (const Bytes& input : corpus) feed(input);
  std::printf("%zu seeds, %zu inputs made of them, %zu of the corpus\n", all.size(), count,
              corpus.size());
  return all.empty() ? 1 : 0;
}

int write_seeds(const std::filesystem::path& folder) {
  std::filesystem::create_directories(folder);
  const std::vector<Bytes> all = seeds();
  for (std::size_t i = 0; i < all.size(); ++i) {
    std::ofstream file(folder / ("seed-" + std::to_string(i)), std::ios::binary);
    file.write(reinterpret_cast<const char*>(all[i].data()),
               static_cast<std::streamsize>(all[i].size()));
    if (!file.flush()) return 1;
  }
  return 0;
}

int replay_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    std::fprintf(stderr, "gradwire: error: cannot read %s\n", path);
    return 1;
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  feed(Bytes(text.begin(), text.end()));
  return 0;
}

}  // namespace
}  // namespace gradwire::fuzz

int main(int argc, char** argv) {
  using namespace gradwire::fuzz;
  if (argc == 1) return replay_seeds();
  if (argc == 3 && std::string(argv[1]) == "--write") return write_seeds(argv[2]);
  int status = 0;
  for (int i = 1; i < argc; ++i) status |= replay_file(argv[i]);
  return status;
}
