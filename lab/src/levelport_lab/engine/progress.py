"""Showing a sweep while it runs: a live bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as RichProgress

from levelport_lab.engine.spec import RunSpec


class Progress:
    """Told of every task that is finished; shows nothing."""

    def running(self, todo: Sequence[RunSpec]) -> AbstractContextManager[None]:
        """Around the whole sweep."""
        return contextlib.nullcontext()

    def finished(self, spec: RunSpec, *, failed: bool) -> None:
        """After each task."""


class Forecast:
    """Rate, failures and time left. Tasks count by their forecast cost, because they differ by factors of 100."""

    def __init__(self, todo: Sequence[RunSpec]) -> None:
        self.total = len(todo)
        self.done = 0
        self.failures = 0
        self._cost_left = sum(spec.rough_seconds for spec in todo)
        self._cost_done = 0.0
        self._began = time.perf_counter()

    def finished(self, spec: RunSpec, *, failed: bool) -> None:
        """Count one task."""
        self.done += 1
        self.failures += failed
        self._cost_done += spec.rough_seconds
        self._cost_left -= spec.rough_seconds

    def line(self) -> str:
        """For example ``3.1/s, 0 failed, 2:05 left``."""
        elapsed = max(time.perf_counter() - self._began, 1e-9)
        rate = self.done / elapsed
        speed = f"{rate:.1f}/s" if rate >= 1 else f"{60 * rate:.1f}/min"
        if self._cost_done <= 0:
            return f"{speed}, {self.failures} failed"
        left = round(max(0.0, self._cost_left) * elapsed / self._cost_done)
        clock = (
            f"{left // 3600}:{left // 60 % 60:02}:{left % 60:02}" if left >= 3600 else f"{left // 60}:{left % 60:02}"
        )
        return f"{speed}, {self.failures} failed, {clock} left"


class ConsoleProgress(Progress):
    """A live bar with rate, failures and time left; off a terminal, a plain line every ``interval`` seconds."""

    def __init__(self, console: Console, title: str, interval: float = 10.0) -> None:
        self._console = console
        self._title = title
        self._interval = interval
        self._forecast = Forecast([])
        self._last_line = 0.0
        self._bar: RichProgress | None = None

    @contextlib.contextmanager
    def running(self, todo: Sequence[RunSpec]) -> Iterator[None]:
        """Show the bar until the sweep ends, however it ends."""
        self._forecast = Forecast(todo)
        self._last_line = time.perf_counter()
        if not todo:
            yield
            return
        if not self._console.is_terminal:
            yield
            self._print_line()
            return
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[line]}"),
            TimeElapsedColumn(),
        )
        with RichProgress(*columns, console=self._console) as self._bar:
            self._bar.add_task(self._title, total=len(todo), line="")
            try:
                yield
            finally:
                self._bar.refresh()
        self._bar = None

    def finished(self, spec: RunSpec, *, failed: bool) -> None:
        """Move the bar."""
        self._forecast.finished(spec, failed=failed)
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], advance=1, line=self._forecast.line())
        elif time.perf_counter() - self._last_line >= self._interval:
            self._print_line()

    def _print_line(self) -> None:
        self._last_line = time.perf_counter()
        done, total = self._forecast.done, self._forecast.total
        self._console.print(f"{self._title}: {done}/{total}, {self._forecast.line()}", highlight=False)
