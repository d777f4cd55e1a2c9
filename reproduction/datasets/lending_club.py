"""Lending Club: will a borrower keep up with a loan, judged from what is known when it is granted?"""

from __future__ import annotations

import gzip
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import IO

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv

from reproduction.datasets.dataset import Dataset, Labels
from reproduction.datasets.files import DAMAGED, DatasetError, File, damaged, find

Stream = IO[bytes] | gzip.GzipFile

_LATER = "accepted_2007_to_2018Q4.csv"
FILES = (
    File(
        "lending_club",
        "loan.csv",
        (
            "https://www.kaggle.com/datasets/wendykan/lending-club-loan-data",
            "https://www.kaggle.com/datasets/wordsforthewise/lending-club",
        ),
        opens=lambda path: read_table(path),
        about=f"Lending Club's loans as CSV, also as .gz or .zip, or {_LATER}.gz",
        also=(
            "loan.csv.gz",
            "loan.csv.zip",
            "lending-club-loan-data.zip",
            _LATER,
            f"{_LATER}.gz",
            "lending-club.zip",
            "archive.zip",
        ),
        by_hand="Kaggle",
    ),
)
CLASSES = np.array(["bad", "good"])
GOOD = ("Current",)
BAD = ("Charged Off", "Default", "In Grace Period", "Issued", "Late (16-30 days)", "Late (31-120 days)")
LEFT_OUT = (
    "Fully Paid",
    "Does not meet the credit policy. Status:Fully Paid",
    "Does not meet the credit policy. Status:Charged Off",
)

# The paper's columns except those that leak, and policy_code, which is always 1. Some copies write shares with "%".
SHARES = ("int_rate", "revol_util")
NUMERIC = (
    "loan_amnt", "funded_amnt", "funded_amnt_inv", "int_rate", "installment", "annual_inc", "dti", "delinq_2yrs",
    "inq_last_6mths", "mths_since_last_delinq", "open_acc", "pub_rec", "revol_bal", "revol_util", "total_acc",
    "collections_12_mths_ex_med", "acc_now_delinq", "tot_coll_amt", "tot_cur_bal", "total_rev_hi_lim",
)  # fmt: skip
CATEGORICAL = (
    "term", "grade", "sub_grade", "emp_length", "purpose", "application_type", "addr_state", "initial_list_status",
)  # fmt: skip
OFTEN_MISSING = "mths_since_last_delinq"  # missing means never, so it is no reason to leave a loan out
_SHOWN = 160  # characters shown of the CSV reader's own message


def load(*, complete: bool = True) -> Dataset:
    """Loans that are current or went bad; no official split. `complete=False` keeps rows with missing values.

    Known from the paper's research code: it reads the loan.csv of 887,379 rows. Loans that are fully paid, or that do
    not meet the credit policy, are left out. A loan is good if Current, and bad otherwise: late, in default, charged
    off, in a grace period, or just issued. Months since the last delinquency may be missing; a row with any other
    missing value is left out.

    Assumed: "n/a" years of employment are missing, as pandas reads them. Not checked: that this leaves the paper's
    626,000 rows, because its file was not available. Later files have the same columns and more; they are read by the
    same rules, but are not the paper's data: `description` states the number of rows.

    # Differs from the paper: its code kept columns known only afterwards (out_prncp*, total_pymnt*, total_rec_*,
    # recoveries, collection_recovery_fee, last_pymnt_amnt, pymnt_plan), which reveal the label. Here only columns
    # known when the loan is granted are read, so accuracies cannot be compared with the published one.
    """
    table = read_table(find(FILES[0]))
    X, y = prepare(table, complete=complete)
    if len(np.unique(y)) < len(CLASSES):
        raise DatasetError(
            "lending_club has no complete rows of good and bad loans; complete=False keeps incomplete rows"
        )
    return Dataset(
        "lending_club",
        X,
        y,
        None,
        None,
        CLASSES,
        f"Loans of Lending Club: {len(NUMERIC)} numbers and {len(CATEGORICAL)} categories known when a loan is "
        f"granted; is it Current (good), or late, in default or charged off (bad)? {len(y):,} of {len(table):,} rows: "
        "without loans fully paid or outside the credit policy"
        + (", or with a missing value" if complete else "")
        + ". No official split. The paper's file has 887,379 rows.",
        FILES[0].urls[0],
    )


def prepare(table: pd.DataFrame, *, complete: bool = True) -> tuple[pd.DataFrame, Labels]:
    """X and y of the rows that are used."""
    kept = table["loan_status"].isin((*GOOD, *BAD)).to_numpy()
    if complete:
        kept = kept & table.drop(columns=OFTEN_MISSING).notna().all(axis=1).to_numpy()
    table = table.loc[kept].reset_index(drop=True)
    return table.drop(columns="loan_status"), table["loan_status"].isin(GOOD).to_numpy().astype(np.int64)


def read_table(path: Path) -> pd.DataFrame:
    """`NUMERIC`, `CATEGORICAL` and loan_status of all rows; other columns are not read."""
    file = FILES[0]
    try:
        with _opened(path) as stream:
            _check_head(stream.readline(), path)
        with _opened(path) as stream:
            table = _columns(stream)
    except DatasetError:
        raise
    except (*DAMAGED, OSError) as error:
        raise damaged(file, path, error) from None
    except ValueError as error:  # of pyarrow too
        shown = " ".join(str(error).split())[:_SHOWN]
        raise DatasetError(f"{path} is truncated or altered: {shown}; {file.remedy}") from None
    found = set(table["loan_status"].cat.categories)
    if unknown := sorted(found - {*GOOD, *BAD, *LEFT_OUT}):
        raise DatasetError(
            f"{path} must have loan_status {', '.join((*GOOD, *BAD, *LEFT_OUT))}; got {unknown[0]!r}; {file.remedy}"
        )
    if not (found & set(GOOD) and found & set(BAD)):
        raise DatasetError(f"{path} must hold both loans that are Current and loans that went bad; {file.remedy}")
    return table


def _columns(stream: Stream) -> pd.DataFrame:
    category = pa.dictionary(pa.int32(), pa.string())
    types = dict.fromkeys(NUMERIC, pa.float64()) | dict.fromkeys((*CATEGORICAL, *SHARES, "loan_status"), category)
    table = pa.csv.read_csv(
        stream,
        parse_options=pa.csv.ParseOptions(newlines_in_values=True),  # borrowers' texts contain them
        convert_options=pa.csv.ConvertOptions(
            column_types=types, include_columns=list(types), strings_can_be_null=True
        ),
    )
    frame: pd.DataFrame = table.unify_dictionaries().to_pandas()
    for name in (*CATEGORICAL, *SHARES, "loan_status"):
        column = frame[name].map(str.strip, na_action="ignore").astype("category")
        column = column.cat.set_categories(sorted(column.cat.categories))
        frame[name] = pd.to_numeric(column.astype("str").str.rstrip("%")) if name in SHARES else column
    return frame


def _check_head(line: bytes, path: Path) -> None:
    head = line.decode("utf-8-sig", "replace").strip()
    names = {name.strip('" ') for name in head.split(",")}
    required = (*NUMERIC, *CATEGORICAL, "loan_status")
    if lacking := [name for name in required if name not in names]:
        found = f"it lacks {', '.join(lacking)}" if len(lacking) < len(required) else f"it begins with {head[:40]!r}"
        raise DatasetError(f"{path} must begin with its column names, such as loan_amnt; {found}; {FILES[0].remedy}")


@contextmanager
def _opened(path: Path) -> Iterator[Stream]:
    """The bytes of the CSV, plain or compressed."""
    with ExitStack() as stack:
        stream: Stream = stack.enter_context(path.open("rb"))
        if _begins(stream, b"PK"):
            archive = stack.enter_context(zipfile.ZipFile(stream))
            stream = stack.enter_context(archive.open(_member(archive, path)))
        if _begins(stream, b"\x1f\x8b"):
            stream = stack.enter_context(gzip.open(stream))
        yield stream


def _begins(stream: Stream, mark: bytes) -> bool:
    stream.seek(0)
    found = stream.read(len(mark))
    stream.seek(0)
    return found == mark


def _member(archive: zipfile.ZipFile, path: Path) -> zipfile.ZipInfo:
    wanted = [name.lower() for name in ("loan.csv", _LATER, f"{_LATER}.gz")]
    for name in wanted:
        for member in archive.infolist():
            if not member.is_dir() and member.filename.rpartition("/")[2].lower() == name:
                return member
    raise DatasetError(f"{path} must contain one of {', '.join(wanted)}; it does not; {FILES[0].remedy}")
