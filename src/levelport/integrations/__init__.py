"""levelport inside other libraries: one thin module each, which imports its framework when it is used."""
