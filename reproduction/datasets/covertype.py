"""Covertype: which trees grow on a patch of forest, judged from maps only."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from reproduction.datasets.dataset import Dataset, Labels, labels
from reproduction.datasets.files import Contents, File, read

FILES = (
    File(
        "covertype",
        "covtype.data.gz",
        ("https://archive.ics.uci.edu/ml/machine-learning-databases/covtype/covtype.data.gz",),
        contents=Contents(75_169_317, "0a9371cef7c964b5475d6053cc3e0894a5aa6f65ad1ed3ecb01c45aa96217945"),
    ),
)
CLASSES = np.array(
    ["Spruce/Fir", "Lodgepole Pine", "Ponderosa Pine", "Cottonwood/Willow", "Aspen", "Douglas-fir", "Krummholz"]
)
NUMERIC = [
    "Elevation", "Aspect", "Slope", "Horizontal_Distance_To_Hydrology", "Vertical_Distance_To_Hydrology",
    "Horizontal_Distance_To_Roadways", "Hillshade_9am", "Hillshade_Noon", "Hillshade_3pm",
    "Horizontal_Distance_To_Fire_Points",
]  # fmt: skip
BINARY = [f"Wilderness_Area{i}" for i in range(1, 5)] + [f"Soil_Type{i}" for i in range(1, 41)]


def load() -> Dataset:
    """All 581,012 rows; there is no official split; `load().split()` makes a random tenth the test part."""
    X, y = parse(read(FILES[0]))
    return Dataset(
        "covertype",
        X,
        y,
        None,
        None,
        CLASSES,
        "30 × 30 m patches of forest in Colorado: 10 numbers from maps, 4 wilderness areas and 40 soil types as 0/1 "
        "columns; which of 7 kinds of trees grow there? No official split. "
        "© Jock A. Blackard, Colorado State University.",
        "https://archive.ics.uci.edu/dataset/31/covertype",
    )


def parse(data: bytes) -> tuple[pd.DataFrame, Labels]:
    """X, in the smallest suitable whole-number types, and y, from the lines of covtype.data."""
    types = dict.fromkeys(NUMERIC, pa.int16()) | dict.fromkeys([*BINARY, "Cover_Type"], pa.uint8())
    table = pa.csv.read_csv(
        pa.BufferReader(data),
        read_options=pa.csv.ReadOptions(column_names=list(types)),
        convert_options=pa.csv.ConvertOptions(column_types=types),
    ).to_pandas()
    y = labels(table.pop("Cover_Type").to_numpy().astype(np.int64) - 1, len(CLASSES), FILES[0].name)
    return table, y
