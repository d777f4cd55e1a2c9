"""One thread a test process: small tensors gain nothing from more, and two processes share two cores."""

import signal

import torch

torch.set_num_threads(1)
# A process started in the background ignores Ctrl-C; tests press it.
signal.signal(signal.SIGINT, signal.default_int_handler)
