"""Draw the pictures of README and home page, or check that the committed ones are still true.

    python tools/draw_pictures.py              writes docs/pictures/
    python tools/draw_pictures.py --check      draws them again and fails if the committed ones differ

Each file carries, as a comment of its format, everything that its axes show: lines and words. The check compares this
with a drawing by the code as it is: points may differ by 2 % of the axis, numbers in words by 2 %. The images are
compared as well, scaled down so far that fonts and antialiasing do not matter; so a file cannot keep a true comment
beside a stale picture.
"""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from PIL import Image, PngImagePlugin
from torch import Tensor

import levelport
from levelport_lab.level_sets import draw_level_sets
from levelport_lab.orings import forest, probabilities
from levelport_lab.pictures import BLACK, BLUE, ORANGE
from levelport_lab.problems.functions import function_named

PICTURES = Path(__file__).resolve().parents[1] / "docs" / "pictures"
TOLERANCE = 0.02
"""Of an axis, and of a number in words."""
SHADE = 10.0
"""Largest difference of a scaled-down pixel, of 255."""


# --- the pictures -----------------------------------------------------------------------------------------------------

Frames = tuple[Figure, int, Callable[[int], None]]
"""A figure, the number of its frames, and what draws one of them."""


def new_figure(width: float, height: float) -> Figure:
    """A figure that needs no screen."""
    figure = Figure(figsize=(width, height), dpi=90, layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def teleport() -> Frames:
    """Gradient descent on Booth's function, alone and after a teleport, against what they cost."""
    booth, carried, hold = function_named("booth"), 10, 12
    start = torch.tensor(booth.start, dtype=torch.float64)
    bottom = torch.tensor(booth.minimizers[0], dtype=torch.float64)
    result = levelport.teleport(booth, start)
    price = result.cost.gradient_equivalents
    steps = max(28, round(price) + 4)
    plain = [start]
    for _ in range(steps):  # half the longest stable step: λ_max = 18
        plain.append(plain[-1] - torch.func.grad(booth)(plain[-1]) / 18)
    landed = result.x - torch.func.grad(booth)(result.x) / result.curvature

    def on_level(share: float) -> Tensor:
        """A point between start and end with the start's value; along a ray f grows with the squared distance."""
        ray = torch.lerp(start, result.x, share) - bottom
        return bottom + ray * (result.value_start / booth(bottom + ray)) ** 0.5

    arc = torch.stack([on_level(share) for share in np.linspace(0.0, 1.0, carried)])
    figure = new_figure(7.4, 3.7)
    plane, curves = figure.subplots(1, 2, width_ratios=[1.15, 1.0])
    draw_level_sets(plane, booth, (-7.5, 9.5, -5.5, 11.5), minimum=booth.minimum, level=float(booth(start)))
    plane.plot(*start.tolist(), "s", color=BLACK, ms=7)
    plane.plot(*bottom.tolist(), "+", color=BLACK, ms=12, mew=2)
    plane.set(xticks=[], yticks=[], xlabel="w₀", ylabel="w₁", title="level sets of f")
    curves.set(yscale="log", xlim=(-0.5, steps + 0.5), ylim=(1e-13, 1e3), title="f − f*", xlabel="cost in gradients")
    (blue,) = plane.plot([], [], "s-", color=BLUE, ms=4, label="gradient descent, step 1/λmax")
    (dashed,) = plane.plot([], [], "--", color=ORANGE, lw=2, label=f"teleport: {price:g} gradients")
    (orange,) = plane.plot([], [], "o-", color=ORANGE, ms=6, label="one step of size 1/λ")
    (blue_gap,) = curves.plot([], [], "s-", color=BLUE, ms=4)
    (orange_gap,) = curves.plot([], [], "o-", color=ORANGE, ms=5)
    plane.legend(loc="upper right", fontsize="small")

    def gaps(points: list[Tensor]) -> list[float]:
        return [max(float(booth(x)) - booth.minimum, 1e-12) for x in points]

    def draw(frame: int) -> None:
        spent = steps * min(frame / (steps + 1), 1.0)
        a = plain[: int(spent) + 1]
        blue.set_data(*torch.stack(a).T.numpy())
        blue_gap.set_data(range(len(a)), gaps(a))
        share = min(spent / price, 1.0)
        dashed.set_data(*arc[: max(1, round(share * carried))].T.numpy())
        on_way, there = [0.0, min(spent, price)], [start, start]
        if spent >= price + 1.0:
            orange.set_data(*torch.stack([result.x, landed]).T.numpy())
            on_way, there = [*on_way, price + 1.0], [*there, landed]
        orange_gap.set_data(on_way, gaps(there))

    return figure, steps + 2 + hold, draw


def intervals() -> Frames:
    """Likelihood intervals of a small logistic regression, with the Wald intervals beside."""
    return forest(probabilities()), 1, lambda frame: None


DRAWN: dict[str, Callable[[], Frames]] = {"teleport.gif": teleport, "intervals.png": intervals}


# --- writing and checking ---------------------------------------------------------------------------------------------


def drawing(frames: Frames) -> tuple[list[Image.Image], list[Any]]:
    """The images of all frames, and what the axes show in the last one."""
    figure, count, draw = frames
    images = []
    for frame in range(count):
        draw(frame)
        buffer = io.BytesIO()
        figure.savefig(buffer, format="png")
        images.append(Image.open(buffer).convert("RGB"))
    return images, [shown(axes) for axes in figure.axes]


def shown(axes: Axes) -> dict[str, Any]:
    """What axes show: words, and points relative to the axes."""
    to_axes = axes.transData + axes.transAxes.inverted()
    words = [axes.get_title(), axes.get_xlabel(), axes.get_ylabel(), *(text.get_text() for text in axes.texts)]
    words += [label.get_text() for label in [*axes.get_xticklabels(), *axes.get_yticklabels()]]
    if legend := axes.get_legend():
        words += [text.get_text() for text in legend.get_texts()]
    drawn = [np.asarray(line.get_xydata(), dtype=float) for line in axes.lines]
    drawn += [part for parts in axes.collections if isinstance(parts, LineCollection) for part in parts.get_segments()]
    lines = [np.round(to_axes.transform(points), 4).tolist() for points in drawn]
    return {"words": words, "lines": lines}


def write(path: Path, images: list[Image.Image], content: list[Any]) -> None:
    """Images and what they show, in one file."""
    text = json.dumps(content, ensure_ascii=True, separators=(",", ":"))
    if path.suffix == ".gif":
        colours = images[-1].quantize(128)
        shown = [images[-1], *images]  # where nothing moves, on paper for example, the end of the run is seen
        first, *rest = (image.quantize(palette=colours, dither=Image.Dither.NONE) for image in shown)
        first.save(
            path,
            save_all=True,
            append_images=rest,
            duration=[1500, *(200 for _ in images)] if len(images) > 1 else 200,
            loop=0,
            comment=text.encode(),
            optimize=True,
        )
    else:
        info = PngImagePlugin.PngInfo()
        info.add_text("Comment", text)
        images[-1].save(path, pnginfo=info, optimize=True)


def read(path: Path) -> tuple[list[Image.Image], list[Any]]:
    """What ``write`` wrote: first and last frame, and the content."""
    with Image.open(path) as image:
        text = image.info.get("comment", b"") if path.suffix == ".gif" else image.info.get("Comment", "")
        count = getattr(image, "n_frames", 1)
        frames = []
        for frame in (min(1, count - 1), count - 1):
            image.seek(frame)
            frames.append(image.convert("RGB"))
    return frames, json.loads(text) if text else []


def differences(path: Path, images: list[Image.Image], content: list[Any]) -> list[str]:
    """How the committed file differs from a drawing; empty if it is true."""
    if not path.exists():
        return ["is missing"]
    frames, said = read(path)
    found = [] if len(said) == len(content) else ["has other axes"]
    for i, (old, new) in enumerate(zip(said, content, strict=False)):
        if not _same_words(old["words"], new["words"]):
            gone, come = set(old["words"]) - set(new["words"]), set(new["words"]) - set(old["words"])
            found.append(f"axes {i}: says {sorted(gone)}, and the code {sorted(come)}")
        shapes = [len(line) for line in old["lines"]] == [len(line) for line in new["lines"]]
        apart = (
            max((_apart(a, b) for a, b in zip(old["lines"], new["lines"], strict=True)), default=0.0)
            if shapes
            else np.inf
        )
        if apart > TOLERANCE:
            found.append(f"axes {i}: lines differ by {apart:.3g} of the axis")
    for frame, new in zip(frames, (images[0], images[-1]), strict=True):
        shade = float(np.abs(_small(frame) - _small(new)).max())
        if shade > SHADE:
            found.append(f"a frame differs by {shade:.0f} of 255 shades")
    return found


def _small(image: Image.Image) -> Any:
    return np.asarray(image.convert("L").resize((24, 12), Image.Resampling.BOX), dtype=float)


def _apart(a: list[list[float]], b: list[list[float]]) -> float:
    return float(np.abs(np.clip(a, -0.5, 1.5) - np.clip(b, -0.5, 1.5)).max()) if a else 0.0


def _same_words(old: list[str], new: list[str]) -> bool:
    number = re.compile(r"\d+(?:\.\d+)?")
    if [number.sub("#", text) for text in old] != [number.sub("#", text) for text in new]:
        return False
    pairs = zip(number.findall(" ".join(old)), number.findall(" ".join(new)), strict=True)
    return all(abs(float(a) - float(b)) <= TOLERANCE * abs(float(a)) for a, b in pairs)


def main() -> None:
    stale = {}
    for name, draw in DRAWN.items():
        images, content = drawing(draw())
        if "--check" in sys.argv:
            stale[name] = differences(PICTURES / name, images, content)
        else:
            write(PICTURES / name, images, content)
            print(f"{PICTURES / name}: {(PICTURES / name).stat().st_size / 1e3:.0f} kB")
    if any(stale.values()):
        lines = [f"{name}: {line}" for name, found in stale.items() for line in found]
        sys.exit(
            "\n".join([*lines, "Pictures are stale: run python tools/draw_pictures.py, look at them, and commit."])
        )


if __name__ == "__main__":
    main()
