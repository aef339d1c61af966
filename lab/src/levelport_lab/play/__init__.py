"""A page to play with: ``levelport play``. Expressions are read, scenes computed and pages drawn in files apart."""
