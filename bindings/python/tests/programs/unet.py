"""A UNet with the Dice loss, both ways up."""

import strata.nn.functional as F

import strata as st
import strata.nn as nn


class DoubleConv(nn.Module):
    def __init__(self, cin, cout, mid=None):
        super().__init__()
        mid = mid or cout
        self.double_conv = nn.Sequential(
            nn.Conv2d(cin, mid, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(mid),
            nn.ReLU(inplace=True),
            nn.Conv2d(mid, cout, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(cout),
            nn.ReLU(inplace=True),
        )

    def forward(self, x):
        return self.double_conv(x)


class Up(nn.Module):
    def __init__(self, cin, cout, bilinear=True):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(cin, cout, cin // 2)
        else:
            self.up = nn.ConvTranspose2d(cin, cin // 2, kernel_size=2, stride=2)
            self.conv = DoubleConv(cin, cout)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        dy, dx = x2.size()[2] - x1.size()[2], x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(st.cat([x2, x1], dim=1))


class UNet(nn.Module):
    def __init__(self, bilinear):
        super().__init__()
        f = 2 if bilinear else 1
        self.inc = DoubleConv(3, 8)
        self.down = nn.Sequential(nn.MaxPool2d(2), DoubleConv(8, 16 // f))
        self.up = Up(16, 8, bilinear)
        self.outc = nn.Conv2d(8, 3, kernel_size=1)

    def forward(self, x):
        a = self.inc(x)
        b = self.down(a)
        return self.outc(self.up(b, a))


def dice_coeff(input, target, reduce_batch_first=False, epsilon=1e-6):
    sum_dim = (-1, -2) if input.dim() == 2 or not reduce_batch_first else (-1, -2, -3)
    inter = 2 * (input * target).sum(dim=sum_dim)
    sets_sum = input.sum(dim=sum_dim) + target.sum(dim=sum_dim)
    sets_sum = st.where(sets_sum == 0, inter, sets_sum)
    dice = (inter + epsilon) / (sets_sum + epsilon)
    return dice.mean()


for bil in (True, False):
    net = fill(UNet(bil), 3)
    opt = st.optim.RMSprop(net.parameters(), lr=1e-3, weight_decay=1e-8, momentum=0.9, foreach=True)
    sched = st.optim.lr_scheduler.ReduceLROnPlateau(opt, "max", patience=2)
    scaler = st.amp.GradScaler("cuda", enabled=False)
    x = st.from_numpy(F32(2, 3, 13, 15))
    mask = st.randint(0, 3, (2, 13, 15))
    mask = (st.arange(2 * 13 * 15).reshape(2, 13, 15) * 7) % 3
    for i in range(2):
        with st.autocast("cpu", enabled=False):
            p = net(x)
            loss = F.cross_entropy(p, mask)
            loss += 1 - dice_coeff(
                F.softmax(p, dim=1).float().flatten(0, 1),
                F.one_hot(mask, 3).permute(0, 3, 1, 2).float().flatten(0, 1),
                True,
            )
        opt.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(opt)
        st.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(opt)
        scaler.update()
        out(f"loss{bil}{i}", loss)
    sched.step(0.5)
    m = F.interpolate(st.sigmoid(p), (20, 20), mode="bilinear")
    out(f"m{bil}", m)
