#include "trainer/checkpoint/reader.h"

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "device/host_copy.h"
#include "trainer/checkpoint/disk.h"

namespace gradwire {
namespace {

constexpr std::uint64_t kLongestManifest = std::uint64_t{1} << 30;

Result<std::string> read_file(const std::string& path) {
  GW_ASSIGN(const DiskFile file, DiskFile::open(path));
  GW_ASSIGN(const std::uint64_t size, file.size());
  if (size > kLongestManifest) {
    return Status(Code::kCorruptPayload, format("%s: %llu bytes (expected at most %llu)",
                                                path.c_str(), static_cast<unsigned long long>(size),
                                                static_cast<unsigned long long>(kLongestManifest)));
  }
  std::string text(size, '\0');
  GW_TRY(file.read(0, std::as_writable_bytes(std::span(text.data(), text.size()))));
  return text;
}

}  // namespace

Result<CheckpointReader> CheckpointReader::open(const std::string& path) {
  const std::string name = path + "/" + std::string(kManifestName);
  GW_ASSIGN(const std::string text, read_file(name));
  auto manifest = read_manifest(text);
  if (!manifest.has_value()) return manifest.error().with_context(name);
  return CheckpointReader(path, std::move(manifest).value());
}

Result<const TensorFile*> CheckpointReader::file(int index) {
  const auto found = open_.find(index);
  if (found != open_.end()) return &found->second;
  const CheckpointFile& facts = manifest_.files[static_cast<std::size_t>(index)];
  GW_ASSIGN(TensorFile opened, TensorFile::open(path_, facts));
  return &open_.emplace(index, std::move(opened)).first->second;
}

Result<const CheckpointTensor*> CheckpointReader::find(const std::string& tensor) const {
  const auto found = manifest_.tensors.find(tensor);
  if (found != manifest_.tensors.end()) return &found->second;
  return Status(Code::kInvalidArgument, path_ + " has no tensor '" + tensor + "'");
}

Status CheckpointReader::read(const std::string& tensor, const Shape& shape, std::int64_t begin,
                              TensorView out) {
  GW_ASSIGN(const CheckpointTensor* saved, find(tensor));
  const auto refuse = [&](const std::string& seen, const std::string& wanted) {
    return Status(Code::kInvalidArgument,
                  path_ + ": tensor '" + tensor + "' is " + seen + " (expected " + wanted + ")");
  };
  if (saved->shape != shape) return refuse(to_string(saved->shape), to_string(shape));
  if (saved->dtype != out.dtype() && out.elems() > 0) {
    return refuse(std::string(to_string(saved->dtype)), std::string(to_string(out.dtype())));
  }
  const std::int64_t end = begin + out.elems();
  if (begin < 0 || end > shape.elems()) {
    return refuse(to_string(shape),
                  format("one with elements [%lld, %lld)", static_cast<long long>(begin),
                         static_cast<long long>(end)));
  }
  const auto width = static_cast<std::int64_t>(size_of(saved->dtype));
  std::vector<std::byte> bytes;
  for (const CheckpointSlice& slice : saved->slices) {
    const std::int64_t from = std::max(begin, slice.begin);
    const std::int64_t to = std::min(end, slice.end);
    if (from >= to) continue;
    GW_ASSIGN(const TensorFile* source, file(slice.file));
    GW_TRY(source->read(slice, saved->dtype, bytes));
    const TensorView part(out.data() + (from - begin) * width, Shape::vector(to - from),
                          out.dtype(), out.device());
    GW_TRY(write_from_host(
        ConstByteSpan(bytes).subspan(static_cast<std::size_t>((from - slice.begin) * width),
                                     part.bytes().size()),
        part));
  }
  return {};
}

Status CheckpointReader::read(const std::string& tensor, TensorView out) {
  return read(tensor, out.shape(), 0, out);
}

Status CheckpointReader::verify() {
  std::vector<std::byte> bytes;
  for (const auto& [name, tensor] : manifest_.tensors) {
    for (const CheckpointSlice& slice : tensor.slices) {
      GW_ASSIGN(const TensorFile* source, file(slice.file));
      GW_TRY(source->read(slice, tensor.dtype, bytes));
    }
  }
  return {};
}

}  // namespace gradwire
