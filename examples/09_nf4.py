"""LoRA on a base of four bits a weight: the same task with the base as floats, and as nf4."""

import sys

import adapters

NEAR = 0.02  # how far the accuracies may be apart


def main() -> int | str:
    floats = adapters.in_a_process(ours=True)
    nf4 = adapters.in_a_process(ours=True, base="nf4")
    results = {"LoRA, float32 base": floats, "LoRA, nf4 base": nf4}
    print(adapters.table(results))
    print(nf4["report"].line())
    if nf4["report"].fallbacks:
        return "\n".join(map(str, nf4["report"].fallbacks))
    apart = abs(floats["accuracy"] - nf4["accuracy"])
    return 0 if apart <= NEAR else f"the accuracies are {apart:.1%} apart"


if __name__ == "__main__":
    sys.exit(main())
