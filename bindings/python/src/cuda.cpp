// Devices, streams, events, graphs and memory.

#include "py.h"
#include "strata/core/error.h"
#include "strata/cuda/graph.h"
#include "strata/cuda/launch.h"
#include "strata/cuda/runtime.h"
#include "strata/memory/allocator.h"
#include "strata/memory/timeline.h"
#include "strata/ops/conv/conv.h"

namespace strata::python {
namespace {

struct PyStreamScope {
  std::unique_ptr<cuda::StreamScope> scope;
};

// A graph and the capture that is under way.
struct PyGraph {
  explicit PyGraph(const cuda::GraphPool& pool) : graph(pool) {}
  cuda::Graph graph;
  std::unique_ptr<cuda::Graph::Capture> capture;
};

nb::dict stats_of(Device device) {
  const memory::Stats s = memory::stats(device);
  nb::dict d, live, peak;
  for (int i = 0; i < memory::kNumTags; ++i) {
    const nb::str name(std::string(memory::name_of(static_cast<memory::Tag>(i))).c_str());
    live[name] = s.live[i];
    peak[name] = s.peak[i];
  }
  d["live"] = live;
  d["peak"] = peak;
  d["live_total"] = s.live_total;
  d["peak_total"] = s.peak_total;
  d["reserved"] = s.reserved;
  d["peak_reserved"] = s.peak_reserved;
  d["blocks"] = s.blocks;
  d["allocations"] = s.allocations;
  d["retries"] = s.retries;
  return d;
}

}  // namespace

void bind_cuda(nb::module_& m) {
  using Release = nb::call_guard<Released>;
  m.def("cuda_device_count", &cuda::device_count);
  m.def("cuda_unavailable_reason", &cuda::unavailable_reason, "Why there is no device; empty where there is one.");
  m.def(
      "cuda_versions",
      [] {
        const cuda::Versions v = cuda::versions();
        return nb::make_tuple(v.driver, v.runtime);
      },
      "Versions of the driver and the runtime; zeros without CUDA.");
  nb::class_<cuda::DeviceProperties>(m, "CudaDeviceProperties", "What a card is.")
      .def_ro("name", &cuda::DeviceProperties::name)
      .def_ro("total_memory", &cuda::DeviceProperties::memory_bytes)
      .def_ro("multi_processor_count", &cuda::DeviceProperties::multiprocessors)
      .def_ro("major", &cuda::DeviceProperties::major)
      .def_ro("minor", &cuda::DeviceProperties::minor)
      .def_ro("L2_cache_size", &cuda::DeviceProperties::l2_bytes)
      .def_ro("shared_memory_per_block_optin", &cuda::DeviceProperties::shared_bytes_per_block)
      .def("__repr__", [](const cuda::DeviceProperties& p) {
        return cat("CudaDeviceProperties(name='", p.name, "', major=", p.major, ", minor=", p.minor,
                   ", total_memory=", p.memory_bytes, ", multi_processor_count=", p.multiprocessors, ")");
      });
  m.def(
      "cuda_properties", [](int device) { return cuda::properties(device); }, nb::arg("device") = 0);
  m.def("cuda_synchronize", &cuda::synchronize, nb::arg("device") = 0, Release());

  nb::class_<cuda::Stream>(m, "CudaStream", "A queue of work on one device.")
      .def_static("main", &cuda::Stream::main, nb::arg("device") = 0)
      .def_static("create", &cuda::Stream::create, nb::arg("device") = 0)
      .def_prop_ro("device_index", &cuda::Stream::device)
      .def_prop_ro("stream_id", &cuda::Stream::id)
      .def_prop_ro(
          "cuda_stream", [](const cuda::Stream& s) { return reinterpret_cast<uintptr_t>(s.handle()); },
          "The cudaStream_t as a number.")
      .def("synchronize", &cuda::Stream::synchronize, Release())
      .def("query", &cuda::Stream::query)
      .def("wait_stream", &cuda::Stream::wait, nb::arg("stream"))
      .def(
          "__eq__",
          [](const cuda::Stream& a, nb::handle b) {
            cuda::Stream* other = nullptr;
            return nb::try_cast(b, other, false) && other && a == *other;
          },
          nb::arg("other").none())
      .def("__hash__", [](const cuda::Stream& s) { return s.device() * 1000 + s.id(); })
      .def("__repr__", [](const cuda::Stream& s) {
        return cat("<strata.cuda.Stream device=cuda:", s.device(), " id=", s.id(), ">");
      });
  m.def("cuda_current_stream", &cuda::current_stream, nb::arg("device") = 0);
  nb::class_<PyStreamScope>(m, "CudaStreamScope")
      .def(nb::init<>())
      .def("enter",
           [](PyStreamScope& s, const cuda::Stream& stream) { s.scope = std::make_unique<cuda::StreamScope>(stream); })
      .def("exit", [](PyStreamScope& s) { s.scope.reset(); });
  nb::class_<cuda::Event>(m, "CudaEvent", "A point in a stream.")
      .def(nb::init<bool, int>(), nb::arg("timing") = false, nb::arg("device") = 0)
      .def("record", &cuda::Event::record, nb::arg("stream"))
      .def("wait", &cuda::Event::wait, nb::arg("stream"))
      .def("query", &cuda::Event::query)
      .def("synchronize", &cuda::Event::synchronize, Release())
      .def(
          "elapsed_time", [](const cuda::Event& start, const cuda::Event& end) { return end.elapsed_ms(start); },
          nb::arg("end_event"), "Milliseconds from here to a later event.");
  m.def("cuda_record_stream", &cuda::record_stream, nb::arg("tensor"), nb::arg("stream"));
  m.def("cuda_set_memory_fraction", &cuda::set_memory_fraction, nb::arg("fraction"), nb::arg("device") = 0);
  m.def("cuda_set_allow_tf32", &cuda::set_allow_tf32, nb::arg("on"));
  m.def("cuda_allow_tf32", &cuda::allow_tf32);
  m.def("set_allow_tf32_convolutions", &set_allow_tf32_convolutions, nb::arg("on"));
  m.def("allow_tf32_convolutions", &allow_tf32_convolutions);
  m.def("cuda_set_launch_blocking", &cuda::set_launch_blocking, nb::arg("on"));
  m.def("cuda_set_nvtx", &cuda::set_nvtx, nb::arg("on"));
  m.def("cuda_capturing", &cuda::capturing);

  nb::class_<cuda::GraphPool>(m, "CudaGraphPool", "Device memory that belongs to graphs.")
      .def(nb::init<int>(), nb::arg("device") = 0)
      .def_prop_ro("device", &cuda::GraphPool::device)
      .def_prop_ro("reserved_bytes", &cuda::GraphPool::reserved_bytes);
  nb::class_<PyGraph>(m, "CudaGraph", "Work of a device, recorded once and queued again by one call.")
      .def(nb::init<const cuda::GraphPool&>(), nb::arg("pool"))
      .def("capture_begin",
           [](PyGraph& g) {
             if (g.capture) throw DeviceError("CUDAGraph", "a capture is under way already");
             g.capture = std::make_unique<cuda::Graph::Capture>(g.graph);
           })
      .def("capture_end",
           [](PyGraph& g) {
             if (!g.capture) throw DeviceError("CUDAGraph", "no capture is under way");
             const std::unique_ptr<cuda::Graph::Capture> capture = std::move(g.capture);
             capture->finish();
           })
      .def("capture_abandon", [](PyGraph& g) { g.capture.reset(); })
      .def(
          "replay", [](PyGraph& g) { g.graph.replay(); }, Release())
      .def_prop_ro("empty", [](const PyGraph& g) { return g.graph.empty(); })
      .def_prop_ro("nodes", [](const PyGraph& g) { return g.graph.nodes(); })
      .def("pool", [](const PyGraph& g) { return g.graph.pool(); });

  m.def("memory_stats", stats_of, nb::arg("device"), "Bytes in use by tag, peaks, and what the heap holds.");
  m.def(
      "memory_snapshot_json", [](Device device) { return memory::snapshot_json(device); }, nb::arg("device"));
  m.def(
      "memory_reset_peak", [](Device device) { memory::reset_peak(device); }, nb::arg("device"));
  m.def("memory_release_cached", &memory::release_cached, Release());
  m.def(
      "memory_set_limit", [](int64_t bytes) { return memory::set_limit(bytes); }, nb::arg("bytes"),
      "At most so many bytes of host memory for tensors; 0: no limit.");
}

}  // namespace strata::python
