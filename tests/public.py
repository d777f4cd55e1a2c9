"""The modules whose `__all__` is the public surface; every other name may change."""

PUBLIC = [
    "dwac",
    "dwac.conformal",
    "dwac.encoders",
    "dwac.engine",
    "dwac.errors",
    "dwac.explain",
    "dwac.kernels",
    "dwac.metrics",
    "dwac.mlflow",
    "dwac.monitoring",
    "dwac.nn",
    "dwac.records",
    "dwac.reference",
    "dwac.report",
    "dwac.scoring",
    "dwac.server",
    "dwac.training",
    "dwac.votes",
    "dwac.worth",
]
