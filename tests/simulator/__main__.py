"""Write a simulated run: `python -m tests.simulator --preset llama_like --seed 7 --out DIR`.

Edge. Beside the logs and sacct.txt it writes run.toml (a config that reads them) and truth.json (what the
ledger must say). With --live it writes in time with the clock.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from tests.simulator.configure import config
from tests.simulator.live import play, write
from tests.simulator.machine import simulate
from tests.simulator.parameters import PRESETS, preset
from tests.simulator.sight import SIGHTS
from tests.simulator.truth import truth


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--preset", choices=sorted(PRESETS), default="steady")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--style", choices=sorted(SIGHTS), help="words of the log (default: the preset's)")
    parser.add_argument("--steps", type=int, help="length of the training (default: the preset's)")
    parser.add_argument(
        "--files", choices=["per_attempt", "append", "rotate"], help="(default: the preset's)"
    )
    parser.add_argument("--out", type=Path, required=True, help="folder to write to")
    parser.add_argument("--live", action="store_true", help="write in time with the clock")
    parser.add_argument("--speed", type=float, default=1000.0, help="simulated seconds to a second")
    given = parser.parse_args(arguments)
    changes = {"style": given.style, "total_steps": given.steps, "files": given.files}
    run = simulate(
        preset(given.preset, seed=given.seed, **{k: v for k, v in changes.items() if v is not None})
    )
    given.out.mkdir(parents=True, exist_ok=True)
    (given.out / "run.toml").write_text(config(run), encoding="utf-8")
    answer = truth(run)
    (given.out / "truth.json").write_text(json.dumps(answer.to_json(), indent=1) + "\n", encoding="utf-8")
    print(
        f"{len(run.attempts)} attempts, {answer.net_steps} net steps, goodput {answer.goodput or 0:.3f}, "
        f"as of {answer.as_of_us} us",
        file=sys.stderr,
    )
    if given.live:
        play(run, given.out, speed=given.speed, seed=given.seed)
    else:
        write(run, given.out)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
