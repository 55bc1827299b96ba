"""The training loop of a tutorial, with checkpoints to go on from."""

import os
import random

import strata.nn.functional as F
from strata.optim.lr_scheduler import StepLR
from strata.utils.data import DataLoader, TensorDataset

import strata as st
import strata.nn as nn
import strata.optim as optim


class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 4, 3, 1)
        self.conv2 = nn.Conv2d(4, 8, 3, 1)
        self.dropout1 = nn.Dropout(0.25)
        self.dropout2 = nn.Dropout(0.5)
        self.fc1 = nn.Linear(32, 16)
        self.fc2 = nn.Linear(16, 10)

    def forward(self, x):
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = F.max_pool2d(x, 2)
        x = self.dropout1(x)
        x = st.flatten(x, 1)
        x = F.relu(self.fc1(x))
        x = self.dropout2(x)
        return F.log_softmax(self.fc2(x), dim=1)


def seed_everything(seed):
    random.seed(seed)
    np.random.seed(seed)
    st.manual_seed(seed)
    st.cuda.manual_seed(seed)
    st.cuda.manual_seed_all(seed)
    st.backends.cudnn.deterministic = True
    st.backends.cudnn.benchmark = False


class AverageMeter:
    def __init__(self):
        self.sum = self.n = 0

    def update(self, v, n=1):
        self.sum += v * n
        self.n += n

    @property
    def avg(self):
        return self.sum / self.n


class EarlyStopping:
    def __init__(self, patience=2):
        self.best = None
        self.c = 0
        self.p = patience
        self.stop = False

    def __call__(self, v):
        if self.best is None or v < self.best:
            self.best = v
            self.c = 0
        else:
            self.c += 1
            self.stop = self.c >= self.p


seed_everything(0)
checkpoint = os.path.join(FOLDER, "checkpoint.safetensors")
use_cuda = st.cuda.is_available() and False
device = st.device("cuda" if use_cuda else "cpu")
kw = {"batch_size": 8, "num_workers": 0, "pin_memory": use_cuda}
x = st.from_numpy(F32(32, 1, 8, 8))
y = st.arange(32) % 10
loader = DataLoader(TensorDataset(x, y), shuffle=False, **kw)
m = fill(Net()).to(device)
m.eval()
opt = optim.Adadelta(m.parameters(), lr=1.0)
sch = StepLR(opt, step_size=1, gamma=0.7)
es = EarlyStopping()
best = float("inf")
for epoch in range(1, 3):
    meter = AverageMeter()
    for i, (data, target) in enumerate(loader):
        data, target = data.to(device), target.to(device)
        opt.zero_grad()
        o = m(data)
        loss = F.nll_loss(o, target)
        loss.backward()
        opt.step()
        meter.update(loss.item(), data.size(0))
        if i % 2 == 0:
            s = "Train Epoch: {} [{}/{} ({:.0f}%)]\tLoss: {:.6f}".format(
                epoch, i * len(data), len(loader.dataset), 100.0 * i / len(loader), loss.item()
            )
    test_loss = 0
    correct = 0
    with st.no_grad():
        for data, target in loader:
            o = m(data)
            test_loss += F.nll_loss(o, target, reduction="sum").item()
            pred = o.argmax(dim=1, keepdim=True)
            correct += pred.eq(target.view_as(pred)).sum().item()
    test_loss /= len(loader.dataset)
    sch.step()
    es(test_loss)
    out(f"t{epoch}", [test_loss, correct, meter.avg])
    if test_loss < best:
        best = test_loss
        st.save(
            {
                "epoch": epoch,
                "model": m.state_dict(),
                "opt": opt.state_dict(),
                "sched": sch.state_dict(),
                "rng": st.get_rng_state(),
            },
            checkpoint,
        )
ck = st.load(checkpoint, map_location=device)
m.load_state_dict(ck["model"])
opt.load_state_dict(ck["opt"])
sch.load_state_dict(ck["sched"])
st.set_rng_state(ck["rng"])
out("e", ck["epoch"])
m.train()
a = m(x)
b = m(x)
assert not st.equal(a, b)
m.requires_grad_(False)
m.share_memory() if hasattr(m, "share_memory") else None
model = nn.DataParallel(m) if st.cuda.device_count() > 1 else m
start = st.cuda.Event(enable_timing=True) if use_cuda else None
f = lambda t: t * 2
assert f(st.ones(1)).item() == 2
print(m)
assert next(m.parameters()).is_cuda == False
assert next(m.parameters()).device.type == "cpu"
st.cuda.synchronize() if use_cuda else None
