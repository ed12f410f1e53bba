#include "trainer/data/idx.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/text.h"
#include "trainer/data/file_bytes.h"

namespace gradwire {
namespace {

constexpr std::size_t kLargestFile = std::size_t{1} << 30;
constexpr std::uint32_t kImageMagic = 2051;
constexpr std::uint32_t kLabelMagic = 2049;

struct IdxFile {
  std::vector<std::uint32_t> dims;
  std::vector<std::uint8_t> items;
};

std::uint32_t big_endian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 |
         std::uint32_t{bytes[2]} << 8 | std::uint32_t{bytes[3]};
}

Status corrupt(const std::string& path, const std::string& what) {
  return Status(Code::kCorruptPayload, path + ": " + what);
}

// The last byte of the magic is the number of dimensions, the one before it the element type (8:
// bytes).
Result<IdxFile> read_one(const std::string& path, std::uint32_t magic) {
  GW_ASSIGN(std::vector<std::uint8_t> bytes, read_file_bytes(path, kLargestFile));
  const std::size_t dims = magic % 256;
  const std::size_t header = 4 + 4 * dims;
  if (bytes.size() < header) {
    return corrupt(path, format("%zu bytes (expected an IDX header of %zu)", bytes.size(), header));
  }
  const std::uint32_t seen = big_endian(bytes.data());
  if (seen != magic) return corrupt(path, format("IDX magic %u (expected %u)", seen, magic));
  IdxFile file;
  std::uint64_t items = 1;
  for (std::size_t d = 0; d < dims; ++d) {
    const std::uint32_t dim = big_endian(bytes.data() + 4 + 4 * d);
    file.dims.push_back(dim);
    if (dim == 0) return corrupt(path, format("dimension %zu is 0 (expected at least 1)", d));
    // Stop before the product can overflow: it is too large already.
    if (items <= kLargestFile) items *= dim;
  }
  if (bytes.size() - header != items) {
    return corrupt(path, format("%zu bytes after the header (expected %llu)", bytes.size() - header,
                                static_cast<unsigned long long>(items)));
  }
  file.items.assign(bytes.begin() + static_cast<std::ptrdiff_t>(header), bytes.end());
  return file;
}

}  // namespace

Result<IdxSamples> read_idx(const std::string& image_path, const std::string& label_path,
                            std::int64_t classes) {
  GW_ASSIGN(IdxFile images, read_one(image_path, kImageMagic));
  GW_ASSIGN(IdxFile labels, read_one(label_path, kLabelMagic));
  if (images.dims[0] != labels.dims[0]) {
    return corrupt(label_path, format("%u labels (expected %u, as many as images in %s)",
                                      labels.dims[0], images.dims[0], image_path.c_str()));
  }
  const std::uint8_t largest = *std::max_element(labels.items.begin(), labels.items.end());
  if (largest >= classes) {
    return corrupt(label_path, format("label %d (expected 0 to %lld)", largest,
                                      static_cast<long long>(classes - 1)));
  }
  IdxSamples read;
  read.shape = {1, images.dims[1], images.dims[2]};
  read.samples = {std::move(images.items), std::move(labels.items)};
  return read;
}

}  // namespace gradwire
