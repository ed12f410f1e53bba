#include "trainer/data/text.h"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>

#include "base/text.h"
#include "trainer/data/file_bytes.h"

namespace gradwire {
namespace {

struct Tokens {
  std::vector<std::uint32_t> numbers;
  std::vector<std::string> vocabulary;
  std::int64_t train = 0;  // of the numbers, the first ones
};

// One text that is to be divided, or two.
struct Texts {
  std::string_view first;
  std::string_view behind = {};
  bool two = false;
};

bool in_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '\'' ||
         static_cast<unsigned char>(c) > 127;
}

bool is_mark(char c) { return static_cast<unsigned char>(c) > ' ' && !in_word(c); }

// What WikiText writes for a rare word, or for a mark within a word or a number: its length at the
// beginning of `text`, 0 where there is none.
std::size_t written_whole(std::string_view text) {
  if (text.starts_with(kUnknownWord)) return kUnknownWord.size();
  constexpr std::size_t kMarked = 3;  // "@-@"
  const bool marked = text.size() >= kMarked && text[0] == '@' && is_mark(text[1]) &&
                      text[1] != '@' && text[2] == '@';
  return marked ? kMarked : 0;
}

std::int64_t train_part(std::int64_t tokens) { return tokens / 10 * 9 + tokens % 10 * 9 / 10; }

// Bytes as numbers: all 256, or those that occur.
Tokens byte_tokens(const Texts& texts, bool all) {
  std::array<bool, 256> seen{};
  for (const std::string_view text : {texts.first, texts.behind}) {
    for (const char c : text) seen[static_cast<unsigned char>(c)] = true;
  }
  Tokens tokens;
  std::array<std::uint32_t, 256> number{};
  for (std::size_t byte = 0; byte < seen.size(); ++byte) {
    if (!all && !seen[byte]) continue;
    number[byte] = static_cast<std::uint32_t>(tokens.vocabulary.size());
    tokens.vocabulary.emplace_back(1, static_cast<char>(byte));
  }
  tokens.numbers.reserve(texts.first.size() + texts.behind.size());
  for (const std::string_view text : {texts.first, texts.behind}) {
    for (const char c : text) tokens.numbers.push_back(number[static_cast<unsigned char>(c)]);
  }
  tokens.train = texts.two ? static_cast<std::int64_t>(texts.first.size())
                           : train_part(static_cast<std::int64_t>(texts.first.size()));
  return tokens;
}

Result<Tokens> word_tokens(const Texts& texts, const TextOptions& options) {
  std::vector<std::string_view> words = words_of(texts.first);
  Tokens tokens;
  const auto first = static_cast<std::int64_t>(words.size());
  tokens.train = texts.two ? first : train_part(first);
  const std::vector<std::string_view> behind = words_of(texts.behind);
  words.insert(words.end(), behind.begin(), behind.end());
  if (options.vocabulary_file.empty()) {
    tokens.vocabulary =
        frequent_words({words.begin(), words.begin() + static_cast<std::ptrdiff_t>(tokens.train)},
                       options.vocabulary_size);
  } else {
    GW_ASSIGN(tokens.vocabulary, read_vocabulary(options.vocabulary_file));
  }
  tokens.numbers = word_numbers(words, tokens.vocabulary);
  return tokens;
}

Status check(const TextOptions& options) {
  constexpr std::int64_t kMost = 1 << 20;  // token numbers are exact in float
  if (options.context < 1 || options.context > kMost) {
    return Status(Code::kInvalidArgument,
                  format("context %lld (expected 1 to %lld)",
                         static_cast<long long>(options.context), static_cast<long long>(kMost)));
  }
  if (options.vocabulary_size < 2 || options.vocabulary_size > kMost) {
    return Status(Code::kInvalidArgument, format("vocabulary of %lld words (expected 2 to %lld)",
                                                 static_cast<long long>(options.vocabulary_size),
                                                 static_cast<long long>(kMost)));
  }
  return {};
}

}  // namespace

Result<TokenKind> parse_token_kind(const std::string& text) {
  if (text == "bytes") return TokenKind::kBytes;
  if (text == "characters") return TokenKind::kCharacters;
  if (text == "words") return TokenKind::kWords;
  return Status(Code::kInvalidArgument,
                "tokens '" + text + "' (expected bytes, characters or words)");
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = at;
    while (end < text.size() && in_word(text[end])) ++end;
    if (end > at) {
      words.push_back(text.substr(at, end - at));
      at = end;
      continue;
    }
    if (const std::size_t length = written_whole(text.substr(at)); length > 0) {
      words.push_back(text.substr(at, length));
      at += length;
      continue;
    }
    const char mark = text[at];
    if (mark == '\n') {
      words.push_back(kLineEnd);
    } else if (static_cast<unsigned char>(mark) > ' ') {
      words.push_back(text.substr(at, 1));
    }
    ++at;
  }
  return words;
}

std::vector<std::uint32_t> word_numbers(const std::vector<std::string_view>& words,
                                        const std::vector<std::string>& vocabulary) {
  std::unordered_map<std::string_view, std::uint32_t> number;
  for (const std::string& word : vocabulary) {
    number.emplace(word, static_cast<std::uint32_t>(number.size()));
  }
  const std::uint32_t unknown = number.at(kUnknownWord);
  std::vector<std::uint32_t> numbers;
  numbers.reserve(words.size());
  for (const std::string_view word : words) {
    const auto found = number.find(word);
    numbers.push_back(found == number.end() ? unknown : found->second);
  }
  return numbers;
}

std::vector<std::string> frequent_words(const std::vector<std::string_view>& words,
                                        std::int64_t size) {
  std::map<std::string_view, std::int64_t> count;
  for (const std::string_view word : words) ++count[word];
  count.erase(kUnknownWord);
  std::vector<std::pair<std::string_view, std::int64_t>> ranked(count.begin(), count.end());
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::vector<std::string> vocabulary{std::string(kUnknownWord)};
  for (const auto& [word, times] : ranked) {
    if (static_cast<std::int64_t>(vocabulary.size()) >= size) break;
    vocabulary.emplace_back(word);
  }
  return vocabulary;
}

Result<std::vector<std::string>> read_vocabulary(const std::string& path) {
  GW_ASSIGN(const std::vector<std::uint8_t> bytes, read_file_bytes(path, std::size_t{1} << 26));
  std::string_view rest(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  std::vector<std::string> words;
  std::unordered_map<std::string, int> line_of;
  for (int line = 1; !rest.empty(); ++line) {
    const std::size_t length = std::min(rest.find('\n'), rest.size());
    std::string word(rest.substr(0, length));
    rest.remove_prefix(std::min(length + 1, rest.size()));
    if (word.ends_with('\r')) word.pop_back();
    if (word.empty()) {
      return Status(Code::kCorruptPayload,
                    format("%s: line %d is empty (expected a word)", path.c_str(), line));
    }
    const auto [first, fresh] = line_of.emplace(word, line);
    if (!fresh) {
      return Status(Code::kCorruptPayload,
                    format("%s: line %d repeats '%s' of line %d (expected every word once)",
                           path.c_str(), line, word.c_str(), first->second));
    }
    words.push_back(std::move(word));
  }
  if (words.empty()) {
    return Status(Code::kCorruptPayload, path + ": empty (expected one word a line)");
  }
  if (!line_of.contains(std::string(kUnknownWord))) {
    words.insert(words.begin(), std::string(kUnknownWord));
  }
  return words;
}

namespace {

Result<DataSet> make(const std::string& name, const Texts& texts, const TextOptions& options) {
  GW_TRY(check(options).with_context("data set " + name));
  Tokens tokens;
  if (options.tokens == TokenKind::kWords) {
    GW_ASSIGN(tokens, word_tokens(texts, options));
  } else {
    tokens = byte_tokens(texts, options.tokens == TokenKind::kBytes);
  }
  const auto count = static_cast<std::int64_t>(tokens.numbers.size());
  Samples train;
  Samples test;
  train.context = options.context;
  test.context = options.context;
  train.tokens.assign(tokens.numbers.begin(), tokens.numbers.begin() + tokens.train);
  test.tokens.assign(tokens.numbers.begin() + tokens.train, tokens.numbers.end());
  if (train.count() < 1 || test.count() < 1) {
    return Status(
        Code::kInvalidArgument,
        format("data set %s: %lld tokens to train and %lld to test (expected more than the context "
               "of %lld in each)",
               name.c_str(), static_cast<long long>(tokens.train),
               static_cast<long long>(count - tokens.train),
               static_cast<long long>(options.context)));
  }
  DataSet made(name, std::move(tokens.vocabulary), std::move(train), std::move(test));
  if (options.evaluated) GW_TRY(made.judge_in_order(*options.evaluated));
  return made;
}

}  // namespace

Result<DataSet> make_text(const std::string& name, std::string_view text,
                          const TextOptions& options) {
  return make(name, {text}, options);
}

Result<DataSet> make_text(const std::string& name, std::string_view train, std::string_view test,
                          const TextOptions& options) {
  return make(name, {train, test, true}, options);
}

}  // namespace gradwire
