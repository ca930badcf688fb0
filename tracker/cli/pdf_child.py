"""The child that prints a page: `python -m tracker.cli.pdf_child`, a request as JSON in, a PDF (or PNGs) out.

Edge. Loads matplotlib and typst; bounds its own memory before it does. What goes wrong is one line on
standard error.
"""

from __future__ import annotations

import os
import resource
import sys
from typing import Any, Final

MEMORY_BYTES: Final = 2 << 30
"""Address space that it may take, fonts and libraries mapped; it holds some 120 MB."""


def main() -> int:
    """Print what standard input asks for."""
    _bound()
    import msgspec

    from reports.page import Drawing
    from reports.typst_page import each_drawing, pdf

    request: dict[str, Any] = msgspec.json.decode(sys.stdin.buffer.read())

    def drawing(said: Any) -> Drawing:
        return msgspec.convert(said, Drawing, strict=False)

    try:
        if request["make"] == "pdf":
            made = pdf(each_drawing(request["document"], drawing))
        else:
            from reports.draw import png

            made = msgspec.json.encode({
                name: png(drawing(said), width_px=request["width_px"])
                for name, said in request["figures"].items()
            })
    except ImportError as error:
        name = error.name or "a library of the PDF"
        whole = name.partition(".")[0] if error.name else "typst matplotlib"
        if isinstance(error, ModuleNotFoundError):
            print(f"{name} is missing ({error}): pip install {whole}", file=sys.stderr)
        else:
            said = f"{name} cannot be loaded ({_one_line(error)})"
            print(f"{said}: pip install --force-reinstall {whole}", file=sys.stderr)
        return 1
    except MemoryError:
        print("out of memory", file=sys.stderr)
        return 1
    except Exception as error:  # a bug of ours, or of what sets the page: the text report still goes out
        print(f"{type(error).__name__}: {_one_line(error)}", file=sys.stderr)
        return 1
    sys.stdout.buffer.write(made)
    sys.stdout.buffer.flush()
    return 0


def _one_line(error: Exception) -> str:
    said = [str(error)] + [str(hint) for hint in getattr(error, "hints", [])]
    text = "; ".join(part for part in said if part)
    return " ".join("".join(c if c.isprintable() or c == "\n" else "?" for c in text).split())[:300]


def _bound() -> None:
    """Never take more memory, or more of the processor, than a report should."""
    _, hard = resource.getrlimit(resource.RLIMIT_AS)
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, hard))
    for name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ.setdefault(name, "1")


if __name__ == "__main__":
    sys.exit(main())
