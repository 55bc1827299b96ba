"""Deep Q learning, REINFORCE and the PPO objective."""

from collections import deque, namedtuple

import strata.nn.functional as F
from strata.distributions import Categorical

import strata as st
import strata.nn as nn
import strata.optim as optim

Transition = namedtuple("Transition", ("state", "action", "next_state", "reward"))


class DQN(nn.Module):
    def __init__(self, n_obs, n_act):
        super(DQN, self).__init__()
        self.layer1 = nn.Linear(n_obs, 32)
        self.layer2 = nn.Linear(32, 32)
        self.layer3 = nn.Linear(32, n_act)

    def forward(self, x):
        return self.layer3(F.relu(self.layer2(F.relu(self.layer1(x)))))


device = st.device("cpu")
policy, target = fill(DQN(4, 2)).to(device), DQN(4, 2).to(device)
target.load_state_dict(policy.state_dict())
target.eval()
opt = optim.AdamW(policy.parameters(), lr=1e-3, amsgrad=True)
memory = deque([], maxlen=1000)
for i in range(20):
    s = st.tensor(F32(4), dtype=st.float32, device=device).unsqueeze(0)
    with st.no_grad():
        a = policy(s).max(1).indices.view(1, 1)
    if i % 3 == 0:
        a = st.tensor([[i % 2]], device=device, dtype=st.long)
    ns = None if i % 5 == 4 else st.tensor(F32(4), dtype=st.float32).unsqueeze(0)
    memory.append(Transition(s, a, ns, st.tensor([float(i % 4)], device=device)))
for step in range(3):
    batch = Transition(*zip(*memory))
    mask = st.tensor(tuple(map(lambda s: s is not None, batch.next_state)), device=device, dtype=st.bool)
    nfs = st.cat([s for s in batch.next_state if s is not None])
    sb, ab, rb = st.cat(batch.state), st.cat(batch.action), st.cat(batch.reward)
    q = policy(sb).gather(1, ab)
    nv = st.zeros(20, device=device)
    with st.no_grad():
        nv[mask] = target(nfs).max(1).values
    exp = (nv * 0.99) + rb
    loss = nn.SmoothL1Loss()(q, exp.unsqueeze(1))
    opt.zero_grad()
    loss.backward()
    st.nn.utils.clip_grad_value_(policy.parameters(), 100)
    opt.step()
    tsd, psd = target.state_dict(), policy.state_dict()
    for key in psd:
        tsd[key] = psd[key] * 0.005 + tsd[key] * (1 - 0.005)
    target.load_state_dict(tsd)
    for tp, pp in zip(target.parameters(), policy.parameters()):
        tp.data.copy_(0.005 * pp.data + 0.995 * tp.data)
    out(f"l{step}", loss)
out("t", target.layer1.weight)
# REINFORCE
pi = fill(DQN(4, 2), 3)
o2 = optim.RMSprop(pi.parameters(), lr=1e-2, alpha=0.95, eps=1e-6)
states = st.from_numpy(F32(7, 4))
acts = st.tensor([0, 1, 1, 0, 1, 0, 0])
rewards = [1.0, 0.0, 2.0, -1.0, 0.0, 1.0, 3.0]
R = 0
returns = deque()
for r in rewards[::-1]:
    R = r + 0.99 * R
    returns.appendleft(R)
returns = st.tensor(returns)
returns = (returns - returns.mean()) / (returns.std() + np.finfo(np.float32).eps.item())
probs = F.softmax(pi(states), dim=1)
m = Categorical(probs)
a = m.sample()
assert a.shape == (7,) and a.dtype == st.int64
policy_loss = [-lp * R for lp, R in zip(m.log_prob(acts), returns)]
loss = st.stack(policy_loss).sum() - 0.01 * m.entropy().mean()
o2.zero_grad()
loss.backward()
o2.step()
out("reinforce", loss)
out("w", pi.layer3.weight)
logits_c = Categorical(logits=pi(states))
ratio = st.exp(logits_c.log_prob(acts) - m.log_prob(acts).detach())
adv = st.from_numpy(F32(7))
surr = -st.min(ratio * adv, st.clamp(ratio, 1 - 0.2, 1 + 0.2) * adv).mean()
out("ppo", surr)
