"""Fourier transforms whose complex results nobody reads but as pairs of real numbers: torch's fft
and stft as DFT and STFT. Others stay torch's own.
"""

from ..registry import on_pairs

_FFT = [f"fft_{kind}fft{n}.default" for kind in ("", "i") for n in ("", "2")]
_HALF, _WHOLE = "fft_rfft.default", "fft_irfft.default"
_READERS = {*_FFT, _WHOLE, "view_as_real.default", "real.default", "imag.default"}
_REAL = ("float32", "float64")


def _is_read_as_pairs(t):
    users = [str(user.target).removeprefix("aten.") for user in t.node.users]
    return bool(users) and _READERS.issuperset(users)


def _pairs(t, x):
    """x [..] as [.., 1] or [.., 2]; None where nobody knows its parts."""
    return t.unsqueeze(x, [x.rank]) if x.dtype in _REAL else t.pairs_of(x)


def _fft(name):
    inverse = {"inverse": 1} if "_ifft" in name else {}
    axes = [-2, -1] if "2" in name else [-1]

    def rule(t, x, size=None, dim=None, norm=None):
        pairs = _pairs(t, x)
        if pairs is None or norm not in (None, "backward") or not _is_read_as_pairs(t):
            return NotImplemented
        dims = axes if dim is None else dim if isinstance(dim, (list, tuple)) else [dim]
        sizes = size if isinstance(size, (list, tuple)) else [size] * len(dims)
        for axis, length in zip(dims, sizes, strict=True):
            pairs = _along(t, pairs, length, axis % x.rank, **inverse)
        return t.as_complex(pairs)

    return rule


def _along(t, pairs, size, axis, **attrs):
    length = None if size is None else t.scalar(size, "int64")
    return t.op("DFT", pairs, length, t.scalar(axis, "int64"), **attrs)


for _name in _FFT:
    on_pairs(_name)(_fft(_name))


@on_pairs(_HALF)
def rfft(t, x, size=None, dim=-1, norm=None):
    if x.dtype not in _REAL or norm not in (None, "backward") or not _is_read_as_pairs(t):
        return NotImplemented
    return t.as_complex(_along(t, _pairs(t, x), size, dim % x.rank, onesided=1))


@on_pairs(_WHOLE)
def irfft(t, x, size=None, dim=-1, norm=None):
    pairs = t.pairs_of(x)
    if pairs is None or norm not in (None, "backward"):
        return NotImplemented
    y = _along(t, pairs, size, dim % x.rank, inverse=1, onesided=1)
    return t.squeeze(y, [x.rank])


@on_pairs("stft.default")
def stft(
    t, x, n_fft, hop=None, width=None, window=None, normalized=False, onesided=None, made=None
):
    hop, width = hop or n_fft // 4, width or n_fft
    numbers = all(isinstance(size, int) for size in (n_fft, hop, width))
    fits = window is None or window.dtype == x.dtype
    if not numbers or not fits or normalized or x.dtype not in _REAL or not _is_read_as_pairs(t):
        return NotImplemented
    if width != n_fft:
        window = t.full([width], 1.0, x.dtype) if window is None else window
        before = (n_fft - width) // 2
        window = t.op("Pad", window, t.ints([before, n_fft - width - before]))
    signal = t.unsqueeze(x if x.rank == 2 else t.unsqueeze(x, [0]), [2])
    given = (t.scalar(hop, "int64"), window, t.scalar(n_fft, "int64"))
    y = t.op("STFT", signal, *given, onesided=int(onesided in (None, True)))
    return t.as_complex(t.reshape(t.transpose(y, [0, 2, 1, 3]), [*t.out_dims(), 2]))


@on_pairs("view_as_real.default")
def view_as_real(t, x):
    pairs = t.pairs_of(x)
    return NotImplemented if pairs is None else pairs


def _part(which):
    def rule(t, x):
        pairs = t.pairs_of(x)
        if pairs is None:
            return NotImplemented
        return t.squeeze(t.slice(pairs, x.rank, which, which + 1), [x.rank])

    return rule


on_pairs("real.default")(_part(0))
on_pairs("imag.default")(_part(1))
