"""Training: one loop for every network and both heads, the fits that follow it, and checkpoints.

>>> import torch
>>> from dwac.nn import WeightedAverage
>>> x, y = torch.randn(60, 2), torch.arange(60) % 2
>>> x[:, 0] += 4 * y
>>> model = WeightedAverage(torch.nn.Linear(2, 8), n_classes=2, n_features=8)
>>> history = train(model, x, y, epochs=5, seed=0)
>>> loss, accuracy = evaluate(model, x, y)
>>> embed(model, x).shape, log_class_weights(model, x).shape, predict_log_probabilities(model, x).shape
(torch.Size([60, 2]), torch.Size([60, 2]), torch.Size([60, 2]))
"""

from dwac.nn.batches import embed, evaluate, log_class_weights, predict_log_probabilities
from dwac.training.loop import train
from dwac.training.shared_run import processes

__all__ = [
    "embed",
    "evaluate",
    "log_class_weights",
    "predict_log_probabilities",
    "processes",
    "train",
]
