"""Scoring at scale: Arrow record batches in, Arrow record batches out, on one machine or many.

for answers in dwac.scoring.score("model/", pyarrow.dataset.dataset("rows/").to_batches()):
    ...                                   # id, label, probability, confidence, credibility, typicality, set, unreadable

`dwac score MODEL DATA -o OUT` does it for files, folders and object stores.
"""

from dwac.scoring.adapters import dask, ray, spark
from dwac.scoring.core import schema, score
from dwac.scoring.request import Request

__all__ = ["Request", "dask", "ray", "schema", "score", "spark"]
