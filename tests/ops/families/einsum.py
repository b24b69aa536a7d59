"""Einstein summation."""

import torch

from ..table import Op, bad, i, sample, t


def einsum(*xs, equation):
    return torch.einsum(equation, *xs)


OPS = [
    Op(
        "Einsum",
        einsum,
        [
            sample(t(3, 5), t(5, 7), equation="ij,jk->ik"),
            sample(t(3, 5), t(7, 5), equation="ij, kj -> ki"),
            sample(t(2, 3, 4, 5), t(2, 7, 4, 5), equation="bqhd,bkhd->bhqk"),
            sample(t(2, 3, 5), t(2, 5, 7), equation="bij,bjk"),
            sample(t(3, 5), equation="ij->ji"),
            sample(t(3, 5), equation="ij->"),
            sample(t(3), t(5), equation="i,j->ij"),
            sample(t(3), t(3), equation="i,i->"),
            sample(t(2, 4, 3, 5), t(5, 7), equation="...ij,jk->...ik"),
            sample(t(2, 4, 3, 5), t(4, 5, 7), equation="...ij,...jk->...ik"),
            sample(t(2, 3), t(3, 4), t(4, 5), equation="ab,bc,cd->ad"),
            sample(t(2, 3, 6), t(3, 4), equation="abz,bc->ac"),
            sample(i(3, 4), i(4, 2), equation="ij,jk->ik"),
            sample(t(4, 4), equation="ii->i"),
            sample(t(4, 4), equation="ii"),
            sample(t(2, 5, 4, 5), equation="biji->bji"),
            sample(t(2, 3, 3), equation="...ii->...i"),
            sample(t(3, 3, 3), t(3, 2), equation="iii,ij->j"),
            sample(t(2, 3, 2, 3), t(3, 4), equation="abab,bc->ac"),
            sample(i(3, 3), i(3, 3), equation="ii,ij->j"),
        ],
        [
            bad("has 1 terms, the node 2 inputs", t(3), t(3), equation="i"),
            bad("does not fit an input of rank 1", t(3), equation="ij"),
            bad("label 'i' has sizes 3 and 4 in one input", t(3, 4), equation="ii->i"),
            bad("output label 'z'", t(3, 3), equation="ij->z"),
            bad("label 'j' has sizes 5 and 4", t(3, 5), t(4, 7), equation="ij,jk->ik"),
        ],
    ),
]
