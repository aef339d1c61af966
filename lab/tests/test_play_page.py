"""The page's widgets without a browser, and what the command says when it cannot serve."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from levelport_lab.cli import app


def test_without_bokeh_the_command_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "levelport_lab.play.page", raising=False)
    for name in [name for name in sys.modules if name.split(".")[0] == "bokeh"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "bokeh", None)
    result = CliRunner().invoke(app, ["play", "--no-browser"])
    assert result.exit_code == 2
    assert "pip install 'levelport-lab[play]'" in result.output


def test_a_port_that_is_taken_is_named() -> None:
    pytest.importorskip("bokeh", reason="the page needs bokeh: pip install 'levelport-lab[play]'")
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        # A process of its own: tornado leaves the socket that it could not bind to the garbage collector.
        arguments = [sys.executable, "-m", "levelport_lab", "play", "--no-browser", "--port", str(port)]
        environment = os.environ | {"COLUMNS": "200"}
        result = subprocess.run(arguments, capture_output=True, text=True, timeout=600, env=environment, check=False)
    assert result.returncode == 2
    assert f"nothing can listen on port {port}" in result.stderr


def test_it_listens_on_this_machine_alone() -> None:
    pytest.importorskip("bokeh", reason="the page needs bokeh: pip install 'levelport-lab[play]'")
    from levelport_lab.play.page import serve

    server = serve(0)
    try:
        listening = list(server._http._sockets.values())
        assert [one.getsockname()[0] for one in listening] == ["127.0.0.1"]
    finally:
        server.start()
        server.stop()
        server.io_loop.close(all_fds=True)


def test_wrong_input_leaves_the_picture_and_right_input_replaces_it() -> None:
    pytest.importorskip("bokeh", reason="the page needs bokeh: pip install 'levelport-lab[play]'")
    from levelport_lab.play.page import Page

    page = Page()
    shown = page.certificate.text
    page.function.value = "typed"  # with nothing typed
    assert "empty" in page.error.text
    assert page.function.value == "booth"
    page.expression.value = "x <script>"
    assert "&lt;" in page.error.text
    assert "<" not in page.error.text
    assert page.certificate.text == shown
    page.expression.value = "log(x) + y^2"
    assert (page.error.text, page.function.value) == ("", "typed")
    before = page.state
    page._change(start=(-1.0, 0.0))
    assert "Click where it is defined" in page.error.text
    assert page.state == before
    page.radius.trigger("value_throttled", 0.0, 0.5)  # what the browser sends when the slider is let go
    page.max_hvps.trigger("value_throttled", 50, 7)
    assert (page.state.radius, page.state.max_hvps) == (0.5, 7)
    page.function.value = "beale"
    assert (page.state.start, page.state.radius, page.radius.value) == ((1.0, 1.0), None, 0.0)
    assert page.layout() is not None
