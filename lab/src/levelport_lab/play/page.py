"""The page of ``levelport play``: Bokeh's widgets and figures around :func:`levelport_lab.play.scene.scene`.

Every change of a widget and every click makes a new :class:`State`; the scene that follows from it is drawn. A state
that makes no sense leaves the picture as it was, and a sentence beside the field says what is wrong. The server listens
on this machine alone, and its page loads nothing from elsewhere.
"""

from __future__ import annotations

import html
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from bokeh.document import Document
from bokeh.events import Tap
from bokeh.layouts import column, row
from bokeh.models import ColumnDataSource, CrosshairTool, Div, Range1d, Select, Slider, TextInput
from bokeh.plotting import figure
from bokeh.server.server import Server
from tornado.web import RequestHandler

from levelport_lab.pictures import BLACK, BLUE, GREY, ORANGE, PURPLE, RED
from levelport_lab.play.scene import (
    MAX_HVPS,
    SCHEDULES,
    TYPED,
    Descent,
    Line,
    Scene,
    State,
    landscape,
    names,
    scene,
)

ADDRESS = "127.0.0.1"
"""The page can be reached from this machine only."""

_TEMPLATE = """
{% block preamble %}
<meta name="viewport" content="width=device-width, initial-scale=1">
<style>
html { background: #fff; }
body { font-family: system-ui, sans-serif; color: #1a1a1a; }
/* At night the whole page is turned over, pictures too; hues stay what they are. */
@media (prefers-color-scheme: dark) { html { filter: invert(0.92) hue-rotate(180deg); } }
</style>
{% endblock %}
"""
_WRAPS = ":host { flex-wrap: wrap; gap: 12px; align-items: flex-start; }"
_TEXT = ":host, .bk-clearfix { font-size: 15px; line-height: 1.45; } p { margin: 0 0 6px; }"
_INTRODUCTION = (
    "<h1 style='font-size:22px;margin:4px 0'>levelport play</h1><p>Move a point to where the gradient is largest "
    "without raising the value, then go on with gradient descent. <b>Click into the picture</b> to start elsewhere.</p>"
)
_AUTOMATIC = "Radius of a teleport (0: derived from the problem)"
_CHOICE = {TYPED: "the one typed below"}


class Page:
    """One visitor's page. ``state`` is what the widgets say; wrong input never gets into it."""

    def __init__(self, state: State | None = None) -> None:
        self.state = State() if state is None else state
        choices = [(name, _CHOICE.get(name, name)) for name in names()]
        self.function = Select(name="function", title="Function", value=self.state.function, options=choices)
        self.expression = TextInput(
            name="expression", title="Or type one in x and y, and press Enter",
            placeholder="(1 - x)**2 + 10*(y - x**2)**2", value=self.state.expression,
        )  # fmt: skip
        self.error = Div(name="error", text="", visible=False, styles={"color": "#a33000"}, stylesheets=[_TEXT])
        self.max_hvps = Slider(
            name="max_hvps", title="Budget of a teleport in Hessian-vector products",
            start=1, end=MAX_HVPS, step=1, value=self.state.max_hvps,
        )  # fmt: skip
        self.radius = Slider(name="radius", title=_AUTOMATIC, start=0.0, end=20.0, step=0.1, value=0.0)
        self.schedule = Select(
            name="schedule", title="Teleports during the descent", value=self.state.schedule, options=[*SCHEDULES]
        )
        self.certificate = Div(name="certificate", stylesheets=[_TEXT])
        self.comparison = Div(name="comparison", stylesheets=[_TEXT])
        self._sources = {name: ColumnDataSource({"x": [], "y": []}) for name in _LAYERS}
        self.plane = _plane(self._sources)
        self.curves = _curves(self._sources)
        self._show(landscape(self.state).window)
        self._listen()

    def _listen(self) -> None:
        self.function.on_change("value", lambda _, __, name: self._choose(name))
        self.expression.on_change("value", lambda _, __, text: self._type(text))
        self.max_hvps.on_change("value_throttled", lambda _, __, count: self._change(max_hvps=int(count)))
        self.radius.on_change("value_throttled", lambda _, __, size: self._change(radius=float(size) or None))
        self.schedule.on_change("value", lambda _, __, name: self._change(schedule=name))
        self.plane.on_event(Tap, lambda event: self._change(start=(float(event.x), float(event.y))))

    def _choose(self, name: str) -> None:
        """A function was chosen: from its own start, with the radius of the one before forgotten."""
        if name == self.state.function:
            return
        try:
            start = landscape(replace(self.state, function=name)).start
        except ValueError as error:
            self._say(str(error))
            self.function.value = self.state.function
        else:
            self._change(function=name, start=start, radius=None)

    def _type(self, text: str) -> None:
        """An expression was typed: where it can be read it is the function from now on."""
        try:
            start = landscape(State(TYPED, text)).start
        except ValueError as error:
            self._say(str(error))
        else:
            fresh = {} if self.state.function == TYPED else {"start": start, "radius": None}
            self._change(function=TYPED, expression=text, **fresh)

    def _change(self, **settings: Any) -> None:
        """Take the new settings if they make sense; say what is wrong otherwise."""
        before = self.state
        try:
            self.state = replace(before, **settings)
            self._show(landscape(self.state).window)
        except ValueError as error:
            self.state = before
            self._say(str(error))

    def _say(self, sentence: str) -> None:
        self.error.text, self.error.visible = html.escape(sentence), bool(sentence)

    def _show(self, window: tuple[float, float, float, float]) -> None:
        shown = scene(self.state)
        for name, data in _layers(shown).items():
            self._sources[name].data = data
        left, right, bottom, top = shown.window
        self.plane.x_range.update(start=left, end=right)
        self.plane.y_range.update(start=bottom, end=top)
        self.plane.title.text = f"{shown.landscape.name}; shaded: no higher than the start"
        self.curves.yaxis.axis_label = shown.reference
        for item in self.plane.legend[0].items:
            item.visible = item.label.value != "minimum" or bool(shown.landscape.minimizers)
        self.certificate.text = _paragraphs("The teleport", shown.certificate)
        self.comparison.text = _paragraphs("Gradient descent at equal cost", shown.comparison)
        self.function.value = self.state.function
        self.radius.update(end=float(round(max(window[1] - window[0], window[3] - window[2]), 1)))
        self.radius.value = self.state.radius or 0.0
        self._say("")

    def layout(self) -> Any:
        """Controls, picture and sentences side by side where there is room, under each other on a phone."""
        controls = column(
            Div(text=_INTRODUCTION, stylesheets=[_TEXT]), self.function, self.expression, self.error, self.max_hvps,
            self.radius, self.schedule, sizing_mode="stretch_width", styles=_share(280),
        )  # fmt: skip
        picture = column(self.plane, sizing_mode="stretch_width", styles=_share(340, 2))
        results = column(
            self.certificate, self.curves, self.comparison, sizing_mode="stretch_width", styles=_share(320, 1.4)
        )
        for parts in (controls, picture, results):
            for part in parts.children:
                part.sizing_mode = "stretch_width"
        return row(
            controls, picture, results, sizing_mode="stretch_width", stylesheets=[_WRAPS], styles={"padding": "8px"}
        )


def _share(least: int, weight: float = 1.0) -> dict[str, str]:
    """A third of the row, no narrower than ``least`` pixels; what has no room goes to the next row."""
    return {"flex": f"{weight} 1 {least}px", "min-width": f"min({least}px, 94vw)"}


_LAYERS = (
    "shade", "contours", "rim", "without", "with", "leaps", "jumps", "trails", "iterates", "start", "end", "minimizers",
    "cost without", "cost with",
)  # fmt: skip


def _plane(sources: dict[str, ColumnDataSource]) -> figure:
    plane = figure(
        name="plane", height=520, x_range=Range1d(-1, 1), y_range=Range1d(-1, 1), tools="", toolbar_location=None,
        x_axis_label="x", y_axis_label="y", title="",
    )  # fmt: skip
    plane.add_tools(CrosshairTool(line_color=GREY, line_alpha=0.4))
    plane.grid.visible = False
    plane.multi_polygons("x", "y", source=sources["shade"], color="#ececec", line_color=None)
    plane.multi_line("x", "y", source=sources["contours"], color="#b8b8b8", line_width=0.7)
    plane.multi_line("x", "y", source=sources["rim"], color="#595959", line_width=1.5)
    plain, teleported = {"color": BLUE, "legend_label": "descent"}, {"color": ORANGE, "legend_label": "with teleports"}
    plane.multi_line("x", "y", source=sources["without"], line_width=2, line_dash="dashed", **plain)
    plane.multi_line("x", "y", source=sources["with"], line_width=2, **teleported)
    plane.multi_line("x", "y", source=sources["leaps"], line_width=1.5, line_dash="dotted", **teleported)
    solver = {"color": PURPLE, "legend_label": "solver"}
    plane.multi_line("x", "y", source=sources["jumps"], line_dash="dotted", line_width=1.5, **solver)
    plane.multi_line("x", "y", source=sources["trails"], line_width=1.5, **solver)
    plane.scatter("x", "y", source=sources["iterates"], size=5, **solver)
    plane.scatter("x", "y", source=sources["minimizers"], marker="cross", size=13, color=BLACK, legend_label="minimum")
    plane.scatter(
        "x", "y", source=sources["start"], marker="square", size=10, color=BLACK, line_color="white",
        legend_label="start",
    )  # fmt: skip
    plane.scatter(
        "x", "y", source=sources["end"], marker="star", size=19, color=RED, line_color="white",
        legend_label="teleported",
    )  # fmt: skip
    _legend_below(plane, columns=3)
    return plane


def _curves(sources: dict[str, ColumnDataSource]) -> figure:
    curves = figure(
        name="curves", height=250, y_axis_type="log", tools="", toolbar_location=None,
        x_axis_label="gradient equivalents spent",
    )  # fmt: skip
    curves.line(
        "x", "y", source=sources["cost without"], color=BLUE, line_width=2, line_dash="dashed", legend_label="descent"
    )
    curves.line("x", "y", source=sources["cost with"], color=ORANGE, line_width=2, legend_label="with teleports")
    curves.yaxis.ticker.num_minor_ticks = 0  # a dozen decades: minor ticks would be a black bar
    _legend_below(curves, columns=2)
    return curves


def _legend_below(picture: figure, columns: int) -> None:
    """Never over the picture: a legend inside hides points that are clicked on."""
    legend = picture.legend[0]
    legend.update(ncols=columns, border_line_color=None, label_text_font_size="12px", margin=0, padding=2)
    picture.add_layout(legend, "below")


def _layers(shown: Scene) -> dict[str, dict[str, list[Any]]]:
    """Columns for every layer of the pictures."""
    without, with_teleports = shown.descents
    pieces = [[[ring[:, axis].tolist() for ring in piece] for piece in shown.shade] for axis in (0, 1)]
    iterates = [tuple(point) for trail in shown.trails for point in trail.tolist()]
    return {
        "shade": {"x": [[piece] for piece in pieces[0]], "y": [[piece] for piece in pieces[1]]},
        "contours": _lines(shown.contours),
        "rim": _lines(shown.rim),
        "without": _lines(without.legs),
        "with": _lines(with_teleports.legs),
        "leaps": _lines(with_teleports.leaps),
        "jumps": _lines(shown.jumps),
        "trails": _lines(shown.trails),
        "iterates": _points(iterates),
        "start": _points([shown.start]),
        "end": _points([shown.end]),
        "minimizers": _points(shown.landscape.minimizers),
        "cost without": _curve(without, shown.floor, known=shown.minimum is not None),
        "cost with": _curve(with_teleports, shown.floor, known=shown.minimum is not None),
    }


def _lines(lines: Iterable[Line]) -> dict[str, list[Any]]:
    kept = list(lines)
    return {"x": [line[:, 0].tolist() for line in kept], "y": [line[:, 1].tolist() for line in kept]}


def _points(points: Iterable[tuple[float, ...]]) -> dict[str, list[Any]]:
    kept = list(points)
    return {"x": [point[0] for point in kept], "y": [point[1] for point in kept]}


def _curve(descent: Descent, floor: float, *, known: bool) -> dict[str, list[Any]]:
    """Return f - ``floor`` over the cost.

    Above a minimum it ends at 1e-14 of where it began: below that it is rounding. Where ``floor`` is no minimum but the
    lowest value of the descents themselves, the point at which one of them meets it is left out: a fall to zero there
    would say nothing about the descent.
    """
    gaps = descent.values - floor
    if known:
        gaps = np.maximum(gaps, max(1e-14 * gaps[0], 1e-300))
    return {"x": descent.costs[gaps > 0.0].tolist(), "y": gaps[gaps > 0.0].tolist()}


def _paragraphs(title: str, sentences: Iterable[str]) -> str:
    lines = "".join(f"<p>{html.escape(sentence)}</p>" for sentence in sentences)
    return f"<h2 style='font-size:17px;margin:4px 0'>{title}</h2>{lines}"


def _visit(document: Document) -> None:
    document.title = "levelport play"
    document.template = _TEMPLATE  # type: ignore[assignment,unused-ignore]  # text is taken, too, whatever Bokeh declares
    document.add_root(Page().layout())


class _Refusal(RequestHandler):
    """The answer to a request for another host: a page from elsewhere whose name was made to point at this machine."""

    def prepare(self) -> None:
        self.set_status(403)
        self.finish("levelport play answers requests for localhost only.\n")


def serve(port: int) -> Server:
    """Return the server, listening but not yet answering: ``server.io_loop.start()`` starts it. Port 0: any free one.

    Bokeh compares the Origin of WebSockets with localhost; the Host of every request is compared here.
    """
    server = Server({"/": _visit}, port=port, address=ADDRESS)
    server._tornado.add_handlers(r"(?!(localhost|127\.0\.0\.1)$).*", [(r".*", _Refusal)])
    return server
