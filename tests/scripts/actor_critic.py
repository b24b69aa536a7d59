"""Actor and critic share a trunk; the module keeps what it did in an episode in lists."""

import argparse
from collections import namedtuple

import torch
import torch.nn.functional as F
from cartpole import CartPole
from torch import nn, optim
from torch.distributions import Categorical

SavedAction = namedtuple("SavedAction", ["log_prob", "value"])


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.affine1 = nn.Linear(4, 32)
        self.action_head = nn.Linear(32, 2)
        self.value_head = nn.Linear(32, 1)
        self.saved_actions = []
        self.rewards = []

    def forward(self, x):
        x = F.relu(self.affine1(x))
        return F.softmax(self.action_head(x), dim=-1), self.value_head(x)


def select_action(model, state):
    probs, state_value = model(torch.tensor(state))
    m = Categorical(probs)
    action = m.sample()
    model.saved_actions.append(SavedAction(m.log_prob(action), state_value))
    return action.item()


def finish_episode(model, optimizer, gamma=0.99, eps=1e-6):
    R, policy_losses, value_losses, returns = 0, [], [], []
    for r in model.rewards[::-1]:
        R = r + gamma * R
        returns.insert(0, R)
    returns = torch.tensor(returns)
    returns = (returns - returns.mean()) / (returns.std() + eps)
    for (log_prob, value), R in zip(model.saved_actions, returns, strict=True):
        policy_losses.append(-log_prob * (R - value.item()))
        value_losses.append(F.smooth_l1_loss(value, torch.tensor([R])))
    optimizer.zero_grad()
    loss = torch.stack(policy_losses).sum() + torch.stack(value_losses).sum()
    loss.backward()
    optimizer.step()
    del model.rewards[:]
    del model.saved_actions[:]
    return loss


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--data")
    parser.add_argument("--ortmodule", action="store_true")
    args = parser.parse_args()
    torch.manual_seed(1)
    env, model = CartPole(), Policy()
    env.reset(seed=1)
    if args.ortmodule:
        from ortmodule import ORTModule

        model = ORTModule(model)
    optimizer = optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(50):
        state, _ = env.reset()
        for _ in range(60):
            state, reward, done, _, _ = env.step(select_action(model, state))
            model.rewards.append(reward)
            if done:
                break
        print(f"loss {finish_episode(model, optimizer).item():.8f}")


if __name__ == "__main__":
    main()
