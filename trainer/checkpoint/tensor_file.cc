#include "trainer/checkpoint/tensor_file.h"

#include <algorithm>
#include <cstring>

#include "base/text.h"
#include "device/host_copy.h"
#include "trainer/checkpoint/checksum.h"

namespace gradwire {
namespace {

// A slice has its place in its name, so that a file may hold several of one tensor: "w[0:3, 2:4]"
// of a box, then the elements, "[4:6]", where they are not all of it.
std::string entry_name(const TensorPart& part) {
  const std::int64_t end = part.begin + part.values.elems();
  const std::string name = part.tensor + range_text(part.box);
  if (part.begin == 0 && end == part.box.elems()) return name;
  return name +
         format("[%lld:%lld]", static_cast<long long>(part.begin), static_cast<long long>(end));
}

Status check_part(const TensorPart& part) {
  GW_TRY(check_box(part.box).with_context(part.tensor));
  const std::int64_t end = part.begin + part.values.elems();
  if (part.begin >= 0 && end <= part.box.elems()) return {};
  return {
      Code::kInvalidArgument,
      format("elements [%lld, %lld) of '%s%s', which has %lld", static_cast<long long>(part.begin),
             static_cast<long long>(end), part.tensor.c_str(), range_text(part.box).c_str(),
             static_cast<long long>(part.box.elems()))};
}

void tell(const WriteObserver& observer, std::string_view place) {
  if (observer) observer(place);
}

}  // namespace

TensorPart whole_tensor(std::string name, ConstTensorView values) {
  return {std::move(name), TensorBox::of(values.shape()), 0, values};
}

Result<PartList> write_tensor_file(const std::string& folder, const std::string& name,
                                   const MeshCoordinates& at, std::span<const TensorPart> parts,
                                   const WriteObserver& observer) {
  PartList written;
  std::vector<SafetensorsEntry> entries;
  std::uint64_t offset = 0;
  for (const TensorPart& part : parts) {
    GW_TRY(check_part(part));
    const std::size_t bytes = part.values.bytes().size();
    const std::int64_t end = part.begin + part.values.elems();
    const bool all = part.values.elems() == part.box.elems();
    const Shape box = part.box.is_whole() ? part.box.whole : part.box.shape();
    const Shape shape = all ? box : Shape::vector(part.values.elems());
    entries.push_back({entry_name(part), std::string(safetensors_name(part.values.dtype())),
                       safetensors_shape(shape), offset, offset + bytes});
    written.parts.push_back({part.tensor,
                             {part.values.dtype(),
                              part.box.whole,
                              part.box.grid,
                              {{part.box.at, part.begin, end, 0, entries.back().name, 0}}}});
    offset += bytes;
  }
  const std::string header = write_safetensors_header(entries);
  written.file = {name, header.size() + offset, checksum_of(header), at};
  GW_ASSIGN(DiskFile file, DiskFile::create(folder + "/" + name));
  tell(observer, "file begun");
  GW_TRY(file.write(header));
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i == parts.size() / 2) tell(observer, "file half written");
    // One at a time: what is on a device need not have room on the host as a whole.
    GW_ASSIGN(const HostCopy values, HostCopy::of(parts[i].values));
    GW_TRY(file.write(values.bytes()));
    written.parts[i].facts.slices.front().xxh3 = checksum_of(values.bytes());
  }
  tell(observer, "file written");
  GW_TRY(file.finish());
  tell(observer, "file synced");
  return written;
}

Result<TensorFile> TensorFile::open(const std::string& folder, const CheckpointFile& facts) {
  const std::string path = folder + "/" + facts.name;
  GW_ASSIGN(DiskFile file, DiskFile::open(path));
  GW_ASSIGN(const std::uint64_t size, file.size());
  const auto corrupt = [&](const std::string& what) {
    return Status(Code::kCorruptPayload, path + ": " + what);
  };
  if (size != facts.bytes) {
    return corrupt(format("%llu bytes (expected %llu)", static_cast<unsigned long long>(size),
                          static_cast<unsigned long long>(facts.bytes)));
  }
  std::uint64_t length = 0;
  if (size < sizeof(length)) return corrupt("too short for a header");
  GW_TRY(file.read(0, std::as_writable_bytes(std::span(&length, 1))));
  const std::uint64_t most = std::min(size - sizeof(length), kLongestSafetensorsHeader);
  if (length > most) {
    return corrupt(format("a header of %llu bytes (expected at most %llu)",
                          static_cast<unsigned long long>(length),
                          static_cast<unsigned long long>(most)));
  }
  const std::uint64_t data_offset = sizeof(length) + length;
  std::string header(data_offset, '\0');
  GW_TRY(file.read(0, std::as_writable_bytes(std::span(header.data(), header.size()))));
  if (checksum_of(header) != facts.header_xxh3) return corrupt("its header is damaged");
  auto entries =
      read_safetensors_header(std::string_view(header).substr(sizeof(length)), size - data_offset);
  if (!entries.has_value()) return entries.error().with_context(path);
  TensorFile result(std::move(file), data_offset);
  for (SafetensorsEntry& entry : entries.value()) {
    std::string name = entry.name;
    result.entries_.emplace(std::move(name), std::move(entry));
  }
  return result;
}

Status TensorFile::read(const CheckpointSlice& slice, DType dtype,
                        std::vector<std::byte>& out) const {
  const auto corrupt = [&](const std::string& what) {
    return Status(Code::kCorruptPayload, file_.path() + ": entry '" + slice.entry + "': " + what);
  };
  const auto found = entries_.find(slice.entry);
  if (found == entries_.end()) return corrupt("not in the file");
  const SafetensorsEntry& place = found->second;
  if (place.dtype != safetensors_name(dtype)) {
    return corrupt("dtype " + place.dtype + " (expected " + std::string(safetensors_name(dtype)) +
                   ")");
  }
  const std::uint64_t wanted = static_cast<std::uint64_t>(slice.end - slice.begin) * size_of(dtype);
  if (place.end - place.begin != wanted) {
    return corrupt(format("%llu bytes (expected %llu)",
                          static_cast<unsigned long long>(place.end - place.begin),
                          static_cast<unsigned long long>(wanted)));
  }
  out.resize(wanted);
  GW_TRY(file_.read(data_offset_ + place.begin, out));
  const std::uint64_t seen = checksum_of(ConstByteSpan(out));
  if (seen == slice.xxh3) return {};
  return corrupt("damaged: checksum " + checksum_text(seen) + " (expected " +
                 checksum_text(slice.xxh3) + ")");
}

}  // namespace gradwire
