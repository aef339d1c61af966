"""``levelport play``: a page on this machine to play with level sets, teleports and descent."""

from __future__ import annotations

import signal
from typing import Annotated

import typer

from levelport_lab.cli.messages import echo, errors_as_sentences


def play(
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port on this machine; 0 takes any free one.")] = 5006,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the address and open nothing.")] = False,
) -> None:
    """Open a page to play with: choose or type a function, click a start, see level set, teleport and descent.

    The page is served to this machine alone, until Ctrl-C.
    """
    try:
        from levelport_lab.play.page import serve
    except ModuleNotFoundError as error:
        if error.name is None or error.name.split(".")[0] != "bokeh":
            raise
        echo("levelport play needs the package 'bokeh'. Install it with: pip install 'levelport-lab[play]'", error=True)
        raise typer.Exit(2) from error
    try:
        server = serve(port)
    except OSError as error:
        raise typer.BadParameter(
            f"nothing can listen on port {port}: {error.strerror}. Choose another, or 0 for any that is free.",
            param_hint="--port",
        ) from error
    url = f"http://localhost:{server.port}/"
    echo(f"levelport play: {url} (Ctrl-C ends it)")
    server.start()
    if not no_browser:
        server.io_loop.add_callback(typer.launch, url)
    # Ctrl-C, and the end of a service; a shell script starts its background jobs deaf to the former.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with errors_as_sentences():
        try:
            server.io_loop.start()
        except KeyboardInterrupt:
            echo("The page is closed.")
        finally:
            server.stop()
