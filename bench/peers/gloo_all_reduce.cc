// The peer of `gradwire bench all_reduce` over Gloo's TCP transport and its ring, fp32, in place.
//   gloo_all_reduce RANK RANKS INTERFACE FOLDER LABEL SECONDS BYTES...     one process a rank
// FOLDER is empty and seen by all ranks: they find each other there.
#include <gloo/allreduce.h>
#include <gloo/barrier.h>
#include <gloo/math.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/transport/tcp/device.h>

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "bench/peers/timing.h"

namespace {

class Gloo final : public peers::Peer {
 public:
  explicit Gloo(std::shared_ptr<gloo::Context> context) : context_(std::move(context)) {}
  int rank() const override { return context_->rank; }
  int ranks() const override { return context_->size; }

  void run(std::vector<float>& data) override {
    gloo::AllreduceOptions options(context_);
    options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
    options.setOutput(data.data(), data.size());
    options.setTag(++tag_);
    using Sum = void (*)(void*, const void*, const void*, std::size_t);
    options.setReduceFunction(static_cast<Sum>(&gloo::sum<float>));
    gloo::allreduce(options);
  }
  void max(std::vector<double>& values) override {
    gloo::AllreduceOptions options(context_);
    options.setOutput(values.data(), values.size());
    options.setTag(++tag_);
    using Max = void (*)(void*, const void*, const void*, std::size_t);
    options.setReduceFunction(static_cast<Max>(&gloo::max<double>));
    gloo::allreduce(options);
  }
  void barrier() override {
    gloo::BarrierOptions options(context_);
    options.setTag(++tag_);
    gloo::barrier(options);
  }

 private:
  std::shared_ptr<gloo::Context> context_;
  std::uint32_t tag_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 8) {
    std::fprintf(stderr,
                 "gloo_all_reduce: RANK RANKS INTERFACE FOLDER LABEL SECONDS BYTES... wanted\n");
    return 2;
  }
  gloo::transport::tcp::attr address;
  address.iface = argv[3];
  gloo::rendezvous::FileStore store(argv[4]);
  auto context =
      std::make_shared<gloo::rendezvous::Context>(std::atoi(argv[1]), std::atoi(argv[2]));
  auto device = gloo::transport::tcp::CreateDevice(address);
  context->connectFullMesh(store, device);
  Gloo peer(context);
  for (int i = 7; i < argc; ++i) {
    peers::measure(peer, argv[5], "all_reduce", std::atof(argv[6]), std::atol(argv[i]));
  }
  peer.barrier();
  return 0;
}
