"""Counts of n-grams, each looked for at every start and distance."""

import torch

from ...table import Op, bad, i, sample

POOL = [1, 2, 3, 1, 2, 2, 1, 3, 3, 1, 2, 3]
GRAMS = {
    "pool_int64s": POOL,
    "ngram_counts": [0, 3, 9],
    "ngram_indexes": [0, 3, 2, 5, 1, 4, 6],
    "min_gram_length": 1,
    "max_gram_length": 3,
    "max_skip_count": 0,
}


def grams_of(pool, counts):
    """Each gram of the pool with its number of items."""
    ends = [*counts[1:], len(pool)]
    for length, (start, end) in enumerate(zip(counts, ends, strict=True), 1):
        for at in range(start, end, length):
            yield tuple(pool[at : at + length])


def seen(row, gram, skips):
    """How often; what has one item is seen at one distance alone."""
    reach = 1 if len(gram) == 1 else skips + 1
    return sum(
        tuple(row[start::distance][: len(gram)]) == gram
        for distance in range(1, reach + 1)
        for start in range(len(row))
    )


def tf_idf(x, mode, weights=None, **attrs):
    rows = x.reshape(-1, x.shape[-1]).tolist()
    indexes = attrs["ngram_indexes"]
    y = torch.zeros(len(rows), max(indexes) + 1)
    for n, row in enumerate(rows):
        for k, gram in enumerate(grams_of(attrs["pool_int64s"], attrs["ngram_counts"])):
            if not attrs["min_gram_length"] <= len(gram) <= attrs["max_gram_length"]:
                continue
            count = seen(row, gram, attrs["max_skip_count"])
            count = min(count, 1) if mode == "IDF" else count
            weight = weights[k] if weights and mode != "TF" else 1.0
            y[n, indexes[k]] = count * weight
    return y.reshape(*x.shape[:-1], -1)


OPS = [
    Op(
        "TfIdfVectorizer",
        tf_idf,
        [
            sample(i(4, 9, low=1, high=4), **GRAMS, mode="TF"),
            sample(i(9, low=1, high=4, dtype="int32"), **GRAMS, mode="IDF"),
            sample(
                i(3, 9, low=1, high=4),
                **GRAMS | {"max_skip_count": 2, "min_gram_length": 2},
                mode="TFIDF",
                weights=[0.5, 1.5, 2.0, 0.25, 3.0, 1.0, 4.0],
            ),
        ],
        errors=[
            bad("mode is 'COUNT'", i(2, 3), **GRAMS, mode="COUNT"),
            bad("it has 7 ngram_indexes", i(2, 3), **GRAMS | {"pool_int64s": POOL[:9]}, mode="TF"),
            bad("expected [C] or [N, C]", i(2, 3, 4), **GRAMS, mode="TF"),
        ],
    )
]
