"""The root causes of the catalogue's event lines: at least 95 % as a person would name them."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.causes import PAGE, STORIES, Story, judged, page
from tracker.core.records import CAUSES


@pytest.mark.parametrize(
    "story",
    [
        pytest.param(
            story,
            id=f"{story.group}: {story.name}",
        )
        for story in STORIES
    ],
)
def test_a_story_has_the_cause_that_a_person_would_name(story: Story) -> None:
    """Cause and kind, and the line that proves it is one of the story's own."""
    stop = judged(story)

    assert stop is not None
    assert (stop.cause, stop.kind) == (story.cause, story.kind)
    if not story.kube and not story.sacct:
        assert stop.evidence.strip() in story.log + story.kernel


def test_the_stories_are_many_and_of_many_causes() -> None:
    """Every group of the catalogue; few enough are misread."""
    assert len(STORIES) >= 70
    assert len({(story.group, story.name) for story in STORIES}) == len(STORIES)
    assert {story.cause for story in STORIES} <= set(CAUSES)
    assert len(Counter(story.cause for story in STORIES)) >= 15


def test_the_page_is_what_the_code_makes_of_them() -> None:
    """docs/causes.md is generated: `python -m tests.causes`."""
    assert PAGE.read_text(encoding="utf-8") == page()
