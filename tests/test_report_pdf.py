"""The printed report: tagged, fonts in it, the same bytes each time; and when it cannot be made."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pypdf
import pytest

from reports.draw import png, svg
from reports.page import Drawing, Figure, Page, Section
from reports.typst_page import document
from tests.report_states import page_in
from tests.test_report import blocks, hostile_page, page_of_story, tables
from tracker import rendering
from tracker.rendering import NotRendered, pdf, pictures

A4_PT, LETTER_PT = (595.3, 841.9), (612.0, 792.0)


def opened(body: bytes) -> pypdf.PdfReader:
    return pypdf.PdfReader(io.BytesIO(body))


def words(reader: pypdf.PdfReader) -> str:
    """The text of all pages, blanks and breaks as one blank."""
    return " ".join(" ".join(page.extract_text() for page in reader.pages).split())


def plain(text: str) -> str:
    return " ".join(text.replace("\N{NO-BREAK SPACE}", " ").split())


@pytest.fixture(scope="module")
def small() -> bytes:
    """A small page, printed."""
    return pdf(page_of_story())


@pytest.mark.slow
def test_it_is_tagged_and_says_what_it_is(small: bytes) -> None:
    reader = opened(small)
    root: Any = reader.trailer["/Root"].get_object()

    assert small.startswith(b"%PDF-")
    assert root["/MarkInfo"]["/Marked"]
    assert root["/Lang"] == "en"
    assert "/StructTreeRoot" in root
    assert b"pdfuaid:part" in reader.trailer["/Root"].get_object()["/Metadata"].get_object().get_data()
    assert reader.metadata is not None
    assert reader.metadata.title == page_of_story().title
    assert reader.metadata.creation_date is not None


@pytest.mark.slow
def test_all_fonts_are_embedded(small: bytes) -> None:
    found = 0
    for page in opened(small).pages:
        for font in page["/Resources"]["/Font"].values():  # type: ignore[index]
            inner = font.get_object()["/DescendantFonts"][0].get_object()["/FontDescriptor"].get_object()
            assert {"/FontFile", "/FontFile2", "/FontFile3"} & set(inner)
            found += 1
    assert found


@pytest.mark.slow
def test_every_figure_has_its_words(small: bytes) -> None:
    """Alternative texts stand in the structure tree, as they stand on the page value."""

    def walk(node: Any) -> list[str]:
        node = node.get_object() if hasattr(node, "get_object") else node
        if isinstance(node, list):
            return [text for child in node for text in walk(child)]
        if not isinstance(node, dict):
            return []
        own = [str(node["/Alt"])] if "/Alt" in node else []
        return own + (walk(node["/K"]) if "/K" in node else [])

    told = {plain(text) for text in walk(opened(small).trailer["/Root"]["/StructTreeRoot"])}  # type: ignore[index]
    assert {plain(figure.alt) for figure in page_of_story().figures()} <= told


@pytest.mark.slow
@pytest.mark.parametrize("name", ["first-hour", "behind-plan"])
def test_the_printed_text_is_the_pages(name: str) -> None:
    """Verdict, sections and every cell of every table are there as text, on at most four pages."""
    page = page_in(name)
    reader = opened(pdf(page))
    text = words(reader)

    assert len(reader.pages) <= 4
    assert plain(page.verdict) in text
    for section in page.sections[1:]:
        assert section.title in text
    for table in tables(page):
        for row in table.rows:
            assert all(plain(cell)[:24] in text for cell in row)
    assert f"1 of {len(reader.pages)}" in text


@pytest.mark.slow
def test_the_paper_is_the_one_asked_for(small: bytes) -> None:
    """A4 without a word, US Letter when asked."""
    letter = pdf(replace(page_of_story(), sections=()), paper="letter")

    for body, size in ((small, A4_PT), (letter, LETTER_PT)):
        box = opened(body).pages[0].mediabox
        assert (float(box.width), float(box.height)) == pytest.approx(size, abs=0.5)


@pytest.mark.slow
def test_the_same_page_gives_the_same_bytes_in_another_process(small: bytes) -> None:
    """Each call is a child of its own; the seed of its hashes and its zone are no input."""
    again = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; from tests.test_report import page_of_story; from tracker.rendering import pdf\n"
            "sys.stdout.buffer.write(pdf(page_of_story()))",
        ],
        env={**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "SOURCE_DATE_EPOCH": "1"},
        cwd=Path(__file__).parents[1],
        capture_output=True,
        check=True,
    )
    assert again.stdout == small


@pytest.mark.slow
def test_hostile_text_prints_as_text() -> None:
    """Neither markup nor code nor a formula: what a log says stands on the page, or a box for it."""
    text = words(opened(pdf(hostile_page())))

    assert "<script>alert(1)</script>" in text
    assert '#panic("y") $z$' in text
    assert "\x1b" not in text
    assert "\u202e" not in text


@pytest.mark.slow
def test_a_character_without_a_glyph_is_a_box() -> None:
    page = replace(page_of_story(), run="run \N{TEST TUBE} 模型/“x”", sections=())
    text = words(opened(pdf(page)))

    assert "run □ □□/“x”" in text
    assert "□ stands for a character that the fonts of this PDF do not have" in text.replace("\n", " ")
    assert "stands for a character" not in words(opened(pdf(replace(page, run="run x"))))


def test_a_drawing_gives_the_same_svg_each_time() -> None:
    drawings = [figure.drawing for figure in page_of_story().figures()]

    assert drawings
    for drawing in drawings:
        assert svg(drawing, width_mm=120) == svg(drawing, width_mm=120)


def test_words_of_a_figure_stay_words_in_its_svg() -> None:
    figure = next(block for block in blocks(page_of_story()) if isinstance(block, Figure))
    text = svg(figure.drawing, width_mm=120).decode()

    for panel in figure.drawing.panels:
        assert f">{panel.title}</text>" in text
    assert not re.search(r"\d{4}-\d\d-\d\dT", text)


def test_a_picture_for_mail_is_a_png_of_the_width_asked_for() -> None:
    figure = next(page_of_story().figures())
    body = png(figure.drawing, width_px=800)

    assert body.startswith(b"\x89PNG")
    assert abs(int.from_bytes(body[16:20], "big") - 800) <= 1


def test_figures_that_are_asked_for_and_not_there_are_left_out() -> None:
    assert pictures(page_of_story(), ["nothing"], width_px=100) == {}


def test_two_figures_that_are_tall_stand_in_a_row() -> None:
    page = page_of_story()
    figure = next(page.figures())
    tall = replace(figure, drawing=replace(figure.drawing, height_ratio=0.6))
    both = replace(page, sections=(Section(name="s", title="S", blocks=(tall, replace(tall, name="g"))),))

    kinds = [block["kind"] for block in document(both, paper="a4")["sections"][0]["blocks"]]
    assert kinds == ["pair"]


# -- when it cannot be made -------------------------------------------------------------------------


def failing(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """Let the child be a program of ours."""
    real = subprocess.Popen

    def begin(command: list[str], **more: Any) -> Any:
        return real([sys.executable, "-c", code], **more)

    monkeypatch.setattr(rendering.subprocess, "Popen", begin)


def test_a_child_that_takes_too_long_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "import time; time.sleep(60)")

    with pytest.raises(NotRendered, match=r"the PDF took longer than 0\.3 s and was ended"):
        pdf(page_of_story(), limit_s=0.3)


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "import sys; print('typst is missing', file=sys.stderr); sys.exit(1)",
            "could not be made: typst is",
        ),
        ("import os; os.kill(os.getpid(), 9)", "its process was ended by SIGKILL and said nothing"),
        ("print('hello')", "what came back is none"),
    ],
    ids=["says why", "killed", "talks nonsense"],
)
def test_a_child_that_fails_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    failing(monkeypatch, code)

    with pytest.raises(NotRendered, match=said):
        pdf(page_of_story())


def test_without_typst_the_message_says_what_to_install(tmp_path: Path) -> None:
    """The child meets an installation without typst: one line, no traceback."""
    (tmp_path / "typst.py").write_text(
        "raise ModuleNotFoundError(\"No module named 'typst'\", name='typst')\n"
    )
    ended = subprocess.run(
        [sys.executable, "-m", "tracker.cli.pdf_child"],
        input=rendering.msgspec.json.encode({
            "make": "pdf",
            "document": document(page_of_story(), paper="a4"),
        }),
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        check=False,
    )

    assert ended.returncode == 1
    assert ended.stderr.decode().strip().splitlines() == [
        "typst is missing (No module named 'typst'): pip install typst"
    ]


@pytest.mark.parametrize("name", ["typst", "matplotlib"])
def test_the_doctor_says_what_is_missing_for_a_pdf(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """One clear sentence each, and none where a page came out."""
    assert rendering.trouble() == ""
    real = rendering.find_spec
    monkeypatch.setattr(rendering, "find_spec", lambda asked: None if asked == name else real(asked))

    assert rendering.trouble() == f"the PDF cannot be made: {name} is not installed: pip install {name}"


def test_the_doctor_says_that_a_font_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Spec:
        submodule_search_locations = (str(tmp_path),)

    monkeypatch.setattr(rendering, "find_spec", lambda asked: Spec())
    assert "DejaVu Sans is missing" in rendering.trouble()


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (
            "raise ImportError('invalid ELF header', name='typst')",
            "typst cannot be loaded (invalid ELF header): pip install --force-reinstall typst",
        ),
        ("import os; os.kill(os.getpid(), 11)", "its process was ended by SIGSEGV and said nothing"),
        ("", "AttributeError: module 'typst' has no attribute 'compile'"),
    ],
    ids=["its binary is broken", "it crashes", "it is another package"],
)
def test_a_typst_that_is_there_and_broken_is_found_by_trying(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: str, said: str
) -> None:
    """A page is really made: that it is installed says little."""
    (tmp_path / "typst.py").write_text(code)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))

    assert rendering.trouble() == f"the PDF could not be made: {said}"


def test_an_empty_page_is_plain_data() -> None:
    page = Page(
        title="t", run="r", as_of_us=0, as_of="a", state="waiting", verdict="v", tone="plain", sections=()
    )

    assert document(page, paper="letter")["paper"] == "us-letter"
    assert not any(isinstance(value, Drawing) for value in document(page, paper="a4").values())
