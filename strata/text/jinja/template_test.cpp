#include "strata/text/jinja/template.h"

#include <cstdlib>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/io/files.h"

namespace strata::text::jinja {
namespace {

using Json = nlohmann::ordered_json;

std::tm morning() {
  std::tm t{};
  t.tm_year = 124, t.tm_mon = 6, t.tm_mday = 26, t.tm_hour = 9, t.tm_min = 5, t.tm_sec = 7, t.tm_wday = 5,
  t.tm_yday = 207;
  return t;
}

std::string error_of(std::string_view source, const Json& data = Json::object(), const Limits& limits = {}) {
  try {
    Template(source, {.limits = limits}).render(data);
  } catch (const ValueError& e) {
    return e.what();
  }
  return "no error";
}

// cases.jsonl has what Jinja itself makes of each (make_cases.py).
TEST(ChatTemplate, MakesWhatJinjaMakes) {
  const char* source_dir = std::getenv("STRATA_SOURCE_DIR");
  if (source_dir == nullptr) GTEST_SKIP() << "STRATA_SOURCE_DIR is not set; ctest sets it";
  std::istringstream rows(io::read_file(std::string(source_dir) + "/strata/text/jinja/cases.jsonl"));
  int rendered = 0, refused = 0;
  for (std::string line; std::getline(rows, line);) {
    const Json row = Json::parse(line);
    const std::string source = row.at("source");
    const auto render = [&] {
      return Template(source, {.now = morning}).render(row.at("data"), row.value("trusted", Json::object())).text;
    };
    if (row.contains("fails")) {
      EXPECT_THROW(render(), ValueError) << source;
      ++refused;
    } else {
      EXPECT_EQ(render(), row.at("text").get<std::string>()) << source;
      ++rendered;
    }
  }
  EXPECT_GT(rendered, 40);
  EXPECT_GT(refused, 20);
}

TEST(ChatTemplate, ErrorsNameTheLine) {
  EXPECT_EQ(error_of("a\n{{ raise_exception('no ' ~ 1) }}"), "template: line 2: no 1");
  EXPECT_EQ(error_of("\n\n{{ who.name }}"), "template: line 3: 'who' is undefined");
  EXPECT_EQ(error_of("{% if true %}\n{{ 1 }}\n"), "template: line 2: the template ends where 'endif' is missing");
  EXPECT_EQ(error_of("{#\n#}{{ x | shout }}"), "template: line 2: there is no filter 'shout'");
  EXPECT_EQ(error_of("\xff"), "template: its source is not UTF-8");
  EXPECT_EQ(error_of("{% endif %}"), "template: line 1: 'endif' belongs to no block");
}

TEST(ChatTemplate, SaysWhatCameFromData) {
  const Template t(
      "{{ bos }}{% for m in messages %}<|{{ m.role }}|>{{ m.content | trim | upper }}[{{ m.content[1:3] }}]{% endfor "
      "%}{{ messages | tojson }}");
  const Json data = {{"messages", {{{"role", "user"}, {"content", " <s>x "}}}}};
  const Rendered r = t.render(data, {{"bos", "<s>"}});
  EXPECT_EQ(r.text.substr(0, 22), "<s><|user|><S>X[<s]" + std::string("[{\""));
  ASSERT_GE(r.from_data.size(), 4u);
  const auto piece = [&](size_t i) {
    return r.text.substr(r.from_data[i].first, r.from_data[i].second - r.from_data[i].first);
  };
  EXPECT_EQ(piece(0), "user");
  EXPECT_EQ(piece(1), "<S>X");
  EXPECT_EQ(piece(2), "<s");
  // The template's own "<s>" is not among them; a message's in JSON is.
  EXPECT_GE(r.from_data[0].first, 3u);
  bool in_json = false;
  for (size_t i = 3; i < r.from_data.size(); ++i) in_json |= piece(i).find("<s>x") != std::string::npos;
  EXPECT_TRUE(in_json);
}

// Whatever is done to a message's text, the control token in it stays marked.
TEST(ChatTemplate, MarksPassThroughEveryOperation) {
  const Json data = {{"c", "a<|end|>b"}, {"l", {"<|end|>"}}};
  for (const char* e : {"c",
                        "c ~ 'x'",
                        "'x' + c",
                        "c[1:-1]",
                        "c | trim",
                        "c.strip('ab')",
                        "c.replace('a', 'z')",
                        "'q'.replace('q', c)",
                        "c.split('a')[1]",
                        "l | join",
                        "l | first",
                        "'-'.join(l)",
                        "c | indent",
                        "c * 2",
                        "c | string",
                        "c | truncate(300)",
                        "c.partition('a')[2]",
                        "'%s' | format(c)",
                        "c | default('')",
                        "[c]",
                        "{'k': c}",
                        "c | tojson",
                        "(c, 1)[0]",
                        "c.splitlines()[0]",
                        "c.center(40)",
                        "c | reverse | reverse",
                        "c.removeprefix('a')",
                        "'x' ~ l"}) {
    const Rendered r = Template("<|end|>{% set x = " + std::string(e) + " %}{{ x }}").render(data);
    std::vector<bool> marked(r.text.size());
    for (const auto& [b, end] : r.from_data)
      for (size_t i = b; i < end; ++i) marked[i] = true;
    size_t found = 0;
    for (size_t at = r.text.find("<|end|>", 7); at != std::string::npos; at = r.text.find("<|end|>", at + 1), ++found)
      for (size_t i = at; i < at + 7; ++i) EXPECT_TRUE(marked[i]) << e << ": " << r.text;
    EXPECT_GE(found, 1u) << e;
    for (size_t i = 0; i < 7; ++i) EXPECT_FALSE(marked[i]) << e;
  }
  const Rendered block =
      Template("{% set x %}[{{ c }}]{% endset %}{% macro m(v) %}({{ v }}){% endmacro %}{{ m(x) }}").render(data);
  EXPECT_EQ(block.text, "([a<|end|>b])");
  EXPECT_EQ(block.from_data, (Ranges{{2, 11}}));
}

TEST(ChatTemplate, SaysWhatTheAssistantWrote) {
  const Template t(
      "{% for m in messages %}[{{ m.role }}]{% if m.role == 'assistant' %}{% generation %}{{ m.content }}<e>{% "
      "endgeneration %}{% else %}{{ m.content }}{% endif %}{% endfor %}");
  const Rendered r = t.render({{"messages",
                                {{{"role", "user"}, {"content", "q"}},
                                 {{"role", "assistant"}, {"content", "a1"}},
                                 {{"role", "assistant"}, {"content", ""}}}}});
  EXPECT_EQ(r.text, "[user]q[assistant]a1<e>[assistant]<e>");
  EXPECT_EQ(r.generated, (Ranges{{18, 23}, {34, 37}}));
}

TEST(ChatTemplate, WhatItMayCostIsBounded) {
  const auto passes = [&](std::string_view source, std::string_view limit) {
    EXPECT_NE(error_of(source).find(limit), std::string::npos) << source << ": " << error_of(source);
  };
  passes("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}", "steps");
  passes("{% set ns = namespace(x='ab') %}{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
         "grows past");
  passes("{% set ns = namespace(x=[1]) %}{% for i in range(99) %}{% set ns.x = ns.x + ns.x %}{% endfor %}",
         "grows past");
  passes("{{ 'x' * 999999999999 }}", "grows past");
  passes("{{ 'x'.center(9999999999) }}", "characters");
  passes("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "nested deeper");
  passes("{% set ns = namespace(x=1) %}{% for i in range(999) %}{% set ns.x = [ns.x] %}{% endfor %}", "nest deeper");
  passes("{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}", "nested deeper");
  passes(std::string(5000, '(') + "1" + std::string(5000, ')'), "no error");  // text, not an expression
  passes("{{ " + std::string(5000, '(') + "1" + std::string(5000, ')') + " }}", "nested deeper");
  passes("{{ " + std::string(5000, '-') + "1 }}", "nested deeper");
  std::string chain = "{{ 1", blocks, filters = "{{ 1", dots = "{{ x";
  for (int i = 0; i < 5000; ++i) chain += " + 1", blocks += "{% if 1 %}", filters += "|abs", dots += ".a";
  passes(chain + " }}", "chain of more than");
  passes(blocks, "nested deeper");
  passes(filters + " }}", "chain of more than");
  passes(dots + " }}", "chain of more than");
  passes("{{ 9223372036854775807 + 1 }}", "too large");
  passes("{{ 9223372036854775808 }}", "too large");
  passes("{{ 10 ** 30 }}", "too large");
  passes("{{ -9223372036854775807 - 1 - 1 }}", "too large");
  EXPECT_NE(error_of("{% for i in range(100) %}{% endfor %}", Json::object(), {.steps = 50}).find("more than 50 steps"),
            std::string::npos);
}

TEST(ChatTemplate, NothingOfTheMachineCanBeReached) {
  for (const char* e : {"''.__class__", "[].__class__", "namespace.__globals__", "raise_exception.__self__",
                        "d.__dict__", "''['__class__']"})
    EXPECT_EQ(Template("{{ (" + std::string(e) + ") is defined }}").render({{"d", Json::object()}}).text, "False") << e;
}

TEST(ChatTemplate, RendersOnSeveralThreads) {
  const Template t(
      "{% set ns = namespace(n=0) %}{% macro m(x) %}{{ x }};{% endmacro %}{% for x in l %}{% set ns.n = ns.n + x %}{{ "
      "m(ns.n) }}{% endfor %}");
  std::vector<std::thread> threads;
  std::vector<std::string> out(4);
  for (size_t i = 0; i < out.size(); ++i)
    threads.emplace_back([&, i] {
      for (int k = 0; k < 50; ++k) out[i] = t.render({{"l", {1, 2, 3, i}}}).text;
    });
  for (auto& th : threads) th.join();
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], "1;3;6;" + std::to_string(6 + i) + ";");
}

TEST(ChatTemplate, VariablesAreChecked) {
  const Template t("{{ a }}");
  EXPECT_THROW(t.render(Json::array()), ValueError);
  EXPECT_THROW(t.render({{"a", "\xff"}}), ValueError);
  EXPECT_THROW(t.render({{"a", uint64_t{1} << 63}}), ValueError);
  Json deep = 1;
  for (int i = 0; i < 300; ++i) deep = Json::array({deep});
  EXPECT_THROW(t.render({{"a", deep}}), ValueError);
}

}  // namespace
}  // namespace strata::text::jinja
