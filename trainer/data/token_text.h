// Tokens as text again, and text as the tokens of a vocabulary that is there already.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradwire/status.h"
#include "trainer/data/text.h"

namespace gradwire {

// A vocabulary in one line of ASCII: tokens divided by blanks, each with its bytes up to the blank,
// '%' and those from 127 on as %XX. What parse_vocabulary() reads; kCorruptPayload names what is
// malformed, there twice or missing.
std::string vocabulary_text(std::span<const std::string> vocabulary);
Result<std::vector<std::string>> parse_vocabulary(std::string_view text);

// Immutable.
class TokenText {
 public:
  // `vocabulary`: as DataSet::vocabulary() has it for texts of this kind. kCorruptPayload: one that
  // no text has, e.g. words without "<unk>".
  static Result<TokenText> create(TokenKind kind, std::vector<std::string> vocabulary);

  // Words that the vocabulary lacks are "<unk>". kInvalidArgument names a character that it lacks.
  Result<std::vector<std::uint32_t>> numbers(std::string_view text) const;
  // What is written for a token behind another: words follow a blank, but at a line's beginning,
  // and "<eos>" is a line's end. `begins`: nothing is before it.
  std::string text(std::uint32_t number, std::uint32_t before, bool begins) const;
  // Stands before a text of which nothing is known: a line's end, else an unknown word, else 0.
  std::uint32_t start() const;

 private:
  TokenText(TokenKind kind, std::vector<std::string> vocabulary)
      : kind_(kind), vocabulary_(std::move(vocabulary)) {}
  bool ends_line(std::uint32_t number) const;

  TokenKind kind_;
  std::vector<std::string> vocabulary_;
};

}  // namespace gradwire
