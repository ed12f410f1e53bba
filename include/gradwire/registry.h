// Specs, the texts that select compressors in flags, files and APIs, and the registry of methods.
//
// clang-format off
//   list  := rules {";" rules}           several alternatives to compare; rules stand in [ ] here
//   rules := rule {";" rule}             the first rule that matches a tensor applies
//   rule  := [which "="] spec            `which` is there if the rule's first "=" precedes any ":"
//   which := glob ["@" sizes] | "@" sizes
//                                        glob: letters, digits, . _ - / * ?; default "*"
//   sizes := [size] ".." [size]          half-open: without the second size
//   size  := integer ["K" | "M" | "G"] ["B"]
//                                        elements; with B, bytes of gradient; K = 1024
//   spec  := stage {"|" stage}           topk:ratio=0.01|qsgd:bits=4: the second stage encodes the
//                                        values that the first selects
//   stage := name [":" arg {"," arg}]    names and keys: [a-z][a-z0-9_]*
//   arg   := key "=" value | value       a value without a key is the method's main key: cast:bf16
//                                        is cast:type=bf16
//   value := any characters but , | ; [ ] = and blanks. With an "@" it depends on the step:
//                                        0.25@0/0.0625@100/0.01@400, linear(FROM..TO@STEPS/STAGES)
//                                        or exp(FROM..TO@STEPS/STAGES) (default: 32 stages)
// clang-format on
// Blanks around , | ; are ignored. The aggregator's keys (aggregator.h) belong to the first stage;
// the aggregator removes them before it asks the registry.
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

// One stage of a spec.
struct Spec {
  std::string name;  // the method
  // Keys and values in order of appearance, no key twice; a value without a key has the key "".
  std::vector<std::pair<std::string, std::string>> params;
  friend bool operator==(const Spec&, const Spec&) = default;
};
using SpecChain = std::vector<Spec>;  // the stages of one spec, at least one

// A half-open range of tensor sizes, from `least` up to, not including, `below`.
struct SizeRange {
  std::int64_t least = 0;  // smallest size, in elements or bytes (in_bytes)
  std::int64_t below =
      std::numeric_limits<std::int64_t>::max();  // end of the range, in elements or bytes
  bool in_bytes = false;                         // true: bytes of gradient; false: elements
  // True if a tensor of `elems` elements of `element_bytes` bytes is in the range.
  bool holds(std::int64_t elems, std::size_t element_bytes) const;
  // True if every size in `other` is in this range.
  bool covers(const SizeRange& other) const;
  friend bool operator==(const SizeRange&, const SizeRange&) = default;
};

// One rule: the spec for tensors whose name and size match.
struct SpecRule {
  std::string glob;      // pattern of names; "*" if the text has none
  SpecChain spec;        // what applies to them
  SizeRange sizes = {};  // sizes of tensors; all if the text has none
};

// Parse a text of the grammar above: parse_spec() a spec, parse_spec_rules() rules,
// parse_spec_list() a list of alternatives, of which it returns the texts after a check
// ("none;cast:bf16;[*.bias=none;*=topk:ratio=0.01]" has three). They do not look methods up.
// Errors: kInvalidArgument; the message shows the text with a caret under the column.
Result<SpecChain> parse_spec(std::string_view text);
Result<std::vector<SpecRule>> parse_spec_rules(std::string_view text);
Result<std::vector<std::string>> parse_spec_list(std::string_view text);
// These four print the canonical text, which parses to an equal value.
std::string to_string(const Spec& spec);
std::string to_string(const SpecChain& chain);
std::string to_string(const SizeRange& sizes);  // "@64K..1MB"; "" for every size
std::string to_string(const SpecRule& rule);    // always with its glob, even "*"
// True if `name` matches `glob`: * stands for any characters, ? for any one.
bool glob_matches(std::string_view glob, std::string_view name);

// A key of a method, for help texts and messages.
struct SpecKey {
  std::string name;           // as written in a spec
  std::string default_value;  // as written in a spec; empty if the key has no default
  std::string meaning;        // one phrase, with unit and range
};

// A table of methods. A value, not a singleton: builtin() returns a copy, to which callers may add.
// Thread: const calls from any thread; add() while no other call runs.
class Registry {
 public:
  // Makes a method's Compressor from a spec whose keys are checked. Errors: kInvalidArgument for a
  // value out of range.
  using Factory = Result<std::unique_ptr<Compressor>> (*)(const Spec& spec);
  // The same for a sparse method whose selected values `values` encodes: an elementwise method with
  // payloads of fixed length. Null `values`: as Factory.
  using ComposedFactory = Result<std::unique_ptr<Compressor>> (*)(
      const Spec& spec, std::shared_ptr<const Compressor> values);
  // An entry of the table.
  struct Method {
    std::string name;                    // as written in a spec: [a-z][a-z0-9_]*
    std::string help;                    // one line: what it sends
    std::string main_key;                // the key of a value without a key; empty: none
    std::vector<SpecKey> keys;           // all keys
    Factory factory = nullptr;           // required
    ComposedFactory composed = nullptr;  // null: the method takes no second stage
  };

  // The table of gradwire's methods (compress/registry.cc lists them).
  static Registry builtin();
  // Adds a method. Errors: kInvalidArgument if the name is in use or not an identifier, or if there
  // is no factory.
  Status add(Method method);
  // Makes the compressor of a spec. With two stages the first must be sparse (Method::composed),
  // the second elementwise with payloads of fixed length. Errors: kInvalidArgument for an unknown
  // method or key (the message names the nearest and lists the known ones), a repeated key, a value
  // out of range, or stages that do not fit; kUnsupported for more than two stages.
  Result<std::unique_ptr<Compressor>> make(const SpecChain& spec) const;
  Result<std::unique_ptr<Compressor>> make(std::string_view spec) const;
  // All methods, in order of addition; valid until the next add().
  const std::vector<Method>& methods() const { return methods_; }

 private:
  // The method that `stage` names, with checked keys and with main_key in place of "".
  Result<std::pair<const Method*, Spec>> find(const Spec& stage) const;
  std::vector<Method> methods_;
};

}  // namespace gradwire
