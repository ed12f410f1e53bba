// A text as tokens: bytes, characters or words.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "gradwire/status.h"
#include "trainer/data/data_set.h"

namespace gradwire {

enum class TokenKind : std::uint8_t {
  kBytes,       // 256 of them, whatever the text
  kCharacters,  // the bytes that occur in the text, in ascending order
  kWords,       // runs of letters, digits, ' and bytes above 127; "<unk>" and a mark between two @,
                // as WikiText has them ("@-@"); every other mark alone; "<eos>" for a line's end;
                // blanks divide and are gone
};

// "bytes", "characters" or "words"; kInvalidArgument for others.
Result<TokenKind> parse_token_kind(const std::string& text);

struct TextOptions {
  TokenKind tokens = TokenKind::kCharacters;
  std::int64_t context = 64;            // tokens of a window
  std::int64_t vocabulary_size = 4096;  // kWords: at most so many, "<unk>" among them
  std::string vocabulary_file = {};     // kWords: one word a line; "": the most frequent ones
  // What DataSet::judge_in_order() is told; none: windows drawn at random, always the same.
  std::optional<std::int64_t> evaluated = {};
};

inline constexpr std::string_view kUnknownWord = "<unk>";
inline constexpr std::string_view kLineEnd = "<eos>";

// The words of `text`, in order.
std::vector<std::string_view> words_of(std::string_view text);

// Their numbers in a vocabulary that has "<unk>", which stands for those that it lacks.
std::vector<std::uint32_t> word_numbers(const std::vector<std::string_view>& words,
                                        const std::vector<std::string>& vocabulary);

// "<unk>", then the words by falling frequency, equally frequent ones in ascending order of bytes;
// at most `size` in all.
std::vector<std::string> frequent_words(const std::vector<std::string_view>& words,
                                        std::int64_t size);

// One word a line, plain or gzip; "<unk>" comes first if the file does not have it. kCorruptPayload
// for a word that is there twice, an empty line or an empty file.
Result<std::vector<std::string>> read_vocabulary(const std::string& path);

// The first nine tenths of the tokens (rounded down) train, the rest test. Words that the
// vocabulary lacks are "<unk>"; a vocabulary by frequency counts the training part alone.
// kInvalidArgument unless each part has more than `context` tokens.
Result<DataSet> make_text(const std::string& name, std::string_view text,
                          const TextOptions& options);
// All of `train` trains and all of `test` tests. Characters are those of both texts. Errors as
// above, and of another part.
Result<DataSet> make_text(const std::string& name, std::string_view train, std::string_view test,
                          const TextOptions& options);

}  // namespace gradwire
