#include <algorithm>
#include <cstdio>
#include <string>

#include <fmt/format.h>

#include "apps/strata/command.h"
#include "strata/train/machine.h"

namespace strata::cli {

void add_info(CLI::App& app, Body& body) {
  CLI::App* info = app.add_subcommand("info", "This machine and this build, and the machine's measured limits");
  auto fast = std::make_shared<bool>(false);
  info->add_flag("--no-peaks", *fast, "Leave out the measurements, which take a few seconds");
  info->callback([&body, fast] {
    body = [fast] {
      auto rows = machine_rows(machine_info());
      if (!*fast) {
        const Peaks p = measure_peaks();
        rows.emplace_back("", "");
        rows.emplace_back("Memory, read", fmt::format("{:.1f} GB/s", p.read_gb_s));
        rows.emplace_back("Memory, triad", fmt::format("{:.1f} GB/s", p.triad_gb_s));
        rows.emplace_back("f32 multiply-add", fmt::format("{:.0f} GFLOP/s", p.fma_gflops));
        rows.emplace_back("f32 matmul", fmt::format("{:.0f} GFLOP/s", p.matmul_f32_gflops));
        rows.emplace_back("bf16 matmul", fmt::format("{:.0f} GFLOP/s", p.matmul_bf16_gflops));
      }
      size_t width = 0;
      for (const auto& [label, text] : rows) width = std::max(width, label.size());
      for (const auto& [label, text] : rows)
        std::fputs((label.empty() ? "\n" : fmt::format("{:<{}}  {}\n", label, width, text)).c_str(), stdout);
      return kOk;
    };
  });
}

}  // namespace strata::cli
