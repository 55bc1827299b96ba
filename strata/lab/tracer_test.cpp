// A Tracer sees what every mover moves, and says what it was.

#include "strata/lab/tracer.h"

#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

#include "strata/autograd/autograd.h"
#include "strata/core/error.h"
#include "strata/io/temp_dir.h"
#include "strata/memory/disk.h"
#include "strata/memory/tiers.h"
#include "strata/memory/transfers.h"
#include "strata/nn/container.h"
#include "strata/nn/feature_table.h"
#include "strata/nn/layers.h"
#include "strata/nn/streamed.h"
#include "strata/ops/copy/copy.h"
#include "strata/ops/elementwise/elementwise.h"
#include "strata/ops/factory/factory.h"
#include "strata/ops/matmul/matmul.h"
#include "strata/ops/random/random.h"
#include "strata/ops/reduce/reduce.h"
#include "strata/optim/home.h"
#include "strata/optim/optim.h"

namespace strata::lab {
namespace {

using Names = std::map<std::string, std::set<std::string>>;

// By "compute", "waiting", "read", "write", "to host", ..: what was done.
Names names_of(const Trace& trace) {
  Names names;
  for (const TraceTrack& t : trace.tracks)
    for (const TraceSpan& s : t.spans) {
      EXPECT_GE(s.begin, 0) << t.name;
      EXPECT_GE(s.end, s.begin) << t.name;
      names[t.kind == TrackKind::disk ? t.name.substr(0, t.name.find(' ')) : t.name].insert(s.name);
    }
  return names;
}

TEST(Tracer, SeesCallsAndWhatMoves) {
  const Tensor w = randn({256, 256}, DType::f32).to(memory::kDisk);
  memory::backend(Device::cpu(), memory::kDisk).release_cached();
  const Tensor x = randn({8, 256}, DType::f32);
  Tracer tracer;
  matmul(x, w);
  const Trace t = tracer.finish();
  EXPECT_GT(tracer.recording().calls.size(), 0u);
  ASSERT_GE(t.tracks.size(), 2u);
  EXPECT_EQ(t.tracks[0].name, "compute");
  EXPECT_EQ(t.tracks[0].kind, TrackKind::compute);
  bool read = false;
  for (const TraceTrack& track : t.tracks) {
    if (track.kind != TrackKind::disk) continue;
    read = read || track.name.starts_with("read ");
    for (const TraceSpan& s : track.spans) {
      EXPECT_EQ(s.bytes, 256 * 256 * 4);
      EXPECT_LE(s.end, t.end());
    }
  }
  EXPECT_TRUE(read);
  EXPECT_THROW(tracer.finish(), ValueError);
}

TEST(Tracer, NothingIsListenedToAfterIt) {
  { Tracer dropped; }
  EXPECT_FALSE(memory::transfers_wanted());
  EXPECT_THROW(Tracer(Device::cuda(63)), DeviceError);
  EXPECT_FALSE(memory::transfers_wanted());
}

TEST(Tracer, NamesStreamedWeightsAndTheirGradients) {
  const nn::Sequential net(nn::Linear(64, 64), nn::Linear(64, 64), nn::Linear(64, 64));
  nn::Streamed streamed(net, {.tier = memory::kDisk, .parts_near = 1});
  optim::AdamW optimizer(net.named_parameters(), {.lr = 0.1});
  optimizer.set_home({.where = memory::kDisk, .group_bytes = 1});
  memory::set_near_limit(80 << 10, Device::cpu(), memory::kDisk);
  const auto step = [&] {
    optimizer.zero_grad();
    const nn::StreamScope scope(streamed);
    sum(net(randn({4, 64}, DType::f32))).backward();
  };
  step();
  optimizer.step();
  Tracer tracer;
  step();
  optimizer.step();
  const Names names = names_of(tracer.finish());
  memory::set_near_limit(0, Device::cpu(), memory::kDisk);
  EXPECT_TRUE(names.at("read").count("1.weight"));
  EXPECT_TRUE(names.at("read").count("state of 1.weight"));
  EXPECT_TRUE(names.at("write").count("state of 1.weight"));
  EXPECT_TRUE(names.at("write").count("gradient of 1.weight"));
  EXPECT_TRUE(names.at("compute").count("optimizer_update"));
}

// Who updates beside the calls has a track of its own, and so has what goes there and back.
TEST(Tracer, SeesUpdatesByTheProcessor) {
  const Tensor w = randn({64, 64}, DType::f32).set_requires_grad();
  optim::AdamW optimizer({{"w", w}}, {.lr = 0.1});
  for (const bool leave : {false, true}) {
    optimizer.set_home({.who = optim::StateHome::Who::cpu, .gradients_leave = leave});
    Tracer tracer;
    optimizer.zero_grad();
    sum(w).backward();
    optimizer.step();
    const Trace trace = tracer.finish();
    const Names names = names_of(trace);
    EXPECT_EQ(names.at("processor"), std::set<std::string>{"w"});
    EXPECT_EQ(names.at("to host"), std::set<std::string>{"gradient of w"});
    EXPECT_EQ(names.at("from host"), std::set<std::string>{"w"});
    EXPECT_GT(trace.summary().processor, 0);
    EXPECT_GT(trace.summary().copies, 0);
  }
}

TEST(Tracer, SeesRowsOfATable) {
  const io::TempDir dir;
  nn::FeatureTable table(randn({1000, 64}, DType::f32), {.home = memory::kDisk, .directories = {dir.path()}});
  Tracer tracer;
  table.gather(from_span<int64_t>(std::vector<int64_t>{3, 999, 500}, {3}));
  table.write(7, randn({2, 64}, DType::f32));
  const Trace trace = tracer.finish();
  const Names names = names_of(trace);
  EXPECT_EQ(names.at("read").size(), 1u);
  EXPECT_EQ(names.at("read"), std::set<std::string>{"rows of a table [1000, 64]"});
  EXPECT_EQ(names.at("write"), names.at("read"));
  for (const TraceTrack& t : trace.tracks)
    if (t.kind == TrackKind::disk) EXPECT_TRUE(t.name.ends_with(dir.path())) << t.name;
}

}  // namespace
}  // namespace strata::lab
