"""The paper reproduced: its datasets and its experiments on real data, from frozen settings to records to a report.

Not part of the library: run it from a checkout, as `python -m reproduction`.

from reproduction import datasets, records, report, runner

data = datasets.load("adult")
runner.run(["accuracy"], datasets=["adult"])              # fits every case without a record
report.write_report(records.default_folder(), "docs/paper.md")
"""
