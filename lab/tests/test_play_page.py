"""The page's widgets without a browser, and what the command says when it cannot serve."""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import sys

import numpy as np
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


def test_requests_for_other_hosts_are_refused() -> None:
    """A page from elsewhere can have its own name point at this machine; the browser then says that name as Host."""
    pytest.importorskip("bokeh", reason="the page needs bokeh: pip install 'levelport-lab[play]'")
    arguments = [sys.executable, "-m", "levelport_lab", "play", "--port", "0", "--no-browser"]
    environment = os.environ | {"COLUMNS": "200", "PYTHONUNBUFFERED": "1"}
    expected = {"localhost": 200, "127.0.0.1:5006": 200, "attacker.example": 403, "localhost.attacker.example": 403}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True, env=environment) as server:
        try:
            assert server.stdout is not None
            port = int(server.stdout.readline().split()[2].strip("/").rpartition(":")[2])
            for path in ("/", "/static/js/bokeh.min.js"):
                for host, status in expected.items():
                    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
                    connection.request("GET", path, headers={"Host": host})
                    assert connection.getresponse().status == status, (path, host)
                    connection.close()
        finally:
            server.kill()


def test_curve_above_no_minimum_leaves_its_end_out() -> None:
    pytest.importorskip("bokeh", reason="the page needs bokeh: pip install 'levelport-lab[play]'")
    from levelport_lab.play.page import _curve
    from levelport_lab.play.scene import Descent

    descent = Descent("", [], [], np.arange(3.0), np.array([5.0, 2.0, 1.0]), False)
    assert _curve(descent, 1.0, known=False) == {"x": [0.0, 1.0], "y": [4.0, 1.0]}
    assert _curve(descent, 1.0, known=True) == {"x": [0.0, 1.0, 2.0], "y": [4.0, 1.0, 4e-14]}


def test_wrong_input_leaves_the_picture_as_it_is() -> None:
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
