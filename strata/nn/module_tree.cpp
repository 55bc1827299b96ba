#include "strata/nn/module_tree.h"

#include <algorithm>
#include <map>
#include <set>

#include "strata/core/error.h"

namespace strata::nn {
namespace {

using Kinds = std::vector<std::pair<std::string, std::string>>;

// "a.b" and "c" of "a.b.c".
std::pair<std::string, std::string> split(const std::string& path) {
  const size_t dot = path.rfind('.');
  return dot == std::string::npos ? std::pair(std::string(), path)
                                  : std::pair(path.substr(0, dot), path.substr(dot + 1));
}

// Every module that a name goes through, in the order in which they are first named.
Kinds kinds_of(const NamedTensors& parameters) {
  Kinds all{{"", "Module"}};
  std::map<std::string, std::set<std::string>> below;
  std::set<std::string> seen{""};
  for (const auto& [name, t] : parameters) {
    std::vector<std::string> path;
    for (std::string at = name; !at.empty();) {
      auto [parent, last] = split(at);
      check(!last.empty(), "module_tree", "'", name, "' has an empty part");
      below[parent].insert(last);
      if (!seen.contains(parent)) path.push_back(parent);
      at = parent;
    }
    check(!name.empty() && name.front() != '.', "module_tree", "'", name, "' has an empty part");
    for (size_t i = path.size(); i-- > 0;) {
      seen.insert(path[i]);
      all.emplace_back(path[i], "Module");
    }
  }
  for (auto& [path, kind] : all)
    if (!path.empty() && std::ranges::all_of(below[path], [](const std::string& s) {
          return std::ranges::all_of(s, [](char c) { return c >= '0' && c <= '9'; });
        }))
      kind = "ModuleList";
  return all;
}

}  // namespace

Module module_tree(const NamedTensors& parameters, const Kinds& given) {
  const Kinds kinds = given.empty() ? kinds_of(parameters) : given;
  std::map<std::string, Module> made;
  const auto at = [&](const std::string& path) -> Module& {
    const auto found = made.find(path);
    check(found != made.end(), "module_tree", "there is no module '", path, "'");
    return found->second;
  };
  for (const auto& [path, kind] : kinds) {
    const Module& m = made.try_emplace(path, kind).first->second;
    if (path.empty()) continue;
    const auto [parent, name] = split(path);
    at(parent).register_module(name, m);
  }
  for (const auto& [path, t] : parameters) {
    const auto [parent, name] = split(path);
    check(!made.contains(path), "module_tree", "'", path, "' is a parameter and a module");
    if (!is_floating(t.dtype()) || !t.is_leaf()) continue;
    t.storage()->retag(memory::Tag::parameter);  // a module shares it then, and copies nothing
    const bool trained = t.requires_grad();
    Tensor kept = at(parent).register_parameter(name, t);
    kept.set_requires_grad(trained);
  }
  return at("");
}

}  // namespace strata::nn
