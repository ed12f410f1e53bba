// Compressor specs: the one grammar of flags, files and APIs, and the table of methods behind it.
//
// clang-format off
//   list  := rules {";" rules}           where several are compared; rules in a list stand in [ ]
//   rules := rule {";" rule}
//   rule  := [which "="] spec            which: present if and only if the rule's first "=" stands
//                                        before any ":"
//   which := glob ["@" sizes] | "@" sizes
//                                        glob: letters, digits, . _ - / * ?; "*" where missing
//   sizes := [size] ".." [size]          from the first up to, not including, the second
//   size  := integer ["K" | "M" | "G"] ["B"]
//                                        elements, with B bytes of gradient; K = 1024
//   spec  := stage {"|" stage}           topk:ratio=0.01|qsgd:bits=4: the second codes the values
//                                        of the first
//   stage := name [":" arg {"," arg}]    names and keys: [a-z][a-z0-9_]*
//   arg   := key "=" value | value       a bare value is the method's main key: cast:bf16 is
//                                        cast:type=bf16
//   value := any characters but , | ; [ ] = and blanks; with an "@" it follows the step:
//                                        0.25@0/0.0625@100/0.01@400, linear(FROM..TO@STEPS/STAGES)
//                                        or exp(...): in so many stages (default 32)
// clang-format on
// Blanks around , | ; are ignored. The aggregator's keys (aggregator.h) stand in the first stage
// and are taken out before the registry sees it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "gradwire/compressor.h"
#include "gradwire/status.h"

namespace gradwire {

// One stage. A bare value has the key "".
struct Spec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> params;  // in order of appearance, no duplicates
  friend bool operator==(const Spec&, const Spec&) = default;
};
using SpecChain = std::vector<Spec>;  // stages of one spec, at least one

// Of a tensor: from `least` up to, not including, `below`.
struct SizeRange {
  std::int64_t least = 0;
  std::int64_t below = std::numeric_limits<std::int64_t>::max();
  bool in_bytes = false;  // of gradient; else elements
  bool holds(std::int64_t elems, std::size_t element_bytes) const;
  // Every size of `other` is one of these.
  bool covers(const SizeRange& other) const;
  friend bool operator==(const SizeRange&, const SizeRange&) = default;
};

struct SpecRule {
  std::string glob;  // "*" when the text named none
  SpecChain spec;
  SizeRange sizes = {};  // everything when the text named none
};

// Errors show the text with a caret under the column.
Result<SpecChain> parse_spec(std::string_view text);
Result<std::vector<SpecRule>> parse_spec_rules(std::string_view text);
// "none;cast:bf16;[*.bias=none;*=topk:ratio=0.01]" -> three texts, each of them checked.
Result<std::vector<std::string>> parse_spec_list(std::string_view text);
std::string to_string(const Spec& spec);
std::string to_string(const SpecChain& chain);
std::string to_string(const SizeRange& sizes);  // "@64K..1MB"; "" for every size
std::string to_string(const SpecRule& rule);    // with its glob, "*" too
// Shell-like: * any run of characters, ? any one.
bool glob_matches(std::string_view glob, std::string_view name);

// What a user may write for a method's key.
struct SpecKey {
  std::string name;
  std::string default_value;  // "" when the key has none
  std::string meaning;        // with unit and range
};

// A table of methods. A value, not a singleton: builtin() returns one, callers add to their copy.
class Registry {
 public:
  using Factory = Result<std::unique_ptr<Compressor>> (*)(const Spec& spec);
  // Of a sparse method whose values travel as `values` codes them: elementwise, of fixed length.
  // Null `values`: as the Factory.
  using ComposedFactory = Result<std::unique_ptr<Compressor>> (*)(
      const Spec& spec, std::shared_ptr<const Compressor> values);
  struct Method {
    std::string name;
    std::string help;      // one line: what it sends
    std::string main_key;  // what a bare value means; "" when none may be given
    std::vector<SpecKey> keys;
    Factory factory = nullptr;
    ComposedFactory composed = nullptr;  // null: the method has no values that another could code
  };

  static Registry builtin();  // one visible list, in compress/registry.cc
  // kInvalidArgument when the name is taken or is no identifier.
  Status add(Method method);
  // Refuses unknown names (listing the known ones), unknown keys (listing the method's), repeated
  // keys and values that the factory finds out of range; resolves a bare value to main_key. Of two
  // stages the first must be sparse (Method::composed) and the second elementwise with payloads of
  // fixed length; more than two are refused.
  Result<std::unique_ptr<Compressor>> make(const SpecChain& spec) const;
  Result<std::unique_ptr<Compressor>> make(std::string_view spec) const;
  const std::vector<Method>& methods() const { return methods_; }

 private:
  // The method that `stage` names, its keys checked and its bare value resolved.
  Result<std::pair<const Method*, Spec>> find(const Spec& stage) const;
  std::vector<Method> methods_;
};

}  // namespace gradwire
