#include "trainer/data/token_text.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>
#include <utility>

#include "base/text.h"

namespace gradwire {
namespace {

constexpr char kEscape = '%';

bool stays_readable(char c) { return c > ' ' && c < 127 && c != kEscape; }

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a') + 10;
  return std::nullopt;
}

Result<std::string> token_of(std::string_view escaped) {
  std::string token;
  for (std::size_t at = 0; at < escaped.size(); ++at) {
    if (stays_readable(escaped[at])) {
      token += escaped[at];
      continue;
    }
    const bool whole = escaped[at] == kEscape && at + 2 < escaped.size();
    const auto high = whole ? hex_digit(escaped[at + 1]) : std::nullopt;
    const auto low = whole ? hex_digit(escaped[at + 2]) : std::nullopt;
    if (!high || !low) {
      return Status(Code::kCorruptPayload, "vocabulary: token '" + std::string(escaped) +
                                               "' (expected ASCII, and %XX for other bytes)");
    }
    token += static_cast<char>(*high * 16 + *low);
    at += 2;
  }
  return token;
}

}  // namespace

std::string vocabulary_text(std::span<const std::string> vocabulary) {
  std::string text;
  for (const std::string& token : vocabulary) {
    if (!text.empty()) text += ' ';
    for (const char c : token) {
      text += stays_readable(c)
                  ? std::string(1, c)
                  : format("%%%02x", static_cast<unsigned>(static_cast<unsigned char>(c)));
    }
  }
  return text;
}

Result<std::vector<std::string>> parse_vocabulary(std::string_view text) {
  std::vector<std::string> vocabulary;
  std::set<std::string> seen;
  while (!text.empty()) {
    const std::size_t length = std::min(text.find(' '), text.size());
    GW_ASSIGN(std::string token, token_of(text.substr(0, length)));
    text.remove_prefix(std::min(length + 1, text.size()));
    if (token.empty() || !seen.insert(token).second) {
      return Status(
          Code::kCorruptPayload,
          format("vocabulary: token %zu is empty or there twice (expected every one once)",
                 vocabulary.size()));
    }
    vocabulary.push_back(std::move(token));
  }
  if (vocabulary.empty()) {
    return Status(Code::kCorruptPayload, "vocabulary: empty (expected one token at least)");
  }
  return vocabulary;
}

Result<TokenText> TokenText::create(TokenKind kind, std::vector<std::string> vocabulary) {
  constexpr std::size_t kMost = std::size_t{1} << 20;
  const bool words = kind == TokenKind::kWords;
  const auto fits = [words](const std::string& token) {
    return words ? !token.empty() : token.size() == 1;
  };
  const bool whole = !words || std::ranges::find(vocabulary, kUnknownWord) != vocabulary.end();
  if (vocabulary.empty() || vocabulary.size() > kMost || !whole ||
      !std::ranges::all_of(vocabulary, fits)) {
    return Status(Code::kCorruptPayload,
                  format("vocabulary of %zu tokens (expected %s)", vocabulary.size(),
                         words ? "words, <unk> among them" : "one byte in each"));
  }
  return TokenText(kind, std::move(vocabulary));
}

Result<std::vector<std::uint32_t>> TokenText::numbers(std::string_view text) const {
  if (kind_ == TokenKind::kWords) return word_numbers(words_of(text), vocabulary_);
  std::array<std::optional<std::uint32_t>, 256> number_of{};
  for (std::size_t i = 0; i < vocabulary_.size(); ++i) {
    number_of[static_cast<unsigned char>(vocabulary_[i].front())] = static_cast<std::uint32_t>(i);
  }
  std::vector<std::uint32_t> numbers;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto number = number_of[static_cast<unsigned char>(text[at])];
    if (!number) {
      const std::string character(1, text[at]);
      return Status(Code::kInvalidArgument,
                    format("character %zu, %s, is not in the vocabulary (expected those of the "
                           "text that was trained on)",
                           at + 1,
                           stays_readable(text[at]) ? ("'" + character + "'").c_str()
                                                    : vocabulary_text({&character, 1}).c_str()));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

bool TokenText::ends_line(std::uint32_t number) const {
  return vocabulary_[number] == (kind_ == TokenKind::kWords ? kLineEnd : std::string_view("\n"));
}

std::string TokenText::text(std::uint32_t number, std::uint32_t before, bool begins) const {
  if (kind_ != TokenKind::kWords) return vocabulary_[number];
  if (ends_line(number)) return "\n";
  return (begins || ends_line(before) ? "" : " ") + vocabulary_[number];
}

std::uint32_t TokenText::start() const {
  std::uint32_t found = 0;
  for (std::uint32_t number = 0; number < vocabulary_.size(); ++number) {
    if (ends_line(number)) return number;
    if (kind_ == TokenKind::kWords && vocabulary_[number] == kUnknownWord) found = number;
  }
  return found;
}

}  // namespace gradwire
