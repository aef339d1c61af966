"""The comparison of minimizers: problems by formula and seed, arms, the study and its page."""
