// What every store keeps: values arrive whole, keys are written once, waits end in time.
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <string>
#include <thread>

#include "comm/rendezvous/hmac.h"
#include "gradwire/config.h"
#include "gradwire/rendezvous.h"
#include "tests/support/fails.h"

namespace gradwire::rendezvous_store_test {
namespace {

ConstByteSpan bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}
std::string text_of(const Result<std::vector<std::byte>>& value) {
  if (!value.has_value()) return "error: " + std::string(value.error().message());
  return {reinterpret_cast<const char*>(value.value().data()), value.value().size()};
}

using Stores = std::vector<std::shared_ptr<KeyValueStore>>;

// A folder that is gone when the test is.
struct Folder {
  std::string path = ::testing::TempDir() + "gradwire-store-" + rendezvous::random_hex(8);
  ~Folder() {
    std::error_code ignored;
    std::filesystem::remove_all(path, ignored);
  }
};

Stores inproc_stores(int size, const std::string&) {
  return Stores(static_cast<std::size_t>(size), make_inproc_store());
}

Stores file_stores(int size, const std::string& folder, std::string_view secret) {
  Stores stores;
  for (int rank = 0; rank < size; ++rank) {
    auto store = make_file_store(folder, secret);
    EXPECT_TRUE(store.has_value()) << store.error().message();
    stores.push_back(store.value());
  }
  return stores;
}

Stores tcp_stores(int size, const std::string& secret) {
  Stores stores;
  TcpStoreOptions options{.size = size, .secret = secret, .timeout_seconds = 10};
  for (options.rank = 0; options.rank < size; ++options.rank) {
    auto store = make_tcp_store(options);
    EXPECT_TRUE(store.has_value()) << store.error().message();
    if (!store.has_value()) return {};
    stores.push_back(store.value());
    options.port = tcp_store_port(*stores[0]);
  }
  // Clients go before the server, which waits for their goodbyes.
  return stores;
}

struct Maker {
  const char* name;
  std::function<Stores(int size, const std::string& folder)> make;
};

class StoreLaws : public ::testing::TestWithParam<Maker> {
 protected:
  void SetUp() override { stores_ = GetParam().make(3, folder_.path); }
  void TearDown() override {
    while (!stores_.empty()) stores_.pop_back();
  }
  Folder folder_;
  Stores stores_;
};

TEST_P(StoreLaws, EveryRankSeesWhatAnotherSet) {
  ASSERT_EQ(stores_.size(), 3U);
  for (int rank = 0; rank < 3; ++rank) {
    const std::string key = "address/" + std::to_string(rank);
    const std::string value = "value of rank " + std::to_string(rank);
    ASSERT_TRUE(stores_[rank]->set(key, bytes_of(value), deadline_in(10)).ok());
  }
  for (auto& store : stores_)
    for (int rank = 0; rank < 3; ++rank)
      EXPECT_EQ(text_of(store->get("address/" + std::to_string(rank), deadline_in(10))),
                "value of rank " + std::to_string(rank));
}

// Deadlines beyond the time limit of the test: a wake-up that is lost does not go unseen.
TEST_P(StoreLaws, GetWaitsForALaterSet) {
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    EXPECT_TRUE(stores_[2]->set("late", bytes_of("x"), deadline_in(300)).ok());
  });
  std::thread other([&] { EXPECT_EQ(text_of(stores_[0]->get("late", deadline_in(300))), "x"); });
  EXPECT_EQ(text_of(stores_[1]->get("late", deadline_in(300))), "x");
  later.join();
  other.join();
}

TEST_P(StoreLaws, AThreadThatWaitsDoesNotKeepAnotherFromSetting) {
  std::thread waiter([&] { EXPECT_EQ(text_of(stores_[1]->get("k", deadline_in(300))), "v"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(stores_[1]->set("k", bytes_of("v"), deadline_in(300)).ok());
  waiter.join();
}

TEST_P(StoreLaws, EmptyAndLargestValuesArriveWhole) {
  const std::string largest(std::size_t{1} << 20, 'z');
  ASSERT_TRUE(stores_[1]->set("empty", {}, deadline_in(10)).ok());
  ASSERT_TRUE(stores_[1]->set("large", bytes_of(largest), deadline_in(10)).ok());
  EXPECT_EQ(text_of(stores_[2]->get("empty", deadline_in(10))), "");
  EXPECT_TRUE(text_of(stores_[2]->get("large", deadline_in(10))) == largest);
}

TEST_P(StoreLaws, AKeyIsWrittenOnce) {
  ASSERT_TRUE(stores_[1]->set("key", bytes_of("a"), deadline_in(10)).ok());
  EXPECT_TRUE(stores_[2]->set("key", bytes_of("a"), deadline_in(10)).ok());
  for (auto& store : stores_) {
    const Status twice = store->set("key", bytes_of("b"), deadline_in(10));
    EXPECT_THAT(twice, fails(Code::kInvalidArgument, "'key'", "twice"));
  }
  EXPECT_EQ(text_of(stores_[0]->get("key", deadline_in(10))), "a");
}

TEST_P(StoreLaws, AWaitEndsAtItsDeadlineAndNamesTheKey) {
  for (auto& store : stores_) {
    const auto missing = store->get("nobody sets this", deadline_in(0.05));
    ASSERT_FALSE(missing.has_value());
    EXPECT_THAT(missing.error(), fails(Code::kTimedOut, "'nobody sets this'"));
  }
}

TEST_P(StoreLaws, OddKeysAreKeysAndTooLongOnesAreRefused) {
  const std::string longest(256, '/');
  const std::string other = std::string(255, '/') + ".";
  ASSERT_TRUE(stores_[1]->set(longest, bytes_of("1"), deadline_in(10)).ok());
  ASSERT_TRUE(stores_[1]->set(other, bytes_of("2"), deadline_in(10)).ok());
  ASSERT_TRUE(stores_[1]->set("../up\n", bytes_of("3"), deadline_in(10)).ok());
  EXPECT_EQ(text_of(stores_[2]->get(longest, deadline_in(10))), "1");
  EXPECT_EQ(text_of(stores_[2]->get(other, deadline_in(10))), "2");
  EXPECT_EQ(text_of(stores_[2]->get("../up\n", deadline_in(10))), "3");
  const std::string large((std::size_t{1} << 20) + 1, 'z');
  for (auto& store : stores_) {
    EXPECT_EQ(store->set(std::string(257, 'k'), {}, deadline_in(10)).code(),
              Code::kInvalidArgument);
    EXPECT_EQ(store->get("", deadline_in(10)).error().code(), Code::kInvalidArgument);
    EXPECT_EQ(store->set("k", bytes_of(large), deadline_in(10)).code(), Code::kInvalidArgument);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, StoreLaws,
    ::testing::Values(
        Maker{"inproc", inproc_stores},
        Maker{"file", [](int n, const std::string& at) { return file_stores(n, at, {}); }},
        Maker{"file_secret", [](int n, const std::string& at) { return file_stores(n, at, "s"); }},
        Maker{"tcp", [](int n, const std::string&) { return tcp_stores(n, ""); }},
        Maker{"tcp_secret", [](int n, const std::string&) { return tcp_stores(n, "secret"); }}),
    [](const auto& param) { return param.param.name; });

TEST(FileStore, RefusesValuesOfAnotherSecret) {
  const Folder folder;
  auto mine = make_file_store(folder.path, "mine").value();
  auto other = make_file_store(folder.path, "other").value();
  ASSERT_TRUE(other->set("k", bytes_of("v"), deadline_in(1)).ok());
  const auto read = mine->get("k", deadline_in(1));
  ASSERT_FALSE(read.has_value());
  EXPECT_THAT(read.error(), fails(Code::kInvalidArgument, "secret"));
}

// Two jobs with one secret and one folder that somebody else can write.
TEST(FileStore, RefusesValuesOfAnotherJob) {
  const Folder folder;
  const auto open = [&](const std::string& job) {
    LaunchInfo info;
    info.size = 2;
    info.job = job;
    info.rendezvous = "file://" + folder.path;
    return open_rendezvous(info, "a secret", 5).value().store;
  };
  const auto yesterday = open("yesterday"), today = open("today");
  ASSERT_TRUE(yesterday->set("k", bytes_of("v"), deadline_in(1)).ok());
  EXPECT_TRUE(open("yesterday")->get("k", deadline_in(1)).has_value());
  std::filesystem::copy(folder.path + "/yesterday/k-k", folder.path + "/today/k-k");
  const auto read = today->get("k", deadline_in(1));
  ASSERT_FALSE(read.has_value());
  EXPECT_THAT(read.error(), fails(Code::kInvalidArgument, "secret"));
}

TEST(FileStore, NamesTheDirectoryThatCannotBeUsed) {
  const auto store = make_file_store("/proc/no-such-place");
  ASSERT_FALSE(store.has_value());
  EXPECT_THAT(store.error(), fails(Code::kInvalidArgument, "'/proc/no-such-place'"));
}

// Expected values from python3's hmac and struct modules.
TEST(Hmac, IsSha256OverLengthPrefixedParts) {
  const auto hex = [](std::initializer_list<ConstByteSpan> parts) {
    return rendezvous::to_hex(rendezvous::hmac(bytes_of("key"), parts));
  };
  EXPECT_EQ(hex({}), "5d5d139563c95b5967b9bd9a8c9b233a9dedb45072794cd232dc1b74832607d0");
  EXPECT_EQ(hex({bytes_of("ab"), bytes_of("c")}),
            "8c568fcbf2953946832018520a5eb5a6a63fe007671cf14e924b528f355076d0");
  EXPECT_EQ(hex({bytes_of("a"), bytes_of("bc")}),
            "732a3d11f8aa359c8f01a8e2a3c240e35e35a71da6686a8cab3eee8b1cbcca6c");
}

}  // namespace
}  // namespace gradwire::rendezvous_store_test
