// Models of checkpoints.

#include <atomic>

#include "strata/c/handles.h"
#include "strata/train/generate.h"
#include "strata/train/run.h"

using namespace strata;
using namespace strata::c;

struct strata_module {
  std::atomic<uint32_t> refs{1};
  TrainedModel trained;
  nn::NamedTensors parameters;
};

strata_status strata_module_load(const char* path, strata_device device, strata_module** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_module_load";
    need(path, kName, "the path");
    need(out, kName, "out");
    const Device d = device_from(device, kName);
    check<DeviceError>(!d.is_meta(), kName, "a model on the meta device would have no weights");
    auto module = std::make_unique<strata_module>();
    module->trained = load_trained_model(path);
    module->trained.model->to(d);
    module->trained.model->eval();
    module->parameters = module->trained.model->named_parameters();
    *out = module.release();
  });
}

strata_module* strata_module_retain(strata_module* module) {
  return retain(module);
}

void strata_module_release(strata_module* module) {
  release(module);
}

strata_status strata_module_forward(strata_module* module, const strata_tensor* input, strata_tensor** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_module_forward";
    need(module, kName, "the module");
    need(out, kName, "out");
    *out = give(module->trained.model->forward(need_tensor(input, kName)));
  });
}

strata_status strata_module_set_training(strata_module* module, bool training) {
  return guarded([&] {
    need(module, "strata_module_set_training", "the module");
    module->trained.model->train(training);
  });
}

size_t strata_module_num_parameters(const strata_module* module) {
  return module ? module->parameters.size() : 0;
}

strata_status strata_module_parameter(const strata_module* module, size_t index, const char** name,
                                      strata_tensor** out) {
  return guarded([&] {
    constexpr const char* kName = "strata_module_parameter";
    need(module, kName, "the module");
    check<IndexError>(index < module->parameters.size(), kName, "there are ", module->parameters.size(),
                      " parameters, no number ", index);
    const auto& [own_name, tensor] = module->parameters[index];
    if (name) *name = own_name.c_str();
    if (out) *out = give(tensor);
  });
}

strata_status strata_module_generate(strata_module* module, const char* prompt, int32_t max_tokens, double temperature,
                                     int32_t top_k, uint64_t seed, strata_value* out) {
  return guarded([&] {
    constexpr const char* kName = "strata_module_generate";
    need(module, kName, "the module");
    need(prompt, kName, "the prompt");
    need(out, kName, "out");
    check(max_tokens >= 0, kName, "max_tokens must not be negative, got ", max_tokens);
    SampleOptions options;
    options.temperature = temperature;
    options.top_k = top_k;
    options.seed = seed;
    TextWriter writer(module->trained, prompt, options);
    std::string text;
    for (int32_t i = 0; i < max_tokens; ++i) text += writer.next();
    *out = give(Value(std::move(text)));
  });
}
