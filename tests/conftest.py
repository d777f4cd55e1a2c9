"""One thread a test process: small tensors gain nothing from more, and two processes share two cores."""

import torch

torch.set_num_threads(1)
