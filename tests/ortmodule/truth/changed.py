"""What forward asks, with another answer at a later call; each also behind a branch on data, where
the module is cut."""

import collections
import contextlib
import contextvars
import datetime
import decimal
import functools
import inspect
import logging
import math
import os
import random
import sys
import threading
import time
import types
import weakref

import numpy as np
import torch
from torch import nn
from torch._higher_order_ops import while_loop
from torch.utils.checkpoint import checkpoint

from .table import Base, Case, case

ONE = torch.ones((), requires_grad=True)
NOW = [0.0]
VARIABLE = contextvars.ContextVar("changed", default=0.0)


def asks(name, body, call=None, attributes=dict, captured=False, **rest):
    """Two cases: body(module, x) alone, and behind a branch on data. attributes() makes those of
    the module."""

    def cut(s, x):
        y = s.k(x)
        if y.sum() > 1e9:
            y = y * 2
        return body(s, x) + y

    for label, forward in ((name, body), (f"{name}_cut", cut)):

        def factory(forward=forward):
            given = {} if call is None else {"call": call}
            return Case(Base(forward, **attributes()), **given, **rest)

        factory.__name__, factory.__module__ = label, __name__
        case(captured and forward is body)(factory)


def times(condition):
    return 2.0 if condition else 1.0


def at_one(make):
    """A call whose input is another kind of tensor at call 1."""
    return lambda model, x, i: model(make(x) if i == 1 else x)


def within(context):
    def call(model, x, i):
        with context(i):
            return model(x)

    return call


def module_of(model):
    return getattr(model, "module", model)


def with_history(x):
    return x * ONE


# --- of tensors ---
asks("is_leaf", lambda s, x: s.l(x) * times(x.is_leaf), at_one(with_history))
asks("is_leaf_by_name", lambda s, x: s.l(x) * times(getattr(x, s.asked)), at_one(with_history),
     lambda: {"asked": "is_leaf"})  # fmt: skip
asks("base", lambda s, x: s.l(x) * times(x._base is None), at_one(lambda x: x[:]))
asks("is_view", lambda s, x: s.l(x) * times(x._is_view()), at_one(lambda x: x[:]))
asks("version", lambda s, x: s.l(x) * (1 + x._version), at_one(lambda x: x.clone().add_(1)))
asks("grad_fn", lambda s, x: s.l(x) * times(x.grad_fn is None), at_one(with_history))
asks("storage_offset", lambda s, x: s.l(x) * (1 + x.storage_offset()),
     at_one(lambda x: torch.cat([x, x])[5:]))  # fmt: skip
asks("strides", lambda s, x: s.l(x) * x.stride(0), at_one(lambda x: x.t().contiguous().t()),
     captured=True)  # fmt: skip
asks("strides_of_a_result", lambda s, x: s.l(x) * (x * 2).stride(0),
     at_one(lambda x: x.t().contiguous().t()), captured=True)  # fmt: skip
asks("requires_grad", lambda s, x: s.l(x) * times((x * 2).requires_grad), at_one(with_history),
     captured=True)  # fmt: skip
asks("its_text", lambda s, x: s.l(x) * len(repr(x)), at_one(lambda x: x * 1000))
asks("text_of_a_buffer", lambda s, x: s.l(x) * len(str(s.n)),
     before=lambda m, i: m.n.fill_(10.0**i))  # fmt: skip
asks("text_of_a_number", lambda s, x: s.l(x) * len(str(s.n.item())),
     before=lambda m, i: m.n.fill_(10.0**i))  # fmt: skip
asks("a_number_as_a_key", lambda s, x: s.l(x) * {0.0: 1.0, 1.0: 2.0, 2.0: 5.0}[s.n.item()],
     before=lambda m, i: m.n.fill_(i))  # fmt: skip
asks("a_number_rounded", lambda s, x: s.l(x) * math.floor(s.n.item()),
     before=lambda m, i: m.n.fill_(i + 0.5))  # fmt: skip


def retained(model, x, i):
    if i == 1:
        x = x * ONE
        x.retain_grad()
    return model(x)


asks("retains_grad", lambda s, x: s.l(x) * times(x.retains_grad), retained)


def with_gradient(model, x, i):
    module_of(model).l.weight.grad = torch.full((3, 3), 0.5) if i == 1 else None
    result = model(x)
    module_of(model).l.weight.grad = None
    return result


asks("a_gradient", lambda s, x: s.l(x) * times(s.l.weight.grad is None), with_gradient)
asks("what_a_gradient_is", lambda s, x: s.l(x) * (1 + sum(
    p.grad.sum() for p in s.parameters() if p.grad is not None)), with_gradient)  # fmt: skip


def kept(model, x, i):
    module_of(model).kept[:] = [x] if i == 1 else []
    return model(x)


asks("whether_it_is_kept", lambda s, x: s.l(x) * times(any(x is k for k in s.kept)), kept,
     lambda: {"kept": []})  # fmt: skip
asks("attributes_of_a_parameter", lambda s, x: s.l(x) * vars(s.l.weight).get("mark", 9.0),
     before=lambda m, i: setattr(m.l.weight, "mark", float(i)), captured=True)  # fmt: skip
asks("an_attribute_of_a_parameter_by_name", lambda s, x: s.l(x) * getattr(s.l.weight, s.asked),
     before=lambda m, i: setattr(m.l.weight, "mark", float(i)),
     attributes=lambda: {"asked": "mark"}, captured=True)  # fmt: skip

# --- of torch and numpy ---
asks("grad_mode", lambda s, x: s.l(x) * times(torch.is_grad_enabled()),
     within(lambda i: torch.set_grad_enabled(i != 1)), captured=True)  # fmt: skip
asks("inference_mode", lambda s, x: s.l(x) * times(torch.is_inference_mode_enabled()),
     within(lambda i: torch.inference_mode(i == 1)), captured=True)  # fmt: skip
asks("anomaly_mode", lambda s, x: s.l(x) * times(torch.is_anomaly_enabled()),
     within(lambda i: torch.autograd.set_detect_anomaly(i == 1)))  # fmt: skip
asks("float32_precision", lambda s, x: s.l(x) * len(torch.get_float32_matmul_precision()),
     before=lambda m, i: torch.set_float32_matmul_precision("high" if i == 1 else "highest"),
     )  # fmt: skip
asks("a_backend", lambda s, x: s.l(x) * times(torch.backends.cudnn.deterministic),
     within(lambda i: torch.backends.cudnn.flags(deterministic=i == 1)))  # fmt: skip
asks("the_seed", lambda s, x: s.l(x) * (torch.initial_seed() % 97),
     before=lambda m, i: torch.manual_seed(i))  # fmt: skip
asks("a_seed_set", lambda s, x: (torch.manual_seed(s.seed), s.l(x) * torch.rand(3))[1],
     attributes=lambda: {"seed": 1}, before=lambda m, i: setattr(m, "seed", i))  # fmt: skip
asks("numpys_generator", lambda s, x: s.l(x) * np.random.rand(),
     before=lambda m, i: np.random.seed(i))  # fmt: skip


# --- of Python and of the system ---
def file_there(m, i):
    with contextlib.suppress(FileNotFoundError):
        os.remove(m.path)
    if i == 1:
        open(m.path, "w").close()


PATH = os.path.join(os.path.dirname(__file__), f".changed_{os.getpid()}")
asks("whether_a_file_is_there", lambda s, x: s.l(x) * times(os.path.exists(s.path)),
     attributes=lambda: {"path": PATH}, before=file_there)  # fmt: skip
asks("the_environment", lambda s, x: s.l(x) * float(os.environ["CHANGED"]),
     before=lambda m, i: os.environ.update(CHANGED=str(i)))  # fmt: skip
asks("getenv", lambda s, x: s.l(x) * float(os.getenv("CHANGED")),
     before=lambda m, i: os.environ.update(CHANGED=str(i)))  # fmt: skip
asks("a_module_imported", lambda s, x: s.l(x) * times("of_the_truth" in sys.modules),
     before=lambda m, i: sys.modules.update(of_the_truth=types.ModuleType("m")) if i == 1
     else sys.modules.pop("of_the_truth", None))  # fmt: skip
asks("the_depth_of_recursion", lambda s, x: s.l(x) * (sys.getrecursionlimit() / 1e4),
     before=lambda m, i: sys.setrecursionlimit(3000 + 100 * i))  # fmt: skip
asks("the_time", lambda s, x: s.l(x) * times(time.perf_counter() - NOW[0] < 1000),
     before=lambda m, i: NOW.__setitem__(0, time.perf_counter() if i == 1 else -1e9))  # fmt: skip
asks("the_date", lambda s, x: s.l(x) * times(datetime.datetime.now().timestamp() - NOW[0] < 1000),
     before=lambda m, i: NOW.__setitem__(0, time.time() if i == 1 else -1e9))  # fmt: skip
asks("the_name_of_the_thread", lambda s, x: s.l(x) * len(threading.current_thread().name),
     before=lambda m, i: setattr(threading.current_thread(), "name", "t" * (i + 1)))  # fmt: skip
asks("pythons_generator", lambda s, x: s.l(x) * random.random(),
     before=lambda m, i: random.seed(i))  # fmt: skip
asks("the_state_of_a_generator", lambda s, x: s.l(x) * (random.getstate()[1][0] % 97),
     before=lambda m, i: random.seed(i))  # fmt: skip
asks("globals", lambda s, x: s.l(x) * globals()["A_GLOBAL"],
     before=lambda m, i: globals().update(A_GLOBAL=float(i)))  # fmt: skip
asks("evaluated", lambda s, x: s.l(x) * eval("s.a", {"s": s}), attributes=lambda: {"a": 1.0},
     before=lambda m, i: setattr(m, "a", float(i)))  # fmt: skip
asks("printed", lambda s, x: (print(end=""), s.l(x) * s.a)[1], attributes=lambda: {"a": 1.0},
     before=lambda m, i: setattr(m, "a", float(i)))  # fmt: skip


def called_by_name(model, x):
    return model(x)


asks("the_frames", lambda s, x: s.l(x) * times(
    any(f.function == "called_by_name" for f in inspect.stack())),
     lambda model, x, i: called_by_name(model, x) if i == 1 else model(x))  # fmt: skip


def lock_held(m, i):
    if m.lock.locked():
        m.lock.release()
    if i == 1:
        m.lock.acquire()


asks("whether_a_lock_is_held", lambda s, x: s.l(x) * times(s.lock.locked()),
     attributes=lambda: {"lock": threading.Lock()}, before=lock_held)  # fmt: skip


def locked(s, x):
    with s.lock:
        return s.l(x) * s.a


asks("within_a_lock", locked, attributes=lambda: {"lock": threading.Lock(), "a": 1.0},
     before=lambda m, i: setattr(m, "a", float(i)), captured=True)  # fmt: skip


# --- left behind ---
def leaving(name, leave, asked, back):
    """Forward leaves a mode as the module says; it is asked after the call, and put back."""

    def body(s, x):
        y = s.l(x)
        leave(s.on)
        return y

    def call(model, x, i):
        module_of(model).on = i == 1
        try:
            return model(x), float(asked())
        finally:
            leave(back)

    asks(name, body, call, lambda: {"on": False})


leaving("the_grad_mode_left", torch.set_grad_enabled, torch.is_grad_enabled, True)
leaving("autocast_left", lambda on: torch.set_autocast_enabled("cpu", on),
        lambda: torch.is_autocast_enabled("cpu"), False)  # fmt: skip
leaving("determinism_left", torch.use_deterministic_algorithms,
        torch.are_deterministic_algorithms_enabled, False)  # fmt: skip


# --- a module that writes itself ---
def counted(s, x):
    s.count = s.count + 1
    return s.l(x) * s.count


def swapped(s, x):
    y = s.l(x)
    s.l, s.k = s.k, s.l
    return y


def replaced_body(s, x):
    y = s.l(x) * (1 + s.level)
    s.__dict__["body"] = (lambda s, x: s.l(x) * 7) if s.level else s.body
    s.level = s.level + 1
    return y


def new_parameter(s, x):
    y = s.l(x).detach()
    s.l.weight = nn.Parameter(s.l.weight.detach() * 0.5)
    return y + s.l(x)


def other_data(s, x):
    s.l.weight.data = s.l.weight.data * 0.5
    return s.l(x)


def frozen_in_turn(s, x):
    y = s.l(x)
    s.k.bias.requires_grad_(not s.k.bias.requires_grad)
    return y + s.k.bias


def trained_in_turn(s, x):
    y = s.l(x) * (2.0 if s.training else 3.0)
    s.train(not s.training)
    return y


def registered(s, x):
    s.count += 1
    s.register_buffer("made", torch.full((3,), float(s.count)), persistent=False)
    return s.l(x) + s.made


def hooked(s, x):
    if len(s.k._forward_hooks) < 2:
        s.k.register_forward_hook(lambda module, given, result: result * 2)
    return s.l(x) + s.k(x)


for own in (
    counted, swapped, replaced_body, new_parameter, other_data, frozen_in_turn, trained_in_turn,
    registered, hooked,
):  # fmt: skip
    asks(own.__name__, own, attributes=lambda: {"count": 0, "level": 0})
asks("a_variable_set", lambda s, x: (VARIABLE.set(s.a), s.l(x))[1], attributes=lambda: {"a": 1.0},
     before=lambda m, i: setattr(m, "a", float(i)), state=VARIABLE.get)  # fmt: skip
asks("the_environment_set", lambda s, x: (os.environ.update(CHANGED=str(s.a)), s.l(x))[1],
     attributes=lambda: {"a": 1.0}, before=lambda m, i: setattr(m, "a", float(i)),
     state=lambda: os.environ.get("CHANGED"))  # fmt: skip


def times_item(s, x):
    try:
        return s.l(x) * s.d["v"]
    except KeyError:
        return s.l(x) * 5


def one_and_the_same(m, i):
    m.a = types.SimpleNamespace()
    m.b = m.a if i == 1 else types.SimpleNamespace()


asks("whether_two_are_one", lambda s, x: s.l(x) * times(s.a is s.b), before=one_and_the_same)
asks("whether_two_lists_are_one", lambda s, x: s.l(x) * times(s.a is not s.b),
     attributes=lambda: {"a": [], "b": []},
     before=lambda m, i: setattr(m, "b", m.a if i == 1 else []))  # fmt: skip
asks("a_missing_key", times_item, attributes=lambda: {"d": {}},
     before=lambda m, i: m.d.update(v=2.0) if i == 1 else m.d.clear())  # fmt: skip
asks("a_logger_by_name", lambda s, x: s.l(x) * times(logging.getLogger("truth").isEnabledFor(30)),
     before=lambda m, i: logging.getLogger("truth").setLevel(20 if i == 1 else 40))  # fmt: skip
asks("decimals", lambda s, x: s.l(x) * float(decimal.Decimal(1) / decimal.Decimal(3)),
     within(lambda i: decimal.localcontext(prec=3 + i)))  # fmt: skip
asks("whether_it_is_alive", lambda s, x: s.l(x) * times(s.end.alive),
     attributes=lambda: {"end": weakref.finalize(ONE, int)},
     before=lambda m, i: m.end.detach() if i == 1 else None)  # fmt: skip


def constants_in_eager(model, x, i):
    """Dynamo's cond and while_loop of torch 2.15 raise where a float was another before."""
    eager = module_of(model) is model
    with torch._dynamo.config.patch(specialize_float=True) if eager else contextlib.nullcontext():
        return model(x)


def a_after(module, i):
    module.a = i + 1.0


asks("a_cond", lambda s, x: torch.cond(
    x.sum() > s.a, lambda t: s.l(t) * s.a, lambda t: s.k(t) - s.a, (x,)
), constants_in_eager, lambda: {"a": 1.0}, before=a_after)  # fmt: skip
asks("a_while_loop", lambda s, x: while_loop(
    lambda i, t: i < 3, lambda i, t: (i + 1, s.l(t).tanh() * s.a), (torch.tensor(0), s.k(x))
)[1], constants_in_eager, lambda: {"a": 1.0}, before=a_after)  # fmt: skip


for reentrant in (False, True):

    def checkpointed(reentrant=reentrant):
        """What is written in the region is written again in the backward."""
        norm = nn.BatchNorm1d(3)

        def body(s, x):
            return checkpoint(lambda t: s.norm(s.l(t)), x + s.l.bias, use_reentrant=reentrant)

        module = Base(body, norm=norm)
        state = lambda: (norm.num_batches_tracked.item(), norm.running_mean.tolist())  # noqa: E731
        return Case(module, state=state)

    checkpointed.__name__ = f"checkpointed_{reentrant}"
    case(False)(checkpointed)


HELD = torch.ones(1)


class Doubled(nn.Module):
    """A property whose getter is not its setter."""

    temperature = property(lambda s: s.kept * 2, lambda s, v: setattr(s, "kept", min(v, 9.0)))


def set_through_a_property(s, x):
    s.o.temperature = s.o.temperature + 1
    return s.l(x) * s.o.temperature


class Halving(dict):
    def __setitem__(self, key, value):
        super().__setitem__(key, value / 2)

    def __missing__(self, key):
        return 5.0


def set_through_an_item(s, x):
    s.d["v"] = s.d["v"] + 1
    return s.l(x) * s.d["v"]


def move_to_end(s, x):
    s.d.move_to_end(next(iter(s.d)))
    return s.l(x) * next(iter(s.d.values()))


def scaled_if_there(s, x):
    try:
        return s.l(x) * s.scale
    except AttributeError:
        return s.l(x) * 5


def doubled():
    made = Doubled()
    made.kept = 1.0
    return {"o": made}


HELD_NUMBERS = {
    "item": lambda t: t.item(),
    "float": float,
    "int": int,
    "list": lambda t: t.tolist()[0],
    "equal": lambda t: times(torch.equal(t, torch.tensor([2.0]))),
    "index": lambda t: [1.0, 2.0, 3.0, 4.0, 5.0][t.long()],
}
for label, number in HELD_NUMBERS.items():
    asks(f"the_{label}_of_a_tensor", lambda s, x, number=number: s.l(x) * number(s.t),
         attributes=lambda: {"t": torch.ones(1)},
         before=lambda m, i: m.t.fill_(i + 1.0))  # fmt: skip
asks("the_item_of_a_global", lambda s, x: s.l(x) * HELD.item(),
     before=lambda m, i: HELD.fill_(i + 1.0))  # fmt: skip
asks("set_through_a_property", set_through_a_property, attributes=doubled)
asks("set_through_an_item", set_through_an_item, attributes=lambda: {"d": Halving()})
asks("moved_to_the_end", move_to_end,
     attributes=lambda: {"d": collections.OrderedDict(a=1.0, b=2.0, c=3.0)},
     )  # fmt: skip


def scaled_in_turn(m, i):
    vars(m).pop("scale", None)
    if i == 1:
        m.scale = 2.0


asks("a_missing_attribute", scaled_if_there, before=scaled_in_turn)
asks("whether_two_are_equal", lambda s, x: s.l(x) * times(s.a == s.b) * times(s.b in [s.a]),
     before=one_and_the_same)  # fmt: skip


def tied_in_turn(m, i):
    m.h = (m.l.weight if i == 1 else m.k.weight,)


def frozen_at_one(m, i):
    m.frozen = {m.l.weight} if i == 1 else set()


asks("whether_it_is_a_parameter", lambda s, x: s.l(x) * times(s.h[0] is s.l.weight),
     before=tied_in_turn)  # fmt: skip
asks("whether_a_parameter_is_in_a_set", lambda s, x: s.l(x) * times(s.l.weight in s.frozen),
     before=frozen_at_one)  # fmt: skip
asks("a_generators_seed", lambda s, x: s.l(x) * (s.g.initial_seed() % 97),
     attributes=lambda: {"g": torch.Generator()},
     before=lambda m, i: m.g.manual_seed(i + 1))  # fmt: skip


class Mark:
    """Equal to itself alone."""


def marks():
    first, second = Mark(), Mark()
    held = {"mark": first, "marks": [first, second], "chosen": {first}, "by_mark": {first: 2.0}}
    return {"own": types.SimpleNamespace(**held)}


def another_mark(m, i):
    """Another one that is not there, one that is, and the first again."""
    first, second = m.own.marks
    m.own.mark = (first, Mark(), second)[i]
    m.own.chosen = {second if i == 2 else first}


AMONG = {
    "a_list": lambda s: s.mark in s.marks,
    "a_part_of_a_list": lambda s: s.mark in s.marks[:1],
    "no_list": lambda s: s.mark not in s.marks,
    "a_tuple": lambda s: s.mark in (s.marks[0],),
    "a_set": lambda s: s.mark in s.chosen,
    "a_frozen_set": lambda s: s.mark in frozenset(s.marks[:1]),
    "the_keys_of_a_dict": lambda s: s.mark in s.by_mark,
    "a_dict": lambda s: s.by_mark.get(s.mark, 1.0) > 1,
    "counted": lambda s: s.marks[:1].count(s.mark) == 1,
}
for label, among in AMONG.items():
    asks(f"whether_an_object_is_in_{label}",
         lambda s, x, among=among: s.l(x) * times(among(s.own)),
         attributes=marks, before=another_mark)  # fmt: skip


def a_cache_of_draws():
    """What one key draws is kept, also where another key came first."""
    cache = functools.lru_cache(lambda key: torch.rand(3))
    return {"drawn": cache, "a": 0}


asks("what_a_cache_drew", lambda s, x: s.l(x) * s.drawn(s.a), attributes=a_cache_of_draws,
     before=lambda m, i: setattr(m, "a", i))  # fmt: skip


class Kept:
    v = 2.0


def kept_weakly():
    kept = Kept()
    return {"kept": kept, "weak": weakref.ref(kept)}


asks("whether_what_it_dropped_is_alive",
     lambda s, x: s.l(x) * times(s.weak() is None), attributes=kept_weakly,
     before=lambda m, i: setattr(m, "kept", None) if i == 1 else None)  # fmt: skip
asks("what_it_dropped", lambda s, x: s.l(x) * getattr(s.weak(), "v", 7.0), attributes=kept_weakly,
     before=lambda m, i: setattr(m, "kept", None) if i == 1 else None)  # fmt: skip


def helping(x):
    return x


def asked_of(target):
    """Forward counts in an attribute that is not there at first."""

    def body(s, x):
        held = target(s)
        held.counted = getattr(held, "counted", 0) + 1
        return s.l(x) * held.counted

    return body


def counted_by_name(s, x):
    vars(s).update(counted=vars(s).get("counted", 0) + 1)
    return s.l(x) * vars(s)["counted"]


def forgotten(module, i):
    if i == 0:
        vars(helping).clear()


asks("an_attribute_of_a_function_that_comes", asked_of(lambda s: helping), before=forgotten)
asks("an_attribute_of_a_partial_that_comes", asked_of(lambda s: s.part),
     attributes=lambda: {"part": functools.partial(helping)})  # fmt: skip
asks("an_item_of_vars_that_comes", counted_by_name)


def within_inference_mode(s, x):
    with torch.inference_mode(s.on):
        y = s.l(x)
    return s.k(x) * y.clone()


asks("an_inference_mode_within", within_inference_mode, attributes=lambda: {"on": True},
     before=lambda m, i: setattr(m, "on", i != 1))  # fmt: skip
