// A command's flags: every bad value names the flag, the value that was given and what is expected,
// every help line ends with the default, and a TOML file may stand in for any flag.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/flag_values.h"
#include "apps/help_text.h"
#include "gradwire/status.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace gradwire {

// Values given to the constructors of flags are written during parse() and must outlive it. What
// they hold before is the default that --help shows. Names are without dashes.
class Flags {
 public:
  // command: "train". purpose: a sentence or two for --help.
  Flags(const std::string& command, const std::string& purpose);
  ~Flags();

  // Flags declared from here on stand under this heading in --help.
  void group(const std::string& heading) { group_ = heading; }
  // What follows the flags in the usage line: "-- PROGRAM [ARG ...]".
  void trailer(const std::string& text) { facts_.trailer = text; }
  // A command line that --help ends with; a test runs all of them.
  void example(const std::string& command_line) { facts_.examples.push_back(command_line); }

  // `help` says what it is and its unit. An empty default is shown as the text `when_empty`.
  void text(const std::string& name, std::string& value, const std::string& help,
            const std::string& when_empty = "none", const std::string& placeholder = "TEXT");
  // Paths, which completion knows.
  void file(const std::string& name, std::string& value, const std::string& help,
            const std::string& when_empty = "none");
  void folder(const std::string& name, std::string& value, const std::string& help,
              const std::string& when_empty = "none");
  void choice(const std::string& name, std::string& value, std::vector<std::string> allowed,
              const std::string& help, const std::string& when_empty = "unset");
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
  // wrong. `values`: all that it may be, for --help and completion alone.
  void custom(const std::string& name, const std::string& placeholder,
              const std::string& default_text, std::function<Status(const std::string&)> set,
              const std::string& help, std::vector<std::string> values = {});
  // --json: `value` becomes "-", standard output. --json FILE: the file's name.
  void json_output(std::string& value);
  // A word without dashes; required unless `optional`. `values`: all words that it may be, for
  // completion alone.
  void positional(const std::string& name, std::string& value, const std::string& help,
                  bool optional = false, std::vector<std::string> values = {});
  // Adds --config FILE.toml: keys are flag names (- or _); flags of the command line win.
  void config_file();
  // An earlier name of a flag: accepted with a notice, and not shown.
  void alias(const std::string& old_name, const std::string& name) { aliases_[old_name] = name; }

  // As if a file gave one flag its value: an error names it without dashes. kInvalidArgument for a
  // name that is not declared.
  Status set(const std::string& name, const std::string& value);

  enum class Outcome : std::uint8_t { kRun, kHelp };
  // kHelp: the help was printed to stdout and there is nothing to do.
  Result<Outcome> parse(const std::vector<std::string>& args);
  // Whether the command line or the file gave it a value. After parse().
  bool given(const std::string& name) const;
  const CommandFacts& facts() const { return facts_; }

  // While one exists, parse() on this thread hands what is declared to it and answers kHelp: how
  // completion and tests learn what commands take without running them.
  class Probe {
   public:
    explicit Probe(std::function<void(const CommandFacts&)> take);
    ~Probe();
    Probe(const Probe&) = delete;
    Probe& operator=(const Probe&) = delete;

   private:
    friend class Flags;
    std::function<void(const CommandFacts&)> take_;
  };

 private:
  struct Flag {
    std::string name;
    std::string placeholder;
    bool is_toggle = false;
    bool is_positional = false;
    bool is_optional = false;
    CLI::Option* option = nullptr;
    std::string text;  // what CLI11 read
    bool flag_seen = false;
    bool given = false;
    std::function<Status(const std::string&)> set;
  };

  // `shown` is added to the facts; `set` stores a value.
  Flag& add(FlagFacts shown, std::function<Status(const std::string&)> set);
  std::vector<std::string> with_present_names(const std::vector<std::string>& args) const;
  Status read_words(const std::vector<std::string>& args);
  Status apply_words();
  Status apply_file(const std::string& path);
  Status unknown_word(const std::string& word) const;
  Status missing_value(const std::string& what) const;
  std::string present_name(const std::string& name) const;
  std::vector<std::string> names() const;

  std::string group_ = "Flags";
  std::string config_path_;
  CommandFacts facts_;
  std::unique_ptr<CLI::App> app_;
  std::vector<std::unique_ptr<Flag>> flags_;
  std::map<std::string, std::string> aliases_;
};

}  // namespace gradwire
