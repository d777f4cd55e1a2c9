"""Adult: does a person of the 1994 US census earn more than 50,000 dollars a year?"""

from __future__ import annotations

from io import BytesIO

import numpy as np
import pandas as pd

from reproduction.datasets.dataset import Dataset, Labels
from reproduction.datasets.files import Contents, File, read

_BASE = "https://archive.ics.uci.edu/ml/machine-learning-databases/adult/"
FILES = (
    File(
        "adult",
        "adult.data",
        (_BASE + "adult.data",),
        contents=Contents(3_974_305, "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d"),
    ),
    File(
        "adult",
        "adult.test",
        (_BASE + "adult.test",),
        contents=Contents(2_003_153, "a2a9044bc167a35b2361efbabec64e89d69ce82d9790d2980119aac5fd7e9c05"),
    ),
)
CLASSES = np.array(["<=50K", ">50K"])

# Columns in order: None for whole numbers, else the categories, both as in adult.names.
COLUMNS: dict[str, str | None] = {
    "age": None,
    "workclass": "Private, Self-emp-not-inc, Self-emp-inc, Federal-gov, Local-gov, State-gov, Without-pay, "
    "Never-worked",
    "fnlwgt": None,
    "education": "Bachelors, Some-college, 11th, HS-grad, Prof-school, Assoc-acdm, Assoc-voc, 9th, 7th-8th, 12th, "
    "Masters, 1st-4th, 10th, Doctorate, 5th-6th, Preschool",
    "education-num": None,
    "marital-status": "Married-civ-spouse, Divorced, Never-married, Separated, Widowed, Married-spouse-absent, "
    "Married-AF-spouse",
    "occupation": "Tech-support, Craft-repair, Other-service, Sales, Exec-managerial, Prof-specialty, "
    "Handlers-cleaners, Machine-op-inspct, Adm-clerical, Farming-fishing, Transport-moving, Priv-house-serv, "
    "Protective-serv, Armed-Forces",
    "relationship": "Wife, Own-child, Husband, Not-in-family, Other-relative, Unmarried",
    "race": "White, Asian-Pac-Islander, Amer-Indian-Eskimo, Other, Black",
    "sex": "Female, Male",
    "capital-gain": None,
    "capital-loss": None,
    "hours-per-week": None,
    "native-country": "United-States, Cambodia, England, Puerto-Rico, Canada, Germany, Outlying-US(Guam-USVI-etc), "
    "India, Japan, Greece, South, China, Cuba, Iran, Honduras, Philippines, Italy, Poland, Jamaica, Vietnam, Mexico, "
    "Portugal, Ireland, France, Dominican-Republic, Laos, Ecuador, Taiwan, Haiti, Columbia, Hungary, Guatemala, "
    "Nicaragua, Scotland, Thailand, Yugoslavia, El-Salvador, Trinadad&Tobago, Peru, Hong, Holand-Netherlands",
}


def load(*, complete: bool = True) -> Dataset:
    """Adult in its official parts. `complete=False` keeps the 3,620 rows with missing values, as NaN."""
    (X_train, y_train), (X_test, y_test) = (parse(read(file), complete=complete) for file in FILES)
    return Dataset(
        "adult",
        X_train,
        y_train,
        X_test,
        y_test,
        CLASSES,
        "1994 US census: 5 numbers and 8 categories per person; does income exceed $50,000? The census weight fnlwgt "
        "is left out" + (", and rows with a missing value." if complete else "."),
        "https://archive.ics.uci.edu/dataset/2/adult",
    )


def parse(data: bytes, *, complete: bool = True) -> tuple[pd.DataFrame, Labels]:
    """X and y of adult.data or adult.test (whose first line is not a row, and whose labels end with a full stop)."""
    types = {
        name: np.dtype(np.int64) if values is None else pd.CategoricalDtype(values.split(", "))
        for name, values in COLUMNS.items()
    }
    table = pd.read_csv(
        BytesIO(data),
        names=[*types, "income"],
        dtype=types | {"income": "str"},
        skipinitialspace=True,
        comment="|",
        keep_default_na=False,
        na_values="?",
    )
    table = (table.dropna() if complete else table).reset_index(drop=True)
    y = (table["income"].str.rstrip(".") == CLASSES[1]).to_numpy().astype(np.int64)
    return table.drop(columns=["fnlwgt", "income"]), y
