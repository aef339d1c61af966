"""The numerical tools that several rooms share: Newton systems, Lanczos, L-BFGS and line searches."""
