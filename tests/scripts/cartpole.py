"""A pole on a cart, to be kept upright: the environment of the two reinforcement scripts."""

import math
import random


class CartPole:
    """reset() and step(action) as gym's; the state is four numbers."""

    def reset(self, seed=None):
        if seed is not None:
            self.random = random.Random(seed)
        self.state = [self.random.uniform(-0.05, 0.05) for _ in range(4)]
        return self.state, {}

    def step(self, action):
        x, speed, angle, turn = self.state
        force = 10.0 if action == 1 else -10.0
        push = (force + 0.05 * turn**2 * math.sin(angle)) / 1.1
        lever = 0.5 * (4.0 / 3.0 - 0.1 * math.cos(angle) ** 2 / 1.1)
        turning = (9.8 * math.sin(angle) - math.cos(angle) * push) / lever
        moving = push - 0.05 * turning * math.cos(angle) / 1.1
        self.state = [
            x + 0.02 * speed,
            speed + 0.02 * moving,
            angle + 0.02 * turn,
            turn + 0.02 * turning,
        ]
        done = abs(self.state[0]) > 2.4 or abs(self.state[2]) > 0.21
        return self.state, 1.0, done, False, {}
