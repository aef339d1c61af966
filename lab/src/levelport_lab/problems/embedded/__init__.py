"""Data sets that ship with the package, one npz file each; origin and licences in README.md beside them."""
