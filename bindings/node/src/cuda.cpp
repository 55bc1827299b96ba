// CUDA devices, streams, events, graphs; memory of all devices.

#include "bindings/node/src/addon.h"
#include "bindings/node/src/convert.h"
#include "bindings/node/src/late.h"
#include "bindings/node/src/modes.h"
#include "bindings/node/src/task.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/memory/timeline.h"
#include "strata/ops/conv/conv.h"

namespace strata::node {
namespace {

using cuda::Stream;
using EventRef = std::shared_ptr<cuda::Event>;

int index_of(Call& c, size_t i) {
  return c.has(i) ? static_cast<int>(c.env.whole(c[i], "cuda", "the device")) : 0;
}
Device device_of(Call& c, size_t i, std::string_view op) {
  return c.has(i) ? parse_device(c.env.text(c[i], op, "device")) : Device::cpu();
}
Stream& stream_of(Call& c, size_t i) {
  return *c.env.handle<Stream>(c[i]);
}
const EventRef& event_of(Call& c, size_t i) {
  return *c.env.handle<EventRef>(c[i]);
}

// ---- devices ----

napi_value device_count(Call& c) {
  return c.env.integer(cuda::device_count());
}
napi_value unavailable_reason(Call& c) {
  return c.env.string(cuda::unavailable_reason());
}
napi_value versions(Call& c) {
  const cuda::Versions v = cuda::versions();
  napi_value o = c.env.object();
  c.env.set(o, "driver", c.env.integer(v.driver));
  c.env.set(o, "runtime", c.env.integer(v.runtime));
  return o;
}
napi_value device_properties(Call& c) {
  const cuda::DeviceProperties& p = cuda::properties(index_of(c, 0));
  napi_value o = c.env.object();
  c.env.set(o, "name", c.env.string(p.name));
  c.env.set(o, "totalMemory", c.env.integer(p.memory_bytes));
  c.env.set(o, "multiProcessorCount", c.env.integer(p.multiprocessors));
  c.env.set(o, "major", c.env.integer(p.major));
  c.env.set(o, "minor", c.env.integer(p.minor));
  c.env.set(o, "l2Bytes", c.env.integer(p.l2_bytes));
  c.env.set(o, "sharedBytesPerBlock", c.env.integer(p.shared_bytes_per_block));
  return o;
}
napi_value set_memory_fraction(Call& c) {
  return c.env.number(cuda::set_memory_fraction(c.env.real(c[0], "setMemoryFraction", "fraction"), index_of(c, 1)));
}
napi_value set_allow_tf32(Call& c) {
  cuda::set_allow_tf32(c.env.truth(c[0], "setAllowTf32", "the value"));
  return c.env.undefined();
}
napi_value set_allow_tf32_convolutions_of(Call& c) {
  set_allow_tf32_convolutions(c.env.truth(c[0], "setAllowTf32Convolutions", "the value"));
  return c.env.undefined();
}
napi_value get_allow_tf32_convolutions(Call& c) {
  return c.env.boolean(allow_tf32_convolutions());
}
napi_value get_allow_tf32(Call& c) {
  return c.env.boolean(cuda::allow_tf32());
}
napi_value set_launch_blocking(Call& c) {
  cuda::set_launch_blocking(c.env.truth(c[0], "setLaunchBlocking", "the value"));
  return c.env.undefined();
}

// ---- waiting: at once, or (with a cancel flag, or null, before the arguments) as a promise ----

template <class F>
napi_value wait_async(Call& c, F wait) {
  return start_task(c.env, false, cancel_flag_of(c.env, c[0]), std::move(wait), [](Env& e) { return e.undefined(); });
}
napi_value synchronize(Call& c) {
  cuda::synchronize(index_of(c, 0));
  return c.env.undefined();
}
napi_value synchronize_async(Call& c) {
  const int device = index_of(c, 1);
  return wait_async(c, [device] { cuda::synchronize(device); });
}

// ---- streams ----

napi_value stream_create(Call& c) {
  return c.env.boxed(Stream::create(index_of(c, 0)));
}
napi_value stream_main(Call& c) {
  return c.env.boxed(Stream::main(index_of(c, 0)));
}
napi_value stream_current(Call& c) {
  return c.env.boxed(cuda::current_stream(index_of(c, 0)));
}
// streamInfo(stream): {device, id, handle}
napi_value stream_info(Call& c) {
  const Stream& s = stream_of(c, 0);
  napi_value o = c.env.object();
  c.env.set(o, "device", c.env.integer(s.device()));
  c.env.set(o, "id", c.env.integer(s.id()));
  c.env.set(o, "handle", c.env.bigint(static_cast<int64_t>(reinterpret_cast<uintptr_t>(s.handle()))));
  return o;
}
napi_value stream_synchronize(Call& c) {
  stream_of(c, 0).synchronize();
  return c.env.undefined();
}
napi_value stream_synchronize_async(Call& c) {
  const Stream s = stream_of(c, 1);
  return wait_async(c, [s] { s.synchronize(); });
}
napi_value stream_query(Call& c) {
  return c.env.boolean(stream_of(c, 0).query());
}
napi_value stream_wait(Call& c) {
  stream_of(c, 0).wait(stream_of(c, 1));
  return c.env.undefined();
}
napi_value enter_stream(Call& c) {
  const Stream s = stream_of(c, 0);
  return enter_mode(c.env, [s] { return std::make_shared<cuda::StreamScope>(s); });
}
napi_value record_stream(Call& c) {
  cuda::record_stream(tensor_of(c.env, c[0], "recordStream", "the tensor"), stream_of(c, 1));
  return c.env.undefined();
}

// ---- events ----

// newEvent(timing, device)
napi_value event_create(Call& c) {
  return c.env.boxed(std::make_shared<cuda::Event>(c.env.truth(c[0], "Event", "timing"), index_of(c, 1)));
}
napi_value event_record(Call& c) {
  event_of(c, 0)->record(stream_of(c, 1));
  return c.env.undefined();
}
napi_value event_wait(Call& c) {
  event_of(c, 0)->wait(stream_of(c, 1));
  return c.env.undefined();
}
napi_value event_query(Call& c) {
  return c.env.boolean(event_of(c, 0)->query());
}
napi_value event_synchronize(Call& c) {
  event_of(c, 0)->synchronize();
  return c.env.undefined();
}
napi_value event_synchronize_async(Call& c) {
  return wait_async(c, [e = event_of(c, 1)] { e->synchronize(); });
}
// eventElapsed(start, end): milliseconds
napi_value event_elapsed(Call& c) {
  return c.env.number(event_of(c, 1)->elapsed_ms(*event_of(c, 0)));
}

// ---- graphs ----

napi_value pool_create(Call& c) {
  return boxed_late(c.env, std::make_shared<cuda::GraphPool>(index_of(c, 0)));
}
napi_value pool_info(Call& c) {
  const auto& pool = late<cuda::GraphPool>(c, "GraphPool");
  napi_value o = c.env.object();
  c.env.set(o, "device", c.env.integer(pool.device()));
  c.env.set(o, "reservedBytes", c.env.integer(pool.reserved_bytes()));
  return o;
}
// A graph and the capture that is under way.
struct GraphBox {
  explicit GraphBox(const cuda::GraphPool& pool) : graph(pool) {}
  cuda::Graph graph;
  std::unique_ptr<cuda::Graph::Capture> capture;
};
GraphBox& graph_of(Call& c) {
  return late<GraphBox>(c, "CUDAGraph");
}
napi_value graph_create(Call& c) {
  return boxed_late(c.env, std::make_shared<GraphBox>(late<cuda::GraphPool>(c, "GraphPool")));
}
napi_value graph_begin(Call& c) {
  GraphBox& g = graph_of(c);
  check<DeviceError>(!g.capture, "CUDAGraph", "a capture is under way already");
  g.capture = std::make_unique<cuda::Graph::Capture>(g.graph);
  return c.env.undefined();
}
// graphEnd(graph, keep): finishes the capture, or gives it up.
napi_value graph_end(Call& c) {
  GraphBox& g = graph_of(c);
  const bool keep = c.env.truth(c[1], "CUDAGraph", "keep");
  check<DeviceError>(g.capture != nullptr, "CUDAGraph", "no capture is under way");
  const std::unique_ptr<cuda::Graph::Capture> capture = std::move(g.capture);
  if (keep) capture->finish();
  return c.env.undefined();
}
napi_value graph_replay(Call& c) {
  graph_of(c).graph.replay();
  return c.env.undefined();
}
napi_value graph_nodes(Call& c) {
  const cuda::Graph& graph = graph_of(c).graph;
  return graph.empty() ? c.env.null() : c.env.integer(graph.nodes());
}
napi_value capturing(Call& c) {
  return c.env.boolean(cuda::capturing());
}

// ---- memory ----

napi_value memory_stats(Call& c) {
  const memory::Stats s = memory::stats(device_of(c, 0, "memoryStats"));
  napi_value o = c.env.object(), live = c.env.object(), peak = c.env.object();
  for (int i = 0; i < memory::kNumTags; ++i) {
    const std::string name(memory::name_of(static_cast<memory::Tag>(i)));
    c.env.set(live, name.c_str(), c.env.integer(s.live[i]));
    c.env.set(peak, name.c_str(), c.env.integer(s.peak[i]));
  }
  const std::pair<const char*, int64_t> numbers[] = {{"live", s.live_total},   {"peak", s.peak_total},
                                                     {"reserved", s.reserved}, {"peakReserved", s.peak_reserved},
                                                     {"blocks", s.blocks},     {"allocations", s.allocations},
                                                     {"retries", s.retries}};
  for (const auto& [name, number] : numbers) c.env.set(o, name, c.env.integer(number));
  c.env.set(o, "liveByTag", live);
  c.env.set(o, "peakByTag", peak);
  return o;
}
napi_value memory_reset_peak(Call& c) {
  memory::reset_peak(device_of(c, 0, "resetPeakMemoryStats"));
  return c.env.undefined();
}
napi_value memory_snapshot(Call& c) {
  return c.env.string(memory::snapshot_json(device_of(c, 0, "memorySnapshot")));
}
napi_value memory_release_cached(Call& c) {
  memory::release_cached();
  return c.env.undefined();
}
napi_value memory_set_limit(Call& c) {
  return c.env.integer(memory::set_limit(c.env.whole(c[0], "setMemoryLimit", "bytes")));
}

}  // namespace

void add_cuda(Env& env, napi_value exports) {
  env.add(exports, {{"cudaDeviceCount", entry<device_count>},
                    {"cudaUnavailableReason", entry<unavailable_reason>},
                    {"cudaVersions", entry<versions>},
                    {"cudaProperties", entry<device_properties>},
                    {"cudaSetMemoryFraction", entry<set_memory_fraction>},
                    {"cudaSetAllowTf32", entry<set_allow_tf32>},
                    {"cudaAllowTf32", entry<get_allow_tf32>},
                    {"setAllowTf32Convolutions", entry<set_allow_tf32_convolutions_of>},
                    {"allowTf32Convolutions", entry<get_allow_tf32_convolutions>},
                    {"cudaSetLaunchBlocking", entry<set_launch_blocking>},
                    {"cudaSynchronize", entry<synchronize>},
                    {"cudaSynchronizeAsync", entry<synchronize_async>},
                    {"streamCreate", entry<stream_create>},
                    {"streamMain", entry<stream_main>},
                    {"streamCurrent", entry<stream_current>},
                    {"streamInfo", entry<stream_info>},
                    {"streamSynchronize", entry<stream_synchronize>},
                    {"streamSynchronizeAsync", entry<stream_synchronize_async>},
                    {"streamQuery", entry<stream_query>},
                    {"streamWait", entry<stream_wait>},
                    {"enterStream", entry<enter_stream>},
                    {"recordStream", entry<record_stream>},
                    {"eventCreate", entry<event_create>},
                    {"eventRecord", entry<event_record>},
                    {"eventWait", entry<event_wait>},
                    {"eventQuery", entry<event_query>},
                    {"eventSynchronize", entry<event_synchronize>},
                    {"eventSynchronizeAsync", entry<event_synchronize_async>},
                    {"eventElapsed", entry<event_elapsed>},
                    {"poolCreate", entry<pool_create>},
                    {"poolInfo", entry<pool_info>},
                    {"graphCreate", entry<graph_create>},
                    {"graphBegin", entry<graph_begin>},
                    {"graphEnd", entry<graph_end>},
                    {"graphReplay", entry<graph_replay>},
                    {"graphNodes", entry<graph_nodes>},
                    {"graphDispose", entry<dispose_late<GraphBox>>},
                    {"cudaCapturing", entry<capturing>},
                    {"memoryStats", entry<memory_stats>},
                    {"memoryResetPeak", entry<memory_reset_peak>},
                    {"memorySnapshot", entry<memory_snapshot>},
                    {"memoryReleaseCached", entry<memory_release_cached>},
                    {"memorySetLimit", entry<memory_set_limit>}});
}

}  // namespace strata::node
