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

ModelShare share_of_tables(const ParameterTable& whole, std::span<const ParameterTable> held,
                           int rank) {
  ModelShare share{.rank = rank, .tensors = {}};
  for (const ParameterInfo& info : whole) {
    ModelShare::Tensor& tensor = share.tensors.emplace_back(ModelShare::Tensor{info.name, {}});
    TensorBox none = box_of(info);
    std::vector<bool> has;
    for (const ParameterTable& table : held) {
      const auto found = std::ranges::find(table, info.name, &ParameterInfo::name);
      has.push_back(found != table.end());
      // All boxes of a tensor are of one grid, those without elements too.
      if (found != table.end()) none = TensorBox::of(box_of(*found).whole, box_of(*found).grid);
      tensor.held.push_back(found == table.end() ? TensorBox() : box_of(*found));
    }
    for (std::size_t r = 0; r < held.size(); ++r) {
      if (!has[r]) tensor.held[r] = none.cut(0, {0, 0});
    }
  }
  return share;
}

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
