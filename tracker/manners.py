"""Who comes first on the node: the training job, before the sidecar beside it.

Edge: the process's own niceness and its score for the kernel's out-of-memory killer. Both are only ever
made more modest, and what the machine does not allow is left as it is: nobody is worse off for it.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Final

_SCORE: Final = Path("/proc/self/oom_score_adj")


def stand_back(*, nice: int, oom_score_adj: int) -> None:
    """Raise niceness and out-of-memory score of this process, and of what it starts, to these values.

    A thread or child begun later inherits both. The disk follows: without an I/O class of its own a
    process has the best-effort priority (nice + 20) / 5 (ioprio_set(2)).
    """
    with contextlib.suppress(OSError):
        if os.getpriority(os.PRIO_PROCESS, 0) < nice:
            os.setpriority(os.PRIO_PROCESS, 0, nice)
    with contextlib.suppress(OSError, ValueError):
        if int(_SCORE.read_text()) < oom_score_adj:
            _SCORE.write_text(str(oom_score_adj))
