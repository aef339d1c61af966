"""``levelport teleport`` and the assembled command: what it prints, draws and refuses."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image
from typer.testing import CliRunner

import levelport
from levelport_lab.claims import NOT_THERE, Claim
from levelport_lab.cli import app
from levelport_lab.cli.reproduce import _print_claims

runner = CliRunner(env={"COLUMNS": "160", "NO_COLOR": "1", "TERM": "dumb"})


def run(*arguments: str) -> tuple[int, str]:
    result = runner.invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    # Boxes around error messages break lines; words are what matters.
    return result.exit_code, " ".join(re.sub("[│╭╮╰╯─]", " ", result.output).split())


def test_certificate_of_booth_is_the_closed_form() -> None:
    # f = 92.25 at (7.5, -4), λ_max = 18: ‖∇f‖ = sqrt(2 · 18 · 92.25) = 57.6281 and 1/λ = 0.0555556.
    code, text = run("teleport", "booth", "--start", "7.5,-4")
    assert code == 0
    assert "converged" in text
    assert "92.25 → 92.25" in text
    assert "20.1246 → 57.6281" in text
    assert "0.0555556" in text
    assert re.search(r"curvature λ\W+18\b", text)
    assert re.search(r"\d+ values?, \d+ gradients?, \d+ Hessian-vector products?", text)


def test_where_the_gradient_vanishes_the_curvature_is_not_known() -> None:
    code, text = run("teleport", "booth", "--start", "1,3")
    assert code == 0
    assert "none: the curvature is not known here" in text


def test_where_the_curvature_is_negative_there_is_no_newton_step() -> None:
    code, text = run("teleport", "himmelblau", "--start", "0,0.01", "--max-hvps", "1")
    assert code == 0
    assert "none: the curvature is not positive" in text


@pytest.mark.parametrize("solver", ["auto", "sqp", "slsqp", "trust-constr"])
def test_every_solver_has_a_name(solver: str) -> None:
    code, text = run("teleport", "booth", "--solver", solver, "--max-hvps", "30")
    assert code == 0
    assert f"booth with {solver}" in text
    gain = float(re.search(r"gain\W+([\d.]+)", text)[1])  # type: ignore[index]
    assert 1.0 < gain <= 2.863565  # Booth's largest possible gain is 57.628118/20.124612


def test_negative_coordinates() -> None:
    code, text = run("teleport", "himmelblau", "--start", "-1,2")
    assert code == 0
    assert "from (-1, 2) to" in text


def test_more_than_two_coordinates_where_the_function_takes_them() -> None:
    assert run("teleport", "rosenbrock", "--start", "-1.2,1,1", "--max-hvps", "20")[0] == 0


@pytest.mark.parametrize("solver", ["auto", "sqp", "slsqp"])
def test_picture(solver: str, tmp_path: Path) -> None:
    path = tmp_path / "new" / "gp.png"
    code, text = run("teleport", "goldstein-price", "--solver", solver, "--plot", str(path))
    assert code == 0
    assert "picture:" in text
    assert "was not there and has been made" in text
    assert [file.name for file in path.parent.iterdir()] == ["gp.png"]  # no temporary file beside it
    with Image.open(path) as picture:
        assert min(picture.size) > 600
        assert len(set(picture.convert("RGB").resize((200, 200)).tobytes())) > 50  # not a blank page


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("teleport", "boot"), "Did you mean 'booth'?"),
        (("teleport", "booth", "--solver", "sqpp"), "Did you mean 'sqp'"),
        (("telport", "booth"), "No such command 'telport'"),
        (("teleport", "booth", "--start", "1,two"), "is not a list of numbers"),
        (("teleport", "booth", "--start", "nan,2"), "every coordinate must be a finite number"),
        (("teleport", "booth", "--start", "1,inf"), "every coordinate must be a finite number"),
        (("teleport", "booth", "--start", "1,2,3"), "booth takes 2 coordinates, and --start has 3"),
        (("teleport", "rosenbrock", "--start", "1,2,3", "--plot", "x.png"), "only functions of two variables"),
        (("teleport", "booth", "--max-hvps", "0"), "max_hvps must be at least 1"),
        (("teleport", "booth", "--start", "1e200,1"), "the value or the gradient at the start is not finite"),
        (("teleport", "booth", "--plot", "."), "and '.' does not"),
        (("teleport", "booth", "--plot", "x.nonsense"), "pictures end in .png"),
        (("demo", "--out", "/proc/no/such"), "cannot write to"),
        (("theory", "booth", "--plot", "x.nonsense"), "pictures end in .png"),
        (("reproduce", "fig8", "--set", "digits"), "digits has more than two classes"),
        (("reproduce", "fig8", "--reg", "nan"), "reg must"),
        (
            ("reproduce", "fig8", "--reg", "0.1", "--reg", "7"),
            "7 is none of the paper's penalties, which are 0.1, 0.01, 0.001, 0.0001, 1e-05, 1e-06",
        ),
        (
            ("reproduce", "fig17", "--set", "ozone"),
            "fig17 has none of the data sets asked for (ozone); at the quick tier it has chess-krvkp, ionosphere",
        ),
        (("diagnose", "booth", "--reg", "0.1"), "--reg has no effect on booth, which has no penalty"),
        (("theory", "quadratic/10", "--reg", "0.1"), "--reg has no effect on quadratic/10"),
        (("diagnose", "foo/bar"), "There is no model 'foo'"),
        (("theory", "foo/bar"), "There is no model 'foo'"),
        (("report", "--to", "claims.md"), "a name that ends in .html, not 'claims.md'"),
        (("teleport", "rosenbrock", "--start", "3"), "rosenbrock takes 2 coordinates, and --start has 1"),
        (("reproduce", "all", "nosuch"), "There is no figure 'nosuch'"),
        (("reproduce", "list", "nosuch"), "There is no figure 'nosuch'"),
        (("reproduce", "fig1", "--to", "x.zip"), "only 'levelport reproduce export' writes such a file"),
        (("problems", "optimum", "logreg/nosuch"), "There is no data set 'nosuch'"),
        (("problems", "optimum", "logreg/blood", "--reg", "-1"), "reg must be a finite number"),
        (("diagnose", "quadratic/10", "--seed", "9" * 20), "9223372036854775807"),
    ],
)
def test_what_is_wrong_is_named_and_ends_with_2(arguments: tuple[str, ...], words: str) -> None:
    code, text = run(*arguments)
    assert code == 2
    assert words in text


def test_the_list_of_figures_may_be_a_part_of_it() -> None:
    code, text = run("reproduce", "list", "fig1", "8")
    assert code == 0
    assert re.findall(r"\bfig\d+(?= [A-Z])", text) == ["fig1", "fig8"]
    assert "quick / full:" in text


def test_open_claims_say_whether_anything_ran(capsys: pytest.CaptureFixture[str]) -> None:
    seen = "the smoke tier decides nothing (it saw: {})"
    _print_claims(
        [
            Claim("one", None, seen.format("3 of 4")),
            Claim("two", None, seen.format(NOT_THERE)),
            Claim("three", True, "4"),
        ]
    )
    assert capsys.readouterr().out.splitlines() == [
        "not decided: one",
        "    the smoke tier decides nothing (it saw: 3 of 4)",
        "not run: two",
        f"    {NOT_THERE}",
        "holds: three",
        "    4",
    ]


def test_version() -> None:
    assert run("--version") == (0, f"levelport {levelport.__version__}")


HELP = """
import sys
from levelport_lab.cli import app
for command in ([], {groups}):
    for words in command if command else [[]]:
        try: app([*words, '--help'])
        except SystemExit: pass
print('LOADED', sorted({{'torch', 'numpy', 'pandas', 'matplotlib', 'sklearn', 'scipy', 'bokeh'}} & set(sys.modules)))
"""
COMMANDS = (
    "teleport",
    "interval",
    "demo",
    "play",
    "theory",
    "diagnose",
    "reproduce",
    "report",
    "bench",
    "data",
    "problems",
)


def test_help_of_every_command_loads_nothing_heavy() -> None:
    groups = [[name] for name in COMMANDS]
    groups += [["data", "list"], ["data", "fetch"], ["problems", "list"], ["problems", "optimum"]]
    arguments = [sys.executable, "-c", HELP.format(groups=groups)]
    result = subprocess.run(arguments, capture_output=True, text=True, timeout=600, check=True)
    for command in COMMANDS:
        assert re.search(rf"\b{command}\b", result.stdout), command
    assert "LOADED []" in result.stdout
