"""Activation functions."""

from ..registry import aten, wide


@aten("relu.default")
def relu(t, x):
    return t.op("Relu", x)


@aten("gelu.default")
def gelu(t, x, *, approximate="none"):
    return t.op("Gelu", x, approximate=approximate)


@aten("silu.default")
def silu(t, x):
    return t.op("Swish", x)


@aten("mish.default")
def mish(t, x):
    return t.op("Mish", x)


@aten("elu.default")
def elu(t, x, alpha=1.0, scale=1.0, input_scale=1.0):
    if input_scale != 1 or alpha < 0:
        return NotImplemented
    y = t.op("Elu", x, alpha=float(alpha))
    return y if scale == 1 else t.op("Mul", y, t.scalar(scale, x.dtype))


@aten("celu.default")
def celu(t, x, alpha=1.0):
    return t.op("Celu", x, alpha=float(alpha))


@aten("selu.default")
def selu(t, x):
    return t.op("Selu", x, alpha=1.6732632423543772, gamma=1.0507009873554805)


@aten("leaky_relu.default")
def leaky_relu(t, x, slope=0.01):
    return t.op("LeakyRelu", x, alpha=float(slope))


@aten("prelu.default")
def prelu(t, x, weight):
    if x.rank == 0:
        return NotImplemented
    if x.rank > 2 and weight.rank == 1:  # one slope a channel, and channels are axis 1
        weight = t.reshape(weight, [weight.dims[0], *[1] * (x.rank - 2)])
    return t.op("PRelu", x, weight)


@aten("relu6.default")
def relu6(t, x):
    return hardtanh(t, x, 0, 6)


@aten("hardtanh.default")
def hardtanh(t, x, low=-1, high=1):
    return t.ort("HardTanh", x, low=float(low), high=float(high))


@aten("hardsigmoid.default")
def hardsigmoid(t, x):
    return t.op("HardSigmoid", x, alpha=1 / 6, beta=0.5)


@aten("hardswish.default")
def hardswish(t, x):
    return t.op("HardSwish", x)


@aten("softplus.default")
@wide
def softplus(t, x, beta=1, threshold=20):
    if threshold > 80:
        return NotImplemented  # exp(x beta) overflows, and torch says infinity
    scaled = x if beta == 1 else t.op("Mul", x, t.scalar(beta, x.dtype))
    y = t.op("Softplus", scaled)
    if beta != 1:  # its slope has no division by beta
        y = t.op("Div", y, t.scalar(beta, x.dtype))
        y = t.ort("WithSlope", x, y, t.op("Sigmoid", scaled)) if t.needs_gradient() else y
    return t.op("Where", t.op("Greater", scaled, t.scalar(threshold, x.dtype)), x, y)


@aten("log_sigmoid.default")
@wide
def log_sigmoid(t, x):
    return t.op("Sub", t.scalar(0, x.dtype), t.op("Softplus", t.op("Neg", x)))


@aten("threshold.default")
def threshold(t, x, limit, value):
    low = t.op("LessOrEqual", x, t.scalar(limit, x.dtype))  # false for NaN, which stays
    return t.op("Where", low, t.scalar(value, x.dtype), x)


def _shrunk(t, x, lambd, y):
    """y outside of [-lambd, lambd]; zero inside; NaN of NaN, whose slope is zero as well."""
    low, high = t.scalar(-lambd, x.dtype), t.scalar(lambd, x.dtype)
    outside = t.op("Or", t.op("Less", x, low), t.op("Greater", x, high))
    nothing = t.op("Where", t.op("IsNaN", x), t.stop(x), t.scalar(0, x.dtype))
    return t.op("Where", outside, y, nothing)


@aten("softshrink.default")
def softshrink(t, x, lambd=0.5):
    positive = t.op("Greater", x, t.scalar(0, x.dtype))
    step = t.op("Where", positive, t.scalar(lambd, x.dtype), t.scalar(-lambd, x.dtype))
    return _shrunk(t, x, lambd, t.op("Sub", x, step))


@aten("hardshrink.default")
def hardshrink(t, x, lambd=0.5):
    return _shrunk(t, x, lambd, x)


@aten("glu.default")
@wide
def glu(t, x, dim=-1):
    half = t.out_dims()[dim]
    a, b = t.op("Split", x, t.sizes([half, half]), n=2, axis=dim % x.rank)
    return t.op("Mul", a, t.op("Sigmoid", b))
