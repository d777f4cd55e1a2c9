"""`dwac export`: one file with the network and its vote, for ONNX Runtime or PyTorch."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from dwac.cli import options
from dwac.cli.output import at_work, print_json, print_lines
from dwac.errors import EPSILON, InputError


def export(
    model: options.Model,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write: .onnx, or .pt2 for torch.export.")],
    epsilon: Annotated[float, typer.Option(help="Error rate of prediction sets or intervals.")] = EPSILON,
    k: Annotated[int, typer.Option("-k", min=1, help="How many of the heaviest voters to name.")] = 5,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace FILE.")] = False,
    expect: options.Expect = None,
    json: options.Json = False,
) -> None:
    """Write a model with its vote to one file, for ONNX Runtime or PyTorch, and check it against Python.

    The file takes the columns of a table, images, or the numbers of texts. It gives the label or number, probabilities,
    the prediction set or interval, typicality, and the ids and shares of the heaviest voters. It is checked against
    Python with training rows, and refused if any answer differs by more than 1e-5.

    A file .onnx needs the extra onnx: pip install 'dwac[onnx]'. Voters may take 64 MB: condense larger models.

    Examples:

    dwac export model/ model.onnx

    dwac export model/ model.pt2 --epsilon 0.1 -k 3
    """
    if file.exists() and not overwrite:
        raise InputError(f"{file} exists already; choose another file, or replace it with --overwrite")
    options.check_model(model)
    from dwac.reading import load

    clf = load(model, device="cpu", expect=expect).clf
    with at_work("exporting"):
        exported = clf.export(file, epsilon=epsilon, k=k)
    if json:
        print_json({**asdict(exported), "path": str(exported.path)})
    else:
        shown = [str(exported), f"takes {', '.join(exported.inputs)}", f"gives {', '.join(exported.outputs)}"]
        print_lines(shown)
