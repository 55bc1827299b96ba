#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "apps/strata/command.h"
#include "apps/strata/op_names.h"
#include "strata/core/describe.h"
#include "strata/dist/exchange_page.h"
#include "strata/distributions/record.h"
#include "strata/io/files.h"
#include "strata/lab/reference.h"
#include "strata/optim/lr_schedule.h"
#include "strata/optim/record.h"

namespace strata::cli {

void add_ops(CLI::App& app, Body& body) {
  struct Options {
    std::vector<std::string> names;
    std::string markdown;
    bool json = false;
  };
  CLI::App* ops = app.add_subcommand("ops", "The operations: a list, or all about some of them");
  auto o = std::make_shared<Options>();
  ops->add_option("OP", o->names, "Names of ops or families: softmax, elementwise; none lists all");
  ops->add_option("--markdown", o->markdown, "Write the reference pages into this directory")->type_name("DIR");
  ops->add_flag("--json", o->json, "Describe them as JSON, for programs");
  ops->footer("Everything printed comes from the op records, the same that checks, times and runs the op.");
  ops->callback([&body, o] {
    body = [o] {
      const std::vector<const OpBase*> found = find_ops(o->names);
      if (o->json) {
        std::fputs(describe(found).c_str(), stdout);
        return kOk;
      }
      if (!o->markdown.empty()) {
        io::make_directories(o->markdown);
        const auto files = lab::reference(found);
        for (const auto& [name, text] : files) io::write_file(o->markdown + "/" + name, text);
        io::write_file(o->markdown + "/optimizers.md", optim::optimizers_markdown());
        io::write_file(o->markdown + "/schedules.md", optim::schedules_markdown());
        io::write_file(o->markdown + "/exchanges.md", distributed::exchanges_markdown());
        io::write_file(o->markdown + "/families.md", distributions::distributions_markdown());
        std::fputs(fmt::format("{} ops, {} files in {}\n", found.size(), files.size(), o->markdown).c_str(), stdout);
        return kOk;
      }
      // A family by its name is listed; ops are told in full.
      bool families = true;
      for (const std::string& name : o->names) families = families && OpBase::find(name) == nullptr;
      if (families) {
        std::fputs(lab::list(found).c_str(), stdout);
        return kOk;
      }
      bool first = true;
      for (const OpBase* op : found) {
        if (!first) std::fputs("\n----\n\n", stdout);
        std::fputs(lab::page(*op).c_str(), stdout);
        first = false;
      }
      return kOk;
    };
  });
}

}  // namespace strata::cli
