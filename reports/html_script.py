"""The status page's one script: it asks for the page again and changes only what is different.

Pure: a constant text. It holds no address and no number; the page's `data-every` says how often, and a page
of another version is loaded whole. Scroll positions, open details, focus and selected text stay.
"""

from __future__ import annotations

import base64
import hashlib
from typing import Final

SCRIPT: Final = """
(() => {
"use strict";
const live = () => document.getElementById("live");
const version = d => d.documentElement.dataset.version;
const every = 1000 * (Number(live().dataset.every) || 5);
const lost = document.getElementById("lost");
let tag = "", timer = 0, busy = false, failed = 0;

// Bring an old node to what a new one says, in place.
function follow(old, now) {
  if (old.nodeType !== now.nodeType || old.nodeName !== now.nodeName || old.id !== now.id) {
    old.replaceWith(document.importNode(now, true));
    return;
  }
  if (old.nodeType !== 1) {
    if (old.data !== now.data) old.data = now.data;
    return;
  }
  if (old.isEqualNode(now)) return;
  for (const {name} of [...old.attributes])
    if (!now.hasAttribute(name) && name !== "open") old.removeAttribute(name);
  for (const {name, value} of now.attributes)
    if (name !== "open" && old.getAttribute(name) !== value) old.setAttribute(name, value);
  let at = old.firstChild;
  for (const next of [...now.childNodes]) {
    if (next.id && (!at || at.id !== next.id)) {
      const known = [...old.children].find(one => one.id === next.id);
      if (known) { old.insertBefore(known, at); at = known; }
      else { old.insertBefore(document.importNode(next, true), at); continue; }
    }
    if (!at) { old.append(document.importNode(next, true)); continue; }
    const after = at.nextSibling;
    follow(at, next);
    at = after;
  }
  while (at) { const after = at.nextSibling; at.remove(); at = after; }
}

function say(words) {
  if (lost.textContent !== words) lost.textContent = words;
  lost.hidden = !words;
}

async function ask() {
  clearTimeout(timer);
  if (busy || document.hidden) return;
  busy = true;
  try {
    const answer = await fetch(location.href, {
      headers: tag ? {"If-None-Match": tag} : {}, cache: "no-store", signal: AbortSignal.timeout(15000)});
    if (answer.status === 200) {
      const made = new DOMParser().parseFromString(await answer.text(), "text/html");
      const now = made.getElementById("live");
      if (!now || version(made) !== version(document)) { location.reload(); return; }
      tag = answer.headers.get("ETag") || "";
      if (document.title !== made.title) document.title = made.title;
      follow(live(), now);
    } else if (answer.status !== 304) {
      throw new Error(`the tracker answers ${answer.status}`);
    }
    failed = 0;
    say("");
  } catch (error) {
    failed += 1;
    if (failed > 1) say("The tracker does not answer: these are its last numbers. Trying again.");
  } finally {
    busy = false;
    timer = setTimeout(ask, every * Math.min(1 + failed, 6));
  }
}

document.addEventListener("visibilitychange", () => { if (!document.hidden) ask(); });
timer = setTimeout(ask, every);
})();
"""


def digest(source: str) -> str:
    """Return what a Content-Security-Policy calls an inline script or style by.

    >>> digest("")
    "'sha256-47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU='"
    """
    return f"'sha256-{base64.b64encode(hashlib.sha256(source.encode()).digest()).decode()}'"
