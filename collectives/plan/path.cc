#include "collectives/plan/path.h"

namespace gradwire {

Result<Work> PreparedCall::start_alone(std::optional<Deadline> deadline) {
  GW_TRY(group_.status());
  GW_TRY(before());
  auto work = std::make_shared<WorkState>(group_.engine());
  GW_TRY(start(work, deadline));
  return Work(std::move(work));
}

Result<std::unique_ptr<CallPath>> CallPath::for_split(int, int, const GroupMembers* part) {
  if (part == nullptr) return std::unique_ptr<CallPath>();
  return for_group(*part);
}

}  // namespace gradwire
