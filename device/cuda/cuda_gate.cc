#include "device/cuda/cuda_gate.h"

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "device/cuda/capture.h"
#include "device/cuda/driver.h"
#include "device/cuda/memory_calls.h"
#include "device/cuda/stream.h"

namespace gradwire::cuda {
namespace {

// Words of pinned memory, 0 while their gate is closed. One is used again when the stream that
// waited for it has come past.
class Words {
 public:
  Result<std::uint32_t*> take() {
    const std::lock_guard lock(mutex_);
    std::erase_if(retired_, [this](const Retired& one) {
      const Result<bool> passed = one.behind.passed();
      if (passed.has_value() && !passed.value()) return false;
      free_.push_back(one.word);
      return true;
    });
    if (free_.empty()) GW_TRY(add_page());
    std::uint32_t* const word = free_.back();
    free_.pop_back();
    *word = 0;
    return word;
  }
  void put_back(std::uint32_t* word) {
    const std::lock_guard lock(mutex_);
    free_.push_back(word);
  }
  void retire(std::uint32_t* word, Event behind) {
    const std::lock_guard lock(mutex_);
    retired_.push_back({word, std::move(behind)});
  }

 private:
  struct Retired {
    std::uint32_t* word;
    Event behind;
  };
  // Never freed, as its words may be waited for to the process's end.
  Status add_page() {
    constexpr std::size_t kPage = 4096;
    GW_ASSIGN(std::byte* const page, allocate_zeroed(kPage, {MemorySpace::kPinnedHost, 0}));
    for (std::size_t i = 0; i < kPage / sizeof(std::uint32_t); ++i) {
      free_.push_back(reinterpret_cast<std::uint32_t*>(page) + i);
    }
    return {};
  }

  std::mutex mutex_;
  std::vector<std::uint32_t*> free_;
  std::vector<Retired> retired_;
};
// Never destroyed: gates may be opened by what is.
Words& words() {
  static auto& all = *new Words();
  return all;
}

class CudaGate final : public StreamGate {
 public:
  CudaGate(std::uint32_t* word, Event behind) : word_(word), behind_(std::move(behind)) {}
  ~CudaGate() override {
    open();
    words().retire(word_, std::move(behind_));
  }
  CudaGate(const CudaGate&) = delete;
  CudaGate& operator=(const CudaGate&) = delete;
  void open() override { set_word(word_); }
  // Behind the wait: where the word is free again.
  Status mark(const Stream& stream) { return behind_.record(stream); }

 private:
  std::uint32_t* word_;
  Event behind_;
};

}  // namespace

Result<std::unique_ptr<StreamGate>> close_gate(const Stream& stream) {
  // Memory is freed in the order of that stream, and blocking streams keep to it: what held it back
  // would hold them back, and perhaps what opens the gate.
  static void* const legacy = reinterpret_cast<void*>(std::uintptr_t{1});  // cudaStreamLegacy
  if (stream.native == nullptr || stream.native == legacy) {
    return Status(Code::kUnsupported,
                  "a gate on CUDA's default stream (expected another stream, or the host to wait)");
  }
  GW_TRY(refuse_capture("a wait for the host", stream));
  const OnDevice here(stream.device);
  GW_TRY(here.status());
  GW_ASSIGN(Event behind, Event::create(stream.device));
  GW_ASSIGN(std::uint32_t* const word, words().take());
  if (!wait_for_word(stream.native, word)) {
    words().put_back(word);
    return Status(Code::kUnsupported,
                  "CUDA's driver has no wait for a word of memory (expected "
                  "cuStreamWaitValue32)");
  }
  // From here on the stream waits: the gate's end opens it, whatever follows.
  auto gate = std::make_unique<CudaGate>(word, std::move(behind));
  GW_TRY(gate->mark(stream));
  return std::unique_ptr<StreamGate>(std::move(gate));
}

}  // namespace gradwire::cuda
