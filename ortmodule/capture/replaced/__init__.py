"""What stands in torch's place while a call is learnt from and traced.

patches.py puts it there: operators on fake tensors that do as our kernels do, or answer sooner;
answers of torch's that are eager's; branches that are decided, and modes that are recorded.
"""
