#include "strata/lab/trace.h"

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/autograd/autograd.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"

namespace strata::lab {
namespace {

Trace example() {
  Trace t;
  t.track("compute").spans = {{"a", 0, 1, 0, Phase::forward}, {"b", 1, 3, 0, Phase::backward}};
  t.track("to host").spans = {{"x", 0.5, 1.5, 1000, Phase::forward}, {"y", 1.25, 2, 500, Phase::forward}};
  return t;
}

TEST(Trace, BusyAndOverlap) {
  const Trace t = example();
  EXPECT_DOUBLE_EQ(t.tracks[0].busy(), 3);
  EXPECT_DOUBLE_EQ(t.tracks[1].busy(), 1.5);  // x and y overlap
  EXPECT_DOUBLE_EQ(t.overlap("compute", "to host"), 1.5);
  EXPECT_DOUBLE_EQ(t.overlap("to host", "compute"), 1.5);
  EXPECT_EQ(t.overlap("compute", "disk"), 0);
  EXPECT_EQ(t.end(), 3);
  Trace apart;
  apart.track("compute").spans = {{"a", 0, 1}, {"b", 2, 3}};
  apart.track("to host").spans = {{"x", 1, 2}};
  EXPECT_EQ(apart.overlap("compute", "to host"), 0);
  EXPECT_EQ(Trace().end(), 0);
}

TEST(Trace, ChromeJson) {
  Trace t = example();
  t.track("odd \"name\"\n").spans = {{"\xff<&>", 0, 1e-6}};
  const auto json = nlohmann::json::parse(t.to_chrome_json());
  std::map<std::string, int> events;
  for (const auto& e : json["traceEvents"]) ++events[e["ph"].get<std::string>()];
  EXPECT_EQ(events["X"], 5);
  EXPECT_EQ(events["M"], 6);
  for (const auto& e : json["traceEvents"]) {
    if (e["name"] != "x") continue;
    EXPECT_EQ(e["ts"], 0.5e6);
    EXPECT_EQ(e["dur"], 1e6);
    EXPECT_EQ(e["tid"], 1);
    EXPECT_EQ(e["args"]["bytes"], 1000);
    EXPECT_DOUBLE_EQ(e["args"]["GB/s"].get<double>(), 1e-6);
  }
}

TEST(Trace, Picture) {
  Trace t = example();
  t.track("<disk>").spans = {{"a<b", 0, 0.5, 7}};
  // Ten thousand spans that no eye can tell apart.
  for (int i = 0; i < 10000; ++i) t.track("many").spans.push_back({"m", i * 3e-4, (i + 1) * 3e-4});
  const std::string svg = t.to_svg();
  EXPECT_EQ(svg.find("<disk>"), std::string::npos);
  EXPECT_NE(svg.find("&lt;disk&gt;"), std::string::npos);
  EXPECT_NE(svg.find("a&lt;b"), std::string::npos);
  size_t bars = 0;
  for (size_t at = svg.find("<rect"); at != std::string::npos; at = svg.find("<rect", at + 1)) ++bars;
  EXPECT_GE(bars, 6u);
  EXPECT_LT(bars, 6u + 900 * 4);
  EXPECT_NE(Trace().to_svg().find("</svg>"), std::string::npos);
}

TEST(Trace, OfARecordedStep) {
  const Tensor w = randn({64, 64}, DType::f32).set_requires_grad(), x = randn({32, 64}, DType::f32);
  const Recording r = record([&] { sum(tanh(matmul(x, w))).backward(); });
  Trace t;
  t.add_calls(r, 0.25);
  ASSERT_EQ(t.tracks.size(), 1u);
  double seconds = 0, last = 0.25;
  for (size_t i = 0; i < r.calls.size(); ++i)
    if (r.is_work(i)) seconds += r.calls[i].seconds;
  for (const TraceSpan& s : t.tracks[0].spans) {
    EXPECT_GE(s.begin, last - 1e-12);
    last = s.end;
  }
  EXPECT_NEAR(t.tracks[0].busy(), seconds, 1e-9);
  EXPECT_EQ(t.tracks[0].spans.front().phase, Phase::forward);
  EXPECT_EQ(t.tracks[0].spans.back().phase, Phase::backward);
}

}  // namespace
}  // namespace strata::lab
