"""``levelport reproduce`` and ``levelport report``: the paper's figures, and a page about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, get_args

import typer

from levelport import checks
from levelport_lab.choices import BackendName, HalfName, Protocol, Reference, SolverName, Tier
from levelport_lab.cli.messages import echo, errors_as_sentences, usage_errors

if TYPE_CHECKING:
    from levelport_lab.claims import Claim
    from levelport_lab.engine.backends import Backend
    from levelport_lab.paper.study import Setup, Study

Out = Annotated[Path, typer.Option(help="Directory of results; the same one resumes.", show_default=True)]


def reproduce_command(
    figures: Annotated[
        list[str],
        typer.Argument(
            help="fig1 ... fig18 or 'all'; 'list' to see what there is; 'export FIGURES' and 'import FILES' to move "
            "results between machines."
        ),
    ],
    tier: Annotated[Tier, typer.Option(help="smoke: seconds; quick: minutes; full: the paper.")] = "quick",
    solver: Annotated[Literal[SolverName, "both"], typer.Option(help="The paper's solver, ours, or both.")] = "both",
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=0, help="Processes; 0 takes every core.")] = 0,
    backend: Annotated[BackendName, typer.Option(help="Processes here, or a cluster.")] = "loky",
    address: Annotated[str | None, typer.Option(help="Scheduler of a running Dask or Ray cluster.")] = None,
    out: Out = Path("results"),
    claims: Annotated[bool, typer.Option("--claims", help="Only check the claims on what is already there.")] = False,
    half: Annotated[Literal[HalfName, "both"], typer.Option(help="Profiles: one half or both.")] = "both",
    sets: Annotated[list[str] | None, typer.Option("--set", help="Only these data sets; may repeat.")] = None,
    reg: Annotated[
        list[float] | None, typer.Option("--reg", help="Profiles: only these penalties; may repeat.")
    ] = None,
    reference: Annotated[Reference, typer.Option(help="f* of profiles: exact, or the authors' own numbers.")] = "exact",
    protocol: Annotated[
        Protocol, typer.Option(help="Run and score as the paper's text says, or as its released scripts do.")
    ] = "text",
    images: Annotated[
        int, typer.Option(min=0, max=60000, help="MNIST: only the first so many training images; 0 takes all.")
    ] = 0,
    restarts: Annotated[int, typer.Option(min=0, max=3, help="MNIST: only so many initial points; 0 takes all.")] = 0,
    to: Annotated[
        Path | None, typer.Option(help="With export: the file to write; results.zip by default.", show_default=False)
    ] = None,
) -> None:
    """Reproduce figures of the paper: run what is missing, draw, and check what the paper concludes from them."""
    import joblib

    from levelport_lab.engine.backends import Backend
    from levelport_lab.paper.registry import STUDIES, study_named
    from levelport_lab.paper.study import Setup, heeded
    from levelport_lab.problems import REGULARIZATION, data_info
    from levelport_lab.problems.datasets import Targets

    exporting, listing = figures[0] == "export", figures[0] == "list"
    if to is not None and not exporting:
        raise typer.BadParameter("only 'levelport reproduce export' writes such a file.", param_hint="--to")
    if figures[0] == "import":
        _import(figures[1:], out)
        return
    figures = figures[1:] or ["all"] if exporting or listing else figures
    with usage_errors("FIGURES"):
        studies = [study_named(name) for name in figures if name != "all"]
    studies = list(STUDIES.values()) if "all" in figures else studies
    with usage_errors("--set"):
        for name in sets or []:
            if data_info(name).targets is Targets.CLASSES:
                raise ValueError(f"{name} has more than two classes; the figures that take --set need two.")
    with usage_errors("--reg"):
        for strength in reg or []:
            checks.number("reg", strength, at_least=0.0, at_most=1e300)
            if strength not in REGULARIZATION:
                known = ", ".join(f"{penalty:g}" for penalty in REGULARIZATION)
                raise ValueError(f"{strength:g} is none of the paper's penalties, which are {known}.")
    with usage_errors():
        where = Backend(backend, jobs or joblib.cpu_count(), address)
    with usage_errors("--reference"):
        setup = Setup(
            tier=tier,
            solvers=get_args(SolverName) if solver == "both" else (solver,),
            sets=tuple(sets or ()),
            regs=tuple(reg or ()),
            halves=() if half == "both" else (half,),
            reference=reference,
            protocol=protocol,
            images=images,
            restarts=restarts,
        )
    if listing:
        _list_studies(studies, setup)
        return
    for study in () if "all" in figures else studies:
        _say_what_is_ignored(study, setup)
        with usage_errors("--set"):
            _check_sets(study, heeded(study, setup)[0])
    if exporting:
        _export(studies, setup, out, to or Path("results.zip"))
        return
    plans = [(study, heeded(study, setup)[0]) for study in studies]
    if not claims and address is None:  # the machines of a cluster have data of their own
        _require_data(plans, out)
    failures, idle = 0, 0
    for study, heeds in plans:
        echo(f"\n{study.name}  {study.title}", "bold")
        with errors_as_sentences(resumes=True):
            if heeds.sets and not study.specs(heeds) and study.specs(replace(heeds, sets=())):
                echo(f"None of the data sets asked for is part of this figure at the {heeds.tier} tier.")
                idle += "all" not in figures and not claims
            elif claims:
                _claims_of_stored(study, heeds, out)
            else:
                failures += _reproduce_one(study, heeds, out, where)
    if failures:
        echo(f"{failures} task(s) failed; the same command runs them again.", "red", error=True)
    if failures or idle:
        raise typer.Exit(1)


def report_command(
    out: Out = Path("results"),
    to: Annotated[Path | None, typer.Option(help="File to write; OUT/report.html by default.")] = None,
) -> None:
    """Write one self-contained HTML page about everything that has been reproduced."""
    target = to if to is not None else out / "report.html"
    with usage_errors("--to"):
        if target.suffix != ".html":
            raise ValueError(f"a report is an HTML page; choose a name that ends in .html, not {target.name!r}.")
    from levelport_lab.report import write_report

    with errors_as_sentences():
        write_report(out, target)
    echo(f"{target} ({target.stat().st_size / 1e6:.1f} MB)")


def _reproduce_one(study: Study, setup: Setup, out: Path, backend: Backend) -> int:
    """Run one study; the number of failed tasks."""
    from rich.console import Console

    from levelport_lab.engine.progress import ConsoleProgress
    from levelport_lab.engine.runner import failure_sentences, in_words
    from levelport_lab.paper.reproduction import figure_directory, reproduce

    done = reproduce(study, setup, out, backend, echo=echo, progress=ConsoleProgress(Console(), study.name))
    for sentence in failure_sentences(done.sweep.failures):
        echo(sentence, "red")
    _print_claims(done.claims)
    directory = figure_directory(out, setup.tier, study.name, setup.protocol, setup.reference)
    took = in_words(done.sweep.seconds) if done.sweep.computed else "nothing to compute"
    echo(f"{len(done.pictures)} pictures and table.csv in {directory} ({took})")
    return sum(map(len, done.sweep.failures.values()))


def _check_sets(study: Study, setup: Setup) -> None:
    """A figure that has none of the data sets asked for, in no tier, was asked for by mistake."""
    if not setup.sets or any(study.specs(replace(setup, tier=tier)) for tier in get_args(Tier)):
        return
    specs = study.specs(replace(setup, sets=()))
    has = sorted({name for spec in specs for name in spec.data_sets})
    raise ValueError(
        f"{study.name} has none of the data sets asked for ({', '.join(setup.sets)}); at the {setup.tier} tier it has "
        f"{', '.join(has)}."
    )


def _require_data(plans: Sequence[tuple[Study, Setup]], out: Path) -> None:
    """Stop before anything runs if data sets are missing that the figures need, all of which are named at once."""
    from levelport_lab.engine.store import Store
    from levelport_lab.paper.reproduction import require_data

    with errors_as_sentences():
        require_data([spec for study, setup in plans for spec in study.specs(setup)], Store(out, make=False))


def _say_what_is_ignored(study: Study, setup: Setup) -> None:
    """Options that were given and that this figure does not take; with 'all' they are meant for those that do."""
    from levelport_lab.paper.study import heeded

    (_, never), (_, here) = heeded(study, replace(setup, tier="full")), heeded(study, setup)
    for options, where in (
        (never, study.name),
        ([option for option in here if option not in never], f"{study.name} at the {setup.tier} tier"),
    ):
        if options:
            words = " and ".join(filter(None, (", ".join(options[:-1]), options[-1])))
            echo(f"{words} {'has' if len(options) == 1 else 'have'} no effect on {where}.", "yellow", error=True)


def _export(studies: Sequence[Study], setup: Setup, out: Path, to: Path) -> None:
    """Write what has been computed of the figures to one file."""
    from levelport_lab.engine.archive import export_results
    from levelport_lab.engine.store import Store

    wanted = {spec.key for study in studies for spec in study.specs(setup)}
    with errors_as_sentences():
        found = export_results(Store(out, make=False), wanted, to)
    for sentence in found.sentences():
        echo(sentence)
    echo(f"{to}: {len(found.done)} of {len(wanted)} tasks ({to.stat().st_size / 1e6:.1f} MB)")


def _import(archives: Sequence[str], out: Path) -> None:
    """Add the results of other machines or days to the store."""
    from levelport_lab.engine.archive import import_results
    from levelport_lab.engine.store import Store

    with usage_errors("FIGURES"):
        if not archives:
            raise ValueError("import needs a file that 'levelport reproduce export' wrote.")
    for archive in archives:
        with errors_as_sentences():
            came = import_results(Store(out), Path(archive))
        echo(f"{archive}: {came.new} new tasks, {came.known} already there")
        for reason in came.damaged:
            echo(f"damaged, left out: {reason}", "red")


def _claims_of_stored(study: Study, setup: Setup, out: Path) -> None:
    from levelport_lab.engine.store import Store
    from levelport_lab.paper.reproduction import checked_claims, stored_results
    from levelport_lab.paper.study import Results

    found = stored_results(study, setup, Store(out, make=False))
    for sentence in found.sentences():
        echo(sentence)
    _print_claims(checked_claims(study, setup, Results(found.results)))


def _print_claims(claims: Sequence[Claim]) -> None:
    from levelport_lab.claims import NOT_THERE
    from levelport_lab.paper.teleports import SOLVER_TITLES

    colours = {True: "green", False: "red", None: "yellow"}
    for claim in claims:
        solver = f" ({SOLVER_TITLES[claim.solver]})" if claim.solver else ""
        # The smoke tier and failed tasks leave a claim open; others are open because their runs are not there.
        echo(f"{claim.outcome}: {claim.statement}{solver}", colours[claim.holds])
        echo(f"    {NOT_THERE if claim.missing else claim.measured}", "dim")


def _list_studies(studies: Sequence[Study], setup: Setup) -> None:
    """The figures with their tasks and the time that they take, with the solver, the protocol and the restrictions."""
    from levelport_lab.engine.runner import in_words

    for study in studies:
        quick, full = (study.specs(replace(setup, tier=tier)) for tier in ("quick", "full"))
        rough = in_words(sum(spec.rough_seconds for spec in set(full)))
        echo(f"{study.name:6} {study.title}")
        echo(f"       quick / full: {len(quick)} / {len(full)} tasks, full roughly {rough} of one core", "dim")
    echo("Run one with: levelport reproduce fig8 --tier quick")
