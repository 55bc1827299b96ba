// The table of ways to exchange gradients.

#include <algorithm>
#include <array>

#include "strata/core/error.h"
#include "strata/dist/data_parallel.h"
#include "strata/dist/exchange/exchange_inl.h"

namespace strata::distributed {
namespace exchange {
namespace {

template <auto Field>
void* field(ExchangeOptions& o) {
  return &(o.*Field);
}

using R = ExchangeRefusal;
constexpr R kTp{"parallel.tp", 1, {}, "its ranks have other parts of each gradient"};
constexpr R kPp{"parallel.pp", 1, {}, "its stages have other parameters"};
constexpr R kCp{"parallel.cp", 1, {}, "its ranks send gradients beside those of parallel.dp"};
constexpr R kEp{"parallel.ep", 1, {}, "its ranks have other experts"};
constexpr R kExact{"parallel.exact", 0, {}, "its sums are those of whole gradients"};
constexpr R kZero1{"parallel.zero", 1, {}, "it wants whole gradients in each rank"};
constexpr R kZero0{"parallel.zero", 0, {}, "each rank updates all of the parameters"};
constexpr R kF16{"train.dtype", 0, "f16", "a step that a loss scale leaves out would stay in what is kept back"};
constexpr R kMirror{"parallel.mirror", 0, {}, "mirrors have no copy of what is kept back"};
constexpr R kReplicas{"parallel.check_replicas", 0, {}, "between meetings ranks differ"};
constexpr R kShares{"parallel.shares", 0, "*", "each rank's own steps count alike"};

// As they are, while backward runs.
class Plain final : public GradientExchange {
 public:
  Plain(const ExchangeRecord& record, const Parameters& parameters, Group& group, const ExchangeOptions& options)
      : GradientExchange(record, parameters, group, options), gradients_(parameters, group) {}
  void reduce_next(bool yes) override { gradients_.reduce_next(yes); }

 protected:
  void exchange(double) override {
    gradients_.finish();
    count(static_cast<int64_t>(plain_bytes()));
  }

 private:
  DataParallel gradients_;
};

}  // namespace

std::unique_ptr<GradientExchange> make_plain(const GradientExchange::Parameters& p, Group& g,
                                             const ExchangeOptions& o) {
  return std::make_unique<Plain>(exchange_record("plain"), p, g, o);
}
double kept_plain(const std::vector<Shape>&, int64_t, const ExchangeOptions&) {
  return 0;
}
double sent_plain(const std::vector<Shape>& shapes, int64_t ranks, const ExchangeOptions&) {
  double bytes = 0;
  for (const Shape& s : shapes) bytes += 4.0 * static_cast<double>(s.product());
  return ring_bytes(bytes, ranks);
}

}  // namespace exchange

std::span<const ExchangeOption> exchange_options() {
  using O = ExchangeOptions;
  using exchange::field;
  static constexpr ExchangeOption all[] = {
      {"rank", "Rank of the products that stand for matrices.", true, 1, 1024, field<&O::rank>},
      {"warmup", "Steps with whole gradients, after which Adam's second moments stay as they are.", true, 1, 1e9,
       field<&O::warmup>},
      {"keep", "Components of each chunk of 64 x 64 numbers that travel in a step.", true, 1, 4096, field<&O::keep>},
      {"decay", "What becomes in a step of momentum that has not travelled.", false, 0, 1, field<&O::decay>},
      {"every", "Steps between two meetings; 0: 16 for local_sgd, 500 for diloco.", true, 0, 1e9, field<&O::every>},
      {"outer_lr", "Of a meeting's step.", false, 1e-6, 10, field<&O::outer_lr>},
      {"outer_momentum", "Nesterov's, over meetings.", false, 0, 0.999999, field<&O::outer_momentum>},
  };
  return all;
}

double ExchangeOption::value(const ExchangeOptions& options) const {
  const void* const at =
      field(const_cast<ExchangeOptions&>(options));  // which gives a mutable member; nothing is written
  return whole ? static_cast<double>(*static_cast<const int64_t*>(at)) : *static_cast<const double*>(at);
}

bool ExchangeRecord::reads(std::string_view option) const {
  return std::ranges::find(options, option) != options.end();
}

void ExchangeRecord::check(const ExchangeOptions& given) const {
  for (const ExchangeOption& o : exchange_options()) {
    const double v = o.value(given);
    strata::check(!reads(o.name) || (v >= o.min && v <= o.max), name, o.name, " is ", v, ", wanted ", o.min, " to ",
                  o.max);
  }
}

std::span<const ExchangeRecord> exchange_records() {
  using namespace exchange;
  static const std::vector<ExchangeRecord> all{
      {.name = "plain",
       .doc = "Gradients as they are, in buckets that travel while backward runs (arXiv:2006.15704).",
       .options = {},
       .refuses = {},
       .sent = sent_plain,
       .kept = kept_plain,
       .make = make_plain},
      {.name = "int8",
       .doc =
           "8 bits a number, under a scale for each 256, to the rank that adds them up in f32, and 8 bits a sum back; "
           "what rounding loses is sent later (Seide et al. 2014).",
       .options = {},
       .refuses = {kTp, kPp, kCp, kEp, kZero1, kExact, kMirror, kF16},
       .sent = sent_int8,
       .kept = kept_int8,
       .make = make_int8},
      {.name = "int4",
       .doc = "The same with 4 bits, under a scale for each 64.",
       .options = {},
       .refuses = {kTp, kPp, kCp, kEp, kZero1, kExact, kMirror, kF16},
       .sent = sent_int4,
       .kept = kept_int4,
       .make = make_int4},
      {.name = "powersgd",
       .doc =
           "Matrices as products of rank parallel.reduce_rank, by a step of the power method from the product before; "
           "what a product lacks is sent later; vectors as they are (Vogels et al., arXiv:1905.13727).",
       .options = {"rank"},
       .refuses = {kTp, kPp, kCp, kEp, kZero1, kExact, kMirror, kF16},
       .sent = sent_power_sgd,
       .kept = kept_power_sgd,
       .make = make_power_sgd},
      {.name = "onebit",
       .doc =
           "1-bit Adam: parallel.reduce_warmup steps with whole gradients, then the signs of the momentum, under a "
           "scale "
           "for each 1024, both ways, in units of second moments that stay as they are; what signs lose is sent later "
           "(Tang et al., arXiv:2102.02888).",
       .options = {"warmup"},
       .refuses = {kTp, kPp, kCp, kEp, kZero0, kExact, kMirror, kF16},
       .optimizers = "adamw",
       .gives = ExchangeRecord::Gives::direction,
       .alike = false,
       .sent = sent_one_bit,
       .kept = kept_one_bit,
       .make = make_one_bit},
      {.name = "demo",
       .doc = "DeMo: each rank's momentum stays its own, but for the parallel.reduce_keep largest components of the "
              "cosine "
              "transform of each chunk, which travel in 8 bits and leave it; steps are by the sign of what came from "
              "all, as "
              "Lion's, whose learning rates it takes (Peng et al., arXiv:2411.19870).",
       .options = {"keep", "decay"},
       .refuses = {kTp, kPp, kCp, kEp, kZero0, kExact, kMirror, kF16},
       .optimizers = "lion",
       .gives = ExchangeRecord::Gives::direction,
       .sent = sent_demo,
       .kept = kept_demo,
       .make = make_demo},
      {.name = "local_sgd",
       .doc =
           "Each rank makes its own steps; each parallel.reduce_every of them parameters become the mean of the ranks' "
           "(Stich, arXiv:1805.09767).",
       .options = {"every"},
       .refuses = {kTp, kPp, kCp, kEp, kZero0, kExact, kShares, kMirror, kReplicas, kF16},
       .gives = ExchangeRecord::Gives::parameters,
       .alike = false,
       .sent = sent_local_sgd,
       .kept = kept_local_sgd,
       .make = make_local_sgd},
      {.name = "diloco",
       .doc =
           "The same, with an optimizer over meetings: Nesterov's momentum, of what the ranks' steps have taken from "
           "parameters on average (Douillard et al., arXiv:2311.08105).",
       .options = {"every", "outer_lr", "outer_momentum"},
       .refuses = {kTp, kPp, kCp, kEp, kZero0, kExact, kShares, kMirror, kReplicas, kF16},
       .gives = ExchangeRecord::Gives::parameters,
       .alike = false,
       .sent = sent_diloco,
       .kept = kept_diloco,
       .make = make_diloco},
  };
  return all;
}

const ExchangeRecord& exchange_record(std::string_view name) {
  std::string names;
  for (const ExchangeRecord& r : exchange_records()) {
    if (r.name == name) return r;
    names += cat(names.empty() ? "" : ", ", r.name);
  }
  throw ValueError("gradient exchange", cat("there is no '", name, "': ", names));
}

}  // namespace strata::distributed
