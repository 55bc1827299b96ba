// Memory tiers: budgets around a loop, and what keeps to them one by one. strata/memory.py is made of these.

#include "tiers.h"

#include <nanobind/stl/map.h>

#include <map>
#include <memory>

#include "options.h"
#include "strata/autograd/offload.h"
#include "strata/autograd/recompute.h"
#include "strata/core/error.h"
#include "strata/memory/disk.h"
#include "strata/memory/tiers.h"
#include "strata/nn/module_tree.h"
#include "strata/nn/streamed.h"
#include "strata/optim/home.h"
#include "strata/train/budget_scope.h"

namespace strata::python {
namespace {

using Release = nb::call_guard<Released>;
using Named = std::vector<std::pair<std::string, Tensor>>;
// Paths and kinds of a tree of modules, parents first.
using Kinds = std::vector<std::pair<std::string, std::string>>;

std::vector<std::string> folders_of(const std::string& disk) {
  return memory::parse_folders(disk);
}

class Budget {
 public:
  Budget(const Kinds& modules, const Named& parameters, optim::Optimizer* optimizer, const MemoryConfig& keys) {
    const nn::Module model = nn::module_tree(parameters, modules);
    scope_ = optimizer ? std::make_unique<BudgetScope>(model, *optimizer, keys)
                       : std::make_unique<BudgetScope>(model, keys);
  }
  BudgetScope& operator*() { return *scope_; }
  void close() { scope_->close(); }

 private:
  std::unique_ptr<BudgetScope> scope_;
};

nb::dict to_dict(const TierPlan& p) {
  nb::dict d;
  const auto place = [](Place where) { return std::string(name_of(where)); };
  d["weights"] = place(p.parameters);
  d["state"] = place(p.state);
  d["activations"] = place(p.activations);
  d["leaving"] = p.leaving;
  d["kept"] = p.kept;
  d["recomputed"] = p.recomputed;
  d["peak_device"] = p.peak.device;
  d["peak_host"] = p.peak.host;
  d["peak_disk"] = p.peak.disk;
  d["peak_without"] = p.peak_without;
  d["seconds"] = p.seconds;
  d["seconds_without"] = p.seconds_without;
  d["bound"] = p.bound;
  d["fits"] = p.fits;
  return d;
}

// Scopes between __enter__ and __exit__.
struct Offload {
  std::shared_ptr<SavedTensorOffload> offload;
  std::vector<std::shared_ptr<SavedTensorOffload::Scope>> scopes;
};
struct Again {
  RecomputeOptions options;
  std::unique_ptr<Recompute> scope;
  Recompute& open() const {
    check(scope != nullptr, "recompute", "begin() and keep() are for within `with`");
    return *scope;
  }
};
struct PyStreamed {
  std::unique_ptr<nn::Streamed> streamed;
  std::unique_ptr<nn::StreamScope> scope;
};

nb::dict to_dict(const OffloadStats& s) {
  nb::dict d;
  d["passes"] = s.passes;
  d["saved"] = s.saved;
  d["sent"] = s.sent;
  d["fetched"] = s.fetched;
  d["kept"] = s.kept;
  d["forwarded"] = s.forwarded;
  d["recomputed"] = s.recomputed;
  d["refused"] = s.refused;
  d["seconds_waited"] = s.seconds_waited;
  return d;
}

}  // namespace

void bind_tiers(nb::module_& m) {
  nb::class_<Budget>(m, "Budget", "A loop within a budget: BudgetScope of C++.")
      .def(
          "__init__",
          [](Budget* self, const Kinds& modules, const Named& parameters, nb::handle optimizer,
             const std::map<std::string, std::string>& keys) {
            MemoryConfig c;
            const std::map<std::string, std::string*> known{
                {"device", &c.device},       {"host", &c.host},     {"disk", &c.disk},    {"activations", &c.activations},
                {"recompute", &c.recompute}, {"state", &c.state},   {"update", &c.update}, {"parameters", &c.parameters}};
            for (const auto& [key, value] : keys) *known.at(key) = value;
            optim::Optimizer* engine = optimizer.is_none() ? nullptr : &optimizer_of(optimizer);
            const Released release;
            new (self) Budget(modules, parameters, engine, c);
          },
          nb::arg("modules"), nb::arg("parameters"), nb::arg("optimizer").none(), nb::arg("keys"),
          nb::keep_alive<1, 4>())
      .def("before_update", [](Budget& b) { (*b).before_update(); }, Release())
      .def("after_update", [](Budget& b) { (*b).after_update(); }, Release())
      .def("update_failed", [](Budget& b) { (*b).update_failed(); }, Release())
      .def("close", &Budget::close, Release())
      .def("advice", [](Budget& b) { return (*b).advice(); })
      .def("describe", [](Budget& b) { return (*b).describe(); })
      .def("plan", [](Budget& b) { return to_dict((*b).plan()); })
      .def_prop_ro("planned", [](Budget& b) { return (*b).planned(); })
      .def_prop_ro("peak", [](Budget& b) { return (*b).peak(); });

  nb::class_<Offload>(m, "SavedTensorOffload", "Saved tensors that leave during forward and return ahead of backward.")
      .def(
          "__init__",
          [](Offload* self, const std::string& away, bool recompute, int64_t min_bytes, int64_t keep_bytes,
             double slowdown, int64_t most_kept) {
            check(away == "host" || away == "disk", "offload", "tensors go to host or disk, not to ", away);
            const Released release;
            OffloadOptions o{.away = away == "disk" ? SavedPlace::disk : SavedPlace::host,
                             .recompute = recompute,
                             .min_bytes = min_bytes,
                             .keep_bytes = keep_bytes,
                             .slowdown = slowdown,
                             .most_kept = most_kept};
            if (away == "disk") o.disk = memory::disk();
            new (self) Offload{SavedTensorOffload::create(o), {}};
          },
          nb::arg("away"), nb::arg("recompute"), nb::arg("min_bytes"), nb::arg("keep_bytes"), nb::arg("slowdown"),
          nb::arg("most_kept"))
      .def("enter",
           [](Offload& o) { o.scopes.push_back(std::make_shared<SavedTensorOffload::Scope>(o.offload)); })
      .def("exit", [](Offload& o) { o.scopes.pop_back(); })
      .def("stats", [](Offload& o) { return to_dict(o.offload->stats()); }, "What it did so far, in bytes.");

  nb::class_<Again>(m, "Recompute", "Forward in stretches whose calls backward runs again.")
      .def(
          "__init__", [](Again* self, const std::string& inputs) { new (self) Again{{memory::parse_tier(inputs)}, {}}; },
          nb::arg("inputs"))
      .def("enter",
           [](Again& a) {
             check(a.scope == nullptr, "recompute", "it has begun already");
             a.scope = std::make_unique<Recompute>(a.options);
           })
      .def("exit", [](Again& a) { a.scope.reset(); })
      .def("begin", [](Again& a) { a.open().begin(); }, "What forward calls from now on is a stretch of its own.")
      .def("keep", [](Again& a) { a.open().keep(); }, "What follows keeps what it saves.");

  nb::class_<PyStreamed>(m, "Streamed", "A network whose parameters live on a tier and come a part at a time.")
      .def(
          "__init__",
          [](PyStreamed* self, const Kinds& modules, const Named& parameters, const std::string& tier,
             int64_t near_bytes, int parts_near, bool gradients, bool recompute, const std::string& inputs) {
            const Released release;
            new (self) PyStreamed{
                std::make_unique<nn::Streamed>(nn::module_tree(parameters, modules),
                                               nn::StreamOptions{.tier = memory::parse_tier(tier),
                                                                 .near_bytes = near_bytes,
                                                                 .parts_near = parts_near,
                                                                 .gradients = gradients,
                                                                 .recompute = recompute,
                                                                 .inputs = memory::parse_tier(inputs)}),
                {}};
          },
          nb::arg("modules"), nb::arg("parameters"), nb::arg("tier"), nb::arg("near_bytes"), nb::arg("parts_near"),
          nb::arg("gradients"), nb::arg("recompute"), nb::arg("inputs"))
      .def(
          "enter", [](PyStreamed& s) { s.scope = std::make_unique<nn::StreamScope>(*s.streamed); }, Release())
      .def(
          "exit", [](PyStreamed& s) { s.scope.reset(); }, Release())
      .def("parts",
           [](const PyStreamed& s) {
             nb::list all;
             for (const nn::StreamedPart& p : s.streamed->parts()) {
               nb::dict d;
               d["name"] = p.name;
               d["bytes"] = p.bytes;
               d["reads"] = p.reads;
               d["note"] = p.note;
               all.append(d);
             }
             return all;
           })
      .def("stats",
           [](const PyStreamed& s) {
             const nn::StreamStats t = s.streamed->stats();
             nb::dict d;
             d["bytes_ahead"] = t.bytes_ahead;
             d["bytes_late"] = t.bytes_late;
             d["visits"] = t.visits;
             d["unforeseen"] = t.unforeseen;
             d["seconds_waited"] = t.seconds_waited;
             return d;
           })
      .def("report", [](const PyStreamed& s) { return s.streamed->report(); });
  m.def(
      "move_parameters",
      [](const Kinds& modules, const Named& parameters, const std::string& tier) {
        nn::move_parameters(nn::module_tree(parameters, modules), memory::parse_tier(tier));
      },
      nb::arg("modules"), nb::arg("parameters"), nb::arg("tier"), Release());

  m.def(
      "optimizer_set_home",
      [](nb::handle optimizer, const std::string& where, const std::string& who, double cpu_share, int64_t group_bytes,
         bool gradients_leave, bool delayed) {
        using Who = optim::StateHome::Who;
        check(who == "device" || who == "cpu" || who == "split", "set_home", "who is device, cpu or split, got ", who);
        const optim::StateHome home{.where = memory::parse_tier(where),
                                    .who = who == "cpu"     ? Who::cpu
                                           : who == "split" ? Who::split
                                                            : Who::device,
                                    .cpu_share = cpu_share,
                                    .group_bytes = group_bytes,
                                    .gradients_leave = gradients_leave,
                                    .delayed = delayed};
        optim::Optimizer& o = optimizer_of(optimizer);
        const Released release;
        o.set_home(home);
      },
      nb::arg("optimizer"), nb::arg("where"), nb::arg("who"), nb::arg("cpu_share"), nb::arg("group_bytes"),
      nb::arg("gradients_leave"), nb::arg("delayed"));
  m.def(
      "optimizer_finish",
      [](nb::handle optimizer) {
        const optim::Optimizer& o = optimizer_of(optimizer);
        const Released release;
        o.finish();
      },
      nb::arg("optimizer"));
  m.def(
      "memory_use_disk",
      [](const std::string& folders, int64_t limit) {
        memory::use_disk({.directories = folders_of(folders), .limit = limit});
      },
      nb::arg("folders"), nb::arg("limit"), Release());
  m.def(
      "memory_near_stats",
      [](Device device, const std::string& tier) {
        const memory::NearStats s = memory::near_stats(device, memory::parse_tier(tier));
        nb::dict d;
        d["limit"] = s.limit;
        d["bytes"] = s.bytes;
        d["pinned"] = s.pinned;
        d["peak"] = s.peak;
        d["fetches"] = s.fetches;
        d["hits"] = s.hits;
        d["waits"] = s.waits;
        d["bytes_in"] = s.bytes_in;
        d["bytes_out"] = s.bytes_out;
        d["seconds_waited"] = s.seconds_waited;
        return d;
      },
      nb::arg("device"), nb::arg("tier"));
  m.def(
      "memory_set_near_limit",
      [](int64_t bytes, Device device, const std::string& tier) {
        return memory::set_near_limit(bytes, device, memory::parse_tier(tier));
      },
      nb::arg("bytes"), nb::arg("device"), nb::arg("tier"));
}

}  // namespace strata::python
