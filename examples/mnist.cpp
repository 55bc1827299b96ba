// A convolutional network reads handwritten digits. It trains on 9,000 of the 10,000 digits of MNIST's test set and is
// judged on the 1,000 others.  Usage: mnist [FOLDER [DEVICE]], where FOLDER has t10k-images-idx3-ubyte(.gz) and
// t10k-labels-idx1-ubyte(.gz), and DEVICE is cpu (unless given) or cuda. Without FOLDER: $STRATA_DATA_DIR, else
// build/mnist.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <strata/strata.h>

using namespace strata;

struct Net : nn::Module {
  nn::Conv2d conv1 = register_module("conv1", nn::Conv2d(1, 16, 3, {.padding = {1}}));
  nn::Conv2d conv2 = register_module("conv2", nn::Conv2d(16, 32, 3, {.padding = {1}}));
  nn::Dropout dropout = register_module("dropout", nn::Dropout(0.3));
  nn::Linear hidden = register_module("hidden", nn::Linear(32 * 7 * 7, 64));
  nn::Linear out = register_module("out", nn::Linear(64, 10));

  Tensor forward(const Tensor& images) {
    Tensor x = max_pool2d(relu(conv1(images)), {2});
    x = max_pool2d(relu(conv2(x)), {2});
    return out(dropout(relu(hidden(x.flatten(1)))));
  }
};

// A file of the digits; empty where there is none.
std::string find_file(const std::string& folder, const std::string& name) {
  for (const char* prefix : {"", "mnist-"})
    for (const char* suffix : {"", ".gz"})
      if (const std::string path = folder + "/" + prefix + name + suffix; std::filesystem::exists(path)) return path;
  return {};
}

double accuracy(Net& net, const Tensor& images, const Tensor& labels) {
  NoGrad guard;
  net.eval();
  const Tensor right = eq(net.forward(images).argmax(1), labels);
  net.train();
  return right.to(DType::f32).mean().item();
}

int main(int argc, char** argv) {
  const char* data = std::getenv("STRATA_DATA_DIR");
  const char* source = std::getenv("STRATA_SOURCE_DIR");
  const std::string beside = std::string(source ? source : ".") + "/../shared/data";
  const std::string folder = argc > 1                                               ? argv[1]
                             : data                                                 ? data
                             : !find_file(beside, "t10k-images-idx3-ubyte").empty() ? beside
                                                                                    : "build/mnist";
  const std::string image_file = find_file(folder, "t10k-images-idx3-ubyte"),
                    label_file = find_file(folder, "t10k-labels-idx1-ubyte");
  if (image_file.empty() || label_file.empty()) {
    std::printf(
        "skipped: no digits in %s (t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte); `scripts/build example_mnist "
        "digits` "
        "fetches "
        "them into build/mnist\n",
        folder.c_str());
    return argc > 1 ? 1 : 0;
  }
  const Device device = parse_device(argc > 2 ? argv[2] : "cpu");
  const Tensor images = data::read_idx(image_file).to(DType::f32).unsqueeze(1) / 255.0;
  const Tensor labels = data::read_idx(label_file).to(DType::i64);
  const Tensor test_images = images.narrow(0, 9000, 1000).to(device),
               test_labels = labels.narrow(0, 9000, 1000).to(device);
  const auto train =
      std::make_shared<data::TensorDataset>(TensorList{images.narrow(0, 0, 9000), labels.narrow(0, 0, 9000)});

  manual_seed(1);
  Net net;
  net.to(device);
  optim::AdamW optimizer(net.named_parameters(), {2e-3});
  data::DataLoader loader(train, {.batch_size = 64, .shuffle = true, .seed = 1});
  const int epochs = 8;
  const auto schedule = optim::Schedule::cosine(2e-3, epochs * loader.batches_per_epoch(), 20);
  int64_t step = 0;
  double reached = 0;
  for (int epoch = 1; epoch <= epochs; ++epoch) {
    double total = 0;
    while (const auto batch = loader.next()) {
      optimizer.set_lr(schedule(step++));
      optimizer.zero_grad();
      const Tensor loss = cross_entropy(net.forward((*batch)[0].to(device)), (*batch)[1].to(device));
      loss.backward();
      optimizer.step();
      total += loss.item();
    }
    reached = accuracy(net, test_images, test_labels);
    std::printf("epoch %d  loss %.4f  held-out accuracy %.2f %%\n", epoch,
                total / static_cast<double>(loader.batches_per_epoch()), 100 * reached);
    std::fflush(stdout);
  }
  return reached >= 0.97 ? 0 : 1;
}
