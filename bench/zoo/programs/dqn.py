"""DQN on many cart-poles stepped in NumPy: replay memory, epsilon-greedy, soft target updates, clipped gradients."""

import copy
from collections import deque

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {
    "tiny": dict(hidden=32, envs=4, batch=32, memory=500),
    "cpu": dict(hidden=256, envs=16, batch=512, memory=20000),
    "card": dict(hidden=1024, envs=64, batch=8192, memory=200000),
}
FALLS = False  # the targets move with the network


class CartPoles:
    def __init__(self, count, rng):
        self.rng = rng
        self.state = rng.uniform(-0.05, 0.05, (count, 4)).astype(np.float32)

    def step(self, action):
        x, v, a, w = self.state.T
        force = np.where(action == 1, 10.0, -10.0)
        temp = (force + 0.05 * w ** 2 * np.sin(a)) / 1.1
        angular = (9.8 * np.sin(a) - np.cos(a) * temp) / (0.5 * (4.0 / 3.0 - 0.1 * np.cos(a) ** 2 / 1.1))
        linear = temp - 0.05 * angular * np.cos(a) / 1.1
        new = np.stack([x + 0.02 * v, v + 0.02 * linear, a + 0.02 * w, w + 0.02 * angular], 1).astype(np.float32)
        done = (np.abs(new[:, 0]) > 2.4) | (np.abs(new[:, 2]) > 0.2095)
        self.state = np.where(done[:, None], self.rng.uniform(-0.05, 0.05, new.shape), new).astype(np.float32)
        return new, np.ones(len(new), np.float32), done


class QNetwork(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.network = nn.Sequential(nn.Linear(4, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(),
                                     nn.Linear(hidden, 2))

    def forward(self, x):
        return self.network(x)


def train(cfg, rng, device, prepare):
    envs = CartPoles(cfg.envs, rng)
    memory = deque(maxlen=cfg.memory)
    policy_net = prepare(QNetwork(cfg.hidden).to(device))
    target_net = copy.deepcopy(policy_net)
    optimizer = torch.optim.AdamW(policy_net.parameters(), lr=1e-3, amsgrad=True)
    gamma, tau, eps = 0.99, 0.005, 0.9
    while True:
        state = envs.state
        with torch.no_grad():
            greedy = policy_net(torch.from_numpy(state).to(device)).max(1).indices.cpu().numpy()
        action = np.where(rng.random(cfg.envs) < eps, rng.integers(0, 2, cfg.envs), greedy)
        following, reward, done = envs.step(action)
        memory.extend(zip(state, action, reward, following, done))
        eps = max(0.05, eps * 0.995)

        picked = [memory[i] for i in rng.integers(0, len(memory), cfg.batch)]
        states, actions, rewards, next_states, dones = (
            torch.from_numpy(np.stack(part)).to(device) for part in zip(*picked))
        state_action_values = policy_net(states).gather(1, actions.unsqueeze(1))
        with torch.no_grad():
            next_state_values = target_net(next_states).max(1)[0]
            next_state_values[dones] = 0.0
        expected = rewards + gamma * next_state_values
        loss = F.smooth_l1_loss(state_action_values, expected.unsqueeze(1))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(policy_net.parameters(), 100)
        optimizer.step()

        target_state, policy_state = target_net.state_dict(), policy_net.state_dict()
        for key in policy_state:
            target_state[key] = policy_state[key] * tau + target_state[key] * (1 - tau)
        target_net.load_state_dict(target_state)
        yield loss
