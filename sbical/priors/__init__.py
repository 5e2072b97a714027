"""What is believed before any recording: distributions, TOML files, Pyro models."""
