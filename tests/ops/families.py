"""Every family of the op table, in the order of csrc/ops; TABLE holds the entries by name."""

from . import (
    activation,
    attention,
    conv,
    einsum,
    elementwise,
    index,
    logic,
    loss,
    matmul,
    norm,
    pool,
    quantized,
    random,
    reduce,
    rnn,
    shape,
    slice,
    softmax,
)

FAMILIES = [
    elementwise,
    activation,
    logic,
    matmul,
    einsum,
    norm,
    softmax,
    loss,
    reduce,
    shape,
    slice,
    index,
    conv,
    pool,
    rnn,
    attention,
    random,
    quantized,
]
TABLE = {op.name: op for family in FAMILIES for op in family.OPS}
