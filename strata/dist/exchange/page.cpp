#include "strata/dist/exchange_page.h"

#include "strata/core/error.h"
#include "strata/dist/gradient_exchange.h"

namespace strata::distributed {
namespace {

std::string_view text_of(ExchangeRecord::Gives gives) {
  switch (gives) {
    case ExchangeRecord::Gives::gradients:
      return "Gives gradients, for any update.";
    case ExchangeRecord::Gives::direction:
      return "Gives a direction, which is taken from parameters times the learning rate.";
    case ExchangeRecord::Gives::parameters:
      break;
  }
  return "Leaves gradients each rank's own; parameters come together.";
}

// "3.9".
std::string times(double x) {
  const auto tenths = static_cast<int64_t>(x * 10 + 0.5);
  return cat(tenths / 10, ".", tenths % 10);
}

}  // namespace

std::string exchanges_markdown() {
  const std::vector<Shape> matrix{{1024, 1024}};
  const double bytes = 4.0 * 1024 * 1024;
  std::string s =
      "# Ways to exchange gradients\n\n"
      "Written from the records in `strata/dist/exchange/records.cpp`: values of `parallel.reduce`, and of a library's\n"
      "`make_exchange`. Bytes are those of a matrix of 1024 x 1024 in f32 on four ranks: sent in a step, to whole gradients,\n"
      "and kept, to the matrix. [When to take which](../guide/parallel.md#less-communication).\n";
  for (const ExchangeRecord& r : exchange_records()) {
    const double fewer = exchange_record("plain").sent(matrix, 4, {}) / r.sent(matrix, 4, {});
    s += cat("\n## ", r.name, "\n\n", r.doc, "\n\n", text_of(r.gives), r.optimizers.empty() ? "" : " For `train.optimizer` = ",
             r.optimizers, r.optimizers.empty() ? "" : ".", " Sends ", times(fewer), " times fewer bytes, keeps ",
             times(r.kept(matrix, 4, {}) / bytes), " times the matrix.",
             r.alike ? "" : " Its steps are not all alike: no CUDA graph.", "\n");
    if (!r.options.empty()) s += "\n| option | default | |\n|---|---|---|\n";
    for (const ExchangeOption& o : exchange_options())
      if (r.reads(o.name)) s += cat("| `parallel.reduce_", o.name, "` | ", o.value({}), " | ", o.doc, " |\n");
    if (!r.refuses.empty()) s += "\n| refused beside | because |\n|---|---|\n";
    for (const ExchangeRefusal& f : r.refuses) {
      const std::string value = f.texts == "*" ? "" : f.texts.empty() ? cat(" above ", f.most) : cat(" = ", f.texts);
      s += cat("| `", f.key, "`", value, " | ", f.why, " |\n");
    }
  }
  return s;
}

}  // namespace strata::distributed
