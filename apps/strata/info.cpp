#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "strata/core/error.h"
#include "strata/cuda/links_inl.h"
#include "strata/cuda/runtime.h"
#include "strata/dist/group.h"
#include "strata/io/files.h"
#include "strata/lab/peaks.h"
#include "strata/train/machine.h"
#include "strata/train/plan/machine.h"

namespace strata::cli {

namespace {

std::vector<std::pair<std::string, std::string>> link_rows() {
  const int cards = cuda::device_count();
  if (cards == 0) return {{"Links", "no cards: " + cuda::unavailable_reason()}};
  if (cards == 1) return {{"Links", "one card, and none between it and others"}};
  std::vector<std::pair<std::string, std::string>> rows;
  for (const cuda::Link& l : cuda::measure_links())
    rows.emplace_back(
        fmt::format("cuda:{} to cuda:{}", l.from, l.to),
        fmt::format("{:.1f} GB/s, {:.1f} us{}", l.gb_s, l.latency_us, l.direct ? "" : ", through the host"));
  return rows;
}

// Of a job that a launcher started: what its ranks compute and send. Every rank measures, the first tells.
int measure_job(const std::string& device, const std::string& out) {
  distributed::init();
  // Before the first look at the cards: from there on a process has those that it saw.
  if (device.empty() || parse_device(device).is_cuda()) distributed::take_own_card();
  const Device wanted = parse_device(device.empty() ? (cuda::device_count() > 0 ? "cuda" : "cpu") : device);
  const Device own = wanted.is_cuda() ? distributed::card() : wanted;
  const plan::Machine m = plan::measure_machine(own, wanted.is_cuda() ? "bf16" : "f32");
  if (distributed::rank() == 0) {
    std::string text = fmt::format("{}: {:.1f} GB/s, {:.0f} GFLOP/s f32, {:.0f} bf16; steps reach {:.2f} of it, and {:.1f} us a call; other programs leave {:.2f}\n",
                                   m.name, m.limits.gb_s, m.limits.matmul_f32, m.limits.matmul_bf16, m.efficiency, m.call_us, m.share);
    const int n = m.links.ranks();
    constexpr int kShown = 16;
    for (int i = 0; i < std::min(n, kShown); ++i)
      for (int j = 0; j < std::min(n, kShown); ++j)
        if (i != j)
          text += fmt::format("rank {} to rank {}  {:.2f} GB/s, {:.1f} us\n", i, j, m.links.of(i, j).gb_s, m.links.of(i, j).latency_us);
    if (n > kShown) text += fmt::format("and so on: {} ranks\n", n);
    if (n > 1)
      text += fmt::format("all_reduce of all: {:.2f} times what pairs take, few bytes {:.2f} times; beside computing {:.0f}% of it is free\n",
                          m.links.scale, m.links.small_scale, 100 * m.links.overlap);
    if (!out.empty()) {
      io::write_file(out, m.to_json());
      text += fmt::format("links {}\n", out);
    }
    std::fputs(text.c_str(), stdout);
  }
  distributed::shutdown();
  return kOk;
}

}  // namespace

void add_info(CLI::App& app, Body& body) {
  CLI::App* info = app.add_subcommand("info", "This machine and this build, and the machine's measured limits");
  auto fast = std::make_shared<bool>(false);
  info->add_flag("--no-peaks", *fast, "Leave out the measurements, which take a few seconds");
  auto links = std::make_shared<bool>(false);
  info->add_flag("--links", *links,
                 "Only this: what copies between this machine's cards reach, measured; of a job (strata launch -n N -- strata "
                 "info --links) what its ranks compute and send");
  auto out = std::make_shared<std::string>(), device = std::make_shared<std::string>();
  info->add_option("--out", *out, "With --links of a job: a file for strata plan --links and parallel.links")
      ->type_name("FILE.json")
      ->check(writable_file());
  info->add_option("--device", *device, "With --links of a job: cpu or cuda [cuda where there are cards]")
      ->type_name("DEVICE")
      ->check(device_name());
  info->callback([&body, fast, links, out, device] {
    body = [fast, links, out, device] {
      const bool job = distributed::current_job().has_value();
      if (!out->empty() && !*links) throw UsageError("--out is for --links");
      if (*links && (job || !out->empty())) return measure_job(*device, *out);
      auto rows = *links ? link_rows() : machine_rows(machine_info());
      if (!*fast && !*links) {
        const lab::Peaks p = lab::measure_peaks();
        rows.emplace_back("", "");
        rows.emplace_back("Memory, read", fmt::format("{:.1f} GB/s", p.read_gb_s));
        rows.emplace_back("Memory, triad", fmt::format("{:.1f} GB/s", p.triad_gb_s));
        rows.emplace_back("f32 multiply-add", fmt::format("{:.0f} GFLOP/s", p.fma_gflops));
        rows.emplace_back("f32 matmul", fmt::format("{:.0f} GFLOP/s", p.matmul_f32_gflops));
        rows.emplace_back("bf16 matmul", fmt::format("{:.0f} GFLOP/s", p.matmul_bf16_gflops));
        for (int d = 0; d < cuda::device_count(); ++d) {
          const lab::CardPeaks c = lab::measure_card(Device::cuda(d));
          const std::string name = cuda::device_count() > 1 ? fmt::format("cuda:{}", d) : "Card";
          rows.emplace_back(name + ", copy", fmt::format("{:.0f} GB/s", c.copy_gb_s));
          rows.emplace_back(name + ", bf16 matmul", fmt::format("{:.0f} TFLOP/s", 1e-3 * c.matmul_bf16_gflops));
          rows.emplace_back(name + ", tf32 matmul", fmt::format("{:.0f} TFLOP/s", 1e-3 * c.matmul_tf32_gflops));
          rows.emplace_back(name + ", f32 matmul", fmt::format("{:.1f} TFLOP/s", 1e-3 * c.matmul_f32_gflops));
          rows.emplace_back(name + ", PCIe", fmt::format("{:.1f} GB/s to the card, {:.1f} GB/s from it", c.to_card_gb_s,
                                                         c.from_card_gb_s));
        }
        try {
          const lab::DiskRates disk = lab::measure_disk(".");
          rows.emplace_back("Disk, here",
                            fmt::format("{:.2f} GB/s written, {:.2f} GB/s read", disk.write_gb_s, disk.read_gb_s));
        } catch (const IoError& e) {
          rows.emplace_back("Disk, here", fmt::format("not measured: {}", e.what()));
        }
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
