"""In the place of tests/cuda/cuda_double.py on a machine with a GPU: the driver itself."""


class far:  # noqa: N801  (the module of that name)
    """Its streams run as they do."""

    @staticmethod
    def schedule(seed: int) -> None:
        """Nothing to choose."""


def use(kind: int = 1) -> None:
    """The libraries are opened when they are first needed."""
