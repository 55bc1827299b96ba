"""Neural style transfer: the image is the parameter, a frozen network, Gram matrices, L-BFGS with a closure."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(image=32, width=8),
    "cpu": dict(image=96, width=16),
    "card": dict(image=512, width=64),
}
TOLERANCE = 2e-3  # L-BFGS divides by differences of gradients, which keep few digits


class Normalization(nn.Module):
    def __init__(self, mean, std):
        super().__init__()
        self.register_buffer("mean", torch.tensor(mean).view(-1, 1, 1))
        self.register_buffer("std", torch.tensor(std).view(-1, 1, 1))

    def forward(self, img):
        return (img - self.mean) / self.std


def vgg(width):
    layers, channels = [], 3
    for v in (1, 1, "M", 2, 2, "M", 4, 4):
        if v == "M":
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
        else:
            layers += [nn.Conv2d(channels, v * width, kernel_size=3, padding=1), nn.ReLU(inplace=False)]
            channels = v * width
    return nn.Sequential(Normalization([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]), *layers)


def gram_matrix(x):
    a, b, c, d = x.size()
    features = x.view(a * b, c * d)
    return torch.mm(features, features.t()).div(a * b * c * d)


def features_of(cnn, x, wanted=(2, 4, 7, 9, 12)):
    found = []
    for i, layer in enumerate(cnn):
        x = layer(x)
        if i in wanted:
            found.append(x)
    return found


def total_variation(img):
    return (img[:, :, 1:] - img[:, :, :-1]).abs().mean() + (img[..., 1:] - img[..., :-1]).abs().mean()


def train(cfg, rng, device, prepare):
    content, style = (torch.from_numpy(rng.random((1, 3, cfg.image, cfg.image))).float().to(device) for _ in range(2))
    content = F.avg_pool2d(content, 5, stride=1, padding=2)
    cnn = prepare(vgg(cfg.width).to(device).eval())
    cnn.requires_grad_(False)
    with torch.no_grad():
        content_target = features_of(cnn, content)[3].detach()
        style_targets = [gram_matrix(f).detach() for f in features_of(cnn, style)]
    input_img = content.clone().requires_grad_(True)
    optimizer = torch.optim.LBFGS([input_img], max_iter=4)
    while True:
        def closure():
            with torch.no_grad():
                input_img.clamp_(0, 1)
            optimizer.zero_grad()
            found = features_of(cnn, input_img)
            style_score = sum(F.mse_loss(gram_matrix(f), target) for f, target in zip(found, style_targets))
            loss = 1e6 * style_score + F.mse_loss(found[3], content_target) + 1e-2 * total_variation(input_img)
            loss.backward()
            return loss

        loss = optimizer.step(closure)
        yield loss
