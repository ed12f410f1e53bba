// The nearest right word to one that was misspelt, for errors: "did you mean 'ratio'?".
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradwire {

// The known word that `word` most likely stands for, or "". Capitals and lower case, - and _ count
// as the same; one letter in three may be wrong, missing, surplus or swapped with its neighbour; a
// beginning of three letters or more is enough where it is the beginning of one known word alone.
// Names that other programs have for a known flag ("learning-rate" for "lr") stand for it.
std::string nearest(std::string_view word, const std::vector<std::string>& known);

// "; did you mean 'ratio'?", with `prefix` before the word (e.g. "--"), or "".
std::string did_you_mean(std::string_view word, const std::vector<std::string>& known,
                         std::string_view prefix = "");

}  // namespace gradwire
