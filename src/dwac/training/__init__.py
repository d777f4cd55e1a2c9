"""Training: one loop for every network and both heads, the fits that follow it, and checkpoints.

history = train(model, x, y, validation=(x_val, y_val))
"""

from dwac.nn.batches import embed, evaluate, log_class_weights, predict_log_probabilities
from dwac.nn.heads import Model
from dwac.training.cross_fit import cross_fit
from dwac.training.lines import cross_fit_lines
from dwac.training.loop import train
from dwac.training.run import Settings
from dwac.training.shared_run import processes
from dwac.training.validation import fit_look_alikes, fit_raw_features, fit_scale

__all__ = [
    "Model",
    "Settings",
    "cross_fit",
    "cross_fit_lines",
    "embed",
    "evaluate",
    "fit_look_alikes",
    "fit_raw_features",
    "fit_scale",
    "log_class_weights",
    "predict_log_probabilities",
    "processes",
    "train",
]
