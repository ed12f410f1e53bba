// Which of several sides goes on, where the launcher's store decides.
//
// The tokens of a communicator form a chain, from 1 on: each is written once and names the ranks
// that went on with it. Who wants to go on walks the chain from its begin and writes the first
// token that nobody has. A token that does not name a rank shows it that others have gone on
// without it: it never gets a later one. So all ranks see one history, whatever number of tries or
// of shrinks each of them has behind it, and of two sides one finds the other's token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradwire/communicator.h"
#include "gradwire/status.h"

namespace gradwire {

class SideToken {
 public:
  // `all`: the ranks of the communicator and those it lost in earlier shrinks, ascending. They name
  // the chain, so they are the same on all sides.
  SideToken(const TakeToken& take, const std::vector<int>& all, int self);

  // For `here`, ascending, this rank among them, which have agreed on `generation`. Each of them
  // asks for itself; all learn the same. "" when they have the token, else the ranks that have gone
  // on without this one, for people. Errors: of the store; kTimedOut.
  Result<std::string> take(const std::vector<int>& here, std::uint32_t generation, Deadline until);

 private:
  const TakeToken& take_;
  std::string chain_;
  int self_;
  std::uint32_t next_ = 1;  // all before it name this rank
};

}  // namespace gradwire
