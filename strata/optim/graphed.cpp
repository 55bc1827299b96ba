#include "strata/optim/graphed.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <list>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "strata/core/autocast.h"
#include "strata/core/error.h"
#include "strata/core/gradient_watch.h"
#include "strata/core/node.h"
#include "strata/core/op_base.h"
#include "strata/cuda/graph.h"
#include "strata/memory/allocator.h"
#include "strata/ops/conv/conv.h"
#include "strata/ops/copy/copy.h"

namespace strata::detail {
namespace {

constexpr std::string_view kName = "graphed";
constexpr size_t kMostKinds = 256;  // of arguments, that are remembered
constexpr int kMostInARow = 4;      // captures because the gradients did not fit those that there are

class CudaWork final : public GraphedWork {
 public:
  explicit CudaWork(const cuda::GraphPool& pool) : graph(pool) {}
  void replay() override { graph.replay(); }
  cuda::Graph graph;
};

// One pool a device: its graphs never run at the same time.
class CudaBackend final : public GraphedBackend {
 public:
  bool captures(Device device) const override { return device.is_cuda(); }
  bool capturing() const override { return cuda::capturing(); }
  void begin(Device device) override {
    const cuda::Stream now = cuda::current_stream(device.index);
    const auto it = places_.find(device.index);
    if (it == places_.end()) {
      places_.emplace(device.index, Place{cuda::GraphPool(device.index), now});
    } else if (!(it->second.last == now)) {
      now.wait(it->second.last);
      it->second.last = now;
    }
  }
  std::unique_ptr<GraphedWork> capture(Device device, const GraphedCall& step, const TensorList& inputs,
                                       GraphedResult& result) override {
    auto work = std::make_unique<CudaWork>(places_.at(device.index).pool);
    memory::release_cached();  // of the calls before: the graph has memory of its own
    work->graph.capture([&] { result = step(inputs); });
    return work;
  }

 private:
  struct Place {
    cuda::GraphPool pool;
    cuda::Stream last;
  };
  std::unordered_map<int, Place> places_;
};

bool same_place(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.storage_offset() == b.storage_offset() && a.shape() == b.shape() &&
         a.strides() == b.strides() && a.dtype() == b.dtype();
}

// A leaf whose gradient the step looked at or changed.
struct Gradient {
  Tensor leaf;
  bool looked = false;     // before it was set
  bool was_there = false;  // when the step began
  Tensor before, after;    // before: only where the step reads or writes what stands there
};

// Hears what a step does while it is captured, and holds what the graph will use of the memory that was there before.
class Watch final : public CallObserver, public GradientWatch {
 public:
  void before(const Call& call) override {
    args_.clear();
    call.args(args_);
    for (const Value& v : args_) {
      if (const auto* t = std::get_if<Tensor>(&v)) see(*t);
      if (const auto* list = std::get_if<TensorList>(&v))
        for (const Tensor& t : *list) see(t);
    }
    args_.clear();
    for (const Tensor& t : call.targets) see(t);
  }
  void after(const Call& call, std::span<const Tensor> results) override {
    for (const Tensor& t : results)
      if (t.defined() && !seen(t)) born_.insert(t.storage().get());
    if (call.form == Form::fresh) return;
    for (const Tensor& t : call.targets) {
      if (!t.defined() || !seen(t) || !written_storages_.insert(t.storage().get()).second) continue;
      written_.push_back(t.detach());
      // An optimizer counts its writes itself before each replay.
      if (call.op.name() != "optimizer_update") counted_.push_back(written_.back());
    }
  }
  void touched(const Tensor& t, bool looks) override {
    if (!t.is_leaf() || born_.contains(t.storage().get())) return;
    if (!places_.try_emplace(&t.impl(), gradients_.size()).second) return;
    const GradientWatchScope off(nullptr);
    Tensor there = t.grad();
    gradients_.push_back({t, looks, there.defined(), std::move(there), {}});
  }

  void cast(const Tensor& parameter, const Tensor& low) override {
    if (born_.contains(parameter.storage().get())) return;
    for (auto& [p, l] : casts_)
      if (p.same_as(parameter) && l.dtype() == low.dtype()) return void(l = low);
    casts_.emplace_back(parameter, low);
  }

  bool writes(const Tensor& t) const { return written_storages_.contains(t.storage().get()); }
  // As it was when the step began; what autocast keeps of parameters may never have been computed.
  void undo() {
    for (const Gradient& g : gradients_) Tensor(g.leaf).set_grad(g.before);
    for (const auto& [parameter, low] : casts_) autograd_meta(parameter).low = {};
  }
  std::vector<Gradient> take_gradients() {
    // Those that the step made for itself are gone by now.
    std::erase_if(gradients_, [](const Gradient& g) { return g.leaf.ref().use_count() == 1; });
    for (Gradient& g : gradients_) {
      g.after = g.leaf.grad();
      if (!g.looked || (g.before.defined() && !seen(g.before))) g.before = {};
    }
    return std::move(gradients_);
  }
  std::vector<std::pair<Tensor, Tensor>> take_casts() { return std::move(casts_); }
  TensorList take_counted() { return std::move(counted_); }
  std::vector<Ref<Storage>> take_seen() {
    std::vector<Ref<Storage>> all;
    all.reserve(seen_.size());
    for (auto& [place, storage] : seen_) all.push_back(std::move(storage));
    return all;
  }

 private:
  bool seen(const Tensor& t) const { return seen_.contains(t.storage().get()); }
  void see(const Tensor& t) {
    if (t.defined() && !born_.contains(t.storage().get())) seen_.try_emplace(t.storage().get(), t.storage());
  }

  std::vector<Value> args_;
  std::unordered_map<const Storage*, Ref<Storage>> seen_;
  std::unordered_set<const Storage*> born_, written_storages_;
  TensorList written_, counted_;
  std::vector<Gradient> gradients_;
  std::vector<std::pair<Tensor, Tensor>> casts_;
  std::unordered_map<const TensorImpl*, size_t> places_;
};

// A copy with the same strides, so that kernels do the same; of what lies far apart a row-major one.
struct Input {
  Tensor tensor, whole;  // whole: its elements and what lies between them, one after the other
  explicit Input(const Tensor& x) {
    if (!x.defined()) return;
    const int64_t extent = extent_of(x);
    if (x.is_contiguous() || x.numel() == 0 || extent > 4 * x.numel()) {
      tensor = empty(x.meta());
      return;
    }
    whole = empty({{extent}, x.dtype(), x.device(), std::nullopt});
    tensor = alias(whole, x.shape(), x.strides(), 0);
  }
  void copy(const Tensor& x) const {
    if (!x.defined() || x.numel() == 0) return;
    if (!whole.defined()) return copy_elements(tensor, x);
    copy_elements(whole, alias(x, whole.shape(), whole.strides(), x.storage_offset()));
  }
  static int64_t extent_of(const Tensor& x) {
    int64_t last = 0;
    for (int64_t d = 0; d < x.dim(); ++d) last += (x.shape()[d] - 1) * x.strides()[d];
    return last + 1;
  }
};

template <class T>
void add_bytes(std::string& key, const T& v) {
  key.append(reinterpret_cast<const char*>(&v), sizeof v);
}
// Everything that two calls of one graph have in common, but for the gradients.
std::string key_of(const TensorList& tensors, std::string_view rest) {
  std::string key;
  key.reserve(rest.size() + 16 + 40 * tensors.size());
  for (const bool b : {t_mode.grad_enabled, cuda::allow_tf32(), allow_tf32_convolutions()}) add_bytes(key, b);
  const auto device = [&](Device d) { add_bytes(key, d.type), add_bytes(key, d.index); };
  device(default_device());
  add_bytes(key, default_dtype());
  for (const Tensor& t : tensors) {
    add_bytes(key, t.defined());
    if (!t.defined()) continue;
    add_bytes(key, t.dtype());
    device(t.device());
    add_bytes(key, t.dim());
    for (int64_t d = 0; d < t.dim(); ++d) add_bytes(key, t.shape()[d]), add_bytes(key, t.strides()[d]);
  }
  return key.append(rest);
}

}  // namespace

struct GraphedSteps::State {
  struct Entry {
    std::string key;
    std::vector<Input> inputs;
    GraphedResult result;
    std::vector<Gradient> gradients;
    std::vector<std::pair<Tensor, Tensor>> casts;  // parameters, and autocast's copies that the graph reads
    TensorList counted;                            // written to by each replay
    std::vector<Ref<Storage>> seen;                // memory from outside that the graph reads and writes
    std::unique_ptr<GraphedWork> work;             // goes first

    // Whether the gradients are what they were when the step was captured, as far as it looked.
    bool fits() const {
      return std::all_of(gradients.begin(), gradients.end(), [](const Gradient& g) {
        if (!g.looked) return true;
        const Tensor now = g.leaf.grad();
        return now.defined() == g.was_there && (!g.before.defined() || same_place(now, g.before));
      });
    }
    GraphedResult replay(const TensorList& tensors) const {
      const NoGrad guard;
      for (size_t i = 0; i < inputs.size(); ++i) inputs[i].copy(tensors[i]);
      for (const auto& [parameter, low] : casts) {
        LowCopy& now = autograd_meta(parameter).low;
        if (now.tensor.defined() && now.tensor.same_as(low) && now.is_current(parameter, low.dtype())) continue;
        copy_elements(low, parameter);  // somebody wrote to the parameter since
        now = {low, parameter.version()};
      }
      work->replay();
      for (const Tensor& t : counted) bump_version(t, kName);
      for (const Gradient& g : gradients) {
        const Tensor now = g.leaf.grad();
        if (now.defined() ? !(g.after.defined() && now.same_as(g.after)) : g.after.defined())
          Tensor(g.leaf).set_grad(g.after);
      }
      GraphedResult r{{}, result.rest};
      r.tensors.reserve(result.tensors.size());
      for (const Tensor& t : result.tensors) r.tensors.push_back(t.defined() ? clone(t) : t);
      return r;
    }
  };
  // What is known of arguments of a kind.
  struct Kind {
    int eager = 0;   // calls so far that ran op by op
    int in_row = 0;  // captures beside others that are kept but did not fit
    bool refused = false;
  };

  State(const GraphedOptions& o, std::unique_ptr<GraphedBackend> b)
      : options(o), backend(b ? std::move(b) : std::make_unique<CudaBackend>()) {
    check(o.warmup >= 1, kName, "warmup must be at least 1, got ", o.warmup);
    check(o.most >= 1, kName, "most must be at least 1, got ", o.most);
  }

  static GraphedResult eager(const TensorList& tensors, const GraphedCall& step) {
    GraphedResult r = step(tensors);
    for (Tensor& t : r.tensors)
      if (t.defined()) t = t.detach();
    return r;
  }

  GraphedResult call(const TensorList& tensors, std::string_view rest, const GraphedCall& step) {
    for (size_t i = 0; i < tensors.size(); ++i)
      check<AutogradError>(!tensors[i].defined() || !grad_enabled() || !tensors[i].requires_grad(), kName, "argument ",
                           i, " (", tensors[i],
                           ") requires a gradient: the step has its backward() inside, and the tensors that want "
                           "gradients are those that it knows without being given them; detach() it");
    check(!autocast_enabled(), kName, "autocast is on around the call: use it inside the step");
    Device device = default_device();
    for (const Tensor& t : tensors)
      if (t.defined() && (device = t.device(), backend->captures(device))) break;
    if (!backend->captures(device) || (t_mode.unusual & kObserved) || backend->capturing()) return eager(tensors, step);
    std::string key = key_of(tensors, rest);
    Kind& kind = kind_of(key);
    if (kind.refused) return eager(tensors, step);
    backend->begin(device);
    bool others = false;
    for (auto it = entries.begin(); it != entries.end(); ++it) {
      if (it->key != key) continue;
      others = true;
      if (!it->fits()) continue;
      entries.splice(entries.begin(), entries, it);
      kind.in_row = 0;
      GraphedResult r = it->replay(tensors);
      ++replays;
      return r;
    }
    if (kind.eager < options.warmup) {
      GraphedResult r = eager(tensors, step);
      ++kind.eager;
      return r;
    }
    if (!others) kind.in_row = 0;
    std::string reason;
    try {
      capture(std::move(key), kind, device, tensors, step);
    } catch (const DeviceError& e) {
      reason = e.what();
      if (!options.fallback)
        throw DeviceError(kName, cat("the step cannot be captured as one graph: ", reason,
                                     ". Nothing of this call was run. Leave that out of the step, or let it run op by "
                                     "op with fallback"));
    } catch (const std::exception& e) {
      if (!options.fallback) throw;
      reason = e.what();
    }
    if (!reason.empty()) {
      GraphedResult r = eager(tensors, step);  // what is wrong with the step itself is thrown here
      kind.refused = true;
      note = cat("graphed: the step runs op by op: ", reason);
      return r;
    }
    note.clear();
    return entries.front().replay(tensors);
  }

  void capture(std::string key, Kind& kind, Device device, const TensorList& tensors, const GraphedCall& step) {
    for (size_t i = 0; i < tensors.size(); ++i)
      check<DeviceError>(!tensors[i].defined() || tensors[i].device() == device, kName, "argument ", i, " (",
                         tensors[i], ") is on ", tensors[i].device(), ", another one on ", device,
                         ": move it there before the call");
    check<DeviceError>(kind.in_row < kMostInARow, kName,
                       "the step finds other gradients at each call, which no graph knows; set them to None in the "
                       "step, before its backward() or after its update");
    Entry entry;
    entry.key = std::move(key);
    entry.inputs.reserve(tensors.size());
    TensorList inputs;
    {
      const NoGrad guard;
      for (const Tensor& t : tensors) {
        entry.inputs.emplace_back(t);
        entry.inputs.back().copy(t);
        inputs.push_back(entry.inputs.back().tensor);
      }
    }
    std::vector<uint32_t> versions;
    for (const Tensor& t : inputs) versions.push_back(t.defined() ? t.version() : 0);
    auto run = [&](const TensorList& in) {
      GraphedResult r = step(in);
      for (Tensor& t : r.tensors)
        if (t.defined()) t = t.detach();
      return r;
    };
    Watch watch;
    try {
      const ObserverScope observed(watch);
      const GradientWatchScope watched(&watch);
      entry.work = backend->capture(device, GraphedCall(run), inputs, entry.result);
      for (size_t i = 0; i < inputs.size(); ++i)
        check<DeviceError>(!inputs[i].defined() || (inputs[i].version() == versions[i] && !watch.writes(tensors[i])),
                           kName, "the step writes to its argument ", i, " (", tensors[i],
                           "), of which the graph has a copy: let the step know the tensor without being given it");
    } catch (...) {
      watch.undo();
      throw;
    }
    entry.gradients = watch.take_gradients();
    entry.casts = watch.take_casts();
    entry.counted = watch.take_counted();
    entry.seen = watch.take_seen();
    while (entries.size() >= static_cast<size_t>(options.most)) entries.pop_back();
    entries.push_front(std::move(entry));
    ++kind.in_row;
    ++captures;
  }

  Kind& kind_of(const std::string& key) {
    if (kinds.size() >= kMostKinds && !kinds.contains(key)) kinds.clear();
    return kinds[key];
  }

  const GraphedOptions options;
  std::unique_ptr<GraphedBackend> backend;
  std::unordered_map<std::string, Kind> kinds;
  std::list<Entry> entries;  // the one used last first
  int64_t captures = 0, replays = 0;
  std::string note;
  std::atomic<bool> busy{false};
};

GraphedSteps::GraphedSteps(const GraphedOptions& options, std::unique_ptr<GraphedBackend> backend)
    : state_(std::make_unique<State>(options, std::move(backend))) {}
GraphedSteps::~GraphedSteps() = default;
GraphedSteps::GraphedSteps(GraphedSteps&&) noexcept = default;

GraphedResult GraphedSteps::call(const TensorList& tensors, std::string_view rest, const GraphedCall& step) {
  check(!state_->busy.exchange(true), kName, "the step is running already, in another thread or in itself");
  struct Done {
    std::atomic<bool>& busy;
    ~Done() { busy = false; }
  } const done{state_->busy};
  return state_->call(tensors, rest, step);
}
int64_t GraphedSteps::graphs() const {
  return static_cast<int64_t>(state_->entries.size());
}
int64_t GraphedSteps::captures() const {
  return state_->captures;
}
int64_t GraphedSteps::replays() const {
  return state_->replays;
}
const std::string& GraphedSteps::note() const {
  return state_->note;
}
void GraphedSteps::clear() {
  check(!state_->busy, kName, "the step is running");
  state_->entries.clear();
  state_->kinds.clear();
  state_->note.clear();
}

}  // namespace strata::detail
