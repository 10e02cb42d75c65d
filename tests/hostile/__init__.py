"""What is hard on numbers: narrow dtypes, long epochs, wild gradients."""
