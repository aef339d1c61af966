"""``levelport play`` in a browser: the command serves the page, and clicks, expressions and nonsense get an answer.

Chromium is driven by its DevTools protocol, through the WebSocket client of tornado, which Bokeh brings along.
"""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("bokeh", reason="the page needs bokeh: pip install 'levelport-lab[play]'")
from tornado.websocket import websocket_connect

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed here")

PATIENCE = 600.0
"""Seconds; a page takes two or three, on a busy machine a minute."""


@pytest.fixture
def url() -> Iterator[str]:
    """The address that the command prints."""
    arguments = [sys.executable, "-m", "levelport_lab", "play", "--port", "0", "--no-browser"]
    environment = os.environ | {"COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    server = subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment)
    with server:
        try:
            assert server.stdout is not None
            line = server.stdout.readline()
            assert line.startswith("levelport play: http://localhost:"), line
            yield line.split()[2]
            server.terminate()
            said, _ = server.communicate(timeout=PATIENCE)
        finally:
            server.kill()
    assert said.strip() == "The page is closed."
    assert server.returncode == 0


@pytest.fixture
def debugger(tmp_path: Path) -> Iterator[str]:
    """The WebSocket of the first tab of a headless Chromium."""
    assert CHROMIUM is not None
    browser = subprocess.Popen(
        [CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-port=0", "--no-first-run",
         "--remote-allow-origins=*", f"--user-data-dir={tmp_path}", "about:blank"],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        written = tmp_path / "DevToolsActivePort"
        deadline = time.monotonic() + PATIENCE
        while not (written.exists() and written.read_text().count("\n")):
            assert time.monotonic() < deadline, "Chromium has not opened its debugging port"
            time.sleep(0.1)
        port = written.read_text().split()[0]
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/json") as answer:
            tabs = json.load(answer)
        yield next(tab["webSocketDebuggerUrl"] for tab in tabs if tab["type"] == "page")
    finally:
        browser.terminate()
        browser.wait(PATIENCE)


DEEP = """
function deep(root, wanted) {
  for (const node of root.querySelectorAll('*')) {
    if (node.matches(wanted)) return node;
    if (node.shadowRoot) { const found = deep(node.shadowRoot, wanted); if (found) return found; }
  }
  return null;
}
"""
"""Bokeh's widgets live in shadow trees, which a plain query does not enter."""


class Tab:
    """A tab of the browser, as a user sees and uses it."""

    def __init__(self, connection: Any) -> None:
        self._connection = connection
        self._number = 0
        self.errors: list[str] = []

    async def send(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._number += 1
        await self._connection.write_message(json.dumps({"id": self._number, "method": method, "params": parameters}))
        while True:
            message = json.loads(await asyncio.wait_for(self._connection.read_message(), PATIENCE))
            if message.get("method") == "Runtime.exceptionThrown":
                self.errors.append(str(message["params"]["exceptionDetails"]))
            if message.get("id") == self._number:
                assert "error" not in message, message
                return message["result"]

    async def ask(self, script: str) -> Any:
        result = await self.send("Runtime.evaluate", expression=script, returnByValue=True)
        return result["result"].get("value")

    async def text(self, name: str) -> str:
        """What a part of the page says."""
        return await self.ask(f"window.Bokeh?.documents?.[0]?.get_model_by_name('{name}')?.text ?? ''")

    async def until(self, name: str, fragment: str) -> str:
        """Wait until a part of the page says it."""
        deadline, text = time.monotonic() + PATIENCE, ""
        while time.monotonic() < deadline:
            text = await self.text(name)
            if fragment in text:
                return text
            await asyncio.sleep(0.1)
        raise AssertionError(f"{name} never said {fragment!r}; it says {text!r}")

    async def click(self, x: float, y: float) -> None:
        for kind in ("mouseMoved", "mousePressed", "mouseReleased"):
            button = {} if kind == "mouseMoved" else {"button": "left", "clickCount": 1}
            await self.send("Input.dispatchMouseEvent", type=kind, x=x, y=y, **button)

    async def click_plane(self, x: float, y: float) -> None:
        """Click at a point of the picture, given in its own coordinates."""
        at = await self.ask(
            "(() => { const view = Bokeh.index.find_one_by_id(Bokeh.documents[0].get_model_by_name('plane').id);"
            "const box = view.canvas_view.el.getBoundingClientRect();"
            f"const frame = view.frame; return [box.left + frame.x_scale.compute({x}),"
            f" box.top + frame.y_scale.compute({y})]; }})()"
        )
        await self.click(*at)

    async def type(self, text: str) -> None:
        """Replace what the field says, and press Enter."""
        await self.ask(DEEP + "{const field = deep(document, 'input[type=text]'); field.focus(); field.select();}")
        await self.send("Input.insertText", text=text)
        enter = {"key": "Enter", "code": "Enter", "windowsVirtualKeyCode": 13}
        await self.send("Input.dispatchKeyEvent", type="keyDown", text="\r", **enter)
        await self.send("Input.dispatchKeyEvent", type="keyUp", **enter)

    async def picture(self, name: str, width: int, height: int) -> None:
        """A screenshot at this width, into the directory that LEVELPORT_PICTURES names, to look at."""
        phone = width < 600
        await self.send(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=phone
        )
        # Nothing may stick out sideways once the page is laid out anew: a phone would have to scroll.
        deadline = time.monotonic() + PATIENCE
        while await self.ask("document.documentElement.scrollWidth") > width:
            assert time.monotonic() < deadline, f"the page is wider than {width}"
            await asyncio.sleep(0.1)
        if directory := os.environ.get("LEVELPORT_PICTURES"):
            shot = await self.send("Page.captureScreenshot", format="png", captureBeyondViewport=True)
            Path(directory, f"{name}.png").write_bytes(base64.b64decode(shot["data"]))


async def visit(url: str, debugger: str) -> None:
    connection = await websocket_connect(debugger, max_message_size=2**28)
    try:
        await use(Tab(connection), url)
    finally:
        connection.close()


async def use(tab: Tab, url: str) -> None:
    await tab.send("Runtime.enable")
    await tab.send("Network.enable")
    await tab.send("Emulation.setDeviceMetricsOverride", width=1280, height=800, deviceScaleFactor=1, mobile=False)
    await tab.send("Page.navigate", url=url)
    await tab.until("certificate", "From (7.5, -4) to")
    await tab.picture("desktop", 1280, 900)

    await tab.click_plane(-5.0, 5.0)
    said = await tab.until("certificate", "From (-")
    assert "From (-5" in said or "From (-4.9" in said

    await tab.type("sin(x) + y^2/4 + 0.1*x^2")
    await tab.until("certificate", "From (2, 1) to")
    assert await tab.ask("Bokeh.documents[0].get_model_by_name('function').value") == "typed"
    await tab.picture("typed", 1280, 900)

    before = await tab.text("certificate")
    await tab.type("__import__('os').getcwd() + x")
    await tab.until("error", "has no meaning here")
    await tab.type("foo(x) + <b>")
    await tab.until("error", "&lt;")
    await tab.type("sinn(x)")
    await tab.until("error", "Did you mean")
    assert await tab.text("certificate") == before
    await tab.picture("phone", 390, 2100)

    await tab.type("x^2 + y^4")
    await tab.until("certificate", "The teleport")
    deadline = time.monotonic() + PATIENCE
    while await tab.text("error") != "":
        assert time.monotonic() < deadline
        await asyncio.sleep(0.1)
    elsewhere = "performance.getEntriesByType('resource').map(r => r.name).filter(n => !n.startsWith(location.origin))"
    assert [name for name in await tab.ask(elsewhere) if not name.startswith("data:")] == []
    assert tab.errors == []


def test_click_type_and_wrong_input(url: str, debugger: str) -> None:
    asyncio.run(visit(url, debugger))
