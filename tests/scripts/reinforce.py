"""REINFORCE: the policy keeps the log-probabilities and rewards of an episode in lists."""

import argparse
from collections import deque

import torch
import torch.nn.functional as F
from cartpole import CartPole
from torch import nn, optim
from torch.distributions import Categorical


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 32)
        self.dropout = nn.Dropout(p=0.0)
        self.affine2 = nn.Linear(32, 2)
        self.saved_log_probs = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.dropout(self.affine1(x)))
        return F.softmax(self.affine2(x), dim=1)


def select_action(policy, state):
    probs = policy(torch.tensor(state).unsqueeze(0))
    m = Categorical(probs)
    action = m.sample()
    policy.saved_log_probs.append(m.log_prob(action))
    return action.item()


def finish_episode(policy, optimizer, gamma=0.99, eps=1e-6):
    R, policy_loss, returns = 0, [], deque()
    for r in policy.rewards[::-1]:
        R = r + gamma * R
        returns.appendleft(R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    for log_prob, R in zip(policy.saved_log_probs, returns, strict=True):
        policy_loss.append(-log_prob * R)
    optimizer.zero_grad()
    policy_loss = torch.cat(policy_loss).sum()
    policy_loss.backward()
    optimizer.step()
    del policy.rewards[:]
    del policy.saved_log_probs[:]
    return policy_loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--ortmodule", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    env, policy = CartPole(), Policy()
    env.reset(seed=1)
    if args.ortmodule:
        from ortmodule import ORTModule

        policy = ORTModule(policy)
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    for _ in range(50):
        state, _ = env.reset()
        for _ in range(60):
            state, reward, done, _, _ = env.step(select_action(policy, state))
            policy.rewards.append(reward)
            if done:
                break
        print(f"loss {finish_episode(policy, optimizer).item():.8f}")


if __name__ == "__main__":
    main()
