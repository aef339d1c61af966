"""The experiments of the paper: specifications, an engine that runs them anywhere, and what is drawn from them."""
