"""The tracker: edges around a pure core.  See ARCHITECTURE.md for the map."""

from typing import Final

__version__: Final = "0.1.0"
