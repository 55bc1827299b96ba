#include "strata/memory/timeline.h"

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/autograd/autograd.h"
#include "strata/core/error.h"
#include "strata/cuda/runtime.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::memory {
namespace {

using nlohmann::json;

// What a record says is held after all of its events: block -> {bytes, tag, holder}.
struct Held {
  int64_t bytes;
  std::string tag, holder;
};
std::vector<Held> replayed(const json& j, size_t events) {
  std::map<int64_t, Held> held;
  for (size_t i = 0; i < events; ++i) {
    const json& e = j["events"][i];
    if (e[2] == 0) {
      EXPECT_EQ(held.erase(e[1].get<int64_t>()), 1u) << "event " << i << " gives back what nobody holds";
    } else {
      held[e[1].get<int64_t>()] = {e[2].get<int64_t>(), j["tags"][e[3].get<size_t>()].get<std::string>(),
                                   j["holders"][e[4].get<size_t>()].get<std::string>()};
    }
  }
  std::vector<Held> all;
  for (const auto& [id, h] : held) all.push_back(h);
  return all;
}

class TimelineTest : public testing::TestWithParam<Device> {};

TEST_P(TimelineTest, FollowsAStep) {
  const Device device = GetParam();
  DeviceScope on(device);
  Tensor w;
  {
    TagScope tag(Tag::parameter);
    w = full({64, 64}, 0.5);
  }
  w.set_requires_grad();
  Timeline timeline(device);
  EXPECT_TRUE(is_recording());
  EXPECT_THROW(Timeline{device}, ValueError);
  const Stats before = stats(device);
  mark("step \"1\" <b>");
  Tensor kept;
  {
    ModuleScope module("encoder");
    const Tensor x = full({128, 64}, 1.0);
    kept = matmul(x, w);
  }
  sum(kept).backward();
  std::thread([] { const Tensor t = full({8192}, 2.0); }).join();
  timeline.stop();
  EXPECT_FALSE(is_recording());
  const Stats after = stats(device);
  const int64_t recorded = timeline.size();
  const Tensor unseen = full({4096}, 1.0);
  EXPECT_EQ(timeline.size(), recorded);

  const json j = json::parse(timeline.to_json());
  EXPECT_EQ(j["device"], to_string(device));
  EXPECT_EQ(j["whole"], true);
  EXPECT_EQ(j["marks"].size(), 1u);
  EXPECT_EQ(j["marks"][0][1], "step \"1\" <b>");
  ASSERT_EQ(static_cast<int64_t>(j["events"].size()), recorded);
  const auto now = replayed(j, j["events"].size());
  int64_t total = 0;
  for (const Held& h : now) total += h.bytes;
  EXPECT_EQ(total, after.live_total);
  EXPECT_GT(after.live_total, before.live_total);
  EXPECT_GT(after.allocations, before.allocations);
  const auto has = [&](int64_t bytes, const char* tag, const char* holder) {
    return std::any_of(now.begin(), now.end(), [&](const Held& h) {
      return h.bytes >= bytes && h.tag == tag && h.holder.find(holder) != std::string::npos;
    });
  };
  EXPECT_TRUE(has(64 * 64 * 4, "parameter", "")) << timeline.to_json();
  EXPECT_TRUE(has(128 * 64 * 4, "activation", "matmul in encoder")) << timeline.to_json();
  EXPECT_TRUE(has(64 * 64 * 4, "gradient", "in encoder")) << timeline.to_json();

  // The same as the heap's own list.
  const json snapshot = json::parse(snapshot_json(device));
  EXPECT_EQ(snapshot["blocks"].size(), now.size() + 1);
  EXPECT_EQ(snapshot["stats"]["live_total"], stats(device).live_total);
  EXPECT_EQ(static_cast<int64_t>(snapshot["blocks"].size()), stats(device).blocks);
  const std::vector<BlockInfo> all = blocks(device);
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(), [](auto& a, auto& b) { return a.address < b.address; }));
}

INSTANTIATE_TEST_SUITE_P(Devices, TimelineTest, testing::ValuesIn([] {
                           std::vector<Device> all{Device::cpu(), Device::meta()};
                           if (cuda::device_count() > 0) all.push_back(Device::cuda());
                           return all;
                         }()),
                         [](const auto& info) { return to_string(info.param).substr(0, 3); });

TEST(Timeline, StopsWhenItIsFull) {
  Timeline timeline(Device::cpu(), 3);
  const auto begin = static_cast<int64_t>(blocks(Device::cpu()).size());
  for (int i = 0; i < 5; ++i) full({5000}, 1.0);
  EXPECT_EQ(timeline.size(), begin + 3);
  EXPECT_FALSE(is_recording());
  EXPECT_EQ(json::parse(timeline.to_json())["whole"], false);
  EXPECT_THROW(Timeline(Device::cpu(), 0), ValueError);
  Timeline next(Device::cpu());  // nothing stands in its way
  EXPECT_TRUE(is_recording());
}

TEST(Timeline, PageHoldsTheRecordAndNoForeignMarkup) {
  Timeline timeline(Device::cpu());
  mark("</script><script>alert(1)");
  full({5000}, 1.0);
  timeline.stop();
  const std::string page = timeline.to_html("a <b> & c");
  EXPECT_NE(page.find("a &lt;b&gt; &amp; c"), std::string::npos);
  EXPECT_EQ(page.find("alert(1)"), page.rfind("alert(1)"));
  EXPECT_EQ(page.find("</script><script>alert"), std::string::npos);
  EXPECT_EQ(page.find("{{"), std::string::npos);
  EXPECT_NE(page.find(timeline.to_json()), std::string::npos);
  EXPECT_EQ(page.find("http://www.w3.org/2000/svg"), page.rfind("http")) << "the page loads nothing";
}

}  // namespace
}  // namespace strata::memory
