#include "strata/dist/store.h"

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "strata/dist/coordinator.h"
#include "strata/dist/values_inl.h"

namespace strata::distributed {
namespace {

using std::chrono::milliseconds;

// What holds for every store, here in this process and over the network.
class Stores : public ::testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (!GetParam()) {
      store_ = make_local_store();
      return;
    }
    coordinator_ = std::make_unique<Coordinator>(CoordinatorOptions{.size = 4, .secret = "x"});
    store_ = std::make_unique<StoreClient>(cat("127.0.0.1:", coordinator_->port()), "x", milliseconds(5000));
  }
  std::unique_ptr<Coordinator> coordinator_;
  std::unique_ptr<Store> store_;
};

TEST_P(Stores, KeepsAnyBytes) {
  std::string all;
  for (int i = 0; i < 256; ++i) all += static_cast<char>(i);
  for (const std::string& value : {std::string("a"), std::string(), all, std::string(size_t{1} << 20, '\xff')}) {
    store_->set("key", value);
    EXPECT_EQ(store_->get("key", milliseconds(0)), value);
  }
  std::string every;
  for (char c = '!'; c <= '~'; ++c) every += c;
  store_->set(every, "x");
  store_->set(every + "&", "y");
  EXPECT_EQ(store_->get(every, milliseconds(0)), "x");
  EXPECT_EQ(store_->get(every + "&", milliseconds(0)), "y");
}

TEST_P(Stores, WaitsForAKey) {
  const auto begin = std::chrono::steady_clock::now();
  try {
    (void)store_->get("never", milliseconds(200));
    FAIL();
  } catch (const DistributedError& e) {
    EXPECT_NE(std::string(e.what()).find("key 'never' was not set within 0.2 s"), std::string::npos) << e.what();
  }
  EXPECT_GE(std::chrono::steady_clock::now() - begin, milliseconds(200));
  std::thread late([&] {
    std::this_thread::sleep_for(milliseconds(100));
    store_->set("late", "here");
  });
  EXPECT_EQ(store_->get("late", milliseconds(20000)), "here");
  late.join();
  store_->remove("late");
  store_->remove("late");
  EXPECT_THROW((void)store_->get("late", milliseconds(0)), DistributedError);
}

TEST_P(Stores, AddsInOneStep) {
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) store_->add("count", 3);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(store_->add("count", -1), 299);
  EXPECT_EQ(store_->get("count", milliseconds(0)), "299");
  EXPECT_EQ(store_->add("zero", 0), 0);
  EXPECT_EQ(store_->get("zero", milliseconds(0)), "0");
  store_->set("text", "12a");
  EXPECT_THROW(store_->add("text", 1), ValueError);
  EXPECT_EQ(store_->add("large", INT64_MAX), INT64_MAX);
  EXPECT_THROW(store_->add("large", 1), ValueError);
  EXPECT_EQ(store_->get("large", milliseconds(0)), "9223372036854775807");
}

TEST_P(Stores, KeysAndValuesHaveLimits) {
  for (const std::string& key : {std::string(), std::string(257, 'a'), std::string("a b"), std::string("a\n"),
                                 std::string("\xc3\xa4"), std::string("a\0b", 3)}) {
    EXPECT_THROW(store_->set(key, "x"), ValueError) << key;
    EXPECT_THROW((void)store_->get(key, milliseconds(0)), ValueError) << key;
    EXPECT_THROW(store_->add(key, 1), ValueError) << key;
    EXPECT_THROW(store_->remove(key), ValueError) << key;
  }
  store_->set(std::string(256, '%'), "x");
  EXPECT_EQ(store_->get(std::string(256, '%'), milliseconds(0)), "x");
  EXPECT_THROW(store_->set("k", std::string((size_t{1} << 20) + 1, 'a')), ValueError);
}

INSTANTIATE_TEST_SUITE_P(Store, Stores, ::testing::Bool(),
                         [](const auto& info) { return info.param ? "Client" : "Local"; });

TEST(Values, AreBoundedTogether) {
  detail::Values few(3, 100);
  few.set("a", "1");
  few.set("b", "1");
  few.add("c", 1);
  EXPECT_THROW(few.set("d", "1"), DistributedError);
  EXPECT_THROW(few.add("d", 1), DistributedError);
  few.set("a", std::string(93, 'x'));  // 94 + 2 + 2 bytes
  few.set("a", std::string(95, 'x'));
  EXPECT_THROW(few.set("a", std::string(96, 'x')), DistributedError);
  EXPECT_EQ(few.get("a", {}), std::string(95, 'x'));
  few.remove("a");
  few.set("d", std::string(95, 'x'));
  EXPECT_FALSE(few.get("a", {}).has_value());
}

}  // namespace
}  // namespace strata::distributed
