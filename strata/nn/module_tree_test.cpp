// Trees of modules by parameters' names.
#include "strata/nn/module_tree.h"

#include <gtest/gtest.h>

#include "strata/core/error.h"
#include "strata/ops/factory/factory.h"

namespace strata::nn {
namespace {

Tensor leaf() {
  return ones({2}).set_requires_grad();
}

TEST(ModuleTree, IsWhatTheNamesSay) {
  const Tensor a = leaf(), b = leaf(), frozen = ones({3});
  const Module net = module_tree({{"blocks.0.attn.weight", a}, {"blocks.1.bias", b}, {"scale", frozen}});
  const auto all = net.named_parameters();
  ASSERT_EQ(all.size(), 3u);
  for (const auto& [name, t] : all) {
    const Tensor& want = name == "scale" ? frozen : name == "blocks.1.bias" ? b : a;
    EXPECT_EQ(t.storage(), want.storage()) << name;
    EXPECT_EQ(t.requires_grad(), name != "scale");
  }
  std::map<std::string, std::string> kinds;
  for (const auto& [name, m] : net.named_modules()) kinds.emplace(name, std::string(m.kind()));
  EXPECT_EQ(kinds, (std::map<std::string, std::string>{{"", "Module"},
                                                       {"blocks", "ModuleList"},
                                                       {"blocks.0", "Module"},
                                                       {"blocks.0.attn", "Module"},
                                                       {"blocks.1", "Module"}}));
  const Module given =
      module_tree({{"blocks.0.weight", a}}, {{"", "Net"}, {"blocks", "Sequential"}, {"blocks.0", "Linear"}});
  EXPECT_EQ(given.kind(), "Net");
  EXPECT_TRUE(module_tree({}).named_parameters().empty());
}

TEST(ModuleTree, RefusesNamesThatMakeNone) {
  EXPECT_THROW(module_tree({{"", leaf()}}), ValueError);
  EXPECT_THROW(module_tree({{"a..b", leaf()}}), ValueError);
  EXPECT_THROW(module_tree({{".b", leaf()}}), ValueError);
  EXPECT_THROW(module_tree({{"a.", leaf()}}), ValueError);
  EXPECT_THROW(module_tree({{"a", leaf()}, {"a.b", leaf()}}), ValueError);
  EXPECT_THROW(module_tree({{"a", leaf()}, {"a", leaf()}}), ValueError);
  EXPECT_THROW(module_tree({{"a.b", leaf()}}, {{"", "Net"}}), ValueError);
}

}  // namespace
}  // namespace strata::nn
