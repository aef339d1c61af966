"""Likelihood intervals: :func:`levelport.interval` beside MINOS, lmfit, SLSQP, trust-constr and the Wald interval."""
