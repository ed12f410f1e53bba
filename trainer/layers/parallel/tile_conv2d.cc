#include "trainer/layers/parallel/tile_conv2d.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "base/text.h"
#include "trainer/layers/block_part.h"

namespace gradwire {
namespace {

Status check_axis(const char* axis, std::int64_t tile, int parts, const ConvOptions& options) {
  if (parts == 1) return {};
  const auto refuse = [&](const char* what, std::int64_t got, const std::string& expected) {
    return Status(
        Code::kInvalidArgument,
        format("%s of %lld values in %d parts with kernel %lld, stride %lld and padding "
               "%lld: %s (got %lld, expected %s)",
               axis, static_cast<long long>(tile * parts), parts,
               static_cast<long long>(options.kernel), static_cast<long long>(options.stride),
               static_cast<long long>(options.padding), what, static_cast<long long>(got),
               expected.c_str()));
  };
  if (tile % options.stride != 0) {
    return refuse("values of a tile", tile, format("a multiple of the stride"));
  }
  const std::int64_t inputs = tile * parts;
  const std::int64_t outputs = (inputs + 2 * options.padding - options.kernel) / options.stride + 1;
  if (outputs != inputs / options.stride) {
    return refuse("outputs", outputs,
                  format("%lld, the values over the stride",
                         static_cast<long long>(inputs / options.stride)));
  }
  const std::int64_t halo =
      std::max(options.padding, options.kernel - options.stride - options.padding);
  if (halo > tile) {
    return refuse("halo from a neighbour's tile", halo,
                  format("at most %lld, a tile", static_cast<long long>(tile)));
  }
  return {};
}

}  // namespace

template <typename T>
Status TileConv2d<T>::check(SampleShape tile, const ConvOptions& options,
                            const TensorShare& share) {
  GW_TRY(check_axis("height", tile.height, share.tile_rows, options));
  return check_axis("width", tile.width, share.tile_columns, options);
}

// What the last window of a tile reads beyond it, and the first one before it: with outputs that
// are inputs over the stride, the same for all tiles. An axis of one part is the whole image's.
template <typename T>
auto TileConv2d<T>::sides_of(int parts, const ConvOptions& options) -> Sides {
  if (parts == 1) return {options.padding, options.padding};
  return {options.padding,
          std::max<std::int64_t>(options.kernel - options.stride - options.padding, 0)};
}

template <typename T>
SampleShape TileConv2d<T>::padded_of(SampleShape tile, const Sides& down, const Sides& right) {
  return {tile.channels, tile.height + down.both(), tile.width + right.both()};
}

template <typename T>
TileConv2d<T>::TileConv2d(SampleShape tile, std::int64_t out_channels, const ConvOptions& options,
                          const TensorShare& share)
    : tile_(tile),
      down_(sides_of(share.tile_rows, options)),
      right_(sides_of(share.tile_columns, options)),
      padded_(padded_of(tile, down_, right_)),
      conv_(padded_, out_channels,
            {options.kernel, options.stride, 0, options.groups, options.bias}) {
  GW_CHECK(check(tile, options, share).ok());
  for (const int down : {-1, 0, 1}) {
    for (const int right : {-1, 0, 1}) {
      if (down != 0 || right != 0) add_edge(TileGrid::of(share), down, right);
    }
  }
}

// The neighbour reads beyond its edge what lies at this tile's opposite one.
template <typename T>
void TileConv2d<T>::add_edge(const TileGrid& grid, int down, int right) {
  const auto peer = grid.neighbour(down, right);
  if (!peer) return;
  struct Line {
    std::int64_t begin = 0;
    std::int64_t size = 0;
  };
  const auto sent = [](int way, std::int64_t tile, const Sides& sides) -> Line {
    if (way == 0) return {0, tile};
    return way > 0 ? Line{tile - sides.before, sides.before} : Line{0, sides.behind};
  };
  const auto received = [](int way, std::int64_t tile, const Sides& sides) -> Line {
    if (way == 0) return {sides.before, tile};
    return way > 0 ? Line{sides.before + tile, sides.behind} : Line{0, sides.before};
  };
  const Line sent_down = sent(down, tile_.height, down_);
  const Line sent_right = sent(right, tile_.width, right_);
  const Line received_down = received(down, tile_.height, down_);
  const Line received_right = received(right, tile_.width, right_);
  const Edge edge{
      *peer,
      {sent_down.begin, sent_right.begin, sent_down.size, sent_right.size},
      {received_down.begin, received_right.begin, received_down.size, received_right.size},
      sent_,
      received_};
  if (edge.sent.elems() + edge.received.elems() == 0) return;
  sent_ += tile_.channels * edge.sent.elems();
  received_ += tile_.channels * edge.received.elems();
  edges_.push_back(edge);
}

// Scratch: the padded tile, what is sent, what the convolution wants. Kept: the halo. What travels
// on the way back is in the stash, since scratch is the parameters' then.
template <typename T>
std::int64_t TileConv2d<T>::scratch_elems(std::int64_t rows, MemorySpace where) const {
  const std::int64_t inner = conv_.scratch_elems(rows, where);
  if (!is_padded()) return inner;
  return edge_elems(rows, padded_.elems()) + edge_elems(rows, sent_) + inner;
}

template <typename T>
std::int64_t TileConv2d<T>::saved_elems(std::int64_t rows) const {
  return edge_elems(rows, received_);
}

template <typename T>
std::int64_t TileConv2d<T>::stash_elems(std::int64_t rows) const {
  return edge_elems(rows, received_) + edge_elems(rows, sent_);
}

template <typename T>
std::span<T> TileConv2d<T>::padded(const LayerPass<T>& pass) const {
  return part_of(pass.scratch, 0, pass.rows * padded_.elems());
}

template <typename T>
std::span<T> TileConv2d<T>::received(const LayerPass<T>& pass) const {
  return part_of(pass.saved, 0, pass.rows * received_);
}

template <typename T>
std::span<T> TileConv2d<T>::sent_back(const LayerPass<T>& pass) const {
  return part_of(pass.stash, 0, pass.rows * received_);
}

template <typename T>
std::span<T> TileConv2d<T>::received_back(const LayerPass<T>& pass) const {
  return part_of(pass.stash, edge_elems(pass.rows, received_), pass.rows * sent_);
}

template <typename T>
LayerPass<T> TileConv2d<T>::inner(const LayerPass<T>& pass) const {
  LayerPass<T> own = pass;
  if (!is_padded()) return own;
  own.x = padded(pass);
  own.scratch = pass.scratch.subspan(static_cast<std::size_t>(
      edge_elems(pass.rows, padded_.elems()) + edge_elems(pass.rows, sent_)));
  return own;
}

// Around the tile's own values in `padded`.
template <typename T>
void TileConv2d<T>::put_halo(const LayerPass<T>& pass) const {
  const std::span<const T> halo = received(pass);
  for (const Edge& edge : edges_) {
    put_area<T>(part_of(halo, pass.rows * edge.received_before,
                        pass.rows * tile_.channels * edge.received.elems()),
                pass.rows, padded_, edge.received, padded(pass));
  }
}

template <typename T>
void TileConv2d<T>::forward(const LayerPass<T>& pass) const {
  if (!is_padded()) return conv_.forward(pass);
  const std::span<T> outgoing =
      part_of(pass.scratch, edge_elems(pass.rows, padded_.elems()), pass.rows * sent_);
  std::array<Message, LayerPeers::kMostMessages> messages{};
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    const Edge& edge = edges_[i];
    const std::span<T> part = part_of(outgoing, pass.rows * edge.sent_before,
                                      pass.rows * tile_.channels * edge.sent.elems());
    take_area<T>(pass.x, pass.rows, tile_, edge.sent, part);
    messages[i] = {edge.peer, part,
                   part_of(received(pass), pass.rows * edge.received_before,
                           pass.rows * tile_.channels * edge.received.elems())};
  }
  pass.peers->start_exchange(std::span<const Message>(messages).first(edges_.size()));
  const std::span<T> around = padded(pass);
  std::fill(around.begin(), around.end(), T(0));
  put_area<T>(pass.x, pass.rows, padded_, inside(), around);
  pass.peers->await();
  put_halo(pass);
  conv_.forward(inner(pass));
}

template <typename T>
void TileConv2d<T>::backward_params(const LayerPass<T>& pass, std::span<const T> dy,
                                    std::span<T> grads) const {
  if (!is_padded()) return conv_.backward_params(pass, dy, grads);
  const std::span<T> around = padded(pass);
  std::fill(around.begin(), around.end(), T(0));
  put_area<T>(pass.x, pass.rows, padded_, inside(), around);
  put_halo(pass);
  conv_.backward_params(inner(pass), dy, grads);
}

template <typename T>
void TileConv2d<T>::backward_input(const LayerPass<T>& pass, std::span<const T> dy,
                                   std::span<T> dx) const {
  if (!is_padded()) return conv_.backward_input(pass, dy, dx);
  const std::span<T> around = padded(pass);
  conv_.backward_input(inner(pass), dy, around);
  std::array<Message, LayerPeers::kMostMessages> messages{};
  for (std::size_t i = 0; i < edges_.size(); ++i) {
    const Edge& edge = edges_[i];
    const std::span<T> part = part_of(sent_back(pass), pass.rows * edge.received_before,
                                      pass.rows * tile_.channels * edge.received.elems());
    take_area<T>(around, pass.rows, padded_, edge.received, part);
    messages[i] = {edge.peer, part,
                   part_of(received_back(pass), pass.rows * edge.sent_before,
                           pass.rows * tile_.channels * edge.sent.elems())};
  }
  pass.peers->start_exchange(std::span<const Message>(messages).first(edges_.size()));
  take_area<T>(around, pass.rows, padded_, inside(), dx);
}

// In the order of the edges, so that sums have the same bits in every run.
template <typename T>
void TileConv2d<T>::finish_input(const LayerPass<T>& pass, std::span<const T> /*dy*/,
                                 std::span<T> dx) const {
  if (!is_padded()) return;
  pass.peers->await();
  const std::span<const T> back = received_back(pass);
  for (const Edge& edge : edges_) {
    add_area<T>(
        part_of(back, pass.rows * edge.sent_before, pass.rows * tile_.channels * edge.sent.elems()),
        pass.rows, tile_, edge.sent, dx);
  }
}

template class TileConv2d<float>;
template class TileConv2d<double>;

}  // namespace gradwire
