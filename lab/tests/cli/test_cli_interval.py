"""``levelport interval``: the numbers of R's confint in shape, JSON, a picture, and refusals in words."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

from levelport_lab.cli import app

runner = CliRunner(env={"COLUMNS": "200", "NO_COLOR": "1", "TERM": "dumb"})


def run(*arguments: str) -> tuple[int, str]:
    result = runner.invoke(app, ["interval", *arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.output


def test_statsmodels_likelihood_at_the_ends() -> None:
    """At a certified end of w0 the profile likelihood of statsmodels has fallen by the rise."""
    statsmodels = pytest.importorskip("statsmodels.api", reason="statsmodels is not installed: make integrations")
    from levelport_lab import problem
    from levelport_lab.problems.benchmark_problem import with_ones

    code, text = run("logreg/pima", "--rise", "1.92", "--quantity", "w0", "--json")
    assert code == 0
    (found,) = json.loads(text)["quantities"]
    train = problem("logreg/pima").train
    X, y = with_ones(train.inputs).numpy(), (train.targets.numpy() + 1) / 2
    best = statsmodels.Logit(y, X).fit(disp=False).llf
    for end in (found["lower"], found["upper"]):
        offset = end * X[:, 0]
        rest = statsmodels.GLM(y, X[:, 1:], offset=offset, family=statsmodels.families.Binomial()).fit()
        assert best - rest.llf == pytest.approx(1.92, rel=2e-3)


def test_table_and_picture(tmp_path: Path) -> None:
    picture = tmp_path / "forest.png"
    code, text = run("logreg/pima", "--plot", str(picture))  # 95 % by default
    assert code == 0
    assert "penalty 0" in text
    assert "95 %" in text
    assert text.count("certified") == 9
    with Image.open(picture) as image:
        assert image.size[0] > 400


def test_collinear_columns_are_unbounded_and_predictions_are_not() -> None:
    code, text = run("logreg/blood", "--confidence", "0.95", "--quantity", "w1", "--quantity", "p3", "--json")
    assert code == 0
    coefficient, probability = json.loads(text)["quantities"]
    assert coefficient["lower"] is coefficient["upper"] is None
    assert coefficient["lower_status"] == "unbounded"
    assert 0.0 < probability["lower"] < probability["estimate"] < probability["upper"] < 1.0
    assert probability["upper_status"] == "certified"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("logreg/ionosphere", "--rise", "1"), "no finite maximum"),
        (("mlp-relu-100-100/blood", "--rise", "1"), "two classes"),
        (("logreg/blood", "--rise", "1", "--confidence", "0.9"), "exactly one of rise and confidence"),
        (("logreg/blood", "--rise", "1", "--quantity", "zz"), "'zz' is not a quantity"),
        (("logreg/blood", "--rise", "1", "--quantity", "p99999"), "p0 to p148"),
        (("logreg/blood", "--rise", "-1"), "rise"),
        (("logreg/blood", "--confidence", "1e-300"), "confidence must lie between"),
        (("logreg/blood", "--rise", "1", "--plot", "x.doc"), "x.doc"),
    ],
)
def test_refusals(arguments: tuple[str, ...], words: str) -> None:
    code, text = run(*arguments)
    assert code == 2
    assert words in " ".join(text.replace("│", " ").split())
