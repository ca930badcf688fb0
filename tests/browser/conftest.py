"""A real Chromium, its witness, axe, and a sidecar to look at.

What is missing skips with its reason; with CI set it fails.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser.world import World, begin, end, follow
from tests.conftest import need
from tests.test_sidecar import until

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

FLAGS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PHONE = {"width": 360, "height": 740}
DESK = {"width": 1200, "height": 900}


@dataclass(slots=True)
class Witness:
    """A page of the browser, and all that it said and asked for."""

    page: Page
    said: list[str] = field(default_factory=list)
    """Errors and warnings of the console, and exceptions that nobody caught."""
    asked: list[str] = field(default_factory=list)
    """Address of every request."""

    def ask(self) -> None:
        """Let the page ask for what is new now, as it does when its tab is looked at again."""
        self.page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    def ask_until(self, condition: Callable[[], bool], otherwise: str) -> None:
        """Let it ask until something is so."""

        def so() -> bool:
            self.ask()
            self.page.wait_for_timeout(100)
            return condition()

        until(so, otherwise, limit_s=60)


@pytest.fixture(scope="session")
def chromium() -> Iterator[Browser]:
    """One browser for all tests of this worker, with a fresh profile of its own."""
    path = shutil.which("chromium")
    need(path is not None, "chromium is not installed (Debian package chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=[*FLAGS], headless=True)
        yield browser
        browser.close()


@pytest.fixture
def look(chromium: Browser) -> Iterator[Callable[..., Witness]]:
    """Open an address: `look(url, color_scheme="dark", viewport=PHONE)`."""
    contexts = []

    def one(url: str, *, wait: bool = True, **more: Any) -> Witness:
        context = chromium.new_context(**{"viewport": DESK, **more})
        contexts.append(context)
        witness = Witness(context.new_page())
        page = witness.page
        page.on(
            "console",
            lambda message: (
                witness.said.append(f"{message.type}: {message.text}")
                if message.type in {"error", "warning"}
                else None
            ),
        )
        page.on("pageerror", lambda error: witness.said.append(f"uncaught: {error}"))
        page.on("request", lambda request: witness.asked.append(request.url))
        page.goto(url)
        if wait:
            page.wait_for_load_state("load")
        return witness

    yield one
    for context in contexts:
        context.close()


@pytest.fixture(scope="session")
def axe(request: pytest.FixtureRequest) -> str:
    """The source of axe-core, which npm brings once into pytest's cache folder."""
    npm = shutil.which("npm")
    need(npm is not None, "npm is not installed (Debian package npm), so axe-core cannot be had")
    assert request.config.cache is not None
    folder = request.config.cache.mkdir("axe-core")
    source = folder / "node_modules" / "axe-core" / "axe.min.js"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes
        if not source.exists():
            done = subprocess.run(
                [
                    npm, "install", "--prefix", str(folder), "--no-save", "--no-package-lock",
                    "--no-audit", "--no-fund", "--silent", "axe-core@4",
                ],
                capture_output=True, text=True, timeout=120, env={**os.environ, "CI": ""},
            )  # fmt: skip
            need(done.returncode == 0, f"npm could not bring axe-core: {done.stderr.strip()[-200:]}")
    return source.read_text(encoding="utf-8")


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """The demo's run as it would be now, followed by a sidecar; tests only look at it."""
    world = begin(tmp_path_factory.mktemp("demo"))
    yield world
    end(world)


@pytest.fixture
def worlds(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Begin runs of a test's own: a preset, or what a folder holds; all end with the test."""
    made: list[World] = []

    def one(what: str | Path, *options: str, **more: Any) -> World:
        if isinstance(what, Path):
            made.append(follow(what, *options))
        else:
            made.append(begin(tmp_path / f"run{len(made)}", what, **more))
        return made[-1]

    yield one
    for world in made:
        end(world)
