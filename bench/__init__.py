"""How fast, on one machine, beside yardsticks of the same run: `make bench`."""
