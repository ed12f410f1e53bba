#include "trainer/model_share.h"

#include <algorithm>
#include <cstddef>

#include "base/text.h"

namespace gradwire {
namespace {

Status bad_share(const std::string& tensor, const std::string& what) {
  return Status(Code::kInvalidArgument, what).with_context("share of tensor '" + tensor + "'");
}

Status check_held(const ModelShare& share, const ModelShare::Tensor& tensor) {
  const std::size_t ranks = share.tensors.front().held.size();
  const bool mine = share.rank >= 0 && static_cast<std::size_t>(share.rank) < ranks;
  if (tensor.held.size() != ranks || !mine) {
    return bad_share(tensor.name,
                     format("boxes of %zu ranks, seen from rank %d (expected of %zu, and one of "
                            "them)",
                            tensor.held.size(), share.rank, ranks));
  }
  return check_boxes(tensor.held).with_context("share of tensor '" + tensor.name + "'");
}

}  // namespace

Status check_share(const ModelShare& share, const ParameterTable& here) {
  std::size_t found = 0;
  for (const ModelShare::Tensor& tensor : share.tensors) {
    GW_TRY(check_held(share, tensor));
    const TensorBox& mine = tensor.held[static_cast<std::size_t>(share.rank)];
    const auto at = std::ranges::find(here, tensor.name, &ParameterInfo::name);
    if (at == here.end()) {
      if (mine.elems() == 0) continue;
      return bad_share(tensor.name,
                       "not among this rank's parameters (expected " + to_string(mine) + ")");
    }
    ++found;
    if (box_of(*at) != mine) {
      return bad_share(tensor.name,
                       to_string(box_of(*at)) + " is here (expected " + to_string(mine) + ")");
    }
  }
  if (found == here.size()) return {};
  return {Code::kInvalidArgument, format("%zu of this rank's %zu parameters are tensors of the "
                                         "model (expected all)",
                                         found, here.size())};
}

}  // namespace gradwire
