"""The small models of scoring."""

from tests.scoring.conftest import folder_of

__all__ = ["folder_of"]
