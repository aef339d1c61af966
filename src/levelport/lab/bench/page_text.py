"""The prose of the benchmark page: how things were measured, in front of each table. It holds settings, no results."""

from __future__ import annotations

from levelport.lab.bench.competitors import MEMORY as PAIRS
from levelport.lab.bench.competitors import PERIOD
from levelport.lab.bench.goals import HARD as HARD_COST
from levelport.lab.bench.growth import ACCURACY, REG
from levelport.lab.bench.own_cost import LARGE
from levelport.lab.bench.races import accuracy
from levelport.lab.bench.suites import CONVEX_BUDGET, MEMORY_COST, SMALL_SETS
from levelport.problems.registry import problem

HEAD = f"""# Benchmark at equal cost

Written by `levelport bench --report docs/results`; every number is in the CSV files beside this page.

Every method sees f through the same instrument, which counts (value ½, gradient 1, Hessian-vector product 2; value
and gradient at one point share their forward pass), records the value whenever a gradient has been evaluated, and
stops the run. *Cost* is in these gradient equivalents. *levelport.minimize* is our default: gradient descent with the
Armijo line search and a recycled teleport before every step, which descends by a quasi-Newton model and then climbs
until the gradient is larger than before. *GD-Armijo* is the same method without teleports. *Published teleports* are
the paper's: its SQP with its settings, every 50 steps from step 5, at most 50 HVPs. *The same without the climb* is our
loop with the teleport cut in half: it takes the quasi-Newton steps of the recycled model and skips the climb to a
larger gradient. Stopping rules of the rivals are switched off; nothing is tuned per problem. L-BFGS methods keep
{PAIRS} pairs, SciPy's default, unless the name says sixty, which is what ours keeps. Momentum has the step 1/L (0.1 on
networks, 1e-3 on test functions) and 0.9; Polyak's step knows f* (0 on networks).
"""

LOGISTIC = f"""The twenty UCI sets with six penalties, first split, from w = 0, with certified optima; at most
{CONVEX_BUDGET:g} gradient equivalents. *Ours/this* compares problem by problem: below 1 we are cheaper; 0 counts where
only we got there, ∞ where only they did.
"""

HELD_OUT = """The same problems with the second split into training and test data. No constant of ours was chosen with
them.
"""

HARD = f"""The problems on which L-BFGS-B needs more than {HARD_COST:g} gradient equivalents for 1e-10, cost to 1e-10:
"""

FAMILIES = {
    "quadratic": "200 variables, eigenvalues evenly spaced in the logarithm, from 0; cost to 1e-6 (budget "
    f"{CONVEX_BUDGET:g}).\n",
    "function": f"From their usual starts; cost to 1e-6 of the global minimum (budget {CONVEX_BUDGET:g}). A dash: "
    "never.\n",
}

NETWORKS = f"""Two hidden layers of a hundred, full batch, the {SMALL_SETS} smallest UCI sets, usual initialisation,
seed 0; the full tier has for reg 1e-4 also the seeds 1 and 2 (other splits and initialisations), and one hidden layer
of fifty on the digits, three seeds. The picture shows the loss with teleports relative to the loss of GD-Armijo after
the same number of gradient equivalents.
"""

VISITS = f"""A teleport by `Auto(explore=1)` with at most ten HVPs, once at the start, every {PERIOD} steps, or when
they pay, which is the default of `Teleported` (SciPy's L-BFGS-B is restarted from the teleported point, so it loses its
pairs; Adam and momentum keep their state). ReLU and softplus networks, reg 1e-4, medians with quartiles over
networks; below 1 the teleports help.
"""

SECONDS = """Logistic problems on the smaller sets (reg 1e-3 and 1e-6), interleaved rounds, median; ratios problem by
problem. The machine was shared with other work, so only the ratios mean something.

![seconds](benchmark-seconds.png)
"""

OVERHEAD = """Processor time outside evaluations relative to the time inside, rounds interleaved between methods.
"""

MEMORY = f"""A network with {problem(LARGE).dimension} parameters ({LARGE}) in float32, {MEMORY_COST:g} gradient
equivalents, each method in a process of its own; the peak of a process that evaluates one gradient and one HVP is
subtracted.
"""

GROWTH = f"""Synthetic logistic problems, reg {accuracy(REG)}: gradient equivalents until {accuracy(ACCURACY)}, slope of
the logarithms.

![growth](benchmark-growth.png)
"""

TELEPORT_COST = """Processor time of one iteration with a teleport. *Recycled* keeps ten pairs; *auto* spends ten
HVPs. Samples: logistic, 50 features. Parameters: a separable quadratic by automatic differentiation. A slope of 1 is
linear; the last column divides by the evaluations that the teleports happened to need.
"""

HVP = """Logistic regression: the median time of one product at a point whose gradient is known. The automatic one goes
through the graph of that gradient.
"""
