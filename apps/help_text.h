// What a command takes, and the text of its --help.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace gradwire {

struct FlagFacts {
  std::string name;  // without dashes
  std::string placeholder = {};
  std::string default_text = {};  // "" where there is none to show
  std::string help = {};
  std::string group = {};
  std::vector<std::string> values = {};  // of a choice, in order
  bool is_toggle = false;
  bool is_positional = false;
  bool is_optional = false;         // a positional that may be missing
  bool has_optional_value = false;  // --json, --json FILE
};

struct CommandFacts {
  std::string command;  // "inspect schedule"
  std::string purpose;
  std::string trailer;  // "-- PROGRAM [ARG ...]"
  std::vector<FlagFacts> flags = {};
  std::vector<std::string> examples = {};
};

// "usage: gradwire inspect schedule ALGORITHM RANKS [flags]"
std::string usage_line(const CommandFacts& facts);
std::string help_text(const CommandFacts& facts);

// `text` broken at blanks into lines of at most `width` columns, all but the first after `indent`
// blanks. Line ends in it stay.
std::string wrapped(std::string_view text, std::size_t indent, std::size_t width = 80);

}  // namespace gradwire
