// Tables that live off the card: what strata/features.py is made of.

#include "features.h"

#include <memory>

#include "options.h"
#include "py.h"
#include "strata/memory/tiers.h"
#include "strata/nn/feature_table.h"
#include "strata/optim/row_optimizer.h"

namespace strata::python {
namespace {
using nn::FeatureTable;
using Options = nn::FeatureTableOptions;

Options table_options(Device device, const std::string& home, const std::string& keep, int64_t cache_bytes,
                      const std::vector<std::string>& directories) {
  check(home == "own" || home == "unified" || home == "disk", "FeatureTable", "home is own, unified or disk, got ",
        home);
  check(keep == "most_used" || keep == "last_used", "FeatureTable", "keep is most_used or last_used, got ", keep);
  return {.device = device,
          .home = home == "unified" ? memory::kUnified
                  : home == "disk"  ? memory::kDisk
                                    : Tier(),
          .keep = keep == "most_used" ? Options::Keep::most_used : Options::Keep::last_used,
          .cache_bytes = cache_bytes,
          .directories = directories};
}

nb::dict stats_of(const FeatureTable& table) {
  nn::FeatureTableStats s;
  {
    const Released release;
    s = table.stats();
  }
  nb::dict d;
  d["rows"] = s.rows;
  d["hits"] = s.hits;
  d["hit_rate"] = s.hit_rate();
  d["home_rows"] = s.home_rows;
  d["home_bytes"] = s.home_bytes;
  d["prefetched"] = s.prefetched;
  return d;
}

}  // namespace

void bind_features(nb::module_& m) {
  using Release = nb::call_guard<Released>;
  nb::class_<FeatureTable>(m, "FeatureTable",
                           "Rows that live where there is room, and are handed out as they are asked for.")
      .def(
          "__init__",
          [](FeatureTable* self, int64_t rows, int64_t width, DType dtype, Device device, const std::string& home,
             const std::string& keep, int64_t cache_bytes, const std::vector<std::string>& directories) {
            new (self) FeatureTable(rows, width, dtype, table_options(device, home, keep, cache_bytes, directories));
          },
          nb::arg("rows"), nb::arg("width"), nb::arg("dtype"), nb::arg("device"), nb::arg("home"), nb::arg("keep"),
          nb::arg("cache_bytes"), nb::arg("directories"))
      .def_prop_ro("rows", &FeatureTable::rows)
      .def_prop_ro("width", &FeatureTable::width)
      .def_prop_ro("dtype", &FeatureTable::dtype)
      .def_prop_ro("device", &FeatureTable::device)
      .def_prop_ro("cache_rows", &FeatureTable::cache_rows, "Rows that there is room for in the device's own memory.")
      .def("gather", &FeatureTable::gather, nb::arg("indices"), Release(),
           "The rows that `indices` name: indices.shape + (width,), on the table's device.")
      .def("prefetch", &FeatureTable::prefetch, nb::arg("indices"), Release(),
           "Begins to read for the gather() of the same indices that will follow.")
      .def(
          "write_rows", [](FeatureTable& t, const Tensor& rows, const Tensor& values) { t.write(rows, values); },
          nb::arg("rows"), nb::arg("values"), Release(), "The rows that `rows` (int64, each once) name = values.")
      .def(
          "write", [](FeatureTable& t, int64_t first, const Tensor& values) { t.write(first, values); },
          nb::arg("first"), nb::arg("values"), Release(), "Rows from `first` on = values.")
      .def("read", &FeatureTable::read, nb::arg("first"), nb::arg("count"), Release(),
           "Rows [first, first + count) as a tensor of the host.")
      .def("count_uses", &FeatureTable::count_uses, nb::arg("on"), Release(),
           "From now on gather() counts how often each row is asked for, or no longer.")
      .def("uses", &FeatureTable::uses, Release(), "How often, int64 [rows].")
      .def(
          "keep_most_used",
          [](FeatureTable& t, const std::optional<Tensor>& counts) { t.keep_most_used(counts.value_or(Tensor())); },
          nb::arg("counts") = nb::none(), Release(), "Keeps the rows with the largest counts: uses(), unless given.")
      .def("stats", &stats_of, "What was asked for: rows, hits, hit_rate, home_rows, home_bytes, prefetched.")
      .def("reset_stats", &FeatureTable::reset_stats, Release())
      .def_prop_rw("requires_grad", &FeatureTable::requires_grad, &FeatureTable::set_requires_grad,
                   "Whether gathered rows are leaves whose gradients gradient() adds up.")
      .def(
          "gradient",
          [](const FeatureTable& t) {
            nn::RowGradient g;
            {
              const Released release;
              g = t.gradient();
            }
            return nb::make_tuple(wrapped(g.rows), wrapped(g.values));
          },
          "The rows that were used, ascending and each once, and the sums of their gradients.")
      .def("zero_grad", &FeatureTable::zero_grad);

  using optim::RowOptimizer;
  nb::class_<RowOptimizer>(m, "RowOptimizer",
                           "Updates the rows of a FeatureTable that have a gradient, where they live.")
      .def(
          "__init__",
          [](RowOptimizer* self, FeatureTable& table, const std::string& kind, const nb::dict& options) {
            new (self) RowOptimizer(table, kind, options_of(optim::optimizer_record(kind), options));
          },
          nb::arg("table"), nb::arg("kind"), nb::arg("options"), nb::keep_alive<1, 2>())
      .def("step", &RowOptimizer::step, nb::arg("grad_scale") = 1.0, Release(),
           "Updates by the table's gradient times `grad_scale`, and drops it.")
      .def_prop_rw("lr", &RowOptimizer::lr, &RowOptimizer::set_lr, "The learning rate.")
      .def_prop_rw("updates", &RowOptimizer::updates, &RowOptimizer::set_updates, "Steps so far.")
      .def_prop_ro("states", &RowOptimizer::states, "Names of what is kept of each row.")
      .def("read_state", &RowOptimizer::read_state, nb::arg("state"), nb::arg("first"), nb::arg("count"), Release(),
           "Rows [first, first + count) of a state, on the host.")
      .def("write_state", &RowOptimizer::write_state, nb::arg("state"), nb::arg("first"), nb::arg("values"), Release(),
           "Rows of a state from `first` on = values.");
}

}  // namespace strata::python
