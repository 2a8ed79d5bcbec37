"""Many ranks of one job: their clocks made one, and the collectives that they took part in together."""
