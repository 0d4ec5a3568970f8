"""Matrix products of quantised operands with their scales folded into the result."""
