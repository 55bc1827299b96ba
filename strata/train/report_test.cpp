#include "strata/train/report.h"

#include <cmath>
#include <cstdlib>
#include <random>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "strata/io/files.h"

namespace strata {
namespace {

ReportInput run_of(int64_t steps) {
  ReportInput in;
  in.title = "runs/shakespeare";
  in.status = "finished";
  in.config.steps = steps;
  in.config.optim.lr = 3e-3;
  in.machine = machine_info();
  in.parameters = 3'300'000;
  in.notes = {{"Data", "tinyshakespeare.txt, 1.12 MB"}};
  std::mt19937 rng(1);
  std::normal_distribution<double> noise;
  double elapsed = 0;
  for (int64_t i = 1; i <= steps; ++i) {
    const double t = static_cast<double>(i) / static_cast<double>(steps);
    StepMetrics m;
    m.step = i;
    m.tokens = 2048 * i;
    m.loss = 1.25 + 4.3 * std::exp(-t * 22) + 0.75 * std::exp(-t * 3) + 0.045 * noise(rng);
    m.lr = 3e-3 * (t < 0.05 ? t / 0.05 : 0.1 + 0.45 * (1 + std::cos(3.14159 * (t - 0.05) / 0.95)));
    m.grad_norm = (0.5 + 2.5 * std::exp(-t * 30)) * std::exp(0.22 * noise(rng)) + (rng() % 300 == 0 ? 6 : 0);
    m.tokens_per_s = 15400 + 260 * noise(rng);
    elapsed += 2048 / m.tokens_per_s;
    m.elapsed_s = elapsed;
    if (i % std::max<int64_t>(steps / 12, 1) == 0)
      m.valid_loss = 1.36 + 0.8 * std::exp(-t * 3) + 3.0 * std::exp(-t * 22);
    in.metrics.push_back(m);
  }
  return in;
}

nlohmann::json data_of(const std::string& html) {
  const std::string open = "<script id=\"data\" type=\"application/json\">";
  const size_t begin = html.find(open) + open.size();
  return nlohmann::json::parse(html.substr(begin, html.find("</script>", begin) - begin));
}

// A step of two blocks; `part` is that of the limit in the time.
lab::StepCosts costs_of_a_step() {
  lab::StepCosts costs;
  const auto add = [&](const char* op, const std::string& module, Phase phase, int64_t calls, double gflop, double mb,
                       double ms, double part) {
    costs.add({op, module, phase, {{}, calls, gflop * 1e9, mb * 1e6, ms * 1e-3, part * ms * 1e-3}});
  };
  for (int block = 0; block < 2; ++block) {
    const std::string at = fmt::format("blocks.{}.", block);
    add("linear", at + "attention.qkv", Phase::forward, 1, 0.8, 6.3, 9.5, 0.72);
    add("attention", at + "attention", Phase::forward, 1, 0.27, 3.1, 8.1, 0.31);
    add("gelu_mlp", at + "mlp", Phase::forward, 1, 2.1, 12.4, 24, 0.74);
    add("layer_norm", at + "norm", Phase::forward, 2, 0.01, 6.3, 1.1, 0.55);
    add("matmul", at + "mlp", Phase::backward, 4, 4.2, 24.6, 46, 0.78);
    add("matmul", at + "attention.qkv", Phase::backward, 2, 1.6, 9, 18.2, 0.75);
    add("attention_backward", at + "attention", Phase::backward, 1, 0.7, 7.4, 19, 0.36);
    add("add", fmt::format("blocks.{}", block), Phase::forward, 2, 0.001, 4.7, 0.9, 0.61);
  }
  add("linear_cross_entropy", "", Phase::forward, 1, 1.1, 8.2, 17, 0.66);
  add("embedding", "embedding", Phase::forward, 1, 0, 1.6, 0.2, 0.9);
  add("optimizer_update", "", Phase::update, 1, 0.05, 66, 7.9, 0.86);
  add("<op>", "", Phase::update, 1, 0, 0, 0.002, 0);
  costs.outside = 0.0031;
  return costs;
}

TEST(Report, ShowsANetworkOfOnesOwn) {
  ReportInput in = run_of(20);
  in.network = "Sequential(\n  (0): Linear<in>\n)";
  in.settings = {{"optimizer", "Muon"}};
  in.unit = "samples";
  const std::string html = report_html(in);
  for (const char* text : {"(0): Linear&lt;in&gt;", "Muon", "Samples", "samples/s, median", "20 of 20 steps"})
    EXPECT_NE(html.find(text), std::string::npos) << text;
  for (const char* text : {"weight_decay", "tied_embeddings", "tokens/s", "{{"})
    EXPECT_EQ(html.find(text), std::string::npos) << text;
}

TEST(Report, ShowsTheRun) {
  ReportInput in = run_of(900);
  in.sample_prompt = "ROMEO:";
  in.sample = "\nBut soft, what light through yonder window breaks?\nIt is the east, and Juliet is the sun.\n";
  const std::string html = report_html(in);
  for (const char* text : {"runs/shakespeare", "finished", "3.30M", "1.84M", "But soft", "tinyshakespeare.txt",
                           "weight_decay", "Best validation loss", "Processor"})
    EXPECT_NE(html.find(text), std::string::npos) << text;
  EXPECT_EQ(html.find("{{"), std::string::npos);
  const auto data = data_of(html);
  EXPECT_EQ(data["loss"]["x"].size(), 900u);
  EXPECT_EQ(data["loss"]["x"].back(), 900);
  EXPECT_EQ(data["valid"]["x"].size(), 12u);
  EXPECT_NEAR(data["loss"]["y"][0].get<double>(), in.metrics[0].loss, 1e-4);
  // A page to look at: STRATA_REPORT_OUT=/tmp/report.html test_train --gtest_filter=Report.ShowsTheRun
  in.costs = costs_of_a_step();
  if (const char* path = std::getenv("STRATA_REPORT_OUT")) write_report(path, in);
}

TEST(Report, ShowsTheSettingsThatTheOptimizerReads) {
  ReportInput in;
  EXPECT_NE(report_html(in).find("<th>beta2</th>"), std::string::npos);
  EXPECT_EQ(report_html(in).find("<th>rho</th>"), std::string::npos);
  in.config.optim.optimizer = "adadelta";
  EXPECT_EQ(report_html(in).find("<th>beta2</th>"), std::string::npos);
  EXPECT_NE(report_html(in).find("<th>rho</th>"), std::string::npos);
}

TEST(Report, ShowsWhereTheTimeGoes) {
  ReportInput in = run_of(900);
  EXPECT_EQ(report_html(in).find("id=\"costs\""), std::string::npos);
  EXPECT_FALSE(data_of(report_html(in)).contains("costs"));
  in.costs = costs_of_a_step();
  const std::string html = report_html(in);
  EXPECT_NE(html.find("id=\"costs\""), std::string::npos);
  EXPECT_EQ(html.find("<op>"), std::string::npos);
  const auto costs = data_of(html)["costs"];
  EXPECT_NEAR(costs["outside"].get<double>(), 0.0031, 1e-9);
  EXPECT_EQ(costs["clock"], "by the host");
  // [op, module, phase, calls, FLOP, bytes, seconds, least]; both blocks are one.
  double seconds = 0;
  bool found = false;
  for (const auto& r : costs["rows"]) {
    ASSERT_EQ(r.size(), 8u);
    seconds += r[6].get<double>();
    if (r[0] != "gelu_mlp") continue;
    found = true;
    EXPECT_EQ(r[1], "blocks.*.mlp");
    EXPECT_EQ(r[2], "forward");
    EXPECT_EQ(r[3], 2);
    EXPECT_NEAR(r[4].get<double>(), 4.2e9, 1);
    EXPECT_NEAR(r[7].get<double>(), 0.74 * 0.048, 1e-6);
  }
  EXPECT_TRUE(found);
  EXPECT_NEAR(seconds, in.costs.all().seconds, 1e-3 * seconds);
}

TEST(Report, NeedsNothingFromElsewhere) {
  const std::string html = report_html(run_of(10));
  for (const char* text : {"src=", "href=", "@import", "url(http", "fetch("})
    EXPECT_EQ(html.find(text), std::string::npos) << text;
  // The only address is the name of SVG's namespace.
  size_t addresses = 0;
  for (size_t at = 0; (at = html.find("://", at)) != std::string::npos; ++at) ++addresses;
  EXPECT_EQ(addresses, 1u);
}

TEST(Report, ForeignTextStaysText) {
  ReportInput in = run_of(3);
  in.title = "<script>alert(1)</script>";
  in.sample_prompt = "{{data}}";
  in.sample = std::string("</pre><img onerror=x>&amp;\xff\0\x1b", 29);
  in.config.data.path = "\"><b>";
  const std::string html = report_html(in);
  EXPECT_EQ(html.find("<script>alert"), std::string::npos);
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_EQ(html.find("><b>\"<"), std::string::npos);
  EXPECT_NE(html.find("&lt;img onerror=x&gt;&amp;amp;\xef\xbf\xbd&#x2400;&#x241b;"), std::string::npos);
  EXPECT_NE(html.find("<b>{{data}}</b>"), std::string::npos) << "a value was searched for names";
}

TEST(Report, LongRunsGiveABoundedPage) {
  const std::string html = report_html(run_of(300'000));
  EXPECT_LT(html.size(), 300'000u);
  const auto loss = data_of(html)["loss"];
  EXPECT_EQ(loss["x"].size(), 2000u);
  EXPECT_EQ(loss["x"].back(), 300'000);
}

TEST(Report, SeveralRunsOnOnePage) {
  ReportInput a = run_of(900), b = run_of(300);
  a.title = "runs/a";
  b.title = "runs/\"b\"</script><b>";
  b.config.optim.lr = 1e-4;
  b.config.optim.optimizer = "lion";
  for (StepMetrics& m : b.metrics) m.valid_loss += 1;
  const std::string html = comparison_html({a, b});
  EXPECT_EQ(html.find("{{"), std::string::npos);
  EXPECT_EQ(html.find("</script><b>"), std::string::npos);
  const auto data = data_of(html);
  ASSERT_EQ(data["runs"].size(), 2u);
  EXPECT_EQ(data["runs"][0]["name"], "runs/a");
  EXPECT_EQ(data["runs"][1]["name"], b.title);
  const auto& loss = data["runs"][1]["loss"];
  EXPECT_EQ(loss["x"].size(), 300u);
  EXPECT_EQ(loss["n"].back(), 300 * 2048);
  EXPECT_NEAR(loss["t"].back().get<double>(), b.metrics.back().elapsed_s, 1e-3);
  // The table of results, the better validation loss in bold, and of the settings only those that differ and are read.
  for (const char* text : {"runs/a", "runs/&quot;b&quot;", "<td>900</td>", "<td>300</td>", "3.30M", "train.lr",
                           "train.optimizer", "<td>&quot;lion&quot;</td>", "train.steps"})
    EXPECT_NE(html.find(text), std::string::npos) << text;
  EXPECT_NE(html.find(fmt::format("<b>{:.4f}</b>", a.metrics.back().valid_loss)), std::string::npos);
  for (const char* text : {"train.batch", "model.layers", "train.rho"})
    EXPECT_EQ(html.find(text), std::string::npos) << text;
  if (const char* path = std::getenv("STRATA_COMPARISON_OUT")) io::write_file(path, html);

  const std::string empty = comparison_html({ReportInput{}, ReportInput{}});
  EXPECT_NE(empty.find("<p>None.</p>"), std::string::npos);
  EXPECT_EQ(data_of(empty)["runs"][1]["loss"]["x"].size(), 0u);
}

TEST(Report, EmptyAndBrokenRuns) {
  ReportInput in;
  EXPECT_EQ(data_of(report_html(in))["loss"]["x"].size(), 0u);
  in.metrics = {{.step = 1, .loss = NAN, .grad_norm = INFINITY}};
  const auto data = data_of(report_html(in));
  EXPECT_EQ(data["loss"]["x"].size(), 0u);
  EXPECT_EQ(data["grad"]["x"].size(), 0u);
}

}  // namespace
}  // namespace strata
