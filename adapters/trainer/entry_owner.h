// Which entries of a checkpoint one rank of a replica writes, where its ranks each hold a part of
// the model.
#pragma once

#include <set>
#include <string>

#include "base/mesh.h"
#include "trainer/model_share.h"

namespace gradwire {

// A part that several ranks of a replica hold is written by one of them (owner_of()); what belongs
// to no parameter, and is equal on all of them, by the first.
class EntryOwner {
 public:
  // Of the rank at `at`. share: null where it holds the whole model; read here alone.
  EntryOwner(const ModelShare* share, const MeshCoordinates& at);

  // Entries of a parameter that is here.
  bool writes(const std::string& parameter) const { return !others_.contains(parameter); }
  // Entries of none.
  bool writes_rest() const { return first_; }

 private:
  bool first_;
  std::set<std::string> others_;  // parameters that are here, and written by another rank
};

}  // namespace gradwire
