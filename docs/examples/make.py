"""Writes the examples of the report, each from a simulated run: `make examples`.

Edge: writes docs/examples/*.pdf and the first page of each as *.png.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parents[1]))

from reports.page import Page  # noqa: E402
from reports.typst_page import document, first_page, pdf  # noqa: E402
from tests.report_states import page_in  # noqa: E402
from tests.simulator import demo  # noqa: E402
from tracker import app, reporting  # noqa: E402
from tracker.cli._options import Moment  # noqa: E402

DOTS_PER_INCH = 64.0


def demo_page() -> Page:
    """Return the report of the bundled run, read from its logs into a new store."""
    run = demo.demo()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for path, body in demo.files(run).items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(body)
        config = app.load_config(folder / "run.toml")
        app.ingest_once(config, final=True)
        as_of_us = Moment().convert(demo.as_of(run), None, None)
        return reporting.page_of(app.daily_now(config, as_of_us=as_of_us), config)


def main() -> None:
    """Write all three."""
    for name, page in (
        ("demo", demo_page()),
        ("behind-plan", page_in("behind-plan")),
        ("moe-fp8", page_in("moe-fp8")),
    ):
        data = document(page, paper="a4")
        (HERE / f"{name}.pdf").write_bytes(pdf(data))
        (HERE / f"{name}.png").write_bytes(first_page(data, dots_per_inch=DOTS_PER_INCH))
        print(HERE / f"{name}.pdf")


if __name__ == "__main__":
    main()
