"""The difference of two runs: each run is reduced to small tables, matched with the other, and compared
beyond noise."""
