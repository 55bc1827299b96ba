"""A network of one's own, trained with the command line's progress bar, log and report."""

import sys
import tempfile

import strata as st
from strata import nn
from strata.utils.data import DataLoader, TensorDataset, random_split

st.manual_seed(0)
angle = st.rand(2000) * 12
arm = st.randint(0, 2, [2000])
turn = angle + arm.to(st.float32) * st.pi
points = st.stack([angle * st.cos(turn), angle * st.sin(turn)], 1) / 12 + 0.01 * st.randn(2000, 2)

train, valid = random_split(TensorDataset(points, arm), [0.9, 0.1], seed=1)
net = nn.Sequential(nn.Linear(2, 64), nn.GELU(), nn.Linear(64, 64), nn.GELU(), nn.Linear(64, 2))
optimizer = st.optim.Muon(net.parameters(), lr=0.02, weight_decay=0.01, adjust_lr_fn="match_rms_adamw")
out = sys.argv[1] if len(sys.argv) > 1 else tempfile.mkdtemp(prefix="spirals-")
trainer = st.ModuleTrainer(
    net, nn.CrossEntropyLoss(), optimizer, DataLoader(train, batch_size=100, shuffle=True), out=out, epochs=40,
    valid_loader=DataLoader(valid, batch_size=200), max_norm=1.0,
)
result = trainer.train()
print(f"{result}\nreport: {result.report}")
assert result.valid_loss < 0.2
