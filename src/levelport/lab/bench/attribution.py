"""What makes ``minimize`` fast: the teleport, or the quasi-Newton step inside it? Under a minute, not a test.

    python -m levelport.lab.bench.attribution [--out docs/results]

The default teleport of ``minimize`` (:class:`~levelport.solvers.recycled.Recycled`) descends by a
quasi-Newton model and climbs from there until the gradient is larger than before. The control descends the same way
and does *not* climb: it is no teleport, because the gradient may shrink, and everything else is the same. If the
control is as fast, the climb, which is what makes it a teleport, is not what pays. Certified teleports, which really
maximise the gradient norm, are run next to both. Logistic regression as in :mod:`levelport.lab.bench.comparison`.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from levelport import Auto
from levelport.lab.bench.comparison import CONTESTANTS, as_text, compare
from levelport.lab.bench.competitors import Competitor, competitor_named, descent
from levelport.optim import Armijo, Every, Jump

MAX_COST = 20_000.0
STRENGTHS = (1e-6, 1e-3)

EXTRA = (
    Competitor(
        "GD-Armijo + certified teleport every 50 steps",
        descent(Armijo(), teleport=Every(50, start=5), jump=Jump("auto", max_hvps=50)),
    ),
    Competitor(
        "GD-Armijo + certified teleport every step",
        descent(Armijo(), teleport=Every(1), jump=Jump(Auto(explore=1), max_hvps=50)),
    ),
    competitor_named("the same without the climb"),
)


def main() -> None:
    """Measure and write attribution.md."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--out", type=Path, default=Path("docs/results"), help="directory for the report")
    out: Path = parser.parse_args().out
    parts = [
        "# What makes `minimize` fast\n",
        "Written by `levelport bench attribution`. Logistic regression on scikit-learn's breast-cancer data, from",
        "0: gradient equivalents (value ½, gradient 1, HVP 2), at most 20000, until (f - f*)/(f0 - f*) falls to each",
        "accuracy. The default teleport of `minimize` takes up to ten quasi-Newton steps and climbs back until the",
        "gradient has grown; it is not certified. *The same without the climb* is the control: where it is as",
        "fast as `minimize`, the speed is that of the quasi-Newton steps and no merit of teleporting. The model has",
        "sixty pairs of vectors, so L-BFGS-B runs with its default of ten and with sixty. *Certified* teleports",
        "maximise the gradient norm with `Auto`. Only this data set and two penalties were measured.\n",
    ]
    for reg in STRENGTHS:
        parts += [f"## reg {reg:g}\n", as_text(compare(reg, (*CONTESTANTS, *EXTRA), max_cost=MAX_COST)), ""]
    out.mkdir(parents=True, exist_ok=True)
    (out / "attribution.md").write_text("\n".join(parts), encoding="utf-8")
    print("\n".join(parts))


if __name__ == "__main__":
    main()
