#include "strata/lab/trace.h"

#include <chrono>
#include <map>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/autograd/autograd.h"
#include "strata/core/error.h"
#include "strata/lab/device_clock.h"
#include "strata/memory/transfers.h"
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
  EXPECT_EQ(events["M"], 8);  // "to host" has spans beside each other
  for (const auto& e : json["traceEvents"]) {
    if (e["name"] != "x") continue;
    EXPECT_EQ(e["ts"], 0.5e6);
    EXPECT_EQ(e["dur"], 1e6);
    EXPECT_EQ(e["tid"], 1);
    EXPECT_EQ(e["args"]["bytes"], 1000);
    EXPECT_DOUBLE_EQ(e["args"]["GB/s"].get<double>(), 1e-6);
  }
}

TEST(Trace, Summary) {
  Trace t = example();  // compute [0, 3], to host [0.5, 2]
  t.track("waiting", TrackKind::wait).spans = {{"w", 1, 1.5}, {"v", 1.25, 2}};
  t.track("read /a", TrackKind::disk).spans = {{"r", 0, 0.5}, {"s", 2.5, 4}};
  t.track("read /b", TrackKind::disk).spans = {{"r", 2.5, 3.5}};
  const TraceSummary s = t.summary();
  EXPECT_DOUBLE_EQ(s.seconds, 4);
  EXPECT_DOUBLE_EQ(s.compute, 2);  // [0, 1], [2, 3]
  EXPECT_DOUBLE_EQ(s.copies, 1.5);
  EXPECT_DOUBLE_EQ(s.copies_hidden, 0.5);
  EXPECT_DOUBLE_EQ(s.disk, 2);
  EXPECT_DOUBLE_EQ(s.disk_hidden, 1);
  EXPECT_EQ(to_text(s), "compute busy 50% of 4 s; copies 1.5 s, 33% hidden; disk 2 s, 50% hidden");
  EXPECT_EQ(to_text(Trace().summary()), "");
  Trace alone;
  alone.track("compute").spans = {{"a", 0, 0.5}};
  EXPECT_EQ(to_text(alone.summary()), "compute busy 100% of 500 ms");
}

// Every track and span comes back, those that run beside each other on threads of their own.
TEST(Trace, JsonIsReadAgain) {
  Trace t = example();
  t.track("read /a (2)", TrackKind::disk).spans = {{"x", 0, 2, 5, Phase::update, 1e-3}, {"y", 1, 3, 6}, {"z", 2, 4, 7}};
  t.track("empty", TrackKind::processor);
  const std::string json = t.to_chrome_json();
  const Trace again = Trace::from_chrome_json(json);
  ASSERT_EQ(again.tracks.size(), t.tracks.size());
  for (size_t i = 0; i < t.tracks.size(); ++i) {
    EXPECT_EQ(again.tracks[i].name, t.tracks[i].name);
    EXPECT_EQ(again.tracks[i].kind, t.tracks[i].kind);
    ASSERT_EQ(again.tracks[i].spans.size(), t.tracks[i].spans.size());
    for (size_t k = 0; k < t.tracks[i].spans.size(); ++k) {
      const TraceSpan &a = t.tracks[i].spans[k], &b = again.tracks[i].spans[k];
      EXPECT_EQ(a.name, b.name);
      EXPECT_NEAR(a.begin, b.begin, 1e-9);
      EXPECT_NEAR(a.end, b.end, 1e-9);
      EXPECT_NEAR(a.queued, b.queued, 1e-9);
      EXPECT_EQ(a.bytes, b.bytes);
      EXPECT_EQ(a.phase, b.phase);
    }
  }
  // Of one thread no two spans at once.
  std::map<int, double> until;
  const auto events = nlohmann::json::parse(json)["traceEvents"];
  for (const auto& e : events) {
    if (e["ph"] != "X") continue;
    EXPECT_GE(e["ts"].get<double>(), until[e["tid"]]);
    until[e["tid"]] = e["ts"].get<double>() + e["dur"].get<double>();
  }
  for (const char* bad : {"", "{}", "[]", "{\"traceEvents\": 3}", "{\"traceEvents\": [{\"ph\": \"X\"}]}",
                          "{\"traceEvents\": [{\"ph\": \"X\", \"name\": \"a\", \"ts\": 0, \"dur\": 1, \"tid\": 0, "
                          "\"args\": {\"phase\": \"forward\"}}]}"})
    EXPECT_THROW(Trace::from_chrome_json(bad), IoError) << bad;
}

TEST(Trace, Picture) {
  Trace t = example();
  t.track("<disk>", TrackKind::disk).spans = {{"a<b", 0, 0.5, 7}};
  // Ten thousand spans that no eye can tell apart.
  for (int i = 0; i < 10000; ++i) t.track("many").spans.push_back({"m", i * 3e-4, (i + 1) * 3e-4});
  const auto count = [](const std::string& text, const char* what) {
    size_t n = 0;
    for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
    return n;
  };
  for (const std::string& picture : {t.to_svg(), t.to_html(), t.to_svg(1)}) {
    EXPECT_EQ(picture.find("<disk>"), std::string::npos);
    EXPECT_NE(picture.find("&lt;disk&gt;"), std::string::npos);
    EXPECT_NE(picture.find("a&lt;b"), std::string::npos);
    EXPECT_NE(picture.find("compute busy 100% of 3 s"), std::string::npos);
    for (const char* key : {">forward<", ">backward<", ">copy<", ">disk<"}) EXPECT_EQ(count(picture, key), 1u) << key;
    EXPECT_EQ(count(picture, ">update<"), 0u);  // there is none
    EXPECT_GE(count(picture, "<rect"), 5u);
    EXPECT_LT(count(picture, "<rect"), 1100u);
    EXPECT_LT(picture.size(), 200'000u);
  }
  EXPECT_NE(Trace().to_svg().find("</svg>"), std::string::npos);
  EXPECT_NE(Trace().to_html().find("</div>"), std::string::npos);
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

// A call is where it was, also where other calls run within it; what lies between calls is nobody's.
TEST(Trace, CallsWhereTheyWere) {
  const Tensor w = randn({64, 64}, DType::f32).set_requires_grad(), x = randn({32, 64}, DType::f32);
  const auto clock = line_clock_of(Device::cpu());
  const double before = memory::host_seconds();
  const Recording r = record(
      [&] {
        const Tensor y = matmul(x, w);
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        sum(tanh(y)).backward();
      },
      {.clock = clock.get()});
  Trace t;
  t.add_calls(r, clock->line(), before);
  ASSERT_EQ(t.tracks.size(), 1u);
  const std::vector<TraceSpan>& spans = t.tracks[0].spans;
  double last = 0, gap = 0;
  for (const TraceSpan& s : spans) {
    EXPECT_GE(s.begin, last);
    EXPECT_GE(s.end, s.begin);
    gap = std::max(gap, s.begin - last);
    last = s.end;
  }
  EXPECT_GE(gap, 0.02);
  EXPECT_LE(last, memory::host_seconds() - before);
  size_t work = 0;
  for (size_t i = 0; i < r.calls.size(); ++i) work += r.is_work(i);
  EXPECT_LE(spans.size(), work);
  EXPECT_GE(spans.size() + 1, work);  // views may take no time at all
  EXPECT_EQ(spans.back().phase, Phase::backward);
}

}  // namespace
}  // namespace strata::lab
