#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/checks.h"
#include "apps/strata/command.h"
#include "apps/strata/shell_word.h"
#include "strata/core/error.h"
#include "strata/lab/known_cards.h"
#include "strata/memory/budget.h"
#include "strata/train/config.h"
#include "strata/train/plan/plan.h"

namespace strata::cli {
namespace {

struct Arguments {
  std::string config, links, card, memory;
  int64_t ranks = 0, hosts = 0, rows = 10;
  bool json = false, order = false;
  std::vector<std::string> set;
};

// The command that trains the first layout: what was asked for, what it chose behind that, which ranks go where.
std::string command_of(const plan::Plan& p, const Arguments& a, const plan::Machine& machine) {
  std::string text;
  if (p.ranks > 1) {
    const bool here = a.hosts <= 1 && machine.links.ranks_per_host >= p.ranks;
    text = fmt::format("strata launch -n {}", p.ranks) + (here ? "" : " --hostfile HOSTS");
    if (p.order && !std::ranges::is_sorted(p.order->ranks))
      text += fmt::format(" --order {}", fmt::join(p.order->ranks, ","));
    text += " -- ";
  }
  text += "strata train";
  if (!a.config.empty()) text += " " + shell_word(a.config);
  text += " --set";
  const std::vector<std::string>& chosen = p.layouts[0].settings;
  const auto key = [](std::string_view setting) { return setting.substr(0, setting.find('=')); };
  for (const std::string& s : a.set)
    if (std::ranges::none_of(chosen, [&](const std::string& c) { return key(c) == key(s); }))
      text += " " + shell_word(s);
  for (const std::string& s : chosen) text += " " + shell_word(s);
  return text;
}

int run(const Arguments& a) {
  TrainConfig config;
  int64_t memory = 0;
  plan::Machine machine;
  try {
    config = load_config(a.config, a.set);
    if (!a.memory.empty()) memory = memory::parse_bytes(a.memory, "--memory");
    machine = plan::machine_for(config, a.ranks, {.links = a.links, .card = a.card, .hosts = a.hosts});
  } catch (const ValueError& e) {
    throw UsageError(e.what());
  }
  const plan::Plan p =
      plan::plan_layouts(config, a.ranks, machine, {.memory = memory, .sure = a.rows, .find_order = a.order});
  std::string text =
      a.json ? plan::to_json(p) : fmt::format("{}\n{}", machine.name, plan::to_text(p, static_cast<size_t>(a.rows)));
  if (!a.json && !p.layouts.empty()) text += fmt::format("\nto train so:\n{}\n", command_of(p, a, machine));
  std::fputs(text.c_str(), stdout);
  return p.layouts.empty() ? kFailure : kOk;
}

}  // namespace

void add_plan(CLI::App& app, Body& body) {
  CLI::App* plan = app.add_subcommand(
      "plan", "Which layout of several ranks trains a model soonest in the memory that there is, by a forecast");
  auto a = std::make_shared<Arguments>();
  plan->add_option("config", a->config, "Settings (TOML), as for strata train");
  plan->add_option("--ranks", a->ranks, "Ranks of the job")
      ->type_name("N")
      ->check(between<int64_t>(1, 1 << 20))
      ->required();
  plan->add_option("--links", a->links, "What ranks compute and send: a file of strata info --links --out")
      ->type_name("FILE")
      ->check(CLI::ExistingFile);
  std::string cards;
  for (const lab::KnownCard& c : lab::known_cards()) cards += (cards.empty() ? "" : ", ") + std::string(c.name);
  plan->add_option("--card", a->card, "For cards that were measured elsewhere: " + cards)->type_name("NAME");
  plan->add_option("--hosts", a->hosts,
                   "Hosts that the ranks are shared out to, evenly; a file's pairs are then taken to be alike in and "
                   "between hosts")
      ->type_name("H")
      ->check(at_least(1));
  plan->add_option("--memory", a->memory, "What a rank may take, e.g. 141GiB [what the file or the card says]")
      ->type_name("BYTES");
  plan->add_option("--rows", a->rows, "Layouts to show; memory of these is estimated one by one")
      ->type_name("N")
      ->check(between<int64_t>(1, 1000))
      ->capture_default_str();
  plan->add_flag(
      "--order", a->order,
      "Where links differ: which rank should have which place in the first layout, for strata launch --order");
  plan->add_flag("--json", a->json, "All layouts as JSON");
  plan->add_option("--set", a->set, "Any setting, e.g. --set train.batch=64; of [parallel] what is set stays")
      ->type_name("KEY=VALUE")
      ->expected(1, -1);
  plan->footer(
      "Records one step with shapes only, and runs the events of each layout's step: what layers compute, what travels "
      "under it, pipelines by their tables. The rows of a step stay the same; train.accumulate, recomputing and "
      "micro-batches are chosen. What training refuses is left out, with its reason.");
  plan->callback([&body, a] { body = [a] { return run(*a); }; });
}

}  // namespace strata::cli
