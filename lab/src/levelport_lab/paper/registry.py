"""All studies, by the name of their figure."""

from __future__ import annotations

from levelport.checks import unknown_name
from levelport_lab.paper.curve_studies import (
    LogisticCurves,
    MnistNonSmooth,
    MnistSmooth,
    MnistStochastic,
    NetworkCurves,
)
from levelport_lab.paper.newton_studies import NewtonComparison, NewtonLogistic, NewtonNetworks
from levelport_lab.paper.penalty_study import Regularisation
from levelport_lab.paper.plane_studies import TestFunctions, UpdateGeometry
from levelport_lab.paper.profile_studies import (
    LogisticInitialisation,
    LogisticProfile,
    NetworkInitialisation,
    NetworkProfile,
)
from levelport_lab.paper.study import Study
from levelport_lab.paper.teleport_study import SolvingTeleports
from levelport_lab.paper.timed_studies import LogisticTimed, NetworkTimed

STUDIES: dict[str, Study] = {
    study.name: study
    for study in (
        TestFunctions(),
        UpdateGeometry(),
        SolvingTeleports(),
        NetworkProfile(),
        MnistSmooth(),
        NewtonComparison(),
        Regularisation(),
        LogisticProfile(),
        LogisticInitialisation(),
        NetworkInitialisation(),
        LogisticTimed(),
        NetworkTimed(),
        MnistStochastic(),
        MnistNonSmooth(),
        NewtonLogistic(),
        NewtonNetworks(),
        LogisticCurves(),
        NetworkCurves(),
    )
}
"""Figures 1 to 18 of the paper."""


def study_named(name: str) -> Study:
    """The study of a figure: ``fig8``, ``8`` and ``figure8`` are the same; an error with a suggestion otherwise."""
    digits = name.lower().removeprefix("figure").removeprefix("fig").strip(". ")
    if f"fig{digits}" in STUDIES:
        return STUDIES[f"fig{digits}"]
    raise unknown_name("figure", name, STUDIES, see=f"Choose from: {', '.join(STUDIES)}, or all.")
