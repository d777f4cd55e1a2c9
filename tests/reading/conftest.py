"""What tests of reading share."""

from pathlib import Path
from typing import Any

import pytest

from dwac.reading import Rows, read


@pytest.fixture
def given(tmp_path: Path) -> Any:
    """Write a file and read it."""

    def write_and_read(name: str, content: str | bytes, **options: Any) -> Rows:
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read(path, **options)

    return write_and_read
