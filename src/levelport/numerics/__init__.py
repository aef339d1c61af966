"""Numerical tools that several packages share: Newton systems, Lanczos, L-BFGS and line searches."""
