"""Monitoring: are new rows still like those that the model was calibrated on, and if not, what moved?

monitor = Monitor(clf)
state = monitor.update(X)                 # as often as rows come, in their order
state.alarm                               # None, or when, by what, and which columns and groups moved
monitor.save("monitor.json")              # Monitor.load("monitor.json", clf) goes on after a restart

The alarm is a conformal test martingale: false with probability at most 1 %, not per look but for ever. How, and why
p-values against the calibration rows alone would not do: `dwac.monitoring.martingale`.
"""

from dwac.monitoring.gauges import Change
from dwac.monitoring.monitor import Monitor
from dwac.monitoring.state import Alarm, Detector, State, merged

__all__ = ["Alarm", "Change", "Detector", "Monitor", "State", "merged"]
