from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import minimize as scipy_minimize
from typer.testing import CliRunner

from levelport.solvers import SQP, Monitor, TeleportProblem
from levelport_lab.choices import Tier
from levelport_lab.cli import app
from levelport_lab.engine.backends import Backend
from levelport_lab.engine.runner import Plan
from levelport_lab.engine.spec import Run, RunStatus
from levelport_lab.engine.store import Store, TaskResult
from levelport_lab.paper import profile_studies
from levelport_lab.paper.methods import Method
from levelport_lab.paper.newton_studies import newton_stalls
from levelport_lab.paper.plane_studies import PlaneRun, UpdateGeometry
from levelport_lab.paper.profile_grid import BY_SIZE, Variant, best_value, half_of, released_optimum
from levelport_lab.paper.profile_studies import LogisticInitialisation, LogisticProfile, NetworkProfile
from levelport_lab.paper.registry import STUDIES, study_named
from levelport_lab.paper.reproduction import checked_claims, reproduce, stored_results
from levelport_lab.paper.study import Results, Setup, Study, heeded
from levelport_lab.paper.timed_studies import LogisticTimed
from levelport_lab.paper.training import Training
from levelport_lab.problems import REGULARIZATION, problem
from levelport_lab.problems.catalogue import UCI

FULL, SMOKE = Setup(tier="full"), Setup(tier="smoke")
RELEASED = Setup(tier="full", protocol="released")
ONE_OF_EACH_FAMILY = ("fig2", "fig3", "fig6", "fig8", "fig17")
"""The others differ by numbers only; ``levelport reproduce all --tier smoke`` runs them all."""


def test_there_is_a_study_for_every_figure() -> None:
    assert set(STUDIES) == {f"fig{number}" for number in range(1, 19)}


@pytest.mark.parametrize("name", ["fig8", "8", "Figure 8", "FIG8"])
def test_figures_by_name(name: str) -> None:
    assert study_named(name) is STUDIES["fig8"]


def test_misspelt_figure_gets_a_suggestion() -> None:
    with pytest.raises(ValueError, match=r"Did you mean 'fig8'"):
        study_named("fgi8")


def test_full_tier_is_the_paper() -> None:
    """120 problems, 500 iterations or 100 epochs, grids, schedules and tolerances of the experimental details."""
    deterministic = half_of("logreg", "deterministic", FULL)
    assert len(deterministic.problems()) == 120
    assert set(deterministic.sets) == set(UCI)
    assert deterministic.at == (5, 55, 105, 155, 205, 255, 305, 355)
    assert (deterministic.ticks, deterministic.batch, deterministic.tau) == (500, None, 0.15)
    stochastic = half_of("network", "stochastic", FULL)
    assert stochastic.at == (5, 15, 25, 35, 45, 55, 65, 75, 85, 95)
    assert (stochastic.ticks, stochastic.batch, stochastic.tau) == (100, 64, 0.05)
    assert half_of("network", "deterministic", FULL).tau == 0.1
    timed = half_of("logreg", "deterministic", FULL, longer=True)
    assert (timed.ticks, timed.at[-1], len(timed.at)) == (1000, 955, 20)
    assert half_of("logreg", "stochastic", FULL, initial=True).at == (0,)
    spec = deterministic.spec("logreg/blood", 1e-3, Variant(Method.SGD, "published"))
    assert spec.settings == (1000.0, 100.0, 10.0, 5.0, 2.0, 1.0, 1e-1, 1e-2, 1e-3, 1e-4)
    assert deterministic.spec("logreg/blood", 1e-3, Variant(Method.ARMIJO)).settings == (0.001, 0.01, 0.1, 0.5)


def test_released_protocol_is_the_authors_scripts() -> None:
    """Teleports after iteration k, their solver's mode, their starts, caps and batches."""
    plain = [Variant(method) for method in Method]
    released = half_of("logreg", "deterministic", RELEASED)
    assert released.at == (6, 56, 106, 156, 206, 256, 306, 356)
    teleported = released.spec("logreg/blood", 1e-3, Variant(Method.SGD, "published"))
    assert teleported.plan is not None
    assert teleported.plan.teleporter() == SQP(mode="released", final="last")
    for variant in plain:
        assert released.spec("logreg/blood", 1e-3, variant).protocol == "released"
    stochastic = half_of("network", "stochastic", RELEASED)
    assert stochastic.spec("mlp-relu-100-100/blood", 1e-3, plain[0]).protocol == "released"
    assert stochastic.precision == released.precision == "float32"
    timed = half_of("logreg", "deterministic", RELEASED, longer=True)
    assert timed.spec("logreg/blood", 1e-3, plain[0]).ticks == 20_000
    assert timed.spec("logreg/blood", 1e-3, Variant(Method.SGD, "ours")).ticks == 1000
    assert (timed.timed, timed.at[0], timed.at[-1]) == ("every", 6, 956)
    initial = half_of("logreg", "deterministic", RELEASED, initial=True)
    assert (initial.at, initial.admissible, released.admissible) == ((0,), 10.0, None)


def test_released_figures_have_their_own_data_and_settings() -> None:
    newton = [spec.problem for spec in STUDIES["fig16"].specs(RELEASED)]  # type: ignore[attr-defined]
    assert {name.split("/")[1] for name in newton} == {"breast-cancer", "horse-colic", "ozone"}
    mnist, batches = (STUDIES[name].specs(RELEASED)[-1] for name in ("fig5", "fig13"))
    assert isinstance(mnist, Training)
    assert isinstance(batches, Training)
    assert mnist.settings == (1.0, 1e-1, 1e-2, 1e-3, 1e-4, 1e-5)
    for name, without in (("fig5", True), ("fig13", True), ("fig14", False)):
        momentum = [spec for spec in STUDIES[name].specs(RELEASED) if getattr(spec, "method", None) is Method.MOMENTUM]
        assert all((1.0 not in spec.settings) is without for spec in momentum)  # type: ignore[attr-defined]
    assert (mnist.ticks, mnist.plan.at if mnist.plan else ()) == (50, (6, 16, 26, 36, 46))
    assert (batches.ticks, batches.plan.at if batches.plan else ()) == (10, (2, 4, 6, 8, 10))
    plane = STUDIES["fig1"].specs(replace(RELEASED, solvers=("published",)))[0]
    assert isinstance(plane, PlaneRun)
    assert plane.solver == "released"


def test_search_in_the_plane_takes_the_known_steps() -> None:
    """9 steps against 25 on Booth, from which it was inferred where the search begins."""
    booth = STUDIES["fig1"].specs(replace(RELEASED, solvers=("published",)))[0]
    plain, teleported, _ = booth.run()
    assert (plain.facts["steps_to_gap_1e-6"], teleported.facts["steps_to_gap_1e-6"]) == (25, 9)


def test_where_teleports_help_most_is_judged_by_shares() -> None:
    (conclusion,) = [one for one in STUDIES["fig5"].conclusions if one.name == "mnist-pronounced"]  # type: ignore[attr-defined]
    medians = {("mnist", method): (2.0, 1.5) for method in Method}
    medians["mnist", Method.ARMIJO] = medians["mnist", Method.NORMALIZED] = (0.2, 0.1)
    assert conclusion.check(medians)[0]
    medians["mnist", Method.SGD] = (2.0, 0.9)
    assert not conclusion.check(medians)[0]


def test_another_optimum_is_judged_on_pima_alone() -> None:
    (conclusion,) = [one for one in STUDIES["fig18"].conclusions if one.name == "fig18-pima"]  # type: ignore[attr-defined]
    medians = {("pima", Method.SGD): (1.0, 1.01), ("ringnorm", Method.SGD): (1.0, 2.0)}
    assert not conclusion.check(medians)[0]
    assert conclusion.check({("pima", Method.SGD): (1.0, 0.9)})[0]


def test_figures_can_be_restricted_to_data_sets_and_images() -> None:
    curves = STUDIES["fig18"].specs(replace(FULL, sets=("pima", "blood")))
    assert {spec.problem for spec in curves} == {"mlp-relu-100-100/pima"}  # type: ignore[attr-defined]
    part = replace(FULL, images=2000)
    for name in ("fig3", "fig5", "fig13", "fig14"):
        assert all("mnist-first-2000" in spec.label for spec in STUDIES[name].specs(part))
    once = STUDIES["fig5"].specs(replace(part, restarts=1))
    assert {spec.seed for spec in once} == {0}  # type: ignore[attr-defined]
    assert len(STUDIES["fig5"].specs(part)) == 3 * len(once)


def test_curves_of_different_solvers_are_not_thrown_together() -> None:
    """The table names whose teleports they were; how many there were is another matter."""
    study = STUDIES["fig17"]
    specs = [spec for spec in study.specs(SMOKE) if isinstance(spec, Training)]
    facts = {"teleports": 8.0, "hvps": 1.0, "seconds": 1.0, "final_loss": 0.5}
    run = Run(final_value=1.0, facts=facts, curves={"value": np.ones(2), "test_accuracy": np.ones(2)})
    table = study.table(SMOKE, Results({spec.key: TaskResult(spec.key, {}, (run,), 1.0, {}) for spec in specs}))
    assert sorted(set(table["teleports"])) == ["none", "ours", "published"]
    assert len(study.digest(table)) == len(specs)


def test_released_reference_needs_the_released_protocol() -> None:
    assert Setup(protocol="released", reference="released").reference == "released"
    with pytest.raises(ValueError, match="without its penalty"):
        Setup(reference="released")


def test_released_optima_are_all_there() -> None:
    found = [
        released_optimum(data, reg, network=network)
        for data in UCI
        for reg in (0.0, *REGULARIZATION)
        for network in (False, True)
    ]
    assert len(found) == 280
    assert min(found) >= 0.0
    assert released_optimum("blood", 1e-6, network=False) == pytest.approx(0.43948, abs=1e-5)
    with pytest.raises(ValueError, match=r"no f\* for blood"):
        released_optimum("blood", 0.5, network=False)


def test_released_f_star_of_blood_lies_below_the_infimum() -> None:
    """What the documentation says of them, on the smallest example: the loss never reaches the released number."""
    infimum = problem("logreg/blood", reg=0.0).optimum().lower_bound
    assert infimum == pytest.approx(0.4755, abs=1e-4)
    assert released_optimum("blood", 1e-6, network=False) < infimum


def test_exact_f_star_of_released_protocol_is_at_minimizer() -> None:
    half = half_of("logreg", "deterministic", RELEASED)
    named = problem("logreg/blood", reg=0.1)
    found = best_value(half, RELEASED, "logreg/blood", 0.1, 0.0)
    x = named.optimum().point()
    assert found == pytest.approx(replace(named, reg=0.0).objective().at(x).value, rel=1e-12)


def test_figures_that_share_runs_share_specifications() -> None:
    def keys(name: str) -> set[str]:
        return {spec.key for spec in STUDIES[name].specs(FULL)}

    assert keys("fig7") == keys("fig4")
    assert keys("fig17") <= keys("fig8")
    assert keys("fig18") <= keys("fig4")
    assert keys("fig15") | keys("fig16") == keys("fig6")
    # The plain runs of Figure 9 are those of Figure 8.
    assert len(keys("fig9") & keys("fig8")) == 2 * 5 * 120


def test_sets_are_sorted_by_size_and_can_be_restricted() -> None:
    sizes = [UCI[name].samples * UCI[name].features for name in BY_SIZE]
    assert sizes == sorted(sizes)
    setup = Setup(tier="full", sets=("blood",), regs=(1e-2,), solvers=("ours",), halves=("deterministic",))
    assert len(LogisticProfile().specs(setup)) == 2 * len(Method)


def test_protocols_have_runs_and_pages_of_their_own(tmp_path: Path) -> None:
    """They start at different points, so no run serves both; both rules of Figure 9 score the same runs."""
    study, text = LogisticInitialisation(), replace(SMOKE, solvers=("published",), halves=("deterministic",))
    released = replace(text, protocol="released")
    assert not {spec.key for spec in study.specs(text)} & {spec.key for spec in study.specs(released)}
    done = reproduce(study, released, tmp_path, Backend())
    assert len(done.table) == 2 * 2 * len(Method)
    assert set(done.table["first_loss"]) == {"own", "shared"}
    assert {path.parent.name for path in done.pictures} == {"fig9-released"}


@pytest.mark.parametrize("name", ONE_OF_EACH_FAMILY)
def test_smoke_tier_of(name: str, tmp_path: Path) -> None:
    """Runs, draws, tabulates and checks; a second start has nothing left to do and says the same."""
    study = STUDIES[name]
    lines: list[str] = []
    first = reproduce(study, SMOKE, tmp_path, Backend(), echo=lines.append)
    assert first.sweep.failures == {}
    assert all(path.stat().st_size > 3000 for path in first.pictures)
    assert {path.suffix for path in first.pictures} == {".png"}
    assert len(first.table) > 0
    directory = tmp_path / "smoke" / name
    assert len(pd.read_csv(directory / "table.csv")) == len(first.table)
    summary = json.loads((directory / "summary.json").read_text())
    assert summary["tasks"] == len(study.specs(SMOKE))
    assert {claim["holds"] for claim in summary["claims"]} <= {None}
    assert Plan.of(study.specs(SMOKE), Store(tmp_path)).todo == ()
    stored = Results(stored_results(study, SMOKE, Store(tmp_path)).results)
    pd.testing.assert_frame_equal(study.table(SMOKE, stored), first.table)


def result_of(study: Study, values: dict[tuple[Method, bool], list[float]]) -> tuple[Results, Setup]:
    """Results of a profile's smoke tier made up from curves per method, without and with teleports."""
    setup = Setup(tier="smoke", solvers=("ours",), halves=("deterministic",))
    by_key = {}
    for spec in study.specs(setup):
        curve = np.array(values[spec.method, spec.plan is not None])  # type: ignore[attr-defined]
        records = np.arange(len(curve), dtype=np.float64)
        curves = {"value": curve, "seconds": records + 1.0, "gradient_equivalents": records + 1.0}
        run = Run(setting=1.0, final_value=float(curve[-1]), curves=curves)
        by_key[spec.key] = TaskResult(spec.key, {}, (run,), 1.0, {})
    return Results(by_key), setup


@pytest.fixture
def optimum_zero(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pretend that f* = 0, so that made-up curves decide."""
    monkeypatch.setattr("levelport_lab.paper.profile_grid.best_value", lambda *_: 0.0)


SOLVES, FAILS = [1.0, 0.5, 0.1, 0.01], [1.0, 0.9, 0.8, 0.7]


@pytest.mark.usefixtures("optimum_zero")
@pytest.mark.parametrize(
    ("plain", "teleported", "helps", "harms"),
    [(SOLVES, SOLVES, True, False), (FAILS, SOLVES, True, False), (SOLVES, FAILS, False, True)],
)
def test_claims_follow_the_curves(plain: list[float], teleported: list[float], helps: bool, harms: bool) -> None:
    curves = {(m, with_): teleported if with_ else plain for m in Method for with_ in (False, True)}
    for study, expected in ((LogisticProfile(), helps), (LogisticInitialisation(), harms)):
        results, setup = result_of(study, curves)
        claim = next(claim for claim in study.claims(setup, results) if claim.name.startswith(f"{study.name}-determ"))
        assert claim.holds is expected


@pytest.mark.usefixtures("optimum_zero")
def test_one_method_that_loses_refutes_the_claim() -> None:
    study = LogisticProfile()
    curves = {(m, with_): SOLVES for m in Method for with_ in (False, True)}
    curves[Method.POLYAK, True] = FAILS
    results, setup = result_of(study, curves)
    claims = {claim.name: claim for claim in study.claims(setup, results)}
    assert claims["fig8-deterministic-ours"].holds is False
    assert "SPS 100% → 0%" in claims["fig8-deterministic-ours"].measured
    assert "SPS 2 → inf" in claims["fig8-half-deterministic-ours"].measured
    assert claims["fig8-half-deterministic-ours"].holds is False
    assert claims["fig8-momentum-deterministic-ours"].holds is True


@pytest.mark.usefixtures("optimum_zero")
@pytest.mark.parametrize("moderate", [True, False])
def test_penalty_claims_follow_the_curves(moderate: bool) -> None:
    """Teleports solve at the middle penalty alone, or at the largest alone; plain momentum solves at both ends."""
    study, regs = STUDIES["fig7"], (0.1, 1e-3, 1e-6)
    setup = Setup(tier="smoke", solvers=("ours",), halves=("deterministic",), regs=regs)
    by_key = {}
    for spec in study.specs(setup):
        assert isinstance(spec, Training)
        plain = spec.method is Method.MOMENTUM and spec.reg != 1e-3
        solved = plain if spec.plan is None else spec.reg == (1e-3 if moderate else 0.1)
        curves = {"value": np.array(SOLVES if solved else FAILS), "seconds": np.arange(4.0)}
        by_key[spec.key] = TaskResult(spec.key, {}, (Run(final_value=0.1, curves=curves),), 1.0, {})
    claims = {claim.name: claim.holds for claim in study.claims(setup, Results(by_key))}
    assert claims["fig7-moderate-deterministic-ours"] is moderate
    assert claims["fig7-extremes-deterministic-ours"] is moderate


@pytest.mark.usefixtures("optimum_zero")
def test_own_first_loss_loosens_the_threshold() -> None:
    """A run that begins higher is solved at a higher loss by the released reading of f(w_0), and by no other."""
    study = LogisticInitialisation()
    setup = Setup(tier="smoke", solvers=("ours",), halves=("deterministic",), protocol="released")
    by_key = {}
    for spec in study.specs(setup):
        assert isinstance(spec, Training)
        curve = np.array([1.0, 0.5, 0.3] if spec.plan is None else [3.0, 0.5, 0.3])
        run = Run(final_value=0.3, facts={"final_loss": 0.3}, curves={"value": curve, "loss": curve})
        by_key[spec.key] = TaskResult(spec.key, {}, (run,), 1.0, {})
    claims = {claim.name: claim.measured for claim in study.claims(setup, Results(by_key))}
    assert "SGD 0% → 100%" in claims["fig9-deterministic-ours"]
    assert "SGD 0% → 0%" in claims["fig9-deterministic-shared-ours"]


@pytest.mark.usefixtures("optimum_zero")
def test_timed_claim_counts_the_plain_methods_time_only() -> None:
    """Teleported runs that solve, but after the plain run had ended, do not count."""
    study = LogisticTimed()
    late = [1.0] * 10 + [0.01]
    curves = {(m, with_): late if with_ else SOLVES for m in Method for with_ in (False, True)}
    results, setup = result_of(study, curves)
    claim = study.claims(setup, results)[0]
    assert claim.holds is False
    assert "plain 100%" in claim.measured


@pytest.mark.usefixtures("optimum_zero")
@pytest.mark.parametrize("name", ["fig8", "fig9", "fig11", "fig7"])
def test_failed_tasks_leave_a_profile_open(name: str) -> None:
    """Two problems, one of which is whole: a claim about both is not decided by the one that is left."""
    study = STUDIES[name]
    setup = Setup(tier="smoke", solvers=("ours",), halves=("deterministic",), sets=("blood", "pima"), regs=(0.1, 0.01))
    good = Run(final_value=0.01, curves={"value": np.array(SOLVES), "seconds": np.arange(4.0)})
    specs = study.specs(setup)
    whole = {spec.key: TaskResult(spec.key, {}, (good,), 1.0, {}) for spec in specs}
    assert study.claims(setup, Results(whole))[0].holds is not None
    pima = [spec.key for spec in specs if "pima" in spec.label]
    failed = whole | {key: TaskResult(key, {}, (Run.failure("no data"),), 0.0, {}) for key in pima}
    for claim in study.claims(setup, Results(failed)):
        assert claim.holds is None
        assert claim.measured == f"{len(pima)} of the {len(specs)} tasks that it needs failed"
        assert claim.outcome == "not decided"
    part = {key: result for key, result in whole.items() if key not in pima}
    assert {(claim.holds, claim.outcome) for claim in study.claims(setup, Results(part))} == {(None, "not run")}


@pytest.mark.parametrize("name", ["fig1", "fig3", "fig5", "fig6", "fig17"])
def test_failed_tasks_leave_other_claims_open_and_are_counted(name: str) -> None:
    specs = STUDIES[name].specs(SMOKE)
    failed = {spec.key: TaskResult(spec.key, {}, (Run.failure("boom"),), 0.0, {}) for spec in specs}
    claims = STUDIES[name].claims(SMOKE, Results(failed))
    # Figure 6 has claims about sets that are no part of its smoke tier.
    assert {claim.holds for claim in claims} == {None}
    assert all("that it needs failed" in claim.measured for claim in claims if "Hill Valley" not in claim.statement)


@pytest.mark.parametrize(("idle", "stalls"), [(86, True), (10, False)])
def test_newton_stalls_where_its_steps_go_nowhere(idle: int, stalls: bool) -> None:
    labels = ("Newton-CG, authors'", "Newton-CG-LS, authors'", "Newton-CG, ours")
    rows = [
        {"problem": "a", "method": label, "idle_steps": steps}
        for label, steps in zip(labels, (86, idle, 0), strict=True)
    ]
    assert newton_stalls(pd.DataFrame(rows), ["a"])[0] is stalls


def test_a_figure_without_networks_says_nothing_about_them() -> None:
    setup = Setup(sets=("ionosphere",))
    assert {claim.outcome for claim in STUDIES["fig6"].claims(setup, Results({}))} == {"not run"}


def test_missing_results_are_not_run(tmp_path: Path) -> None:
    setup = Setup(tier="quick")
    for study in STUDIES.values():
        results = Results(stored_results(study, setup, Store(tmp_path)).results)
        assert all(claim.holds is None for claim in checked_claims(study, setup, results))


def test_incomplete_problems_are_left_out() -> None:
    study = NetworkProfile()
    assert study.scores("deterministic", SMOKE, Results({})) == []
    assert study.pictures(SMOKE, Results({})) == {}


def test_failed_task_is_no_result() -> None:
    spec = LogisticProfile().specs(SMOKE)[0]
    failed = TaskResult(spec.key, {}, (Run.failure("boom"),), 0.0, {})
    assert Results({spec.key: failed}).task(spec) is None
    assert failed.best.status is RunStatus.FAILED


def test_update_geometry_is_the_projection_that_scipy_finds() -> None:
    """x⁺ solves max ⟨q/‖g‖², y - x⟩ - ‖y - x‖²/(2ρ) over the linearized level."""
    study = UpdateGeometry()
    points = study.geometry()
    x, g = points["x"], points["g"]
    q = np.array(study.hessian) @ g
    found = scipy_minimize(
        lambda y: -(q @ (y - x)) / (g @ g) + (y - x) @ (y - x) / (2 * study.rho),
        x,
        constraints={"type": "ineq", "fun": lambda y: -g @ (y - x)},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(points["next"], found.x, atol=1e-6)


def test_update_geometry_is_a_step_of_the_published_solver() -> None:
    study = UpdateGeometry()
    points = study.geometry()
    hessian = torch.tensor(study.hessian, dtype=torch.float64)
    from levelport import FunctionObjective

    objective = FunctionObjective(lambda w: 0.5 * w @ hessian @ w, like=torch.zeros(2, dtype=torch.float64))
    start = objective.at(torch.tensor(study.start, dtype=torch.float64), curvature=True)
    task = TeleportProblem(objective=objective, start=start, max_hvps=10)
    outcome = SQP(rho=study.rho, max_iterations=1, gamma_scale=1e-9, final="last").solve(task, Monitor(task))
    np.testing.assert_allclose(outcome.point.x.numpy(), points["next"], rtol=1e-12)


def test_command_lists_and_runs(tmp_path: Path) -> None:
    runner = CliRunner()
    listed = runner.invoke(app, ["reproduce", "list"])
    assert listed.exit_code == 0
    assert all(name in listed.output for name in STUDIES)
    arguments = ["reproduce", "fig17", "fig2", "--tier", "smoke", "--out", str(tmp_path), "--jobs", "1"]
    done = runner.invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert "15 tasks, 0 already there, 15 to run" in done.output
    claims = runner.invoke(app, ["reproduce", "fig17", "--claims", "--tier", "smoke", "--out", str(tmp_path)])
    assert claims.exit_code == 0
    assert "similar or better" in claims.output


def test_the_list_knows_the_options() -> None:
    """One data set and one half: a fortieth of the tasks."""
    runner = CliRunner()
    everything = runner.invoke(app, ["reproduce", "list", "--solver", "ours"]).output
    part = runner.invoke(
        app, ["reproduce", "list", "--solver", "ours", "--set", "blood", "--half", "deterministic"]
    ).output
    assert "/ 2400 tasks" in everything
    assert "/ 60 tasks" in part


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("fig1 --set pima", "--set has no effect on fig1.\n"),
        (
            "fig17 --images 100 --restarts 1 --half stochastic",
            "--half, --images and --restarts have no effect on fig17.\n",
        ),
        ("fig2 --reference released --protocol released --reg 0.1", "--reg and --reference have no effect on fig2.\n"),
        ("fig5 --images 100 --restarts 1", "--images has no effect on fig5 at the smoke tier.\n"),
        ("fig17 --set ionosphere", ""),
        ("fig8 --half stochastic --reg 0.001 --set blood --reference released --protocol released", ""),
    ],
)
def test_options_without_effect_are_named(words: str, said: str, tmp_path: Path) -> None:
    arguments = ["reproduce", *words.split(), "--claims", "--tier", "smoke", "--out", str(tmp_path)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    assert done.stderr == said


PROBES: dict[str, list[object]] = {
    "sets": [("blood",), ("pima",)],
    "regs": [(1e-3,), (1e-2,)],
    "halves": [("stochastic",), ("deterministic",)],
    "images": [1000],
    "restarts": [1, 2],
}


@pytest.mark.parametrize("tier", ["smoke", "quick", "full"])
@pytest.mark.parametrize("study", STUDIES.values(), ids=lambda study: study.name)
def test_options_that_a_figure_takes_change_its_runs(study: Study, tier: Tier) -> None:
    """All but the reference value f*, which only scores."""
    plain = Setup(tier=tier)
    found = {
        name
        for name, values in PROBES.items()
        if any(study.specs(replace(plain, **{name: value})) != study.specs(plain) for value in values)
    }
    assert study.takes(tier) - {"reference"} == found


def test_options_that_a_figure_takes_are_kept() -> None:
    plain = Setup(tier="full", protocol="released")
    setup = replace(plain, sets=("pima",), images=100, restarts=1, halves=("stochastic",), reference="released")
    kept = {name: heeded(STUDIES[name], setup)[0] for name in ("fig1", "fig5", "fig8", "fig17")}
    assert kept["fig1"] == plain
    assert kept["fig5"] == replace(plain, images=100, restarts=1)
    assert kept["fig8"] == replace(plain, sets=("pima",), halves=("stochastic",), reference="released")
    assert kept["fig17"] == replace(plain, sets=("pima",))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig99"], "There is no figure 'fig99'"),
        (["fig8", "--set", "blod"], "blood"),
        (["fig1", "--tier", "smoke", "--address", "tcp://x:1"], "this machine only"),
    ],
)
def test_command_answers_mistakes_in_words(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(app, ["reproduce", *arguments, "--out", str(tmp_path)])
    assert done.exit_code != 0
    assert message in done.output


def test_profile_module_has_no_figure_twice() -> None:
    names = [cls.name for cls in vars(profile_studies).values() if isinstance(cls, type) and hasattr(cls, "name")]
    assert len(names) == len(set(names))
