#include "trainer/memory/memory_arena.h"

#include <sys/mman.h>

#include <algorithm>
#include <utility>

#include "base/text.h"
#include "device/ops.h"

namespace gradwire {

std::string_view to_string(MemoryClass what) {
  static constexpr std::array<std::string_view, kMemoryClasses> kNames{
      "parameters",  "gradients", "main_gradients", "master",   "moments",       "gathered",
      "activations", "workspace", "messages",       "versions", "communication", "other"};
  return kNames[static_cast<std::size_t>(what)];
}

struct MemoryArena::Charge {
  Buffer memory;
  std::shared_ptr<Ledger> ledger;
  MemoryClass what;
  Charge(Buffer owned, std::shared_ptr<Ledger> counted_by, MemoryClass kind)
      : memory(std::move(owned)), ledger(std::move(counted_by)), what(kind) {
    ledger->hold(what, static_cast<std::int64_t>(memory.bytes().size()));
  }
  Charge(const Charge&) = delete;
  Charge& operator=(const Charge&) = delete;
  ~Charge() { ledger->hold(what, -static_cast<std::int64_t>(memory.bytes().size())); }
};

void MemoryArena::Ledger::hold(MemoryClass what, std::int64_t bytes) {
  const std::lock_guard lock(mutex);
  const auto i = static_cast<std::size_t>(what);
  use.now[i] += bytes;
  use.total += bytes;
  use.peak[i] = std::max(use.peak[i], use.now[i]);
  if (use.total <= use.peak_total) return;
  use.peak_total = use.total;
  use.at_peak = use.now;
}

Result<Buffer> MemoryArena::allocate(MemoryClass what, std::size_t bytes) const {
  GW_ASSIGN(Buffer memory,
            pages_ == Pages::kWritten ? reserve(bytes) : Buffer::allocate(bytes, device()));
  auto charge = std::make_shared<Charge>(std::move(memory), ledger_, what);
  const ByteSpan all = charge->memory.bytes();
  return Buffer::adopt(all, device(), std::move(charge));
}

Result<Buffer> MemoryArena::reserve(std::size_t bytes) const {
  if (bytes == 0 || device().space != MemorySpace::kHost) return Buffer::allocate(bytes, device());
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (at == MAP_FAILED) {
    return Status(Code::kOutOfMemory, format("%zu bytes of address space: none left", bytes));
  }
  const std::shared_ptr<void> owner(at, [bytes](void* start) { (void)::munmap(start, bytes); });
  return Buffer::adopt({static_cast<std::byte*>(at), bytes}, {}, owner);
}

Status MemoryArena::copy(std::span<const float> from, std::span<float> to) const {
  return copy_between(from, *this, to, *this);
}

Status copy_between(std::span<const float> from, const MemoryArena& here, std::span<float> to,
                    const MemoryArena& there) {
  const bool first = here.device().space == MemorySpace::kCuda;
  return copy_bytes(std::as_bytes(from), here.device(), std::as_writable_bytes(to), there.device(),
                    first ? here.stream() : there.stream());
}

MemoryUse MemoryArena::use() const {
  const std::lock_guard lock(ledger_->mutex);
  return ledger_->use;
}

void MemoryArena::restart_peaks() const {
  const std::lock_guard lock(ledger_->mutex);
  ledger_->use.peak = ledger_->use.at_peak = ledger_->use.now;
  ledger_->use.peak_total = ledger_->use.total;
}

}  // namespace gradwire
