// A command's flags: every bad value names the flag, the value seen and what is allowed, every help
// line ends with the default, and a TOML file may stand in for any flag.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gradwire/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gradwire {

// Integers and numbers outside are refused.
struct Limits {
  double least = -std::numeric_limits<double>::infinity();
  double most = std::numeric_limits<double>::infinity();
};

// 4096, 64K, 25M, 1G (powers of 1024); nullopt-like error text says what is wanted.
Result<std::int64_t> parse_bytes(const std::string& text);

// Values given to the constructors of flags are written during parse() and must outlive it. What
// they hold before is the default that --help shows. Names are without dashes.
class Flags {
 public:
  // command: "train". purpose: a sentence or two for --help.
  Flags(const std::string& command, const std::string& purpose);
  ~Flags();

  // Flags declared from here on stand under this heading in --help.
  void group(const std::string& heading) { group_ = heading; }

  // `help` says what it is and its unit. An empty default is shown as the text `when_empty`.
  void text(const std::string& name, std::string& value, const std::string& help,
            const std::string& when_empty = "none");
  void choice(const std::string& name, std::string& value, std::vector<std::string> allowed,
              const std::string& help);
  void integer(const std::string& name, std::int64_t& value, Limits limits, const std::string& help,
               const std::string& default_text = "");
  void seed(const std::string& name, std::uint64_t& value, const std::string& help);
  void number(const std::string& name, double& value, Limits limits, const std::string& help,
              const std::string& default_text = "");
  void bytes(const std::string& name, std::int64_t& value, Limits limits, const std::string& help);
  void toggle(const std::string& name, bool& value, const std::string& help);
  // Comma-separated whole numbers, e.g. 128,64.
  void integers(const std::string& name, std::vector<std::int64_t>& values, Limits limits,
                const std::string& help);
  // A value with a grammar of its own: `set` parses and stores it; its error's text says what is
  // wrong.
  void custom(const std::string& name, const std::string& placeholder,
              const std::string& default_text, std::function<Status(const std::string&)> set,
              const std::string& help);
  // A word without dashes; required unless `optional`.
  void positional(const std::string& name, std::string& value, const std::string& help,
                  bool optional = false);
  // Adds --config FILE.toml: keys are flag names (- or _); flags of the command line win.
  void config_file();

  // As if a file gave one flag its value: an error names it without dashes. kInvalidArgument for a
  // name that is not declared.
  Status set(const std::string& name, const std::string& value);

  enum class Outcome : std::uint8_t { kRun, kHelp };
  // kHelp: the help was printed to stdout and there is nothing to do.
  Result<Outcome> parse(const std::vector<std::string>& args);
  // Whether the command line or the file gave it a value. After parse().
  bool given(const std::string& name) const;
  // Names of all flags that are declared, without positionals, and whether each is a toggle.
  std::vector<std::pair<std::string, bool>> declared() const;

 private:
  struct Flag {
    std::string name;
    bool is_toggle = false;
    bool is_positional = false;
    CLI::Option* option = nullptr;
    std::string text;  // what CLI11 read
    bool flag_seen = false;
    bool given = false;
    std::function<Status(const std::string&)> set;
  };

  Flag& add(const std::string& name, const std::string& placeholder,
            const std::string& default_text, const std::string& help,
            std::function<Status(const std::string&)> set);
  Status read_words(const std::vector<std::string>& args);
  Status apply_words();
  Status apply_file(const std::string& path);
  Status unknown_word(const std::string& word) const;
  std::string nearest(const std::string& name) const;

  std::string command_;
  std::string group_;
  std::string config_path_;
  std::unique_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<Flag>> flags_;
};

}  // namespace gradwire
