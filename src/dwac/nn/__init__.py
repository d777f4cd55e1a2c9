"""Any network as a deep weighted averaging classifier.

model = WeightedAverage(backbone, n_classes=10)
loss = model.loss(x, y); loss.backward()     # in your own training loop: leave-one-out inside the minibatch
model.eval(); model.remember(loader)         # embed the training data as the reference set
log_p = model(x)
"""

from dwac.nn.convert import convert
from dwac.nn.ensemble import Ensemble
from dwac.nn.heads import Model, SoftmaxTwin, WeightedAverage
from dwac.nn.loss import Support, leave_one_out_loss

__all__ = ["Ensemble", "Model", "SoftmaxTwin", "Support", "WeightedAverage", "convert", "leave_one_out_loss"]
