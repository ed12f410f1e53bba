#include "tests/emulation/emulated_memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "tests/emulation/chance.h"
#include "tests/emulation/emulated_device.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define GW_HIDE(data, bytes) __asan_poison_memory_region(data, bytes)
#define GW_SHOW(data, bytes) __asan_unpoison_memory_region(data, bytes)
#else
#define GW_HIDE(data, bytes) static_cast<void>(0)
#define GW_SHOW(data, bytes) static_cast<void>(0)
#endif

namespace gradwire::emulation {
namespace {

constexpr std::size_t kAlignment = 256;
constexpr std::size_t kMargin = 64;  // at least
constexpr std::size_t kOwnPages = std::size_t{1} << 20;
constexpr std::size_t kSlab = std::size_t{16} << 20;
constexpr int kMarginByte = 0xee;
constexpr int kNoKey = -1;

std::atomic<bool> open_to_host = false;

constexpr std::size_t round_up(std::size_t bytes, std::size_t to) {
  return (bytes + to - 1) / to * to;
}

void say_touched(int signal, siginfo_t* info, void* context);
struct sigaction before_ours;

// The key of device memory; kNoKey where there is none. Threads that were there before have no
// rights to a new key, nor have those that they start.
class Key {
 public:
  Key() : key_(open_to_host ? kNoKey : ::pkey_alloc(0, PKEY_DISABLE_ACCESS)) {
    if (key_ < 0) return;
    struct sigaction ours = {};
    ours.sa_sigaction = say_touched;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    ::sigaction(SIGSEGV, &ours, &before_ours);
  }
  int number() const { return key_; }
  void protect(void* data, std::size_t bytes) const {
    if (key_ >= 0) ::pkey_mprotect(data, bytes, PROT_READ | PROT_WRITE, key_);
  }

 private:
  int key_;
};
const Key& key() {
  static const Key of_devices;
  return of_devices;
}

// When this returns, the thread makes the same access again, and the signal goes to the handler
// that was there before.
void say_touched(int, siginfo_t* info, void*) {
  if (info->si_code == SEGV_PKUERR) {
    constexpr char kText[] =
        "CUDA emulator: the host touched memory of a device outside a copy (gdb shows where)\n";
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText, sizeof kText - 1);
    print_seed();
  }
  ::sigaction(SIGSEGV, &before_ours, nullptr);
}

[[noreturn]] void end_over_margin(std::size_t bytes) {
  std::fprintf(stderr, "CUDA emulator: something was written behind a block of %zu bytes\n", bytes);
  print_seed();
  std::abort();
}

class Memory {
 public:
  // Left to the end of the process, as memory that is freed there.
  static Memory& all() {
    static auto* const memory = new Memory;
    return *memory;
  }

  void* take(std::size_t bytes, Owner owner) {
    const std::size_t room = room_for(bytes);
    std::byte* data = nullptr;
    {
      const std::lock_guard lock(mutex_);
      data = room >= kOwnPages ? map_apart(room, owner) : part_of_slab(room, owner);
      if (data == nullptr) return nullptr;
      blocks_[data] = {bytes, room, owner};
    }
    GW_SHOW(data, room);
    const TouchDevices here;
    std::memset(data, kPoison, bytes);
    std::memset(data + bytes, kMarginByte, margin_of(bytes, room));
    GW_HIDE(data + bytes, room - bytes);
    return data;
  }

  void free(void* data) {
    const TouchDevices here;
    const std::lock_guard lock(mutex_);
    const auto found = blocks_.find(data);
    if (found == blocks_.end()) std::abort();  // freed twice, or never taken
    const Block block = found->second;
    blocks_.erase(found);
    auto* const at = static_cast<std::byte*>(data);
    GW_SHOW(at, block.room);
    const std::byte* const end = at + block.bytes + margin_of(block.bytes, block.room);
    if (std::any_of(static_cast<const std::byte*>(at) + block.bytes, end,
                    [](std::byte b) { return b != std::byte{kMarginByte}; })) {
      end_over_margin(block.bytes);
    }
    if (block.room >= kOwnPages) {
      ::munmap(at - offset_of(block.room), pages_of(block.room) + page());
      return;
    }
    std::memset(at, kPoison, block.bytes);
    GW_HIDE(at, block.room);
    free_[index(block.owner)][block.room].push_back(at);
  }

 private:
  struct Block {
    std::size_t bytes = 0;
    std::size_t room = 0;
    Owner owner = Owner::kDevice;
  };
  struct Slab {
    std::byte* at = nullptr;
    std::size_t left = 0;
  };
  static std::size_t index(Owner owner) { return static_cast<std::size_t>(owner); }
  static std::size_t page() { return static_cast<std::size_t>(::sysconf(_SC_PAGESIZE)); }
  static std::size_t pages_of(std::size_t room) { return round_up(room, page()); }
  // So that the block ends where the pages do.
  static std::size_t offset_of(std::size_t room) { return pages_of(room) - room; }
  // Classes of sizes, four to each power of two, so that what was freed fits again.
  static std::size_t room_for(std::size_t bytes) {
    const std::size_t least = round_up(bytes + kMargin, kAlignment);
    if (least >= kOwnPages) return least;
    return round_up(least, std::max(kAlignment, std::bit_ceil(least) / 8));
  }
  static std::size_t margin_of(std::size_t bytes, std::size_t room) {
    return std::min(room - bytes, kAlignment);
  }
  static std::byte* map(std::size_t bytes, Owner owner) {
    void* const data = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) return nullptr;
    if (owner == Owner::kDevice) key().protect(data, bytes);
    return static_cast<std::byte*>(data);
  }
  static std::byte* map_apart(std::size_t room, Owner owner) {
    std::byte* const pages = map(pages_of(room) + page(), owner);
    if (pages == nullptr) return nullptr;
    ::mprotect(pages + pages_of(room), page(), PROT_NONE);
    return pages + offset_of(room);
  }
  std::byte* part_of_slab(std::size_t room, Owner owner) {
    auto& same = free_[index(owner)][room];
    if (!same.empty()) {
      std::byte* const data = same.back();
      same.pop_back();
      return data;
    }
    Slab& slab = slabs_[index(owner)];
    if (slab.left < room) {
      std::byte* const fresh = map(kSlab, owner);
      if (fresh == nullptr) return nullptr;
      slab = {fresh, kSlab};
    }
    std::byte* const data = slab.at;
    slab.at += room;
    slab.left -= room;
    return data;
  }

  std::mutex mutex_;
  std::unordered_map<void*, Block> blocks_;
  std::array<std::map<std::size_t, std::vector<std::byte*>>, 2> free_;
  std::array<Slab, 2> slabs_;
};

}  // namespace

void* take_memory(std::size_t bytes, Owner owner) { return Memory::all().take(bytes, owner); }
void free_memory(void* data) { Memory::all().free(data); }

bool guards_device_memory() { return key().number() >= 0; }
void let_thread_touch_devices() {
  if (guards_device_memory()) ::pkey_set(key().number(), 0);
}

void let_host_touch_devices() { open_to_host = true; }

TouchDevices::TouchDevices() : rights_(guards_device_memory() ? ::pkey_get(key().number()) : 0) {
  let_thread_touch_devices();
}
TouchDevices::~TouchDevices() {
  if (guards_device_memory()) ::pkey_set(key().number(), static_cast<unsigned>(rights_));
}

}  // namespace gradwire::emulation
