// strata model: models as files.

#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/checks.h"
#include "apps/strata/model.h"
#include "strata/core/error.h"
#include "strata/models/average.h"
#include "strata/train/fine_tune_inl.h"
#include "strata/train/run.h"

namespace strata::cli {
namespace {

struct MergeArguments {
  std::string base, adapter, out;
};
struct AverageArguments {
  std::vector<std::string> members;
  std::vector<double> weights;
  std::string out, held_out, device = "cpu";
};

int merge(const MergeArguments& a) {
  merge_adapter(a.base, a.adapter, a.out);
  std::fputs(fmt::format("{}\n", a.out).c_str(), stdout);
  return kOk;
}

int average(const AverageArguments& a) {
  if (a.held_out.empty()) {
    average_models(a.members, a.out, a.weights);
    std::fputs(fmt::format("{}: the mean of {}\n", a.out, a.members.size()).c_str(), stdout);
    return kOk;
  }
  if (!a.weights.empty()) throw UsageError("--weights and --held-out do not go together: the latter chooses members");
  const Device device = parse_device(a.device);
  const GreedySoup soup = greedy_average(
      a.members, a.out, [&](const std::string& folder) { return held_out_loss(folder, a.held_out, device); });
  for (const auto& [member, loss] : soup.losses) std::fputs(fmt::format("{:.4f}  {}\n", loss, member).c_str(), stdout);
  std::fputs(fmt::format("{:.4f}  {}: the mean of {}\n", soup.loss, a.out, soup.members.size()).c_str(), stdout);
  return kOk;
}

}  // namespace

void refuse_run(const std::string& path) {
  namespace fs = std::filesystem;
  const auto has = [](const fs::path& folder, const char* name) { return fs::exists(folder / name); };
  fs::path place = path;
  if (place.filename().empty()) place = place.parent_path();  // "runs/a/"
  const bool file = fs::is_regular_file(place);
  const fs::path checkpoint = file ? place.parent_path() : place;
  if (has(checkpoint, "config.json")) return;
  const bool of_checkpoint = has(checkpoint, "state.json");
  if (!of_checkpoint && (file || !has_run(place))) return;
  const fs::path run = of_checkpoint ? fs::absolute(checkpoint).parent_path() : place;
  std::string text = fmt::format("'{}' is {} of a training run of Strata, no model's folder: ", path,
                                 file            ? "a file"
                                 : of_checkpoint ? "a checkpoint"
                                                 : "the folder");
  text += fmt::format("strata generate --checkpoint {} writes with it, strata report {} tells of the run",
                      checkpoint.string(), run.string());
  if (has(run, "adapter"))
    text += fmt::format(", strata model merge BASE {} puts its adapter into the model that it began with",
                        (run / "adapter").string());
  throw IoError("model", text);
}

void add_model(CLI::App& app, Body& body) {
  CLI::App* model =
      app.add_subcommand("model", "Models as files: what they are, other forms, merged adapters, averages");
  model->require_subcommand(1);
  add_model_info(*model, body);
  add_model_convert(*model, body);

  CLI::App* merged = model->add_subcommand("merge", "Merge an adapter folder (PEFT's) into the weights of its base");
  auto m = std::make_shared<MergeArguments>();
  merged->add_option("base", m->base, "Folder of the model that was adapted")->required()->type_name("DIR");
  merged->add_option("adapter", m->adapter, "Folder of the adapter")->required()->type_name("DIR");
  merged->add_option("--out", m->out, "New folder")->required()->type_name("DIR");
  merged->callback([&body, m] { body = [m] { return merge(*m); }; });

  CLI::App* mean = model->add_subcommand(
      "average", "Average models that learned from one beginning (folders, or checkpoints of runs)");
  auto a = std::make_shared<AverageArguments>();
  mean->add_option("members", a->members, "Folders")->required()->type_name("DIR")->expected(1, -1);
  mean->add_option("--out", a->out, "New folder")->required()->type_name("DIR");
  mean->add_option("--weights", a->weights, "How much each counts")->type_name("W")->expected(1, -1);
  mean->add_option(
          "--held-out", a->held_out,
          "A text: members are taken from the best to the worst, those with which the average is no worse on it")
      ->type_name("FILE");
  mean->add_option("--device", a->device, "Where the text is read: cpu, cuda, cuda:1")
      ->type_name("DEVICE")
      ->check(device_name());
  mean->callback([&body, a] { body = [a] { return average(*a); }; });
}

}  // namespace strata::cli
