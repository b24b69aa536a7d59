"""Random programs, run by us and by others. __main__.py says how to run them."""
