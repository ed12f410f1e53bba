#include "apps/inspect/payload_file.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/elements.h"
#include "base/hash.h"
#include "base/text.h"

namespace gradwire {
namespace {

constexpr std::string_view kMagic = "gradwire payload 1";
constexpr std::size_t kMaxLine = 4096;

Status corrupt(const std::string& what) { return {Code::kCorruptPayload, "payload file: " + what}; }

// Takes lines of the header off the front of the bytes.
class HeaderReader {
 public:
  explicit HeaderReader(ConstByteSpan bytes)
      : text_(reinterpret_cast<const char*>(bytes.data()), bytes.size()) {}

  Result<std::string> line(const std::string& wanted) {
    const std::size_t end = text_.substr(0, kMaxLine).find('\n');
    if (end == std::string_view::npos)
      return corrupt("line '" + wanted + "' is missing (the text ends)");
    const std::string line(text_.substr(0, end));
    text_.remove_prefix(end + 1);
    return line;
  }
  // The rest of a line that starts with the keyword and a blank.
  Result<std::string> value(const std::string& keyword) {
    GW_ASSIGN(const std::string text, line(keyword));
    if (!text.starts_with(keyword + " ")) {
      return corrupt("got '" + text.substr(0, 40) + "', expected a line '" + keyword + " ...'");
    }
    return text.substr(keyword.size() + 1);
  }
  Result<std::vector<std::int64_t>> numbers(const std::string& keyword, std::size_t most,
                                            std::int64_t least) {
    GW_ASSIGN(const std::string text, value(keyword));
    std::vector<std::int64_t> values;
    std::size_t begin = 0;
    while (begin <= text.size()) {
      const std::size_t end = std::min(text.find(' ', begin), text.size());
      const auto number = to_int(std::string_view(text).substr(begin, end - begin));
      if (!number || *number < least || values.size() == most) {
        return corrupt("'" + keyword + "' must be 1 to " + std::to_string(most) +
                       " whole numbers of at least " + std::to_string(least) + " (got '" +
                       text.substr(0, 40) + "')");
      }
      values.push_back(*number);
      begin = end + 1;
    }
    return values;
  }
  std::string_view rest() const { return text_; }

 private:
  std::string_view text_;
};

Result<Shape> shape_of(const std::vector<std::int64_t>& dims) {
  Shape shape;
  shape.rank = static_cast<int>(dims.size());
  std::int64_t elems = 1;
  for (std::size_t i = 0; i < dims.size(); ++i) {
    if (dims[i] > kMaxPayloadElems / elems) {
      return corrupt("too many elements (expected at most " + std::to_string(kMaxPayloadElems) +
                     ")");
    }
    elems *= dims[i];
    shape.dim[i] = dims[i];
  }
  return shape;
}

Status take_rounds(std::string_view bytes, const std::vector<std::int64_t>& lengths,
                   std::vector<std::vector<std::byte>>& rounds) {
  for (const std::int64_t length : lengths) {
    if (static_cast<std::uint64_t>(length) > bytes.size()) {
      return corrupt("truncated (got " + std::to_string(bytes.size()) + " bytes, expected " +
                     std::to_string(length) + ")");
    }
    const auto* data = reinterpret_cast<const std::byte*>(bytes.data());
    rounds.emplace_back(data, data + length);
    bytes.remove_prefix(static_cast<std::size_t>(length));
  }
  return bytes.empty() ? Status() : corrupt(std::to_string(bytes.size()) + " bytes after the end");
}

Compressor::Placement placement_of(const PayloadFile& file) {
  return {.dtype = file.dtype, .seed = file.seed, .tensor = hash_name("gradient")};
}

// Runs one step of a coder of one rank. encode: payloads are written by the coder, else they are
// given.
template <typename T>
Status run_coder(const Compressor& compressor, PayloadFile& file, bool encode,
                 std::vector<T>& values) {
  GW_ASSIGN(const auto coder, compressor.open(file.shape, placement_of(file)));
  const TensorView grad{reinterpret_cast<std::byte*>(values.data()), file.shape, file.dtype};
  GW_TRY(coder->begin(grad, file.step, {}));
  for (int round = 0; round < compressor.traits().rounds; ++round) {
    const std::size_t room = compressor.max_payload_bytes(file.shape, file.dtype, round);
    std::vector<std::byte> written(room);
    GW_ASSIGN(const std::size_t length, coder->encode(round, written, {}));
    written.resize(length);
    if (encode) file.rounds.push_back(std::move(written));
    const ConstByteSpan payload = file.rounds[static_cast<std::size_t>(round)];
    GW_TRY(coder->absorb(round, std::span(&payload, 1), {}));
  }
  return coder->finish(grad, {}, {});
}

}  // namespace

std::vector<std::byte> format_payload_file(const PayloadFile& file) {
  std::string text = std::string(kMagic) + "\nspec " + file.spec + "\nshape";
  for (int i = 0; i < file.shape.rank; ++i) {
    text += " " + std::to_string(file.shape.dim[static_cast<std::size_t>(i)]);
  }
  text += "\ndtype " + std::string(to_string(file.dtype)) + "\nseed " + std::to_string(file.seed) +
          "\nstep " + std::to_string(file.step) + "\nrounds";
  for (const auto& round : file.rounds) text += " " + std::to_string(round.size());
  text += "\nend\n";
  const auto header = std::as_bytes(std::span(text.data(), text.size()));
  std::vector<std::byte> bytes(header.begin(), header.end());
  for (const auto& round : file.rounds) bytes.insert(bytes.end(), round.begin(), round.end());
  return bytes;
}

Result<PayloadFile> parse_payload_file(ConstByteSpan bytes) {
  HeaderReader reader(bytes);
  const auto magic = reader.line(std::string(kMagic));
  if (!magic.has_value() || magic.value() != kMagic) {
    return corrupt("not a payload file (expected the first line '" + std::string(kMagic) + "')");
  }
  PayloadFile file;
  GW_ASSIGN(file.spec, reader.value("spec"));
  GW_ASSIGN(const auto dims, reader.numbers("shape", 4, 1));
  GW_ASSIGN(file.shape, shape_of(dims));
  GW_ASSIGN(const std::string dtype, reader.value("dtype"));
  if (dtype != "f32" && dtype != "f64") {
    return corrupt("unknown dtype '" + dtype.substr(0, 40) + "' (expected f32 or f64)");
  }
  file.dtype = dtype == "f32" ? DType::kF32 : DType::kF64;
  GW_ASSIGN(const auto seed, reader.numbers("seed", 1, 0));
  GW_ASSIGN(const auto step, reader.numbers("step", 1, 0));
  file.seed = static_cast<std::uint64_t>(seed[0]);
  file.step = static_cast<std::uint64_t>(step[0]);
  GW_ASSIGN(const auto lengths, reader.numbers("rounds", 16, 0));
  GW_ASSIGN(const std::string end, reader.line("end"));
  if (end != "end") return corrupt("got '" + end.substr(0, 40) + "', expected a line 'end'");
  GW_TRY(take_rounds(reader.rest(), lengths, file.rounds));
  return file;
}

Result<PayloadFile> encode_payload(const Registry& registry, const std::string& spec, Shape shape,
                                   std::uint64_t seed, std::vector<float> values) {
  GW_ASSIGN(const auto compressor, registry.make(spec));
  PayloadFile file{compressor->spec(), shape, DType::kF32, seed, 0, {}};
  GW_TRY(run_coder(*compressor, file, true, values));
  return file;
}

Result<std::vector<double>> decode_payload(const Registry& registry, const PayloadFile& file) {
  GW_ASSIGN(const auto compressor, registry.make(file.spec));
  const auto rounds = static_cast<std::size_t>(compressor->traits().rounds);
  if (file.rounds.size() != rounds) {
    return corrupt("got " + std::to_string(file.rounds.size()) + " round(s), expected " +
                   std::to_string(rounds) + " of '" + file.spec + "'");
  }
  PayloadFile given = file;
  const auto elems = static_cast<std::size_t>(file.shape.elems());
  std::vector<double> decoded(elems);
  if (file.dtype == DType::kF64) {
    GW_TRY(run_coder(*compressor, given, false, decoded));
    return decoded;
  }
  std::vector<float> values(elems);
  GW_TRY(run_coder(*compressor, given, false, values));
  std::copy(values.begin(), values.end(), decoded.begin());
  return decoded;
}

}  // namespace gradwire
