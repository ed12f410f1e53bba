#include "trainer/checkpoint/reader.h"

#include <algorithm>
#include <cstring>
#include <optional>
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

// The box in the grid that the tensor was saved in; of a tensor that was saved, or is wanted, as a
// whole any grid will do. nullopt: two grids that differ.
std::optional<TensorBox> shared_grid(const CheckpointTensor& saved, const TensorBox& box) {
  if (saved.grid == box.grid) return box;
  if (box.is_whole()) return TensorBox::of(saved.shape, saved.grid);
  const auto is_whole = [&](const CheckpointSlice& slice) {
    return saved.box_of(slice).is_whole();
  };
  if (std::ranges::all_of(saved.slices, is_whole)) return box;
  return std::nullopt;
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

Status CheckpointReader::read(const std::string& tensor, const TensorBox& box, std::int64_t begin,
                              TensorView out) {
  GW_ASSIGN(const CheckpointTensor* saved, find(tensor));
  const auto refuse = [&](const std::string& seen, const std::string& wanted) {
    return Status(Code::kInvalidArgument,
                  path_ + ": tensor '" + tensor + "' is " + seen + " (expected " + wanted + ")");
  };
  GW_TRY(check_box(box).with_context(tensor));
  if (saved->shape != box.whole) return refuse(to_string(saved->shape), to_string(box.whole));
  if (saved->dtype != out.dtype() && out.elems() > 0) {
    return refuse(std::string(to_string(saved->dtype)), std::string(to_string(out.dtype())));
  }
  const std::int64_t end = begin + out.elems();
  if (begin < 0 || end > box.elems()) {
    return refuse(to_string(box),
                  format("one with elements [%lld, %lld)", static_cast<long long>(begin),
                         static_cast<long long>(end)));
  }
  const auto shared = shared_grid(*saved, box);
  if (!shared) {
    return refuse(to_string(TensorBox::of(saved->shape, saved->grid)) + " in boxes",
                  to_string(box));
  }
  // What lies on a device is put together here and copied once.
  const bool here = out.device().space != MemorySpace::kCuda;
  std::vector<std::byte> joined(here ? 0 : out.bytes().size());
  const ByteSpan to = here ? out.bytes() : ByteSpan(joined);
  for (const CheckpointSlice& slice : saved->slices) {
    GW_TRY(read_slice(*saved, slice, *shared, {begin, end}, to));
  }
  return here ? Status() : write_from_host(joined, out);
}

Status CheckpointReader::read_slice(const CheckpointTensor& saved, const CheckpointSlice& slice,
                                    const TensorBox& box, Range wanted, ByteSpan out) {
  TensorBox from = saved.box_of(slice);
  if (from.is_whole()) from = TensorBox::of(box.whole, box.grid);
  const auto width = static_cast<std::int64_t>(size_of(saved.dtype));
  std::vector<std::byte> bytes;
  Status status;
  for_each_common_run(from, box, [&](const CommonRun& run) {
    // Of the run, what both the slice has and the caller wants.
    const std::int64_t skip =
        std::max({std::int64_t{0}, slice.begin - run.in_a, wanted.begin - run.in_b});
    const std::int64_t stop = std::min({run.elems, slice.end - run.in_a, wanted.end - run.in_b});
    if (skip >= stop || !status.ok()) return;
    if (bytes.empty()) {
      auto source = file(slice.file);
      status =
          source.has_value() ? source.value()->read(slice, saved.dtype, bytes) : source.error();
      if (!status.ok()) return;
    }
    std::memcpy(out.data() + (run.in_b + skip - wanted.begin) * width,
                bytes.data() + (run.in_a + skip - slice.begin) * width,
                static_cast<std::size_t>((stop - skip) * width));
  });
  return status;
}

Status CheckpointReader::read(const std::string& tensor, TensorView out) {
  return read(tensor, TensorBox::of(out.shape()), 0, out);
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
