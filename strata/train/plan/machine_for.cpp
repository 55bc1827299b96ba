#include "strata/core/error.h"
#include "strata/io/files.h"
#include "strata/memory/bounds.h"
#include "strata/train/plan/plan.h"

namespace strata::plan {

Machine machine_for(const TrainConfig& config, int64_t ranks, const MachineSource& source) {
  check(ranks >= 1, "plan", "ranks are ", ranks, ", wanted at least 1");
  check(source.hosts >= 0 && (source.hosts == 0 || ranks % source.hosts == 0), "plan", source.hosts,
        " hosts do not divide the ", ranks, " ranks");
  check(source.links.empty() || source.card.empty(), "plan", "links and a card: one of them says what ranks compute");
  Machine m;
  if (!source.links.empty()) {
    m = machine_from_json(io::read_file(source.links), source.links);
  } else if (!source.card.empty()) {
    m = machine_of_card(source.card);
  } else {
    check(ranks == 1, "plan",
          "what goes between ranks is not known: give a file of links (strata launch -n N -- strata info --links --out FILE "
          "measures it), or the name of a card that was measured");
    const Device device = parse_device(config.device);
    m = measure_machine(device, config.dtype);
    m.memory = memory::tightest_bound(device).free();
  }
  if (source.hosts > 0) {
    m.links.ranks_per_host = static_cast<int>(ranks / source.hosts);
    m.links.pairs.clear();
  }
  return m;
}

}  // namespace strata::plan
