"""The difference of two runs: each reduced to small tables, matched, and told apart from noise."""
