"""Showing a sweep while it runs: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from datetime import timedelta

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from levelport_lab.engine.spec import RunSpec


class Progress:
    """Told of every task that is finished; shows nothing."""

    def running(self, todo: Sequence[RunSpec]) -> AbstractContextManager[None]:
        """Around the whole sweep."""
        return contextlib.nullcontext()

    def finished(self, spec: RunSpec, *, failed: bool) -> None:
        """After each task."""


class ConsoleProgress(Progress):
    """A live bar with rate, failures and time left; off a terminal, a plain line every ``interval`` seconds.

    For the time left, tasks count by their forecast cost, because they differ by factors of 100.
    """

    def __init__(self, console: Console, title: str, interval: float = 10.0) -> None:
        self._console = console
        self._title = title
        self._interval = interval

    @contextlib.contextmanager
    def running(self, todo: Sequence[RunSpec]) -> Iterator[None]:
        """Show the bar until the sweep ends, however it ends."""
        self._todo, self._done, self._failures = len(todo), 0, 0
        self._cost = sum(spec.rough_seconds for spec in todo)
        self._cost_done = 0.0
        self._began = self._last_line = time.perf_counter()
        texts = TextColumn("{task.description}"), TextColumn("{task.fields[line]}")
        live = self._console.is_terminal and self._todo > 0
        with RichProgress(
            texts[0], BarColumn(), texts[1], TimeElapsedColumn(), console=self._console, disable=not live
        ) as self._bar:
            self._task = self._bar.add_task(self._title, total=self._todo, line="")
            yield
        if todo and not live:
            self._print_line()

    def finished(self, spec: RunSpec, *, failed: bool) -> None:
        """Move the bar."""
        self._done += 1
        self._failures += failed
        self._cost_done += spec.rough_seconds
        self._bar.update(self._task, advance=1, line=self.line(), refresh=True)
        if self._bar.disable and time.perf_counter() - self._last_line >= self._interval:
            self._print_line()

    def line(self) -> str:
        """For example ``57/70, 3.1/s, 0 failed, 0:02:05 left``."""
        elapsed = max(time.perf_counter() - self._began, 1e-9)
        rate = self._done / elapsed
        speed = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"
        left = timedelta(seconds=round((self._cost - self._cost_done) * elapsed / (self._cost_done or 1.0)))
        return f"{self._done}/{self._todo}, {speed}, {self._failures} failed, {left} left"

    def _print_line(self) -> None:
        self._last_line = time.perf_counter()
        self._console.print(f"{self._title}: {self.line()}", highlight=False)
