"""levelport: move a point to where the gradient is largest without raising the loss, then go on descending."""
