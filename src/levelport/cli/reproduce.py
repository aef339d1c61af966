"""``levelport reproduce`` and ``levelport report``: the paper's figures, and a page about them."""

from __future__ import annotations

from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console

    from levelport.lab.paper.reproduction import Judged
    from levelport.lab.paper.study import Setup, Study


class TierOption(str, Enum):
    """How much to run."""

    SMOKE = "smoke"
    QUICK = "quick"
    FULL = "full"


class SolverOption(str, Enum):
    """Whose teleports."""

    PUBLISHED = "published"
    OURS = "ours"
    BOTH = "both"


class BackendOption(str, Enum):
    """Where to compute."""

    LOKY = "loky"
    DASK = "dask"
    RAY = "ray"


class HalfOption(str, Enum):
    """Which half of a performance profile."""

    DETERMINISTIC = "deterministic"
    STOCHASTIC = "stochastic"
    BOTH = "both"


class ReferenceOption(str, Enum):
    """Which f* decides what is solved."""

    EXACT = "exact"
    PAPER = "paper"


Out = Annotated[Path, typer.Option(help="Directory of results; the same one resumes.", show_default=True)]


def reproduce_command(
    figures: Annotated[list[str], typer.Argument(help="fig1 ... fig18, 'all', or 'list' to see what there is.")],
    tier: Annotated[
        TierOption, typer.Option(help="smoke: seconds; quick: minutes; full: the paper.")
    ] = TierOption.QUICK,
    solver: Annotated[SolverOption, typer.Option(help="The paper's solver, ours, or both.")] = SolverOption.BOTH,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes; 0 takes every core.")] = 0,
    backend: Annotated[BackendOption, typer.Option(help="Processes here, or a cluster.")] = BackendOption.LOKY,
    address: Annotated[str | None, typer.Option(help="Scheduler of a running Dask or Ray cluster.")] = None,
    out: Out = Path("results"),
    claims: Annotated[bool, typer.Option("--claims", help="Only check the claims on what is already there.")] = False,
    half: Annotated[HalfOption, typer.Option(help="Profiles: one half or both.")] = HalfOption.BOTH,
    sets: Annotated[list[str] | None, typer.Option("--set", help="Profiles: only these data sets; may repeat.")] = None,
    reg: Annotated[
        list[float] | None, typer.Option("--reg", help="Profiles: only these penalties; may repeat.")
    ] = None,
    reference: Annotated[
        ReferenceOption, typer.Option(help="f* of profiles: exact, or estimated as in the paper.")
    ] = ReferenceOption.EXACT,
) -> None:
    """Reproduce figures of the paper: run what is missing, draw, and check what the paper concludes from them."""
    from rich.console import Console

    console = Console()
    if figures == ["list"]:
        _list_studies(console)
        return
    studies = _studies(figures)
    setup = _setup(tier, solver, half, sets, reg, reference)
    failures = 0
    for study in studies:
        console.rule(f"{study.name}  {study.title}", align="left")
        if claims:
            _claims_of_stored(console, study, setup, out)
        else:
            failures += _reproduce_one(console, study, setup, out, jobs, backend, address)
    if failures:
        console.print(f"{failures} task(s) failed; the same command runs them again.", style="red", highlight=False)
        raise typer.Exit(1)


def report_command(
    out: Out = Path("results"),
    to: Annotated[Path | None, typer.Option(help="File to write; OUT/report.html by default.")] = None,
) -> None:
    """Write one self-contained HTML page about everything that has been reproduced."""
    from levelport.lab.report import NothingToReportError, write_report

    target = to if to is not None else out / "report.html"
    try:
        write_report(out, target)
    except NothingToReportError as error:
        typer.secho(str(error), fg="red", err=True)
        raise typer.Exit(1) from error
    typer.echo(f"{target} ({target.stat().st_size / 1e6:.1f} MB)")


def _reproduce_one(
    console: Console,
    study: Study,
    setup: Setup,
    out: Path,
    jobs: int,
    backend: BackendOption,
    address: str | None,
) -> int:
    """Run one study; the number of failed tasks."""
    from levelport.lab.engine.backends import Backend, default_jobs
    from levelport.lab.engine.progress import ConsoleProgress
    from levelport.lab.engine.runner import in_words
    from levelport.lab.engine.store import StoreError
    from levelport.lab.paper.reproduction import figure_directory, reproduce

    try:
        done = reproduce(
            study,
            setup,
            out,
            Backend(backend.value, jobs or default_jobs(), address),
            say=lambda line: console.print(line, highlight=False, soft_wrap=True),
            progress=ConsoleProgress(console, study.name),
        )
    except (StoreError, ModuleNotFoundError, ValueError) as error:
        console.print(str(error), style="red", highlight=False, soft_wrap=True)
        raise typer.Exit(1) from error
    except KeyboardInterrupt:
        console.print("Interrupted. What was finished is kept; the same command goes on from there.")
        raise typer.Exit(130) from None
    for failure in done.outcome.failures[:5]:
        console.print(f"failed: {failure}", style="red", highlight=False, soft_wrap=True)
    _print_claims(console, done.claims)
    directory = figure_directory(out, setup, study.name)
    took = in_words(done.outcome.seconds) if done.outcome.computed else "nothing to compute"
    console.print(f"{len(done.pictures)} pictures and table.csv in {directory} ({took})", highlight=False)
    return len(done.outcome.failures)


def _claims_of_stored(console: Console, study: Study, setup: Setup, out: Path) -> None:
    from levelport.lab.engine.store import Store
    from levelport.lab.paper.reproduction import judge, stored_results

    _print_claims(console, judge(study, setup, stored_results(study, setup, Store(out))))


def _print_claims(console: Console, judged: list[Judged] | tuple[Judged, ...]) -> None:
    from levelport.lab.paper.teleports import SOLVER_TITLES

    colours = {True: "green", False: "red", None: "yellow"}
    for entry in judged:
        verdict = entry.verdict
        solver = f" ({SOLVER_TITLES[entry.claim.solver]})" if entry.claim.solver else ""
        console.print(f"[{colours[verdict.holds]}]{verdict.words}[/]: {entry.claim.statement}{solver}", highlight=False)
        console.print(f"    {verdict.measured}", style="dim", highlight=False, markup=False)


def _list_studies(console: Console) -> None:
    from levelport.lab.engine.runner import in_words
    from levelport.lab.paper.registry import STUDIES
    from levelport.lab.paper.study import Setup, Tier

    for study in STUDIES.values():
        quick, full = (study.specs(Setup(tier=tier)) for tier in (Tier.QUICK, Tier.FULL))
        forecast = (
            f"{len(quick)} / {len(full)} tasks, full roughly {in_words(sum(s.rough_seconds for s in full))} of one core"
        )
        console.print(f"[bold]{study.name:6}[/] {study.title}", highlight=False)
        console.print(f"       {forecast}", style="dim", highlight=False)
    console.print("Run one with: levelport reproduce fig8 --tier quick", highlight=False)


def _studies(figures: list[str]) -> list[Study]:
    from levelport.lab.paper.registry import STUDIES, study_named

    if figures == ["all"]:
        return list(STUDIES.values())
    try:
        return [study_named(name) for name in figures]
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="FIGURES") from error


def _setup(
    tier: TierOption,
    solver: SolverOption,
    half: HalfOption,
    sets: list[str] | None,
    regs: list[float] | None,
    reference: ReferenceOption,
) -> Setup:
    from levelport.lab.paper.study import Setup, Tier
    from levelport.lab.paper.teleports import SOLVER_NAMES
    from levelport.problems import UnknownNameError, data_info

    try:
        for name in sets or []:
            data_info(name)
    except UnknownNameError as error:
        raise typer.BadParameter(str(error), param_hint="--set") from error
    return Setup(
        tier=Tier(tier.value),
        solvers=SOLVER_NAMES if solver is SolverOption.BOTH else (solver.value,),
        sets=tuple(sets or ()),
        regs=tuple(regs or ()),
        halves=() if half is HalfOption.BOTH else (half.value,),
        reference=reference.value,
    )
