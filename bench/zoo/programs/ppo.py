"""PPO: rollouts sampled from Categorical in many environments, advantages by GAE, clipped updates in minibatches."""

import numpy as np
import torch
import torch.nn as nn
from torch.distributions.categorical import Categorical

SIZES = {
    "tiny": dict(hidden=16, envs=4, steps=8, obs=6, actions=3, epochs=2, minibatches=2),
    "cpu": dict(hidden=128, envs=16, steps=64, obs=24, actions=6, epochs=3, minibatches=4),
    "card": dict(hidden=512, envs=1024, steps=32, obs=64, actions=12, epochs=4, minibatches=4),
}
FALLS = False  # an update's loss says nothing of the return


def layer_init(layer, std=np.sqrt(2), bias_const=0.0):
    torch.nn.init.orthogonal_(layer.weight, std)
    torch.nn.init.constant_(layer.bias, bias_const)
    return layer


class Agent(nn.Module):
    def __init__(self, obs, hidden, actions):
        super().__init__()
        self.critic = nn.Sequential(layer_init(nn.Linear(obs, hidden)), nn.Tanh(),
                                    layer_init(nn.Linear(hidden, hidden)), nn.Tanh(),
                                    layer_init(nn.Linear(hidden, 1), std=1.0))
        self.actor = nn.Sequential(layer_init(nn.Linear(obs, hidden)), nn.Tanh(), layer_init(nn.Linear(hidden, hidden)),
                                   nn.Tanh(), layer_init(nn.Linear(hidden, actions), std=0.01))

    def get_value(self, x):
        return self.critic(x)

    def forward(self, x, action=None):
        probs = Categorical(logits=self.actor(x))
        if action is None:
            action = probs.sample()
        return action, probs.log_prob(action), probs.entropy(), self.critic(x)


def train(cfg, rng, device, prepare):
    dynamics = rng.standard_normal((cfg.obs, cfg.obs)).astype("float32") / cfg.obs ** 0.5
    control = rng.standard_normal((cfg.actions, cfg.obs)).astype("float32")
    agent = prepare(Agent(cfg.obs, cfg.hidden, cfg.actions).to(device))
    optimizer = torch.optim.Adam(agent.parameters(), lr=2.5e-4, eps=1e-5)
    obs = torch.zeros((cfg.steps, cfg.envs, cfg.obs)).to(device)
    actions = torch.zeros((cfg.steps, cfg.envs), dtype=torch.long).to(device)
    logprobs, rewards, dones, values = (torch.zeros((cfg.steps, cfg.envs)).to(device) for _ in range(4))
    next_obs = torch.Tensor(rng.standard_normal((cfg.envs, cfg.obs))).to(device)
    next_done = torch.zeros(cfg.envs).to(device)
    while True:
        for step in range(cfg.steps):
            obs[step], dones[step] = next_obs, next_done
            with torch.no_grad():
                action, logprob, _, value = agent(next_obs)
                values[step] = value.flatten()
            actions[step], logprobs[step] = action, logprob
            state = np.tanh(next_obs.cpu().numpy() @ dynamics + 0.3 * control[action.cpu().numpy()])
            rewards[step] = torch.tensor(state[:, 0] - 0.1 * abs(state).mean(1)).to(device).view(-1)
            ended = rng.random(cfg.envs) < 0.02
            state[ended] = 0.0
            next_obs, next_done = torch.Tensor(state).to(device), torch.Tensor(ended).to(device)

        with torch.no_grad():
            next_value = agent.get_value(next_obs).reshape(1, -1)
            advantages = torch.zeros_like(rewards).to(device)
            lastgaelam = 0
            for t in reversed(range(cfg.steps)):
                nonterminal = 1.0 - (next_done if t == cfg.steps - 1 else dones[t + 1])
                nextvalues = next_value if t == cfg.steps - 1 else values[t + 1]
                delta = rewards[t] + 0.99 * nextvalues * nonterminal - values[t]
                advantages[t] = lastgaelam = delta + 0.99 * 0.95 * nonterminal * lastgaelam
            returns = advantages + values

        b_obs, b_actions, b_logprobs = obs.reshape(-1, cfg.obs), actions.reshape(-1), logprobs.reshape(-1)
        b_advantages, b_returns, b_values = advantages.reshape(-1), returns.reshape(-1), values.reshape(-1)
        b_inds = np.arange(cfg.steps * cfg.envs)
        size = len(b_inds) // cfg.minibatches
        for epoch in range(cfg.epochs):
            rng.shuffle(b_inds)
            for start in range(0, len(b_inds), size):
                mb = b_inds[start:start + size]
                _, newlogprob, entropy, newvalue = agent(b_obs[mb], b_actions[mb])
                ratio = (newlogprob - b_logprobs[mb]).exp()
                mb_adv = b_advantages[mb]
                mb_adv = (mb_adv - mb_adv.mean()) / (mb_adv.std() + 1e-8)
                pg_loss = torch.max(-mb_adv * ratio, -mb_adv * torch.clamp(ratio, 1 - 0.2, 1 + 0.2)).mean()
                newvalue = newvalue.view(-1)
                v_clipped = b_values[mb] + torch.clamp(newvalue - b_values[mb], -0.2, 0.2)
                v_loss = 0.5 * torch.max((newvalue - b_returns[mb]) ** 2, (v_clipped - b_returns[mb]) ** 2).mean()
                loss = pg_loss - 0.01 * entropy.mean() + 0.5 * v_loss
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(agent.parameters(), 0.5)
                optimizer.step()
        yield loss
