"""Likelihood intervals: :func:`levelport.interval` beside MINOS, lmfit, pyPESTO, SLSQP, trust-constr and Wald's."""
