"""The sidecar steps back behind the job: in processor, disk and when memory runs out."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

ASK = """
import json, os, subprocess, sys
from tracker.manners import stand_back
{before}
stand_back(nice={nice}, oom_score_adj={score})
child = subprocess.run(
    [sys.executable, "-c", "import os; print(os.nice(0))"], capture_output=True, text=True, check=True
)
print(json.dumps([os.nice(0), int(open("/proc/self/oom_score_adj").read()), int(child.stdout)]))
"""


def ask(nice: int, score: int, before: str = "") -> list[int]:
    code = ASK.format(nice=nice, score=score, before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    answer: list[int] = json.loads(done.stdout)
    return answer


def test_it_and_its_children_come_after_the_job() -> None:
    """Niceness and the out-of-memory score are raised, for what it starts too."""
    assert ask(12, 700) == [12, 700, 12]


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        pytest.param("os.nice(15 - os.nice(0))", [15, 700, 15], id="a-higher-niceness-is-kept"),
        pytest.param("open('/proc/self/oom_score_adj', 'w').write('900')", [10, 900, 10], id="higher-score"),
    ],
)
def test_it_is_never_made_less_modest(before: str, expected: list[int]) -> None:
    """What whoever started it has set already is not undone."""
    assert ask(10, 700, before) == expected
