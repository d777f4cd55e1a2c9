"""Monitoring: are new rows still like the calibration rows, and if not, what moved?

monitor = Monitor(clf)
state = monitor.update(X)                 # whenever rows come, in order
state.alarm                               # None, or when, by what, and which columns and groups moved
monitor.outcomes(ids, y, by=region)       # whenever outcomes come: risk and calibration, over all rows and by group
monitor.save("monitor.json")              # Monitor.load("monitor.json", clf) continues after a restart

The alarm is a conformal test martingale: false with probability at most 1 %, not per look but for ever.
`dwac.monitoring.martingale` explains it, and why p-values against the calibration rows alone would not work.
"""

from dwac.monitoring.gauges import Change
from dwac.monitoring.monitor import Monitor
from dwac.monitoring.outcomes import OutcomeState, Risk, RiskAlarm
from dwac.monitoring.state import Alarm, Detector, State

__all__ = [
    "Alarm",
    "Change",
    "Detector",
    "Monitor",
    "OutcomeState",
    "Risk",
    "RiskAlarm",
    "State",
]
