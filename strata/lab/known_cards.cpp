#include "strata/lab/known_cards.h"

#include <string>

#include "strata/core/error.h"

namespace strata::lab {
namespace {

constexpr KnownCard kCards[] = {
    {.name = "h200",
     .title = "NVIDIA H200",
     .limits = {.gb_s = 4223, .gflops = 51000, .matmul_f32 = 51000, .matmul_bf16 = 808000},
     .to_card_gb_s = 55,
     .from_card_gb_s = 55,
     .host_gb_s = 110,
     .disk_write_gb_s = 2.7,
     .disk_read_gb_s = 3.4,
     .memory_bytes = int64_t{139} << 30,
     .when = "2026-11-22, 16 cores"},
};

}  // namespace

std::span<const KnownCard> known_cards() {
  return kCards;
}

const KnownCard& known_card(std::string_view name) {
  std::string names;
  for (const KnownCard& c : kCards) {
    if (c.name == name) return c;
    names += (names.empty() ? "" : ", ") + std::string(c.name);
  }
  throw ValueError("known_card", cat("'", name, "' was not measured; there are ", names));
}

}  // namespace strata::lab
