"""Mutation testing of the solvers, the optimizers and the objectives: would the tests notice a changed line?

mutmut proposes the mutants (another operator, another constant, an argument left out, ...); this script draws a sample
that a seed fixes, leaves out those in messages, and runs for each the tests that reach the mutated line, fastest first,
up to a limit of measured seconds. It runs them itself, since mutmut would run every test of a function for each of its
mutants, which are some minutes here. A mutant survives if none of them fails.

    python tools/mutation.py map              # which test reaches which line: one run of the tests, in build/mutation
    python tools/mutation.py map FILE ...     # the same for some test files, added to what is known
    python tools/mutation.py run              # 200 mutants; interrupted and started again, it goes on
    python tools/mutation.py run --survivors  # the survivors once more, after tests were added or changed
    python tools/mutation.py report           # the score, and the survivors as differences

Mutants in ``tools/equivalent_mutants.json`` do not change what a user can observe, or no guarantee, for the
reason given there; the score leaves them out. It needs coverage and mutmut: ``make mutation`` installs them.
"""

from __future__ import annotations

import argparse
import difflib
import hashlib
import json
import math
import os
import random
import resource
import shutil
import signal
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("solvers", "optim", "objectives")
TESTS = (
    "tests/test_accounting.py",
    "tests/test_default_device.py",
    "tests/test_reports_by_hand.py",
    "tests/test_safeguards.py",
    "tests/test_settings.py",
    "tests/solvers",
    "tests/optim",
    "tests/objectives",
    "tests/goals",
    "tests/symmetries",
    "lab/tests/library",
)
# Tests of other processes, whose lines are not seen here, and of memory.
WITHOUT = ("tests/optim/test_examples.py", "tests/optim/test_optim_distributed.py", "tests/solvers/test_leaks.py")
ELSEWHERE = dict.fromkeys(
    ("src/levelport/objectives/distributed.py", "src/levelport/optim/torch_optimizer.py"),
    "tests/optim/test_optim_distributed.py",
)
"""Tests that run a file in processes of their own: they follow those that are seen to reach a mutant."""
AT_IMPORT = "import"
"""Stands among the tests that reach a line for those that depend on it because it runs at import, such as a default."""
OUT = ROOT / "build" / "mutation"
EQUIVALENT = ROOT / "tools" / "equivalent_mutants.json"
_PATIENCE = 60.0  # processor seconds beyond ten times what the tests took: then a mutant counts as one that never ends
_WAITING = 20.0  # times that in seconds, where it waits for what never comes


Proposal = tuple[Path, int, Any, Any]
"""A file, a line, the file's syntax tree, and mutmut's change of it."""


@dataclass(frozen=True)
class Mutant:
    """One change of one file."""

    file: str
    line: int
    before: str
    after: str
    code: str

    @property
    def name(self) -> str:
        """A short hash of the change, which stays the same when other lines move."""
        return hashlib.sha256(f"{self.file}\n{self.before}\n{self.after}".encode()).hexdigest()[:12]


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant: the test that failed, ``timeout``, ``not covered`` or None if it survived."""

    name: str
    file: str
    line: int
    before: str
    after: str
    killer: str | None
    tests: int


def proposals(path: Path) -> list[Proposal]:
    """The changes of a file that mutmut proposes, without those in messages and documentation."""
    import libcst as cst
    from libcst.metadata import MetadataWrapper, PositionProvider
    from mutmut.mutation.file_mutation import create_mutations

    module, proposed, _, _ = create_mutations(str(path), path.read_text())
    said: set[int] = set()

    class Messages(cst.CSTVisitor):
        def on_visit(self, node: cst.CSTNode) -> bool:
            warns = isinstance(node, cst.Call) and cst.Module([]).code_for_node(node.func).endswith("warn")
            if warns or isinstance(node, cst.Raise | cst.BaseString | cst.Assert):
                said.update(id(child) for child in _walk(node))
                return False
            return True

    module.visit(Messages())
    positions = MetadataWrapper(module, unsafe_skip_copy=True).resolve(PositionProvider)
    return [
        (path, positions[one.original_node].start.line, module, one)
        for one in proposed
        if id(one.original_node) not in said and one.contained_by_top_level_function is not None
    ]


def _walk(node: Any) -> Iterator[Any]:
    yield node
    for child in node.children:
        yield from _walk(child)


def made(proposal: Proposal) -> Mutant:
    """The mutant that a proposal makes."""
    path, line, module, one = proposal
    code = module.deep_replace(one.original_node, one.mutated_node).code
    lines = list(difflib.unified_diff(module.code.splitlines(), code.splitlines(), lineterm="", n=0))[2:]
    before = "\n".join(line[1:].strip() for line in lines if line.startswith("-"))
    after = "\n".join(line[1:].strip() for line in lines if line.startswith("+"))
    return Mutant(str(path.relative_to(ROOT)), line, before, after, code)


def sample(count: int, seed: int) -> list[Mutant]:
    """The mutants that the seed draws from all files of the packages."""
    files = sorted(path for name in PACKAGES for path in (ROOT / "src/levelport" / name).rglob("*.py"))
    everything = [proposal for path in files for proposal in proposals(path)]
    print(f"{len(everything)} mutants in {len(files)} files; a sample of {count} with seed {seed}", flush=True)
    return [made(proposal) for proposal in random.Random(seed).sample(everything, min(count, len(everything)))]


def make_map(paths: list[str]) -> None:
    """Run the tests once and add to the map which test reaches which line, and how long each takes."""
    import coverage
    import pytest

    tracer = coverage.Coverage(data_file=None, source=[str(ROOT / "src" / "levelport")])
    seconds: dict[str, float] = {}

    class Record:
        @pytest.hookimpl(wrapper=True)
        def pytest_runtest_protocol(self, item: pytest.Item) -> Any:
            tracer.switch_context(item.nodeid)
            began = time.process_time()  # other work on the machine does not count
            done = yield
            seconds[item.nodeid] = time.process_time() - began
            return done

    tracer.start()
    tracer.switch_context(AT_IMPORT)
    os.chdir(ROOT)
    chosen = paths or [*TESTS, *(f"--ignore={path}" for path in WITHOUT)]
    pytest.main(["-q", "-p", "no:cacheprovider", *chosen], plugins=[Record()])
    tracer.stop()
    data = tracer.get_data()
    OUT.mkdir(parents=True, exist_ok=True)
    path = OUT / "map.json"
    known = json.loads(path.read_text()) if path.exists() else {"seconds": {}, "reached": {}}
    known["seconds"].update(seconds)
    for file in data.measured_files():
        lines = known["reached"].setdefault(str(Path(file).relative_to(ROOT)), {})
        for line, tests in data.contexts_by_lineno(file).items():
            found = {*lines.get(str(line), []), *tests} & {*known["seconds"], AT_IMPORT}
            lines[str(line)] = sorted(found)
    path.write_text(json.dumps(known))
    print(f"{len(seconds)} tests, {sum(seconds.values()):.0f} s; {len(known['seconds'])} tests in {path}")


def tests_for(mutant: Mutant, known: dict[str, Any], limit: float) -> list[str]:
    """The tests that reach the mutant's line, fastest first, up to ``limit`` seconds in all.

    After them, where it runs at import or no test is seen to reach it, all others that reach its file.
    """
    seconds, lines = known["seconds"], known["reached"].get(mutant.file, {})
    reached = set(lines.get(str(mutant.line)) or [AT_IMPORT])
    others = {test for tests in lines.values() for test in tests} if AT_IMPORT in reached else set()
    reaching = sorted((reached | others) - {AT_IMPORT}, key=lambda test: (test not in reached, seconds[test]))
    total, chosen = 0.0, list[str]()
    for test in reaching:
        total += seconds[test]
        if total > limit and chosen:
            break
        chosen.append(test)
    return [*chosen, ELSEWHERE[mutant.file]] if mutant.file in ELSEWHERE else chosen


def judge(mutant: Mutant, tests: list[str], known: dict[str, Any], copy: Path) -> str | None:
    """Run ``tests`` with the mutant in a process of their own and return the one that fails, if any."""
    target, answer = copy / mutant.file, copy / "answer"
    whole = target.read_text()
    target.write_text(mutant.code)
    answer.write_text("")
    limit = 10.0 * sum(known["seconds"].get(test, 60.0) for test in tests) + _PATIENCE
    child = os.fork()
    if child == 0:
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(limit), resource.RLIM_INFINITY))
        _run_tests(tests, copy, answer)
    status, end = None, time.monotonic() + _WAITING * limit
    while status is None and time.monotonic() < end:
        pid, code = os.waitpid(child, os.WNOHANG)
        if pid:
            status = os.waitstatus_to_exitcode(code)
        else:
            time.sleep(0.05)
    if status is None:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    target.write_text(whole)
    if status in (None, -signal.SIGXCPU):
        return "timeout"
    return None if status == 0 else answer.read_text() or f"exit status {status}"


def _run_tests(tests: list[str], copy: Path, answer: Path) -> None:
    """In the child: run pytest on the copy of the library until a test fails, then leave."""
    import pytest

    class First:
        def pytest_runtest_logreport(self, report: Any) -> None:
            if report.failed and not answer.read_text():
                answer.write_text(report.nodeid)

    sys.path.insert(0, str(copy / "src"))
    os.environ["PYTHONPATH"] = str(copy / "src")  # for processes that tests start
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    status = 1
    try:
        status = int(pytest.main(["-x", "-q", "-p", "no:cacheprovider", "--no-header", *tests], plugins=[First()]))
    finally:
        os._exit(status)


def run(count: int, seed: int, limit: float, survivors: bool, minutes: float) -> None:
    """Judge the sample, for so many minutes, and append each verdict to ``verdicts.jsonl``."""
    # Loaded once, here, for all children; not levelport, nor plugins of pytest, which it must load itself.
    import numpy  # noqa: F401
    import scipy.optimize  # noqa: F401
    import torch

    torch.set_num_threads(1)
    os.chdir(ROOT)
    sys.dont_write_bytecode = True
    known = json.loads((OUT / "map.json").read_text())
    copy = OUT / "copy"
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(ROOT / "src", copy / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    done = verdicts()
    wanted = [one for one in sample(count, seed) if one.name not in done or (survivors and not done[one.name].killer)]
    check_without_mutant(wanted, known, copy)
    end = time.monotonic() + 60.0 * minutes
    with (OUT / "verdicts.jsonl").open("a") as log:
        for number, mutant in enumerate(wanted, 1):
            if time.monotonic() > end:
                break
            tests = tests_for(mutant, known, limit)
            killer = judge(mutant, tests, known, copy) if tests else None
            if killer is not None and killer.startswith("exit status"):  # no test failed: was there any to run?
                check_without_mutant([mutant], known, copy, limit)
            verdict = Verdict(mutant.name, mutant.file, mutant.line, mutant.before, mutant.after, killer, len(tests))
            log.write(json.dumps(asdict(verdict)) + "\n")
            log.flush()
            print(
                f"{number}/{len(wanted)} {mutant.name} {mutant.file}:{mutant.line} {killer or 'SURVIVED'}", flush=True
            )


def check_without_mutant(wanted: list[Mutant], known: dict[str, Any], copy: Path, limit: float = 5.0) -> None:
    """Raise if tests fail without any mutant: every verdict would be a kill."""
    for mutant in wanted:
        if tests := tests_for(mutant, known, limit):
            same = replace(mutant, code=(copy / mutant.file).read_text())
            if (failed := judge(same, tests, known, copy)) is not None:
                raise SystemExit(f"without any mutant the tests fail: {failed}. Make the map again.")
            return


def verdicts() -> dict[str, Verdict]:
    """The last verdict about every mutant judged so far."""
    path = OUT / "verdicts.jsonl"
    rows = [Verdict(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []
    return {row.name: row for row in rows}


def report() -> None:
    """Print the score and the survivors."""
    done = verdicts()
    reasons = {entry["name"]: entry["reason"] for entry in json.loads(EQUIVALENT.read_text())}
    killed = [one for one in done.values() if one.killer]
    alive = [one for one in done.values() if not one.killer]
    equivalent = [one for one in alive if one.name in reasons]
    counted = len(done) - len(equivalent)
    for one in sorted(alive, key=lambda one: (one.file, one.line)):
        print(f"{one.name} {one.file}:{one.line} ({one.tests} tests) {reasons.get(one.name, '')}")
        print(f"  - {one.before}\n  + {one.after}")
    print(
        f"{len(done)} mutants, {len(killed)} killed, {len(alive)} alive, of which {len(equivalent)} equivalent: "
        f"{len(killed) / max(counted, 1):.1%} of those that are not equivalent killed"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", choices=["map", "run", "report"])
    parser.add_argument("paths", nargs="*", help="test files to map; all of them if none is named")
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=60.0, help="measured seconds of tests per mutant")
    parser.add_argument("--minutes", type=float, default=math.inf, help="begin no mutant after so many")
    parser.add_argument("--survivors", action="store_true", help="judge the survivors again")
    chosen = parser.parse_args()
    if chosen.action == "map":
        make_map(chosen.paths)
    elif chosen.action == "run":
        run(chosen.count, chosen.seed, chosen.limit, chosen.survivors, chosen.minutes)
    else:
        report()


if __name__ == "__main__":
    main()
